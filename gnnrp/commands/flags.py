"""Flags to a command, and wrong ones to one sentence."""

import contextlib
import dataclasses
import difflib
import io
import re
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated, Any

import tyro

from gnnrp.commands.datasets import Datasets
from gnnrp.commands.errors import UsageError
from gnnrp.commands.gntk import Gntk
from gnnrp.commands.ntk import Ntk
from gnnrp.commands.partition import Partition
from gnnrp.commands.rp import Rp
from gnnrp.runtime import interrupts, streams

COMMANDS = {
    "rp": Rp,
    "gntk": Gntk,
    "ntk": Ntk,
    "partition": Partition,
    "datasets": Datasets,
}
Command = (
    Annotated[Rp, tyro.conf.subcommand("rp")]
    | Annotated[Gntk, tyro.conf.subcommand("gntk")]
    | Annotated[Ntk, tyro.conf.subcommand("ntk")]
    | Annotated[Partition, tyro.conf.subcommand("partition")]
    | Annotated[Datasets, tyro.conf.subcommand("datasets")]
)

_PLAIN = {
    "invalid literal for int() with base 10: ": "it takes a whole number, got ",
    "could not convert string to float: ": "it takes a number, got ",
    "Could not find valid parse for arguments: ": "it takes whole numbers, got ",
}
"""Messages of Python and tyro about values, in plainer words."""


def parse(arguments: Sequence[str]) -> Command | None:
    """Return the command that the arguments describe; None after the version.

    Raises:
        UsageError: flags that no command has, or values that they do not take.
        OSError: the version or the help cannot be printed.
        SystemExit: after the help.
    """
    if list(arguments) == ["--version"]:
        streams.show(f"gnnrp {metadata.version('gnnrp')}")
        return None
    complaint = io.StringIO()
    try:
        # Help is printed whole, or not at all.
        with (
            contextlib.redirect_stderr(complaint),
            interrupts.Held(),
            streams.printing(),
        ):
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
        reason = _unknown(arguments) or _complaint(complaint.getvalue())
        raise UsageError(reason) from None


def _unknown(arguments: Sequence[str]) -> str | None:
    """Return the error of an unknown command or flag, or None."""
    if not arguments or arguments[0].startswith("-"):
        return f"name a command first: {', '.join(COMMANDS)}; see gnnrp --help"
    from gnnrp.runtime import (
        checks,  # it takes numpy, which help and version do not need
    )

    own = arguments[0]
    try:
        checks.one_of("the command", own, COMMANDS)
    except ValueError as error:
        return str(error)
    flags = {name: _flags(command) for name, command in COMMANDS.items()}
    for argument in arguments[1:]:
        flag = argument.partition("=")[0].replace("_", "-")
        if not re.match(r"--[a-z]", flag) or flag in flags[own]:
            continue
        owners = [name for name in COMMANDS if flag in flags[name]]
        near = difflib.get_close_matches(flag, flags[own], n=1)
        hint = f"see gnnrp {own} --help"
        if owners:
            hint = f"it is a flag of {', '.join(owners)}"
        elif near:
            hint = f"did you mean {near[0]}?"
        return f"{own} has no {flag}; {hint}"
    return None


def _flags(command: Any) -> set[str]:
    """Return the flags of a command; what is true or false has two."""
    found = {"--help"}
    for field in dataclasses.fields(command):
        name = field.name.replace("_", "-")
        found |= {f"--{name}", f"--no-{name}"} if field.type is bool else {f"--{name}"}
    return found


def _complaint(box: str) -> str:
    """Return the message in a box of tyro, without its title and its advice."""
    from gnnrp.runtime import checks

    inside = [""]  # the parts between its rules
    for line in box.splitlines()[1:]:
        if re.match(r"[ │|]*[─-]{3}", line):
            inside.append("")
        else:
            inside[-1] += f"{line}\n"
    text = next(filter(None, map(_without_rules, inside)), "")
    if choice := re.match(r"invalid choice '(.*)' for .*'(--.*)'\. .*\((.*)\)", text):
        value, flag, allowed = choice.groups()
        try:
            checks.one_of(flag, value, re.findall(r"'(.*?)'", allowed))
        except ValueError as error:
            return str(error)
    for words, plain in _PLAIN.items():
        text = text.replace(words, plain)
    return text


def _without_rules(text: str) -> str:
    """Return a text in one line, without the lines that tyro draws."""
    return " ".join(re.sub(r"[\u2500-\u257f]", " ", text).split())
