"""`gnnrp rp`: residual propagation."""

import dataclasses
import functools
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

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
from gnnrp.runtime import json_files, streams
from gnnrp.runtime.options import Options
from gnnrp.runtime.progress import Bar
from gnnrp.studies import sharded_rp

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
    """Index of this machine in --hosts, from 0; found by its name if left out."""
    partner_seconds: float = 60
    """With --hosts: how long to wait for partners to start, and for a silent one."""

    def run(self) -> None:
        """Load, run, and print.

        Raises:
            ValueError: settings or data that do not serve.
        """
        if self.shards is not None:
            self._run_shards()
            return
        waits = self.partner_seconds != Rp.partner_seconds
        if self.hosts is not None or self.host is not None or waits:
            msg = (
                "--hosts, --host and --partner-seconds need --shards, a graph in parts "
                "(gnnrp partition)"
            )
            raise ValueError(msg)
        from gnnrp.studies import rp as rp_study
        from gnnrp.studies import tables

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
            result = rp_study.run(
                dataset,
                settings,
                options=Options(
                    folder=self.folder and self.folder / CHECKPOINTS,
                    checkpoint_seconds=self.checkpoint_seconds,
                    max_bytes=max_bytes,
                    progress=progress,
                ),
                load_seconds=loaded,
            )
        record = result.record
        for warning in tables.warnings(record, dataset):
            streams.tell(f"gnnrp: {warning}")
        streams.show(json_files.dumps(record) if self.json else tables.of_run(record))
        if target is None:
            return
        from gnnrp import plotting
        from gnnrp.runtime import atomic_files

        found = result.trajectory
        figure = plotting.learning_curve(record, found.val, found.test)
        atomic_files.write(target, plotting.png(figure))
        if not self.json:
            streams.show(f"\nLearning curve: {target}")

    def _run_shards(self) -> None:
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
        with Bar(quiet=self.quiet) as progress:
            update = functools.partial(progress, "residual propagation")
            if self.hosts is None:
                waits = self.partner_seconds != Rp.partner_seconds
                if self.host is not None or waits:
                    name = "partner-seconds" if waits else "host"
                    msg = f"--{name} needs --hosts, the names of all machines"
                    raise ValueError(msg)
                settings, _ = self.prepare_shards()
                result = self.compute_shards(settings, update)
            else:
                from gnnrp.distributed import supervision
                from gnnrp.runtime import checks

                checks.inside("partner_seconds", self.partner_seconds, 1, 86_400)
                result = supervision.run(self, self.hosts, self.host, update)
        if result is None:  # the first process prints
            return
        for warning in result["warnings"]:
            streams.tell(f"gnnrp: {warning}")
        streams.show(result["text"])

    def prepare_shards(self) -> tuple[Any, dict[str, Any]]:
        """Return the settings of a run on parts, and what all processes must share.

        Raises:
            ValueError: no parts, or settings out of range.
        """
        assert self.shards is not None
        from gnnrp.distributed import shards

        table = shards.contents(self.shards)
        settings = self._settings(table["dataset"], has_features=False)
        flags = ("max_memory", "resume", "checkpoint_seconds", "partner_seconds")
        identity = {
            "the version of gnnrp": metadata.version("gnnrp"),
            "the version of jax": metadata.version("jax"),
            "the digest of --shards": table["sha256"],
            "--folder given": self.folder is not None,
            **{f"--{name.replace('_', '-')}": getattr(self, name) for name in flags},
            **dataclasses.asdict(settings),
        }
        return settings, identity

    def compute_shards(
        self, settings: Any, progress: Callable[[int, int], None]
    ) -> dict[str, Any]:
        """Run on a graph in parts, and return what to print.

        Raises:
            ValueError: what ``sharded_rp.run`` refuses; a run in the folder.
        """
        assert self.shards is not None
        from gnnrp.studies import tables

        self.check_folder()
        record = sharded_rp.run(
            self.shards,
            settings,
            kept=self.folder and self.folder / CHECKPOINTS,
            checkpoint_seconds=self.checkpoint_seconds,
            max_bytes=self.max_bytes(),
            progress=progress,
        )
        growth = tables.growth(record["report"])
        return {
            "warnings": [growth] if growth else [],
            "text": json_files.dumps(record) if self.json else tables.of_run(record),
        }

    def _settings(self, name: str, *, has_features: bool) -> Any:
        from gnnrp.kernels import features
        from gnnrp.studies import presets

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
