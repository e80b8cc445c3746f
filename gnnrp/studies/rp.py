"""RP and its baselines on a dataset: settings in, a record of plain numbers out."""

import dataclasses
import time
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
from gnnrp.runtime import checks, memory
from gnnrp.runtime.options import Options
from gnnrp.studies import baselines, presets, records
from gnnrp.studies.settings import RPSettings
from gnnrp.types import LinearMap, MetricFn, Split

DENSE_BYTES = 6 * 2**30  # upper limit of a dense kernel


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
    """Run RP along a similarity, with the steps, solver and selection of settings."""
    return propagation.run(
        flow,
        targets,
        splits,
        propagation.Steps(settings.step_size, settings.num_steps),
        metric=metric,
        solver=settings.solver(),
        selection=settings.selection(),
        options=options,
    )


def _set_up(
    dataset: Dataset, settings: RPSettings, max_bytes: int | None
) -> tuple[sparse.Matrix, Any, LinearMap, str | None]:
    """Return A, the targets, S, and the form of its kernel."""
    num_nodes, num_edges = dataset.num_nodes, dataset.edges.shape[1]
    memory.check(
        f"the adjacency matrix of {num_edges:,} edges",
        graph.peak_bytes(num_nodes, num_edges),
        memory.room(max_bytes),
        "take a smaller graph",
    )
    shape = num_nodes, datasets.num_targets(dataset)
    like = jax.ShapeDtypeStruct(shape, np.float32)
    baselines.check_memory(like, dataset.splits, max_bytes)
    matrix = sparse.prepare(graph.normalized_adjacency(dataset.edges, num_nodes))
    targets = datasets.targets(dataset)
    num_train = int(np.max(dataset.splits.train.sum(axis=-1)))
    room = memory.room(max_bytes)
    x = _checked_features(dataset.features, settings, room)
    flow, form = _similarity(matrix, x, settings, num_train, room)
    return matrix, targets, jax.block_until_ready(flow), form


def build_similarity(
    matrix: sparse.Matrix, node_features: Any, settings: RPSettings, *, num_train: int
) -> LinearMap:
    """Return S: A^K or a lazy walk B, or B Kn B if the settings name a kernel.

    If at most half of the feature rows are distinct and their kernel fits in memory,
    the kernel uses the distinct rows. Otherwise it is dense if it fits in 6 GiB and
    half of the memory and the run needs many products (another loss, or too many
    training nodes for the exact solver). If not, each product evaluates its row blocks.
    """
    checks.linear_map("the matrix", matrix)
    room = memory.room()
    x = _checked_features(node_features, settings, room)
    return _similarity(matrix, x, settings, num_train, room)[0]


def _checked_features(x: Any, settings: RPSettings, room: memory.Room) -> Any:
    """Return the features, None without a kernel; its row blocks must fit in memory."""
    if settings.kernel is None:
        return None
    x = features.validate(x)
    features.check_memory(x, settings.kernel, room)
    return x


def _similarity(
    matrix: sparse.Matrix,
    x: Any,
    settings: RPSettings,
    num_train: int,
    room: memory.Room,
) -> tuple[LinearMap, str | None]:
    """Return S, and the form of its kernel with the reason."""
    walk = similarity.walk(matrix, settings.power, settings.alpha)
    if settings.kernel is None:
        return walk, None
    x = features.as_float(x, jnp.zeros(0).dtype)  # float64 in a float64 run
    if x.shape[0] != matrix.shape[0]:
        msg = (
            f"there are {x.shape[0]} rows of features for {matrix.shape[0]} nodes; "
            "pass one for each, in training or not"
        )
        raise ValueError(msg)
    if settings.row_normalize:
        x = features.normalize_rows(x)
    form, reason = _kernel_form(x, settings, num_train, room)
    name, gamma = settings.kernel, settings.gamma
    if form == "distinct":
        kernel = low_rank.distinct(x, name, gamma=gamma)
    elif form == "dense":
        blocks = features.build(x, name, gamma=gamma, normalized=False)
        kernel = similarity.Dense(features.normalized_matrix(blocks))
    else:
        kernel = features.build(x, name, gamma=gamma, normalized=True)
    return similarity.Sandwich(walk, kernel), reason


def _kernel_form(
    x: Any, settings: RPSettings, num_train: int, room: memory.Room
) -> tuple[str, str]:
    """Return "distinct", "dense" or "blocks", and the reason."""
    (num_nodes, num_features), itemsize = x.shape, x.dtype.itemsize
    num_rows = _num_distinct_rows(x)
    lacking = ""
    if num_rows <= num_nodes / 2:
        needed = low_rank.distinct_bytes(
            num_nodes, num_features, num_rows, itemsize=itemsize
        )
        if needed <= room.left:
            return "distinct", f"of {num_rows:,} distinct rows"
        lacking = (
            f"; {memory.LACK} not distinct rows: it {memory.compare(needed, room)}"
        )
    many_products = settings.loss != "squared" or num_train > exact.MAX_TRAIN
    if many_products and num_nodes**2 * itemsize <= DENSE_BYTES:
        needed = features.matrix_bytes(num_nodes, itemsize=itemsize)
        if needed <= room.left / 2:  # the other half is for the run
            return "dense", "held densely, for many products"
        lacking = f"; {memory.LACK} not held densely: it {memory.compare(needed, room)}"
    return "blocks", f"in row blocks at each product{lacking}"


def _num_distinct_rows(x: Any) -> int:
    """Return the number of distinct rows; sparse rows all count."""
    if scipy.sparse.issparse(x) or 0 in x.shape:
        return x.shape[0]
    row = np.dtype((np.void, x.itemsize * x.shape[1]))
    return len(np.unique(np.ascontiguousarray(x).view(row)))
