"""What each method holds at its peak, in bytes, beside what it is given.

A formula counts the arrays of the stage that holds most, and is held against measured
peaks, on CPU, in ``tests/runtime/test_peaks.py``. Sizes alone go in, so that it is
known before anything is allocated. A similarity's own working memory is that of
sparse products.
"""

from typing import NamedTuple

_RUNTIME = 2**25  # what is compiled, and what the allocator keeps
_UNITS = 2**29  # unit vectors of a block, see ``maps.columns``
_SPAN = 2**22  # modes of a span of steps, see ``_curves``
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
    steps = _modes(sizes.num_steps, c * num_vectors, 3, 4)
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
