"""Limits of memory, the memory that is held, and refusals before it is allocated.

The limit is the least of what the caller allows, the device has, the container allows
and the machine has. Memory that others hold now does not count: what a run does would
depend on its neighbors.
"""

import os
import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from gnnrp.runtime import checks

LACK = "for lack of memory"
"""Words that stand in every reason why a smaller form was taken."""

RUNTIME = 2**25
"""Bytes that compiled code and the allocator keep, part of every estimate."""

_UNITS = {
    **{f"{letter}B": 1000**power for power, letter in enumerate(["", *"KMGT"])},
    **{f"{letter}IB": 1024**power for power, letter in enumerate("KMGT", start=1)},
}
_LEAST = 10**6
_UNKNOWN = 2**62  # where no limit is told


class Room(NamedTuple):
    """What may still be taken."""

    left: int  # bytes
    limit: int  # bytes, with those that are held already
    source: str  # "allowed", or whose they are


def parse(text: str) -> int:
    """Return the bytes of "8GB", "500 MB", "2GiB" or a plain number.

    Raises:
        ValueError: no such size, or none at all.
    """
    pattern = r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([a-z]*)\s*"
    found = re.fullmatch(pattern, str(text), re.IGNORECASE)
    unit = found and _UNITS.get(found[2].upper() or "B")
    size = int(float(found[1]) * unit) if found and unit else 0
    if size < _LEAST:
        msg = (
            "a size must be like 8GB, 500MB, 2GiB or a number of bytes, and 1MB or "
            f"more, got {text!r}"
        )
        raise ValueError(msg)
    return size


def said(num_bytes: int) -> str:
    """Return the size in words, "1.4 GB"."""
    name, unit = ("GB", 1e9) if num_bytes >= 1e8 else ("MB", 1e6)
    return f"{max(0, num_bytes) / unit:,.1f} {name}"


def room(max_bytes: int | None = None) -> Room:
    """Return what may still be taken beside what is held.

    Args:
        max_bytes: what may be held in all, if the caller says so.

    Raises:
        ValueError: not a number of bytes.
        TypeError: a string; ``parse`` reads it.
    """
    found = []
    if isinstance(max_bytes, str):
        msg = f"max_bytes must be a number, got {max_bytes!r}; see memory.parse"
        raise TypeError(msg)
    if max_bytes is not None:
        max_bytes = checks.count("max_bytes", max_bytes, 0, _UNKNOWN)
    stats = jax.local_devices()[0].memory_stats() or {}  # none of a CPU
    on_host = held()
    if "bytes_limit" in stats:
        found.append((stats["bytes_limit"], stats["bytes_in_use"], "of the device"))
    if max_bytes is not None:
        found.append((max_bytes, stats.get("bytes_in_use", on_host), "allowed"))
    found += [(size, on_host, source) for size, source in _limits_of_host()]
    rooms = [Room(max(0, size - used), size, source) for size, used, source in found]
    least = min(rooms, default=Room(_UNKNOWN, _UNKNOWN, "unknown"))
    if jax.process_count() > 1:  # that of all, so that all decide alike; in MiB
        mine = np.array(min(least.left >> 20, 2**31 - 1), np.int32)
        every = multihost_utils.process_allgather(mine)
        least = least._replace(left=int(every.min()) << 20)
    return least


def room_on_host(max_bytes: int | None = None) -> Room:
    """Return the memory of this process that is left for reading files.

    JAX is not started, and other processes are not waited for.

    Args:
        max_bytes: limit of all that is held, if the caller sets one.

    Raises:
        ValueError: not a number of bytes.
    """
    limits = _limits_of_host()
    if max_bytes is not None:
        max_bytes = checks.count("max_bytes", max_bytes, 0, _UNKNOWN)
        limits.insert(0, (max_bytes, "allowed"))
    limit, source = min(limits, key=lambda each: each[0], default=(_UNKNOWN, "unknown"))
    return Room(max(0, limit - held()), limit, source)


def _limits_of_host() -> list[tuple[int, str]]:
    """Return the known limits of the memory of this process, and whose they are."""
    limits = (
        (container_memory(), "of this container"),
        (_physical(), "of this machine"),
    )
    return [(size, source) for size, source in limits if size is not None]


def told(needed: int, room: Room) -> str:
    """Return what is needed and what there is, as the middle of a sentence."""
    return (
        f"takes about {said(needed)} and {said(room.left)} are left of the "
        f"{said(room.limit)} {room.source}"
    )


def check(what: str, needed: int, room: Room, instead: str) -> None:
    """Refuse what does not fit, before it is allocated.

    Args:
        what: would be made, the subject of the sentence.
        needed: bytes at its peak, see ``runtime.peaks``.
        room: that there is.
        instead: what to do, an imperative.

    Raises:
        ValueError: it does not fit.
    """
    if needed > room.left:
        msg = f"{what} {told(needed, room)}; {instead}"
        raise ValueError(msg)


def held() -> int:
    """Return the bytes this process holds now; 0 if it is unknown."""
    lines = _lines(Path("/proc/self/status"))
    return next((1024 * int(x.split()[1]) for x in lines if x.startswith("VmRSS")), 0)


def container_memory(root: Path = Path("/")) -> int | None:
    """Return the least limit of the control groups this process is in; None: none.

    Args:
        root: of the file system that tells, version 1 and 2, nested groups too.
    """
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
    except (AttributeError, ValueError, OSError):  # not told by this system
        return None


def peak() -> int | None:
    """Return the most memory this process has held, in bytes; None on Windows."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux, where getrusage would count what the parent held
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
