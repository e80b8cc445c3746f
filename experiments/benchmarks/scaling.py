"""Measure time and memory of RP on growing graphs, up to the size of ogbn-products.

    python -m experiments.benchmarks.scaling --most 120000000 --output results

Graphs are random with 50 entries per node, the worst case for the cache. The time of a
product is fitted as entries^b; b = 1 is linear growth.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from experiments import plots
from experiments.benchmarks import harness
from gnnrp import sparse
from gnnrp.propagation import residual, similarity
from gnnrp.runtime import memory

_CACHE = 2**25  # bytes of a dense side that fit in a typical last-level cache


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the benchmark."""

    least: int = 100_000
    """Entries of the smallest graph."""
    most: int = 10_000_000
    """Entries of the largest graph (ogbn-products: 120000000)."""
    columns: int = 47
    """Columns of the dense side (ogbn-products has 47 classes)."""
    power: int = 8
    """Hops of an RP step."""
    num_steps: int = 4
    """RP steps on the largest graph."""
    repeats: int = 3
    """Products timed on each graph, after a warm-up."""
    output: Path | None = None
    """Folder for benchmark_scaling.json and .png."""


def main(config: Config) -> dict[str, Any]:
    """Measure, print and return the results."""
    harness.check_sizes(config)
    decades = np.log10(config.most / config.least)
    sizes = np.geomspace(config.least, config.most, max(2, round(2 * decades) + 1))
    copy, copied = harness.copying()
    times = harness.interleaved({"copy": copy}, 5)
    speed = copied / times["copy"]["min"]
    rows = []
    for entries in sizes:
        csr = harness.random_graph(int(entries))
        rows.append(measure(csr, config, speed, last=entries == sizes[-1]))
    found = {
        "columns": config.columns,
        "sizes": rows,
        "exponent": exponent(rows),
        "exponent beyond the cache": exponent(rows, _CACHE / (4 * config.columns)),
        "target_exponent": 1.1,
        "peak_gigabytes": round((memory.peak() or 0) / 1e9, 2),
        "target_gigabytes": 12.0,
    }
    record = harness.finish(found, "benchmark_scaling", config.output)
    figure = plots.scaling(
        [row["entries"] for row in rows],
        {"product": [row["median"] for row in rows]},
        [row["floor"] for row in rows],
        exponent=found["exponent"],
    )
    harness.write_figure(figure, "benchmark_scaling", config.output)
    return record


def measure(csr: Any, config: Config, speed: float, *, last: bool) -> dict[str, Any]:
    """Time the layout and the product on one graph, and RP steps on the last one."""
    began = time.perf_counter()
    matrix = jax.block_until_ready(sparse.prepare(csr, reorder=False))
    prepared = time.perf_counter() - began
    nodes, entries = csr.shape[0], csr.nnz
    floor = harness.product_bytes(csr, config.columns) / speed
    del csr
    v = jnp.ones((nodes, config.columns))
    multiply = jax.jit(sparse.matmul)
    times = harness.interleaved(
        {"product": lambda: multiply(matrix, v).block_until_ready()}, config.repeats
    )["product"]
    row = {
        "nodes": nodes,
        "entries": entries,
        "prepare": round(prepared, 4),
        "median": round(times["median"], 6),
        "min": round(times["min"], 6),
        "floor": round(floor, 6),
    }
    if last:
        row["rp_steps"] = config.num_steps
        row["rp_seconds"] = round(take_steps(matrix, nodes, config), 3)
    return row


def take_steps(matrix: sparse.Matrix, nodes: int, config: Config) -> float:
    """Return the seconds of RP steps with one node in ten labeled."""
    rng = np.random.default_rng(0)
    mask = jnp.asarray(rng.random((nodes, 1)) < 0.1)
    labels = jnp.asarray(rng.integers(0, config.columns, nodes))
    step = jax.jit(
        lambda S, state, labels, mask: residual.step(
            state, S, jax.nn.one_hot(labels, config.columns), mask, step_size=1.0
        ),
        donate_argnums=1,
    )
    S = similarity.Power(matrix, config.power)
    state = residual.init(jnp.zeros((nodes, config.columns)))
    began = time.perf_counter()
    for _ in range(config.num_steps):
        state = step(S, state, labels, mask)
    jax.block_until_ready(state)
    return time.perf_counter() - began


def exponent(rows: list[dict[str, Any]], nodes: float = 0) -> float | None:
    """Return b of a log-log fit time ~ entries^b to the graphs with more nodes."""
    fitted = [row for row in rows if row["nodes"] > nodes]
    if len(fitted) < 2:
        return None
    entries, seconds = (
        np.log([row[key] for row in fitted]) for key in ("entries", "median")
    )
    return round(float(np.polyfit(entries, seconds, 1)[0]), 3)


if __name__ == "__main__":
    main(tyro.cli(Config))
