"""`gnnrp gntk`: infinitely wide networks."""

import dataclasses
from typing import Literal

from gnnrp.commands._shared import Precision, RunFlags, target_path
from gnnrp.runtime.progress import Bar


@dataclasses.dataclass(frozen=True)
class Gntk(RunFlags):
    """Train infinitely wide GCNs by their tangent kernel, depth by depth.

    Prints their test scores next to those of RP and label propagation, and the
    alignment of their kernels with the graph and with the labels.
    """

    depths: tuple[int, ...] = (1, 2, 3, 4)
    """L, number of weight matrices of each network."""
    activation: Literal["relu", "leaky_relu", "erf", "identity"] = "relu"
    """φ, between layers."""
    bias: Literal["none", "before", "after"] = "none"
    """Bias before or after the aggregation, if any."""
    bias_std: float = 1.0
    """β of the bias."""
    num_steps: int = 10_000
    """Number of steps of gradient descent."""
    precision: Precision = "float32"
    """Floating type of the kernels."""
    route: Literal["recursion", "neural-tangents"] = "recursion"
    """Own recursion with a sparse matrix, or neural-tangents, which is slower."""

    def run(self) -> None:
        """Load, run, and print."""
        from gnnrp.studies import gntk as gntk_study
        from gnnrp.studies import presets, tables

        self.check_dataset()
        if self.bias == "none" and self.bias_std != Gntk.bias_std:
            msg = "--bias-std needs a bias: --bias before, or --bias after"
            raise ValueError(msg)
        settings = gntk_study.GNTKSettings(
            self.depths,
            self.activation,
            self.bias,
            self.bias_std,
            self.num_steps,
            self.route,
        )
        target = target_path(self.plot, f"gntk-{self.dataset}.png", quiet=self.json)
        dataset = self.load_dataset()
        with presets.precision(self.precision), Bar(quiet=self.quiet) as progress:
            options = self.options(progress)
            record = gntk_study.run(dataset, settings, options=options)
        from gnnrp import plotting

        self.show(record, tables.depth_table, target, lambda: plotting.depths(record))
