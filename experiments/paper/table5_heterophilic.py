"""Heterophilic table: RP with features, networks trained here and published scores.

    python -m experiments.paper.table5_heterophilic --data-dir DIR --output reproduced

Each dataset has ten fixed splits. GCN and MLP are trained here, one network per split;
the scores of the specialized networks are the published ones.

Source: Table 5 (App. E.3).
"""

import dataclasses
from typing import Any, ClassVar

from experiments import published, runner
from experiments.paper import table4_homophilic, trained

SETS = ("roman-empire", "amazon-ratings", "minesweeper", "tolokers", "questions")


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Cells of the table."""

    datasets: tuple[str, ...] = SETS
    models: tuple[str, ...] = ("MLP", "GCN")
    num_seeds: int = 1
    """Networks per model on a dataset with a single split."""
    num_large: int = 10
    """Limit of networks per model, at most one per split."""
    num_epochs: int = trained.EPOCHS
    """Maximum number of epochs."""

    MODELS: ClassVar[tuple[str, ...]] = tuple(trained.RECIPES)
    SHORT: ClassVar[dict[str, Any]] = {"datasets": ("sbm",), "num_epochs": 5}


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return a column per dataset."""
    return table4_homophilic.columns(
        config, "table5_heterophilic", published.HETEROPHILIC, progress
    )


if __name__ == "__main__":
    runner.main(Config, run, "table5_heterophilic")
