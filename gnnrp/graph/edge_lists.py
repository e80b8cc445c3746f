"""Edges of every accepted type as one list of entries, checked and combined."""

import math
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from gnnrp.runtime import checks
from gnnrp.sparse import to_scipy

COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}

_ROUNDINGS = 4  # most roundings by which the weights of two directions differ


class Entries(NamedTuple):
    """Entries as given: W[receivers, senders] = weights (None: all one)."""

    receivers: np.ndarray
    senders: np.ndarray
    weights: np.ndarray | None
    num_nodes: int
    undirected: bool = False  # each edge is listed once and has both directions
    tolerance: float = 0.0  # relative difference of weights that is rounding


def read(edges: Any, num_nodes: int | None, weights: Any) -> Entries:
    """Read edges of any accepted type; networkx and jraph need not be installed.

    Raises:
        ValueError: a shape that does not fit, or masked entries.
        TypeError: edges or weights of an unknown type.
    """
    if num_nodes is not None:
        # Too many are refused further down, with a remedy.
        num_nodes = checks.count("num_nodes", num_nodes, 0, sys.maxsize)
    if scipy.sparse.issparse(edges):
        return _from_scipy(edges, num_nodes, weights)
    if hasattr(edges, "senders") and hasattr(edges, "receivers"):
        values = weights
        if isinstance(weights, str):
            checks.one_of("weights", weights, ("edges",))
            values = edges.edges
        elif weights is None:
            remedy, num_edges = 'pass weights="edges" to use it', len(edges.senders)
            warn_of_unused("GraphsTuple.edges", edges.edges, num_edges, remedy)
        total = int(np.sum(edges.n_node)) if num_nodes is None else num_nodes
        ends = (edges.senders, edges.receivers)
        for name, part in zip(("senders", "receivers"), ends, strict=True):
            checks.plain(name, part)
        return _from_index(np.stack([*map(checks.as_array, ends)]), total, values)
    if hasattr(edges, "adj") and hasattr(edges, "is_directed"):
        return _from_networkx(edges, num_nodes, weights)
    if isinstance(edges, (list, tuple)) and edges and isinstance(edges[0], tuple):
        msg = (
            "edges is a list of pairs; pass an array of shape (2, e), senders first, "
            "such as np.array(edges).T"
        )
        raise TypeError(msg)
    return _from_index(edges, num_nodes, weights)


def warn_of_unused(name: str, values: Any, num_edges: int, remedy: str) -> bool:
    """Warn of values of a graph object that look like weights, and return whether.

    Args:
        name: of the values.
        values: what the object has under this name, of any type.
        num_edges: e. Numbers of shape (e,) or (e, 1) count, unless all are 1.
        remedy: what makes them count.
    """
    if values is None or np.shape(values) not in {(num_edges,), (num_edges, 1)}:
        return False
    found = checks.as_array(values)
    if found.dtype.kind not in "iufV" or (found == 1).all():
        return False
    msg = f"{name} has a number for each edge that is not used as a weight; {remedy}"
    warnings.warn(msg, UserWarning, stacklevel=4)
    return True


def _from_index(edges: Any, num_nodes: int | None, weights: Any) -> Entries:
    checks.plain("edges", edges)
    try:
        index = checks.as_array(edges)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        index = np.array(None)  # rows of different lengths, or an unknown object
    if index.dtype == object or (index.ndim == 0 and not hasattr(edges, "shape")):
        msg = (
            "edges must be an edge index of shape (2, e), a scipy sparse matrix, a "
            f"networkx graph or a jraph.GraphsTuple, got {type(edges).__name__}"
        )
        raise TypeError(msg)
    if index.size == 0:
        index = np.zeros((2, 0), np.int64)
    if index.ndim != 2 or index.shape[0] != 2:
        hint = "; pass edges.T" if index.ndim == 2 and index.shape[1] == 2 else ""
        msg = f"edges must have shape (2, e), senders first, got {index.shape}{hint}"
        raise ValueError(msg)
    if not np.issubdtype(index.dtype, np.integer):
        msg = f"edges must hold integer node ids, got {index.dtype}"
        raise TypeError(msg)
    index = index.astype(np.int64)  # of unsigned ones too, which the next line needs
    if num_nodes is None:
        num_nodes = int(index.max(initial=-1)) + 1
    values, tolerance = None, 0.0
    if weights is not None:
        values = checks.reals("weights", weights)
        tolerance = _tolerance(values.dtype)
        values = values.astype(np.float64)
        values = values[:, 0] if values.shape == (index.shape[1], 1) else values
    return Entries(index[1], index[0], values, int(num_nodes), tolerance=tolerance)


def _tolerance(dtype: np.dtype) -> float:
    """Return the relative difference of two weights that rounding explains.

    Half precision counts as single: a few of its steps are several percent.
    """
    if dtype.kind in "biu":
        return 0.0
    double = dtype.kind == "f" and dtype.itemsize >= 8
    return _ROUNDINGS * float(np.finfo(np.float64 if double else np.float32).eps)


def _from_scipy(matrix: Any, num_nodes: int | None, weights: Any) -> Entries:
    if matrix.shape != 2 * matrix.shape[:1] or num_nodes not in {None, matrix.shape[0]}:
        msg = f"the sparse matrix must be n x n, got {matrix.shape} for n = {num_nodes}"
        raise ValueError(msg)
    if weights is not None:
        msg = "a sparse matrix carries its own weights; leave weights out"
        raise ValueError(msg)
    checks.reals("the sparse matrix", matrix.dtype.type())
    # Before row pointers of all nodes are allocated.
    checks.int32_indexable(matrix.shape[0], matrix.nnz)
    coo = to_scipy(matrix).tocoo()
    coo.eliminate_zeros()
    values = None if np.all(coo.data == 1) else coo.data
    index = np.stack([coo.col, coo.row]).astype(np.int64)
    return _from_index(index, coo.shape[0], values)


def _from_networkx(graph: Any, num_nodes: int | None, weights: Any) -> Entries:
    position = {node: i for i, node in enumerate(graph.nodes)}
    if num_nodes not in {None, len(position)}:
        msg = f"the graph has {len(position)} nodes, got num_nodes = {num_nodes}"
        raise ValueError(msg)
    if weights is not None and not isinstance(weights, str):
        msg = "weights of a networkx graph are named by an edge attribute"
        raise TypeError(msg)
    triples = list(graph.edges(data=weights or "weight"))
    if weights is not None and triples and all(w is None for *_, w in triples):
        own = sorted({
            str(name) for *_, data in graph.edges(data=True) for name in data
        })
        msg = (
            f"weights must name an edge attribute, got {weights!r}; the edges have "
            f"{', '.join(own) or 'none'}"
        )
        raise ValueError(msg)
    index = np.array([[position[u], position[v]] for u, v, _ in triples], np.int64)
    values = None
    if weights is not None or any(w is not None for *_, w in triples):
        # Without the attribute an edge weighs 1, as networkx itself has it.
        found = [1.0 if w is None else w for *_, w in triples]
        name = f"the edge attribute {weights or 'weight'!r}"
        values = checks.reals(name, found)
    entries = _from_index(index.reshape(-1, 2).T, len(position), values)
    return entries._replace(undirected=not graph.is_directed())


def check(given: Entries, *, signed: bool) -> None:
    """Refuse entries that are not edges between the nodes.

    Raises:
        ValueError: node ids out of range; weights that are not finite, or negative
            where ``signed`` is False.
    """
    checks.at_least("num_nodes", given.num_nodes, 0)
    checks.int32_indexable(given.num_nodes, len(given.senders))
    for ids in (given.senders, given.receivers):
        outside = (ids < 0) | (ids >= given.num_nodes)
        if outside.any():
            where = int(np.argmax(outside))
            remedy = "ids begin at 0"
            if ids[where] > 0:
                remedy = "pass a larger num_nodes, or ids that begin at 0"
            msg = (
                f"edge {where} names node {ids[where]}, but there are "
                f"{given.num_nodes} nodes, 0 to {given.num_nodes - 1}; {remedy}"
            )
            raise ValueError(msg)
    if given.weights is None:
        return
    checks.shape("weights", given.weights, (len(given.senders),))
    bad = ~np.isfinite(given.weights)
    if not signed:
        bad |= given.weights < 0
    if bad.any():
        where = int(np.argmax(bad))
        hint = "; pass signed=True" if math.isfinite(given.weights[where]) else ""
        msg = (
            f"edge {where} ({given.senders[where]} -> {given.receivers[where]}) has "
            f"weight {given.weights[where]}; weights must be finite and not negative"
            f"{hint}"
        )
        raise ValueError(msg)
    with np.errstate(over="ignore"):
        total = float(np.sum(np.abs(given.weights)))
    if not math.isfinite(4 * total):  # both directions, added to a self-loop
        largest = float(np.max(np.abs(given.weights)))
        msg = (
            f"weights must have a finite sum, got a weight of {largest:.4g} beside "
            "others; scale them down"
        )
        raise ValueError(msg)


def combine(
    keys: np.ndarray,
    weights: np.ndarray,
    forward: np.ndarray,
    given: Entries,
    duplicates: str | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct keys and one weight for each.

    Raises:
        ValueError: an edge is stored more than once, and no rule says what to do.
    """
    order = np.argsort(keys, kind="stable")
    keys, weights, forward = keys[order], weights[order], forward[order]
    unique, starts = np.unique(keys, return_index=True)
    if len(unique) == len(keys):
        return unique, weights
    if duplicates is not None:
        return unique, COMBINE[duplicates].reduceat(weights, starts)
    counts = np.add.reduceat(forward.astype(np.int64), starts)
    sizes = np.diff(np.r_[starts, len(keys)])
    low, high = (
        np.minimum.reduceat(weights, starts),
        np.maximum.reduceat(weights, starts),
    )
    # Two directions may differ by rounding: 0.3 and 0.1 + 0.2.
    near = high - low <= given.tolerance * np.maximum(abs(low), abs(high))
    ambiguous = (counts > 1) | (sizes - counts > 1) | ~near
    if ambiguous.any():
        where = int(np.argmax(ambiguous))
        i, j = divmod(int(unique[where]), given.num_nodes)
        msg = (
            f"the edge between {i} and {j} is stored {sizes[where]} times, with "
            f"weights from {low[where]} to {high[where]}; say how they combine: "
            'duplicates="sum", "max" or "min"'
        )
        raise ValueError(msg)
    return unique, np.where(low == high, low, low / 2 + high / 2)
