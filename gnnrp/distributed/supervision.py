"""A process that starts a worker, watches it and its partners, and ends the run."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import connection
from typing import Any

from gnnrp.distributed import _partners, multihost
from gnnrp.distributed._partners import AGAIN, Event, Hosts, PartnerError, Partners
from gnnrp.runtime import interrupts, streams

_GRACE, _SHORT_GRACE = 5.0, 1.0  # seconds for the cause of a failure to show
_LONGEST_OUTPUT = 1 << 16  # bytes of what libraries print
_WAITS = {"SIGKILL": 0.0, "SIGABRT": _GRACE}


def run(
    command: Any,  # with prepare_shards, compute_shards, folder, debug, partner_seconds
    hosts: str,
    host: int | None,
    progress: Callable[[str, int, int], None],
) -> Any:
    """Run a command in a worker; return its result in the first process, else None."""
    if hosts == multihost.AUTO and host is not None:
        msg = f"--host does not apply to --hosts auto, got {host}; leave it out"
        raise ValueError(msg)
    known = None if hosts == multihost.AUTO else multihost.parse(hosts, host)
    with _collect_signals() as received:
        supervisor = Supervisor(command, known, received, progress)
        show_output = command.debug
        try:
            result = supervisor.supervise()
            show_output = True
        finally:
            supervisor.close(show_output=show_output)
    return result


class Worker:
    """The process that computes; it ends with this one."""

    def __init__(self) -> None:
        """Start it, out of reach of the terminal's Ctrl-C."""
        self._link, other = connection.Pipe()
        start = f"from gnnrp.distributed import worker; worker.main({other.fileno()})"
        paths = [path or os.getcwd() for path in sys.path]
        options = [f"-W{option}" for option in sys.warnoptions]
        self._process = subprocess.Popen(
            [sys.executable, "-P", *options, "-c", start],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            pass_fds=[other.fileno()],
            process_group=0,
        )
        other.close()
        self._pipe: Any = self._process.stdout
        self._output = bytearray()
        self._open, self._ended = True, False
        self.stopped_since: float | None = None

    def sources(self) -> list[Any]:
        """Return the pipes to wait for."""
        pipes = ((self._pipe, not self._pipe.closed), (self._link, self._open))
        return [pipe for pipe, is_open in pipes if is_open]

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
        self._pipe.close()
        return self._output.decode(errors="replace").strip()

    def _read(self) -> None:
        while not self._pipe.closed and connection.wait([self._pipe], 0):
            data = self._pipe.read(1 << 16)
            if not data:
                self._pipe.close()
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


class Supervisor:
    """A worker and the partners of this process."""

    def __init__(
        self,
        command: Any,
        hosts: Hosts | None,
        signals: list[int],
        progress: Callable[[str, int, int], None],
    ) -> None:
        """Listen for partners; start nothing yet."""
        self._command, self._seconds = command, command.partner_seconds
        self._hosts = hosts  # None if the worker has yet to find them
        self._signals = signals  # that this process has received; it grows
        self._progress = progress
        self._listener = _partners.listen(None) if hosts is None else None
        self._partners = Partners(hosts, self._seconds) if hosts else None
        self._worker: Worker | None = None
        self._reason: str | None = None  # of the end, for partners
        self._deadline = float("inf")  # for the worker
        self._interrupted = 0  # the signal
        self._fault: str | None = None  # of the worker, or caused by a partner
        self._result: Any = None
        self._has_result = self._finished = False

    def supervise(self) -> Any:
        """Wait for the result, and return it in the first process."""
        if self._partners is not None:
            self._meet(self._partners)
        port = self._listener.getsockname()[1] if self._listener else 0
        self._worker = worker = Worker()
        worker.send((sys.argv, self._command, self._hosts, port, self._seconds))
        if self._partners is None:
            self._deadline = time.monotonic() + 2 * self._seconds
        while not self._finished:
            sockets = self._partners.sockets() if self._partners else []
            connection.wait([*worker.sources(), *sockets], _partners.TICK)
            self._handle_signals()
            for kind, content in worker.poll():
                self._handle_worker(kind, content)
            if partners := self._partners:
                for event in [*partners.poll(), *partners.complete_events()]:
                    self._handle_partner(event)
            self._check_clock(worker)
        return self._result if self._is_first() else None

    def close(self, *, show_output: bool) -> None:
        """End the worker and all connections."""
        if self._partners is not None:
            self._partners.end(self._reason)
        if self._listener is not None:
            self._listener.close()
        if self._worker is not None:
            output = self._worker.close()
            for line in output.splitlines() if show_output else ():
                streams.print_line(line)

    def _is_first(self) -> bool:
        return self._hosts is not None and self._hosts.index == 0

    def _own_name(self) -> str:
        hosts = self._hosts
        return "a process" if hosts is None else hosts.name_of(hosts.index)

    def _meet(self, partners: Partners) -> None:
        """Wait for the others to start."""
        try:
            partners.meet(lambda: bool(self._signals))
        except PartnerError as error:
            self._reason = str(error)
            raise
        self._handle_signals()

    def _handle_signals(self) -> None:
        if self._signals and not self._interrupted:
            if self._partners is not None:
                self._partners.interrupt(self._signals[0])
            self._interrupt(self._signals[0])
        elif len(self._signals) > 1:  # the second one ends the run at once
            self._deadline = 0

    def _interrupt(self, number: int) -> None:
        """Let the worker write a checkpoint, if it does so in time."""
        if self._interrupted:
            return
        self._interrupted = number
        if self._worker is None:
            interrupts.stop(number)
        self._worker.interrupt()
        self._deadline = time.monotonic() + self._seconds

    def _handle_worker(self, kind: str, content: Any) -> None:
        """Act on a message of the worker."""
        if kind == "met":
            self._hosts, self._deadline = content, float("inf")
            listener = self._listener if self._is_first() else None
            self._partners = Partners(content, self._seconds, listener)
            self._meet(self._partners)
        elif kind == "gather" and self._partners is not None:
            self._partners.gather(content)
        elif kind == "progress" and self._is_first():
            self._progress(*content)
        elif kind == "line" and self._is_first():
            streams.print_line(content)
        elif kind == "result" and self._partners is not None:
            self._result, self._has_result = content, True
            self._partners.finish()
        elif kind == "interrupted":
            interrupts.stop(self._interrupted, content)
        elif self._interrupted and kind in {"failed", "gone"}:
            interrupts.stop(self._interrupted)
        elif kind == "disagreement":
            self._reason = content
            raise ValueError(content)
        elif kind in {"failed", "gone"} and not self._has_result and not self._fault:
            self._suspect(kind, content)

    def _suspect(self, kind: str, content: Any) -> None:
        """Note an error of the worker; its cause may yet come from a partner."""
        wait = _GRACE
        if kind == "gone":
            # A lost partner makes JAX abort, but kills nothing.
            wait = _WAITS.get(content.split()[-1], _SHORT_GRACE)
            self._blame_worker(content)
            if self._partners is None and "SIGABRT" in content:  # as JAX gives up
                self._fault = self._not_met()
        elif content[1]:  # of JAX's runtime
            self._blame_worker(f"failed ({content[0].splitlines()[0][:150]})")
        else:
            self._fault, wait = content[0], _SHORT_GRACE
            self._reason = f"{self._own_name()} stopped: {self._fault}"
        self._deadline = time.monotonic() + (wait if self._partners else 0)

    def _blame_worker(self, how: str) -> None:
        self._fault = self._reason = f"{self._own_name()} {how}; {AGAIN}"

    def _not_met(self) -> str:
        return (
            "the processes of this run did not meet in the time that --partner-seconds "
            f"allows ({self._seconds:g}); start all of them, or name the machines by "
            "--hosts A,B"
        )

    def _handle_partner(self, event: Event) -> None:
        """Act on a message of a partner."""
        if event.kind == "values" and self._worker is not None:
            self._worker.send(event.content)
        elif event.kind == "interrupt":
            self._interrupt(event.content)
        elif event.kind == "done" or (event.kind == "end" and self._has_result):
            self._finished = True
        elif event.kind == "end" and self._interrupted:
            self._deadline = min(self._deadline, time.monotonic() + _GRACE)
        elif event.kind == "end":
            self._reason = event.content
            raise PartnerError(event.content)

    def _check_clock(self, worker: Worker) -> None:
        """End the run if the worker has failed, or is stopped for too long."""
        now = time.monotonic()
        since = worker.stopped_since
        if since is not None and not self._fault and now - since > self._seconds:
            how = f"has been stopped for {self._seconds:g} s (--partner-seconds)"
            self._blame_worker(how)
            self._deadline = now
        if now < self._deadline:
            return
        if self._interrupted:
            interrupts.stop(self._interrupted)
        raise ValueError(self._fault or self._not_met())


@contextlib.contextmanager
def _collect_signals() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM, unless they are ignored."""
    received: list[int] = []
    usual = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                usual[number] = signal.signal(number, lambda n, _: received.append(n))
    try:
        yield received
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
