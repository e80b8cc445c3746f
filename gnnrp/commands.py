"""What the command line can do: a frozen dataclass of flags each, and what it runs."""

import dataclasses
import os
import sys
import time
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
class _OnData:
    """The flags of every command that runs on a data set."""

    dataset: str = "sbm"
    """A name from `gnnrp datasets`."""
    data_dir: Path | None = None
    """Where the files are; then $GNNRP_DATA and the user cache are searched."""
    download: bool = True
    """Fetch missing files, checked by SHA-256, into the user cache."""
    split: int | None = None
    """Only this one of the splits, counted from 0."""
    seed: int = 0
    """Of random splits and of the generated graph."""
    json: bool = False
    """Print one JSON object, and nothing else, on standard output."""
    plot: Path | None = None
    """Where the figure goes (PNG); `COMMAND-DATASET.png` unless --json."""
    quiet: bool = False
    """No progress bar."""
    debug: bool = False
    """Show the traceback of an error."""

    def _load(self) -> Any:
        from gnnrp import datasets

        found = datasets.load(
            self.dataset, self.data_dir, download=self.download, seed=self.seed
        )
        return found if self.split is None else datasets.with_split(found, self.split)


@dataclasses.dataclass(frozen=True)
class Rp(_OnData):
    """Run residual propagation and its baselines on one data set.

    Without flags: an embedded graph (a stochastic block model), a table, a figure.
    Settings left out are the published ones of the data set.
    """

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

    def run(self) -> None:
        """Load, run, and print.

        Raises:
            ValueError: settings or data that do not serve.
        """
        from gnnrp import pipeline, records, tables

        began = time.perf_counter()
        dataset = self._load()
        loaded = time.perf_counter() - began
        settings = self._settings(has_features=dataset.features is not None)
        target = _target(self.plot, f"rp-{dataset.name}.png", quiet=self.json)
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


@dataclasses.dataclass(frozen=True)
class Gntk(_OnData):
    """Train infinitely wide GCNs by their tangent kernel, depth by depth.

    Their test scores stand beside RP and label propagation, and how their kernels align
    with the graph and with the labels.
    """

    depths: tuple[int, ...] = (1, 2, 3, 4)
    """L, weight matrices of each network."""
    activation: Literal["relu", "leaky_relu", "erf", "identity"] = "relu"
    """φ, between layers."""
    bias: Literal["none", "before", "after"] = "none"
    """Whether there is one, and on which side of the aggregation."""
    bias_std: float = 1.0
    """β of the bias."""
    num_steps: int = 10_000
    """Steps of gradient descent to look at."""
    precision: Precision = "float32"
    """Of the kernels."""

    def run(self) -> None:
        """Load, run, and print."""
        from contextlib import nullcontext

        import jax

        from gnnrp import records, tables, wide

        settings = wide.Settings(
            self.depths, self.activation, self.bias, self.bias_std, self.num_steps
        )
        dataset = self._load()
        target = _target(self.plot, f"gntk-{dataset.name}.png", quiet=self.json)
        wide_floats = self.precision == "float64"
        with (
            jax.enable_x64(True) if wide_floats else nullcontext(),
            _Progress(quiet=self.quiet) as progress,
        ):
            record = wide.run(dataset, settings, progress=progress)
        print(records.dumps(record) if self.json else tables.of_depths(record))
        if target is None:
            return
        from gnnrp import plotting

        records.write_atomically(target, plotting.png(plotting.depths(record)))
        if not self.json:
            print(f"\nFigure: {target}")


def _target(asked: Path | None, usual: str, *, quiet: bool) -> Path | None:
    """Return where the figure goes, refused before anything is computed.

    Raises:
        ValueError: it cannot be written there.
    """
    if asked is None and quiet:
        return None
    target = Path(usual) if asked is None else asked
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


Command = (
    Annotated[Rp, tyro.conf.subcommand("rp")]
    | Annotated[Gntk, tyro.conf.subcommand("gntk")]
    | Annotated[Datasets, tyro.conf.subcommand("datasets")]
)
