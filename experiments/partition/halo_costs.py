"""What a hop of a sharded matrix moves, how long it may take, and what a host holds.

Nothing is run here: rows are counted, and times follow from a measured speed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from gnnrp.distributed import partitioning
from gnnrp.distributed.partitioning import Layout

FLOAT, INDEX = 4, 4  # bytes


class Volume(NamedTuple):
    """What parts lack and hold; rows of all parts together unless said otherwise."""

    parts: int
    rows: int  # of a part, blanks included
    halo: int  # what parts lack
    padded: int  # as each pair of a round exchanges as many as any of these
    gather: int  # as each part receives all rows
    exchange: str  # which of the last two "auto" takes
    moved: int  # by it
    received: int  # for which each part makes room, by it
    messages: int  # that follow each other, by it
    largest_halo: int  # that one part lacks
    most_entries: int  # of a part
    entry_balance: float  # most over mean
    row_balance: float


class Link(NamedTuple):
    """How fast hosts reach each other."""

    gigabits: float  # per second, each way at once
    latency: float  # seconds of a message


def volume(csr: Any, layout: Layout) -> Volume:
    """Return what a layout makes a hop move.

    Args:
        csr: scipy sparse, of the nodes of the layout.
        layout: see ``partitioning``.
    """
    parts, rows = layout.parts, layout.rows
    lacked, entries = lacking(csr, layout)
    rounds = partitioning.rounds(lacked)
    padded = sum(len(each.pairs) * each.rows for each in rounds)
    received = sum(each.rows for each in rounds)
    # As ``matrix.blocks`` decides: by what a part makes room for.
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
    """Return how many rows each part takes from each, and the entries of each.

    These are the sizes of ``partitioning.halos``, found without a second matrix.
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
    """Return the predicted seconds of a hop: the product, and the exchange before it.

    The largest part sets the pace, and in each round the largest pair. Nothing
    overlaps, as in ``matrix``.

    Args:
        found: what is moved.
        columns: of the dense side.
        speed: entries times columns that a host multiplies in a second.
        link: between hosts.
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
    """Return the seconds in which a part receives rows in so many messages."""
    bits = 8 * FLOAT * columns * rows
    return messages * link.latency + bits / (1e9 * link.gigabits)


ARRAYS = ("F", "best F", "targets", "a hop's input", "a hop's output")
"""Of as many rows as a host has, while RP runs."""


class Large(NamedTuple):
    """A graph that is not here."""

    nodes: int
    entries: int
    columns: int


PAPERS = Large(111_059_956, 2 * 1_615_685_872 + 111_059_956, 172)
"""ogbn-papers100M: each citation both ways and a loop on each node; citations of each
other count twice, so this is at most what is stored."""


def memory(
    graph: Large, parts: int, received: float, row_balance: float = 1.0
) -> dict[str, float]:
    """Return the bytes of a host, what makes them up, and their sum.

    Args:
        graph: of which each host has as many entries.
        parts: hosts.
        received: rows for which a host makes room, for each of n / parts.
        row_balance: rows of a host, blanks included, for each of n / parts.
    """
    rows = graph.nodes / parts * row_balance
    row = FLOAT * graph.columns
    all_rows = received >= 0.999 * (parts - 1) * row_balance  # which are rounded
    received *= graph.nodes / parts
    # What is sent is laid out first; all rows are copied to add a blank one.
    copies = (rows + received) * row if all_rows else received * (row + INDEX)
    found = {
        "matrix": (FLOAT + INDEX) * graph.entries / parts + INDEX * rows,
        "arrays": len(ARRAYS) * rows * row,
        "received": (rows + received) * row,  # own rows stand before them
        "copies": copies,
    }
    return found | {"total": sum(found.values())}


def extended(
    measured: dict[int, float], parts: int, fitted_from: int = 8
) -> tuple[float, bool]:
    """Return a share for a number of parts: as measured, or on a fitted power of it.

    Args:
        measured: by number of parts.
        parts: for which it is asked.
        fitted_from: parts of the measurements that the power is fitted to, if two.

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
    """Return memory of a host and seconds of a hop for a graph like a measured one.

    Assumed is that at the same number of parts, a part lacks and is sent as many rows
    for each of n / parts as there, and that rows and entries are as uneven; beyond the
    measured numbers, as uneven as at the last.

    Args:
        volumes: of one measured graph and method, by number of parts.
        nodes: of that graph.
        graph: which is asked for.
        parts: hosts.
        speed: entries times columns that a host multiplies in a second.
        links: between hosts.
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
