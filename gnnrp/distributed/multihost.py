"""Names of the machines of a run, and the JAX runtime that joins their processes."""

import contextlib
import dataclasses
import math
import os
import secrets
import socket
import time
from pathlib import Path
from typing import Any

from gnnrp.distributed._partners import Hosts
from gnnrp.runtime import atomic_files, checkpoints

PORT = 7117
AUTO = "auto"
_HEARTBEAT = 100  # seconds of JAX's own, at least; ours come first


def parse(hosts: str, host: int | None) -> Hosts:
    """Parse ``--hosts`` and ``--host``, by default the one that has the own name."""
    first, *others = (name.strip() for name in hosts.split(","))
    name, colon, digits = first.partition(":")
    digits = digits if colon else str(PORT)
    port = int(digits) if digits.isascii() and digits.isdigit() else 0
    names = (name, *(other.split(":")[0] for other in others))
    if not all(names) or not 0 < port < 1 << 16:
        form = "NAME,NAME,..., the first perhaps NAME:PORT"
        msg = f"--hosts must be {form}, got {hosts[:80]!r}"
        raise ValueError(msg)
    if host is None:
        own = socket.gethostname()
        indices = [i for i, x in enumerate(names) if x in {own, own.split(".")[0]}]
        if len(indices) != 1:
            msg = (
                f"this machine is called {own}, which is {len(indices)} of --hosts; "
                "pass its index by --host, from 0"
            )
            raise ValueError(msg)
        (host,) = indices
    if not 0 <= host < len(names):
        msg = f"--host must be one of 0 to {len(names) - 1}, got {host}"
        raise ValueError(msg)
    return Hosts(names, host, port)


def join(hosts: Hosts, port: int, seconds: float) -> None:
    """Start JAX's distributed runtime between processes that have met."""
    address = f"{hosts.names[0]}:{port}"
    processes = (address, len(hosts.names), hosts.index)
    _initialize(seconds, f"check that all machines reach {address}", *processes)


def join_automatically(port: int, seconds: float) -> Hosts:
    """Start JAX's distributed runtime as Slurm, Open MPI or a cloud describes it."""
    _initialize(seconds, "name the machines by --hosts A,B")
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    own = np.zeros(260, np.int32)
    name = socket.gethostname().encode()[:255]
    own[0] = port
    own[1 : 1 + len(name)] = list(name)
    every = np.atleast_2d(multihost_utils.process_allgather(own))
    names = tuple(bytes(row[1:][row[1:] > 0].tolist()).decode() for row in every)
    return Hosts(names, jax.process_index(), int(every[0, 0]))


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def _initialize(seconds: float, remedy: str, *processes: Any) -> None:
    import jax

    timeout = math.ceil(seconds)
    try:
        jax.distributed.initialize(
            *processes,  # address of the first, number, index
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=max(_HEARTBEAT, 3 * timeout),
        )
    except (RuntimeError, ValueError) as error:
        reason = (str(error) or repr(error)).splitlines()[0]
        msg = f"the processes of this run did not meet ({reason[:150]}); {remedy}"
        raise ValueError(msg) from error


def difference(values: list[dict[str, Any]], hosts: Hosts) -> str | None:
    """Describe the first difference between the settings of processes, if any."""
    for i, other in enumerate(values):
        for name, value in values[0].items():
            if other.get(name) != value:
                here = f"{other.get(name)!r} in {hosts.name_of(i)}"
                first = f"{value!r} in {hosts.name_of(0)}"
                return (
                    f"{name} is {here} and {first}; start all processes with the same"
                )
    return None


@dataclasses.dataclass
class SharedFolder:
    """A folder with a file that the first process writes and all others must see."""

    folder: Path
    token: str | None = None  # name of the file

    def offer(self) -> str:
        """Write the file and return its name."""
        checkpoints.prepare(self.folder)
        self.token = f".{secrets.token_hex(8)}"
        atomic_files.write(self.folder / self.token, b"")
        return self.token

    def withdraw(self) -> None:
        """Remove the file."""
        if self.token is not None:
            with contextlib.suppress(OSError):
                (self.folder / self.token).unlink()

    def sees(self, token: str, seconds: float) -> bool:
        """Return whether the file is there; network folders may take a while."""
        deadline = time.monotonic() + seconds
        while True:
            # A listing is read anew, but a missing name may be cached.
            with contextlib.suppress(OSError):
                if token in os.listdir(self.folder):
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
