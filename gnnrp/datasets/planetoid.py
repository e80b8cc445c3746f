"""Cora, Citeseer, Pubmed in the format of Planetoid: Python 2 pickles and text."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from jaxtyping import Int

from gnnrp.datasets import _unpickle, _validate, csr, raw_files, splits, text_tables
from gnnrp.datasets._validate import require
from gnnrp.datasets.dataset import Dataset
from gnnrp.datasets.raw_files import File

PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
NUM_VAL = 500  # of the public split
FORMAT = "Planetoid"
PICKLE_BYTES = 1 << 24  # of the values of a pickle between two memory checks


def read(folder: Path, name: str, *, max_bytes: int | None = None) -> Dataset:
    """Read the eight files ``ind.NAME.*`` with the public split.

    Nodes missing from ``test.index`` (15 of Citeseer) keep their place and edges, but
    have zero features, label -1, and are in no mask.

    Source: Yang et al. 2016: 20 training nodes a class, the next 500 for validation.
    """
    names = [f"ind.{name}.{part}" for part in PARTS]
    files = raw_files.stat_all(folder, names, max_bytes)
    loaded = {}
    for part, file in zip(PARTS, files.values(), strict=True):
        with raw_files.format_errors(file.path, FORMAT):
            loaded[part] = _PARSERS.get(part, _one_hot)(file)
    with raw_files.format_errors(folder / f"ind.{name}.test.index", FORMAT):
        num_nodes = _num_nodes(loaded)
    with raw_files.format_errors(folder / f"ind.{name}.graph", FORMAT):
        edges = _validate.edges(loaded["graph"], num_nodes)
    with raw_files.format_errors(folder / f"ind.{name}.allx", FORMAT):
        features = _features(loaded, num_nodes)
    with raw_files.format_errors(folder / f"ind.{name}.ally", FORMAT):
        labels = _labels(loaded, num_nodes)
        num_train, num_rows = len(loaded["y"]), len(loaded["ally"])
        split = splits.public(
            num_nodes,
            np.arange(num_train),
            np.arange(num_train, min(num_train + NUM_VAL, num_rows)),
            loaded["test.index"],
        )
        _validate.masks(split, labels)
    return Dataset(
        name=name,
        edges=edges,
        num_nodes=num_nodes,
        features=features,
        labels=labels,
        num_classes=loaded["ally"].shape[1],
        splits=split,
        metric="accuracy",
        edge_convention="both",
        files=raw_files.digests(files),
        folder=str(folder),
    )


def _num_nodes(loaded: dict[str, Any]) -> int:
    """Return n, the largest test id plus one."""
    ids, num_known = loaded["test.index"], loaded["allx"].shape[0]
    num_rows = num_known + loaded["tx"].shape[0]
    if len(ids) != loaded["tx"].shape[0] or len(np.unique(ids)) != len(ids):
        msg = f"{len(ids)} ids for {loaded['tx'].shape[0]} test rows, or repeated ids"
        raise ValueError(msg)
    if ids.size and ids.min() < num_known:
        msg = f"test id {ids.min()} belongs to one of the {num_known} rows of allx"
        raise ValueError(msg)
    num_nodes = int(ids.max(initial=num_known - 1)) + 1
    require(num_nodes > 0, "there is no node")
    # Missing ids are nodes of the graph without a row.
    if num_nodes > num_rows + len(np.unique(loaded["graph"])):
        msg = f"test id {num_nodes - 1} is too large for {num_rows} feature rows"
        raise ValueError(msg)
    return num_nodes


def _features(loaded: dict[str, Any], num_nodes: int) -> scipy.sparse.csr_array:
    x, tx, allx = loaded["x"], loaded["tx"], loaded["allx"]
    if not x.shape[1] == tx.shape[1] == allx.shape[1] or x.shape[0] > allx.shape[0]:
        msg = f"x, tx, allx have shapes {x.shape}, {tx.shape}, {allx.shape}"
        raise ValueError(msg)
    require((x != allx[: x.shape[0]]).nnz == 0, "x is not the first rows of allx")
    known, test = allx.tocoo(), tx.tocoo()
    rows = np.concatenate([known.row, loaded["test.index"][test.row]])
    columns = np.concatenate([known.col, test.col])
    values = np.concatenate([known.data, test.data])
    shape = (num_nodes, allx.shape[1])
    return scipy.sparse.csr_array((values, (rows, columns)), shape=shape)


def _labels(loaded: dict[str, Any], num_nodes: int) -> Int[np.ndarray, " n"]:
    y, ty, ally = loaded["y"], loaded["ty"], loaded["ally"]
    for part in ("x", "tx", "allx"):
        one_hot = loaded[part.replace("x", "y")]
        if one_hot.shape != (loaded[part].shape[0], ally.shape[1]):
            msg = f"{part} has {loaded[part].shape[0]} rows, its labels {one_hot.shape}"
            raise ValueError(msg)
    require(np.array_equal(y, ally[: len(y)]), "y is not the first rows of ally")
    labels = np.full(num_nodes, -1, np.int64)
    for ids, rows in ((np.arange(len(ally)), ally), (loaded["test.index"], ty)):
        # The argmax of a row of zeros is class 0.
        labels[ids] = np.where(rows.any(axis=1), rows.argmax(axis=1), -1)
    return labels


def _unpickle_file(file: File) -> Any:
    """Evaluate a pickle, whose strings take several times the memory of the file."""
    file.reserve(4 * file.size)
    return _unpickle.load(file.read(), lambda: file.reserve(PICKLE_BYTES))


def _one_hot(file: File) -> Int[np.ndarray, "rows c"]:
    rows = _unpickle.dense(_unpickle_file(file))
    if rows.ndim != 2 or rows.dtype.kind not in "iu" or not rows.shape[1]:
        msg = f"labels of shape {rows.shape} and dtype {rows.dtype} are not one-hot"
        raise ValueError(msg)
    if not np.isin(rows, (0, 1)).all() or (rows.sum(axis=1) > 1).any():
        msg = "a row of the labels is not one-hot"
        raise ValueError(msg)
    return rows.astype(np.int64)


def _matrix(file: File) -> scipy.sparse.csr_array:
    matrix = _unpickle_file(file)
    state = matrix.state if isinstance(matrix, _unpickle.Part) else None
    if not isinstance(state, dict) or matrix.kind != "matrix":
        msg = "it holds no sparse matrix"
        raise TypeError(msg)
    shape: Any = state.get("_shape")
    if not _unpickle.is_shape(shape, (2,)):
        msg = "the shape of the sparse matrix is not two sizes"
        raise ValueError(msg)
    data, indices, indptr = (
        _unpickle.dense(state.get(key)) for key in ("data", "indices", "indptr")
    )
    if not (
        data.ndim == indices.ndim == indptr.ndim == 1
        and indices.dtype.kind == indptr.dtype.kind == "i"
    ):
        msg = f"the parts of the sparse matrix of shape {shape} do not fit together"
        raise ValueError(msg)
    return csr.build(data, indices, indptr, shape, max_columns=file.size)


def _adjacency_lists(file: File) -> Int[np.ndarray, "e 2"]:
    graph = _unpickle_file(file)
    if not isinstance(graph, _unpickle.Graph) or not all(
        type(neighbors) is list for neighbors in graph.values()
    ):
        msg = "it holds no dictionary of lists"
        raise ValueError(msg)
    degrees = [len(neighbors) for neighbors in graph.values()]
    # A list may be stored once and referred to many times; a valid file has at least
    # a byte per entry.
    if sum(degrees) > file.size:
        msg = f"{sum(degrees)} adjacency entries in {file.size} bytes"
        raise ValueError(msg)
    receivers = list(itertools.chain.from_iterable(graph.values()))
    if any(type(node) is not int for node in itertools.chain(graph, receivers)):
        msg = "a node of the graph is not an integer"
        raise ValueError(msg)
    senders = np.repeat(np.fromiter(graph, np.int64, len(graph)), degrees)
    return np.stack([senders, np.array(receivers, np.int64)], axis=1)


def _test_index(file: File) -> Int[np.ndarray, " m"]:
    return text_tables.table(file, 1)[:, 0]


_PARSERS = {
    "graph": _adjacency_lists,
    "test.index": _test_index,
    **dict.fromkeys(("x", "tx", "allx"), _matrix),
}
