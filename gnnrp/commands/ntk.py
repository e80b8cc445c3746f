"""`gnnrp ntk`: finite networks and their tangent kernel during training."""

import dataclasses
from typing import Any

from gnnrp.commands._shared import ResumableFlags, flags_of, values_from_flags
from gnnrp.runtime.progress import Bar
from gnnrp.studies.settings import NTKSettings

SPEED_UP = 10  # of --quick
_Flags = flags_of(NTKSettings, exclude=("seed", "early"))


def quick_values(published: NTKSettings) -> dict[str, Any]:
    """Return the settings of a short run, which trains for as long in units of η t."""
    num_steps = published.num_steps // SPEED_UP
    return {
        "learning_rate": published.learning_rate * SPEED_UP,
        "num_steps": num_steps,
        "every": num_steps // 4,
        "num_graphs": 5,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ntk(_Flags, ResumableFlags):
    """Train a GCN and track its tangent kernel, on many graphs at the same weights.

    The alignment of the kernel with the graph and with the labels is printed next to
    the accuracy. Graphs of `sbm` mix homophilic and heterophilic edges; those of other
    datasets lose edges until none is left.
    """

    seed: int = 0
    """Seed of weights, thinning, random splits and the generated graphs."""
    early: int = 7
    """Number of evaluations before the regular ones, at steps such as 10, 20, 50."""
    quick: bool = False
    """Take a tenth of the steps, ten times as large, on 5 graphs: under a minute."""

    def run(self) -> None:
        """Load the dataset, train, and print."""
        from gnnrp.datasets import sbm
        from gnnrp.studies import ntk as ntk_study
        from gnnrp.studies import tables

        self.check_dataset()
        origin = self.check_folder()
        target = self.figure_path()
        published = ntk_study.settings(self.dataset)
        values = values_from_flags(self, published)
        values = quick_values(published) | values if self.quick else values
        settings = dataclasses.replace(published, **values)
        with Bar(quiet=self.quiet) as progress:
            options = self.options(progress)
            dataset = self.load_dataset()

            def mixture(fraction: float) -> sbm.Dataset:
                return sbm.generate(self.seed, homophilic_fraction=fraction)

            record = ntk_study.run(
                dataset,
                settings,
                options=options,
                family=mixture if dataset.name == "sbm" else None,
            )
        from gnnrp import plotting

        def figure() -> Any:
            return plotting.evolution(record)

        self.show(record, tables.tracking_table, target, figure, origin)
