"""Flags and outputs that several commands share."""

import dataclasses
import os
import types
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import tyro

from gnnrp.runtime import (
    atomic_files,
    checks,
    json_files,
    process,
    safe_text,
    streams,
)
from gnnrp.runtime.options import Options


def setting(kind: Any, hint: str = "(default: as published)") -> Any:
    """Return the parser of an optional flag; the hint describes its default."""
    return tyro.conf.arg(constructor=kind, help_behavior_hint=hint)


def flags_of(
    settings: type, exclude: Iterable[str] = (), *, optional: bool = True
) -> Any:
    """Return a dataclass with a flag for each field of settings.

    The help comes from the ``Args`` of its docstring. ``optional`` flags are None if
    not set, since the default depends on the dataset.
    """
    fields = []
    for name, kind in typing.get_type_hints(settings).items():
        default = getattr(settings, name)
        if optional:
            if isinstance(kind, types.UnionType):  # X | None
                kind = typing.get_args(kind)[0]
            kind, default = Annotated[Any, setting(kind)], None
        if name not in exclude:
            fields.append((name, kind, default))
    docstring = {"__doc__": settings.__doc__}
    return dataclasses.make_dataclass(
        f"{settings.__name__}Flags", fields, frozen=True, namespace=docstring
    )


def values_from_flags(command: Any, settings: Any) -> dict[str, Any]:
    """Return the values of those fields of the settings that flags have set."""
    values = {
        field.name: getattr(command, field.name, None)
        for field in dataclasses.fields(settings)
    }
    return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommonFlags:
    """Flags of the commands that compute."""

    quiet: bool = False
    """Show no progress."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetFlags(CommonFlags):
    """Flags of the commands that load a dataset."""

    dataset: str = "sbm"
    """Name of the dataset, see `gnnrp datasets`; or path of your own graph (.npz)."""
    data_dir: Path | None = None
    """Folder of the files, searched before $GNNRP_DATA and the user cache."""
    download: bool = True
    """Download missing files to the user cache, verified by SHA-256; OGB's by ogb."""
    splits: Annotated[
        str | None,
        tyro.conf.arg(
            constructor=str,
            metavar="{published,random}",
            help_behavior_hint="(default: published, where there is one)",
        ),
    ] = None
    """Splits of Computers, Photo, CS and Physics: the paper's, or ten at random."""
    seed: int = 0
    """Seed of random splits and of the generated graph."""

    def check_dataset(self) -> None:
        """Refuse an unknown dataset, and --data-dir for the generated one."""
        from gnnrp import datasets

        if datasets.is_file(self.dataset):
            return
        try:
            checks.one_of("dataset", self.dataset, datasets.names())
        except ValueError as error:
            path = Path(self.dataset)
            if (path.suffix or len(path.parts) > 1) and not str(error).endswith("?"):
                msg = f"{error}; a graph of your own must be an .npz file"
                raise ValueError(msg) from error
            raise
        if self.dataset == "sbm" and self.data_dir is not None:
            msg = (
                "--data-dir does not apply to the generated dataset 'sbm'; choose "
                "another one by --dataset"
            )
            raise ValueError(msg)

    def max_bytes(self) -> int | None:
        """Return the memory limit; None: that of the machine."""
        return None

    def load_dataset(self) -> Any:
        """Load the dataset, and report deviations from the paper's statistics."""
        from gnnrp import datasets

        check_device()  # before files are downloaded and read
        dataset = datasets.load(
            self.dataset,
            self.data_dir,
            download=self.download,
            splits=self.splits,
            seed=self.seed,
            progress=not self.quiet,
            max_bytes=self.max_bytes(),
        )
        if datasets.is_file(self.dataset):
            return dataset
        for name, (here, there) in datasets.differences(dataset).items():
            if name != "num_features" or dataset.features is not None:
                streams.print_line(
                    f"gnnrp: {dataset.name} has {here:,} {name.removeprefix('num_')} "
                    f"here and {there:,} in the paper; the files may be incomplete"
                )
        return dataset


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResultFlags(CommonFlags):
    """Flags of the commands that print results and draw a figure."""

    json: bool = False
    """Print one JSON object, and nothing else, on standard output."""
    plot: Path | None = None
    """Path of the figure (PNG); `COMMAND-DATASET.png` unless --json is set."""
    max_memory: Annotated[
        str | None,
        tyro.conf.arg(
            constructor=str,
            metavar="SIZE",
            help_behavior_hint="(default: of the device, container or machine)",
        ),
    ] = None
    """Memory limit, such as `8GB` or `8e9`; a run that does not fit is refused."""
    compilation_cache: bool = True
    """Save compiled functions in the user cache, which makes the next run faster."""

    def max_bytes(self) -> int | None:
        """Return --max-memory in bytes, None without it."""
        from gnnrp.runtime import memory

        if self.max_memory is None:
            return None
        try:
            return memory.parse(self.max_memory)
        except ValueError as error:
            msg = f"--max-memory: {error}"
            raise ValueError(msg) from error

    def options(self, progress: Callable[[str, int, int], None]) -> Options:
        """Return the options of a run."""
        return Options(max_bytes=self.max_bytes(), progress=progress)

    def title(self) -> str:
        """Return the name of the figure, without its suffix."""
        return type(self).__name__.lower()

    def figure_path(self) -> Path | None:
        """Return the path of the figure, checked before anything is computed."""
        if self.plot is None and self.json:
            return None
        path = self.plot or Path(f"{self.title()}.png")
        try:
            if path.is_symlink():
                path = Path(os.path.realpath(path))
            reason = _figure_obstacle(path)
        except (OSError, RuntimeError) as error:  # before Python 3.13, a loop of links
            reason = getattr(error, "strerror", None) or str(error)
        if reason:
            msg = f"the figure cannot go to {str(path)!r}: {reason}; set another --plot"
            raise ValueError(msg)
        return path

    def text(
        self,
        record: dict[str, Any],
        table: Callable[[dict[str, Any]], str],
        origin: dict[str, Any] | None = None,
    ) -> str:
        """Return a record as a table, or as JSON with the identity of the run."""
        if not self.json:
            return table(record)
        return json_files.dumps(record | process.describe() | {"resumed_from": origin})

    def show(
        self,
        record: dict[str, Any],
        table: Callable[[dict[str, Any]], str],
        target: Path | None,
        figure: Callable[[], Any],
        origin: dict[str, Any] | None = None,
    ) -> None:
        """Print the record of a run as a table or as JSON, and save its figure."""
        streams.show(self.text(record, table, origin))
        if target is not None:
            from gnnrp import plotting

            atomic_files.write(target, plotting.png(figure()))
            if not self.json:
                streams.show(f"\nFigure: {target}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFlags(ResultFlags, DatasetFlags):
    """Flags of the commands that run on a dataset."""

    split: Annotated[int | None, setting(int, "(default: all)")] = None
    """Index of a single split to run, from 0."""

    def title(self) -> str:
        """Return the name of the figure, without its suffix."""
        return f"{super().title()}-{Path(self.dataset).name.removesuffix('.npz')}"

    def load_dataset(self) -> Any:
        """Load the dataset, and select --split."""
        from gnnrp import datasets

        dataset = super().load_dataset()
        split = self.split
        return dataset if split is None else datasets.select_split(dataset, split)


def check_device() -> None:
    """Refuse a choice of devices that JAX cannot start."""
    import jax

    try:
        jax.devices()
    except (AssertionError, RuntimeError) as error:  # the first without a reason
        platforms = os.environ.get("JAX_PLATFORMS", "")
        reason = safe_text.line(str(error) or "there is no such device", 150)
        msg = (
            "JAX cannot start a device of "
            f"JAX_PLATFORMS={safe_text.line(platforms, 40)!r} ({reason}); unset it, "
            "or set JAX_PLATFORMS=cpu"
        )
        raise ValueError(msg) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumableFlags(RunFlags):
    """Flags of the commands whose runs can be resumed."""

    folder: Path | None = None
    """Folder of checkpoints, saved at intervals and on Ctrl-C or SIGTERM."""
    resume: bool = False
    """Resume the run in --folder, if there is one, with bit-identical results."""
    checkpoint_seconds: float = Options.checkpoint_seconds
    """Time between checkpoints; longer if writing them would slow down the run."""

    def options(self, progress: Callable[[str, int, int], None]) -> Options:
        """Return the options of a run."""
        return dataclasses.replace(
            super().options(progress),
            folder=self.folder,
            checkpoint_seconds=self.checkpoint_seconds,
        )

    def checkpoints(self) -> Path | None:
        """Return the folder of checkpoints within --folder."""
        return self.folder and self.folder / "checkpoints"

    def check_folder(
        self, announce: Callable[[str], None] = streams.print_line
    ) -> dict[str, Any] | None:
        """Refuse a folder with an earlier run, unless --resume is set.

        Returns:
            Run id and step of the checkpoint from which the run resumes, or None.

        Raises:
            ValueError: a folder with a run, or a flag that needs --folder.
            OSError: the folder cannot be written.
        """
        folder = self.checkpoints()
        if self.folder is None or folder is None:
            if self.resume:
                msg = "--resume needs --folder, the folder of the run"
                raise ValueError(msg)
            if self.checkpoint_seconds != ResumableFlags.checkpoint_seconds:
                msg = "--checkpoint-seconds needs --folder, the folder of checkpoints"
                raise ValueError(msg)
            return None
        from gnnrp.runtime import checkpoints

        checks.at_least("checkpoint_seconds", self.checkpoint_seconds, 0)
        atomic_files.try_folder(self.folder)
        origin = checkpoints.origin(folder)
        if origin is not None and not self.resume:
            msg = (
                f"{str(self.folder)!r} holds a run; resume it by --resume, or choose "
                "another folder"
            )
            raise ValueError(msg)
        if origin is not None and not self.quiet:
            of_run = f" of run {origin['run_id']}" if origin["run_id"] else ""
            announce(f"gnnrp: resuming at step {origin['step']:,}{of_run}")
        return origin


def _figure_obstacle(path: Path) -> str | None:
    is_there = path.exists()
    for is_wrong, reason in (
        (path.is_dir(), "it is a folder"),
        (path.suffix != ".png", "its name must end in .png"),
        (not path.parent.is_dir(), "its folder does not exist"),
        (path.is_symlink(), "it is a loop of symbolic links"),
        (is_there and not path.is_file(), "it is not a regular file"),
        (is_there and not os.access(path, os.W_OK), "it may not be written"),
    ):
        if is_wrong:
            return reason
    error = atomic_files.obstacle(path.parent)
    return error and f"its folder cannot be written ({error.strerror})"
