"""Connections between the processes of one run: a star around the first of them.

Messages are lines of JSON. Every process sends a heartbeat now and then, which a
stopped partner does not. The first process collects values, passes on the reason of an
end, and reports when all are done.
"""

import contextlib
import json
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from gnnrp.runtime import safe_text

_LONGEST = 1 << 20  # bytes of a message
_LONGEST_REASON = 500  # characters
_TICK = 0.2  # seconds between two looks at signals and clocks
_FAREWELL = 2.0  # seconds for partners to read the last message
AGAIN = "start all processes again, with --resume if there is a --folder"


class Hosts(NamedTuple):
    """The machines of a run, one a process."""

    names: tuple[str, ...]
    index: int  # of this process
    port: int  # of the first machine, where all meet

    def named(self, index: int) -> str:
        """Return a process as it is named in a sentence."""
        return f"process {index} ({self.names[index][:80]})"

    @property
    def meeting_point(self) -> str:
        """The address of the first process."""
        return f"{self.names[0]}:{self.port}"


class PartnerError(ValueError):
    """A partner that is missing, silent, gone or different; the sentence names it."""


class Event(NamedTuple):
    """A message that concerns the whole run."""

    kind: str  # "values", "end", "interrupt" or "done"
    content: Any = None


class _Peer:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(5)  # of sending; a stopped partner reads nothing
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self.heard = time.monotonic()
        self.open = True
        self.done = False
        self._unread = b""

    def send(self, kind: str, content: Any = None) -> None:
        """Send a message; a broken connection shows when it is read."""
        line = json.dumps({"kind": kind, "content": content}).encode() + b"\n"
        with contextlib.suppress(OSError):
            self.socket.sendall(line)

    def read(self) -> list[Event]:
        """Return the messages that have come; close the connection at its end."""
        try:
            data = self.socket.recv(1 << 16)
        except TimeoutError:
            return []
        except OSError:
            data = b""
        *lines, self._unread = (self._unread + data).split(b"\n")
        found = [_event(line) for line in lines]
        if not data or None in found or len(self._unread) > _LONGEST:
            self.close()
        self.heard = time.monotonic()
        return [event for event in found if event is not None]

    def close(self) -> None:
        """Close the connection."""
        self.open = False
        self.socket.close()


class Partners:
    """The other processes of a run, as this one sees them."""

    def __init__(
        self, hosts: Hosts, seconds: float, listener: socket.socket | None = None
    ) -> None:
        """Listen, if this is the first process.

        Args:
            hosts: of the run.
            seconds: to wait for partners to start, and for a sign of life of each.
            listener: of the first process, if it is open already.

        Raises:
            PartnerError: the port is taken.
        """
        self.hosts, self._seconds = hosts, seconds
        self._peers: dict[int, _Peer] = {}
        self._strangers: list[_Peer] = []
        self._values: dict[int, Any] = {}
        self._done = False
        self._beaten = self._looked = time.monotonic()
        self._listener = listener
        if hosts.index == 0 and listener is None:
            self._listener = listen(hosts)

    def sockets(self) -> list[socket.socket]:
        """Return the sockets to wait for."""
        peers = [*self._peers.values(), *self._strangers]
        found = [peer.socket for peer in peers if peer.open]
        return found if self._listener is None else [*found, self._listener]

    def meet(self, stopped: Callable[[], bool]) -> None:
        """Wait until all processes are here, or until ``stopped`` is true.

        Raises:
            PartnerError: some of them do not come, or are of another run.
        """
        deadline = time.monotonic() + self._seconds
        if self.hosts.index > 0:
            self._reach(deadline, stopped)
        while not stopped() and not self._met(deadline):
            _wait(self.sockets(), _TICK)
            for event in self.poll():
                if event.kind == "end":
                    raise PartnerError(event.content)
                if event.kind == "met":
                    return
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._tell("met")

    def _met(self, deadline: float) -> bool:
        """Return whether all processes are here; the first one knows.

        Raises:
            PartnerError: it is too late.
        """
        if self.hosts.index > 0:
            return False
        missing = [i for i in range(1, len(self.hosts.names)) if i not in self._peers]
        if missing and time.monotonic() > deadline:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            names = ", ".join(map(self.hosts.named, missing[:3])) + more
            msg = (
                f"{names} did not reach {self.hosts.meeting_point} within "
                f"{self._seconds:g} s; start one process for each of --hosts, or "
                "raise --partner-seconds"
            )
            raise PartnerError(msg)
        return not missing

    def _reach(self, deadline: float, stopped: Callable[[], bool]) -> None:
        """Connect to the first process.

        Raises:
            PartnerError: it does not answer.
        """
        address, error = (self.hosts.names[0], self.hosts.port), None
        while not stopped():
            left = deadline - time.monotonic()
            if left <= 0:
                reason = getattr(error, "strerror", None) or error or "no answer"
                msg = (
                    f"{self.hosts.named(0)} cannot be reached at "
                    f"{self.hosts.meeting_point} within {self._seconds:g} s "
                    f"({reason}); check --hosts, or raise --partner-seconds"
                )
                raise PartnerError(msg)
            try:
                connection = socket.create_connection(address, timeout=min(left, 5))
            except OSError as failed:
                error = failed
                time.sleep(min(left, _TICK))
                continue
            self._peers[0] = _Peer(connection)
            hello = {"index": self.hosts.index, "hosts": list(self.hosts.names)}
            self._peers[0].send("hello", hello)
            return

    def poll(self) -> list[Event]:
        """Read messages, send heartbeats, and return events that concern the run.

        A partner that is gone or silent is an "end".
        """
        now = time.monotonic()
        paused = now - self._looked > self._seconds / 2  # this process was stopped
        self._looked, found = now, []
        ready = _wait(self.sockets(), 0)
        for index, peer in self._peers.items():
            if peer.open and peer.socket in ready:
                for event in peer.read():
                    found += self._understood(index, event)
                if not peer.open and not peer.done:
                    found.append(self._lost(index, "was killed or lost its connection"))
            elif paused:
                peer.heard = now
            elif peer.open and now - peer.heard > self._seconds:
                how = f"has been silent for {self._seconds:g} s (--partner-seconds)"
                peer.heard = now  # open still: once it runs again, it reads why
                found.append(self._lost(index, how))
        if now - self._beaten > min(1.0, self._seconds / 5):
            self._beaten = now
            self._tell("beat")
        return found + self._admitted(ready)

    def _admitted(self, ready: list[Any]) -> list[Event]:
        """Accept connections, and admit those of processes of this run."""
        now, found = time.monotonic(), []
        if self._listener is not None and self._listener in ready:
            with contextlib.suppress(OSError):
                self._strangers.append(_Peer(self._listener.accept()[0]))
        for stranger in list(self._strangers):
            if stranger.open and stranger.socket in ready:
                found += self._greeted(stranger)
        self._strangers = [
            each
            for each in self._strangers
            if each.open and now - each.heard < self._seconds
        ]
        return found

    def gather(self, value: Any) -> None:
        """Contribute a value; those of all processes come as the event "values"."""
        self._values[self.hosts.index] = value
        if self.hosts.index > 0:
            self._tell("value", value)

    def finish(self) -> None:
        """Report that this process is done; once all are, the event "done" comes."""
        self._done = True
        if self.hosts.index > 0:
            self._tell("done")

    def settled(self) -> list[Event]:
        """Return the events "values" and "done", if all processes contributed."""
        if self.hosts.index > 0:
            return []
        found, count = [], len(self.hosts.names)
        if len(self._values) == count:
            values = [self._values.pop(i) for i in range(count)]
            found.append(Event("values", values))
        if self._done and all(peer.done for peer in self._peers.values()):
            found.append(Event("done"))
        for event in found:
            self._tell(*event)
        return found

    def interrupt(self, number: int) -> None:
        """Pass a signal on."""
        self._tell("interrupt", number)

    def end(self, sentence: str | None) -> None:
        """Send the reason of the end, if any, and close all connections."""
        if sentence is not None:
            self._tell("end", sentence)
        peers = [each for each in self._peers.values() if each.open]
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.socket.shutdown(socket.SHUT_WR)
        # A connection that is closed with unread bytes loses the last message.
        deadline = time.monotonic() + _FAREWELL
        while any(peer.open for peer in peers) and time.monotonic() < deadline:
            ready = _wait([peer.socket for peer in peers if peer.open], _TICK)
            for peer in peers:
                if peer.open and peer.socket in ready:
                    peer.read()
        for peer in [*peers, *self._strangers]:
            peer.close()
        if self._listener is not None:
            self._listener.close()

    def _greeted(self, stranger: _Peer) -> list[Event]:
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
                f"process {index} has --hosts {others} and {self.hosts.named(0)} "
                f"{','.join(self.hosts.names)[:80]}; start all with the same"
            )
            stranger.send("end", msg)
            return [Event("end", msg)]
        elif index in self._peers:
            msg = f"{self.hosts.named(index)} runs already; give each its own --host"
            stranger.send("end", msg)
        else:
            self._peers[index] = stranger
            self._strangers.remove(stranger)
        return []

    def _understood(self, index: int, event: Event) -> list[Event]:
        """Act on a message; return it if it concerns the run."""
        kind, content = event
        if kind in {"end", "interrupt"}:
            if self.hosts.index == 0:
                self._tell(kind, content, besides=index)
            reason = content if type(content) is str else "the run ended"
            number = content if type(content) is int else 0
            reason = safe_text.line(reason, _LONGEST_REASON)
            return [Event(kind, reason if kind == "end" else number)]
        if self.hosts.index > 0 and kind in {"values", "met", "done"}:
            return [event]
        if kind == "value":
            self._values[index] = content
        elif kind == "done":
            self._peers[index].done = True
        return []

    def _lost(self, index: int, how: str) -> Event:
        return Event("end", f"{self.hosts.named(index)} {how}; {AGAIN}")

    def _tell(self, kind: str, content: Any = None, besides: int | None = None) -> None:
        for index, peer in self._peers.items():
            if peer.open and index != besides:
                peer.send(kind, content)


def listen(hosts: Hosts | None) -> socket.socket:
    """Return a socket that listens at the port of the hosts, or at a free one.

    Raises:
        PartnerError: the port is taken.
    """
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


def _wait(sockets: list[socket.socket], timeout: float) -> list[Any]:
    """Return the sockets that can be read, after at most ``timeout`` seconds."""
    from multiprocessing import connection

    return connection.wait(sockets, timeout)


def _event(line: bytes) -> Event | None:
    """Return a message, None if it is none."""
    try:
        found = json.loads(line)
        return Event(str(found["kind"]), found.get("content"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
