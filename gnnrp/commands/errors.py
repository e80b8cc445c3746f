"""Sentences and exit statuses of the errors of a command."""

import logging
import sys
import threading
import traceback
import warnings

from gnnrp.runtime import streams

BAD_INPUT, UNEXPECTED = 2, 1
_EXPECTED = (ValueError, TypeError, OSError, RuntimeError)  # of the package itself


class UsageError(Exception):
    """An unknown command or flag, or an invalid value."""


def sentence(error: Exception) -> tuple[str, int]:
    """Return the sentence and the exit status of an error."""
    if isinstance(error, MemoryError):
        reason = str(error).strip() or "no more could be allocated"
        return (
            f"not enough memory ({reason}); choose a smaller dataset or smaller "
            "settings, or set --max-memory to refuse too large ones at once"
        ), BAD_INPUT
    if isinstance(error, AssertionError) and "jax" in sys.modules:
        from gnnrp.commands import _shared

        try:  # JAX asserts that there is a device, without a reason
            _shared.check_device()
        except ValueError as cause:
            return str(cause), BAD_INPUT
    text = str(error).strip()
    if text and isinstance(error, (UsageError, *_EXPECTED)):
        return text, BAD_INPUT
    name = type(error).__name__
    return (
        f"unexpected error ({f'{name}: {text}' if text else name}); --debug shows the "
        "traceback"
    ), UNEXPECTED


def silence_threads() -> None:
    """Drop tracebacks of threads and callbacks; their errors reach the command too."""
    sys.excepthook = sys.unraisablehook = threading.excepthook = lambda *_: None
    logger = logging.getLogger("asyncio")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    warnings.showwarning = lambda message, *_, **__: streams.print_line(
        f"gnnrp: {message}"
    )


def show_traceback() -> int:
    """Print the traceback of the current error, for --debug; return the exit status."""
    traceback.print_exc()
    return UNEXPECTED
