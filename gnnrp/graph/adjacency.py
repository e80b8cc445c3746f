"""Edges to a cleaned, normalized adjacency, on the host, once.

The paper's A is ``D^-1/2 (W + I) D^-1/2``: W binary, symmetrized, without duplicates
and without its own self-loops, D the degree of W + I. These are the defaults.
"""

from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.experimental.sparse import BCOO

from gnnrp.graph import edge_lists, formats
from gnnrp.runtime import checks
from gnnrp.sparse import to_scipy

NORMALIZATIONS = ("symmetric", "row", "column", "none")
DROP_MODES = ("directed", "undirected")

EdgesLike: TypeAlias = Any
"""Edge index, table, scipy sparse matrix, networkx graph or ``jraph.GraphsTuple``."""


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
        edges: see ``raw_adjacency``.
        num_nodes: n.
        weights: one number per edge.
        directed: keep the directions.
        duplicates: rule for the weights of repeated edges.
        signed: allow negative weights; D is then the sum of their absolute values.
        normalization: see ``normalize``.
        self_loops: weight of the self-loops, see ``normalize``.

    Returns:
        A in float32, or float64 where JAX has it enabled; entries sorted and unique.

    Source: Section 2 and Algorithm 1 (App. D.3). D counts the added self-loop.

    Example:
        >>> import numpy as np
        >>> normalized_adjacency(np.array([[0, 0], [1, 0]])).todense().round(6).tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    W = raw_adjacency(
        edges,
        num_nodes,
        weights=weights,
        directed=directed,
        duplicates=duplicates,
        signed=signed,
    )
    A: Any = normalize(W, normalization=normalization, self_loops=self_loops)
    coo = A.tocoo()
    checks.int32_indexable(max(coo.shape), coo.nnz)
    indices = np.stack([coo.row, coo.col], axis=1).astype(np.int32)
    parts = (jnp.asarray(coo.data), jnp.asarray(indices))
    return BCOO(parts, shape=coo.shape, indices_sorted=True, unique_indices=True)


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
    """Return W, the edges without duplicates and self-loops, in both directions.

    Args:
        edges: edge index of shape (2, e), senders first; or a table of pandas with two
            columns of these and optionally "weight", a scipy sparse matrix W, a
            networkx graph or a ``jraph.GraphsTuple``. An edge from j to i is W_ij, so
            that W V sums over the senders.
        num_nodes: n; the largest node id plus one by default.
        weights: one number per edge; or the name of a networkx edge attribute, or
            "edges" for the edge values of a ``GraphsTuple``. By default, the values of
            a scipy matrix and the networkx attribute or column "weight" are used, and
            all other weights are 1, with a warning if the graph has other numbers per
            edge.
        directed: keep the directions; otherwise an edge stored once counts for both.
            An undirected networkx graph always has both.
        duplicates: how to combine the weights of an edge that is stored more than once
            ("sum", "max", "min"), in either direction unless ``directed``. By default,
            both directions may be stored if their weights are equal up to rounding
            (then averaged). Unweighted duplicates are one edge; equal indices of a
            scipy matrix are summed.
        signed: allow negative weights.
        keep_loops: keep the self-loops of ``edges``.

    Returns:
        W, n x n, float64, indices sorted. Edges of weight zero are left out.

    Raises:
        ValueError: ids out of range; weights that are negative, not finite, masked, of
            another number than the edges, or repeated without a rule.
        TypeError: edges of an unknown type.
    """
    if duplicates is not None:
        checks.one_of("duplicates", duplicates, edge_lists.COMBINE)
    given = formats.edge_list(edges, num_nodes, weights)
    edge_lists.check(given, signed=signed)
    valid = np.ones(len(given.senders), bool)
    if not keep_loops:
        valid &= given.senders != given.receivers
    if given.weights is not None:
        valid &= given.weights != 0
        given = given._replace(weights=given.weights[valid])
    senders, receivers = given.senders[valid], given.receivers[valid]
    given = given._replace(senders=senders, receivers=receivers)
    directed = directed and not given.undirected
    rows, columns, values = edge_lists.unique(
        given, directed=directed, duplicates=duplicates
    )
    if not directed:
        both = rows != columns  # a self-loop has no other direction
        rows, columns = np.r_[rows, columns[both]], np.r_[columns, rows[both]]
        values = np.r_[values, values[both]]
    shape = (given.num_nodes, given.num_nodes)
    csr = scipy.sparse.coo_array((values, (rows, columns)), shape=shape).tocsr()
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
        normalization: "symmetric" D^-1/2 (W + I) D^-1/2 (row sums on the left and
            column sums on the right if W is directed), "row" D^-1 (W + I), "column"
            (W + I) D^-1, or "none".
        self_loops: weight of the self-loop of each node; 0 for none. An isolated node
            without a self-loop has degree 0 and a zero row: 1 / 0 counts as 0.

    Raises:
        ValueError: unknown normalization, negative or infinite ``self_loops``, or W
            not square or not finite.
        TypeError: W is not sparse, or complex.

    Source: Section 2 (the paper's A); the others are common practice.
    """
    checks.one_of("normalization", normalization, NORMALIZATIONS)
    checks.in_interval("self_loops", self_loops, 0, np.finfo(np.float64).max)
    W = to_scipy(raw_adjacency).astype(np.float64, copy=False)
    checks.square("W", W)
    if not np.isfinite(W.data).all():
        msg = "W must be finite, got NaN or infinity; drop or replace these entries"
        raise ValueError(msg)
    if self_loops:
        loops = scipy.sparse.eye_array(W.shape[0], format="csr") * self_loops
        W = scipy.sparse.csr_array(W + loops)
    row, column = (np.asarray(abs(W).sum(axis=i)).ravel() for i in (1, 0))
    if (W != W.T).nnz == 0:
        column = row  # the same numbers, but added in another order
    ones = np.ones(len(row))
    left, right = {
        "symmetric": (_inverse(np.sqrt(row)), _inverse(np.sqrt(column))),
        "row": (_inverse(row), ones),
        "column": (ones, _inverse(column)),
        "none": (ones, ones),
    }[normalization]
    coo = W.tocoo()
    # Multiplied in this order, a symmetric W stays symmetric to the last bit.
    coo.data = coo.data * (left[coo.row] * right[coo.col])
    normalized = coo.tocsr()
    normalized.eliminate_zeros()
    normalized.sort_indices()
    return normalized


def _inverse(degrees: np.ndarray) -> np.ndarray:
    return np.divide(1.0, degrees, out=np.zeros_like(degrees), where=degrees > 0)


def drop_edges(
    edges: EdgesLike,
    num_nodes: int | None = None,
    *,
    drop: float,
    seed: int = 0,
    mode: str = "undirected",
    weights: Any = None,
    duplicates: str | None = None,
    signed: bool = False,
) -> scipy.sparse.csr_array:
    """Drop edges at random and return the rest of W, cleaned and symmetric.

    With the same seed, a larger share drops all edges that a smaller one drops.

    Args:
        edges: see ``raw_adjacency``.
        num_nodes: n.
        drop: p, the share to drop, in [0, 1].
        seed: of numpy's default generator.
        mode: "undirected" keeps an edge with probability 1 - p. "directed", as in the
            paper's figures, drops each direction with probability p and keeps the edge
            if one direction remains: 1 - p^2 of the edges.
        weights: see ``raw_adjacency``.
        duplicates: rule for the weights of repeated edges.
        signed: allow negative weights.

    Raises:
        ValueError: p out of range, unknown mode; see also ``raw_adjacency``.

    Source: App. D.2, where a graph is coarsened "until there is no edge left".
    """
    checks.in_interval("drop", drop, 0, 1)
    checks.one_of("mode", mode, DROP_MODES)
    seed = checks.count("seed", seed, 0)
    W = raw_adjacency(
        edges, num_nodes, weights=weights, duplicates=duplicates, signed=signed
    )
    upper = scipy.sparse.triu(W, format="coo")
    draws = np.random.default_rng(seed).random((2, upper.nnz))
    remains = (draws.max(axis=0) if mode == "directed" else draws[0]) >= drop
    ends = upper.row[remains], upper.col[remains]
    half = scipy.sparse.coo_array((upper.data[remains], ends), shape=upper.shape)
    both = scipy.sparse.csr_array(half + half.T)
    both.sort_indices()
    return both


def peak_bytes(num_nodes: int, num_edges: int) -> int:
    """Return the peak of normalizing edges; it exceeds that of ``sparse.prepare``."""
    return 170 * num_edges + 130 * num_nodes
