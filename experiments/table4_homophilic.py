"""Homophilic table: RP with features beside networks trained here and the published.

    python -m experiments.table4_homophilic --data-dir DIR --output reproduced

Planetoid sets have their public split and 20 seeds, the others ten random splits
(80/10/10) and one seed each. RP has the published settings.

Source: Table 5 (App. E.2).
"""

import dataclasses
from typing import Any

from experiments import published, reproduction, trained
from gnnrp import datasets, pipeline, presets

SETS = ("cora", "citeseer", "pubmed", "computers", "photo", "cs", "physics")


@dataclasses.dataclass(frozen=True)
class Config(reproduction.Config):
    """Which cells."""

    datasets: tuple[str, ...] = SETS
    models: tuple[str, ...] = tuple(trained.NETWORKS)
    num_seeds: int = 20
    """Of a public split; random splits have one each."""
    num_epochs: int = trained.EPOCHS
    """At most."""


def run(config: Config) -> reproduction.Outcome:
    """Return a column a data set."""
    if config.quick:
        config = dataclasses.replace(
            config, datasets=("sbm",), num_seeds=2, num_epochs=5
        )
    found, files = {}, {}
    for name in config.datasets:
        found[name], files[name] = column(name, config, published.HOMOPHILIC)
    return reproduction.Outcome({"datasets": found}, {}, files)


def column(
    name: str, config: Any, stated: dict[str, dict[str, published.Cell]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what was found and what is published of one data set."""
    beside = {model: cells[name] for model, cells in stated.items() if name in cells}
    if name != "sbm" and datasets.find(name, config.data_dir) is None:
        return {"published": beside, "found": published.ABSENT}, {}
    data = datasets.load(name, config.data_dir, download=False, seed=config.seed)
    if data.features is None:
        return {"published": beside, "found": published.ABSENT}, data.files
    splits = len(data.splits.train)
    settings = presets.settings(name)
    rp = pipeline.run(data, settings).record
    networks = trained.run(
        data,
        config.models,
        row_normalize=settings.row_normalize,
        num_seeds=config.num_seeds if splits == 1 else splits,
        seed=config.seed,
        num_epochs=config.num_epochs,
    )
    scores = ("val_mean", "val_std", "test_mean", "test_std")
    found = networks | {"RP": {key: rp[key] for key in scores} | {"num_seeds": splits}}
    return {"metric": data.metric, "published": beside, "found": found}, data.files


if __name__ == "__main__":
    reproduction.main(Config, run, "table4_homophilic")
