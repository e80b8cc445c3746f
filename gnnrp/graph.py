"""Edges to a cleaned, normalized adjacency, on the host, once.

The paper's A is ``D^-1/2 (W + I) D^-1/2``: W binary, symmetrized, without duplicates and
without its own self-loops, D the degree of W + I. Everything else is asked for by name.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.experimental import sparse

from gnnrp import _checks
from gnnrp.spmm import to_scipy

if TYPE_CHECKING:
    import jraph

NORMALIZATIONS = ("symmetric", "row", "column", "none")
_COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}

EdgesLike: TypeAlias = Any
"""Edge index (2, e), scipy sparse matrix, networkx graph or ``jraph.GraphsTuple``."""


class _Entries(NamedTuple):
    """Directed entries as given: W[receivers, senders] = weights (None: all one)."""

    receivers: np.ndarray
    senders: np.ndarray
    weights: np.ndarray | None
    num_nodes: int


def normalized_adjacency(
    edges: EdgesLike,
    num_nodes: int | None = None,
    *,
    weights: Any = None,
    directed: bool = False,
    duplicates: str | None = None,
    signed: bool = False,
    normalization: str = "symmetric",
    self_loops: float = 1.0,
) -> sparse.BCOO:
    """Clean the edges and return the normalized adjacency A.

    Args:
        edges: see ``raw_adjacency``, as are ``num_nodes``, ``weights``, ``directed``,
            ``duplicates`` and ``signed``.
        num_nodes: n.
        weights: of the edges.
        directed: keep the directions.
        duplicates: how weights of repeated edges combine.
        signed: allow negative weights; D is then the sum of their absolute values.
        normalization: see ``normalize``.
        self_loops: see ``normalize``.

    Returns:
        A in float32, or float64 where JAX has it enabled; entries sorted and unique.

    Source: Section 2 and Algorithm 1 (App. D.3). D counts the added self-loop.

    Example:
        >>> import numpy as np
        >>> normalized_adjacency(np.array([[0, 0], [1, 0]])).todense()
        Array([[0.5, 0.5],
               [0.5, 0.5]], dtype=float32)
    """
    raw = raw_adjacency(
        edges,
        num_nodes,
        weights=weights,
        directed=directed,
        duplicates=duplicates,
        signed=signed,
    )
    return to_bcoo(normalize(raw, normalization=normalization, self_loops=self_loops))


def raw_adjacency(
    edges: EdgesLike,
    num_nodes: int | None = None,
    *,
    weights: Any = None,
    directed: bool = False,
    duplicates: str | None = None,
    signed: bool = False,
    keep_loops: bool = False,
) -> scipy.sparse.csr_array:
    """Clean the edges: no duplicates, both directions, no self-loops.

    Args:
        edges: an edge index of shape (2, e), senders first; or a scipy sparse matrix W,
            a networkx graph or a ``jraph.GraphsTuple``. An edge from j to i is W_ij: the
            sender stands in the column, so that W V sums over the senders.
        num_nodes: n, if nodes without edges come after the last one with an edge.
        weights: one number an edge; or the name of a networkx edge attribute, or
            "edges" for the edge values of a ``GraphsTuple``. If left out, the values of
            a scipy matrix and the networkx attribute "weight" count, else all are 1.
        directed: keep the directions; else an edge stored once counts for both.
        duplicates: how the weights of an edge that is stored more than once combine
            ("sum", "max", "min"), in whichever direction it is stored unless
            ``directed``. If left out, the two directions of an edge may both be stored,
            with equal weights, and anything more is refused. Unweighted duplicates
            are one edge.
        signed: allow negative weights.
        keep_loops: keep the edges from a node to itself.

    Returns:
        W, n x n, float64, indices sorted. Edges of weight zero are left out.

    Raises:
        ValueError: ids out of range, weights that are negative, not finite, of another
            number than the edges or combined under no name.
        TypeError: edges of an unknown kind.
    """
    if duplicates is not None:
        _checks.one_of("duplicates", duplicates, _COMBINE)
    given = _entries(edges, num_nodes, weights)
    _check_entries(given, signed=signed)
    kept = np.ones(len(given.senders), bool)
    if not keep_loops:
        kept &= given.senders != given.receivers
    if given.weights is not None:
        kept &= given.weights != 0
    receivers, senders = given.receivers[kept], given.senders[kept]
    # One int64 key an edge; ids are below 2^31, so it cannot overflow.
    low, high = receivers, senders
    if not directed:
        low, high = np.minimum(receivers, senders), np.maximum(receivers, senders)
    keys = low * given.num_nodes + high
    if given.weights is None:
        # Sorting and comparing is 40 times faster than np.unique on large graphs.
        keys = np.sort(keys)
        keys, values = keys[np.diff(keys, prepend=-1) > 0], None
    else:
        forward = receivers == low
        keys, values = _combine(keys, given.weights[kept], forward, given, duplicates)
    low, high = np.divmod(keys, given.num_nodes)
    if values is None:
        values = np.ones(len(keys))
    if not directed:
        both = low != high  # a kept loop has no other direction
        low, high = (np.r_[low, high[both]], np.r_[high, low[both]])
        values = np.r_[values, values[both]]
    shape = (given.num_nodes, given.num_nodes)
    csr = scipy.sparse.coo_array((values, (low, high)), shape=shape).tocsr()
    csr.sort_indices()
    return csr


def normalize(
    raw_adjacency: scipy.sparse.csr_array,
    *,
    normalization: str = "symmetric",
    self_loops: float = 1.0,
) -> scipy.sparse.csr_array:
    """Add self-loops and scale by the degrees D, the sums of |W + loops|.

    Args:
        raw_adjacency: W.
        normalization: "symmetric" D^-1/2 (W + I) D^-1/2 (with row sums on the left and
            column sums on the right if W is directed), "row" D^-1 (W + I), "column"
            (W + I) D^-1, or "none".
        self_loops: the weight of the loop added to every node; 0 for none. A node
            without any edge then has degree 0 and a zero row: 1 / 0 counts as 0.

    Raises:
        ValueError: unknown normalization, negative or infinite ``self_loops``.

    Source: Section 2 (the paper's A); the others are common practice.
    """
    _checks.one_of("normalization", normalization, NORMALIZATIONS)
    _checks.inside("self_loops", self_loops, 0, np.finfo(np.float64).max)
    num_nodes = raw_adjacency.shape[0]
    with_loops = raw_adjacency.astype(np.float64)
    if self_loops:
        loops = scipy.sparse.eye_array(num_nodes, format="csr") * self_loops
        with_loops = scipy.sparse.csr_array(with_loops + loops)
    degrees = abs(with_loops)
    row = np.asarray(degrees.sum(axis=1)).ravel()
    column = np.asarray(degrees.sum(axis=0)).ravel()
    left, right = {
        "symmetric": (_inverse(np.sqrt(row)), _inverse(np.sqrt(column))),
        "row": (_inverse(row), np.ones(num_nodes)),
        "column": (np.ones(num_nodes), _inverse(column)),
        "none": (np.ones(num_nodes), np.ones(num_nodes)),
    }[normalization]
    coo = with_loops.tocoo()
    # Multiplied in this order, a symmetric W stays symmetric to the last bit.
    coo.data = coo.data * (left[coo.row] * right[coo.col])
    normalized = coo.tocsr()
    normalized.sort_indices()
    return normalized


def to_bcoo(matrix: scipy.sparse.csr_array) -> sparse.BCOO:
    """Return the matrix as BCOO, entries sorted and unique."""
    _checks.int32_indexable(max(matrix.shape), matrix.nnz)
    coo = matrix.tocoo()
    indices = np.stack([coo.row, coo.col], axis=1).astype(np.int32)
    return sparse.BCOO(
        (jnp.asarray(coo.data), jnp.asarray(indices)),
        shape=matrix.shape,
        indices_sorted=True,
        unique_indices=True,
    )


def to_jraph(adjacency: Any, nodes: Any = None) -> "jraph.GraphsTuple":
    """Return an adjacency, BCOO or scipy, as one graph whose edge values are its entries.

    Args:
        adjacency: A_ij becomes an edge from sender j to receiver i.
        nodes: node features to carry along.
    """
    import jraph  # noqa: PLC0415 - only those who use it pay for the import

    coo = to_scipy(adjacency).tocoo()
    return jraph.GraphsTuple(
        nodes=nodes,
        edges=jnp.asarray(coo.data),
        receivers=jnp.asarray(coo.row, dtype=jnp.int32),
        senders=jnp.asarray(coo.col, dtype=jnp.int32),
        n_node=jnp.array([coo.shape[0]]),
        n_edge=jnp.array([coo.nnz]),
        globals=None,
    )


def _inverse(degrees: np.ndarray) -> np.ndarray:
    return np.divide(1.0, degrees, out=np.zeros_like(degrees), where=degrees > 0)


def _entries(edges: EdgesLike, num_nodes: int | None, weights: Any) -> _Entries:
    """Tell the kinds of input apart by what they have, so that none must be installed."""
    if scipy.sparse.issparse(edges):
        return _from_scipy(edges, num_nodes, weights)
    if hasattr(edges, "senders") and hasattr(edges, "receivers"):
        values = edges.edges if isinstance(weights, str) else weights
        total = int(np.sum(edges.n_node)) if num_nodes is None else num_nodes
        pair = np.stack([np.asarray(edges.senders), np.asarray(edges.receivers)])
        return _from_index(pair, total, values)
    if hasattr(edges, "adj") and hasattr(edges, "is_directed"):
        return _from_networkx(edges, num_nodes, weights)
    if isinstance(edges, (list, tuple)) and edges and isinstance(edges[0], tuple):
        msg = (
            "edges is a list of pairs; pass an array of shape (2, e), senders first, "
            "such as np.array(edges).T"
        )
        raise TypeError(msg)
    return _from_index(edges, num_nodes, weights)


def _from_index(edges: Any, num_nodes: int | None, weights: Any) -> _Entries:
    index = np.asarray(edges)
    if index.size == 0:
        index = np.zeros((2, 0), np.int64)
    if index.ndim != 2 or index.shape[0] != 2:
        hint = "; pass edges.T" if index.ndim == 2 and index.shape[1] == 2 else ""
        msg = f"edges must have shape (2, e), senders first, got {index.shape}{hint}"
        raise ValueError(msg)
    if not np.issubdtype(index.dtype, np.integer):
        msg = f"edges must hold integer node ids, got {index.dtype}"
        raise TypeError(msg)
    if num_nodes is None:
        num_nodes = int(index.max(initial=-1)) + 1
    values = None if weights is None else np.asarray(weights, np.float64)
    if values is not None and values.shape == (index.shape[1], 1):
        values = values[:, 0]
    return _Entries(
        index[1].astype(np.int64), index[0].astype(np.int64), values, int(num_nodes)
    )


def _from_scipy(matrix: Any, num_nodes: int | None, weights: Any) -> _Entries:
    coo = scipy.sparse.coo_array(matrix)
    if coo.shape[0] != coo.shape[1] or num_nodes not in {None, coo.shape[0]}:
        msg = f"the sparse matrix must be n x n, got {coo.shape} for n = {num_nodes}"
        raise ValueError(msg)
    if weights is not None:
        msg = "a sparse matrix carries its own weights; leave weights out"
        raise ValueError(msg)
    values = coo.data.astype(np.float64)
    binary = coo.data.dtype == np.bool_ or np.all(values == 1)
    index = np.stack([coo.col, coo.row]).astype(np.int64)
    return _from_index(index, coo.shape[0], None if binary else values)


def _from_networkx(graph: Any, num_nodes: int | None, weights: Any) -> _Entries:
    position = {node: i for i, node in enumerate(graph.nodes)}
    if num_nodes not in {None, len(position)}:
        msg = f"the graph has {len(position)} nodes, got num_nodes = {num_nodes}"
        raise ValueError(msg)
    if weights is not None and not isinstance(weights, str):
        msg = "weights of a networkx graph are named by an edge attribute"
        raise TypeError(msg)
    triples = list(graph.edges(data=weights or "weight"))
    index = np.array([[position[u], position[v]] for u, v, _ in triples], np.int64)
    values = None
    if weights is not None or any(w is not None for *_, w in triples):
        # Without the attribute an edge weighs 1, as networkx itself has it.
        values = np.array([1.0 if w is None else w for *_, w in triples], np.float64)
    return _from_index(index.reshape(-1, 2).T, len(position), values)


def _check_entries(given: _Entries, *, signed: bool) -> None:
    _checks.at_least("num_nodes", given.num_nodes, 0)
    _checks.int32_indexable(given.num_nodes, len(given.senders))
    for ids in (given.senders, given.receivers):
        outside = (ids < 0) | (ids >= given.num_nodes)
        if outside.any():
            where = int(np.argmax(outside))
            msg = (
                f"edge {where} names node {ids[where]}, but there are {given.num_nodes} "
                f"nodes, 0 to {given.num_nodes - 1}"
            )
            raise ValueError(msg)
    if given.weights is None:
        return
    _checks.shape("weights", given.weights, (len(given.senders),))
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


def _combine(
    keys: np.ndarray,
    weights: np.ndarray,
    forward: np.ndarray,
    given: _Entries,
    duplicates: str | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct keys and one weight for each."""
    order = np.argsort(keys, kind="stable")
    keys, weights, forward = keys[order], weights[order], forward[order]
    unique, starts = np.unique(keys, return_index=True)
    if len(unique) == len(keys):
        return unique, weights
    if duplicates is not None:
        return unique, _COMBINE[duplicates].reduceat(weights, starts)
    counts = np.add.reduceat(forward.astype(np.int64), starts)
    sizes = np.diff(np.r_[starts, len(keys)])
    low, high = (
        np.minimum.reduceat(weights, starts),
        np.maximum.reduceat(weights, starts),
    )
    ambiguous = (counts > 1) | (sizes - counts > 1) | (low != high)
    if ambiguous.any():
        where = int(np.argmax(ambiguous))
        i, j = divmod(int(unique[where]), given.num_nodes)
        msg = (
            f"the edge between {i} and {j} is stored {sizes[where]} times, with weights "
            f"from {low[where]} to {high[where]}; say how they combine: duplicates="
            '"sum", "max" or "min"'
        )
        raise ValueError(msg)
    return unique, low
