"""Predict rows moved and time of a hop of RP on many hosts, by partitioner.

    python -m experiments.partition.study --output DIR

Partitions ogbn-arxiv and a generated graph of the size of ogbn-products (see
``communities``) with each method and counts the rows that a hop moves. Predicts the
seconds of a hop for several link speeds, compares the prediction with two processes on
this machine, and extrapolates to ogbn-papers100M. Writes a record, figures and the page
``partition_study.md``. ``pip install 'gnnrp[study]'`` installs METIS and KaHIP. The
study takes about 9 GB, and a tenth of that with `--num-nodes 300000`.
"""

import dataclasses
import gc
import time
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from experiments import published, runner
from experiments.benchmarks import harness
from experiments.partition import (
    communities,
    figures,
    halo_costs,
    markdown,
    partitioners,
    two_processes,
)
from experiments.partition.halo_costs import Link, Volume
from gnnrp import sparse
from gnnrp.distributed import partitioning
from gnnrp.runtime import checks


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Graph sizes, numbers of parts and links."""

    dataset: str = "arxiv"
    """The real graph."""
    num_nodes: int = 2_400_000
    """Nodes of the generated graph (ogbn-products: 2449029)."""
    edges_per_node: int = 30
    """Edges drawn per node of the generated graph; duplicates count once."""
    check_nodes: int = 200_000
    """Nodes of the generated graph that two processes share."""
    columns: int = 47
    """Columns of the generated graphs (ogbn-products has 47 classes)."""
    parts: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    """Numbers of hosts that share a graph."""
    methods: tuple[str, ...] = ("natural", "reordered", "metis", "kahip")
    """Partitioners, of these four."""
    seen_entries: int = 80_000_000
    """Most entries for METIS and KaHIP; larger graphs are sampled. METIS takes about 90
    bytes of memory per entry."""
    gigabits: tuple[float, ...] = (1.0, 10.0, 100.0, 400.0)
    """Link speeds per second, in each direction."""
    latency: float = 5e-5
    """Seconds per message."""
    hosts: tuple[int, ...] = (8, 16, 32, 64, 128, 256)
    """Numbers of hosts for ogbn-papers100M."""
    hops: int = 15
    """Hops to time; the fastest counts."""

    SHORT: ClassVar[dict[str, Any]] = {
        "dataset": "sbm",
        "num_nodes": 3000,
        "edges_per_node": 10,
        "check_nodes": 2000,
        "parts": (2, 4),
        "hops": 5,
    }


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return the volumes; times and predictions from times are in ``measured``."""
    check(config)
    data = runner.load(config.dataset, config)
    found: dict[str, Any] = {config.dataset: published.ABSENT}
    times, speeds, processes = {}, {}, {}
    if data is not None:
        real = harness.adjacency(data)
        found[config.dataset], times[config.dataset] = parted(
            real, data.num_classes, config.dataset, config, progress
        )
        speeds[config.dataset] = speed(real, data.num_classes, config.hops)
        processes[config.dataset] = checked(real, data.num_classes, config, progress)
        del real
    some = generated(config.check_nodes, config)
    for name, columns in (
        ("generated", config.columns),
        ("papers100M", halo_costs.PAPERS.columns),
    ):
        speeds[name] = speed(some, columns, config.hops)
    processes["generated"] = checked(some, config.columns, config, progress)
    del some
    whole = generated(config.num_nodes, config)
    found["generated"], times["generated"] = parted(
        whole, config.columns, "generated", config, progress
    )
    del whole
    graphs = {name: one for name, one in found.items() if isinstance(one, dict)}
    measured = {
        "partition seconds": times,
        "entries x columns a second": speeds,
        "hops": {name: hops(one, speeds[name], config) for name, one in graphs.items()},
        "processes": processes,
        "papers100M": papers(graphs, speeds["papers100M"], config),
    }
    result = {"graphs": found, "papers100M": halo_costs.PAPERS._asdict()}
    files = {} if data is None else {config.dataset: data.files}
    return runner.Outcome(result, figures.figures(graphs, measured), files, measured)


def check(config: Config) -> None:
    """Check the settings before the study runs for hours.

    Raises:
        ValueError: a method is not installed, there are too many parts, or the speed
            of a link is not positive.
    """
    partitioners.require(config.methods)
    for name in ("parts", "methods", "gigabits", "hosts"):
        checks.count(f"the number of {name}", len(getattr(config, name)), 1)
    least = min(config.num_nodes, config.check_nodes)
    checks.count("parts", max(config.parts), 1, least)
    checks.count("parts", min(config.parts), 2)
    for gigabits in config.gigabits:
        checks.positive("gigabits", gigabits)
    checks.at_least("latency", config.latency, 0)


def generated(num_nodes: int, config: Config) -> Any:
    """Return a normalized generated graph."""
    csr = communities.generate(
        num_nodes, config.edges_per_node * num_nodes, config.seed
    )
    degree = np.diff(csr.indptr)
    scale = 1 / np.sqrt(np.maximum(degree, 1)).astype(np.float32)
    csr.data *= np.repeat(scale, degree)
    csr.data *= scale[csr.indices]
    return csr


def parted(
    csr: Any,
    columns: int,
    name: str,
    config: Config,
    progress: runner.Progress,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return size and volumes of a graph by method and parts, and partition times."""
    rows, times = {}, {}
    for method in config.methods:
        partition = partitioners.METHODS[method](csr, config.seen_entries, config.seed)
        rows[method], times[method] = [], []
        for parts in config.parts:
            done = sum(map(len, rows.values()))
            total = len(config.methods) * len(config.parts)
            progress(f"{name}: {method}, {parts} parts", done, total)
            began = time.perf_counter()
            layout = partition(parts)
            times[method].append(round(time.perf_counter() - began, 3))
            rows[method].append(halo_costs.volume(csr, layout)._asdict())
        del partition
        gc.collect()
    size = {"nodes": csr.shape[0], "entries": csr.nnz, "columns": columns}
    seen = {"share of edges seen": round(min(1.0, config.seen_entries / csr.nnz), 4)}
    return size | seen | {"volumes": rows}, times


def speed(csr: Any, columns: int, repeats: int) -> float:
    """Return the entries times columns that this machine multiplies per second.

    The fastest run counts, since a median would include the load of other processes.
    """
    matrix = sparse.prepare(csr, reorder=False)
    v = jnp.ones((csr.shape[0], columns), jnp.float32)
    multiply = jax.jit(sparse.matmul)
    product = {"product": lambda: multiply(matrix, v).block_until_ready()}
    times = harness.interleaved(product, repeats)
    return csr.nnz * columns / times["product"]["min"]


def hops(graph: dict[str, Any], rate: float, config: Config) -> dict[str, Any]:
    """Predict the seconds of a hop by method, parts and link, and on one host."""
    columns = graph["columns"]
    found: dict[str, Any] = {"one host": graph["entries"] * columns / rate}
    for method, rows in graph["volumes"].items():
        found[method] = [
            {
                f"{gigabits:g}": halo_costs.seconds(
                    Volume(**row), columns, rate, Link(gigabits, config.latency)
                )
                for gigabits in config.gigabits
            }
            for row in rows
        ]
    return found


def checked(
    csr: Any, columns: int, config: Config, progress: runner.Progress
) -> list[dict[str, Any]]:
    """Return predictions and measurements of two processes, for both exchanges."""
    method = partitioners.best(config.methods)
    one = partitioning.from_parts(np.zeros(csr.shape[0], int), 1)
    alone = two_processes.measure(csr, one, "gather", columns, config.hops)
    cases = (("halo", method), ("gather", config.methods[0]))
    rows = []
    for exchange, method in cases:
        progress("two processes", len(rows), len(cases))
        partition = partitioners.METHODS[method](csr, config.seen_entries, config.seed)
        layout = partition(2)
        found = two_processes.measure(csr, layout, exchange, columns, config.hops)
        count = halo_costs.volume(csr, layout)
        moved = count.gather if exchange == "gather" else count.padded
        apart = found["product"] - alone["product"]
        share = count.most_entries / csr.nnz
        norm = np.linalg.norm
        rows.append({
            "exchange": exchange,
            "method": method,
            "entries": csr.nnz,
            "predicted bytes": moved * columns * halo_costs.FLOAT,
            "bytes": found["bytes"],
            "relative difference": float(norm(apart) / norm(alone["product"])),
            "one process": alone["seconds"],
            "predicted local seconds": share * alone["local seconds"],
            "local seconds": found["local seconds"],
            "seconds": found["seconds"],
        })
    return rows


def papers(
    graphs: dict[str, Any], rate: float, config: Config
) -> dict[str, list[dict[str, Any]]]:
    """Predict ogbn-papers100M on many hosts, if it were like each of the graphs."""
    links = [Link(gigabits, config.latency) for gigabits in config.gigabits]
    found = {}
    for name, graph in graphs.items():
        rows = graph["volumes"][partitioners.best(config.methods)]
        volumes = {row["parts"]: Volume(**row) for row in rows}
        found[name] = [
            halo_costs.extrapolated(
                volumes, graph["nodes"], halo_costs.PAPERS, p, rate, links
            )
            for p in config.hosts
        ]
    return found


if __name__ == "__main__":
    runner.main(Config, run, "partition_study", markdown.page)
