"""The command line, ``gnnrp``: flags to a command, its errors to one line."""

import contextlib
import io
import re
import sys
from collections.abc import Sequence
from importlib import metadata

import tyro

from gnnrp.commands import Command, streams


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    0: done; 2: bad flags or data, told in one line on standard error; 130: interrupted.

    Raises:
        ValueError: with --debug, as do the errors below.
        TypeError: see above.
        OSError: see above.
        MemoryError: see above.
        RuntimeError: see above; the device failed.
    """
    try:
        streams.prepare()
        if (sys.argv[1:] if arguments is None else list(arguments)) == ["--version"]:
            streams.show(f"gnnrp {metadata.version('gnnrp')}")
            return 0
        command = _parse(arguments)
    except (_UsageError, OSError) as error:
        streams.tell(f"gnnrp: {error}")
        return 2
    try:
        command.run()
    except KeyboardInterrupt as interruption:
        kept = str(interruption)
        told = f"{kept}; go on by --resume" if kept else "interrupted"
        streams.tell(f"gnnrp: {told}")
        return 130
    except (ValueError, TypeError, OSError, MemoryError, RuntimeError) as error:
        if command.debug:
            raise
        streams.tell(f"gnnrp: {_one_line(str(error) or repr(error))}")
        return 2
    return 0


class _UsageError(Exception):
    """Flags that cannot be read."""


def _parse(arguments: Sequence[str] | None) -> Command:
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), streams.printing():
            return tyro.cli(
                Command,  # pyright: ignore[reportArgumentType]
                prog="gnnrp",
                description="Residual propagation: a node classifier without weights.",
                args=arguments,
            )
        sys.exit(0)  # help, whose reader left
    except SystemExit as stop:
        if stop.code in {0, None}:
            raise
        raise _UsageError(_complaint(complaint.getvalue())) from None


def _complaint(box: str) -> str:
    """Return what a box of tyro says: neither its title nor its advice."""
    inside = box.splitlines()[1:]
    rules = [i for i, line in enumerate(inside) if re.match(r"[│|] ?[─-]{3}", line)]
    return _one_line("\n".join(inside[: rules[0] if rules else None]))


def _one_line(text: str) -> str:
    """Return the text without box drawing, in one line."""
    return " ".join(re.sub(r"[\u2500-\u257f]", " ", text).split())


if __name__ == "__main__":
    sys.exit(main())
