"""Which nodes each part of a graph holds, and what it lacks at a hop.

A layout gives every part as many rows; where it has fewer nodes, some are blank. A
blank row is a node without edges, in no mask.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse
from jaxtyping import Int

from gnnrp import sparse
from gnnrp.runtime import checks
from gnnrp.sparse import ordering


class Layout(NamedTuple):
    """Where each node stands: ``parts`` ranges of ``rows`` rows, some of them blank."""

    place: Int[np.ndarray, " n"]
    rows: int
    parts: int


class Round(NamedTuple):
    """What some parts send at one time, each to one other."""

    pairs: tuple[tuple[int, int], ...]  # (from, to), no part twice on a side
    rows: int  # of each pair: as many as the largest of these has to send


class Halo(NamedTuple):
    """What each part lacks, in the rows of a layout, and how it gets there."""

    needed: list[list[Int[np.ndarray, " h"]]]  # by part, of each part: its rows
    rounds: tuple[Round, ...]

    @property
    def received(self) -> int:
        """Rows for which each part makes room at a hop, padding included."""
        return sum(each.rows for each in self.rounds)

    @property
    def starts(self) -> dict[tuple[int, int], int]:
        """Where the rows of each pair begin in all that are sent, and received."""
        found, start = {}, 0
        for pairs, rows in self.rounds:
            found |= dict.fromkeys(pairs, start)
            start += rows
        return found


def balanced(adjacency: Any, parts: int, *, reorder: bool = True) -> Layout:
    """Return a layout in ranges of about as many entries.

    Args:
        adjacency: A, BCOO or scipy sparse.
        parts: devices.
        reorder: put neighbors near each other first (reverse Cuthill-McKee), so that
            ranges have small borders; needs a symmetric pattern.

    Raises:
        ValueError: no part, or more parts than nodes; a matrix that is not square.
        TypeError: not sparse.
    """
    csr = sparse.to_scipy(adjacency)
    csr.eliminate_zeros()
    checks.square("the adjacency", csr)
    num_nodes = csr.shape[0]
    parts = checks.count("parts", parts, 1, num_nodes)
    order = ordering.locality_order(csr, True, "bcsr") if reorder else None
    nodes = np.arange(num_nodes) if order is None else np.asarray(order[0])
    work = np.cumsum(np.diff(csr.indptr)[nodes] + 1)  # a row is work, even if empty
    first = np.arange(1, parts)
    cuts = np.searchsorted(work, work[-1] * first / parts) + 1
    # Every part has a row, even where a single one outweighs all others.
    cuts = np.maximum.accumulate(np.maximum(cuts - first, 0)) + first
    cuts = np.minimum(cuts, num_nodes - parts + first)
    starts = np.concatenate([[0], cuts, [num_nodes]])
    rows = int(np.diff(starts).max())
    part = np.repeat(np.arange(parts), np.diff(starts))
    place = np.empty(num_nodes, np.int64)
    place[nodes] = part * rows + np.arange(num_nodes) - starts[part]
    checks.int32_indexable(parts * rows, csr.nnz)
    return Layout(place, rows, parts)


def from_parts(part: Int[np.ndarray, " n"], num_parts: int) -> Layout:
    """Return the layout in which each node stands in the part that is named for it.

    Within a part nodes keep their order. A part may be empty: it is blank.

    Args:
        part: of each node, from 0 on; what METIS and other partitioners return.
        num_parts: devices.

    Raises:
        ValueError: no node or no part, or a node in a part that is not there.
        TypeError: parts that are not numbered.

    Example:
        >>> from_parts(np.array([1, 0, 1, 1]), 2)
        Layout(place=array([3, 0, 4, 5]), rows=3, parts=2)
    """
    num_parts = checks.count("num_parts", num_parts, 1)
    part = checks.labels("part", part)
    checks.count("the number of nodes", len(part), 1)
    checks.count("the least part of a node", part.min(), 0)
    checks.count("the greatest part of a node", part.max(), 0, num_parts - 1)
    sizes = np.bincount(part, minlength=num_parts)
    rows = int(sizes.max())
    checks.int32_indexable(num_parts * rows, 0)
    nodes = np.argsort(part, kind="stable")
    before = np.repeat(np.cumsum(sizes) - sizes, sizes)  # nodes of parts before
    place = np.empty(len(part), np.int64)
    place[nodes] = part[nodes] * rows + np.arange(len(part)) - before
    return Layout(place, rows, num_parts)


def rounds(lacked: Int[np.ndarray, "p p"]) -> tuple[Round, ...]:
    """Return when each pair of parts exchanges its rows, so that little is padding.

    A round takes as long as its largest pair, and every part makes room for as many
    rows. So that large pairs meet large ones, each round is the matching of greatest
    sum of squares among the pairs that are left. The rows of all rounds are never fewer
    than the most that one part lacks or sends; on Arxiv, in 2 to 64 parts, at most 1.3
    times as many (``experiments.partition.study``).

    Args:
        lacked: how many rows each part (first axis) takes from each (second axis).

    Example:
        >>> rounds(np.array([[0, 9, 1], [8, 0, 1], [1, 1, 0]]))[0]
        Round(pairs=((1, 0), (0, 1)), rows=9)
    """
    left = np.array(lacked, np.float64)
    found = []
    while left.any():
        to, source = scipy.optimize.linear_sum_assignment(left**2, maximize=True)
        rows = left[to, source]
        pairs = np.stack([source, to], axis=1)[rows > 0].tolist()
        found.append(Round(tuple(map(tuple, pairs)), int(rows.max())))
        left[to, source] = 0
    return tuple(found)


def exchanges(rounds: tuple[Round, ...] | None, num_parts: int) -> set[tuple[int, int]]:
    """Return the pairs of parts that exchange rows, the lesser one first."""
    if rounds is None:
        return {(p, q) for q in range(num_parts) for p in range(q)}
    both = ((source, to) for pairs, _ in rounds for source, to in pairs)
    return {(min(pair), max(pair)) for pair in both}


def parsed_rounds(given: Any, num_parts: int) -> tuple[Round, ...] | None:
    """Return rounds from JSON; None: all rows go to all.

    Raises:
        ValueError: a part that does not exist, is twice on a side, or its own partner.
        TypeError: no pairs of numbers.
    """
    if given is None:
        return None
    if type(given) is not list:
        msg = f"rounds is {checks.shown(given)}"
        raise ValueError(msg)
    found = tuple(Round(tuple(map(tuple, pairs)), rows) for pairs, rows in given)
    for pairs, rows in found:
        sides = list(zip(*pairs, strict=True))
        numbers = {rows, *(part for side in sides for part in side)}
        fits = (
            all(type(each) is int for each in numbers)
            and rows > 0
            and len(sides) == 2
            and all(source != to for source, to in pairs)
            and all(len(set(side)) == len(side) for side in sides)
            and {part for side in sides for part in side} <= set(range(num_parts))
        )
        if not fits:
            msg = f"rounds do not pair {num_parts} parts: {checks.shown(pairs)}"
            raise ValueError(msg)
    return found


def halos(adjacency: Any, layout: Layout) -> Halo:
    """Return the rows that each part takes from each other at a hop."""
    return halos_of_placed(placed(adjacency, layout), layout)


def placed(adjacency: Any, layout: Layout) -> scipy.sparse.csr_array:
    """Return the matrix between the rows of a layout.

    Raises:
        ValueError: a matrix of another size.
        TypeError: no layout, or no sparse matrix.
    """
    checks.instance("layout", layout, Layout, "layouts.balanced makes one")
    coo = sparse.to_scipy(adjacency).tocoo()
    coo.eliminate_zeros()  # which would be neighbors that a part lacks
    num_nodes = len(layout.place)
    if coo.shape != (num_nodes, num_nodes):
        msg = f"the layout is of {num_nodes} nodes, the matrix of shape {coo.shape}"
        raise ValueError(msg)
    size = layout.parts * layout.rows
    where = (layout.place[coo.row], layout.place[coo.col])
    csr = scipy.sparse.coo_array((coo.data, where), shape=(size, size)).tocsr()
    csr.sort_indices()
    return csr


def halos_of_placed(csr: scipy.sparse.csr_array, layout: Layout) -> Halo:
    """Return the same from the matrix between the rows of the layout."""
    borders = np.arange(layout.parts + 1) * layout.rows
    needed = []
    for part in range(layout.parts):
        block = slice(*csr.indptr[[borders[part], borders[part + 1]]])
        columns = np.unique(csr.indices[block])
        mine = (columns >= borders[part]) & (columns < borders[part + 1])
        foreign = columns[~mine]
        needed.append(np.split(foreign, np.searchsorted(foreign, borders[1:-1])))
    sizes = np.array([[len(rows) for rows in each] for each in needed])
    return Halo(needed, rounds(sizes))
