"""What each method holds at its peak, in bytes, beside what it is given.

A formula counts the arrays of the stage that holds most, and is held against measured
peaks, on CPU, in ``tests/test_peaks.py``. Sizes alone go in, so that it is known before
anything is allocated. A similarity's own working memory is that of sparse products.
"""

_RUNTIME = 2**25  # what is compiled, and what the allocator keeps
_BLOCK = 2**26  # row blocks of kernels, see ``features.build``
_WIDE = 8  # bytes of what the host holds in float64


def adjacency(num_nodes: int, num_edges: int) -> int:
    """Return the peak of cleaning and normalizing stored edges, each in one direction.

    It exceeds that of the layout for products, with the result held.
    """
    return 170 * num_edges + 130 * num_nodes


def dense_kernel(num_nodes: int, *, itemsize: int) -> int:
    """Return what a feature kernel holds that is made whole, normalized in place."""
    return _whole(num_nodes**2 * itemsize + _BLOCK)


def dense_rows(
    num_nodes: int, num_features: int, block_bytes: int, *, itemsize: int
) -> int:
    """Return the peak of a feature kernel in row blocks, of dense features."""
    block = min(block_bytes, num_nodes**2 * itemsize)
    return _whole(2 * num_nodes * num_features * itemsize + 3 * block)


def sparse_rows(
    num_entries: int, num_features: int, block_bytes: int, *, itemsize: int
) -> int:
    """Return the peak of a feature kernel in row blocks, of sparse features.

    A single row, made dense, may exceed the block; columns without an entry are left
    out.
    """
    row = min(num_features, num_entries) * itemsize
    entries = num_entries * (40 + 4 * itemsize) + 9 * num_features
    return _whole(entries + 3 * max(block_bytes, 4 * row))


def distinct(num_nodes: int, num_features: int, num_rows: int, *, itemsize: int) -> int:
    """Return what the kernel of so many distinct rows holds, or finding them does."""
    return _whole(max(2 * num_nodes * num_features * itemsize, 16 * num_rows**2))


def fourier(
    num_nodes: int, num_columns: int, num_features: int, *, itemsize: int
) -> int:
    """Return what random features of the kernel hold: Φ, its parts, the draw."""
    draw = num_columns * num_features / 2 * (_WIDE + itemsize)
    return _whole(2.5 * num_nodes * num_features * itemsize + draw)


def nystrom(num_nodes: int, num_landmarks: int, *, itemsize: int) -> int:
    """Return what a Nyström approximation holds, three times Φ in float64, and Φ."""
    return _whole(num_nodes * num_landmarks * (3 * _WIDE + itemsize))


def gntk(num_nodes: int, num_train: int, num_targets: int = 1, *, itemsize: int) -> int:
    """Return the bytes of the GNTK of a GCN of any depth and of its evaluation.

    K and N, N centered or sent, and a product or, where the training nodes are many,
    the exact trajectories in their place; targets and the scores of kernel regression.
    """
    both = 2 * num_nodes**2 * itemsize
    asked = num_nodes * num_train * (itemsize + 2 * _WIDE) + 2 * _WIDE * num_train**2
    scores = num_nodes * num_targets * (3 * itemsize + _WIDE)
    return _whole(both + max(both, asked) + scores)


def ntk(
    num_nodes: int,
    num_features: int,
    depth: int,
    num_targets: int,
    num_grams: int,
    *,
    width: int = 0,
    num_classes: int = 0,
    itemsize: int,
) -> int:
    """Return the bytes of a look at the tangent kernel of a GCN of one to three layers.

    Args:
        num_nodes: n.
        num_features: d, columns of the inputs.
        depth: L.
        num_targets: kernels A^{2L} that are held.
        num_grams: Gram matrices of the inputs that are held.
        width: m, hidden units of a layer.
        num_classes: c.
        itemsize: bytes of a number.
    """
    working = {1: 4, 2: 5}.get(depth, 9)
    squares = (working + num_targets + num_grams) * num_nodes**2
    columns = 2 * num_features + 2 * (depth - 1) * width + 6 * num_classes
    return _whole((squares + num_nodes * columns) * itemsize)


def _whole(num_bytes: float) -> int:
    return int(num_bytes) + _RUNTIME
