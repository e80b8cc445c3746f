"""Heterophilic table: RP with features beside networks trained here and the published.

    python -m experiments.paper.table5_heterophilic --data-dir DIR --output reproduced

Ten given splits; GCN and MLP, one network a split, are trained here, the specialized
networks are the paper's figures.

Source: Table 5 (App. E.3).
"""

import dataclasses
from typing import Any, ClassVar

from experiments import published, runner
from experiments.paper import table4_homophilic, trained

SETS = ("roman-empire", "amazon-ratings", "minesweeper", "tolokers", "questions")


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Which cells."""

    datasets: tuple[str, ...] = SETS
    models: tuple[str, ...] = ("MLP", "GCN")
    num_seeds: int = 1
    """Of a set with a single split."""
    num_large: int = 10
    """Networks of a kind, at most one a split."""
    num_epochs: int = trained.EPOCHS
    """At most."""

    MODELS: ClassVar[tuple[str, ...]] = tuple(trained.RECIPES)
    SHORT: ClassVar[dict[str, Any]] = {"datasets": ("sbm",), "num_epochs": 5}


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return a column a data set."""
    return table4_homophilic.columns(
        config, "table5_heterophilic", published.HETEROPHILIC, progress
    )


if __name__ == "__main__":
    runner.main(Config, run, "table5_heterophilic")
