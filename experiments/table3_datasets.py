"""Dataset table: statistics of every set that is here, beside the paper's.

    python -m experiments.table3_datasets --data-dir DIR --output reproduced

The paper counts edges in three ways, in one table: "both" directions of the cleaned
edges, "once", or the "lines" of the file. Each set is counted in all three; the one
that the paper takes for it is compared. Sets whose files are absent are marked so.

Source: the dataset table of App. D.1.
"""

import dataclasses
from typing import Any

from experiments import published, reproduction
from gnnrp import datasets

CONVENTIONS = ("both", "once", "lines")


@dataclasses.dataclass(frozen=True)
class Config(reproduction.Config):
    """Which sets."""

    datasets: tuple[str, ...] = datasets.names()
    """All if left out."""


def run(config: Config) -> reproduction.Outcome:
    """Return a row a data set."""
    names = ("sbm",) if config.quick else config.datasets
    found = {name: row(name, config) for name in names}
    files = {name: each.pop("files") for name, each in found.items() if "files" in each}
    return reproduction.Outcome({"datasets": found}, {}, files)


def row(name: str, config: Config) -> dict[str, Any]:
    """Return what the paper states of a set, and what was counted."""
    stated = datasets.published(name)
    if name != "sbm" and datasets.find(name, config.data_dir) is None:
        return {"published": stated._asdict(), "found": published.ABSENT}
    data = datasets.load(name, config.data_dir, download=False, seed=config.seed)
    counted = datasets.statistics(data)
    differs = [
        field
        for field, value in stated._asdict().items()
        if value is not None and value != getattr(counted, field)
    ]
    return {
        "published": stated._asdict(),
        "found": counted._asdict(),
        "edges": {
            convention: datasets.statistics(
                data._replace(edge_convention=convention)
            ).num_edges
            for convention in CONVENTIONS
        },
        "convention": data.edge_convention,
        "differs": differs,
        "files": data.files,
    }


if __name__ == "__main__":
    reproduction.main(Config, run, "table3_datasets")
