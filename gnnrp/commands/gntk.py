"""`gnnrp gntk`: infinitely wide networks."""

import dataclasses
from typing import Literal

from gnnrp.commands._shared import RunFlags, flags_of, values_from_flags
from gnnrp.runtime.progress import Bar
from gnnrp.studies.settings import GNTKSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gntk(flags_of(GNTKSettings, optional=False), RunFlags):
    """Train infinitely wide GCNs by their tangent kernel, depth by depth.

    Prints their test scores next to those of RP and label propagation, and the
    alignment of their kernels with the graph and with the labels.
    """

    precision: Literal["float32", "float64"] = "float32"
    """Floating type of the kernels."""

    def run(self) -> None:
        """Load, run, and print."""
        from gnnrp.studies import gntk as gntk_study
        from gnnrp.studies import presets, tables

        self.check_dataset()
        if self.bias == "none" and self.bias_std != Gntk.bias_std:
            msg = "--bias-std needs a bias: --bias before, or --bias after"
            raise ValueError(msg)
        settings = GNTKSettings(**values_from_flags(self, GNTKSettings))
        target = self.figure_path()
        dataset = self.load_dataset()
        with presets.precision(self.precision), Bar(quiet=self.quiet) as progress:
            options = self.options(progress)
            record = gntk_study.run(dataset, settings, options=options)
        from gnnrp import plotting

        self.show(record, tables.depth_table, target, lambda: plotting.depths(record))
