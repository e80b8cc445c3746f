"""Cora, Citeseer, Pubmed in the format of Planetoid: Python 2 pickles and text."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from jaxtyping import Int

from gnnrp.datasets import _csr, _files, _unpickle, _validate, splits
from gnnrp.datasets.dataset import Dataset

PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
NUM_VAL = 500  # of the public split
FORMAT = "Planetoid"


def read(folder: Path, name: str) -> Dataset:
    """Read the eight files ``ind.NAME.*`` with the public split.

    Nodes that are missing from ``test.index`` (15 of Citeseer) keep their place and
    edges, but have zero features, label -1, and are in no mask.

    Args:
        folder: where the files are.
        name: cora, citeseer or pubmed.

    Raises:
        ValueError: a file is damaged, hostile or does not fit the others.

    Source: Yang et al. 2016; public split: the first 20 nodes a class, the 500 after
    them, the 1,000 of ``test.index``.
    """
    files = _files.contents(folder, [f"ind.{name}.{part}" for part in PARTS])
    loaded = {}
    for part, (file, content) in zip(PARTS, files.items(), strict=True):
        with _files.reading(folder / file, FORMAT):
            loaded[part] = _PARSERS.get(part, _one_hot)(content)
    with _files.reading(folder / f"ind.{name}.test.index", FORMAT):
        num_nodes = _num_nodes(loaded)
    with _files.reading(folder / f"ind.{name}.graph", FORMAT):
        edges = _validate.edges(loaded["graph"], num_nodes)
    with _files.reading(folder / f"ind.{name}.allx", FORMAT):
        features = _features(loaded, num_nodes)
    with _files.reading(folder / f"ind.{name}.ally", FORMAT):
        labels = _labels(loaded, num_nodes)
        num_train, num_known = len(loaded["y"]), len(loaded["ally"])
        split = splits.public(
            num_nodes,
            np.arange(num_train),
            np.arange(num_train, min(num_train + NUM_VAL, num_known)),
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
        files=_files.digests(files),
        folder=str(folder),
    )


def _num_nodes(loaded: dict[str, Any]) -> int:
    """Return n, the largest test id plus one.

    Raises:
        ValueError: the ids are not distinct, begin too early or leave absurd holes;
            there is no node at all.
    """
    ids, num_known = loaded["test.index"], loaded["allx"].shape[0]
    num_rows = num_known + loaded["tx"].shape[0]
    if len(ids) != loaded["tx"].shape[0] or len(np.unique(ids)) != len(ids):
        msg = f"{len(ids)} ids for {loaded['tx'].shape[0]} test rows, or repeated ids"
        raise ValueError(msg)
    if ids.size and ids.min() < num_known:
        msg = f"test id {ids.min()} belongs to one of the {num_known} rows of allx"
        raise ValueError(msg)
    num_nodes = int(ids.max(initial=num_known - 1)) + 1
    if not num_nodes:
        msg = "there is no node"
        raise ValueError(msg)
    # Missing ids are nodes of the graph without a row, so there are not more of them
    # than the graph lists nodes.
    if num_nodes > num_rows + len(np.unique(loaded["graph"])):
        msg = f"test id {num_nodes - 1} is absurd for {num_rows} feature rows"
        raise ValueError(msg)
    return num_nodes


def _features(loaded: dict[str, Any], num_nodes: int) -> scipy.sparse.csr_array:
    x, tx, allx = loaded["x"], loaded["tx"], loaded["allx"]
    if not x.shape[1] == tx.shape[1] == allx.shape[1] or x.shape[0] > allx.shape[0]:
        msg = f"x, tx, allx have shapes {x.shape}, {tx.shape}, {allx.shape}"
        raise ValueError(msg)
    if (x != allx[: x.shape[0]]).nnz:
        msg = "x is not the first rows of allx"
        raise ValueError(msg)
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
    if not np.array_equal(y, ally[: len(y)]):
        msg = "y is not the first rows of ally"
        raise ValueError(msg)
    labels = np.full(num_nodes, -1, np.int64)
    for ids, rows in ((np.arange(len(ally)), ally), (loaded["test.index"], ty)):
        # The argmax of a row of zeros would call its node class 0.
        labels[ids] = np.where(rows.any(axis=1), rows.argmax(axis=1), -1)
    return labels


def _one_hot(content: bytes) -> Int[np.ndarray, "rows c"]:
    rows = _unpickle.dense(_unpickle.load(content))
    if rows.ndim != 2 or rows.dtype.kind not in "iu" or not rows.shape[1]:
        msg = f"labels of shape {rows.shape} and dtype {rows.dtype} are not one-hot"
        raise ValueError(msg)
    if not np.isin(rows, (0, 1)).all() or (rows.sum(axis=1) > 1).any():
        msg = "a row of the labels is not one-hot"
        raise ValueError(msg)
    return rows.astype(np.int64)


def _matrix(content: bytes) -> scipy.sparse.csr_array:
    matrix = _unpickle.load(content)
    if not isinstance(matrix, _unpickle.Matrix) or not isinstance(matrix.state, dict):
        msg = "it holds no sparse matrix"
        raise TypeError(msg)
    state = matrix.state
    shape = state["_shape"]
    data, indices, indptr = (
        _unpickle.dense(state[key]) for key in ("data", "indices", "indptr")
    )
    if not (
        _unpickle.is_shape(shape, (2,))
        and data.ndim == indices.ndim == indptr.ndim == 1
        and indices.dtype.kind == indptr.dtype.kind == "i"
    ):
        msg = f"the parts of the sparse matrix of shape {shape!r} do not fit together"
        raise ValueError(msg)
    return _csr.checked(data, indices, indptr, shape, max_columns=len(content))


def _adjacency_lists(content: bytes) -> Int[np.ndarray, "e 2"]:
    graph = _unpickle.load(content)
    if not isinstance(graph, _unpickle.Graph) or not all(
        type(neighbors) is list for neighbors in graph.values()
    ):
        msg = "it holds no dictionary of lists"
        raise ValueError(msg)
    degrees = [len(neighbors) for neighbors in graph.values()]
    # One list, stored once, may be referred to many times: an honest file spends a byte
    # on every entry.
    if sum(degrees) > len(content):
        msg = f"{sum(degrees)} adjacency entries in {len(content)} bytes"
        raise ValueError(msg)
    receivers = list(itertools.chain.from_iterable(graph.values()))
    if any(type(node) is not int for node in itertools.chain(graph, receivers)):
        msg = "a node of the graph is not an integer"
        raise ValueError(msg)
    senders = np.repeat(np.fromiter(graph, np.int64, len(graph)), degrees)
    return np.stack([senders, np.array(receivers, np.int64)], axis=1)


def _test_index(content: bytes) -> Int[np.ndarray, " m"]:
    return _files.table(content, 1)[:, 0].astype(np.int64)


_PARSERS = {
    "graph": _adjacency_lists,
    "test.index": _test_index,
    **dict.fromkeys(("x", "tx", "allx"), _matrix),
}
