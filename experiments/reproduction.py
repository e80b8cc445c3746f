"""What the paper's tables and figures share: flags, a record, figures, a bar."""

import dataclasses
import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import tyro
from matplotlib.figure import Figure

from gnnrp import datasets, plotting, records
from gnnrp.commands import _shared

Progress = Callable[[str, int, int], None]
"""(what, done, total), called now and then."""


@dataclasses.dataclass(frozen=True)
class Config:
    """The flags of every table and figure; their defaults are the paper's."""

    data_dir: Path | None = None
    """Where the files are; then $GNNRP_DATA and the user cache are searched."""
    output: Path | None = None
    """A folder for the record (JSON) and figures (PNG, PDF)."""
    quick: bool = False
    """A short version, on generated graphs, for trying out."""
    seed: int = 0
    """Of all that is drawn."""

    SHORT: ClassVar[dict[str, Any]] = {}
    """What ``quick`` changes."""


class Outcome(NamedTuple):
    """What an experiment found."""

    result: dict[str, Any]  # plain numbers
    figures: dict[str, Figure]  # by what is added to the name of the file
    files: dict[str, dict[str, str]]  # data set -> file -> SHA-256
    measured: dict[str, Any] = {}  # noqa: RUF012  # times and what depends on them


AnyConfig = TypeVar("AnyConfig", bound=Config)

CHANGES = ("seconds", "peak_memory_bytes", "measured")
"""What of a record is not the same in the next run."""


def silent(what: str, done: int, total: int) -> None:
    """Show no progress."""


def main(
    kind: type[AnyConfig],
    run: Callable[[AnyConfig, Progress], Outcome],
    name: str,
) -> None:
    """Read the flags, run with a bar, and print and write what came out."""
    config = tyro.cli(kind)
    try:
        with _shared.Progress(quiet=False) as progress:
            made = record(config, run, name, progress)
    except (ValueError, OSError) as error:
        sys.exit(f"{name}: {error}")
    print(records.dumps(made))


def load(name: str, config: Config) -> datasets.Dataset | None:
    """Return a data set, or None if its files are not here; nothing is fetched."""
    if name != "sbm" and datasets.find(name, config.data_dir) is None:
        return None
    return datasets.load(name, config.data_dir, download=False, seed=config.seed)


def record(
    config: AnyConfig,
    run: Callable[[AnyConfig, Progress], Outcome],
    name: str,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Run an experiment; return its record, and write it where ``output`` says.

    Two runs give the same record but for what ``CHANGES`` names.
    """
    if config.quick:
        config = dataclasses.replace(config, **config.SHORT)
    if config.output is not None:  # before hours are spent
        config.output.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    found = run(config, progress)
    settings = dataclasses.asdict(config)
    del settings["data_dir"], settings["output"]
    made = {
        "experiment": name,
        "settings": settings,
        "result": found.result,
        "measured": found.measured,
        "seconds": round(time.perf_counter() - began, 3),
        "peak_memory_bytes": records.peak_memory(),
        "device": str(jax.devices()[0].device_kind),
        "versions": records.versions(),
        "commit": records.commit(),
        "files": found.files,
    }
    if config.output is not None:
        for suffix, figure in found.figures.items():
            stem = config.output / (f"{name}_{suffix}" if suffix else name)
            png, pdf = stem.with_suffix(".png"), stem.with_suffix(".pdf")
            records.write_atomically(png, plotting.png(figure))
            records.write_atomically(pdf, _pdf(figure))
        target = config.output / f"{name}.json"
        records.write_atomically(target, records.dumps(made).encode())
    return made


def _pdf(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="pdf", metadata={"CreationDate": None})
    return buffer.getvalue()
