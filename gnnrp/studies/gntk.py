"""Infinitely wide GCNs on a dataset: their GNTK as a predictor, depth by depth."""

import dataclasses
import time
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnnrp import datasets, graph, metrics, propagation, sparse
from gnnrp.datasets import Dataset
from gnnrp.kernels import alignment, features, gntk
from gnnrp.kernels.gntk import activations, blocked, neural_tangents
from gnnrp.kernels.gntk import network as networks
from gnnrp.propagation import Selection, Steps, exact, similarity
from gnnrp.runtime import checks, memory
from gnnrp.runtime.options import Options
from gnnrp.studies import presets, records
from gnnrp.studies import rp as rp_study
from gnnrp.studies.settings import ROUTES as ROUTES
from gnnrp.studies.settings import GNTKSettings
from gnnrp.types import MetricFn, Split


def run(
    dataset: Dataset, settings: GNTKSettings, *, options: Options = Options()
) -> dict[str, Any]:
    """Train wide GCNs of each depth by their GNTK; return the record.

    Each is scored at the step that validation chooses and, where the training nodes are
    few enough, at the end of training, which is kernel regression with the
    pseudo-inverse; f_0 = 0. The record also holds RP with the published settings, and
    its baselines.

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
    num_train = int(dataset.splits.train.sum(axis=1).max())
    num_targets = datasets.num_targets(dataset)
    check_memory(
        dataset.num_nodes, num_train, options.max_bytes, num_targets=num_targets
    )
    if settings.route == "neural-tangents":
        _check_neural_tangents(dataset, options)
    rp_record = rp_study.run(
        dataset,
        presets.settings(dataset.name, has_features=dataset.features is not None),
        options=options,
    ).record
    adjacency = graph.normalized_adjacency(dataset.edges, dataset.num_nodes)
    matrix = sparse.prepare(adjacency)
    rows = _all_depths(dataset, settings, matrix, options)
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
        "depths": rows,
        "best_depth": best["depth"],
        "baselines": rp_record["baselines"] | {name: own},
        "seconds": {"run": round(time.perf_counter() - began, 4)},
        **records.provenance(dataset, jnp.zeros(0).dtype),
    }


def check_memory(
    num_nodes: int,
    num_train: int,
    max_bytes: int | None = None,
    *,
    num_targets: int = 1,
) -> None:
    """Check that the kernels and targets of a graph fit."""
    itemsize = jnp.zeros(0).dtype.itemsize
    num_train = min(num_train, exact.MAX_TRAIN)  # beyond, nothing is factorized
    narrow = "float32, " if itemsize > 4 else ""
    memory.check(
        f"the GNTK of {num_nodes:,} nodes",
        peak_bytes(num_nodes, num_train, num_targets, itemsize=itemsize),
        memory.room(max_bytes),
        f"take {narrow}a smaller graph, RP (gnnrp rp), or blocks of the kernel "
        "(kernels.gntk.local)",
    )


def peak_bytes(
    num_nodes: int, num_train: int, num_targets: int = 1, *, itemsize: int
) -> int:
    """Return the peak of the GNTK of a GCN of any depth and of its evaluation."""
    kernels = 2 * num_nodes**2 * itemsize  # K, N; later a centered N with a product
    factors = num_nodes * num_train * (itemsize + 16) + 16 * num_train**2
    scores = num_nodes * num_targets * (3 * itemsize + 8)
    return kernels + max(kernels, factors) + scores + memory.RUNTIME


def inputs(dataset: Dataset) -> jax.Array:
    """Return X X^T, of row-normalized features where the published settings say so."""
    x = _features(dataset)
    return jnp.eye(dataset.num_nodes) if x is None else gntk.gram(x)


def _features(dataset: Dataset) -> Any:
    """Return the features as a network reads them; None if they are one-hot."""
    if dataset.features is None:
        return None
    x = features.as_float(features.validate(dataset.features), jnp.zeros(0).dtype)
    preset = presets.SETTINGS.get(dataset.name)
    if preset is not None and preset.row_normalize:
        x = features.normalize_rows(x)
    return x


def _check_neural_tangents(dataset: Dataset, options: Options) -> None:
    """Check that neural-tangents is installed, and that its kernels fit."""
    try:
        neural_tangents.load()
    except ImportError as error:
        msg = f"route 'neural-tangents' is not available: {error}"
        raise ValueError(msg) from error
    n, x = dataset.num_nodes, dataset.features
    num_features = n if x is None else x.shape[1]
    itemsize = jnp.zeros(0).dtype.itemsize
    memory.check(
        f"the GNTK of {n:,} nodes by neural-tangents",
        neural_tangents.peak_bytes(n, num_features, itemsize=itemsize),
        memory.room(options.max_bytes),
        "take route 'recursion', which takes half of it, or a smaller graph",
    )


_layer = jax.jit(blocked.layer, donate_argnums=0, static_argnames=("first", "ntk_only"))
_by_library = jax.jit(neural_tangents.gcn)


def _by_recursion(
    dataset: Dataset, settings: GNTKSettings, matrix: sparse.Matrix
) -> Iterator[tuple[int, jax.Array]]:
    """Yield depth and Θ, from 1 to the deepest: each continues from the one before."""
    kernels, network = gntk.initialize(inputs(dataset)), _network(settings, 1)
    deepest = max(settings.depths)
    for depth in range(1, deepest + 1):
        kernels = _layer(
            kernels, matrix, network, first=depth == 1, ntk_only=depth == deepest
        )
        yield depth, kernels.ntk


def _by_neural_tangents(
    dataset: Dataset, settings: GNTKSettings, matrix: sparse.Matrix
) -> Iterator[tuple[int, jax.Array]]:
    """Yield depth and Θ, of each depth anew."""
    P, x = matrix(jnp.eye(dataset.num_nodes)), _features(dataset)
    X = jnp.eye(dataset.num_nodes) if x is None else jnp.asarray(features.as_dense(x))
    for depth in sorted(set(settings.depths)):
        yield depth, _by_library(P, X, _network(settings, depth)).ntk


def _network(settings: GNTKSettings, depth: int) -> gntk.Network:
    activation, bias = activations.by_name(settings.activation), settings.bias
    return gntk.Network(depth, activation, bias=bias, bias_std=settings.bias_std)


def _all_depths(
    dataset: Dataset, settings: GNTKSettings, matrix: sparse.Matrix, options: Options
) -> list[dict[str, Any]]:
    """Return a row for each depth, in their order."""
    route_fn = {"recursion": _by_recursion, "neural-tangents": _by_neural_tangents}
    kernels = route_fn[settings.route](dataset, settings, matrix)
    rows, seconds, deepest = {}, 0.0, max(settings.depths)
    options.report("layers", 0, deepest)
    start = time.perf_counter()
    for depth, theta in kernels:
        theta.block_until_ready()
        seconds += time.perf_counter() - start
        if depth in settings.depths:
            row = _depth(dataset, matrix, theta, settings, depth, options.max_bytes)
            rows[depth] = row | {"kernel_seconds": round(seconds, 4)}  # so far
        options.report("layers", depth, deepest)
        start = time.perf_counter()
    return [rows[depth] for depth in settings.depths]


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
    """Warn once for each remark, naming the depths."""
    for remark in dict.fromkeys(x for row in rows for x in row["remarks"]):
        depths = [str(row["depth"]) for row in rows if remark in row["remarks"]]
        msg = f"GNTK of {', '.join(depths)} layer(s): {remark}"
        warnings.warn(msg, UserWarning, stacklevel=3)


def _safe_step(theta: jax.Array, train: np.ndarray) -> float:
    """Return the least 1 / |Θ_XX|_∞ of all splits."""
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
    """Return the centered alignments of Θ with A^{2L} and with all labels."""
    far = alignment.Operator(similarity.Power(matrix, 2 * depth), len(theta))
    values = {"graph": _alignment(theta, far)}
    if dataset.labels.ndim == 1:
        ideal = alignment.label_kernel(dataset.labels, dataset.num_classes)
        values["labels"] = _alignment(theta, ideal)
    return {name: round(float(value), 6) for name, value in values.items()}
