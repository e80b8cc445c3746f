"""Your own graph as a ``Dataset``: from arrays, or from an npz file of them."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from gnnrp.datasets import _validate, npz, raw_files
from gnnrp.datasets import splits as split_masks
from gnnrp.datasets.dataset import Dataset
from gnnrp.runtime import checks, safe_text
from gnnrp.types import Split

METRICS = ("accuracy", "roc_auc")
MEMBERS = {  # of an npz file, checked by ``from_arrays``
    "edges": ("biuf", (1, 2)),
    "labels": ("biuf", (1, 2)),
    "features": ("biuf", (1, 2)),
    **{part: ("biuf", (1, 2)) for part in Split._fields},
}
NODE_IDS = {"node_ids": ("iuU", 1)}  # another member, of ``read_graph``
_REQUIRED = ("edges", "labels")


class Graph(NamedTuple):
    """The arrays of a graph without splits."""

    edges: Int[np.ndarray, "2 e"]  # senders, receivers
    labels: Int[np.ndarray, " n"]  # -1: unknown
    features: Float[np.ndarray, "n d"] | None  # float32
    node_ids: np.ndarray  # (n,) text


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
        name: in records. Published settings apply to names of ``names()``, and so
            never to a file, whose dataset has the file's name.

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
    files, arrays = _read_members(path, MEMBERS, max_bytes)
    num_masks = sum(part in arrays for part in Split._fields)
    with_masks = num_masks or split_kind == "published"
    _require(path, arrays, (*_REQUIRED, *(Split._fields if with_masks else ())))
    parts = None
    if num_masks and split_kind != "random":
        parts = Split(*(arrays[part] for part in Split._fields))
    with _named(path):
        data = from_arrays(
            arrays["edges"],
            arrays["labels"],
            features=arrays.get("features"),
            splits=parts,
            seed=seed,
            name=safe_text.line(path.name, 80),
        )
    return data._replace(files=raw_files.digests(files), folder=str(path.parent))


def read_graph(path: Path, *, max_bytes: int | None = None) -> Graph:
    """Read the graph of such a file without its masks, and the ids of its nodes.

    The member node_ids, whole numbers or text, is optional; by default, ids are
    positions. Any negative label is unknown.

    Args:
        path: of the file.
        max_bytes: memory limit.

    Raises:
        ValueError: see ``read``; or node ids that are empty, repeated, of another
            number than the labels, or no text.
        TypeError: arrays of another type.
        FileNotFoundError: no such file.
    """
    graph_members = {name: MEMBERS[name] for name in ("edges", "labels", "features")}
    _, arrays = _read_members(path, graph_members | NODE_IDS, max_bytes)
    _require(path, arrays, _REQUIRED)
    with _named(path):
        known = np.maximum(checks.labels("labels", arrays["labels"]), -1)
        labels = _class_ids(known, METRICS[0])
        features = arrays.get("features")
        return Graph(
            edges=_edge_index(arrays["edges"], len(labels)),
            labels=labels,
            features=None if features is None else _features(features, len(labels)),
            node_ids=_node_ids(arrays.get("node_ids"), len(labels)),
        )


def _read_members(
    path: Path, members: dict[str, Any], max_bytes: int | None
) -> tuple[dict[str, raw_files.File], dict[str, np.ndarray]]:
    """Return the file by its name, and those of the arrays that it has."""
    try:
        path.stat()
    except OSError as error:  # here no other folder would help
        msg = (
            f"{path} cannot be read ({error.strerror}); check its name and permissions"
        )
        raise type(error)(msg) from error
    files = raw_files.stat_all(path.parent, [path.name], max_bytes)
    fix = "save arrays of numbers by numpy.savez, and ids as text by astype(str)"
    with raw_files.format_errors(path, "npz", fix):
        optional = {f"{name}?": kind for name, kind in members.items()}
        return files, npz.read(files[path.name], optional)


def _require(
    path: Path, arrays: dict[str, np.ndarray], wanted: tuple[str, ...]
) -> None:
    """Refuse a file that lacks an array."""
    for member in wanted:
        if member not in arrays:
            msg = (
                f"{path} has no array {member!r}; save it with the others by "
                f"numpy.savez(path, {', '.join(f'{each}={each}' for each in wanted)})"
            )
            raise ValueError(msg)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let a message about an array start with the file."""
    try:
        yield
    except (TypeError, ValueError) as error:
        msg = f"{path}: {error}"
        raise type(error)(msg) from error


def _node_ids(node_ids: Any, num_nodes: int) -> np.ndarray:
    """Return node ids as distinct text (n,); positions by default."""
    if node_ids is None:
        node_ids = np.arange(num_nodes)
    checks.shape("node_ids", node_ids, (num_nodes,))
    if node_ids.dtype.kind == "U":
        native = node_ids.astype(node_ids.dtype.newbyteorder("="))
        codes = native.view(np.uint32)
        is_surrogate = (codes >= 0xD800) & (codes <= 0xDFFF)
        if is_surrogate.any() or codes.max() > sys.maxunicode:
            msg = "node_ids must be text that UTF-8 can encode; remove other characters"
            raise ValueError(msg)
    ids = np.array([str(node) for node in node_ids.tolist()], object)
    distinct, counts = np.unique(ids, return_counts=True)
    if (repeated := counts > 1).any():
        node = safe_text.line(distinct[np.argmax(repeated)], 40)
        msg = f"node_ids must be distinct, got {node!r} several times; keep one"
        raise ValueError(msg)
    if "" in ids:
        place = int(np.argmax(ids == ""))
        msg = f"node_ids must not be empty, as that of node {place} is; add it"
        raise ValueError(msg)
    return ids


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
