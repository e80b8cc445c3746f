"""Foreign text for a terminal: escaped, on one line, of bounded length."""

import contextlib
import logging
import re
import threading
from collections import Counter
from collections.abc import Iterator

LIMIT = 300  # characters of a message

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


_SILENT: Counter[str] = Counter()  # loggers, with the number of their users
_LOCK = threading.Lock()


def _is_shown(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.CRITICAL or not _SILENT[record.name]


@contextlib.contextmanager
def silence(logger: logging.Logger) -> Iterator[None]:
    """Hide the records of a logger below the critical ones."""
    # Two threads that change and restore its level might leave it at the wrong one.
    with _LOCK:
        logger.addFilter(_is_shown)  # no effect if it is there
        _SILENT[logger.name] += 1
    try:
        yield
    finally:
        with _LOCK:
            _SILENT[logger.name] -= 1
