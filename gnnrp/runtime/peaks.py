"""What each method holds at its peak, in bytes, beside what it is given.

A formula counts the arrays of the stage that holds most, and is held against measured
peaks, on CPU, in ``tests/runtime/test_peaks.py``. Sizes alone go in, so that it is
known before anything is allocated. A similarity's own working memory is that of
sparse products.
"""

_RUNTIME = 2**25  # what is compiled, and what the allocator keeps
_WIDE = 8  # bytes of what the host holds in float64


def adjacency(num_nodes: int, num_edges: int) -> int:
    """Return the peak of cleaning and normalizing stored edges, each in one direction.

    It exceeds that of the layout for products, with the result held.
    """
    return 170 * num_edges + 130 * num_nodes


def _whole(num_bytes: float) -> int:
    return int(num_bytes) + _RUNTIME
