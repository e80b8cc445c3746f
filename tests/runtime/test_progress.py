"""Progress is a bar on a terminal, else lines: steps, their rate, remaining time."""

import io
import re

import pytest

from gnnrp.runtime import progress


class Stream(io.StringIO):
    def __init__(self, *, terminal):
        super().__init__()
        self.isatty = lambda: terminal


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def stream(monkeypatch, *, terminal):
    found = Stream(terminal=terminal)
    monkeypatch.setattr("sys.stderr", found)
    return found


def test_lines_begin_after_two_seconds_and_come_every_ten(monkeypatch, clock):
    found = stream(monkeypatch, terminal=False)
    with progress.Bar(quiet=False) as bar:
        for done in range(0, 26):
            bar("steps", 2 * done, 1000)
            clock[0] += 1
    lines = found.getvalue().splitlines()
    assert [int(re.search(r"steps: (\d+) of", line)[1]) for line in lines] == [
        4,
        24,
        44,
    ]
    assert lines[1] == "steps: 24 of 1000,  2.00 steps/s, 08:08 left"


def test_each_thing_has_its_own_rate_from_where_it_began(monkeypatch, clock):
    found = stream(monkeypatch, terminal=False)
    with progress.Bar(quiet=False) as bar:
        bar("first", 0, 10)
        clock[0] += 50
        bar("second", 500, 1000)  # its rate is not known yet
        clock[0] += 50
        bar("second", 600, 1000)
    assert found.getvalue() == "second: 600 of 1000,  2.00 steps/s, 03:20 left\n"


def test_a_terminal_has_a_bar_that_goes_away(monkeypatch):
    found = stream(monkeypatch, terminal=True)
    with progress.Bar(quiet=False) as bar:
        bar("steps", 0, 10)
        bar("steps", 5, 10)
        bar("others", 1, 4)
    assert "steps:" in found.getvalue()
    assert "others:" in found.getvalue()
    assert found.getvalue().rsplit("\r", 2)[-2].strip() == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet_is_silent(monkeypatch, clock, terminal):
    found = stream(monkeypatch, terminal=terminal)
    with progress.Bar(quiet=True) as bar:
        bar("steps", 0, 10)
        clock[0] += 60
        bar("steps", 5, 10)
    assert found.getvalue() == ""
