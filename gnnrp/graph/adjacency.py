"""Edges to a cleaned, normalized adjacency, on the host, once.

The paper's A is ``D^-1/2 (W + I) D^-1/2``: W binary, symmetrized, without duplicates
and without its own self-loops, D the degree of W + I. Everything else is asked for by
name.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.experimental.sparse import BCOO

from gnnrp.graph import edge_lists
from gnnrp.runtime import checks
from gnnrp.sparse import to_scipy

if TYPE_CHECKING:
    import jraph

NORMALIZATIONS = ("symmetric", "row", "column", "none")
MANNERS = ("directed", "undirected")

EdgesLike: TypeAlias = Any
"""Edge index (2, e), scipy sparse matrix, networkx graph or ``jraph.GraphsTuple``."""


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
) -> BCOO:
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
        >>> normalized_adjacency(np.array([[0, 0], [1, 0]])).todense().round(6).tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    raw = raw_adjacency(
        edges,
        num_nodes,
        weights=weights,
        directed=directed,
        duplicates=duplicates,
        signed=signed,
    )
    return _to_bcoo(normalize(raw, normalization=normalization, self_loops=self_loops))


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
            a networkx graph or a ``jraph.GraphsTuple``. An edge from j to i is W_ij:
            the sender stands in the column, so that W V sums over the senders.
        num_nodes: n, if nodes without edges come after the last one with an edge.
        weights: one number an edge; or the name of a networkx edge attribute, or
            "edges" for the edge values of a ``GraphsTuple``. If left out, the values of
            a scipy matrix and the networkx attribute "weight" count, else all are 1; a
            warning says if a ``GraphsTuple`` has one number an edge.
        directed: keep the directions; else an edge stored once counts for both. An
            undirected networkx graph has both in any case.
        duplicates: how the weights of an edge that is stored more than once combine
            ("sum", "max", "min"), in whichever direction it is stored unless
            ``directed``. If left out, the two directions of an edge may both be stored,
            with weights that are equal up to rounding and then averaged, and anything
            more is refused. Unweighted duplicates are one edge. Equal indices of a
            scipy matrix are always summed, which is what they mean there.
        signed: allow negative weights.
        keep_loops: keep the edges from a node to itself.

    Returns:
        W, n x n, float64, indices sorted. Edges of weight zero are left out.

    Raises:
        ValueError: ids out of range; weights that are negative, not finite, masked, of
            another number than the edges or combined under no name.
        TypeError: edges of an unknown type.
    """
    if duplicates is not None:
        checks.one_of("duplicates", duplicates, edge_lists.COMBINE)
    given = edge_lists.read(edges, num_nodes, weights)
    edge_lists.check(given, signed=signed)
    directed = directed and not given.undirected
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
        keys, values = edge_lists.combine(
            keys, given.weights[kept], forward, given, duplicates
        )
        keys, values = keys[values != 0], values[values != 0]  # a sum may cancel
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
        ValueError: unknown normalization, negative or infinite ``self_loops``, or W
            not square or not finite.
        TypeError: W is not sparse, or of complex numbers.

    Source: Section 2 (the paper's A); the others are common practice.
    """
    checks.one_of("normalization", normalization, NORMALIZATIONS)
    checks.inside("self_loops", self_loops, 0, np.finfo(np.float64).max)
    with_loops = to_scipy(raw_adjacency).astype(np.float64, copy=False)
    checks.square("W", with_loops)
    if not np.isfinite(with_loops.data).all():
        msg = "W must be finite, and holds NaN or infinity; drop or mend these entries"
        raise ValueError(msg)
    num_nodes = with_loops.shape[0]
    if self_loops:
        loops = scipy.sparse.eye_array(num_nodes, format="csr") * self_loops
        with_loops = scipy.sparse.csr_array(with_loops + loops)
    degrees = abs(with_loops)
    row = np.asarray(degrees.sum(axis=1)).ravel()
    column = np.asarray(degrees.sum(axis=0)).ravel()
    if (with_loops != with_loops.T).nnz == 0:
        column = row  # the same numbers, but added in another order
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
    normalized.eliminate_zeros()
    normalized.sort_indices()
    return normalized


def thinned(
    edges: EdgesLike,
    num_nodes: int | None = None,
    *,
    drop: float,
    seed: int = 0,
    manner: str = "undirected",
    weights: Any = None,
    duplicates: str | None = None,
    signed: bool = False,
) -> scipy.sparse.csr_array:
    """Drop edges at random and return what is left of W, cleaned and symmetric.

    With one seed, a larger share drops what a smaller one drops, and more.

    Args:
        edges: see ``raw_adjacency``.
        num_nodes: n.
        drop: p, the share that goes, in [0, 1].
        seed: of numpy's default generator.
        manner: "undirected" keeps an edge with probability 1 - p. "directed", as the
            paper's figures do, drops directions, and keeps the edge if one of them is
            left: 1 - p^2 of the edges.
        weights: see ``raw_adjacency``, as are ``duplicates`` and ``signed``.
        duplicates: how weights of repeated edges combine.
        signed: allow negative weights.

    Raises:
        ValueError: p out of range, unknown manner; see also ``raw_adjacency``.

    Source: App. D.2, where a graph is coarsened "until there is no edge left".
    """
    checks.inside("drop", drop, 0, 1)
    checks.one_of("manner", manner, MANNERS)
    seed = checks.count("seed", seed, 0)
    w = raw_adjacency(
        edges, num_nodes, weights=weights, duplicates=duplicates, signed=signed
    )
    upper = scipy.sparse.triu(w, format="coo")
    luck = np.random.default_rng(seed).random((2, upper.nnz))
    least = luck.max(axis=0) if manner == "directed" else luck[0]
    kept = least >= drop
    place = upper.row[kept], upper.col[kept]
    half = scipy.sparse.coo_array((upper.data[kept], place), shape=upper.shape)
    both = scipy.sparse.csr_array(half + half.T)
    both.sort_indices()
    return both


def to_bcoo(matrix: scipy.sparse.csr_array) -> BCOO:
    """Return the matrix as BCOO, entries sorted and unique.

    Raises:
        ValueError: more rows or entries than int32 addresses.
        TypeError: not sparse, or of complex numbers.
    """
    return _to_bcoo(to_scipy(matrix))


def _to_bcoo(matrix: scipy.sparse.csr_array) -> BCOO:
    """Return the matrix, whose entries are sorted and unique, as BCOO.

    Raises:
        ValueError: more rows or entries than int32 addresses.
    """
    checks.int32_indexable(max(matrix.shape[0], matrix.shape[1]), matrix.nnz)
    coo = matrix.tocoo()
    indices = np.stack([coo.row, coo.col], axis=1).astype(np.int32)
    return BCOO(
        (jnp.asarray(coo.data), jnp.asarray(indices)),
        shape=(matrix.shape[0], matrix.shape[1]),
        indices_sorted=True,
        unique_indices=True,
    )


def to_jraph(adjacency: Any, nodes: Any = None) -> "jraph.GraphsTuple":
    """Return an adjacency, BCOO or scipy, as one graph; edge values are its entries.

    Args:
        adjacency: A_ij, unless it is zero, becomes an edge from sender j to receiver i.
        nodes: node features to carry along, (n, d).

    Raises:
        ValueError: another number of rows of features.
        TypeError: an adjacency that is not sparse.
    """
    import jraph

    csr = to_scipy(adjacency)
    csr.eliminate_zeros()
    coo = csr.tocoo()
    if nodes is not None:
        checks.rows("nodes", nodes, coo.shape[0])
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
