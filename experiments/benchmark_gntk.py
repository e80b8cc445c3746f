"""Kernels of wide networks beside neural-tangents, in blocks, and as a step of RP.

    python -m experiments.benchmark_gntk
    python -m experiments.benchmark_gntk --data-dir DIR --dataset cora --large pubmed \
        --sparse arxiv

Kernels are float32. Two layers and steps are compiled, warm, medians in turns; the
block and the large kernel are made once, compilation included. Peaks are of the process
until then.
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

from experiments import common
from gnnrp import datasets, graph, sparse
from gnnrp.kernels import features, gntk
from gnnrp.kernels.gntk import blocked, closed_forms, local, neural_tangents
from gnnrp.propagation import residual, similarity
from gnnrp.runtime import memory
from gnnrp.studies import gntk as gntk_study


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured."""

    data_dir: Path | None = None
    """Where the data sets are."""
    dataset: str = "sbm"
    """Whose kernel of two layers stands beside that of neural-tangents."""
    large: str = "sbm"
    """Whose kernel of three layers is made in blocks."""
    sparse: str = "sbm"
    """Where steps of RP are taken, and a block is made by neighborhoods."""
    hops: int = 4
    """l of the decoupled network, whose step has the power 2 l."""
    block: int = 500
    """Nodes on each side of the block."""
    repeats: int = 5
    """Rounds in which the contestants take turns."""
    output: Path | None = None
    """A folder for benchmark_gntk.json."""


def main(config: Config) -> dict[str, Any]:
    """Measure, print, and return the numbers."""
    common.check_sizes(config)
    found = {
        "two layers": two_layers(config),
        "decoupled step": decoupled_step(config),
        "block": block(config),
        "large": large(config),
    }
    return common.finish(found, "benchmark_gntk", config.output)


def two_layers(config: Config) -> dict[str, Any]:
    """The NTK of two layers, from the features, by both libraries.

    Raises:
        ValueError: a data set without features.
    """
    data, matrix = load(config.dataset, config)
    if data.features is None:
        msg = f"{data.name} has no features here; take another --dataset"
        raise ValueError(msg)
    notes: list[str] = []
    x = jnp.asarray(features.as_dense(data.features), jnp.float32)
    network = gntk.Network(2)
    ours = jax.jit(lambda matrix, x: gntk.gcn(matrix, gntk.gram(x), network).ntk)
    contestants: dict[str, common.Contestant] = {
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
    times = common.interleaved(contestants, config.repeats)
    return {
        "data set": config.dataset,
        "nodes": data.num_nodes,
        "features": x.shape[1],
        "milliseconds": common.in_milliseconds(times),
        "ratio": common.ratios(times, "gnnrp", ["neural-tangents"]),
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
    """Return the largest difference over the largest entry."""
    return float(np.abs(np.asarray(found) - expected).max() / np.abs(expected).max())


def decoupled_step(config: Config) -> dict[str, Any]:
    """A step of RP along the kernel of a decoupled network, beside the same power."""
    data, matrix = load(config.sparse, config)
    targets = jnp.asarray(datasets.targets(data))
    mask = jnp.asarray(np.atleast_2d(data.splits.train)[0])[:, None]
    state = residual.init(targets)
    step = jax.jit(lambda S, state, y, m: residual.step(state, S, y, m, step_size=0.1))
    kernel = closed_forms.decoupled(
        matrix, data.num_nodes, num_hops=config.hops, depth=3
    )
    maps = {"decoupled": kernel, "RP": similarity.Power(matrix, 2 * config.hops)}
    times = common.interleaved(
        {
            name: lambda S=S: jax.block_until_ready(step(S, state, targets, mask))
            for name, S in maps.items()
        },
        config.repeats,
    )
    return {
        "data set": config.sparse,
        "power": 2 * config.hops,
        "milliseconds": common.in_milliseconds(times),
        "ratio": common.ratios(times, "decoupled", ["RP"]),
        "target_ratio": 1.3,
    }


def block(config: Config) -> dict[str, Any]:
    """A block of the kernel of two layers, of nodes drawn at random.

    Where the data set has no features, they are 128 normal ones.
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
        "data set": config.sparse,
        "nodes": data.num_nodes,
        "rows": size,
        "seconds": round(time.perf_counter() - began, 3),
        "whole_kernel_gigabytes": round(4 * data.num_nodes**2 / 1e9, 2),
        "peak_gigabytes": round((memory.peak() or 0) / 1e9, 2),
    }


def large(config: Config) -> dict[str, Any]:
    """The NTK of three layers in blocks, once, compilation included."""
    data, matrix = load(config.large, config)
    began = time.perf_counter()
    gram = gntk_study.inputs(data)
    compiled = jax.jit(blocked.gcn, donate_argnums=1)
    jax.block_until_ready(compiled(matrix, gram, gntk.Network(3)))
    return {
        "data set": config.large,
        "nodes": data.num_nodes,
        "seconds": round(time.perf_counter() - began, 2),
        "target_seconds": 180,
        "peak_gigabytes": round((memory.peak() or 0) / 1e9, 2),
        "target_gigabytes": 16,
    }


def load(name: str, config: Config) -> tuple[datasets.Dataset, sparse.Matrix]:
    """Return a data set and its normalized adjacency."""
    data = datasets.load(name, config.data_dir)
    return data, sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))


if __name__ == "__main__":
    main(tyro.cli(Config))
