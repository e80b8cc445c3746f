"""Predict rows moved, time and memory of a hop of a sharded matrix.

No hop is run: rows are counted, and times follow from a measured speed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from gnnrp.distributed import partitioning
from gnnrp.distributed.partitioning import Layout

FLOAT, INDEX = 4, 4  # bytes


class Volume(NamedTuple):
    """Rows that parts lack and move, summed over all parts unless noted otherwise."""

    parts: int
    rows: int  # per part, including blank rows
    halo: int  # rows that parts lack
    padded: int  # with all pairs of a round padded to the largest one
    gather: int  # with all rows sent to each part
    exchange: str  # choice of "auto" between the last two
    moved: int  # with this choice
    received: int  # rows for which each part allocates space
    messages: int  # consecutive messages
    largest_halo: int  # largest number of rows that one part lacks
    most_entries: int  # largest number of entries of a part
    entry_balance: float  # maximum divided by mean
    row_balance: float


class Link(NamedTuple):
    """Speed and latency of the connection between two hosts."""

    gigabits: float  # per second, in each direction at once
    latency: float  # seconds per message


def volume(csr: Any, layout: Layout) -> Volume:
    """Count the rows that a hop moves with a layout.

    Args:
        csr: scipy sparse matrix over the nodes of the layout.
        layout: see ``partitioning``.
    """
    parts, rows = layout.parts, layout.rows
    lacked, entries = lacking(csr, layout)
    rounds = partitioning.rounds(lacked)
    padded = sum(len(each.pairs) * each.rows for each in rounds)
    received = sum(each.rows for each in rounds)
    # The rule of ``matrix.blocks``: allocate as few rows as possible.
    by_gather = received >= (parts - 1) * rows
    gather = parts * (parts - 1) * rows
    return Volume(
        parts=parts,
        rows=rows,
        halo=int(lacked.sum()),
        padded=padded,
        gather=gather,
        exchange="gather" if by_gather else "halo",
        moved=gather if by_gather else padded,
        received=(parts - 1) * rows if by_gather else received,
        messages=parts - 1 if by_gather else len(rounds),
        largest_halo=int(lacked.sum(axis=1).max()),
        most_entries=int(entries.max()),
        entry_balance=round(float(entries.max() / entries.mean()), 4),
        row_balance=round(rows * parts / len(layout.place), 4),
    )


def lacking(
    csr: Any, layout: Layout
) -> tuple[Int[np.ndarray, "p p"], Int[np.ndarray, " p"]]:
    """Count the rows that each part needs from each other one, and its entries.

    These are the sizes of ``partitioning.halos``, without a second matrix.
    """
    part = layout.place // layout.rows
    nodes = np.argsort(layout.place)
    ends = np.searchsorted(part[nodes], np.arange(layout.parts), side="right")
    lacked = np.zeros((layout.parts, layout.parts), np.int64)
    entries = np.zeros(layout.parts, np.int64)
    for one, own in enumerate(np.split(nodes, ends[:-1])):
        named = csr[own].indices
        touched = np.zeros(len(part), bool)
        touched[named] = True
        lacked[one] = np.bincount(part[touched], minlength=layout.parts)
        lacked[one, one] = 0
        entries[one] = len(named)
    return lacked, entries


def seconds(found: Volume, columns: int, speed: float, link: Link) -> dict[str, float]:
    """Predict the seconds of a hop: the exchange, then the product.

    The largest part determines the time, and in each round the largest pair.
    Communication and computation do not overlap, as in ``matrix``.

    Args:
        found: rows moved.
        columns: of the dense side.
        speed: entries times columns that a host multiplies per second.
        link: connection between hosts.
    """
    local = found.most_entries * columns / speed
    exchange = transfer(found.received, columns, found.messages, link)
    lacked = transfer(found.largest_halo, columns, found.messages, link)
    return {
        "local": local,
        "exchange": exchange,
        "total": local + exchange,
        "total without padding": local + min(exchange, lacked),
    }


def transfer(rows: float, columns: int, messages: float, link: Link) -> float:
    """Return the seconds in which a part receives rows in ``messages`` messages."""
    bits = 8 * FLOAT * columns * rows
    return messages * link.latency + bits / (1e9 * link.gigabits)


ARRAYS = ("F", "best F", "targets", "a hop's input", "a hop's output")
"""Arrays with the rows of a host that RP needs at the same time."""


class Large(NamedTuple):
    """Sizes of a graph that is too large for this machine."""

    nodes: int
    entries: int
    columns: int


PAPERS = Large(111_059_956, 2 * 1_615_685_872 + 111_059_956, 172)
"""ogbn-papers100M: each citation in both directions and a loop on each node. Mutual
citations count twice, so this is an upper bound on the stored entries."""


def memory(
    graph: Large, parts: int, received: float, row_balance: float = 1.0
) -> dict[str, float]:
    """Predict the bytes of a host by kind, with their sum.

    Args:
        graph: whose entries are distributed evenly over hosts.
        parts: number of hosts.
        received: rows for which a host allocates space, divided by n / parts.
        row_balance: rows of a host including blank ones, divided by n / parts.
    """
    rows = graph.nodes / parts * row_balance
    row = FLOAT * graph.columns
    all_rows = received >= 0.999 * (parts - 1) * row_balance  # values are rounded
    received *= graph.nodes / parts
    # Rows to send are copied first; gathering copies all rows to add a blank one.
    copies = (rows + received) * row if all_rows else received * (row + INDEX)
    found = {
        "matrix": (FLOAT + INDEX) * graph.entries / parts + INDEX * rows,
        "arrays": len(ARRAYS) * rows * row,
        "received": (rows + received) * row,  # after the own rows
        "copies": copies,
    }
    return found | {"total": sum(found.values())}


def extended(
    measured: dict[int, float], parts: int, fitted_from: int = 8
) -> tuple[float, bool]:
    """Return the share for a number of parts, measured or from a fitted power law.

    Args:
        measured: shares by number of parts.
        parts: number of parts of the result.
        fitted_from: smallest number of parts in the fit, if at least two remain.

    Returns:
        The share, and whether it is fitted.
    """
    if parts in measured:
        return measured[parts], False
    known = {p: x for p, x in measured.items() if x > 0}
    fitted = {p: x for p, x in known.items() if p >= fitted_from}
    fitted = fitted if len(fitted) > 1 else known
    if not fitted:
        return 0.0, True
    p, x = np.log(list(fitted)), np.log(list(fitted.values()))
    slope = np.polyfit(p, x, 1)[0] if len(fitted) > 1 else 0.0
    return float(np.exp(np.mean(x) + slope * (np.log(parts) - np.mean(p)))), True


def extrapolated(
    volumes: dict[int, Volume],
    nodes: int,
    graph: Large,
    parts: int,
    speed: float,
    links: list[Link],
) -> dict[str, Any]:
    """Predict memory of a host and seconds of a hop for a graph like a measured one.

    Assumptions: at the same number of parts, a part lacks and receives the same
    multiple of n / parts rows as in the measured graph, and rows and entries are
    equally uneven. Beyond the measured numbers of parts, the unevenness is that of the
    last one.

    Args:
        volumes: of the measured graph with one method, by number of parts.
        nodes: of the measured graph.
        graph: the graph of the prediction.
        parts: number of hosts.
        speed: entries times columns that a host multiplies per second.
        links: connections between hosts.
    """
    uneven = volumes.get(parts, volumes[max(volumes)])

    def share(rows: Callable[[Volume], float]) -> tuple[float, bool]:
        return extended({p: rows(v) for p, v in volumes.items()}, parts)

    received, fitted = share(lambda v: v.received * v.parts / nodes)
    received = min(received, (parts - 1) * uneven.row_balance)
    lacked = min(share(lambda v: v.largest_halo * v.parts / nodes)[0], received)
    messages, _ = share(lambda v: v.messages)
    held = memory(graph, parts, received, uneven.row_balance)
    local = graph.entries / parts * uneven.entry_balance * graph.columns / speed
    rows = graph.nodes / parts

    def hop(each: float) -> dict[str, float]:
        return {
            f"{link.gigabits:g}": local
            + transfer(each * rows, graph.columns, messages, link)
            for link in links
        }

    return {
        "hosts": parts,
        "lacked": round(lacked, 4),
        "received": round(received, 4),
        "rows": uneven.row_balance,
        "fitted": fitted,
        "gigabytes": {name: round(value / 1e9, 2) for name, value in held.items()},
        "local": local,
        "hop": hop(received),
        "hop without padding": hop(lacked),
    }
