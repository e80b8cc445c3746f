"""What each method holds at its peak, in bytes, beside what it is given.

A formula counts the arrays of the stage that holds most, and is held against measured
peaks, on CPU, in ``tests/test_peaks.py``. Sizes alone go in, so that it is known before
anything is allocated. A similarity's own working memory is that of sparse products.
"""

from typing import NamedTuple

_RUNTIME = 2**25  # what is compiled, and what the allocator keeps
_BLOCK = 2**26  # row blocks of kernels, see ``features.build``
_UNITS = 2**29  # unit vectors of a block, see ``maps.columns``
_KEPT = 2**28  # freed arrays of up to 32 MiB, which glibc may not return
_SPAN = 2**22  # modes of a span of steps, see ``_forms``
_WIDE = 8  # bytes of what the host holds in float64


class Sizes(NamedTuple):
    """Of a run of RP."""

    num_nodes: int  # n
    num_classes: int  # c
    num_splits: int  # s
    num_train: int  # l, training nodes of the largest split
    num_judged: int  # q, validation and test nodes of a split, with their padding
    num_steps: int  # t
    num_step_sizes: int = 1
    num_entries: int = 0  # of the matrix that S begins with, where it is cut
    itemsize: int = 4


def iterated(sizes: Sizes) -> int:
    """Return what stepping holds: F, the best F, and one step's arrays, (n, s, c)."""
    columns = sizes.num_splits * sizes.num_step_sizes * sizes.num_classes
    numbers = 5.2 * sizes.num_nodes * columns + _given(sizes, columns)
    return _in_all(sizes, numbers * sizes.itemsize)


def exact(sizes: Sizes) -> int:
    """Return what exact trajectories hold, with the factorization of one split."""
    n, num_train, itemsize = sizes.num_nodes, sizes.num_train, sizes.itemsize
    square, tall = _WIDE * num_train**2, _WIDE * n * num_train
    columns = n * num_train * itemsize
    factorizing = max(
        columns + 2 * min(columns, _UNITS),  # unit vectors through S
        columns + 5 * square,  # eigenvectors of S_XX
        columns + 2 * tall + 2 * square,  # S[:, X] Q, of S in float64
    )
    looking = square + tall + sizes.num_judged * num_train * (_WIDE + itemsize)
    # To round-off of float64, more combinations of the modes are tried.
    arrays = (5, 0.6) if itemsize < _WIDE else (9, 1)
    looking += _modes(sizes.num_steps, num_train, *arrays)
    kept = 2 * _WIDE + sizes.num_step_sizes * itemsize
    predictions = sizes.num_splits * n * sizes.num_classes * kept
    given = _given(sizes, sizes.num_splits * sizes.num_classes) * itemsize
    peak = max(factorizing, looking) + predictions + given
    return _in_all(sizes, peak)


def krylov(sizes: Sizes, num_vectors: int) -> int:
    """Return what a Krylov space with room for so many vectors holds.

    Looking at it, one split's part and the nodes of all splits that are judged are cut
    out of it; before, while it grows, two thirds of it are held twice.
    """
    n, s, c = sizes.num_nodes, sizes.num_splits, sizes.num_classes
    width = c * num_vectors * sizes.itemsize  # of a node and a split
    basis = s * n * width
    looks = (n - sizes.num_train) * width + s * sizes.num_judged * width
    growing = 2 * basis // 3 if num_vectors > 32 else 0
    # The allocator keeps one span when it is freed.
    arrays = 6.5 if sizes.itemsize < _WIDE else 11
    steps = _modes(sizes.num_steps, c * num_vectors, arrays, 0)
    products = (3 + sizes.num_step_sizes) * s * n * c * sizes.itemsize
    given = _given(sizes, s * c) * sizes.itemsize
    peak = basis + max(growing, looks + steps) + products + given
    return _in_all(sizes, peak)


def label_propagation(sizes: Sizes) -> int:
    """Return what its limit holds, by conjugate gradients of all columns together."""
    columns = sizes.num_splits * sizes.num_classes
    numbers = 9 * sizes.num_nodes * columns + _given(sizes, columns)
    return _whole(numbers * sizes.itemsize)


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

    The layout of the entries is followed by a block of rows made dense, 128 at most and
    one at least; columns without an entry are left out.
    """
    row = min(num_features, num_entries) * itemsize
    block = max(row, min(block_bytes, 128 * row))
    layout = num_entries * (40 + 4 * itemsize)
    kept = min(layout, _KEPT)
    return _whole(layout + kept + 9 * num_features + 1.4 * block)


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


def _given(sizes: Sizes, columns: int) -> float:
    """Return the numbers of the targets, and of the scores that a metric is given.

    Arrays as large as the scores lie between the 2.7 of accuracy and 7.9 of ROC-AUC.
    """
    targets = 1.5 * sizes.num_nodes * sizes.num_classes
    return targets + 3.5 * sizes.num_judged * columns


def _in_all(sizes: Sizes, num_bytes: float) -> int:
    """Return the peak, with the part of the matrix that training nodes meet.

    It is held beside these bytes; cutting it out, before, takes more.
    """
    share = sizes.num_splits * sizes.num_train / max(1, sizes.num_nodes)
    entries = sizes.num_entries if share < 0.9 else 0
    kept = share * entries * (sizes.itemsize + 12)
    return _whole(max(num_bytes + kept, (9 + 42 * share) * entries))


def _modes(num_steps: int, num_modes: int, of_span: float, of_all: float) -> float:
    """Return what so many arrays of a span of steps hold, and so many of all steps."""
    all_steps = num_steps * num_modes
    return _WIDE * (of_span * min(all_steps, _SPAN) + of_all * all_steps)


def _whole(num_bytes: float) -> int:
    return int(num_bytes) + _RUNTIME
