"""Ctrl-C and SIGTERM end a command at any moment, with one sentence and exit status.

A command is not unwound: an exception at an arbitrary moment may be swallowed by a
library, or crash the interpreter. In other programs Ctrl-C raises ``KeyboardInterrupt``
as usual, after a ``Delay``, and SIGTERM is not handled.

This module imports little, since nothing is handled before it is imported.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

PATIENCE = 5.0  # seconds for which a second signal to a command waits for a ``Delay``
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}

_cleanups: "list[Callable[[], object]]" = []
_usual: "dict[int, Any]" = {}  # handlers that a ``Delay`` has replaced
_pending: int | None = None  # signal that waits for the end of a ``Delay``
_since = 0.0
_last: int = signal.SIGINT
_ending = False


def install() -> None:
    """Let Ctrl-C and SIGTERM end this process, unless they are ignored."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    for number, default in usual.items():
        if signal.getsignal(number) in {default, _end}:
            signal.signal(number, _end)


class Delay:
    """Delay Ctrl-C, and SIGTERM in a command, until the end of a block.

    A second signal acts at once, in a command after ``PATIENCE`` seconds. Handlers of
    the caller stay, and threads other than the main one replace none.
    """

    def __init__(self) -> None:
        """Replace no handler yet."""
        self._replaced = False

    def __enter__(self) -> "Delay":
        """Replace the handlers, unless an outer block has."""
        global _pending
        if threading.current_thread() is threading.main_thread():
            if _note not in map(signal.getsignal, _WORDS):  # the outermost block
                _pending = None
            # SIGINT comes last: from then on, nothing is raised in here.
            for number in (signal.SIGTERM, signal.SIGINT):
                handler = signal.getsignal(number)
                if handler is _end or handler is signal.default_int_handler:
                    _usual[number] = handler
                    self._replaced = True
                    signal.signal(number, _note)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Restore the handlers, and act on a signal that came meanwhile."""
        number = self.release()
        stopped = kind is not None and issubclass(kind, KeyboardInterrupt)
        if number is not None and not stopped:
            _usual[number](number, None)

    def release(self) -> int | None:
        """Restore the handlers and return the signal that waits, if any."""
        global _pending
        if not self._replaced:
            return None
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is _note:
                signal.signal(number, _usual[number])
        self._replaced = False
        number, _pending = _pending, None
        return number


def pending() -> bool:
    """Return whether a signal waits for the end of a ``Delay`` of this thread."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and _pending is not None


@contextlib.contextmanager
def cleanup(function: "Callable[[], object]") -> "Iterator[None]":
    """Call a function if a signal ends the process within the block."""
    _cleanups.append(function)
    try:
        yield
    finally:
        _cleanups.remove(function)


def stop(number: int, checkpoint: str = "") -> "NoReturn":
    """Stop a command because of a signal that another handler received."""
    global _last
    _last = number
    raise KeyboardInterrupt(checkpoint)


def outcome(interruption: KeyboardInterrupt) -> tuple[str, int]:
    """Return sentence and exit status of a stopped command; ignore further signals."""
    global _ending
    _ending = True
    word, detail = _WORDS[signal.Signals(_last)], str(interruption)
    if detail:  # of a checkpoint
        word += f"{detail.removeprefix('interrupted')}; resume by --resume"
    return word, 128 + _last


def leave(status: int) -> "NoReturn":
    """End the process without Python's shutdown, which threads of XLA may crash."""
    if not _ending:
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # A stream that fails has been reported, or nobody reads it.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


def _end(number: int, _: object) -> None:
    """End the process: clean up, print one sentence, exit with 128 + number."""
    global _ending
    if _ending:
        return
    _ending = True
    for function in reversed(_cleanups):
        with contextlib.suppress(Exception):  # the process ends in any case
            function()
    with contextlib.suppress(OSError):
        # Not by `print`, which this may have interrupted.
        os.write(2, f"gnnrp: {_WORDS[signal.Signals(number)]}\n".encode())
    os._exit(128 + number)


def _note(number: int, frame: object) -> None:
    """Delay a signal to the end of the ``Delay``, unless it is an impatient second."""
    global _pending, _since, _last
    now = time.monotonic()
    if _pending is None:
        _pending, _since, _last = number, now, number
    elif _usual[number] is not _end or now - _since >= PATIENCE:
        _usual[number](number, frame)
