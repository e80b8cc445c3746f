"""The command line; imports little before ``run`` handles Ctrl-C and SIGTERM."""

from gnnrp.runtime import interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def run() -> "NoReturn":
    """Run the command line of this process, and exit with its status.

    Ctrl-C (130) and SIGTERM (143) end it at any moment, with one sentence on standard
    error; standard output is empty or complete.
    """
    import sys

    interrupts.install()
    from gnnrp.commands import errors

    errors.silence_threads()
    try:
        status = main(sys.argv[1:])
    except SystemExit as stop:  # after help
        status = stop.code if isinstance(stop.code, int) else 0
    except Exception:
        status = errors.show_traceback()
    interrupts.leave(status)


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run a command line and return the exit status.

    Args:
        arguments: of the command line; None: those of this process, which then exits.

    Returns:
        0: success; 1: an unexpected error; 2: invalid flags or data; 130: interrupted;
        143: terminated. All but the first print one sentence on standard error.

    Raises:
        Exception: any error, with --debug.
    """
    if arguments is None:
        run()
    from contextlib import nullcontext

    from gnnrp.commands import compilation_cache, errors, flags
    from gnnrp.runtime import safe_text, streams

    debug, limit = False, safe_text.LIMIT
    try:
        streams.prepare()
        command = flags.parse(arguments)
        if command is None:  # the version was printed
            return 0
        debug = command.debug
        uses_cache = getattr(command, "compilation_cache", False)
        cache = compilation_cache.use() if uses_cache else nullcontext()
        with streams.warning_lines(), streams.buffered_output(), cache:
            command.run()
    except KeyboardInterrupt as interruption:
        sentence, status = interrupts.outcome(interruption)
    except Exception as error:
        if debug:
            raise
        sentence, status = errors.sentence(error)
        limit = getattr(error, "message_limit", limit)
    else:
        return 0
    streams.print_line(f"gnnrp: {sentence}", limit)
    return status


if __name__ == "__main__":
    run()
