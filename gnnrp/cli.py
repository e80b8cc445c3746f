"""The command line: ``gnnrp rp`` and ``gnnrp datasets``; the only reader of flags."""

import contextlib
import dataclasses
import io
import os
import re
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

# JAX and scipy are imported by the commands that need them, so that help is instant.


def _setting(kind: Any) -> Any:
    """Return how a flag is read that, left out, stays as published."""
    hint = "(default: as published)"
    return tyro.conf.arg(constructor=kind, help_behavior_hint=hint)


Kernel = Literal["gaussian", "laplacian", "linear", "polynomial", "sigmoid", "none"]
Loss = Literal["squared", "absolute", "sigmoid", "softmax"]
Select = Literal["first", "last"]
Method = Literal["auto", "exact", "krylov", "iterate"]
Precision = Literal["float32", "float64"]
_Float = Annotated[float | None, _setting(float)]
_Int = Annotated[int | None, _setting(int)]
_Kernel = Annotated[Kernel | None, _setting(Kernel)]
_Loss = Annotated[Loss | None, _setting(Loss)]
_Select = Annotated[Select | None, _setting(Select)]
_Method = Annotated[Method | None, _setting(Method)]
_Precision = Annotated[Precision | None, _setting(Precision)]


@dataclasses.dataclass(frozen=True)
class Rp:
    """Run residual propagation and its baselines on one data set.

    Without flags: an embedded graph (a stochastic block model), a table, a figure.
    Settings left out are the published ones of the data set.
    """

    dataset: str = "sbm"
    """A name from `gnnrp datasets`."""
    data_dir: Path | None = None
    """Where the files are; then $GNNRP_DATA and the user cache are searched."""
    download: bool = True
    """Fetch missing files, checked by SHA-256, into the user cache."""
    step_size: _Float = None
    """η, positive."""
    power: _Int = None
    """K, hops a step."""
    alpha: _Float = None
    """α in [0, 1] of the lazy walk (α A + (1 - α) I)^K."""
    num_steps: _Int = None
    """Steps to look at."""
    kernel: _Kernel = None
    """Of the node features; `none` for the graph alone."""
    gamma: _Float = None
    """γ = 1 / (2 σ²) of the kernel."""
    bandwidth: _Float = None
    """σ, instead of γ."""
    loss: _Loss = None
    """What the residual is the gradient of."""
    select: _Select = None
    """Which of several best validation steps to keep."""
    patience: _Int = None
    """Stop after so many steps without a better validation score."""
    method: _Method = None
    """How the steps are computed."""
    precision: _Precision = None
    """Of the computation."""
    split: int | None = None
    """Only this one of the splits, counted from 0."""
    seed: int = 0
    """Of random splits and of the generated graph."""
    json: bool = False
    """Print one JSON object, and nothing else, on standard output."""
    plot: Path | None = None
    """Where the learning curve goes (PNG); `rp-DATASET.png` unless --json."""
    quiet: bool = False
    """No progress bar."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self) -> None:
        """Load, run, and print.

        Raises:
            ValueError: settings or data that do not serve.
        """
        from gnnrp import datasets, pipeline, records, tables

        began = time.perf_counter()
        dataset = datasets.load(
            self.dataset, self.data_dir, download=self.download, seed=self.seed
        )
        if self.split is not None:
            dataset = datasets.with_split(dataset, self.split)
        loaded = time.perf_counter() - began
        settings = self._settings(has_features=dataset.features is not None)
        target = self._target(dataset.name)
        with _Progress(quiet=self.quiet) as progress:
            result = pipeline.run(
                dataset, settings, load_seconds=loaded, progress=progress
            )
        record = result.record
        for warning in tables.warnings(record, dataset):
            print(f"gnnrp: {warning}", file=sys.stderr)
        print(records.dumps(record) if self.json else tables.of_run(record))
        if target is None:
            return
        from gnnrp import plotting

        found = result.trajectory
        figure = plotting.learning_curve(record, found.val, found.test)
        records.write_atomically(target, plotting.png(figure))
        if not self.json:
            print(f"\nLearning curve: {target}")

    def _target(self, name: str) -> Path | None:
        """Return where the figure goes, refused before anything is computed.

        Raises:
            ValueError: it cannot be written there.
        """
        target = self.plot
        if target is None:
            if self.json:
                return None
            target = Path(f"rp-{name}.png")
        target = target.resolve() if target.is_symlink() else target
        folder = target.absolute().parent
        reason = None
        if target.suffix != ".png" or target.is_dir():
            reason = "its name must end in .png"
        elif not folder.is_dir():
            reason = "its folder does not exist"
        elif not os.access(target if target.exists() else folder, os.W_OK):
            reason = "it may not be written"
        if reason:
            msg = f"the figure cannot go to {str(target)!r}: {reason}"
            raise ValueError(msg)
        return target

    def _settings(self, *, has_features: bool) -> Any:
        from gnnrp import presets
        from gnnrp.kernels import features

        # What was published for a kernel does not fit the graph alone.
        has_kernel = has_features and self.kernel != "none"
        chosen = presets.settings(self.dataset, has_features=has_kernel)
        names = {field.name for field in dataclasses.fields(chosen)}
        given = {
            name: value
            for name in names
            if (value := getattr(self, name, None)) is not None
        }
        if self.kernel == "none":
            given["kernel"] = None
        kernel = given.get("kernel", chosen.kernel)
        if self.gamma is not None and kernel in {None, "linear"}:
            msg = f"--gamma does not apply to the kernel {kernel or 'none'}"
            raise ValueError(msg)
        if self.bandwidth is not None:
            if self.gamma is not None or kernel != "gaussian":
                msg = "--bandwidth is of the Gaussian kernel, and instead of --gamma"
                raise ValueError(msg)
            given["gamma"] = features.gamma_from_bandwidth(self.bandwidth)
        return dataclasses.replace(chosen, **given)


@dataclasses.dataclass(frozen=True)
class Datasets:
    """List every data set: whether it is here, where, and its statistics."""

    data_dir: Path | None = None
    """Searched before $GNNRP_DATA and the user cache."""
    json: bool = False
    """Print one JSON object, and nothing else, on standard output."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self) -> None:
        """Look for the files, read those that are here, and print."""
        from gnnrp import datasets, records, tables

        rows = [tables.dataset_row(name, self.data_dir) for name in datasets.names()]
        if self.json:
            print(records.dumps({"datasets": rows}))
        else:
            print(tables.of_datasets(rows))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    0: done; 2: bad flags or data, told in one line on standard error; 130: interrupted.

    Raises:
        ValueError: with --debug, as do the errors below.
        TypeError: see above.
        OSError: see above.
        MemoryError: see above.
    """
    if (sys.argv[1:] if arguments is None else list(arguments)) == ["--version"]:
        print(f"gnnrp {metadata.version('gnnrp')}")
        return 0
    try:
        command = _parse(arguments)
    except _UsageError as error:
        print(f"gnnrp: {error}", file=sys.stderr)
        return 2
    try:
        command.run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("gnnrp: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, TypeError, OSError, MemoryError) as error:
        if command.debug:
            raise
        print(f"gnnrp: {_one_line(str(error) or repr(error))}", file=sys.stderr)
        return 2
    return 0


class _UsageError(Exception):
    """Flags that cannot be read."""


def _parse(arguments: Sequence[str] | None) -> Rp | Datasets:
    commands = (
        Annotated[Rp, tyro.conf.subcommand("rp")]
        | Annotated[Datasets, tyro.conf.subcommand("datasets")]
    )
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                commands,  # pyright: ignore[reportArgumentType]
                prog="gnnrp",
                description="Residual propagation: a node classifier without weights.",
                args=arguments,
            )
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


class _Progress:
    """A bar on standard error, where that is a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._disable = True if quiet else None  # None: unless it is a terminal
        self._bar: Any = None

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._bar is None or self._bar.desc != what:
            from tqdm import tqdm

            self.__exit__()
            self._bar = tqdm(
                total=total,
                desc=what,
                leave=False,
                disable=self._disable,
                file=sys.stderr,
            )
            self._bar.desc = what
        self._bar.total = total
        self._bar.update(done - self._bar.n)


if __name__ == "__main__":
    sys.exit(main())
