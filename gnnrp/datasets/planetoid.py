"""Cora, Citeseer, Pubmed in the format of Planetoid: Python 2 pickles and text."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from jaxtyping import Int

from gnnrp.datasets import (
    _unpickle,
    _validate,
    catalog,
    csr,
    raw_files,
    splits,
    text_tables,
)
from gnnrp.datasets._validate import require
from gnnrp.datasets.dataset import Dataset
from gnnrp.datasets.raw_files import File

NUM_VAL = 500  # of the public split
FORMAT = "Planetoid"
PICKLE_BYTES = 1 << 24  # of the values of a pickle between two memory checks


def read(folder: Path, name: str, *, max_bytes: int | None = None) -> Dataset:
    """Read the eight files ``ind.NAME.*`` with the public split.

    Nodes missing from ``test.index`` (15 of Citeseer) keep their place and edges, but
    have zero features, label -1, and are in no mask.

    Source: Yang et al. 2016: 20 training nodes a class, the next 500 for validation.
    """
    files = raw_files.stat_all(folder, catalog.files(name, "planetoid"), max_bytes)
    loaded = {}
    for file in files.values():
        part = file.path.name.removeprefix(f"ind.{name}.")
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
    ids = loaded["test.index"]
    num_known, num_test = loaded["allx"].shape[0], loaded["tx"].shape[0]
    num_nodes = int(ids.max(initial=num_known - 1)) + 1
    valid = len(ids) == num_test == len(np.unique(ids))
    require(valid, f"{len(ids)} ids for {num_test} test rows, or repeated ids")
    least = ids.min(initial=num_nodes)
    valid = least >= num_known
    require(valid, f"test id {least} belongs to one of the {num_known} rows of allx")
    require(num_nodes > 0, "there is no node")
    # Missing ids are nodes of the graph without a row.
    num_rows = num_known + num_test
    valid = num_nodes <= num_rows + len(np.unique(loaded["graph"]))
    require(valid, f"test id {num_nodes - 1} is too large for {num_rows} feature rows")
    return num_nodes


def _features(loaded: dict[str, Any], num_nodes: int) -> scipy.sparse.csr_array:
    x, tx, allx = loaded["x"], loaded["tx"], loaded["allx"]
    valid = x.shape[1] == tx.shape[1] == allx.shape[1] and x.shape[0] <= allx.shape[0]
    require(valid, f"x, tx, allx have shapes {x.shape}, {tx.shape}, {allx.shape}")
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
        num_rows, shape = loaded[part].shape[0], loaded[part.replace("x", "y")].shape
        valid = shape == (num_rows, ally.shape[1])
        require(valid, f"{part} has {num_rows} rows, its labels {shape}")
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
    shape, dtype = rows.shape, rows.dtype
    valid = rows.ndim == 2 and dtype.kind in "iu" and shape[1]
    require(valid, f"labels of shape {shape} and dtype {dtype} are not one-hot")
    valid = np.isin(rows, (0, 1)).all() and (rows.sum(axis=1) <= 1).all()
    require(valid, "a row of the labels is not one-hot")
    return rows.astype(np.int64)


def _matrix(file: File) -> scipy.sparse.csr_array:
    matrix = _unpickle_file(file)
    is_matrix = isinstance(matrix, _unpickle.Part) and matrix.kind == "matrix"
    state: Any = matrix.state if is_matrix else None
    require(isinstance(state, dict), "it holds no sparse matrix")
    shape = state.get("_shape")
    valid = _unpickle.is_shape(shape, (2,))
    require(valid, "the shape of the sparse matrix is not two sizes")
    data, indices, indptr = (
        _unpickle.dense(state.get(key)) for key in ("data", "indices", "indptr")
    )
    return csr.build(data, indices, indptr, shape, max_columns=file.size)


def _adjacency_lists(file: File) -> Int[np.ndarray, "e 2"]:
    graph = _unpickle_file(file)
    valid = isinstance(graph, _unpickle.Graph)
    valid = valid and all(type(neighbors) is list for neighbors in graph.values())
    require(valid, "it holds no dictionary of lists")
    degrees = [len(neighbors) for neighbors in graph.values()]
    # A list may be stored once and referred to many times; a valid file has at least
    # a byte per entry.
    valid = sum(degrees) <= file.size
    require(valid, f"{sum(degrees)} adjacency entries in {file.size} bytes")
    receivers = list(itertools.chain.from_iterable(graph.values()))
    valid = all(type(node) is int for node in itertools.chain(graph, receivers))
    require(valid, "a node of the graph is not an integer")
    senders = np.repeat(np.fromiter(graph, np.int64, len(graph)), degrees)
    return np.stack([senders, np.array(receivers, np.int64)], axis=1)


def _test_index(file: File) -> Int[np.ndarray, " m"]:
    return text_tables.table(file, 1)[:, 0]


_PARSERS = {
    "graph": _adjacency_lists,
    "test.index": _test_index,
    **dict.fromkeys(("x", "tx", "allx"), _matrix),
}
