"""`gnnrp rp`: residual propagation."""

import dataclasses
import functools
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from gnnrp.commands import streams
from gnnrp.commands._shared import (
    CHECKPOINTS,
    Kept,
    OnData,
    OptionalFloat,
    OptionalInt,
    Precision,
    setting,
    target_path,
)
from gnnrp.commands.progress import Bar

Kernel = Literal["gaussian", "laplacian", "linear", "polynomial", "sigmoid", "none"]
Loss = Literal["squared", "absolute", "sigmoid", "softmax"]
Select = Literal["first", "last"]
Method = Literal["auto", "exact", "krylov", "iterate"]
_Kernel = Annotated[Kernel | None, setting(Kernel)]
_Loss = Annotated[Loss | None, setting(Loss)]
_Select = Annotated[Select | None, setting(Select)]
_Method = Annotated[Method | None, setting(Method)]
_Precision = Annotated[Precision | None, setting(Precision)]


@dataclasses.dataclass(frozen=True)
class Rp(Kept):
    """Run residual propagation and its baselines on one data set.

    Without flags: an embedded graph (a stochastic block model), a table, a figure.
    Settings left out are the published ones of the data set.
    """

    step_size: OptionalFloat = None
    """η, positive."""
    power: OptionalInt = None
    """K, hops a step."""
    alpha: OptionalFloat = None
    """α in [0, 1] of the lazy walk (α A + (1 - α) I)^K."""
    num_steps: OptionalInt = None
    """Steps to look at."""
    kernel: _Kernel = None
    """Of the node features; `none` for the graph alone, for which K is not tuned."""
    gamma: OptionalFloat = None
    """γ = 1 / (2 σ²) of the kernel."""
    bandwidth: OptionalFloat = None
    """σ, instead of γ."""
    loss: _Loss = None
    """What the residual is the gradient of."""
    select: _Select = None
    """Which of several best validation steps to keep."""
    patience: OptionalInt = None
    """Stop after so many steps without a better validation score."""
    method: _Method = None
    """How the steps are computed."""
    precision: _Precision = None
    """Of the computation."""
    shards: Path | None = None
    """A graph in parts, from `gnnrp partition`, instead of a data set: plain RP."""
    hosts: str | None = None
    """With --shards: `NAME,NAME,...`, the first perhaps `NAME:PORT`; or `auto`."""
    host: Annotated[int | None, setting(int, "(default: by name)")] = None
    """Which of --hosts this is, from 0; told by the machine's name if left out."""

    def run(self) -> None:
        """Load, run, and print.

        Raises:
            ValueError: settings or data that do not serve.
        """
        if self.shards is not None:
            self._run_shards(self.shards)
            return
        if self.hosts is not None or self.host is not None:
            msg = "--hosts and --host need --shards, a graph in parts (gnnrp partition)"
            raise ValueError(msg)
        from gnnrp import pipeline, records, tables

        self.check_dataset()
        self.check_folder()
        target = target_path(self.plot, f"rp-{self.dataset}.png", quiet=self.json)
        self._settings(self.dataset, has_features=True)  # refused before files are read
        began, max_bytes = time.perf_counter(), self.max_bytes()
        dataset = self.load_dataset()
        loaded = time.perf_counter() - began
        settings = self._settings(
            self.dataset, has_features=dataset.features is not None
        )
        with Bar(quiet=self.quiet) as progress:
            result = pipeline.run(
                dataset,
                settings,
                load_seconds=loaded,
                folder=self.folder and self.folder / CHECKPOINTS,
                checkpoint_seconds=self.checkpoint_seconds,
                max_bytes=max_bytes,
                progress=progress,
            )
        record = result.record
        for warning in tables.warnings(record, dataset):
            streams.tell(f"gnnrp: {warning}")
        streams.show(records.dumps(record) if self.json else tables.of_run(record))
        if target is None:
            return
        from gnnrp import _writing, plotting

        found = result.trajectory
        figure = plotting.learning_curve(record, found.val, found.test)
        _writing.write(target, plotting.png(figure))
        if not self.json:
            streams.show(f"\nLearning curve: {target}")

    def _run_shards(self, folder: Path) -> None:
        """Run on a graph in parts, in this process and all others alike.

        Raises:
            ValueError: flags that do not go together, or what ``shards`` refuses.
        """
        wrong = [
            field.name.replace("_", "-")
            for field in dataclasses.fields(OnData)
            if field.name not in {"json", "max_memory", "quiet", "debug"}
            and getattr(self, field.name) != field.default
        ]
        if wrong:
            msg = f"--{wrong[0]} does not go with --shards, whose data set is its own"
            raise ValueError(msg)
        from gnnrp import records, shards, tables
        from gnnrp.commands import _hosts

        name, max_bytes = shards.contents(folder)["dataset"], self.max_bytes()
        settings = self._settings(name, has_features=False)
        _hosts.join(self.hosts, self.host)
        import jax

        self.check_folder()
        first = jax.process_index() == 0
        with Bar(quiet=self.quiet or not first) as progress:
            record = _hosts.together(
                shards.run,
                folder,
                settings,
                kept=self.folder and self.folder / CHECKPOINTS,
                checkpoint_seconds=self.checkpoint_seconds,
                max_bytes=max_bytes,
                progress=functools.partial(progress, "residual propagation"),
            )
        if not first:
            return
        if warning := tables.growth(record["report"]):
            streams.tell(f"gnnrp: {warning}")
        streams.show(records.dumps(record) if self.json else tables.of_run(record))

    def _settings(self, name: str, *, has_features: bool) -> Any:
        from gnnrp import presets
        from gnnrp.kernels import features

        # What was published for a kernel does not fit the graph alone.
        has_kernel = has_features and self.kernel != "none"
        chosen = presets.settings(name, has_features=has_kernel)
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
