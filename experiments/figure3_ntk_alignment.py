"""Figure 3: the tangent kernel of a GCN in training, its graph and its labels.

    python -m experiments.figure3_ntk_alignment --data-dir DIR --output reproduced
    python -m experiments.figure3_ntk_alignment --quick

Source: Section 6, App. D.2.
"""

import dataclasses

from experiments import reproduction
from gnnrp import datasets, plotting, tracking
from gnnrp.datasets import sbm

QUICK = {"num_steps": 500, "every": 250, "num_graphs": 3}


@dataclasses.dataclass(frozen=True)
class Config(reproduction.Config):
    """Which panels."""

    datasets: tuple[str, ...] = ("sbm", "cora", "texas")
    """With the paper's settings, see ``tracking.PAPER``."""


def run(config: Config) -> reproduction.Outcome:
    """Return the rows, the findings and a figure of each data set."""
    result, figures, files = {}, {}, {}
    for name in ("sbm",) if config.quick else config.datasets:
        data = datasets.load(name, config.data_dir, seed=config.seed)
        settings = dataclasses.replace(
            tracking.settings(name),
            seed=config.seed,
            **(QUICK if config.quick else {}),
        )
        family = None
        if name == "sbm":
            family = lambda share: sbm.generate(config.seed, homophilic_fraction=share)  # noqa: E731
        found = tracking.run(data, settings, family=family)
        kept = ("settings", "synthetic", "graphs", "rows", "claims", "diverged")
        result[name] = {key: found[key] for key in kept}
        figures[name], files[name] = plotting.evolution(found), data.files
    return reproduction.Outcome(result, figures, files)


if __name__ == "__main__":
    reproduction.main(Config, run, "figure3_ntk_alignment")
