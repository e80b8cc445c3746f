"""Connections between the processes of one run: a star around the first of them.

Messages are lines of JSON; every process sends heartbeats unless it is stopped. The
first one collects values, sends the reason of an end on, and reports when all are done.
"""

import contextlib
import json
import socket
import time
from collections.abc import Callable
from multiprocessing import connection
from typing import Any, NamedTuple

from gnnrp.runtime import safe_text

_LONGEST = 1 << 20  # bytes of a message
_LONGEST_REASON = 500  # characters
TICK = 0.2  # seconds between two checks of signals and clocks
_FAREWELL = 2.0  # seconds for partners to read the last message
AGAIN = "start all processes again, with --resume if there is a --folder"


class Hosts(NamedTuple):
    """The machines of a run, one a process."""

    names: tuple[str, ...]
    index: int  # of this process
    port: int  # of the first machine, where all meet

    def name_of(self, index: int) -> str:
        """Return the name of a process for a message."""
        return f"process {index} ({self.names[index][:80]})"

    @property
    def meeting_point(self) -> str:
        """The address of the first process."""
        return f"{self.names[0]}:{self.port}"


class PartnerError(ValueError):
    """A partner that is missing, silent, gone or different."""


class Event(NamedTuple):
    """A message that concerns the whole run."""

    kind: str  # "values", "end", "interrupt" or "done"
    content: Any = None


class _Peer:
    """One connection."""

    def __init__(self, opened: socket.socket) -> None:
        opened.settimeout(5)  # of sending; a stopped partner reads nothing
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self.heard = opened, time.monotonic()
        self.open, self.done = True, False
        self._unread = b""

    def send(self, kind: str, content: Any = None) -> None:
        """Send a message; a broken connection is detected when it is read."""
        line = json.dumps({"kind": kind, "content": content}).encode() + b"\n"
        with contextlib.suppress(OSError):
            self.socket.sendall(line)

    def read(self) -> list[Event]:
        """Return the messages received; close the connection at its end."""
        try:
            data = self.socket.recv(1 << 16)
        except TimeoutError:
            return []
        except OSError:
            data = b""
        *lines, self._unread = (self._unread + data).split(b"\n")
        events = [_parse(line) for line in lines]
        if not data or None in events or len(self._unread) > _LONGEST:
            self.close()
        self.heard = time.monotonic()
        return [event for event in events if event is not None]

    def close(self) -> None:
        """Close the connection."""
        self.open = False
        self.socket.close()


class Partners:
    """Connections to the other processes of a run."""

    def __init__(
        self, hosts: Hosts, seconds: float, listener: socket.socket | None = None
    ) -> None:
        """Listen, if this is the first process and has no open listener yet."""
        self.hosts = hosts
        self._seconds = seconds  # to wait for a start, and for a message of a partner
        self._peers: dict[int, _Peer] = {}
        self._strangers: list[_Peer] = []
        self._values: dict[int, Any] = {}
        self._done = False
        self._beat = self._polled = time.monotonic()
        is_first = hosts.index == 0
        self._listener = listen(hosts) if is_first and listener is None else listener

    def sockets(self) -> list[socket.socket]:
        """Return the sockets to wait for."""
        peers = [*self._peers.values(), *self._strangers]
        listener = [] if self._listener is None else [self._listener]
        return [*(peer.socket for peer in peers if peer.open), *listener]

    def meet(self, stopped: Callable[[], bool]) -> None:
        """Wait until all processes have connected, or until ``stopped`` is true."""
        deadline = time.monotonic() + self._seconds
        if self.hosts.index > 0:
            self._reach(deadline, stopped)
        while not stopped() and not self._is_complete(deadline):
            connection.wait(self.sockets(), TICK)
            for event in self.poll():
                if event.kind == "end":
                    raise PartnerError(event.content)
                if event.kind == "met":
                    return
        self._close_listener()
        self._send("met")

    def _is_complete(self, deadline: float) -> bool:
        # Only the first process knows.
        if self.hosts.index > 0:
            return False
        missing = [i for i in range(1, len(self.hosts.names)) if i not in self._peers]
        if missing and time.monotonic() > deadline:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            names = ", ".join(map(self.hosts.name_of, missing[:3])) + more
            msg = (
                f"{names} did not reach {self.hosts.meeting_point} within "
                f"{self._seconds:g} s; start one process for each of --hosts, or "
                "raise --partner-seconds"
            )
            raise PartnerError(msg)
        return not missing

    def _reach(self, deadline: float, stopped: Callable[[], bool]) -> None:
        # Connect to the first process.
        address, reason = (self.hosts.names[0], self.hosts.port), "no answer"
        while not stopped():
            left = deadline - time.monotonic()
            if left <= 0:
                msg = (
                    f"{self.hosts.name_of(0)} cannot be reached at "
                    f"{self.hosts.meeting_point} within {self._seconds:g} s "
                    f"({reason}); check --hosts, or raise --partner-seconds"
                )
                raise PartnerError(msg)
            try:
                opened = socket.create_connection(address, timeout=min(left, 5))
            except OSError as error:
                reason = error.strerror or str(error)
                time.sleep(min(left, TICK))
                continue
            self._peers[0] = _Peer(opened)
            hello = {"index": self.hosts.index, "hosts": list(self.hosts.names)}
            self._peers[0].send("hello", hello)
            return

    def poll(self) -> list[Event]:
        """Read messages, send heartbeats, return events; a lost partner is an "end"."""
        now = time.monotonic()
        paused = now - self._polled > self._seconds / 2  # this process was stopped
        self._polled, events = now, []
        ready = connection.wait(self.sockets(), 0)
        for index, peer in self._peers.items():
            if peer.open and peer.socket in ready:
                for event in peer.read():
                    events += self._interpret(index, event)
                if not peer.open and not peer.done:
                    events.append(self._end(index, "was killed or lost its connection"))
            elif paused:
                peer.heard = now
            elif peer.open and now - peer.heard > self._seconds:
                how = f"has been silent for {self._seconds:g} s (--partner-seconds)"
                peer.heard = now  # still open: once it runs again, it reads the reason
                events.append(self._end(index, how))
        if now - self._beat > min(1.0, self._seconds / 5):
            self._beat = now
            self._send("beat")
        return events + self._accept(ready)

    def _accept(self, ready: list[Any]) -> list[Event]:
        """Accept connections, and admit those of processes of this run."""
        now, events = time.monotonic(), []
        if self._listener is not None and self._listener in ready:
            with contextlib.suppress(OSError):
                self._strangers.append(_Peer(self._listener.accept()[0]))
        for stranger in list(self._strangers):
            if stranger.open and stranger.socket in ready:
                events += self._admit(stranger)
        recent = [x for x in self._strangers if now - x.heard < self._seconds]
        self._strangers = [each for each in recent if each.open]
        return events

    def gather(self, value: Any) -> None:
        """Send a value; the event "values" has those of all processes."""
        self._values[self.hosts.index] = value
        if self.hosts.index > 0:
            self._send("value", value)

    def finish(self) -> None:
        """Report that this process is done; the event "done" follows once all are."""
        self._done = True
        if self.hosts.index > 0:
            self._send("done")

    def complete_events(self) -> list[Event]:
        """Return the events "values" and "done", if all processes have reported."""
        if self.hosts.index > 0:
            return []
        events, count = [], len(self.hosts.names)
        if len(self._values) == count:
            events.append(Event("values", [self._values.pop(i) for i in range(count)]))
        if self._done and all(peer.done for peer in self._peers.values()):
            events.append(Event("done"))
        for event in events:
            self._send(*event)
        return events

    def interrupt(self, number: int) -> None:
        """Pass a signal on."""
        self._send("interrupt", number)

    def end(self, sentence: str | None) -> None:
        """Send the reason of the end, if any, and close all connections."""
        if sentence is not None:
            self._send("end", sentence)
        peers = [each for each in self._peers.values() if each.open]
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.socket.shutdown(socket.SHUT_WR)
        # A connection that is closed with unread bytes loses the last message.
        deadline = time.monotonic() + _FAREWELL
        while any(peer.open for peer in peers) and time.monotonic() < deadline:
            unclosed: dict[Any, _Peer] = {x.socket: x for x in peers if x.open}
            for ready in connection.wait(list(unclosed), TICK):
                unclosed[ready].read()
        for peer in [*peers, *self._strangers]:
            peer.close()
        self._close_listener()

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _admit(self, stranger: _Peer) -> list[Event]:
        """Admit a process of this run; refuse others."""
        hello = next(iter(stranger.read()), None)
        if hello is None:
            return []
        content = hello.content if isinstance(hello.content, dict) else {}
        index, hosts = content.get("index"), content.get("hosts")
        count = len(self.hosts.names)
        if hello.kind != "hello" or type(index) is not int:
            stranger.close()
        elif hosts != list(self.hosts.names) or not 0 < index < count:
            others = ",".join(map(str, hosts)) if isinstance(hosts, list) else "none"
            others = safe_text.line(others, 80)
            msg = (
                f"process {index} has --hosts {others} and {self.hosts.name_of(0)} "
                f"{','.join(self.hosts.names)[:80]}; start all with the same"
            )
            stranger.send("end", msg)
            return [Event("end", msg)]
        elif index in self._peers:
            msg = f"{self.hosts.name_of(index)} runs already; give each its own --host"
            stranger.send("end", msg)
        else:
            self._peers[index] = stranger
            self._strangers.remove(stranger)
        return []

    def _interpret(self, index: int, event: Event) -> list[Event]:
        """Act on a message; return it if it concerns the run."""
        kind, content = event
        if kind in {"end", "interrupt"} and self.hosts.index == 0:
            self._send(kind, content, besides=index)
        if kind == "end":
            reason = content if type(content) is str else "the run ended"
            return [Event(kind, safe_text.line(reason, _LONGEST_REASON))]
        if kind == "interrupt":
            return [Event(kind, content if type(content) is int else 0)]
        if self.hosts.index > 0 and kind in {"values", "met", "done"}:
            return [event]
        if kind == "value":
            self._values[index] = content
        elif kind == "done":
            self._peers[index].done = True
        return []

    def _end(self, index: int, how: str) -> Event:
        return Event("end", f"{self.hosts.name_of(index)} {how}; {AGAIN}")

    def _send(self, kind: str, content: Any = None, besides: int | None = None) -> None:
        for index, peer in self._peers.items():
            if peer.open and index != besides:
                peer.send(kind, content)


def listen(hosts: Hosts | None) -> socket.socket:
    """Return a socket that listens on the port of the hosts, or on a free one."""
    port = 0 if hosts is None else hosts.port
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        msg = (
            f"port {port} of this machine cannot be used ({error.strerror or error}); "
            "end the other run, or name another port by --hosts NAME:PORT,..."
        )
        raise PartnerError(msg) from error


def _parse(line: bytes) -> Event | None:
    # None if the line is not a message.
    try:
        message = json.loads(line)
        return Event(str(message["kind"]), message.get("content"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
