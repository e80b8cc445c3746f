"""The process that computes on one of several machines, watched by its supervisor.

JAX's runtime aborts if a partner is lost, and its collectives cannot be interrupted: a
worker may end in any way, and the command that has started it reports in its place.
"""

import os
import queue
import re
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from gnnrp.distributed import multihost
from gnnrp.distributed._partners import Hosts

_FOLDER_SECONDS = 10.0  # for a new file to show in a network folder


class Link:
    """The connection of a worker to its supervisor."""

    def __init__(self, connection: Connection) -> None:
        """Listen in a thread, which ends this process with its supervisor."""
        self._connection, self._lock = connection, threading.Lock()
        self._received: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def receive(self) -> Any:
        """Wait for a message of the supervisor."""
        return self._received.get()

    def send(self, kind: str, content: Any = None) -> None:
        """Send a message to the supervisor."""
        with self._lock:
            self._connection.send((kind, content))

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, in their order."""
        self.send("gather", value)
        return self.receive()

    def _listen(self) -> None:
        while True:
            try:
                self._received.put(self._connection.recv())
            except (EOFError, OSError):
                os._exit(0)  # the run is over, or the supervisor is


class Disagreement(ValueError):
    """A difference between processes, which all of them detect."""


def main(number: int) -> None:
    """Run a command for the supervisor at the other end of a file descriptor."""
    # The supervisor alone decides on signals, even if the shell ignores them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    link = Link(Connection(number))
    try:
        sys.argv, *task = link.receive()
        output = _compute(link, *task)
    except KeyboardInterrupt as interruption:
        link.send("interrupted", str(interruption))
    except Disagreement as error:
        link.send("disagreement", str(error))
    except (ValueError, TypeError, OSError, MemoryError, RuntimeError) as error:
        traceback.print_exc()
        text = str(error) or repr(error)
        # JAX raises the failures of its runtime as several types, a status in front.
        of_runtime = isinstance(error, RuntimeError) or re.match("[A-Z_]+: ", text)
        link.send("failed", (text, bool(of_runtime)))
    else:
        link.send("result", output)
    sys.stdout.flush()
    sys.stderr.flush()
    while True:  # partners may still need this process's part of JAX's runtime
        threading.Event().wait()


def _compute(
    link: Link, command: Any, hosts: Hosts | None, port: int, seconds: float
) -> Any:
    """Run the command once all processes agree on it, and return its output."""
    is_automatic = hosts is None
    if hosts is None:
        hosts = multihost.join_automatically(port, seconds)
        link.send("met", hosts)
    settings, identity = command.prepare_shards()
    # Before any process waits for another.
    if difference := multihost.difference(link.gather(identity), hosts):
        raise Disagreement(difference)
    if command.folder is not None:
        _check_folder(link, hosts, command.folder, min(seconds / 2, _FOLDER_SECONDS))
    if not is_automatic:
        own = multihost.free_port() if hosts.index == 0 else 0
        multihost.join(hosts, link.gather(own)[0], seconds)

    def report(*progress: Any) -> None:
        link.send("progress", progress)

    def announce(line: str) -> None:
        link.send("line", line)

    return command.compute_shards(settings, report, announce)


def _check_folder(link: Link, hosts: Hosts, folder: Any, seconds: float) -> None:
    """Check that all processes use the same folder."""
    shared = multihost.SharedFolder(folder)
    try:
        token = link.gather(shared.offer() if hosts.index == 0 else None)[0]
        seen = link.gather((shared.sees(token, seconds), str(folder)[:100]))
    finally:
        shared.withdraw()
    link.gather(None)  # no process ends the run before the file is removed
    for index, (is_there, path) in enumerate(seen):
        if not is_there:
            msg = (
                f"--folder {path!r} of {hosts.name_of(index)} is not that of "
                f"{hosts.name_of(0)}; choose a folder that all machines share"
            )
            raise Disagreement(msg)
