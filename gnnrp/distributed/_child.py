"""A worker process as its supervisor sees it: messages, output and end."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from multiprocessing import connection
from typing import Any

_LONGEST_OUTPUT = 1 << 16  # bytes of libraries


class Worker:
    """The process that computes; it ends with this one."""

    def __init__(self) -> None:
        """Start it, out of reach of the terminal's Ctrl-C."""
        self._link, other = connection.Pipe()
        start = f"from gnnrp.distributed import worker; worker.main({other.fileno()})"
        paths = [path or os.getcwd() for path in sys.path]
        options = [f"-W{option}" for option in sys.warnoptions]
        reads, writes = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-P", *options, "-c", start],
            stdin=subprocess.DEVNULL,
            stdout=writes,
            stderr=writes,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            pass_fds=[other.fileno()],
            process_group=0,
        )
        other.close()
        os.close(writes)
        self._pipe: int | None = reads
        self._output = bytearray()
        self._open, self._ended = True, False
        self.stopped_since: float | None = None

    def sources(self) -> list[Any]:
        """Return the pipes to wait for."""
        pipes = [] if self._pipe is None else [self._pipe]
        return [*pipes, self._link] if self._open else pipes

    def send(self, content: Any) -> None:
        """Send it a message; ``poll`` reports if it has ended."""
        with contextlib.suppress(OSError):
            self._link.send(content)

    def interrupt(self) -> None:
        """Send it a Ctrl-C."""
        if not self._ended:
            os.kill(self._process.pid, signal.SIGINT)

    def poll(self) -> list[tuple[str, Any]]:
        """Return its messages, and ("gone", reason) once it has ended."""
        reason = self._wait()  # before its last messages are read
        messages = []
        try:
            while self._open and self._link.poll():
                messages.append(self._link.recv())
        except (EOFError, OSError):
            self._open = False
        self._read()
        return [*messages, ("gone", reason)] if reason else messages

    def close(self) -> str:
        """End it, and return the end of its output."""
        if not self._ended:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._read()
        self._link.close()
        if self._pipe is not None:
            os.close(self._pipe)
        return self._output.decode(errors="replace").strip()

    def _read(self) -> None:
        while self._pipe is not None and connection.wait([self._pipe], 0):
            data = os.read(self._pipe, 1 << 16)
            if not data:
                os.close(self._pipe)
                self._pipe = None
            self._output += data
            del self._output[:-_LONGEST_OUTPUT]

    def _wait(self) -> str | None:
        """Return the reason of its end, once; note whether it is stopped."""
        if self._ended:
            return None
        options = os.WNOHANG | os.WUNTRACED | os.WCONTINUED
        number, status = os.waitpid(self._process.pid, options)
        if not number:
            return None
        if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
            self.stopped_since = time.monotonic() if os.WIFSTOPPED(status) else None
            return None
        self._ended = True
        code = self._process.returncode = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return f"ended with status {code} (--debug shows its output)"
        return f"was ended by {signal.Signals(-code).name}"
