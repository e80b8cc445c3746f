"""Infinitely wide GCNs on a dataset: their GNTK as a predictor, depth by depth."""

import dataclasses
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnnrp import datasets, graph, metrics, propagation, sparse
from gnnrp.datasets import Dataset
from gnnrp.kernels import alignment
from gnnrp.kernels.gntk import network as networks
from gnnrp.propagation import Selection, Steps, exact, linear_maps, similarity
from gnnrp.runtime import checks
from gnnrp.runtime.options import Options
from gnnrp.studies import gntk_kernels, presets, records
from gnnrp.studies import rp as rp_study
from gnnrp.studies.settings import ROUTES as ROUTES
from gnnrp.studies.settings import GNTKSettings
from gnnrp.types import LinearMap, MetricFn, Split


def run(
    dataset: Dataset, settings: GNTKSettings, *, options: Options = Options()
) -> dict[str, Any]:
    """Train wide GCNs of each depth by their GNTK; return the record.

    Each is scored at the step that validation chooses and, where the training nodes are
    few enough, at the end of training, which is kernel regression with the
    pseudo-inverse; f_0 = 0. The record also holds RP with the published settings, or
    the default ones where there are none, and its baselines.

    Args:
        dataset: see ``datasets.load``; without features, inputs are one-hot.
        settings: of the networks.
        options: memory limit and progress.

    Raises:
        ValueError: a kernel that does not fit, a β too large for the type, or a route
            that is not installed.
        TypeError: not a dataset, or not settings.

    Source: Def. 4.1; Theorem 3.2 for the end of training.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    checks.instance("settings", settings, GNTKSettings, "GNTKSettings() makes one")
    networks.check_bias(settings.bias_std, jnp.zeros(0).dtype)
    began = time.perf_counter()
    dataset = dataset._replace(splits=Split(*map(np.atleast_2d, dataset.splits)))
    chosen = gntk_kernels.method(dataset, settings, options)
    gntk_kernels.check_memory(dataset, settings, chosen, options)
    has_features = dataset.features is not None
    rp_settings = presets.settings_or_default(dataset.name, has_features=has_features)
    rp_record = rp_study.run(dataset, rp_settings, options=options).record
    adjacency = graph.normalized_adjacency(dataset.edges, dataset.num_nodes)
    matrix = sparse.prepare(adjacency)
    rows = _all_depths(dataset, settings, matrix, chosen, options)
    _warn(rows)
    best = max(rows, key=lambda row: (row["val_mean"] is not None, row["val_mean"]))
    scores = ("val_mean", "val_std", "test_mean", "test_std")
    own = {key: rp_record[key] for key in scores}
    name = "rp" if rp_record["method"] == "rp" else "generalized rp"
    return {
        "dataset": dataset.name,
        "metric": dataset.metric,
        "unit": "percent",
        "method": "gntk",
        "settings": dataclasses.asdict(settings),
        "kernel_method": chosen,
        "depths": rows,
        "best_depth": best["depth"],
        "baselines": rp_record["baselines"] | {name: own},
        "seconds": {"run": round(time.perf_counter() - began, 4)},
        **records.provenance(dataset, jnp.zeros(0).dtype),
    }


def _all_depths(
    dataset: Dataset,
    settings: GNTKSettings,
    matrix: sparse.Matrix,
    chosen: str,
    options: Options,
) -> list[dict[str, Any]]:
    """Return a row for each depth, in their order."""
    rows, seconds, deepest = {}, 0.0, max(settings.depths)
    options.report("layers", 0, deepest)
    start = time.perf_counter()
    for depth, kernel in gntk_kernels.build(dataset, settings, matrix, chosen):
        jax.block_until_ready(kernel.matrix)
        seconds += time.perf_counter() - start
        if depth in settings.depths:
            row = evaluate(dataset, matrix, kernel, settings, depth, options.max_bytes)
            rows[depth] = row | {"kernel_seconds": round(seconds, 4)}  # so far
        options.report("layers", depth, deepest)
        start = time.perf_counter()
    return [rows[depth] for depth in settings.depths]


def evaluate(
    dataset: Dataset,
    matrix: sparse.Matrix,
    kernel: gntk_kernels.WideKernel,
    settings: GNTKSettings,
    depth: int,
    max_bytes: int | None = None,
) -> dict[str, Any]:
    """Return scores of training by a kernel, at the best step and at the end."""
    targets, metric = datasets.targets(dataset), metrics.by_name(dataset.metric)
    (found,) = propagation.run(
        kernel.similarity,
        targets,
        dataset.splits,
        Steps([kernel.step_size], settings.num_steps),
        metric=metric,
        selection=Selection(rule="last"),
        options=Options(max_bytes=max_bytes),
    )
    ends = [
        _end(kernel.similarity, targets, split, metric)
        for split in zip(*dataset.splits, strict=True)
    ]
    ends = None if None in ends else np.array(ends)
    aligned = {}
    if kernel.matrix is not None:
        aligned = _alignments(kernel.matrix, matrix, dataset, depth)
    return {
        "depth": depth,
        **records.summary(found.best_val, found.best_test),
        "best_step": [int(t) for t in found.best_step],
        "end": None if ends is None else records.summary(*ends.T),
        "alignment": aligned,
        **(kernel.facts or {}),
        "remarks": list(found.report.warnings.values()),
    }


def _warn(rows: list[dict[str, Any]]) -> None:
    """Warn once for each remark, naming the depths."""
    for remark in dict.fromkeys(x for row in rows for x in row["remarks"]):
        depths = [str(row["depth"]) for row in rows if remark in row["remarks"]]
        msg = f"GNTK of {', '.join(depths)} layer(s): {remark}"
        warnings.warn(msg, UserWarning, stacklevel=3)


def _end(
    flow: LinearMap, targets: np.ndarray, split: tuple, metric: MetricFn
) -> tuple[float, float] | None:
    """Return the validation and test score of kernel regression."""
    train, val, test = split
    index = np.flatnonzero(train)
    if len(index) > exact.MAX_TRAIN:
        return None
    columns = linear_maps.columns(flow, index, len(targets))
    factors = exact.factorize(columns, index)
    scores = jnp.asarray(exact.limit(factors, targets[index].astype(np.float64)))
    y = jnp.asarray(targets, scores.dtype)
    at_val, at_test = (metric(scores, y, jnp.asarray(mask)) for mask in (val, test))
    return float(at_val), float(at_test)


@jax.jit
def _alignment(one, two):
    return alignment.alignment(one, two, centered=True)


def _alignments(
    theta: jax.Array, matrix: sparse.Matrix, dataset: Dataset, depth: int
) -> dict[str, float]:
    """Return the centered alignments of Θ with A^{2L} and with all labels."""
    far = alignment.Operator(similarity.Power(matrix, 2 * depth), len(theta))
    values = {"graph": _alignment(theta, far)}
    if dataset.labels.ndim == 1:
        ideal = alignment.label_kernel(dataset.labels, dataset.num_classes)
        values["labels"] = _alignment(theta, ideal)
    return {name: round(float(value), 6) for name, value in values.items()}
