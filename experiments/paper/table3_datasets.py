"""Dataset table: statistics of every available dataset and the published ones.

    python -m experiments.paper.table3_datasets --data-dir DIR --output reproduced

The paper counts edges in three ways in one table: "both" directions of the cleaned
edges, each edge "once", or the "lines" of the file. Each dataset is counted in all
three ways, and the count in the paper's way is compared. Datasets without files are
marked.

Source: the dataset table of App. D.1.
"""

import dataclasses
from typing import Any, ClassVar

from experiments import published, runner
from gnnrp import datasets

CONVENTIONS = ("both", "once", "lines")


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Datasets of the table."""

    datasets: tuple[str, ...] = datasets.names()
    """Datasets; all by default."""

    SHORT: ClassVar[dict[str, Any]] = {"datasets": ("sbm",)}


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return a row per dataset."""
    found = {}
    for name in config.datasets:
        progress(name, len(found), len(config.datasets))
        found[name] = row(name, config)
    files = {name: each.pop("files") for name, each in found.items() if "files" in each}
    return runner.Outcome({"datasets": found}, {}, files)


def row(name: str, config: Config) -> dict[str, Any]:
    """Return the published and the computed statistics of a dataset."""
    stated = datasets.published(name)
    data = runner.load(name, config)
    if data is None:
        return {"published": stated._asdict(), "found": published.ABSENT}
    counted = datasets.statistics(data)
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
        "differs": list(datasets.differences(data)),
        "files": data.files,
    }


if __name__ == "__main__":
    runner.main(Config, run, "table3_datasets")
