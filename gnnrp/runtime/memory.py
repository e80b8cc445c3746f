"""Memory limits, memory in use, and checks before allocation.

The limit is the least of the caller's, the device's, the container's and the machine's.
Memory that other processes hold does not count: a run would depend on its neighbors.
"""

import math
import os
import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from gnnrp.runtime import checks

LACK = "for lack of memory"  # in each reason for a form that needs less of it
RUNTIME = 2**25  # bytes of compiled code and the allocator, in each estimate

_UNITS = {
    **{f"{letter}B": 1000**power for power, letter in enumerate(["", *"KMGT"])},
    **{f"{letter}IB": 1024**power for power, letter in enumerate("KMGT", start=1)},
}
_LEAST = 10**6
_UNKNOWN = 2**62  # without any limit


class ShortageError(ValueError):
    """An allocation that does not fit in memory."""


class Room(NamedTuple):
    """Free memory, in bytes."""

    left: int
    limit: int  # with the bytes that are held already
    source: str  # of the limit: "allowed", "of the device", ...
    held: int = 0
    max_allowed: int = 0  # limit to which the caller may raise an "allowed" one


def parse(text: str) -> int:
    """Return the bytes of "8GB", "500 MB", "2GiB", "8e9" or a plain number."""
    pattern = r"\s*(\d{1,30}(?:\.\d{1,30})?(?:e\+?\d{1,2})?)\s*([a-z]*)\s*"
    found = re.fullmatch(pattern, str(text), re.IGNORECASE)
    unit = found and _UNITS.get(found[2].upper() or "B")
    size = int(float(found[1]) * unit) if found and unit else 0
    if not _LEAST <= size <= _UNKNOWN:
        msg = (
            "a size must be like 8GB, 500MB, 2GiB or 8e9 (bytes), from 1MB to 4096PiB, "
            f"got {text!r}"
        )
        raise ValueError(msg)
    return size


def format_bytes(num_bytes: int) -> str:
    """Format a size, as in "1.4 GB"."""
    name, unit = ("GB", 1e9) if num_bytes >= 1e8 else ("MB", 1e6)
    return f"{max(0, num_bytes) / unit:,.1f} {name}"


def room(max_bytes: int | None = None) -> Room:
    """Return the free memory of the device, or of this process on a CPU."""
    least = _least(max_bytes, jax.local_devices()[0].memory_stats() or {})
    if jax.process_count() > 1:  # the least of all, so that all decide alike
        mebibytes = np.array(min(least.left >> 20, 2**31 - 1), np.int32)
        every = multihost_utils.process_allgather(mebibytes)
        least = least._replace(left=int(every.min()) << 20)
    return least


def room_on_host(max_bytes: int | None = None) -> Room:
    """Return the free memory of this process, without starting JAX."""
    return _least(max_bytes, {})


def _least(max_bytes: int | None, stats: dict[str, int]) -> Room:
    """Return the smallest room of all limits; a CPU device has no ``stats``."""
    if isinstance(max_bytes, str):
        msg = f"max_bytes must be a number, got {max_bytes!r}; see memory.parse"
        raise TypeError(msg)
    if max_bytes is not None:
        max_bytes = checks.count("max_bytes", max_bytes, 0, _UNKNOWN)
    on_host = process_bytes()
    on_device = stats.get("bytes_in_use", on_host)
    limits = (
        (max_bytes, on_device, "allowed"),
        (stats.get("bytes_limit"), on_device, "of the device"),
        (container_memory(), on_host, "of this container"),
        (_physical(), on_host, "of this machine"),
    )
    rooms = [
        Room(max(0, n - used), n, of, used) for n, used, of in limits if n is not None
    ]
    unlimited = Room(_UNKNOWN, _UNKNOWN, "unknown")
    least = min(rooms, default=unlimited)
    if least.source != "allowed":
        return least
    others = min(rooms[1:], default=unlimited)
    return least._replace(max_allowed=others.left + least.held)


def compare(needed: int, room: Room) -> str:
    """Compare needed and free memory, as the middle of a sentence."""
    return (
        f"takes about {format_bytes(needed)} and {format_bytes(room.left)} are left "
        f"of the {format_bytes(room.limit)} {room.source}"
    )


def check(what: str, needed: int, room: Room, instead: str) -> None:
    """Refuse an allocation that does not fit, before it is made.

    Raises:
        ShortageError: it does not fit; the message adds a limit that fits, if the
            caller has set a lower one and the machine has that much.
    """
    if needed > room.left:
        limit = 1.05 * (needed + room.held)  # what is held varies from run to run
        unit = 10**8 if limit >= 1e8 else 10**5  # of the last digit that is printed
        limit = math.ceil(limit / unit) * unit
        if limit <= room.max_allowed:
            instead += f", or raise the limit to {format_bytes(limit)}"
        msg = f"{what} {compare(needed, room)}; {instead}"
        raise ShortageError(msg)


def process_bytes() -> int:
    """Return the bytes this process holds; 0 if they are unknown."""
    return _status("VmRSS") or 0


def _status(name: str) -> int | None:
    """Return an entry of this process in Linux's table, in bytes."""
    lines = _lines(Path("/proc/self/status"))
    sizes = (1024 * int(x.split()[1]) for x in lines if x.startswith(name))
    return next(sizes, None)


def container_memory(root: Path = Path("/")) -> int | None:
    """Return the least limit of the control groups of this process, or None."""
    limits = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            folder, name = "", "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = "memory", "memory.limit_in_bytes"
        else:
            continue
        group = PurePosixPath(path.strip("/"))  # seen from inside, it may not be there
        for each in (group, *group.parents):
            limits += _lines(root / "sys/fs/cgroup" / folder / each / name)
    # Without a limit, version 2 says "max", version 1 almost 2^63.
    sizes = [int(word) for word in limits if word.isdigit() and int(word) < _UNKNOWN]
    return min(sizes, default=None)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # of other systems
        return None


def peak() -> int | None:
    """Return the peak memory of this process, in bytes; None on Windows."""
    # On Linux, getrusage would count the memory of the parent.
    if (most := _status("VmHWM")) is not None:
        return most
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
