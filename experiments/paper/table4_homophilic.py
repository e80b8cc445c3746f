"""Homophilic table: RP with features, networks trained here and published scores.

    python -m experiments.paper.table4_homophilic --data-dir DIR --output reproduced

Cora, Citeseer and Pubmed use their public split, the other datasets the one random
split of the paper (80/10/10), with twenty networks per model (three on datasets of more
than 5,000 nodes). A second column has RP and its baselines on ten other random splits.
Label propagation, RP without features and the majority class are baselines. RP has the
published settings; on Photo, another row has those of the authors' script. Networks and
RP use the same normalization of features.

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
SCRIPT = "RP, script's settings"
RANDOM = ("computers", "photo", "cs", "physics")
"""Datasets with a second column of random splits."""


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Cells of the table."""

    datasets: tuple[str, ...] = SETS
    models: tuple[str, ...] = tuple(trained.RECIPES)
    num_seeds: int = 20
    """Networks per model on one split; one per split on several."""
    num_large: int = 3
    """Limit of networks per model with more than 5,000 nodes or several splits."""
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
    """Return the scores of RP, its baselines and each network, by kind of split."""
    made = {"metric": data.metric, "found": scores(data, config, progress)}
    if data.name in RANDOM:
        drawn = runner.load(data.name, config, splits="random")
        assert drawn is not None  # loaded before, with the published split
        made["random splits"] = propagated(drawn, progress)
    return made


def scores(
    data: datasets.Dataset, config: Any, progress: runner.Progress
) -> dict[str, Any]:
    """Return the rows of networks, RP and its baselines."""
    rows = propagated(data, progress)
    if data.features is None:
        return dict.fromkeys(config.models, published.FEATURELESS) | rows
    settings = presets.settings(data.name)
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
    return networks | rows


def propagated(data: datasets.Dataset, progress: runner.Progress) -> dict[str, Any]:
    """Return the rows of RP and its baselines, which train no network."""

    def run(settings: presets.RPSettings) -> dict[str, Any]:
        return rp_study.run(data, settings, options=Options(progress=progress)).record

    if data.features is None:
        record = run(presets.settings(data.name, has_features=False))
        rows = without_weights(record, LINES_ALONE)
        return {"RP": published.FEATURELESS, "RP, graph alone": rows.pop("RP"), **rows}
    rows = without_weights(run(presets.settings(data.name)), LINES)
    if script := presets.SCRIPT_SETTINGS.get(data.name):
        rows[SCRIPT] = without_weights(run(script), {})["RP"]
    return rows


def num_networks(data: datasets.Dataset, config: Any) -> int:
    """Return the number of networks per model."""
    num_splits = len(data.splits.train)
    wanted = config.num_seeds if num_splits == 1 else num_splits
    large = num_splits > 1 or data.num_nodes > trained.LARGE
    return min(wanted, config.num_large) if large else wanted


def without_weights(record: dict[str, Any], lines: dict[str, str]) -> dict[str, Any]:
    """Return scores and settings of RP and its baselines in a record of ``rp.run``."""
    rows = {"RP": record} | {
        label: record["baselines"][name] for label, name in lines.items()
    }
    keys = ("settings", "val_mean", "val_std", "test_mean", "test_std")
    num_splits = len(record["splits"])
    return {
        label: {key: row[key] for key in keys} | {"num_seeds": num_splits}
        for label, row in rows.items()
    }


if __name__ == "__main__":
    runner.main(Config, run, "table4_homophilic")
