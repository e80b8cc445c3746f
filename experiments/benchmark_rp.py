"""Speed and memory of the main job, beside their targets and what a user would pick.

    python -m experiments.benchmark_rp --data-dir DIR

Whole commands run in processes of their own. Within this process, contestants take
turns, after a warm-up, and medians (and minima) are printed: machines are noisy, so
read the ratios. torch is measured if it is installed, and noted if not.
"""

import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from gnnrp import datasets, graph, metrics, pipeline, presets, spmm
from gnnrp.propagation import residual


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured."""

    data_dir: Path | None = None
    """Where Cora and Arxiv are."""
    repeats: int = 7
    """Rounds in which the contestants take turns."""
    columns: int = 40
    """Of the dense side of the product (Arxiv has 40 classes)."""


def main(config: Config) -> dict[str, Any]:
    """Measure, print a line each, and return the numbers."""
    arxiv = datasets.load("arxiv", config.data_dir)
    found = {
        "product": product(arxiv, config),
        "import": import_overhead(config),
        "curve": curve(config),
        "commands": {
            name: command(name, config.data_dir) for name in ("sbm", "cora", "arxiv")
        },
    }
    print(json.dumps(found, indent=2))
    return found


def product(arxiv: datasets.Dataset, config: Config) -> dict[str, Any]:
    """One product of Arxiv's adjacency with a dense block, beside scipy and torch.

    The floor: what must be read and written once, at the speed of a plain copy.
    """
    adjacency = graph.normalized_adjacency(arxiv.edges, arxiv.num_nodes)
    csr: Any = spmm.to_scipy(adjacency)
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((arxiv.num_nodes, config.columns), dtype=np.float32)
    device = jnp.asarray(dense)
    multiply = jax.jit(spmm.matmul)
    natural = spmm.prepare(adjacency, reorder=False)
    # In its own order, as the inner hops of A^K are: entering and leaving apart.
    ordered = dataclasses.replace(spmm.prepare(adjacency), order=None)
    source, target = np.ones(2**25, np.float32), np.empty(2**25, np.float32)
    contestants: dict[str, Callable[[], object]] = {
        "gnnrp": lambda: multiply(natural, device).block_until_ready(),
        "gnnrp, inner hop": lambda: multiply(ordered, device).block_until_ready(),
        "scipy CSR": lambda: csr @ dense,
        "copy": lambda: np.copyto(target, source),
    }
    notes = []
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        notes.append("torch is not installed: not measured")
    else:
        rows, columns, values = (
            torch.from_numpy(part.copy())
            for part in (csr.indptr, csr.indices, csr.data)
        )
        sparse = torch.sparse_csr_tensor(rows, columns, values, csr.shape)
        right = torch.from_numpy(dense)
        contestants["torch CSR"] = lambda: sparse @ right
    times = interleaved(contestants, config.repeats)
    touched = (
        csr.data.nbytes + csr.indices.nbytes + csr.indptr.nbytes + 2 * dense.nbytes
    )
    speed = 2 * source.nbytes / times["copy"]["min"]
    result: dict[str, Any] = {"milliseconds": in_milliseconds(times), "notes": notes}
    result["floor_milliseconds"] = round(1e3 * touched / speed, 2)
    if "torch CSR" in times:
        result["ratio_to_torch"] = {
            name: round(times[name]["median"] / times["torch CSR"]["median"], 3)
            for name in ("gnnrp", "gnnrp, inner hop")
        }
        result["target_ratio_to_torch"] = 0.75
    return result


def import_overhead(config: Config) -> dict[str, float]:
    """Seconds that ``import gnnrp`` adds to ``import jax``, in fresh processes."""

    def start(line: str) -> None:
        subprocess.run([sys.executable, "-c", line], check=True)

    times = interleaved(
        {
            "jax": lambda: start("import jax"),
            "both": lambda: start("import jax, gnnrp"),
        },
        config.repeats,
    )
    added = times["both"]["median"] - times["jax"]["median"]
    return {"added_seconds": round(added, 3), "target_seconds": 0.2}


def curve(config: Config) -> dict[str, float]:
    """Cora's 20,000 steps by the exact form, again, once compiled."""
    data = datasets.load("cora", config.data_dir)
    settings = presets.settings("cora")
    matrix = spmm.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    flow = pipeline.build_similarity(matrix, data.features, settings, num_train=140)

    def run() -> object:
        return residual.run(
            flow,
            datasets.targets(data),
            data.splits,
            step_size=settings.step_size,
            num_steps=settings.num_steps,
            metric=metrics.accuracy,
            select=settings.select,
        )

    times = interleaved({"curve": run}, config.repeats)["curve"]
    return {"median_seconds": round(times["median"], 3), "target_seconds": 1.0}


def command(name: str, data_dir: Path | None) -> dict[str, float]:
    """Wall time and peak memory of ``gnnrp rp --dataset name``, as a whole process."""
    targets = {"sbm": 20.0, "cora": 10.0, "arxiv": 40.0}
    line = [sys.executable, "-m", "gnnrp.cli", "rp", "--dataset", name, "--json"]
    if data_dir is not None:
        line += ["--data-dir", str(data_dir)]
    began = time.perf_counter()
    done = subprocess.run(line, stdout=subprocess.PIPE, check=True)
    seconds = time.perf_counter() - began
    record = json.loads(done.stdout)
    return {
        "seconds": round(seconds, 2),
        "target_seconds": targets[name],
        "peak_gigabytes": round(record["peak_memory_bytes"] / 1e9, 2),
        "test_mean": record["test_mean"],
    }


def interleaved(
    contestants: dict[str, Callable[[], object]], repeats: int
) -> dict[str, dict[str, float]]:
    """Run each once to warm up, then in turns; return seconds by name."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():
        run()
    for _ in range(repeats):
        for name, run in contestants.items():
            began = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - began)
    return {
        name: {"median": statistics.median(some), "min": min(some)}
        for name, some in times.items()
    }


def in_milliseconds(times: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return the same in rounded milliseconds."""
    return {
        name: {kind: round(1e3 * value, 2) for kind, value in pair.items()}
        for name, pair in times.items()
    }


if __name__ == "__main__":
    main(tyro.cli(Config))
