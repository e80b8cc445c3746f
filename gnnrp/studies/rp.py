"""RP and its baselines on a dataset: settings in, a record of plain numbers out."""

import dataclasses
import time
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from gnnrp import datasets, graph, metrics, propagation, sparse
from gnnrp.datasets import Dataset
from gnnrp.runtime import checks, memory
from gnnrp.runtime.options import Options
from gnnrp.studies import baselines, presets, records, similarities
from gnnrp.studies.settings import RPSettings
from gnnrp.types import LinearMap, MetricFn, Split


class Run(NamedTuple):
    """The record of a run, and its trajectory."""

    record: dict[str, Any]
    trajectory: propagation.Trajectory


def run(
    dataset: Dataset,
    settings: RPSettings,
    *,
    options: Options = Options(),
    load_seconds: float = 0.0,
) -> Run:
    """Run RP and its baselines on all splits of a dataset at once.

    Args:
        dataset: see ``datasets.load``.
        settings: see ``studies.presets.settings``.
        options: checkpoints of RP, memory limit and progress.
        load_seconds: loading time, for the record.

    Raises:
        ValueError: a feature kernel for a dataset without features, or a run that does
            not fit in memory.
        TypeError: not a dataset, or not settings.
        OSError: the folder cannot be written, or another run uses it.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    checks.instance("settings", settings, RPSettings, "presets.settings makes one")
    if settings.kernel is not None and dataset.features is None:
        msg = f"{dataset.name} has no features here; use plain RP (kernel none)"
        raise ValueError(msg)
    with presets.precision(settings.precision):
        return _run(dataset, settings, options, load_seconds)


def _run(
    dataset: Dataset, settings: RPSettings, options: Options, load_seconds: float
) -> Run:
    start = time.perf_counter()
    dataset = dataset._replace(splits=Split(*map(np.atleast_2d, dataset.splits)))
    splits, metric = dataset.splits, metrics.by_name(dataset.metric)
    matrix, targets, flow, form = _set_up(dataset, settings, options.max_bytes)
    ready = time.perf_counter()
    metadata = dataclasses.asdict(settings) | {"dataset": dataset.name}
    of_rp = dataclasses.replace(options, metadata=metadata)
    trajectory = propagate(flow, targets, splits, settings, metric, of_rp)
    seconds = {
        "load": load_seconds,
        "setup": ready - start,
        "run": time.perf_counter() - ready,
    }
    del flow  # frees a dense kernel
    with_plain = settings.kernel is not None
    others = baselines.run(
        matrix, targets, splits, metric=metric, with_plain=with_plain, options=options
    )
    record = records.from_trajectory(
        dataset,
        settings,
        trajectory,
        others,
        seconds,
        split_kind=dataset.split_kind,
    )
    record["report"]["kernel"] = form
    return Run(record, trajectory)


def propagate(
    flow: LinearMap,
    targets: Any,
    splits: Split,
    settings: RPSettings,
    metric: MetricFn,
    options: Options = Options(),
) -> propagation.Trajectory:
    """Run RP along a similarity with the start, steps and solver of the settings."""
    return propagation.run(
        flow,
        targets,
        splits,
        propagation.Steps(settings.step_size, settings.num_steps),
        metric=metric,
        initial=class_shares(targets, splits.train) if settings.is_centered else None,
        solver=settings.solver(),
        selection=settings.selection(),
        options=options,
    )


def class_shares(
    targets: Float[np.ndarray, "n c"], train: Bool[np.ndarray, "s n"]
) -> Float[np.ndarray, "s n c"]:
    """Return F_0 of every node: the mean target of the training nodes of each split.

    NaN counts as unknown; the share of a column without known targets is 0.
    """
    shape = (len(train), *targets.shape)
    weights = train.astype(targets.dtype)
    total = weights @ np.nan_to_num(targets)
    shares = total / np.maximum(1, weights @ np.isfinite(targets))
    return np.broadcast_to(shares[:, None, :], shape)


def check_adjacency_memory(
    num_nodes: int, num_edges: int, max_bytes: int | None
) -> None:
    """Check that the adjacency matrix of a graph fits in memory."""
    memory.check(
        f"the adjacency matrix of {num_edges:,} edges",
        graph.peak_bytes(num_nodes, num_edges),
        memory.room(max_bytes),
        "take a smaller graph",
    )


def _set_up(
    dataset: Dataset, settings: RPSettings, max_bytes: int | None
) -> tuple[sparse.Matrix, Any, LinearMap, str | None]:
    """Return A, the targets, S, and the form of its kernel."""
    num_nodes = dataset.num_nodes
    check_adjacency_memory(num_nodes, dataset.edges.shape[1], max_bytes)
    shape = num_nodes, datasets.num_targets(dataset)
    like = jax.ShapeDtypeStruct(shape, np.float32)
    baselines.check_memory(like, dataset.splits, max_bytes)
    matrix = sparse.prepare(graph.normalized_adjacency(dataset.edges, num_nodes))
    targets = datasets.targets(dataset)
    num_train = int(np.max(dataset.splits.train.sum(axis=-1)))
    room = memory.room(max_bytes)
    adjacency = None
    if settings.hops is not None:
        adjacency = graph.raw_adjacency(dataset.edges, num_nodes)
    flow, form = similarities.build(
        matrix,
        dataset.features,
        settings,
        num_train=num_train,
        adjacency=adjacency,
        room=room,
    )
    return matrix, targets, jax.block_until_ready(flow), form
