"""Shared parts of the paper's tables and figures: flags, records, progress."""

import dataclasses
import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import tyro
from matplotlib.figure import Figure

from experiments.report import plain_text
from gnnrp import datasets, plotting
from gnnrp.runtime import (
    atomic_files,
    checkpoints,
    checks,
    interrupts,
    json_files,
    memory,
    streams,
)
from gnnrp.runtime.progress import Bar
from gnnrp.studies import records

Progress = Callable[[str, int, int], None]
"""Callback (stage, done, total)."""
Page = Callable[[dict[str, Any]], str]
"""Record -> Markdown."""

_DAMAGES = (
    *(OSError, ValueError, LookupError),
    *(TypeError, AttributeError, RecursionError),
)
"""Errors raised by reading a damaged part."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Flags of every table and figure; the defaults are those of the paper."""

    data_dir: Path | None = None
    """Folder of the files, searched before $GNNRP_DATA and the user cache."""
    output: Path | None = None
    """Folder for the record (JSON) and figures (PNG, PDF)."""
    quick: bool = False
    """Run a short version on generated graphs; explicitly set flags still apply."""
    seed: int = 0
    """Seed of all random numbers."""
    json: bool = False
    """Print the record as JSON instead of tables."""

    SHORT: ClassVar[dict[str, Any]] = {}
    """Settings of ``quick``."""
    MODELS: ClassVar[tuple[str, ...]] = ()
    """Allowed values of ``models``."""


class Outcome(NamedTuple):
    """Results of an experiment."""

    result: dict[str, Any]  # plain numbers
    figures: dict[str, Figure]  # by suffix of the file name
    files: dict[str, dict[str, str]]  # dataset -> file -> SHA-256
    measured: dict[str, Any] = {}  # noqa: RUF012  # times and values that depend on them


AnyConfig = TypeVar("AnyConfig", bound=Config)

CHANGES = ("seconds", "peak_memory_bytes", "measured")
"""Fields of a record that differ between runs."""


def silent(what: str, done: int, total: int) -> None:
    """Show no progress."""


def main(
    kind: type[AnyConfig],
    run: Callable[[AnyConfig, Progress], Outcome],
    name: str,
    page: Page | None = None,
) -> None:
    """Read the flags, run with a progress bar, print and write the results.

    ``page`` makes a Markdown page that is printed, and written next to the record.
    Without it, tables are printed. Ctrl-C (130) and SIGTERM (143) end the process with
    one sentence.
    """
    interrupts.install()
    config = tyro.cli(kind)
    try:
        streams.prepare()
        with Bar(quiet=False) as progress:
            made = record(config, run, name, progress, page)
        show = json_files.dumps if config.json else page or plain_text.render
        streams.show(show(made))
        if config.output is not None and not config.json:
            streams.show(f"\nRecord: {config.output / name}.json")
    except (ValueError, OSError) as error:
        sys.exit(f"{name}: {error}")


def load(
    name: str, config: Config, *, splits: str | None = None
) -> datasets.Dataset | None:
    """Return a dataset, or None if its files are absent; download nothing."""
    if name != "sbm" and datasets.find(name, config.data_dir) is None:
        return None
    return datasets.load(
        name, config.data_dir, download=False, splits=splits, seed=config.seed
    )


def record(
    config: AnyConfig,
    run: Callable[[AnyConfig, Progress], Outcome],
    name: str,
    progress: Progress = silent,
    page: Page | None = None,
) -> dict[str, Any]:
    """Run an experiment, write its record to ``output`` and return it.

    ``page`` makes a Markdown page that is written next to the record. Records of two
    runs differ only in the fields of ``CHANGES``.

    Raises:
        ValueError: a setting is out of range.
        OSError: the folder cannot be written.
    """
    config = checked(shortened(config))
    if config.output is not None:
        checkpoints.prepare(config.output)  # before hours of computation
    commit, began = records.commit(), time.perf_counter()
    found = run(config, progress)
    files = {f"{name}_{suffix}" if suffix else name: suffix for suffix in found.figures}
    made = {
        "experiment": name,
        "settings": settings(config),
        "result": found.result,
        "figures": [f"{stem}.png" for stem in files],
        "measured": found.measured,
        "seconds": round(time.perf_counter() - began, 3),
        "peak_memory_bytes": memory.peak(),
        "device": str(jax.devices()[0].device_kind),
        "versions": records.versions(),
        "commit": commit,
        "files": found.files,
    }
    if config.output is not None:
        drawn = {stem: found.figures[suffix] for stem, suffix in files.items()}
        _write(config.output, made, drawn, page)
    return made


def _write(
    folder: Path, made: dict[str, Any], figures: dict[str, Figure], page: Page | None
) -> None:
    """Write a record with its figures and page."""
    for stem, figure in figures.items():
        png, pdf = (folder / f"{stem}.{kind}" for kind in ("png", "pdf"))
        atomic_files.write(png, plotting.png(figure))
        atomic_files.write(pdf, _pdf(figure))
    text = json_files.dumps(made)
    atomic_files.write(folder / f"{made['experiment']}.json", text.encode())
    if page is not None:  # from the record as it is read back
        content = page(json.loads(text)).encode()
        atomic_files.write(folder / f"{made['experiment']}.md", content)


def settings(config: Config) -> dict[str, Any]:
    """Return the settings of an experiment, without its folders and its output."""
    found = dataclasses.asdict(config)
    del found["data_dir"], found["output"], found["json"]
    return found


def shortened(config: AnyConfig) -> AnyConfig:
    """Return the short version if ``quick``; settings other than defaults stay."""
    if not config.quick:
        return config
    default = {field.name: field.default for field in dataclasses.fields(config)}
    changes = {
        name: value
        for name, value in config.SHORT.items()
        if getattr(config, name) == default[name]
    }
    return dataclasses.replace(config, **changes)


def checked(config: AnyConfig) -> AnyConfig:
    """Check that names exist and counts are positive.

    Raises:
        ValueError: a setting is out of range.
    """
    allowed = {"datasets": datasets.names(), "models": config.MODELS}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        for each in value if isinstance(value, tuple) else (value,):
            if field.name in allowed:
                checks.one_of(field.name, each, allowed[field.name])
            elif isinstance(each, int) and not isinstance(each, bool):
                checks.count(field.name, each, 0 if field.name == "seed" else 1)
    return config


def each(
    config: Any,
    experiment: str,
    compute: Callable[[datasets.Dataset], dict[str, Any]],
) -> Iterator[tuple[datasets.Dataset, dict[str, Any]]]:
    """Yield each available dataset of ``config.datasets`` with its result."""
    for name in config.datasets:
        data = load(name, config)
        if data is not None:
            yield data, _kept(config, experiment, data, compute)


def _kept(
    config: Config,
    experiment: str,
    data: datasets.Dataset,
    compute: Callable[[datasets.Dataset], dict[str, Any]],
) -> dict[str, Any]:
    """Return the result of a dataset, computed or stored by an earlier run.

    Results are stored in the folder ``parts`` of the output, so that a stopped run
    resumes with the next dataset. A stored result is reused only if seed, settings,
    versions, commit and file contents are the same, and never in a checkout with
    uncommitted changes.

    Raises:
        ValueError: a stored result is damaged.
    """
    commit = records.commit()
    if config.output is None or (commit or "").endswith("-dirty"):
        return compute(data)
    key = settings(config) | {
        "versions": records.versions(),
        "commit": commit,
        "files": data.files,
    }
    key.pop("datasets", None)
    path = config.output / "parts" / f"{experiment}_{data.name}.json"
    key = json.loads(json_files.dumps(key))
    if path.exists():
        try:
            stored = json_files.load(path)
            seal = stored.pop("sha256")
            same, value = stored["key"] == key, stored["value"]
        except _DAMAGES:
            seal, stored, same, value = None, {}, False, {}
        if seal != atomic_files.seal_of(stored):
            msg = f"{path} is damaged; delete it to compute it again"
            raise ValueError(msg)
        if same:
            return value
    value = json.loads(json_files.dumps(compute(data)))
    path.parent.mkdir(exist_ok=True)
    made = {"key": key, "value": value}
    made["sha256"] = atomic_files.seal_of(made)
    atomic_files.write(path, json_files.dumps(made).encode())
    return value


def _pdf(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="pdf", metadata={"CreationDate": None})
    return buffer.getvalue()
