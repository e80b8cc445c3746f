"""Infinitely wide GCNs on a data set: their GNTK as a predictor, depth by depth."""

import dataclasses
import functools
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnnrp import datasets, graph, metrics, propagation, sparse
from gnnrp.datasets import Dataset
from gnnrp.kernels import alignment, features, gntk
from gnnrp.kernels.gntk import activations, blocked
from gnnrp.propagation import MAX_STEPS, Selection, Steps, exact, similarity
from gnnrp.runtime import checks, memory, peaks
from gnnrp.runtime.options import Options
from gnnrp.studies import presets, records
from gnnrp.studies import rp as rp_study
from gnnrp.types import MetricFn, Split

Progress = Callable[[str, int, int], None]
"""(what, done, total), called now and then."""


@dataclasses.dataclass(frozen=True)
class GNTKSettings:
    """Of the networks and of gradient descent on them."""

    depths: tuple[int, ...] = (1, 2, 3, 4)  # L of each network
    activation: str = "relu"
    bias: str = "none"  # or "before" or "after" the aggregation
    bias_std: float = 1.0
    num_steps: int = 10_000  # of size 1 / |Θ_XX|_∞, which is below 1 / λ_max

    def __post_init__(self) -> None:
        """Refuse what makes no network.

        Raises:
            ValueError: a value out of its range.
        """
        for depth in checks.several("depths", self.depths):
            checks.count("depth", depth, 1, 1000)
        activations.by_name(self.activation)
        checks.one_of("bias", self.bias, gntk.BIASES)
        checks.at_least("bias_std", self.bias_std, 0)
        checks.count("num_steps", self.num_steps, 1, MAX_STEPS)


def run(
    dataset: Dataset,
    settings: GNTKSettings,
    *,
    max_bytes: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train wide GCNs of each depth by their GNTK; return the record.

    Each is scored at the step that validation chooses and, where the training nodes are
    few enough, at the end of training, which is kernel regression with the
    pseudo-inverse. f_0 = 0 is presupposed. RP of the published settings and its
    baselines stand beside them.

    Args:
        dataset: see ``datasets.load``; without features, inputs are one-hot.
        settings: of the networks.
        max_bytes: what may be held in all; what there is if left out, see ``memory``.
        progress: called with what is being done, how far it is, and of how much.

    Raises:
        ValueError: a kernel that does not fit, or a β too large for the type.
        TypeError: no data set, no settings.

    Source: Def. 4.1; Theorem 3.2 for the end of training.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    checks.instance("settings", settings, GNTKSettings, "GNTKSettings() makes one")
    gntk.check_bias(settings.bias_std, jnp.zeros(0).dtype)
    began = time.perf_counter()
    dataset = dataset._replace(splits=Split(*map(np.atleast_2d, dataset.splits)))
    num_train = int(dataset.splits.train.sum(axis=1).max())
    num_targets = datasets.num_targets(dataset)
    check_memory(dataset.num_nodes, num_train, max_bytes, num_targets=num_targets)
    beside = rp_study.run(
        dataset,
        presets.settings(dataset.name, has_features=dataset.features is not None),
        max_bytes=max_bytes,
        progress=progress,
    ).record
    matrix = sparse.prepare(
        graph.normalized_adjacency(dataset.edges, dataset.num_nodes)
    )
    dtype, rows = _all_depths(dataset, settings, matrix, max_bytes, progress)
    _warn(rows)
    best = max(rows, key=lambda row: (row["val_mean"] is not None, row["val_mean"]))
    own = {key: beside[key] for key in ("val_mean", "val_std", "test_mean", "test_std")}
    name = "rp" if beside["method"] == "rp" else "generalized rp"
    return {
        "dataset": dataset.name,
        "metric": dataset.metric,
        "unit": "percent",
        "method": "gntk",
        "settings": dataclasses.asdict(settings),
        "depths": rows,
        "best_depth": best["depth"],
        "baselines": beside["baselines"] | {name: own},
        "seconds": {"run": round(time.perf_counter() - began, 4)},
        "peak_memory_bytes": memory.peak(),
        "device": str(jax.devices()[0].device_kind),
        "dtype": str(dtype),
        "versions": records.versions(),
        "commit": records.commit(),
        "files": dataset.files,
    }


def check_memory(
    num_nodes: int,
    num_train: int,
    max_bytes: int | None = None,
    *,
    num_targets: int = 1,
) -> None:
    """Refuse a graph whose kernels or targets would not fit.

    Raises:
        ValueError: they would not.
    """
    itemsize = jnp.zeros(0).dtype.itemsize
    num_train = min(num_train, exact.MAX_TRAIN)  # beyond, nothing is factorized
    narrow = "float32, " if itemsize > 4 else ""
    memory.check(
        f"the GNTK of {num_nodes:,} nodes",
        peaks.gntk(num_nodes, num_train, num_targets, itemsize=itemsize),
        memory.room(max_bytes),
        f"take {narrow}a smaller graph, RP (gnnrp rp), or blocks of the kernel "
        "(kernels.local)",
    )


def inputs(dataset: Dataset) -> jax.Array:
    """Return X X^T, of row-normalized features where the published settings say so."""
    if dataset.features is None:
        return jnp.eye(dataset.num_nodes)
    x = features.as_float(features.checked(dataset.features), jnp.zeros(0).dtype)
    preset = presets.SETTINGS.get(dataset.name)
    if preset is not None and preset.row_normalize:
        x = features.row_normalized(x)
    return gntk.gram(x)


@functools.partial(
    jax.jit, donate_argnums=0, static_argnames=("activation", "bias", "last")
)
def _layer(kernels, matrix, bias_std, *, activation, bias, last):
    return blocked.layer(
        kernels,
        matrix,
        activation=activation and activations.by_name(activation),
        bias=bias,
        bias_std=bias_std,
        last=last,
    )


def _all_depths(
    dataset: Dataset,
    settings: GNTKSettings,
    matrix: sparse.Matrix,
    max_bytes: int | None,
    progress: Progress | None,
) -> tuple[Any, list[dict[str, Any]]]:
    """Return the type of the kernels and a row for each depth, in the order asked."""
    kernels = gntk.initialize(inputs(dataset))
    dtype, rows, spent = kernels.nngp.dtype, {}, 0.0
    deepest = max(settings.depths)
    for depth in range(1, deepest + 1):  # a network of L layers goes on from L - 1
        if progress:
            progress("layers", depth - 1, deepest)
        start = time.perf_counter()
        kernels = _layer(
            kernels,
            matrix,
            jnp.asarray(settings.bias_std, dtype),
            activation=settings.activation if depth > 1 else None,
            bias=settings.bias,
            last=depth == deepest,
        )
        kernels.ntk.block_until_ready()
        spent += time.perf_counter() - start
        if depth in settings.depths:
            found = _depth(dataset, matrix, kernels.ntk, settings, depth, max_bytes)
            rows[depth] = found | {
                "kernel_seconds": round(spent, 4)
            }  # of all layers so far
    return dtype, [rows[depth] for depth in settings.depths]


def _depth(
    dataset: Dataset,
    matrix: sparse.Matrix,
    theta: jax.Array,
    settings: GNTKSettings,
    depth: int,
    max_bytes: int | None,
) -> dict[str, Any]:
    targets, metric = datasets.targets(dataset), metrics.by_name(dataset.metric)
    (found,) = propagation.run(
        similarity.Dense(theta),
        targets,
        dataset.splits,
        Steps([_safe_step(theta, dataset.splits.train)], settings.num_steps),
        metric=metric,
        selection=Selection(rule="last"),
        options=Options(max_bytes=max_bytes),
    )
    ends = [
        _end(theta, targets, split, metric)
        for split in zip(*dataset.splits, strict=True)
    ]
    ends = None if None in ends else np.array(ends)
    return {
        "depth": depth,
        **records.summary(found.best_val, found.best_test),
        "best_step": [int(t) for t in found.best_step],
        "end": None if ends is None else records.summary(*ends.T),
        "alignment": _alignments(theta, matrix, dataset, depth),
        "remarks": list(found.report.warnings.values()),
    }


def _warn(rows: list[dict[str, Any]]) -> None:
    """Warn once of each remark on networks of some depths."""
    for remark in dict.fromkeys(x for row in rows for x in row["remarks"]):
        depths = [str(row["depth"]) for row in rows if remark in row["remarks"]]
        msg = f"GNTK of {', '.join(depths)} layer(s): {remark}"
        warnings.warn(msg, UserWarning, stacklevel=3)


def _safe_step(theta: jax.Array, train: np.ndarray) -> float:
    """Return 1 / |Θ_XX|_∞ of the split where it is least."""
    sums = jnp.abs(theta) @ jnp.asarray(train.T, theta.dtype)
    return float(1 / jnp.max(jnp.where(train.T, sums, 0)))


def _end(
    theta: jax.Array, targets: np.ndarray, split: tuple, metric: MetricFn
) -> tuple[float, float] | None:
    """Return the validation and test score of kernel regression."""
    train, val, test = split
    index = np.flatnonzero(train)
    if len(index) > exact.MAX_TRAIN:
        return None
    factors = exact.factorize(np.asarray(theta[:, index]), index)
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
    """Return how Θ aligns with A^{2L}, and with the labels of all nodes, centered."""
    far = alignment.Operator(similarity.Power(matrix, 2 * depth), len(theta))
    found = {"graph": _alignment(theta, far)}
    if dataset.labels.ndim == 1:
        ideal = alignment.from_labels(dataset.labels, dataset.num_classes)
        found["labels"] = _alignment(theta, ideal)
    return {name: round(float(value), 6) for name, value in found.items()}
