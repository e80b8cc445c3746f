"""Compare kernels of wide networks with neural-tangents; time blocks and RP steps.

    python -m experiments.benchmarks.gntk
    python -m experiments.benchmarks.gntk --data-dir DIR --dataset cora --large pubmed \
        --sparse arxiv

Kernels are float32. The kernel of two layers and the RP steps are compiled and warmed
up; the times are medians of interleaved rounds. The block and the large kernel are
computed once, including compilation. Memory peaks are those of the process so far.
"""

import dataclasses
import importlib.util
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from experiments.benchmarks import harness
from gnnrp import datasets, graph, sparse
from gnnrp.kernels import features, gntk
from gnnrp.kernels.gntk import blocked, closed_forms, local, neural_tangents
from gnnrp.propagation import residual, similarity
from gnnrp.runtime import memory
from gnnrp.studies import gntk_kernels


@dataclasses.dataclass(frozen=True)
class Config:
    """Datasets and sizes of the benchmark."""

    data_dir: Path | None = None
    """Folder of the datasets."""
    dataset: str = "sbm"
    """Dataset of the two-layer kernel compared with neural-tangents."""
    large: str = "sbm"
    """Dataset of the three-layer kernel computed in blocks."""
    sparse: str = "sbm"
    """Dataset of the RP steps and of the block computed from neighborhoods."""
    hops: int = 4
    """l of the decoupled network; its RP step has power 2 l."""
    block: int = 500
    """Nodes on each side of the block."""
    repeats: int = 5
    """Rounds of interleaved timing."""
    output: Path | None = None
    """Folder for benchmark_gntk.json."""


def main(config: Config) -> dict[str, Any]:
    """Measure, print and return the results."""
    harness.check_sizes(config)
    found = {
        "two layers": two_layers(config),
        "decoupled step": decoupled_step(config),
        "block": block(config),
        "large": large(config),
    }
    return harness.finish(found, "benchmark_gntk", config.output)


def two_layers(config: Config) -> dict[str, Any]:
    """Time the NTK of two layers, from the features, with both libraries.

    Raises:
        ValueError: the dataset has no features.
    """
    data, matrix = load(config.dataset, config)
    if data.features is None:
        msg = f"{data.name} has no features; choose another --dataset"
        raise ValueError(msg)
    notes: list[str] = []
    x = jnp.asarray(features.as_dense(data.features), jnp.float32)
    network = gntk.Network(2)
    ours = jax.jit(lambda matrix, x: gntk.gcn(matrix, gntk.gram(x), network).ntk)
    contestants: dict[str, harness.Contestant] = {
        "gnnrp": lambda: ours(matrix, x).block_until_ready()
    }
    exactly = in_float64(matrix, np.asarray(x))
    errors = {"gnnrp": error(ours(matrix, x), exactly)}
    apart = None
    if importlib.util.find_spec("neural_tangents") is None:
        notes.append("neural-tangents is not installed: not measured")
    else:
        theirs = jax.jit(lambda P, x: neural_tangents.gcn(P, x, network).ntk)
        dense = matrix(jnp.eye(data.num_nodes))
        contestants["neural-tangents"] = lambda: theirs(dense, x).block_until_ready()
        one, other = ours(matrix, x), theirs(dense, x)
        errors["neural-tangents"] = error(other, exactly)
        apart = error(one, np.asarray(other))
    times = harness.interleaved(contestants, config.repeats)
    return {
        "dataset": config.dataset,
        "nodes": data.num_nodes,
        "features": x.shape[1],
        "milliseconds": harness.in_milliseconds(times),
        "ratio": harness.ratios(times, "gnnrp", ["neural-tangents"]),
        "target_ratio": 0.25,
        "relative_difference": apart,
        "target_difference": 1e-5,
        "error_to_float64": errors,
        "notes": notes,
    }


def in_float64(matrix: sparse.Matrix, x: np.ndarray) -> np.ndarray:
    """Return the NTK of two layers in double precision."""
    with jax.enable_x64(True):
        exact = dataclasses.replace(matrix, data=matrix.data.astype(jnp.float64))
        return np.asarray(
            gntk.gcn(exact, gntk.gram(x.astype(float)), gntk.Network(2)).ntk
        )


def error(found: Any, expected: np.ndarray) -> float:
    """Return the largest difference divided by the largest entry."""
    return float(np.abs(np.asarray(found) - expected).max() / np.abs(expected).max())


def decoupled_step(config: Config) -> dict[str, Any]:
    """Time a step of RP along the kernel of a decoupled network and along a power."""
    data, matrix = load(config.sparse, config)
    targets = jnp.asarray(datasets.targets(data))
    mask = jnp.asarray(np.atleast_2d(data.splits.train)[0])[:, None]
    state = residual.init(targets)
    step = jax.jit(lambda S, state, y, m: residual.step(state, S, y, m, step_size=0.1))
    kernel = closed_forms.decoupled(
        matrix, data.num_nodes, num_hops=config.hops, depth=3
    )
    maps = {"decoupled": kernel, "RP": similarity.Power(matrix, 2 * config.hops)}
    times = harness.interleaved(
        {
            name: lambda S=S: jax.block_until_ready(step(S, state, targets, mask))
            for name, S in maps.items()
        },
        config.repeats,
    )
    return {
        "dataset": config.sparse,
        "power": 2 * config.hops,
        "milliseconds": harness.in_milliseconds(times),
        "ratio": harness.ratios(times, "decoupled", ["RP"]),
        "target_ratio": 1.3,
    }


def block(config: Config) -> dict[str, Any]:
    """Compute a block of the kernel of two layers between randomly drawn nodes.

    A dataset without features gets 128 normally distributed ones.
    """
    data, _ = load(config.sparse, config)
    adjacency = graph.normalized_adjacency(data.edges, data.num_nodes)
    rng = np.random.default_rng(0)
    size = min(config.block, data.num_nodes)
    rows, columns = (rng.choice(data.num_nodes, size, replace=False) for _ in "ab")
    x = data.features
    if x is None:
        x = rng.standard_normal((data.num_nodes, 128), dtype=np.float32)
    began = time.perf_counter()
    local.gcn(adjacency, x, rows, columns, gntk.Network(2))
    return {
        "dataset": config.sparse,
        "nodes": data.num_nodes,
        "rows": size,
        "seconds": round(time.perf_counter() - began, 3),
        "whole_kernel_gigabytes": round(4 * data.num_nodes**2 / 1e9, 2),
        "peak_gigabytes": round((memory.peak() or 0) / 1e9, 2),
    }


def large(config: Config) -> dict[str, Any]:
    """Compute the NTK of three layers in blocks once, including compilation."""
    data, matrix = load(config.large, config)
    began = time.perf_counter()
    gram = gntk_kernels.inputs(data)
    compiled = jax.jit(blocked.gcn, donate_argnums=1)
    jax.block_until_ready(compiled(matrix, gram, gntk.Network(3)))
    return {
        "dataset": config.large,
        "nodes": data.num_nodes,
        "seconds": round(time.perf_counter() - began, 2),
        "target_seconds": 180,
        "peak_gigabytes": round((memory.peak() or 0) / 1e9, 2),
        "target_gigabytes": 16,
    }


def load(name: str, config: Config) -> tuple[datasets.Dataset, sparse.Matrix]:
    """Return a dataset and its normalized adjacency matrix."""
    data = datasets.load(name, config.data_dir)
    return data, sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))


if __name__ == "__main__":
    main(tyro.cli(Config))
