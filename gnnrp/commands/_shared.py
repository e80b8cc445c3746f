"""Flags and paths of figures that several commands have."""

import dataclasses
import os
import stat
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from gnnrp.runtime import safe_text

# JAX and scipy are imported by the commands that need them, so that help is instant.


def setting(kind: Any, hint: str = "(default: as published)") -> Any:
    """Return the parser of an optional flag; the hint describes its default."""
    return tyro.conf.arg(constructor=kind, help_behavior_hint=hint)


CHECKPOINTS = "checkpoints"
"""The folder of them in that of a run."""
Precision = Literal["float32", "float64"]
OptionalFloat = Annotated[float | None, setting(float)]
OptionalInt = Annotated[int | None, setting(int)]
OneSplit = Annotated[int | None, setting(int, "(default: all)")]
OptionalSize = Annotated[
    str | None,
    tyro.conf.arg(
        constructor=str,
        metavar="SIZE",
        help_behavior_hint="(default: of the device, container or machine)",
    ),
]


@dataclasses.dataclass(frozen=True)
class OnData:
    """The flags of every command that runs on a data set."""

    dataset: str = "sbm"
    """A name from `gnnrp datasets`."""
    data_dir: Path | None = None
    """Where the files are; then $GNNRP_DATA and the user cache are searched."""
    download: bool = True
    """Fetch missing files into the user cache, checked by SHA-256; OGB's by ogb."""
    split: OneSplit = None
    """Only this one of the splits, counted from 0."""
    seed: int = 0
    """Of random splits and of the generated graph."""
    json: bool = False
    """Print one JSON object, and nothing else, on standard output."""
    plot: Path | None = None
    """Where the figure goes (PNG); `COMMAND-DATASET.png` unless --json."""
    max_memory: OptionalSize = None
    """What may be held at once, such as `8GB`; what does not fit is refused."""
    quiet: bool = False
    """No progress bar."""
    debug: bool = False
    """Show the traceback of an error."""

    def max_bytes(self) -> int | None:
        """Return --max-memory in bytes, None if it is left out."""
        from gnnrp.runtime import memory

        return None if self.max_memory is None else memory.parse(self.max_memory)

    def check_dataset(self) -> None:
        """Refuse unknown data sets, and --data-dir for the generated one.

        Raises:
            ValueError: either of these.
        """
        from gnnrp import datasets
        from gnnrp.runtime import checks

        checks.one_of("dataset", self.dataset, datasets.names())
        if self.dataset == "sbm" and self.data_dir is not None:
            msg = (
                "--data-dir has no part in the generated 'sbm'; name a set by --dataset"
            )
            raise ValueError(msg)

    def load_dataset(self) -> Any:
        from gnnrp import datasets

        check_device()  # before files are fetched and read
        found = datasets.load(
            self.dataset,
            self.data_dir,
            download=self.download,
            seed=self.seed,
            progress=not self.quiet,
            max_bytes=self.max_bytes(),
        )
        _tell_differing(found)
        return found if self.split is None else datasets.with_split(found, self.split)


def check_device() -> None:
    """Refuse a choice of devices that JAX cannot start.

    Raises:
        ValueError: ``JAX_PLATFORMS`` names none, or one that is not here.
    """
    import jax

    try:
        jax.devices()
    except (AssertionError, RuntimeError) as error:  # the first without a reason
        platforms = os.environ.get("JAX_PLATFORMS", "")
        reason = safe_text.line(str(error) or "no such device was found", 150)
        msg = (
            "JAX cannot start a device of "
            f"JAX_PLATFORMS={safe_text.line(platforms, 40)!r} ({reason}); unset it, "
            "or set JAX_PLATFORMS=cpu"
        )
        raise ValueError(msg) from error


def _tell_differing(dataset: Any) -> None:
    """Print where a data set differs from the paper's, such as in its nodes."""
    from gnnrp import datasets
    from gnnrp.runtime import streams

    for what, (here, there) in datasets.differences(dataset).items():
        if what != "num_features" or dataset.features is not None:
            what = what.removeprefix("num_")
            streams.tell(
                f"gnnrp: {dataset.name} has {here:,} {what} here and {there:,} in the "
                "paper; the files may be incomplete"
            )


@dataclasses.dataclass(frozen=True)
class Kept(OnData):
    """The flags of commands whose runs can be resumed."""

    folder: Path | None = None
    """Save checkpoints there, now and then and on Ctrl-C or SIGTERM."""
    resume: bool = False
    """Resume the run in --folder, if it holds one, to the same numbers."""
    checkpoint_seconds: float = 60
    """Between two checkpoints, or longer if writing them would slow the run."""

    def check_folder(self) -> None:
        """Refuse a folder with an earlier run, unless --resume is set.

        Raises:
            OSError: the folder cannot be written.
            ValueError: a run is there, or no folder is named.
        """
        if self.folder is None:
            if self.resume:
                msg = "--resume needs --folder, where the run is"
                raise ValueError(msg)
            if self.checkpoint_seconds != Kept.checkpoint_seconds:
                msg = "--checkpoint-seconds needs --folder, where checkpoints go"
                raise ValueError(msg)
            return
        from gnnrp.runtime import atomic_files, checks

        checks.at_least("checkpoint_seconds", self.checkpoint_seconds, 0)
        from gnnrp.runtime import checkpoints

        atomic_files.try_folder(self.folder)
        if not self.resume and checkpoints.started(self.folder / CHECKPOINTS):
            msg = (
                f"{str(self.folder)!r} holds a run; go on with it by --resume, or "
                "choose another folder"
            )
            raise ValueError(msg)


def target_path(asked: Path | None, usual: str, *, quiet: bool) -> Path | None:
    """Return the path of the figure, or refuse it before anything is computed.

    Raises:
        ValueError: it cannot be written there.
    """
    if asked is None and quiet:
        return None
    path = Path(usual) if asked is None else asked
    try:
        path, reason = _figure_path(path)
    except (OSError, RuntimeError) as error:  # before Python 3.13, a loop of links
        reason = getattr(error, "strerror", None) or str(error)
    if reason:
        msg = f"the figure cannot go to {str(path)!r}: {reason}; say where by --plot"
        raise ValueError(msg)
    return path


def _figure_path(path: Path) -> tuple[Path, str | None]:
    """Return the path behind symbolic links, and why no figure can be written there."""
    from gnnrp.runtime import atomic_files

    if path.is_symlink():
        path = Path(os.path.realpath(path))
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        mode = None
    if path.suffix != ".png" and not path.is_dir():
        return path, "its name must end in .png"
    if not path.parent.is_dir():
        return path, "its folder does not exist"
    if mode is not None and stat.S_ISLNK(mode):
        return path, "it is a loop of symbolic links"
    if mode is not None and stat.S_ISDIR(mode):
        return path, "it is a folder"
    if mode is not None and not stat.S_ISREG(mode):
        return path, "it is not a regular file"
    if mode is not None and not os.access(path, os.W_OK):
        return path, "it may not be written"
    if error := atomic_files.obstacle(path.parent):
        return path, f"its folder cannot be written ({error.strerror})"
    return path, None
