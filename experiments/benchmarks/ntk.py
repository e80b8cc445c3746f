"""Compare kernels of finite GCNs and their training with other libraries.

    python -m experiments.benchmarks.ntk
    python -m experiments.benchmarks.ntk --data-dir DIR --dataset cora --large pubmed

The GCN is that of the paper's figures: two layers of width 16 with biases, in float32.
The structured kernel and the training steps are compiled and warmed up; their times are
medians of interleaved rounds. Jacobian contraction, the empirical kernel of
neural-tangents and kernels of three layers are compiled, then run once. The large
kernel is computed first, so that the memory peak of the process is its own.
"""

import dataclasses
import functools
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from experiments.benchmarks import harness, torch_gcn
from gnnrp import datasets, graph, sparse
from gnnrp.kernels.gntk import neural_tangents
from gnnrp.kernels.ntk import empirical, structured
from gnnrp.models import gnn, objectives, training
from gnnrp.runtime import memory
from gnnrp.studies import ntk as ntk_study


@dataclasses.dataclass(frozen=True)
class Config:
    """Datasets and sizes of the benchmark."""

    data_dir: Path | None = None
    """Folder of the datasets."""
    dataset: str = "sbm"
    """Dataset of the kernels computed with each method, and of training."""
    large: str = "sbm"
    """Dataset of the whole kernel computed once."""
    width: int = 16
    """m, width of the hidden layer."""
    steps: int = 200
    """Training steps per round."""
    repeats: int = 5
    """Rounds of interleaved timing."""
    output: Path | None = None
    """Folder for benchmark_ntk.json."""


def main(config: Config) -> dict[str, Any]:
    """Measure, print and return the results."""
    harness.check_sizes(config)
    found = {
        "large": large(config),
        "training": steps(config),
        "kernel": kernel(config),
    }
    return harness.finish(found, "benchmark_ntk", config.output)


def load(name: str, config: Config, depth: int = 2) -> tuple:
    """Return a network, its weights, its training data and the dataset."""
    data = datasets.load(name, config.data_dir)
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    x = ntk_study.inputs(data, row_normalize=True)
    network = gnn.GCN(data.num_classes, config.width, depth)
    learned = training.Data(
        x,
        matrix,
        jnp.asarray(datasets.targets(data), jnp.float32),
        jnp.asarray(np.atleast_2d(data.splits.train)[0]),
    )
    params = jax.jit(network.init)(jax.random.key(0), x, matrix)
    return network, params, learned, data


def by_structure(network: gnn.GCN, reduce: str = "sum") -> Callable:
    """Return (params, data, gram) -> kernel."""

    def of(params, data, gram=None):
        layers = gnn.layers(network, params)
        return structured.gcn(layers, data.x, data.matrix, reduce=reduce, gram=gram)

    return jax.jit(of)


def by_jacobian(network: gnn.GCN) -> Callable:
    """Return (params, data) -> kernel of the sum of logits."""

    def of(params, data):
        def outputs(params, x) -> Any:
            return network.apply(params, x, data.matrix)

        return empirical.ntk(outputs, params, data.x, reduce="sum")

    return jax.jit(of)


def large(config: Config) -> dict[str, Any]:
    """Compute the whole trace kernel of a large graph once, including compilation."""
    network, params, learned, data = load(config.large, config)
    began = time.perf_counter()
    by_structure(network, "trace")(params, learned).block_until_ready()
    return {
        "dataset": config.large,
        "nodes": data.num_nodes,
        "seconds": round(time.perf_counter() - began, 2),
        "target_seconds": 60,
        "peak_gigabytes": round((memory.peak() or 0) / 1e9, 2),
        "target_gigabytes": 12,
    }


def kernel(config: Config) -> dict[str, Any]:
    """Time the kernel of the sum of logits with each method."""
    network, params, learned, data = load(config.dataset, config)
    gram = jax.jit(structured.gram)(learned.x, learned.matrix)
    ours = by_structure(network)
    times = harness.interleaved(
        {
            "structured": lambda: ours(params, learned, gram).block_until_ready(),
            "Gram matrix of the inputs": lambda: jax.jit(structured.gram)(
                learned.x, learned.matrix
            ).block_until_ready(),
        },
        config.repeats,
    )
    found, seconds = once(by_jacobian(network), params, learned)
    times["Jacobian contraction"] = {"median": seconds, "min": seconds}
    apart = {"float32": distance(ours(params, learned, gram), found)}
    with jax.enable_x64(True):
        wide = jax.tree.map(in_float64, (params, learned))
        apart["float64"] = distance(ours(*wide), by_jacobian(network)(*wide))
    notes: list[str] = []
    if importlib.util.find_spec("neural_tangents") is None:
        notes.append("neural-tangents is not installed: not measured")
    else:
        _, seconds = once(by_neural_tangents(network), params, learned)
        times["neural-tangents"] = {"median": seconds, "min": seconds}
    return {
        "dataset": config.dataset,
        "nodes": data.num_nodes,
        "milliseconds": harness.in_milliseconds(times),
        "ratio": harness.ratios(
            times, "structured", ["Jacobian contraction", "neural-tangents"]
        ),
        "target_ratio": {"Jacobian contraction": 0.01, "neural-tangents": 0.005},
        "relative_difference": apart,
        "target_difference": {"float32": 1e-6, "float64": 1e-12},
        "three layers": three_layers(config),
        "notes": notes,
    }


def three_layers(config: Config) -> dict[str, float]:
    """Time each method once for three layers, where the structure stops paying off."""
    network, params, learned, _ = load(config.dataset, config, depth=3)
    ways = {"structured": by_structure(network), "Jacobian": by_jacobian(network)}
    return {name: round(once(way, params, learned)[1], 3) for name, way in ways.items()}


def by_neural_tangents(network: gnn.GCN) -> Callable:
    """Return (params, data) -> empirical kernel of the sum of logits."""
    nt = neural_tangents.load()

    def of(params, data):
        def total(params, x):
            logits: Any = network.apply(params, x, data.matrix)
            return jnp.sum(logits, axis=1, keepdims=True)

        kernel_fn = nt.empirical_ntk_fn(total, trace_axes=(-1,), implementation=1)
        x = data.x
        if isinstance(x, sparse.Matrix):
            x = sparse.matmul(x, jnp.eye(x.shape[1]))
        return kernel_fn(x, None, params)

    return jax.jit(of)


def steps(config: Config) -> dict[str, Any]:
    """Measure steps per second of the same GCN in each library."""
    network, _, learned, data = load(config.dataset, config)
    rule = training.Rule(network, objectives.sgd(0.01, momentum=0.9, weight_decay=5e-4))
    state = training.init(rule, learned, jax.random.key(0))

    @functools.partial(jax.jit, static_argnames="length")
    def chunk(state, data, length):
        return jax.lax.scan(
            lambda state, _: training.step(rule, state, data), state, length=length
        )

    contestants: dict[str, harness.Contestant] = {
        "gnnrp": lambda: jax.block_until_ready(chunk(state, learned, config.steps))
    }
    if isinstance(learned.x, sparse.Matrix):  # as in the other libraries
        dense = learned._replace(x=learned.x(jnp.eye(learned.x.shape[1])))
        contestants["gnnrp, dense features"] = lambda: jax.block_until_ready(
            chunk(state, dense, config.steps)
        )
    notes: list[str] = []
    contestants |= torch_gcn.contestants(
        learned,
        harness.adjacency(data),
        hidden=(config.width,),
        num_steps=config.steps,
        notes=notes,
    )
    times = harness.interleaved(contestants, config.repeats)
    others = [name for name in times if name != "gnnrp"]
    return {
        "dataset": config.dataset,
        "steps_per_second": {
            name: round(config.steps / pair["median"], 1)
            for name, pair in times.items()
        },
        "times_faster": {
            name: round(times[name]["median"] / times["gnnrp"]["median"], 2)
            for name in others
        },
        "target_times": 3,
        "notes": notes,
    }


def once(fn: Callable, *arguments: Any) -> tuple[jax.Array, float]:
    """Return the value of a compiled function, and its seconds without compilation."""
    leaves, structure = jax.tree.flatten(arguments)
    flat = jax.jit(lambda leaves: fn(*jax.tree.unflatten(structure, leaves)))
    compiled = flat.lower(leaves).compile()
    began = time.perf_counter()
    found = compiled(leaves).block_until_ready()
    return found, time.perf_counter() - began


def in_float64(leaf: jax.Array) -> jax.Array:
    """Convert floating-point arrays to float64; return other arrays unchanged."""
    wide = jnp.issubdtype(leaf.dtype, jnp.floating)
    return leaf.astype(jnp.float64) if wide else leaf


def distance(one: jax.Array, other: jax.Array) -> float:
    """Return |K1 - K2| / |K2| in the Frobenius norm."""
    exact = np.asarray(other, np.float64)
    return float(np.linalg.norm(np.asarray(one) - exact) / np.linalg.norm(exact))


if __name__ == "__main__":
    main(tyro.cli(Config))
