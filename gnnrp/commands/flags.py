"""Command-line arguments to a command, parsed by tyro; its errors on one line."""

import contextlib
import dataclasses
import importlib
import io
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated, Any, Union

import tyro

from gnnrp.commands.errors import UsageError
from gnnrp.runtime import interrupts, streams

COMMANDS = {
    "rp": "Run residual propagation and its baselines on one dataset.",
    "gntk": "Train infinitely wide GCNs by their tangent kernel, depth by depth.",
    "ntk": "Train a GCN and track its tangent kernel on many graphs.",
    "fit": "Classify the nodes of your own graph.",
    "partition": "Partition a graph for several devices or machines.",
    "datasets": "List the datasets, their files and their statistics.",
}


@dataclasses.dataclass(frozen=True)
class _Listed:
    """A command in the overview, whose module is not imported."""


def load(name: str) -> Any:
    """Import the class of a command, and its settings, but not JAX."""
    module = importlib.import_module(f"gnnrp.commands.{name}")
    return getattr(module, name.capitalize())


def parse(arguments: Sequence[str]) -> Any:
    """Return the command that the arguments describe; None after ``--version``."""
    name, *rest = arguments or [""]
    if [name, *rest] == ["--version"]:
        streams.show(f"gnnrp {metadata.version('gnnrp')}")
        return None
    if name == "--":
        msg = "the arguments must start with a command, got '--'; leave it out"
        raise UsageError(msg)
    if name in COMMANDS:
        return _parse(load(name), f"gnnrp {name}", rest)
    listed = [
        Annotated[_Listed, tyro.conf.subcommand(name, description=description)]
        for name, description in COMMANDS.items()
    ]
    about = "Residual propagation: a node classifier without weights."
    return _parse(Union[tuple(listed)], "gnnrp", arguments, about)  # noqa: UP007


def _parse(
    kind: Any, prog: str, arguments: Sequence[str], about: str | None = None
) -> Any:
    """Parse arguments by tyro; its help is printed whole, or not at all."""
    box = io.StringIO()
    try:
        with (
            contextlib.redirect_stderr(box),
            interrupts.Delay(),
            streams.output_errors(),
        ):
            return tyro.cli(kind, prog=prog, description=about, args=arguments)
    except SystemExit as stop:
        if stop.code in {0, None}:
            raise
        raise UsageError(_on_one_line(box.getvalue())) from None
    raise SystemExit(0)  # help, whose reader left


def _on_one_line(box: str) -> str:
    """Return the sections in an error box of tyro, without the frame."""
    sections = [""]
    for line in box.splitlines()[1:]:
        text = line.strip(" │|")
        if set(text) <= set("─-╰╯+"):
            sections.append("")
        else:
            sections[-1] += f" {text}"
    return "; ".join(text.strip(" .") for text in sections if text)
