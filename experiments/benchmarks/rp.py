r"""Measure speed and memory of whole runs and compare them with their targets.

    python -m experiments.benchmarks.rp
    python -m experiments.benchmarks.rp --data-dir DIR --curve cora --sweep arxiv \
        --commands sbm cora arxiv tolokers

Each whole command runs once in its own process, including import and compilation.
Everything timed within this process is warmed up, and the medians are printed.
"""

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import tyro

from experiments.benchmarks import gcn, harness
from gnnrp import datasets, graph, metrics, propagation, sparse
from gnnrp.kernels import features
from gnnrp.propagation import (
    AUTO,
    Auto,
    Iterate,
    Steps,
    losses,
    similarity,
    solvers,
    sweep,
)
from gnnrp.studies import presets, similarities
from gnnrp.studies import rp as rp_study

COMMANDS: dict[str, tuple[float | None, float | None]] = {
    # dataset and flags -> targets of a whole process, in seconds and gigabytes
    "sbm": (20, None),
    "cora": (10, None),
    "arxiv": (40, 3),
    "tolokers": (60, None),
    "cs": (60, 8),
    "physics": (120, 8),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Datasets and sizes of the benchmark."""

    data_dir: Path | None = None
    """Folder of the datasets."""
    repeats: int = 7
    """Rounds of the timings within this process."""
    commands: tuple[str, ...] = ("sbm",)
    """Datasets run as whole processes, each with flags of `gnnrp rp`."""
    curve: str = "sbm"
    """Dataset of the timed learning curve (the target is for Cora)."""
    sweep: str = "sbm"
    """Dataset of the sweep over step sizes (the targets are for Arxiv)."""
    power: int = 7
    """K of the sweep over step sizes."""
    powers: tuple[int, ...] = (1, 2)
    """K of the sweep over powers and step sizes (the target is for 1 to 10)."""
    epochs: int = 200
    """Epochs of the GCN whose time to accuracy is compared with that of RP."""
    num_steps: int = 100
    """Steps of the sweep."""
    output: Path | None = None
    """Folder for benchmark_rp.json."""


def main(config: Config) -> dict[str, Any]:
    """Measure, print and return the results."""
    harness.check_sizes(config)
    found = {
        "import": import_overhead(config),
        "curve": curve(config),
        "sweep": step_sizes(config),
        "grid": grid(config),
        "methods": methods(config),
        "time to accuracy": time_to_accuracy(config),
        "commands": {name: command(name, config.data_dir) for name in config.commands},
    }
    return harness.finish(found, "benchmark_rp", config.output)


def import_overhead(config: Config) -> dict[str, float]:
    """Measure the seconds that ``import gnnrp`` adds to ``import jax``."""

    def start(line: str) -> None:
        subprocess.run([sys.executable, "-c", line], check=True)

    times = harness.interleaved(
        {
            "jax": lambda: start("import jax"),
            "both": lambda: start("import jax, gnnrp"),
        },
        config.repeats,
    )
    added = times["both"]["median"] - times["jax"]["median"]
    return {"added_seconds": round(added, 3), "target_seconds": 0.2}


def curve(config: Config) -> dict[str, float]:
    """Time all steps of the published run in the exact form, after compilation."""
    data = datasets.load(config.curve, config.data_dir)
    settings = presets.settings(config.curve)
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    flow = similarities.build(
        matrix,
        data.features,
        settings,
        num_train=int(data.splits.train.sum(axis=1).max()),
    ).similarity

    times = harness.interleaved(
        {"curve": lambda: published(flow, data, settings)}, config.repeats
    )["curve"]
    return {
        "steps": settings.num_steps,
        "median_seconds": round(times["median"], 3),
        "target_seconds": 1.0,
    }


def published(flow: Any, data: Any, settings: presets.RPSettings) -> Any:
    """Run the published settings."""
    targets, metric = datasets.targets(data), metrics.by_name(data.metric)
    return rp_study.propagate(flow, targets, data.splits, settings, metric)


def step_sizes(config: Config) -> dict[str, Any]:
    """Time all step sizes of the paper's grid at one power, and a single one."""
    data = datasets.load(config.sweep, config.data_dir)
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    metric = metrics.by_name(data.metric)
    targets = datasets.targets(data)
    S = similarity.Power(matrix, config.power)

    def run(
        step_sizes: Sequence[float],
        num_steps: int,
        solver: solvers.Solver | Auto = AUTO,
    ):
        began = time.perf_counter()
        steps = Steps(step_sizes, num_steps)
        found = propagation.run(
            S, targets, data.splits, steps, metric=metric, solver=solver
        )
        return found, time.perf_counter() - began

    found, seconds = run(sweep.STEP_SIZES, config.num_steps)
    report = found[0].report
    columns = targets.shape[1] * len(data.splits.train)
    loss = losses.softmax if data.metric == "accuracy" else losses.squared
    few = max(1, config.num_steps // 20)
    one, all_seven = ([], [])
    for _ in range(3):  # the first compiles
        one.append(run([1.0], few, Iterate(loss))[1])
        all_seven.append(run(sweep.STEP_SIZES, few, Iterate(loss))[1])
    return {
        "dataset": config.sweep,
        "power": config.power,
        "step sizes": list(sweep.STEP_SIZES),
        "method": report.solver,
        "products": report.num_columns / columns,
        "target_products": 40,
        "seconds": round(seconds, 2),
        "val": [round(100 * float(each.best_val[0]), 3) for each in found],
        "test": [round(100 * float(each.best_test[0]), 3) for each in found],
        "iterated": {
            "one_seconds": round(min(one), 3),
            "all_seconds": round(min(all_seven), 3),
            "ratio": round(min(all_seven) / min(one), 2),
            "target_ratio": 5.5,
        },
    }


def grid(config: Config) -> dict[str, Any]:
    """Time one sweep over all powers and step sizes."""
    data = datasets.load(config.sweep, config.data_dir)
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    began = time.perf_counter()
    table = sweep.run(
        sweep.powers(matrix, config.powers),
        datasets.targets(data),
        data.splits,
        Steps(sweep.STEP_SIZES, config.num_steps),
        metric=metrics.by_name(data.metric),
    )
    best = sweep.winner(table)
    return {
        "dataset": config.sweep,
        "powers": list(config.powers),
        "seconds": round(time.perf_counter() - began, 2),
        "winner": best._asdict(),
    }


def time_to_accuracy(config: Config) -> dict[str, Any]:
    """Measure the time to a validation accuracy that RP and a two-layer GCN both reach.

    RP takes the whole published run, the GCN the epochs it needs; both are compiled.

    Raises:
        ValueError: the dataset has no features.
    """
    data = datasets.select_split(datasets.load(config.curve, config.data_dir), 0)
    if data.features is None:
        msg = f"{data.name} has no features for a GCN; choose another --curve"
        raise ValueError(msg)
    settings = presets.settings(config.curve)
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    flow = similarities.build(
        matrix, data.features, settings, num_train=int(data.splits.train.sum())
    ).similarity
    times = harness.interleaved({"RP": lambda: published(flow, data, settings)}, 1)
    best = float(published(flow, data, settings).best_val[0])
    x = jnp.asarray(features.as_dense(data.features))
    targets, metric = datasets.targets(data), metrics.by_name(data.metric)
    accuracy, seconds = gcn.race(
        matrix, x, targets, data.splits, metric=metric, num_epochs=config.epochs
    )
    goal = min(best, max(accuracy))
    epoch = next(i for i, value in enumerate(accuracy) if value >= goal)
    return {
        "dataset": config.curve,
        "val": round(100 * goal, 2),
        "RP": {
            "best_val": round(100 * best, 2),
            "seconds": round(times["RP"]["median"], 3),
        },
        "GCN": {
            "best_val": round(100 * max(accuracy), 2),
            "epochs": epoch + 1,
            "seconds": round(seconds[epoch], 3),
        },
    }


def methods(config: Config) -> dict[str, Any]:
    """Time each method on one run; return the choice of "auto" as well."""
    data = datasets.load(config.curve, config.data_dir)
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))

    def run(method):
        return propagation.run(
            similarity.Power(matrix, config.power),
            datasets.targets(data),
            data.splits,
            Steps(1.0, config.num_steps),
            metric=metrics.by_name(data.metric),
            solver=solvers.by_name(method),
        )

    names = ("exact", "krylov", "iterate")
    times = harness.interleaved(
        {name: lambda name=name: run(name) for name in names}, config.repeats
    )
    report = run("auto").report
    return {
        "dataset": config.curve,
        "milliseconds": harness.in_milliseconds(times),
        "chosen": report.solver,
        "reason": report.reason,
        "fastest": min(names, key=lambda name: times[name]["median"]),
    }


def command(label: str, data_dir: Path | None) -> dict[str, Any]:
    """Measure wall time and peak memory of the process ``gnnrp rp --dataset label``."""
    line = [sys.executable, "-m", "gnnrp.cli", "rp", "--json"]
    line += ["--dataset", *label.split()]
    if data_dir is not None and label.split()[0] != "sbm":  # sbm is generated
        line += ["--data-dir", str(data_dir)]
    began = time.perf_counter()
    done = subprocess.run(line, stdout=subprocess.PIPE, check=True)
    seconds = time.perf_counter() - began
    record = json.loads(done.stdout)
    target_seconds, target_gigabytes = COMMANDS.get(label, (None, None))
    return {
        "seconds": round(seconds, 2),
        "target_seconds": target_seconds,
        "splits": len(record["splits"]),
        "columns": record["report"]["columns"],
        "peak_gigabytes": round(record["peak_memory_bytes"] / 1e9, 2),
        "target_gigabytes": target_gigabytes,
        "test_mean": record["test_mean"],
        "test_std": record["test_std"],
    }


if __name__ == "__main__":
    main(tyro.cli(Config))
