"""A data set and settings in, a record of plain numbers out: what commands share."""

import dataclasses
import functools
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from gnnrp import datasets, graph, metrics, propagation, sparse
from gnnrp.datasets import Dataset
from gnnrp.kernels import features
from gnnrp.kernels.features import low_rank
from gnnrp.propagation import similarity
from gnnrp.propagation.solvers import exact
from gnnrp.runtime import checkpoints, checks, memory, peaks
from gnnrp.runtime.options import Options
from gnnrp.studies import baselines, presets, records
from gnnrp.studies.presets import RPSettings
from gnnrp.types import LinearMap, Split

Progress = Callable[[str, int, int], None]
"""(what, done, total), called now and then."""

DENSE_BYTES = 6 * 2**30
"""Of a dense kernel, at most."""


class Run(NamedTuple):
    """What a run leaves: the record, and the curves behind it."""

    record: dict[str, Any]
    trajectory: propagation.Trajectory


def run(
    dataset: Dataset,
    settings: RPSettings,
    *,
    load_seconds: float = 0.0,
    folder: Path | None = None,
    checkpoint_seconds: float = checkpoints.SECONDS,
    max_bytes: int | None = None,
    progress: Progress | None = None,
) -> Run:
    """Run RP and its baselines on a data set, with all its splits at once.

    Args:
        dataset: see ``datasets.load``.
        settings: see ``studies.presets.settings``.
        load_seconds: what loading took, for the record.
        folder: of checkpoints of RP; see ``propagation.run``.
        checkpoint_seconds: between two of them.
        max_bytes: what may be held in all; what there is if left out, see ``memory``.
        progress: called with what is being done, how far it is, and of how much.

    Raises:
        ValueError: a feature kernel for a data set without features; what does not fit
            the memory.
        TypeError: no data set, no settings.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    checks.instance("settings", settings, RPSettings, "presets.settings makes one")
    if settings.kernel is not None and dataset.features is None:
        msg = f"{dataset.name} has no features here; use plain RP (kernel none)"
        raise ValueError(msg)
    # Asked for, float64 holds within; a caller's own float64 is never turned off.
    wide = jax.enable_x64(True) if settings.precision == "float64" else nullcontext()
    with wide:
        kept = (folder, checkpoint_seconds)
        return _run(dataset, settings, load_seconds, kept, max_bytes, progress)


def _run(
    dataset: Dataset,
    settings: RPSettings,
    load_seconds: float,
    kept: tuple[Path | None, float],
    max_bytes: int | None,
    progress: Progress | None,
) -> Run:
    def report(what: str) -> Callable[[int, int], None] | None:
        return functools.partial(progress, what) if progress else None

    began = time.perf_counter()
    dataset = dataset._replace(splits=Split(*map(np.atleast_2d, dataset.splits)))
    matrix, targets, flow, form = _set_up(dataset, settings, max_bytes)
    setup = time.perf_counter() - began

    began = time.perf_counter()
    trajectory = _propagated(
        flow, targets, dataset, settings, kept, max_bytes, progress
    )
    seconds = {
        "load": load_seconds,
        "setup": setup,
        "run": time.perf_counter() - began,
    }
    del flow  # a dense kernel is of no more use
    lines = baselines.run(
        matrix,
        targets,
        dataset.splits,
        metric=metrics.by_name(dataset.metric),
        with_plain=settings.kernel is not None,
        max_bytes=max_bytes,
        callback=report("baselines"),
    )
    record = records.make(dataset, settings, trajectory, lines, seconds)
    record["report"]["kernel"] = form
    return Run(record, trajectory)


def _set_up(
    dataset: Dataset, settings: RPSettings, max_bytes: int | None
) -> tuple[sparse.Matrix, Any, LinearMap, str | None]:
    """Return A, the targets, S, and which form its kernel has."""
    num_edges = dataset.edges.shape[1]
    memory.check(
        f"the adjacency matrix of {num_edges:,} edges",
        peaks.adjacency(dataset.num_nodes, num_edges),
        memory.room(max_bytes),
        "take a smaller graph",
    )
    shape = dataset.num_nodes, datasets.num_targets(dataset)
    like = jax.ShapeDtypeStruct(shape, np.float32)
    baselines.check_memory(like, dataset.splits, max_bytes)
    matrix = sparse.prepare(
        graph.normalized_adjacency(dataset.edges, dataset.num_nodes)
    )
    targets = datasets.targets(dataset)
    num_train = int(np.max(dataset.splits.train.sum(axis=-1)))
    room = memory.room(max_bytes)
    _check_kernel(dataset.features, settings, room)
    flow, form = _similarity(matrix, dataset.features, settings, num_train, room)
    return matrix, targets, jax.block_until_ready(flow), form


def _propagated(
    flow: LinearMap,
    targets: Any,
    dataset: Dataset,
    settings: RPSettings,
    kept: tuple[Path | None, float],
    max_bytes: int | None,
    progress: Progress | None,
) -> propagation.Trajectory:
    return propagation.run(
        flow,
        targets,
        dataset.splits,
        metric=metrics.by_name(dataset.metric),
        **presets.arguments(settings),
        options=Options(
            folder=kept[0],
            checkpoint_seconds=kept[1],
            metadata=dataclasses.asdict(settings) | {"dataset": dataset.name},
            max_bytes=max_bytes,
            progress=progress,
        ),
    )


def build_similarity(
    matrix: sparse.Matrix,
    node_features: Any,
    settings: RPSettings,
    *,
    num_train: int,
    max_bytes: int | None = None,
) -> LinearMap:
    """Return S: A^K or a lazy walk B, or B Kn B where the settings name a kernel.

    Where at most half of the feature rows are distinct, the kernel is one of those.
    Else it is held densely where that fits 6 GiB, and half of what memory there is, and
    its many products pay for it: where exact trajectories, which need one, do not
    serve. Else its row blocks are evaluated at each product.

    Args:
        matrix: A.
        node_features: dense or scipy sparse, for a kernel.
        settings: power, alpha, kernel, gamma, row_normalize and loss are read.
        num_train: training nodes of the largest split.
        max_bytes: what may be held in all; what there is if left out.

    Raises:
        ValueError: features that do not fit the graph, the kernel or the memory.
        TypeError: what is no linear map.
    """
    checks.linear_map("the matrix", matrix)
    room = memory.room(max_bytes)
    _check_kernel(node_features, settings, room)
    return _similarity(matrix, node_features, settings, num_train, room)[0]


def _check_kernel(node_features: Any, settings: RPSettings, room: memory.Room) -> None:
    """Refuse a kernel whose row blocks, its smallest form, do not fit.

    Raises:
        ValueError: it does not fit, or features of another kind.
    """
    if settings.kernel is not None:
        x = features.checked(node_features)
        features.check_memory(x, settings.kernel, room)


def _similarity(
    matrix: sparse.Matrix,
    node_features: Any,
    settings: RPSettings,
    num_train: int,
    room: memory.Room,
) -> tuple[LinearMap, str | None]:
    """Return S, and which form its kernel has, and why.

    Raises:
        ValueError: features that do not fit the graph or the kernel.
    """
    walk = similarity.walk(matrix, settings.power, settings.alpha)
    if settings.kernel is None:
        return walk, None
    dtype = jnp.zeros(0).dtype  # a float64 run wants its kernel in float64 too
    x = features.as_float(features.checked(node_features), dtype)
    if x.shape[0] != matrix.shape[0]:
        msg = (
            f"there are {x.shape[0]} rows of features for {matrix.shape[0]} nodes; "
            "pass one for each, in training or not"
        )
        raise ValueError(msg)
    if settings.row_normalize:
        x = features.row_normalized(x)
    form, why = _form(x, settings, num_train, room)
    if form == "distinct":
        kernel = low_rank.distinct(x, settings.kernel, gamma=settings.gamma)
        return similarity.Sandwich(walk, kernel), why
    dense = form == "dense"
    kernel = features.build(
        x, settings.kernel, gamma=settings.gamma, normalized=not dense
    )
    if dense:
        kernel = similarity.Dense(features.normalized_matrix(kernel))
    return similarity.Sandwich(walk, kernel), why


def _form(
    x: Any, settings: RPSettings, num_train: int, room: memory.Room
) -> tuple[str, str]:
    """Return what stands for the kernel of these features, and why."""
    (num_nodes, num_features), itemsize = x.shape, x.dtype.itemsize
    num_rows = _num_distinct(x)
    lacking = ""
    if num_rows <= num_nodes / 2:
        needed = peaks.distinct(num_nodes, num_features, num_rows, itemsize=itemsize)
        if needed <= room.left:
            return "distinct", f"of {num_rows:,} distinct rows"
        lacking = f"; {memory.LACK} not distinct rows: it {memory.told(needed, room)}"
    many_products = settings.loss != "squared" or num_train > exact.MAX_TRAIN
    if many_products and num_nodes**2 * itemsize <= DENSE_BYTES:
        needed = peaks.dense_kernel(num_nodes, itemsize=itemsize)
        if needed <= room.left / 2:  # the other half is for what runs along it
            return "dense", "held densely, for many products"
        lacking = f"; {memory.LACK} not held densely: it {memory.told(needed, room)}"
    return "blocks", f"in row blocks at each product{lacking}"


def _num_distinct(x: Any) -> int:
    """Return how many rows are distinct; of sparse ones, all."""
    if scipy.sparse.issparse(x) or 0 in x.shape:
        return x.shape[0]
    row = np.dtype((np.void, x.itemsize * x.shape[1]))
    return len(np.unique(np.ascontiguousarray(x).view(row)))
