"""Standard streams that are closed, full, left by their reader, or not in UTF-8.

All text of a command passes through here: characters that a terminal would act on are
spelled, and messages are bounded.
"""

import codecs
import contextlib
import io
import os
import sys
import unicodedata
import warnings
from collections.abc import Iterator
from typing import Any

from gnnrp.runtime import interrupts, safe_text

_output: list[str] | None = None  # collected so far
_SPELLED = {"±": "+-", "→": "->", "²": "^2", "…": "..."}


def prepare() -> None:
    """Make all standard streams writable, in any encoding."""
    # A file opened later would take the number of a closed stream, and receive the
    # output of libraries.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        msg = "standard output is closed; send it to a file, or to /dev/null"
        raise OSError(msg)
    codecs.register_error("spelled", _spell)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not a caller's replacement
            stream.reconfigure(errors="spelled")


def show(text: str) -> None:
    """Print on standard output; within ``buffered_output``, at its end."""
    if _output is not None:
        _output.append(text)
        return
    # All or nothing, also when a signal comes in between.
    with interrupts.Delay(), output_errors():
        print(safe_text.escape(text))


@contextlib.contextmanager
def buffered_output() -> Iterator[None]:
    """Print the output of a command at its end, unless a signal stops it."""
    global _output
    _output = output = []
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        output.clear()
        raise
    finally:
        _output = None
        if output:
            show("\n".join(output))


@contextlib.contextmanager
def output_errors() -> Iterator[None]:
    """Turn output errors into one sentence; ignore a reader that closed the pipe."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        _discard(sys.stdout)  # otherwise it would fail once more at exit
        if isinstance(error, BrokenPipeError):
            return
        msg = f"standard output cannot be written ({error.strerror}); send it elsewhere"
        raise OSError(msg) from error


def print_line(text: str, limit: int = safe_text.LIMIT) -> None:
    """Print a line on standard error; ignore a failure."""
    try:
        print(safe_text.line(text, limit), file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


@contextlib.contextmanager
def warning_lines() -> Iterator[None]:
    """Print each user warning once, as a line on standard error without its source."""
    shown = set()

    def show_line(message: Any, category: Any, *where: Any, **kwargs: Any) -> None:
        if not issubclass(category, UserWarning):
            show_usual(message, category, *where, **kwargs)
        elif str(message) not in shown:
            shown.add(str(message))
            print_line(f"gnnrp: {message}")

    with warnings.catch_warnings():
        show_usual, warnings.showwarning = warnings.showwarning, show_line
        warnings.simplefilter("always", UserWarning)
        yield


def _discard(stream: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _spell(error: UnicodeError) -> tuple[str, int]:
    # Characters that an encoding lacks: η as eta, ± as +-.
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(map(_letter, missing)), error.end


def _letter(sign: str) -> str:
    *kind, name = unicodedata.name(sign, "?").split()
    if kind[:1] != ["GREEK"]:
        return _SPELLED.get(sign, "?")
    return name.lower() if "SMALL" in kind else name.title()
