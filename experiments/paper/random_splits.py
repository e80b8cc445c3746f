r"""Measure how far a published mean depends on its random splits.

    python -m experiments.paper.random_splits --data-dir DIR

Runs the published settings on many splits and reports bounds of the result: the best
split, the best step if it is selected on the test nodes, the nodes without edges, and
the largest component.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import tyro
from scipy.sparse import csgraph

from experiments.benchmarks import harness
from gnnrp import datasets
from gnnrp.datasets import Dataset, splits
from gnnrp.studies import presets
from gnnrp.studies import rp as rp_study
from gnnrp.types import Split


@dataclasses.dataclass(frozen=True)
class Config:
    """Dataset and splits."""

    dataset: str = "photo"
    """A dataset with random splits, scored by accuracy."""
    data_dir: Path | None = None
    """Folder of its files."""
    num_splits: int = 50
    """Splits of 80, 10 and 10 percent; the first ten are those of `gnnrp rp`."""
    seed: int = 0
    """Seed of the splits."""
    allowance: float = 1.5
    """Percent below the published mean that still count as a match."""
    output: Path | None = None
    """Folder for random_splits_DATASET.json."""


def main(config: Config) -> dict[str, Any]:
    """Run, print and return the results.

    Raises:
        ValueError: the dataset is not scored by accuracy.
    """
    data = datasets.load(config.dataset, config.data_dir)
    if data.metric != "accuracy":
        msg = f"{data.name} is scored by {data.metric}; choose one scored by accuracy"
        raise ValueError(msg)
    drawn = splits.random(data.labels, config.num_splits, seed=config.seed)
    data = data._replace(splits=drawn)
    settings = presets.settings(data.name, has_features=data.features is not None)
    published = presets.PUBLISHED.get(data.name)
    isolated = without_neighbor(data)
    whole = rp_study.run(data, settings).trajectory
    hits = np.argmax(whole.predictions, axis=-1) == data.labels
    found = {
        "dataset": data.name,
        "splits": config.num_splits,
        "seed": config.seed,
        "settings": dataclasses.asdict(settings),
        "published": published.test if published else None,
        "isolated nodes": int(isolated.sum()),
        "diverged": int(whole.report.diverged.sum()),
        "test": summary(whole.best_test),
        "step chosen on the test nodes": summary(np.nanmax(whole.test, axis=1)),
        "test nodes with an edge": summary(share(hits, drawn.test & ~isolated)),
        "test nodes without": summary(share(hits, drawn.test & isolated)),
    }
    if published:
        enough = (published.test - config.allowance) / 100
        found["splits that reach it"] = int(np.sum(whole.best_test >= enough))
    del whole, hits
    part = largest_component(data)
    found["largest component"] = {
        "nodes": part.num_nodes,
        "test": summary(rp_study.run(part, settings).trajectory.best_test),
    }
    return harness.finish(found, f"random_splits_{data.name}", config.output)


def without_neighbor(data: Dataset) -> np.ndarray:
    """Return a mask of the nodes without edges other than loops."""
    proper = data.edges[:, data.edges[0] != data.edges[1]]
    return ~np.isin(np.arange(data.num_nodes), proper)


def largest_component(data: Dataset) -> Dataset:
    """Restrict a dataset to its largest component."""
    n = data.num_nodes
    ones = np.ones(data.edges.shape[1])
    matrix = scipy.sparse.coo_array((ones, tuple(data.edges)), shape=(n, n))
    _, component = csgraph.connected_components(matrix, directed=False)
    inside = component == np.argmax(np.bincount(component))
    number = np.cumsum(inside) - 1
    return data._replace(
        edges=number[data.edges[:, inside[data.edges[0]]]],
        num_nodes=int(inside.sum()),
        features=None if data.features is None else data.features[inside],
        labels=data.labels[inside],
        splits=Split(*(mask[:, inside] for mask in data.splits)),
    )


def share(hits: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Return the share of hits in each mask, NaN if it is empty."""
    with np.errstate(invalid="ignore"):
        return np.sum(hits & masks, axis=1) / np.sum(masks, axis=1)


def summary(shares: np.ndarray) -> dict[str, float | None]:
    """Return mean, standard deviation, minimum and maximum over splits, in percent."""
    percent = 100 * np.asarray(shares, np.float64)
    percent = percent[np.isfinite(percent)]
    if not percent.size:
        return {"mean": None, "std": None, "min": None, "max": None}
    return {
        "mean": round(float(percent.mean()), 2),
        "std": round(float(percent.std(ddof=1)), 2) if percent.size > 1 else 0.0,
        "min": round(float(percent.min()), 2),
        "max": round(float(percent.max()), 2),
    }


if __name__ == "__main__":
    main(tyro.cli(Config))
