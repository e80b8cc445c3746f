"""Processes of one run meet, agree, and learn of each other's end."""

import json
import socket
import threading
import time
import types
from typing import Any

import pytest

from gnnrp.distributed import _partners, multihost, supervision
from gnnrp.distributed._partners import Event, Hosts, PartnerError, Partners

NAMES = ("127.0.0.1", "localhost", "127.0.0.1")


def never():
    return False


def until(partners, kind, seconds=20.0):
    """Return the content of the next event of a kind, while all stay alive."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for event in [*partners.poll(), *partners.complete_events()]:
            if event.kind == kind:
                return event.content
        time.sleep(0.01)
    return pytest.fail(f"no {kind}")


@pytest.fixture
def port():
    return multihost.free_port()


def opened(port, count=3, seconds=30.0, first=NAMES):
    """Return the partners of each process, before they meet."""
    names = first[:count]
    return [Partners(Hosts(names, i, port), seconds) for i in range(count)]


def meet(every):
    """Let processes meet, and return the errors of those that do not."""
    errors = {}

    def one(i):
        try:
            every[i].meet(never)
        except PartnerError as error:
            errors[i] = str(error)
            every[i].end(str(error) if i == 0 else None)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(every))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.fixture
def three(port):
    every = opened(port)
    assert meet(every) == {}
    yield every
    close(every)


def together(every, work):
    """Do some work for each of several processes at once; return what comes out."""
    found = [None] * len(every)

    def one(i):
        found[i] = work(every[i])

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(every))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def close(every):
    """Close all connections at once, since each waits for the others."""
    together(every, lambda partners: partners.end(None))


def test_all_processes_get_the_values_of_all(three):
    for power in (2, 3):

        def gathered(partners, power=power):
            partners.gather({"index": partners.hosts.index, "power": power})
            return until(partners, "values")

        expected = [{"index": i, "power": power} for i in range(3)]
        assert together(three, gathered) == [expected] * 3


def test_all_processes_are_done_when_the_last_one_is(three):
    three[1].finish()
    three[0].finish()
    for _ in range(20):
        assert [*three[0].poll(), *three[0].complete_events(), *three[1].poll()] == []
        time.sleep(0.01)
    three[2].finish()
    assert together(three, lambda partners: until(partners, "done")) == [None] * 3


@pytest.mark.parametrize("index", [0, 1])
def test_the_reason_of_an_end_reaches_all_processes(three, index):
    others = [each for each in three if each is not three[index]]
    ended = threading.Thread(target=three[index].end, args=("the disk is full",))
    ended.start()
    reasons = together(others, lambda partners: until(partners, "end"))
    ended.join()
    assert reasons == ["the disk is full"] * 2


def test_control_characters_of_a_partner_do_not_reach_the_terminal(three):
    ended = threading.Thread(target=three[1].end, args=("\x1b[2Jfull\nx" + "y" * 999,))
    ended.start()
    reason = until(three[0], "end")
    close([three[0], three[2]])
    ended.join()
    assert reason.startswith(r"\u001b[2Jfull xyyy")
    assert len(reason) == 500


def test_an_interrupt_reaches_all_processes(three):
    three[2].interrupt(15)
    assert (
        together(three[:2], lambda partners: until(partners, "interrupt")) == [15] * 2
    )


@pytest.mark.parametrize(("index", "witness"), [(0, 2), (2, 0)])
def test_a_connection_that_breaks_names_the_process(three, index, witness):
    for peer in three[index]._peers.values():
        peer.close()
    told = until(three[witness], "end")
    assert told.startswith(f"process {index} (127.0.0.1) was killed or lost its conn")


def test_a_silent_process_is_named(port):
    every = opened(port, 2, seconds=1.0)
    assert meet(every) == {}
    told = until(every[0], "end")
    assert told.startswith("process 1 (localhost) has been silent for 1 s (--partner-s")
    ended = threading.Thread(target=every[0].end, args=(told,))
    ended.start()
    assert until(every[1], "end") == told  # it learns why, once it runs again
    every[1].end(None)
    ended.join()
    close(every)


def test_a_process_that_was_stopped_does_not_blame_the_others(port):
    every = opened(port, 2, seconds=1.0)
    assert meet(every) == {}
    time.sleep(1.5)
    assert every[0].poll() == []
    close(every)


@pytest.mark.parametrize("hosts", [["127.0.0.1", "elsewhere"], "x", None])
def test_a_process_with_other_hosts_ends_all(port, hosts):
    first = Partners(Hosts(("127.0.0.1", "b"), 0, port), 10)
    with socket.create_connection(("127.0.0.1", port)) as other:
        hello = {"kind": "hello", "content": {"index": 1, "hosts": hosts}}
        other.sendall(json.dumps(hello).encode() + b"\n")
        with pytest.raises(
            PartnerError, match=r"process 1 has --hosts .* start all wi"
        ):
            first.meet(never)
        assert b'"end"' in other.recv(1000)
        first.end(None)


def test_a_second_process_of_one_index_is_refused(port):
    first, second = opened(port, 2)
    thread = threading.Thread(target=second.meet, args=(never,))
    thread.start()
    assert first.meet(never) is None
    thread.join()
    three = [Partners(Hosts(NAMES, i, multihost.free_port()), 3) for i in (0,)]
    twin = [Partners(Hosts(NAMES, 1, three[0].hosts.port), 3) for _ in range(2)]
    errors = meet([*three, *twin])
    told = sorted(errors.values())
    assert "process 1 (localhost) runs already; give each its own --host" in told
    assert any(
        "process 2 (127.0.0.1) did not reach 127.0.0.1:" in each for each in told
    )
    close([first, second, *three, *twin])


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\xff" * 100 + b"\n",
        b"[" * 100_000 + b"\n",
        b'{"kind": "hello"}\n',
        b'{"kind": "hello", "content": {"index": true}}\n',
        b'{"kind": "end", "content": "stop"}\n',
        b"x" * (3 << 20),
        b"",
    ],
    ids=["http", "bytes", "nested", "empty hello", "boolean", "end", "long", "silent"],
)
def test_strangers_do_not_disturb_a_meeting(port, noise):
    every = opened(port, 2)
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        sent = threading.Thread(target=_send, args=(stranger, noise))
        sent.start()
        assert meet(every) == {}
        close(every)
        sent.join()


def _send(stranger, noise):
    try:
        stranger.sendall(noise)
    except OSError:
        return  # the connection was closed, as it should be


def test_missing_processes_are_named_at_once(port):
    names = tuple(f"host{i}" for i in range(9))
    first = Partners(Hosts(names, 0, port), 0.2)
    with pytest.raises(
        PartnerError, match=r"process 1 \(host1\), .*\), process 3 \(h"
    ) as told:
        first.meet(never)
    assert " and 5 more did not reach host0:" in str(told.value)
    first.end(None)
    last = Partners(Hosts(("no.such.name.invalid", "b"), 1, port), 0.2)
    with pytest.raises(
        PartnerError, match=r"process 0 \(no.such.name.invalid\) cannot"
    ):
        last.meet(never)


def test_a_port_that_is_taken_is_named(port):
    with (
        socket.create_server(("", port)),
        pytest.raises(
            PartnerError, match=f"port {port} of this machine cannot be used"
        ),
    ):
        _partners.listen(Hosts(("a",), 0, port))


def test_a_single_process_meets_nobody(port):
    alone = Partners(Hosts(("a",), 0, port), 5)
    alone.meet(never)
    alone.gather(3)
    assert alone.complete_events() == [Event("values", [3])]
    alone.finish()
    assert alone.complete_events() == [Event("done")]
    alone.end(None)


def test_the_first_difference_between_settings_is_named():
    hosts = Hosts(("a", "b", "c"), 0, 1)
    same = {"power": 2, "alpha": 1.0}
    assert multihost.difference([same, dict(same), dict(same)], hosts) is None
    told = multihost.difference([same, dict(same), same | {"alpha": 0.5}], hosts)
    assert told == (
        "alpha is 0.5 in process 2 (c) and 1.0 in process 0 (a); start all processes "
        "with the same"
    )


def test_every_line_that_a_worker_printed_is_shown(capsys):
    command = types.SimpleNamespace(partner_seconds=1)
    supervisor = supervision.Supervisor(command, None, [], lambda *_: None)
    lines = [f"line {i} of a traceback" for i in range(30)]
    worker: Any = types.SimpleNamespace(close=lambda: "\n".join(lines))
    supervisor._worker = worker
    supervisor.close(show_output=True)
    assert capsys.readouterr().err.splitlines() == lines


def test_a_folder_is_shared_if_its_new_file_is_seen(tmp_path):
    shared = multihost.SharedFolder(tmp_path / "run")
    token = shared.offer()
    assert multihost.SharedFolder(tmp_path / "run").sees(token, 0)
    assert not multihost.SharedFolder(tmp_path / "other").sees(token, 0)
    shared.withdraw()
    assert not shared.sees(token, 0)
    assert list((tmp_path / "run").iterdir()) == []
