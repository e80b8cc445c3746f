"""Layouts of the nodes of a graph in parts, and the halo of each part at a hop.

All parts have as many rows as the largest. The others have blank rows: nodes without
edges, in no mask.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse
from jaxtyping import Int

from gnnrp import sparse
from gnnrp.runtime import checks
from gnnrp.sparse import ordering


class Layout(NamedTuple):
    """The row of each node in ``parts`` ranges of ``rows`` rows, some of them blank."""

    place: Int[np.ndarray, " n"]
    rows: int
    parts: int


class Round(NamedTuple):
    """Rows that parts send at the same time, each to one other part."""

    pairs: tuple[tuple[int, int], ...]  # (from, to), no part twice on a side
    rows: int  # of each pair, those of the largest one


class Halo(NamedTuple):
    """Rows of a layout that each part needs from others, and their exchange."""

    needed: list[list[Int[np.ndarray, " h"]]]  # rows by receiving and sending part
    rounds: tuple[Round, ...]

    @property
    def received(self) -> int:
        """Number of rows that each part receives at a hop, with padding."""
        return sum(each.rows for each in self.rounds)

    @property
    def starts(self) -> dict[tuple[int, int], int]:
        """Index of the first row of each pair among all that are sent and received."""
        starts, start = {}, 0
        for pairs, rows in self.rounds:
            starts |= dict.fromkeys(pairs, start)
            start += rows
        return starts


def balance(adjacency: Any, parts: int, *, reorder: bool = True) -> Layout:
    """Return a layout in ranges of about as many entries.

    Args:
        adjacency: A, BCOO or scipy sparse.
        parts: number of devices.
        reorder: place neighbors near each other first (reverse Cuthill-McKee), so that
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
    sizes = np.diff(cuts, prepend=0, append=num_nodes)
    return _lay_out(nodes, sizes, csr.nnz)


def from_parts(part: Int[np.ndarray, " n"], num_parts: int) -> Layout:
    """Return the layout of a partition.

    Within a part nodes keep their order. A part may be empty.

    Args:
        part: of each node, from 0, as METIS and other partitioners return it.
        num_parts: number of devices.

    Raises:
        ValueError: no node or no part, or a part out of range.
        TypeError: parts that are not numbers.

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
    return _lay_out(np.argsort(part, kind="stable"), sizes, 0)


def _lay_out(
    nodes: Int[np.ndarray, " n"], sizes: Int[np.ndarray, " p"], num_entries: int
) -> Layout:
    """Return the layout of consecutive ranges of an order of the nodes."""
    rows, num_parts = int(sizes.max()), len(sizes)
    checks.int32_indexable(num_parts * rows, num_entries)
    part = np.repeat(np.arange(num_parts), sizes)
    before = np.repeat(np.cumsum(sizes) - sizes, sizes)  # nodes of earlier parts
    place = np.empty(len(nodes), np.int64)
    place[nodes] = part * rows + np.arange(len(nodes)) - before
    return Layout(place, rows, num_parts)


def rounds(needed: Int[np.ndarray, "p p"]) -> tuple[Round, ...]:
    """Return rounds that exchange the rows each part (first axis) needs from each.

    A round takes as long as its largest pair. To match large pairs with large ones, it
    is the matching of greatest sum of squares among the remaining pairs. All rounds
    together have at least the rows that one part needs or sends; on Arxiv, in 2 to 64
    parts, at most 1.3 times as many (``experiments.partition.study``).

    Example:
        >>> rounds(np.array([[0, 9, 1], [8, 0, 1], [1, 1, 0]]))[0]
        Round(pairs=((1, 0), (0, 1)), rows=9)
    """
    left, result = np.array(needed, np.float64), []
    while left.any():
        to, source = scipy.optimize.linear_sum_assignment(left**2, maximize=True)
        rows = left[to, source]
        pairs = np.stack([source, to], axis=1)[rows > 0].tolist()
        result.append(Round(tuple(map(tuple, pairs)), int(rows.max())))
        left[to, source] = 0
    return tuple(result)


def exchanges(rounds: tuple[Round, ...] | None, num_parts: int) -> set[tuple[int, int]]:
    """Return the pairs of parts that exchange rows, in ascending order."""
    if rounds is None:
        return set(itertools.combinations(range(num_parts), 2))
    return {(min(pair), max(pair)) for each in rounds for pair in each.pairs}


def parse_rounds(values: Any, num_parts: int) -> tuple[Round, ...] | None:
    """Return rounds from JSON; None: all rows go to all parts."""
    if values is None:
        return None
    if type(values) is not list:
        msg = f"rounds is {checks.format_value(values)}"
        raise ValueError(msg)
    parsed = tuple(Round(tuple(map(tuple, pairs)), rows) for pairs, rows in values)
    for pairs, rows in parsed:
        sides = list(zip(*pairs, strict=True))
        parts = {part for side in sides for part in side}
        fits = (
            all(type(each) is int for each in {rows, *parts})
            and rows > 0
            and len(sides) == 2
            and all(source != to for source, to in pairs)
            and all(len(set(side)) == len(side) for side in sides)
            and parts <= set(range(num_parts))
        )
        if not fits:
            msg = f"rounds do not pair {num_parts} parts: {checks.format_value(pairs)}"
            raise ValueError(msg)
    return parsed


def halos(adjacency: Any, layout: Layout) -> Halo:
    """Return the rows of a layout that each part needs from each other at a hop.

    Raises:
        ValueError: a matrix of another size.
        TypeError: not a layout, or not a sparse matrix.
    """
    return layout_halos(layout_matrix(adjacency, layout), layout)


def layout_matrix(adjacency: Any, layout: Layout) -> scipy.sparse.csr_array:
    """Return the matrix between the rows of a layout."""
    checks.instance("layout", layout, Layout, "partitioning.balance makes one")
    coo = sparse.to_scipy(adjacency).tocoo()
    coo.eliminate_zeros()  # which would be neighbors that a part needs
    num_nodes = len(layout.place)
    if coo.shape != (num_nodes, num_nodes):
        msg = f"the layout has {num_nodes} nodes, the matrix shape {coo.shape}"
        raise ValueError(msg)
    size = layout.parts * layout.rows
    where = (layout.place[coo.row], layout.place[coo.col])
    csr = scipy.sparse.coo_array((coo.data, where), shape=(size, size)).tocsr()
    csr.sort_indices()
    return csr


def layout_halos(csr: scipy.sparse.csr_array, layout: Layout) -> Halo:
    """Return ``halos`` from the matrix of ``layout_matrix``."""
    borders = np.arange(layout.parts + 1) * layout.rows
    needed = []
    for part in range(layout.parts):
        block = slice(*csr.indptr[[borders[part], borders[part + 1]]])
        columns = np.unique(csr.indices[block])
        foreign = columns[columns // layout.rows != part]
        needed.append(np.split(foreign, np.searchsorted(foreign, borders[1:-1])))
    sizes = np.array([[len(rows) for rows in each] for each in needed])
    return Halo(needed, rounds(sizes))
