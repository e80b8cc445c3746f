"""Which nodes a block of the GNTK takes: neighborhoods of bounded size, and P there."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from jaxtyping import Int

from gnnrp import sparse

_MOST_ROWS = 512  # of a tile


class Side(NamedTuple):
    """The rows, or the columns, of a tile; from layer 2 to layer L."""

    hops: tuple[sparse.Matrix, ...]  # P from each neighborhood to the next
    nodes: tuple[Int[Any, " s"], ...]  # of the neighborhoods, padded with node 0


def sides(
    P: Any, nodes: Int[np.ndarray, " m"], depth: int, most: int
) -> Iterator[tuple[slice, Side]]:
    """Yield parts of the nodes, as many at a time as have a neighborhood that fits."""
    pattern, start = abs(P), 0  # no sum of products may vanish
    while start < len(nodes):
        some = nodes[start : start + (_MOST_ROWS if depth > 1 else most)]
        every = np.arange(len(some) + 1)
        reach: Any = scipy.sparse.csr_array(
            (np.ones(len(some), pattern.dtype), some, every),
            (len(some), pattern.shape[0]),
        )
        for _ in range(depth - 1):
            reach = reach @ pattern
        _, first = np.unique(reach.indices, return_index=True)
        owner = np.searchsorted(reach.indptr, first, side="right") - 1
        seen = np.cumsum(np.bincount(owner, minlength=len(some)))
        stop = start + max(1, int(np.searchsorted(seen, most, side="right")))
        stop = min(stop, start + len(some))
        yield slice(start, stop), _side(P, nodes[start:stop], depth)
        start = stop


def _side(P: Any, nodes: np.ndarray, depth: int) -> Side:
    """Return the neighborhoods of some nodes, from the innermost on."""
    hops, neighborhoods = [], []
    for _ in range(depth - 1):
        block: Any = P[nodes]
        inner, place = np.unique(block.indices, return_inverse=True)
        parts = (block.data, place.astype(np.int32), block.indptr)
        block = scipy.sparse.csr_array(parts, (len(nodes), len(inner)))
        shape = power_of_two(len(nodes)), power_of_two(len(inner))
        hops.append(sparse.pad_to_power_of_two(block, shape))
        neighborhoods.append(np.pad(inner, (0, shape[1] - len(inner))))
        nodes = inner
    if depth == 1:
        neighborhoods.append(np.pad(nodes, (0, power_of_two(len(nodes)) - len(nodes))))
    return Side(tuple(hops[::-1]), tuple(neighborhoods[::-1]))


def power_of_two(size: int) -> int:
    """Return the least one that is not smaller, so that few shapes are compiled."""
    return 1 << max(0, size - 1).bit_length()
