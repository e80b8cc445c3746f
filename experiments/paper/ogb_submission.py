r"""Summary of RP on an OGB node dataset, as required by OGB's leaderboards.

    python -m experiments.paper.ogb_submission --dataset arxiv --data-dir DIR \
        --output DIR
    python -m experiments.paper.ogb_submission --quick

Prints the summary as Markdown and writes it next to the record in the output folder.

RP has no parameters and uses no random numbers, so it has no seed. It still runs ten
times, starting from the edges, so that the deviation is measured rather than assumed.
The step is selected on the validation nodes; power and step size are the published
ones. Scores come from OGB's ``Evaluator`` if the ogb package is installed, otherwise
from ``gnnrp.metrics``.

Source: the rules of OGB's leaderboards (ten runs, unbiased deviation); Table 1.
"""

import dataclasses
import hashlib
import importlib.util
import os
import platform
import shlex
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from experiments import runner
from gnnrp import datasets, graph, metrics, sparse
from gnnrp.propagation import similarity
from gnnrp.runtime import checks
from gnnrp.studies import presets
from gnnrp.studies import rp as rp_study

SETS = ("arxiv", "proteins", "products")
OWN = {"accuracy": metrics.accuracy, "roc_auc": metrics.roc_auc}

Score = Callable[[np.ndarray, np.ndarray], float]
"""(predictions (n, c), mask (n,)) -> score."""


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Dataset and number of runs."""

    dataset: str = "arxiv"
    """arxiv, proteins or products; downloaded if the ogb package is installed."""
    runs: int = 10
    """Runs from the edges; they use no random numbers and no seed."""

    SHORT: ClassVar[dict[str, Any]] = {"dataset": "sbm", "runs": 3}


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return the scores of each run, with their mean and standard deviation.

    Raises:
        ValueError: the dataset has no leaderboard, or a prediction is not finite.
    """
    allowed = (*SETS, "sbm") if config.quick else SETS
    checks.one_of("dataset", config.dataset, allowed)
    data = datasets.load(config.dataset, config.data_dir, seed=config.seed)
    settings = presets.settings(data.name, has_features=False)
    score, judge = scorer(data)
    rows, contents, seconds = [], set(), []
    for i in range(config.runs):
        progress(data.name, i, config.runs)
        began = time.perf_counter()
        predictions, best_step = propagate(data, settings)
        seconds.append(time.perf_counter() - began)
        if not np.isfinite(predictions).all():
            msg = f"predictions of RP on {data.name} are not finite at step {best_step}"
            raise ValueError(msg)
        contents.add(hashlib.sha256(predictions.tobytes()).hexdigest())
        row: dict[str, Any] = {"run": i + 1, "best_step": best_step}
        for part in ("val", "test"):
            row[part] = score(predictions, getattr(data.splits, part)[0])
        rows.append(row)
    result = {
        "dataset": data.name,
        "metric": data.metric,
        "judge": judge,
        "method": dataclasses.asdict(settings),
        "parameters": 0,
        "runs": rows,
        "distinct_predictions": len(contents),
        **{part: summary([row[part] for row in rows]) for part in ("val", "test")},
    }
    measured = {
        "seconds_a_run": round(statistics.median(seconds), 3),
        "hardware": hardware(),
        "command": command(),
    }
    return runner.Outcome(result, {}, {data.name: data.files}, measured)


def propagate(
    data: datasets.Dataset, settings: presets.RPSettings
) -> tuple[np.ndarray, int]:
    """Return the predictions of RP from the graph and training labels, and the step."""
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    found = rp_study.propagate(
        similarity.walk(matrix, settings.power, settings.alpha),
        datasets.targets(data),
        datasets.select_split(data, 0).splits,
        settings,
        metrics.by_name(data.metric),
    )
    return np.asarray(found.predictions[0]), int(found.best_step[0])


def scorer(data: datasets.Dataset) -> tuple[Score, str]:
    """Return a scoring function and its name."""
    if data.name in SETS and importlib.util.find_spec("ogb") is not None:
        return official(data), f"the Evaluator of ogb {metadata.version('ogb')}"
    metric_fn = jax.jit(OWN[data.metric])
    targets = jnp.asarray(datasets.targets(data))

    def score(predictions: np.ndarray, mask: np.ndarray) -> float:
        return float(metric_fn(jnp.asarray(predictions), targets, jnp.asarray(mask)))

    return score, f"gnnrp.metrics.{data.metric}"


def official(data: datasets.Dataset) -> Score:
    """Return OGB's score, of classes for accuracy and of scores for ROC-AUC."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # raised by importing torch
        from ogb.nodeproppred import Evaluator  # pyright: ignore[reportMissingImports]

    evaluator = Evaluator(f"ogbn-{data.name}")
    truth = data.labels.reshape(data.num_nodes, -1)

    def score(predictions: np.ndarray, mask: np.ndarray) -> float:
        said = predictions
        if data.metric == "accuracy":
            said = predictions.argmax(axis=1)[:, None]
        found = evaluator.eval({"y_true": truth[mask], "y_pred": said[mask]})
        return float(found[evaluator.eval_metric])

    return score


def summary(scores: list[float]) -> dict[str, float | None]:
    """Return the mean and the unbiased deviation, exactly 0 for equal scores."""
    deviation = statistics.stdev(scores) if len(scores) > 1 else None
    return {"mean": statistics.mean(scores), "std": deviation}


def hardware() -> str:
    """Describe the device."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return f"{jax.device_count()} x {device.device_kind}"
    described = Path("/proc/cpuinfo")  # Linux only
    lines = described.read_text().splitlines() if described.exists() else []
    models = [line.partition(":")[2] for line in lines if line.startswith("model name")]
    model = models[0].strip() if models else platform.processor() or "CPU"
    return f"{model} ({platform.machine()}), {os.cpu_count()} cores"


def command() -> str:
    """Return the command line in a form that can be repeated."""
    module = "experiments.paper.ogb_submission"
    return shlex.join(["python", "-m", module, *sys.argv[1:]])


def page(record: dict[str, Any]) -> str:
    """Return the summary as Markdown."""
    result, measured = record["result"], record["measured"]
    method = result["method"]
    kind = {"accuracy": "accuracy", "roc_auc": "ROC-AUC"}[result["metric"]]
    named = f"ogbn-{result['dataset']}" if result["dataset"] in SETS else "sbm"
    versions = ", ".join(f"{name} {v}" for name, v in record["versions"].items())
    rows = {
        f"test {kind}": deviating(result["test"]),
        f"validation {kind}": deviating(result["val"]),
        "method": "residual propagation (RP) on graph and training labels only: "
        f"S = A^K, K = {method['power']}, η = {method['step_size']:g}, best of "
        f"{method['num_steps']} steps by validation",
        "runs": _runs(result),
        "parameters": result["parameters"],
        "external data": "none",
        "scored by": result["judge"],
        "hardware": measured["hardware"],
        "seconds per run": f"{measured['seconds_a_run']:g}",
        "versions": versions,
        "commit": record["commit"] or "not a checkout",
        "command": f"`{measured['command']}`",
    }
    lines = [f"# RP on {named}", "", "| | |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {key} | {rows[key]} |" for key in rows)]) + "\n"


def deviating(found: dict[str, float | None]) -> str:
    """Format mean and deviation as on a leaderboard: fractions with four digits."""
    mean, deviation = found["mean"], found["std"]
    return f"{mean:.4f}" + ("" if deviation is None else f" ± {deviation:.4f}")


def _runs(result: dict[str, Any]) -> str:
    """Describe the number of runs and the differences of their predictions."""
    num_runs, distinct = len(result["runs"]), result["distinct_predictions"]
    told = f"{distinct} predictions differ by rounding errors"
    if num_runs == 1:
        told = "a single run has no deviation"
    elif distinct == 1:
        told = "all predictions are bit-identical"
    return f"{num_runs}; RP is deterministic, and {told}"


if __name__ == "__main__":
    runner.main(Config, run, "ogb_submission", page)
