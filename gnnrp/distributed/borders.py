"""Checks of one part of a symmetric matrix, and of its borders with other parts.

Two parts see the entries between them from two sides. A digest that both compute in the
same order is equal if and only if these entries are symmetric, so that each process can
check its own part against a table, without communication.
"""

import hashlib
from typing import NamedTuple

import numpy as np
import scipy.sparse
from jaxtyping import Float, Int

from gnnrp.distributed.matrix import Block
from gnnrp.distributed.partitioning import Round


class _Side(NamedTuple):
    """The columns that come from another part, and the own rows that go there."""

    columns: slice
    sent: Int[np.ndarray, " h"] | None  # ascending; None: all rows


def digests(
    block: Block, part: int, num_parts: int, rows: int, rounds: tuple[Round, ...] | None
) -> dict[int, str]:
    """Check a part of the normalized adjacency, and digest its borders.

    Checked are: values in [0, 1]; rows in ascending order of their columns, without
    repeated entries; zeros alone where parts are made alike; symmetry inside; columns
    that exist, and rows in ascending order in each exchange. The arrays must fit.

    Args:
        block: see ``matrix.blocks``.
        part: its number.
        num_parts: of the matrix.
        rows: of each part.
        rounds: see ``matrix.blocks``.

    Returns:
        The SHA-256 of the entries between this part and each other one.

    Raises:
        ValueError: one of these does not hold.
    """
    csr = _checked(block, rows)
    if rounds is None:
        own, sides = part * rows, _gathered(part, num_parts, rows)
    else:
        own, sides = 0, _exchanged(block, part, rows, rounds)
    inside = csr[:, own : own + rows]
    _check_symmetric(inside)
    found, left = {}, csr.nnz - inside.nnz
    for other, side in sides.items():
        between = csr[:, side.columns].tocoo()
        left -= between.nnz
        row, column = _position(between.row, side.sent, other), between.col
        if part > other:
            row, column = column, row
        found[other] = _digest(row, column, between.data)
    if left:
        msg = f"{left} entries are in columns that no part sends"
        raise ValueError(msg)
    return found


def _checked(block: Block, rows: int) -> scipy.sparse.csr_array:
    """Return the matrix without its padding.

    Raises:
        ValueError: a value that the normalized adjacency of an unweighted graph cannot
            have, columns out of order, or padding that is not zero.
    """
    data, last = block.data, block.width - 1
    if data.size and not (data.min() >= 0 and data.max() <= 1):  # NaN too
        at = int(np.argmin((data >= 0) & (data <= 1)))
        msg = f"data[{at}] must lie in [0, 1], got {data[at]}"
        raise ValueError(msg)
    start = block.pointers[-2]
    filled = np.flatnonzero(block.indices[start:] != last)
    count = int(start + filled[-1] + 1 if len(filled) else start)
    if data[count:].any():
        at = count + int(np.argmax(data[count:] != 0))
        msg = f"data[{at}] is {data[at]} in the column of padding"
        raise ValueError(msg)
    pointers = np.append(block.pointers[:-1], np.asarray(count, block.pointers.dtype))
    parts = (data[:count], block.indices[:count], pointers)
    csr = scipy.sparse.csr_array(parts, (rows, block.width))
    if not csr.has_canonical_format:
        row = np.repeat(np.arange(rows), np.diff(pointers))
        at = int(np.argmax((np.diff(row) == 0) & (np.diff(parts[1]) <= 0)))
        msg = (
            f"row {row[at]} has column {parts[1][at + 1]} after {parts[1][at]}; the "
            "columns of a row must ascend"
        )
        raise ValueError(msg)
    return csr


def _gathered(part: int, num_parts: int, rows: int) -> dict[int, _Side]:
    """Return the sides of a part where all rows go to all."""
    others = (other for other in range(num_parts) if other != part)
    return {
        other: _Side(slice(other * rows, (other + 1) * rows), None) for other in others
    }


def _exchanged(
    block: Block, part: int, rows: int, rounds: tuple[Round, ...]
) -> dict[int, _Side]:
    """Return the sides of a part where rows are exchanged in rounds.

    Raises:
        ValueError: rows for a part that do not ascend, or rows for no part.
    """
    columns, sent, start = {}, {}, 0
    for pairs, size in rounds:
        segment = np.asarray(block.send[start : start + size])
        ascending = np.diff(segment, prepend=-1) > 0
        count = size if ascending.all() else int(np.argmin(ascending))
        targets = [to for source, to in pairs if source == part]
        if segment[count:].any() or (segment.any() and not targets):
            wrong = segment[count:] if targets else segment
            at = start + (count if targets else 0) + int(np.argmax(wrong != 0))
            msg = (
                f"send[{at}] is {block.send[at]}; the rows for a part must ascend, and "
                "zeros follow"
            )
            raise ValueError(msg)
        sent |= dict.fromkeys(targets, segment[:count])
        for source, to in pairs:
            if to == part:
                columns[source] = slice(rows + start, rows + start + size)
        start += size
    none, empty = slice(0, 0), np.zeros(0, np.int64)
    return {
        other: _Side(columns.get(other, none), sent.get(other, empty))
        for other in sorted(columns.keys() | sent.keys())
    }


def _position(
    row: Int[np.ndarray, " m"], sent: Int[np.ndarray, " h"] | None, other: int
) -> Int[np.ndarray, " m"]:
    """Return the positions of rows among those for another part.

    Raises:
        ValueError: one of them does not go there, so that the pattern is one-sided.
    """
    if sent is None or not len(row):
        return row
    found = np.minimum(np.searchsorted(sent, row), max(0, len(sent) - 1))
    wrong = sent[found] != row if len(sent) else np.ones(len(row), bool)
    if wrong.any():
        at = row[int(np.argmax(wrong))]
        msg = (
            f"row {at} has an entry in a column of part {other}, but is not among "
            "the rows for it; the matrix must be symmetric"
        )
        raise ValueError(msg)
    return found


def _check_symmetric(csr: scipy.sparse.csr_array) -> None:
    """Refuse entries whose transpose differs.

    Raises:
        ValueError: one does.
    """
    turned = csr.T.tocsr()
    pattern = np.array_equal(turned.indptr, csr.indptr) and np.array_equal(
        turned.indices, csr.indices
    )
    if pattern and np.array_equal(turned.data, csr.data):
        return
    wrong = (csr - turned).tocoo()
    wrong.eliminate_zeros()
    where = f"row {wrong.row[0]} and column {wrong.col[0]}" if wrong.nnz else "a row"
    msg = (
        f"the entry of {where} differs from its transpose; the matrix must be symmetric"
    )
    raise ValueError(msg)


def _digest(
    first: Int[np.ndarray, " m"],
    second: Int[np.ndarray, " m"],
    data: Float[np.ndarray, " m"],
) -> str:
    """Return the SHA-256 of entries, sorted by both indices."""
    order = np.lexsort((second, first))
    found = hashlib.sha256()
    for array in (first, second):
        found.update(array[order].astype("<i8").tobytes())
    found.update(data[order].astype(data.dtype.newbyteorder("<")).tobytes())
    return found.hexdigest()
