"""Homophilic table: RP with features, networks trained here and published scores.

    python -m experiments.paper.table4_homophilic --data-dir DIR --output reproduced

Cora, Citeseer and Pubmed use their public split, with twenty networks per model (three
on Pubmed). The other datasets use ten random splits (80/10/10) for RP and the first
three of them for the networks. Label propagation, RP without features and the majority
class are baselines. RP has the published settings; networks and RP use the same
normalization of features.

Source: Table 4 (App. E.2).
"""

import dataclasses
import functools
from typing import Any, ClassVar

from experiments import published, runner
from experiments.paper import trained
from gnnrp import datasets
from gnnrp.runtime.options import Options
from gnnrp.studies import presets
from gnnrp.studies import rp as rp_study

SETS = ("cora", "citeseer", "pubmed", "computers", "photo", "cs", "physics")
LINES = {"LP": "lp", "RP, graph alone": "rp", "majority class": "majority"}
LINES_ALONE = {"LP": "lp", "majority class": "majority"}
"""Rows of the tables and their names in ``baselines``; the second dict is for RP
without features."""


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Cells of the table."""

    datasets: tuple[str, ...] = SETS
    models: tuple[str, ...] = tuple(trained.RECIPES)
    num_seeds: int = 20
    """Networks per model on a public split; one per split on random splits."""
    num_large: int = 3
    """Limit of networks per model with more than 10,000 nodes or random splits."""
    num_epochs: int = trained.EPOCHS
    """Maximum number of epochs."""

    MODELS: ClassVar[tuple[str, ...]] = tuple(trained.RECIPES)
    SHORT: ClassVar[dict[str, Any]] = {
        "datasets": ("sbm",),
        "num_seeds": 2,
        "num_epochs": 5,
    }


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return a column per dataset."""
    return columns(config, "table4_homophilic", published.HOMOPHILIC, progress)


def columns(
    config: Any,
    experiment: str,
    stated: dict[str, dict[str, published.Cell]],
    progress: runner.Progress,
) -> runner.Outcome:
    """Return the computed and the published scores of each dataset."""
    found: dict[str, Any] = {}
    for name in config.datasets:
        beside = {who: cells[name] for who, cells in stated.items() if name in cells}
        found[name] = {"published": beside, "found": published.ABSENT}
    files = {}
    compute = functools.partial(column, config=config, progress=progress)
    for data, made in runner.each(config, experiment, compute):
        found[data.name] |= made
        files[data.name] = data.files
    return runner.Outcome({"datasets": found}, {}, files)


def column(
    data: datasets.Dataset, config: Any, progress: runner.Progress
) -> dict[str, Any]:
    """Return the scores of RP, its baselines and each network."""
    has_features = data.features is not None
    settings = presets.settings(data.name, has_features=has_features)
    record = rp_study.run(data, settings, options=Options(progress=progress)).record
    networks: dict[str, Any] = dict.fromkeys(config.models, published.FEATURELESS)
    if not has_features:
        alone = without_weights(record, LINES_ALONE)
        rows = {"RP": published.FEATURELESS, "RP, graph alone": alone.pop("RP")}
        return {"metric": data.metric, "found": networks | rows | alone}
    learned = trained.subject(
        data, num_networks(data, config), row_normalize=settings.row_normalize
    )
    networks = trained.run(
        learned,
        trained.recipes(data, config.models),
        seed=config.seed,
        num_epochs=config.num_epochs,
        progress=progress,
        title=data.name,
    )
    return {"metric": data.metric, "found": networks | without_weights(record, LINES)}


def num_networks(data: datasets.Dataset, config: Any) -> int:
    """Return the number of networks per model."""
    num_splits = len(data.splits.train)
    wanted = config.num_seeds if num_splits == 1 else num_splits
    large = num_splits > 1 or data.num_nodes > trained.LARGE
    return min(wanted, config.num_large) if large else wanted


def without_weights(record: dict[str, Any], lines: dict[str, str]) -> dict[str, Any]:
    """Return the scores of RP and its baselines from a record of ``studies.rp.run``."""
    rows = {"RP": record} | {
        label: record["baselines"][name] for label, name in lines.items()
    }
    scores = ("val_mean", "val_std", "test_mean", "test_std")
    num_splits = len(record["splits"])
    return {
        label: {key: row[key] for key in scores} | {"num_seeds": num_splits}
        for label, row in rows.items()
    }


if __name__ == "__main__":
    runner.main(Config, run, "table4_homophilic")
