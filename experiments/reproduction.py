"""What the paper's tables and figures share: a Config, a record, figures, a clock."""

import dataclasses
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import tyro
from matplotlib.figure import Figure

from gnnrp import plotting, records


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


class Outcome(NamedTuple):
    """What an experiment found."""

    result: dict[str, Any]  # plain numbers
    figures: dict[str, Figure]  # by what is added to the name of the file
    files: dict[str, dict[str, str]]  # data set -> file -> SHA-256


AnyConfig = TypeVar("AnyConfig", bound=Config)


def main(kind: type[AnyConfig], run: Callable[[AnyConfig], Outcome], name: str) -> None:
    """Read the flags, run, and print and write what came out."""
    print(records.dumps(record(tyro.cli(kind), run, name)))


def record(
    config: AnyConfig, run: Callable[[AnyConfig], Outcome], name: str
) -> dict[str, Any]:
    """Run an experiment; return its record, and write it where ``output`` says.

    Two runs give the same record but for ``seconds`` and ``peak_memory_bytes``.
    """
    if config.output is not None:  # before hours are spent
        config.output.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    found = run(config)
    settings = dataclasses.asdict(config)
    del settings["data_dir"], settings["output"]
    made = {
        "experiment": name,
        "settings": settings,
        "result": found.result,
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
