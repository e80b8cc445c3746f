"""A worker process as its supervisor sees it: messages, output and end."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from multiprocessing import connection
from typing import Any

_NOISE = 1 << 16  # bytes kept of what libraries print


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
        self._output: int | None = reads
        self._noise, self._open = bytearray(), True
        self._ended = False
        self.stopped_since: float | None = None

    def sources(self) -> list[Any]:
        """Return the pipes to wait for."""
        found = [] if self._output is None else [self._output]
        return [*found, self._link] if self._open else found

    def send(self, content: Any) -> None:
        """Send it a message; ``poll`` reports if it has ended."""
        with contextlib.suppress(OSError):
            self._link.send(content)

    def interrupt(self) -> None:
        """Send it a Ctrl-C."""
        if not self._ended:
            os.kill(self._process.pid, signal.SIGINT)

    def poll(self) -> list[tuple[str, Any]]:
        """Return its messages, and "gone" where it has ended."""
        ended = self._look()  # before its last messages are read
        found = []
        try:
            while self._open and self._link.poll():
                found.append(self._link.recv())
        except (EOFError, OSError):
            self._open = False
        self._listen()
        return [*found, ("gone", ended)] if ended else found

    def close(self) -> str:
        """End it, and return what it printed."""
        if not self._ended:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._listen()
        self._link.close()
        if self._output is not None:
            os.close(self._output)
        return self._noise.decode(errors="replace").strip()

    def _listen(self) -> None:
        """Read the output of libraries, and keep its end."""
        while self._output is not None and connection.wait([self._output], 0):
            data = os.read(self._output, 1 << 16)
            if not data:
                os.close(self._output)
                self._output = None
            self._noise += data
            del self._noise[:-_NOISE]

    def _look(self) -> str | None:
        """Return how it ended, once; else None."""
        if self._ended:
            return None
        options = os.WNOHANG | os.WUNTRACED | os.WCONTINUED
        number, status = os.waitpid(self._process.pid, options)
        if not number:
            return None
        if os.WIFSTOPPED(status):
            self.stopped_since = time.monotonic()
            return None
        if os.WIFCONTINUED(status):
            self.stopped_since = None
            return None
        self._ended = True
        code = self._process.returncode = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return f"ended with status {code} (--debug shows what it printed)"
        return f"was ended by {signal.Signals(-code).name}"
