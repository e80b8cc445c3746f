"""Generate graphs that can be partitioned well: communities with neighbors, and hubs.

Community sizes and expected degrees follow power laws. One end of each edge is drawn in
proportion to its degree. The other end is drawn likewise from the same community, from
a nearby one on a ring of communities, or from all nodes. Nodes are numbered at random,
so that their order carries no information. The shares are not fitted to a real graph.
"""

import numpy as np
import scipy.sparse
from jaxtyping import Int

from gnnrp.runtime import checks

INSIDE, NEARBY = 0.65, 0.3  # shares of the edges; the rest are drawn from all nodes
REACH = 5.0  # mean distance of a nearby community, in communities
LEAST, MOST = 300, 30_000  # nodes per community
EXPONENT = 2.5  # of both power laws
_CHUNK = 2**22  # edges drawn at once


def generate(num_nodes: int, num_edges: int, seed: int) -> scipy.sparse.csr_array:
    """Return a symmetric pattern of ones (float32) of at most 2 num_edges entries.

    Loops and repeated edges are dropped.

    Args:
        num_nodes: at least 2.
        num_edges: number of undirected edges drawn.
        seed: of the random numbers.

    Raises:
        ValueError: a size is out of range.
    """
    checks.count("num_nodes", num_nodes, 2)
    checks.count("num_edges", num_edges, 1)
    rng = np.random.default_rng(seed)
    first = starts(num_nodes, rng)
    ends = _stubs(num_nodes, num_edges, rng)
    # First stub of each community: its nodes, and so its stubs, are contiguous.
    borders = np.searchsorted(ends, first)
    number = rng.permutation(num_nodes).astype(np.int32)
    drawn = np.empty((2, num_edges), np.int32)
    for begin in range(0, num_edges, _CHUNK):
        some = slice(begin, min(begin + _CHUNK, num_edges))
        drawn[:, some] = number[_edges(ends, borders, some.stop - begin, rng)]
    del ends
    return _symmetric(drawn, num_nodes)


def starts(num_nodes: int, rng: np.random.Generator) -> Int[np.ndarray, " q"]:
    """Return the first node of each community, and the number of nodes at the end."""
    sizes = _power_law(num_nodes // LEAST + 1, rng) * LEAST
    edges = np.cumsum(np.minimum(sizes, MOST).astype(np.int64))
    return np.concatenate([[0], edges[edges < num_nodes], [num_nodes]])


def _power_law(count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw numbers x >= 1 of density x^-EXPONENT."""
    return (1 - rng.random(count)) ** (-1 / (EXPONENT - 1))


def _stubs(num_nodes: int, num_edges: int, rng: np.random.Generator) -> np.ndarray:
    """Repeat each node as often as its expected degree, in ascending order."""
    weight = np.minimum(_power_law(num_nodes, rng), num_nodes**0.5)
    ends = np.cumsum(weight * (2 * num_edges / weight.sum()))
    count = np.diff(np.round(ends).astype(np.int64), prepend=0)
    return np.repeat(np.arange(num_nodes, dtype=np.int32), np.maximum(count, 1))


def _edges(
    ends: np.ndarray, borders: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw both ends of edges, numbered so that communities are contiguous."""
    one = rng.integers(0, len(ends), count)
    home = np.searchsorted(borders, one, side="right") - 1
    kind = rng.random(count)
    away = rng.geometric(1 / REACH, count) * rng.choice([-1, 1], count)
    home += np.where((kind >= INSIDE) & (kind < INSIDE + NEARBY), away, 0)
    home %= len(borders) - 1
    low, high = borders[home], borders[home + 1]
    anywhere = kind >= INSIDE + NEARBY
    low[anywhere], high[anywhere] = 0, len(ends)
    other = low + (rng.random(count) * (high - low)).astype(np.int64)
    return np.stack([ends[one], ends[other]])


def _symmetric(drawn: np.ndarray, num_nodes: int) -> scipy.sparse.csr_array:
    drawn = drawn[:, drawn[0] != drawn[1]]
    ones = np.ones(drawn.shape[1], np.float32)
    upper = scipy.sparse.coo_array((ones, drawn), shape=(num_nodes, num_nodes)).tocsr()
    del drawn, ones
    csr = upper + upper.T
    csr.data[:] = 1
    csr.sort_indices()
    return csr
