"""Sentences and exit statuses of the errors of a command."""

import logging
import sys
import threading
import traceback
import warnings

from gnnrp.runtime import streams

BAD_INPUT, UNEXPECTED = 2, 1
_JAX_MEMORY = "RESOURCE_EXHAUSTED: "
_EXPECTED = (ValueError, TypeError, OSError, RuntimeError)  # of the package itself


class UsageError(Exception):
    """An unknown command or flag, or an invalid value."""


def sentence(error: Exception) -> tuple[str, int]:
    """Return the sentence and the exit status of an error."""
    text = str(error).strip()
    if isinstance(error, MemoryError) or text.startswith(_JAX_MEMORY):
        reason = text.removeprefix(_JAX_MEMORY).partition("\n")[0].rstrip(".")
        return (
            f"not enough memory ({reason or 'no more could be allocated'}); choose a "
            "smaller dataset or smaller settings"
        ), BAD_INPUT
    if isinstance(error, AssertionError) and "jax" in sys.modules:
        from gnnrp.commands import _shared

        try:  # JAX asserts that there is a device, without a reason
            _shared.check_device()
        except ValueError as cause:
            return str(cause), BAD_INPUT
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
