"""How the processes of one run find each other: JAX's distributed runtime."""

import os
import socket
import sys
from collections.abc import Callable
from typing import Any

PORT = 7117
AUTO = "auto"


def join(hosts: str | None, host: int | None) -> None:
    """Join the other processes of this run, if there are others.

    Args:
        hosts: names of all machines, comma-separated, in the order of the parts, the
            first one ``name`` or ``name:port``; or "auto", as Slurm, Open MPI or a
            cloud's launcher tell. None: this process is alone.
        host: which of them this one is, from 0; found by this machine's name if None.

    Raises:
        ValueError: no such host, or nobody answers.
    """
    if hosts is None:
        if host is not None:
            msg = "--host needs --hosts, the names of all machines"
            raise ValueError(msg)
        return
    import jax

    settings = {}
    if hosts != AUTO:
        names = [name.strip() for name in hosts.split(",")]
        index = _own(names) if host is None else host
        if not 0 <= index < len(names):
            msg = f"--host must be one of 0 to {len(names) - 1}, got {index}"
            raise ValueError(msg)
        first = names[0] if ":" in names[0] else f"{names[0]}:{PORT}"
        settings = {
            "coordinator_address": first,
            "num_processes": len(names),
            "process_id": index,
        }
    _keep_output_clean()
    try:
        jax.distributed.initialize(**settings)
    except (RuntimeError, ValueError) as error:
        advice = (
            "name the machines by --hosts A,B"
            if hosts == AUTO
            else "start one process for each of --hosts, and check that they reach "
            f"{settings['coordinator_address']}"
        )
        msg = f"the processes of this run did not meet ({error}); {advice}"
        raise ValueError(msg) from error


def together(run: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
    """Call what all processes run, and tell it in one sentence if another one ends.

    Raises:
        ValueError: another process ended, or the device failed.
    """
    try:
        return run(*arguments, **settings)
    except RuntimeError as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        msg = (
            f"a process of this run ended or failed ({reason}); start all of them "
            "again, with --resume if there is a --folder"
        )
        raise ValueError(msg) from error


def _keep_output_clean() -> None:
    """Send what the runtime's libraries print to standard error: it is not ours."""
    sys.stdout.flush()
    kind = {"encoding": sys.stdout.encoding, "errors": sys.stdout.errors}
    sys.stdout = os.fdopen(os.dup(1), "w", **kind)
    os.dup2(2, 1)


def _own(names: list[str]) -> int:
    """Return which of the names is this machine's.

    Raises:
        ValueError: none, or several.
    """
    own = socket.gethostname()
    bare = [name.split(":")[0] for name in names]
    found = [i for i, name in enumerate(bare) if name in {own, own.split(".")[0]}]
    if len(found) != 1:
        msg = (
            f"this machine is called {own}, which is {len(found)} of --hosts; say "
            "which one it is by --host, from 0"
        )
        raise ValueError(msg)
    return found[0]
