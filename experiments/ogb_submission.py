"""What OGB's leaderboards ask of a method, for RP on one of the sets of nodes.

    python -m experiments.ogb_submission --dataset arxiv --data-dir DIR --output DIR
    python -m experiments.ogb_submission --quick

Prints the summary as Markdown; the output's folder gets it too, beside the record.

RP has no parameters and draws nothing: no seed reaches it. It is run ten times all the
same, from the edges on, so that the deviation is found and not assumed. The step is
chosen on the validation nodes; power and step size are the published ones. Scores are
those of OGB's ``Evaluator`` where the ogb package is installed, else of
``gnnrp.metrics``.

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

from experiments import reproduction
from gnnrp import datasets, graph, metrics, propagation, sparse
from gnnrp.propagation import similarity
from gnnrp.runtime import checks
from gnnrp.studies import presets

SETS = ("arxiv", "proteins", "products")
OWN = {"accuracy": metrics.accuracy, "roc_auc": metrics.roc_auc}

Score = Callable[[np.ndarray, np.ndarray], float]
"""Of predictions (n, c) and a mask (n,)."""


@dataclasses.dataclass(frozen=True)
class Config(reproduction.Config):
    """Which set, and how often."""

    dataset: str = "arxiv"
    """arxiv, proteins or products; fetched if need be and the ogb package is there."""
    runs: int = 10
    """Each from the edges on; nothing is drawn, so no seed tells them apart."""

    SHORT: ClassVar[dict[str, Any]] = {"dataset": "sbm", "runs": 3}


def run(
    config: Config, progress: reproduction.Progress = reproduction.silent
) -> reproduction.Outcome:
    """Return the scores of each run, and their mean and deviation.

    Raises:
        ValueError: a set of no leaderboard; predictions that are not finite.
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
            msg = f"RP on {data.name} did not stay finite at step {best_step}"
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
    return reproduction.Outcome(result, {}, {data.name: data.files}, measured)


def propagate(
    data: datasets.Dataset, settings: presets.RPSettings
) -> tuple[np.ndarray, int]:
    """Return what RP predicts from the graph and the training labels, at which step."""
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    found = propagation.run(
        similarity.walk(matrix, settings.power, settings.alpha),
        datasets.targets(data),
        datasets.with_split(data, 0).splits,
        metric=metrics.by_name(data.metric),
        **presets.arguments(settings),
    )
    return np.asarray(found.predictions[0]), int(found.best_step[0])


def scorer(data: datasets.Dataset) -> tuple[Score, str]:
    """Return what scores predictions, and its name."""
    if data.name in SETS and importlib.util.find_spec("ogb") is not None:
        return official(data), f"the Evaluator of ogb {metadata.version('ogb')}"
    metric_fn = jax.jit(OWN[data.metric])
    targets = jnp.asarray(datasets.targets(data))

    def score(predictions: np.ndarray, mask: np.ndarray) -> float:
        return float(metric_fn(jnp.asarray(predictions), targets, jnp.asarray(mask)))

    return score, f"gnnrp.metrics.{data.metric}"


def official(data: datasets.Dataset) -> Score:
    """Return what OGB scores by: classes for accuracy, scores for the ROC-AUC."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch, by its import
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
    """Return the mean and the unbiased deviation, exactly 0 where all are the same."""
    deviation = statistics.stdev(scores) if len(scores) > 1 else None
    return {"mean": statistics.mean(scores), "std": deviation}


def hardware() -> str:
    """Return what computes, in words."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return f"{jax.device_count()} x {device.device_kind}"
    described = Path("/proc/cpuinfo")  # of Linux
    lines = described.read_text().splitlines() if described.exists() else []
    models = [line.partition(":")[2] for line in lines if line.startswith("model name")]
    model = models[0].strip() if models else platform.processor() or "CPU"
    return f"{model} ({platform.machine()}), {os.cpu_count()} cores"


def command() -> str:
    """Return the command line, as it can be given again."""
    return shlex.join(["python", "-m", "experiments.ogb_submission", *sys.argv[1:]])


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
        "method": "residual propagation (RP), of graph and training labels alone: "
        f"S = A^K, K = {method['power']}, η = {method['step_size']:g}, best of "
        f"{method['num_steps']} steps by validation",
        "runs": _runs(result),
        "parameters": result["parameters"],
        "external data": "none",
        "scored by": result["judge"],
        "hardware": measured["hardware"],
        "seconds a run": f"{measured['seconds_a_run']:g}",
        "versions": versions,
        "commit": record["commit"] or "not a checkout",
        "command": f"`{measured['command']}`",
    }
    lines = [f"# RP on {named}", "", "| | |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {key} | {rows[key]} |" for key in rows)]) + "\n"


def deviating(found: dict[str, float | None]) -> str:
    """Return mean and deviation as a leaderboard has them: fractions, four digits."""
    mean, deviation = found["mean"], found["std"]
    return f"{mean:.4f}" + ("" if deviation is None else f" ± {deviation:.4f}")


def _runs(result: dict[str, Any]) -> str:
    """Return how many runs there were, and how their predictions differ."""
    num_runs, distinct = len(result["runs"]), result["distinct_predictions"]
    told = f"{distinct} different predictions, by round-off"
    if num_runs == 1:
        told = "of one run there is no deviation"
    elif distinct == 1:
        told = "their predictions are the same to the last bit"
    return f"{num_runs}; nothing is drawn, and {told}"


if __name__ == "__main__":
    reproduction.main(Config, run, "ogb_submission", page, shown=page)
