"""Heterophilic table: RP with features beside networks trained here and the published.

    python -m experiments.table5_heterophilic --data-dir DIR --output reproduced

Ten given splits; GCN and MLP, one seed a split, are trained here, the specialized
networks are the paper's figures.

Source: Table 6 (App. E.3).
"""

import dataclasses

from experiments import published, reproduction, table4_homophilic, trained

SETS = ("roman-empire", "amazon-ratings", "minesweeper", "tolokers", "questions")


@dataclasses.dataclass(frozen=True)
class Config(reproduction.Config):
    """Which cells."""

    datasets: tuple[str, ...] = SETS
    models: tuple[str, ...] = ("MLP", "GCN")
    num_seeds: int = 1
    """Of a set with a single split."""
    num_epochs: int = trained.EPOCHS
    """At most."""


def run(config: Config) -> reproduction.Outcome:
    """Return a column a data set."""
    if config.quick:
        config = dataclasses.replace(config, datasets=("sbm",), num_epochs=5)
    found, files = {}, {}
    for name in config.datasets:
        found[name], files[name] = table4_homophilic.column(
            name, config, published.HETEROPHILIC
        )
    return reproduction.Outcome({"datasets": found}, {}, files)


if __name__ == "__main__":
    reproduction.main(Config, run, "table5_heterophilic")
