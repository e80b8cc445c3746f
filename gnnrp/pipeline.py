"""A data set and settings in, a record of plain numbers out: what the commands share."""

import dataclasses
import platform
import resource
import sys
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gnnrp import datasets, graph, metrics, spmm
from gnnrp.datasets import Dataset
from gnnrp.kernels import features
from gnnrp.presets import Settings
from gnnrp.propagation import label, losses, residual, similarity
from gnnrp.types import LinearMap

Progress = Callable[[str, int, int], None]
"""(what, done, total), called now and then."""

LP_ITERATIONS = (*range(1, 11), 20, 50)
LP_ALPHA = 0.9  # of the converged form
_DENSE_KERNEL_BYTES = 6 * 2**30


class Run(NamedTuple):
    """What a run leaves: the record, and the curves behind it."""

    record: dict[str, Any]
    trajectory: residual.Trajectory


def run(
    dataset: Dataset,
    settings: Settings,
    *,
    load_seconds: float = 0.0,
    progress: Progress | None = None,
) -> Run:
    """Run RP and its baselines on a data set, with all its splits at once.

    Args:
        dataset: see ``datasets.load``.
        settings: see ``presets.settings``.
        load_seconds: what loading took, for the record.
        progress: called with what is being done, how far it is, and of how much.

    Raises:
        ValueError: a feature kernel for a data set without features.
    """
    if settings.kernel is not None and dataset.features is None:
        msg = f"{dataset.name} has no features here; use kernel=None (plain RP)"
        raise ValueError(msg)
    began = time.perf_counter()
    matrix = spmm.prepare(graph.normalized_adjacency(dataset.edges, dataset.num_nodes))
    targets = datasets.targets(dataset)
    flow = build_similarity(matrix, dataset.features, settings, targets.shape)
    jax.block_until_ready(flow)
    setup = time.perf_counter() - began

    began = time.perf_counter()
    trajectory = residual.run(
        flow,
        targets,
        dataset.splits,
        step_size=settings.step_size,
        num_steps=settings.num_steps,
        metric=metrics.by_name(dataset.metric),
        residual_fn=losses.by_name(settings.loss),
        method=settings.method,
        select=settings.select,
        patience=settings.patience,
        callback=_labeled(progress, "residual propagation"),
    )
    seconds = {
        "load": load_seconds,
        "setup": setup,
        "run": time.perf_counter() - began,
    }
    del flow  # a dense kernel is not needed any more
    lines = _baselines(dataset, matrix, targets, settings, progress)
    record = _record(dataset, settings, trajectory, lines, seconds)
    return Run(record, trajectory)


def build_similarity(
    matrix: spmm.Matrix,
    node_features: Any,
    settings: Settings,
    shape: tuple[int, int],
) -> LinearMap:
    """Return S: A^K or a lazy walk B, or B Kn B where the settings name a kernel.

    The kernel is held densely where that fits 6 GiB and there are more steps than an
    exact trajectory needs; else its blocks are evaluated at each product.
    """
    if settings.alpha == 1:
        walk = similarity.Power(matrix, settings.power)
    else:
        walk = similarity.LazyWalk(matrix, settings.power, settings.alpha)
    if settings.kernel is None:
        return walk
    x = node_features
    if settings.row_normalize:
        x = features.row_normalized(x)
    kernel = features.build(x, settings.kernel, gamma=settings.gamma)
    return similarity.Sandwich(walk, kernel)


def mean_std(values: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation (ddof 1; 0 for one value)."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return float(np.mean(values)), spread


def percent(value: Any) -> float | None:
    """Return 100 times the value, to the digits that float32 holds; None for NaN."""
    number = float(value)
    return None if np.isnan(number) else round(100 * number, 4)


def _labeled(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda done, total: progress(what, done, total)
