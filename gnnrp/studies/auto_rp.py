"""RP with an automatically chosen similarity: a dataset in, a record out."""

import time
from typing import Any

import jax
import numpy as np

from gnnrp import datasets, graph, metrics, sparse
from gnnrp.datasets import Dataset
from gnnrp.propagation import problem
from gnnrp.runtime import checks, tracing
from gnnrp.runtime.options import Options
from gnnrp.studies import baselines, choice, records
from gnnrp.studies import rp as rp_study
from gnnrp.studies.candidates import Task
from gnnrp.types import Split

SECONDS = 600.0


def run(
    dataset: Dataset,
    *,
    seconds: float = SECONDS,
    with_baselines: bool = True,
    options: Options = Options(),
    load_seconds: float = 0.0,
) -> dict[str, Any]:
    """Choose a similarity for each split, and score its test nodes once.

    Args:
        dataset: see ``datasets.load``.
        seconds: time after which no other candidate is tried.
        with_baselines: run label propagation and the majority class too.
        options: memory limit and progress.
        load_seconds: loading time, for the record.

    Raises:
        ValueError: a time that is not positive, a split without validation nodes, or a
            graph that does not fit in memory.
        TypeError: not a dataset.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    start = time.perf_counter()
    dataset = dataset._replace(splits=Split(*map(np.atleast_2d, dataset.splits)))
    task = make_task(dataset, options.max_bytes)
    ready = time.perf_counter()
    found = choice.choose(task, seconds=seconds, options=options)
    over = time.perf_counter()
    val, test = score(dataset, found.predictions)
    record = {
        "dataset": dataset.name,
        "metric": dataset.metric,
        "unit": "percent",
        "method": "rp, chosen similarity",
        "split_kind": dataset.split_kind,
        "splits": _splits(found, val, test),
        **records.summary(val, test),
        "choice": found.as_dict(),
        "baselines": {},
        "seconds": {
            "load": round(load_seconds, 4),
            "setup": round(ready - start, 4),
            "run": round(over - ready, 4),
        },
        "platform": jax.default_backend(),
        **records.provenance(dataset, found.predictions.dtype),
    }
    if with_baselines:
        others = baselines.run(
            task.matrix,
            task.targets,
            dataset.splits,
            metric=task.metric,
            with_plain=False,
            options=options,
        )
        record["baselines"] = records.describe_baselines(others)
    return record


def make_task(dataset: Dataset, max_bytes: int | None = None) -> Task:
    """Return the dataset without its test nodes."""
    num_edges = dataset.edges.shape[1]
    rp_study.check_adjacency_memory(dataset.num_nodes, num_edges, max_bytes)
    W = graph.raw_adjacency(dataset.edges, dataset.num_nodes)
    targets = datasets.targets(dataset)
    train, val, _ = map(np.atleast_2d, dataset.splits)
    return Task(
        adjacency=W,
        matrix=sparse.prepare(graph.normalize(W)),
        features=dataset.features,
        targets=targets,
        train=train,
        val=val,
        metric=metrics.by_name(dataset.metric),
    )


def score(dataset: Dataset, predictions: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the metric on validation and test nodes, for each split."""
    metric = tracing.as_static(metrics.by_name(dataset.metric))
    of_run = problem.make_problem(datasets.targets(dataset), dataset.splits)
    val, test = problem.evaluate(of_run, np.moveaxis(predictions, 0, 1), metric=metric)
    return val, test


def _splits(
    found: choice.Choice, val: np.ndarray, test: np.ndarray
) -> list[dict[str, Any]]:
    rows = []
    for split, number in enumerate(found.chosen):
        trial = found.trials[number]
        rows.append({
            "split": split,
            "val": records.percent(val[split]),
            "test": records.percent(test[split]),
            "best_step": int(found.best_step[split]),
            "similarity": str(trial.candidate),
        })
    return rows
