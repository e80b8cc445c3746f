"""Foreign text for a terminal: escaped, on one line, of bounded length."""

import contextlib
import logging
import re
import threading
from collections.abc import Iterator

LIMIT = 300
"""Characters of a message."""

# Control characters (C0 but for the newline, C1), invisible and bidirectional marks,
# separators of lines and halves of surrogate pairs: terminals act on the first, and
# text that contains the others does not read as it is written.
_UNSAFE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def escape(text: str) -> str:
    r"""Spell unsafe characters as ``\u001b``, which JSON reads too; keep newlines."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shorten(text: str, limit: int = LIMIT) -> str:
    """Cut a text in its middle: the remedy at its end stays."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 5]} ... {text[-tail:]}"


def line(text: str, limit: int = LIMIT) -> str:
    """Return a message on one line of bounded length, without unsafe characters."""
    text = shorten(text, 20 * limit)  # before megabytes are split into lines
    text = " ".join(part.strip() for part in text.splitlines())
    return shorten(escape(text), limit)


class _Below(logging.Filter):
    """Drop the records of a logger below a level, while any thread needs it."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self.level, self.users, self.lock = level, 0, threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        return not self.users or record.levelno >= self.level


_FILTERS: dict[tuple[str, int], _Below] = {}
_LOCK = threading.Lock()


@contextlib.contextmanager
def silence(logger: logging.Logger, level: int = logging.CRITICAL) -> Iterator[None]:
    """Hide the records of a logger below a level.

    The level of the logger does not change: two threads that change and restore it
    might leave it at the wrong one.
    """
    with _LOCK:
        found = _FILTERS.setdefault((logger.name, level), _Below(level))
        logger.addFilter(found)  # no effect if it is there
    with found.lock:
        found.users += 1
    try:
        yield
    finally:
        with found.lock:
            found.users -= 1
