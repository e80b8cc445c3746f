"""Your own graph as a ``Dataset``: from arrays, or from an npz file of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from gnnrp.datasets import _validate, npz, raw_files
from gnnrp.datasets import splits as split_masks
from gnnrp.datasets.dataset import Dataset
from gnnrp.runtime import checks
from gnnrp.types import Split

METRICS = ("accuracy", "roc_auc")
MEMBERS = {  # of an npz file, checked by ``from_arrays``
    "edges": ("biuf", (1, 2)),
    "labels": ("biuf", (1, 2)),
    "features": ("biuf", (1, 2)),
    **{part: ("biuf", (1, 2)) for part in Split._fields},
}
_REQUIRED = ("edges", "labels")


def from_arrays(
    edges: Any,
    labels: Any,
    *,
    features: Any = None,
    splits: Split | Sequence[Bool[Any, "*s n"]] | None = None,
    seed: int = 0,
    metric: str = "accuracy",
    name: str = "own graph",
) -> Dataset:
    """Return a dataset of your own graph, which every study takes.

    Args:
        edges: node ids (2, e), senders first. Directions, loops and duplicates are
            cleaned later.
        labels: class ids (n,), -1 where unknown; n is their number.
        features: (n, d), dense or scipy sparse.
        splits: masks of training, validation and test nodes, (n,) or (s, n) for s
            splits; ``splits.public`` makes them of node ids. By default one random
            split into 80, 10 and 10 percent of the labeled nodes.
        seed: of that random split.
        metric: "accuracy", or "roc_auc" of two classes.
        name: in records. Published settings apply to names of ``names()``.

    Raises:
        ValueError: a wrong shape, a node id or class id out of range, features that are
            not finite, or splits that overlap, have no training node or a node
            without a label.
        TypeError: ids that are not integers, features that are not numbers, or masks
            that are not boolean.

    Example:
        >>> data = from_arrays([[0, 1, 2, 3], [1, 2, 3, 4]], [0, 0, 0, 1, 1])
        >>> data.num_nodes, data.num_classes, data.splits.train.shape
        (5, 2, (1, 5))
    """
    checks.one_of("metric", metric, METRICS)
    labels = _class_ids(labels, metric)
    num_nodes = len(labels)
    parts = _given_splits(splits, num_nodes)
    if parts is None:
        parts = split_masks.random(labels, 1, seed=seed)
    return Dataset(
        name=name,
        edges=_edge_index(edges, num_nodes),
        num_nodes=num_nodes,
        features=None if features is None else _features(features, num_nodes),
        labels=labels,
        num_classes=int(labels.max()) + 1,
        splits=_validate.masks(parts, labels),
        metric=metric,
        edge_convention="once",
        files={},
        folder=None,
        split_kind="random" if splits is None else "given",
    )


def read(
    path: Path,
    *,
    split_kind: str | None = None,
    seed: int = 0,
    max_bytes: int | None = None,
) -> Dataset:
    """Read an npz file with the arrays of ``from_arrays``, without pickle.

    Members are edges and labels and, optionally, features and the masks train, val and
    test.

    Args:
        path: of the file.
        split_kind: "published" for the masks of the file, "random" for a random split;
            by default, the masks if the file has them.
        seed: of a random split.
        max_bytes: memory limit, see ``runtime.memory``.

    Raises:
        ValueError: a missing array, arrays that ``from_arrays`` refuses, or a damaged
            file.
        TypeError: arrays of a type that ``from_arrays`` refuses.
        FileNotFoundError: no such file.
    """
    files = raw_files.stat_all(path.parent, [path.name], max_bytes)
    (file,) = files.values()
    with raw_files.format_errors(path, "npz"):
        arrays = npz.read(file, {f"{member}?": MEMBERS[member] for member in MEMBERS})
    num_masks = sum(part in arrays for part in Split._fields)
    wanted = [*_REQUIRED, *(Split._fields if num_masks else ())]
    if split_kind == "published":
        wanted = [*_REQUIRED, *Split._fields]
    for member in wanted:
        if member not in arrays:
            msg = (
                f"{path} has no array {member!r}; save it with the others by "
                f"numpy.savez(path, {', '.join(f'{each}={each}' for each in wanted)})"
            )
            raise ValueError(msg)
    parts = None
    if num_masks and split_kind != "random":
        parts = Split(*(arrays[part] for part in Split._fields))
    try:
        data = from_arrays(
            arrays["edges"],
            arrays["labels"],
            features=arrays.get("features"),
            splits=parts,
            seed=seed,
            name=path.stem,
        )
    except (TypeError, ValueError) as error:
        msg = f"{path}: {error}"
        raise type(error)(msg) from error
    return data._replace(files=raw_files.digests(files), folder=str(path.parent))


def _class_ids(labels: Any, metric: str) -> np.ndarray:
    """Return class ids, validated."""
    ids = checks.labels("labels", labels)
    low, high = ids.min(initial=0), ids.max(initial=-1)
    if high < 0:
        msg = f"labels must have a class id at least once, got {len(ids)} unknown ones"
        raise ValueError(msg)
    # More classes than nodes are a mistake, and one-hot targets would be huge.
    if low < -1 or high >= len(ids):
        msg = (
            f"labels must be class ids from 0 to c - 1, -1 where unknown, got "
            f"{low if low < -1 else high} for {len(ids)} nodes; "
            "np.unique(labels, return_inverse=True)[1] makes them"
        )
        raise ValueError(msg)
    if metric == "roc_auc" and high != 1:
        msg = f"metric 'roc_auc' needs two classes, got {high + 1}; take 'accuracy'"
        raise ValueError(msg)
    return ids


def _edge_index(edges: Any, num_nodes: int) -> np.ndarray:
    """Return senders and receivers, int64 (2, e)."""
    checks.no_masked_entries("edges", edges)
    index = checks.try_as_array(edges)
    if index.ndim != 2 or len(index) != 2:
        is_pairs = index.ndim == 2 and index.shape[1] == 2
        fix = "pass edges.T" if is_pairs else "np.stack(W.nonzero()) of a matrix W"
        got = index.shape if index.ndim else type(edges).__name__
        msg = f"edges must have shape (2, e), senders first, got {got}; {fix}"
        raise ValueError(msg)
    if index.size and index.dtype.kind not in "iu":
        msg = f"edges must hold integer node ids, got {index.dtype}"
        raise TypeError(msg)
    outside = (index < 0) | (index >= num_nodes)
    if outside.any():
        msg = (
            f"edges must hold node ids from 0 to {num_nodes - 1}, one for each label, "
            f"got {index[outside][0]}"
        )
        raise ValueError(msg)
    return index.astype(np.int64)


def _features(features: Any, num_nodes: int) -> Any:
    """Return features as float32, dense or CSR."""
    import scipy.sparse  # which takes a while

    if scipy.sparse.issparse(features):
        matrix: Any = scipy.sparse.csr_array(features)
        values = checks.reals("features", matrix.data)
    else:
        values = matrix = checks.reals("features", features)
    if len(matrix.shape) != 2 or matrix.shape[0] != num_nodes or matrix.shape[1] == 0:
        msg = (
            f"features must have shape ({num_nodes}, d) with d > 0 and a row for each "
            f"label, got {matrix.shape}"
        )
        raise ValueError(msg)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.ascontiguousarray(values, np.float32)
    if not np.isfinite(values).all():
        msg = "features must be finite in float32, and hold NaN or infinity"
        raise ValueError(msg)
    if values.ndim == 2:
        return values
    parts = values, matrix.indices, matrix.indptr
    return scipy.sparse.csr_array(parts, matrix.shape)


def _given_splits(splits: Any, num_nodes: int) -> Split | None:
    """Return masks (s, n), or None for a random split."""
    if splits is None:
        return None
    if not isinstance(splits, list | tuple) or len(splits) != 3:
        msg = (
            "splits must be three masks, of training, validation and test nodes, got "
            f"{checks.format_value(splits)}; datasets.splits.public makes them of ids"
        )
        raise ValueError(msg)
    named = zip(Split._fields, splits, strict=True)
    return Split(
        *(
            np.atleast_2d(np.asarray(checks.mask(part, mask, num_nodes, several=True)))
            for part, mask in named
        )
    )
