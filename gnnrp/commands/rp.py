"""`gnnrp rp`: residual propagation."""

import dataclasses
import sys
import time
from typing import Annotated, Any, Literal

from gnnrp.commands._shared import (
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
class Rp(OnData):
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
    """Of the node features; `none` for the graph alone."""
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

    def run(self) -> None:
        """Load, run, and print.

        Raises:
            ValueError: settings or data that do not serve.
        """
        from gnnrp import pipeline, records, tables

        began, max_bytes = time.perf_counter(), self.max_bytes()
        dataset = self.load_dataset()
        loaded = time.perf_counter() - began
        settings = self._settings(has_features=dataset.features is not None)
        target = target_path(self.plot, f"rp-{dataset.name}.png", quiet=self.json)
        with Bar(quiet=self.quiet) as progress:
            result = pipeline.run(
                dataset,
                settings,
                load_seconds=loaded,
                max_bytes=max_bytes,
                progress=progress,
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
