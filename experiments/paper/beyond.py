"""Beyond the paper: RP with the similarity that validation chooses, on every dataset.

    python -m experiments.paper.beyond --data-dir DIR --output reproduced
    python -m experiments.paper.beyond --quick

Each split chooses among powers of A, the paper's kernel, kernels of hop features and
their sums (``gnnrp.studies.choice``), on its validation nodes. Its test nodes are
scored once. Beside it stand models trained here on the same splits: GCN, SGC, APPNP,
SIGN (an MLP on hop features), and an MLP with Correct and Smooth. Planetoid has its
public split, and twenty random ones of the same sizes in a second row; Computers,
Photo, CS and Physics have ten random splits, the others their ten public ones.
"""

import dataclasses
import functools
import time
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure

from experiments import published, runner
from experiments.paper import corrected, table4_homophilic, trained
from gnnrp import datasets, graph, plotting, sparse
from gnnrp.kernels import features
from gnnrp.runtime.options import Options
from gnnrp.studies import auto_rp, presets
from gnnrp.types import Split

SETS = (
    *("cora", "citeseer", "pubmed", "computers", "photo", "cs", "physics"),
    *("texas", "cornell", "wisconsin", "roman-empire", "minesweeper", "tolokers"),
    "arxiv",
)
PLANETOID = ("cora", "citeseer", "pubmed")
NUM_RANDOM = 20
PER_CLASS, NUM_VAL, NUM_TEST = 20, 500, 1000
"""Sizes of the public splits of Planetoid."""
SIGN_HOPS = 2
MAX_HOP_ENTRIES = 2e8
"""Size of the hop features up to which SIGN is trained; on CS, a step takes seconds."""
DENSE_FEATURES = 1_000
"""Number of features up to which SIGN standardizes hop features, which are dense."""


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Datasets, time of the choice and networks."""

    datasets: tuple[str, ...] = SETS
    models: tuple[str, ...] = ("GCN", "SGC", "APPNP", "SIGN", "C&S")
    search_seconds: float = 200.0
    """Time per dataset after which no other similarity is tried."""
    num_seeds: int = 10
    """Networks per model on a dataset with a single split."""
    num_large: int = 3
    """Limit of networks per model with more than 5,000 nodes."""
    num_epochs: int = trained.EPOCHS
    """Maximum number of epochs."""

    MODELS: ClassVar[tuple[str, ...]] = (*trained.RECIPES, "SIGN", "C&S")
    SHORT: ClassVar[dict[str, Any]] = {
        "datasets": ("sbm",), "models": ("GCN", "SIGN", "C&S"), "num_seeds": 1,
        "num_epochs": 20,
    }  # fmt: skip


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return a row for each dataset."""
    rows: dict[str, Any] = dict.fromkeys(config.datasets, published.ABSENT)
    files = {}
    compute = functools.partial(row, config=config, progress=progress)
    for data, found in runner.each(config, "beyond", compute):
        rows[data.name], files[data.name] = found, data.files
    times = {
        name: {kind: part.pop("seconds") for kind, part in found["chosen"].items()}
        for name, found in rows.items()
        if found != published.ABSENT
    }
    figures = {"": figure(rows)}
    return runner.Outcome({"datasets": rows}, figures, files, {"seconds": times})


def row(
    data: datasets.Dataset, config: Config, progress: runner.Progress
) -> dict[str, Any]:
    """Return the scores of the chosen similarities and of networks."""
    if data.name in table4_homophilic.RANDOM:
        drawn = runner.load(data.name, config, splits="random")
        assert drawn is not None  # loaded before, with the published split
        data = drawn
    kinds = {data.split_kind: data}
    if data.name in PLANETOID:
        kinds["random"] = data._replace(
            splits=planetoid_splits(data.labels, NUM_RANDOM, config.seed)
        )
    return {
        "metric": data.metric,
        "published": best_published(data.name),
        "chosen": {
            kind: chosen(each, config, progress) for kind, each in kinds.items()
        },
        "networks": networks(data, config, progress),
    }


def chosen(
    data: datasets.Dataset, config: Config, progress: runner.Progress
) -> dict[str, Any]:
    """Return scores, the choice of each split, the trials, and the time."""
    began = time.perf_counter()
    record = auto_rp.run(
        data,
        seconds=config.search_seconds,
        with_baselines=False,
        options=Options(progress=progress),
    )
    names = ("val_mean", "val_std", "test_mean", "test_std", "splits", "choice")
    found = {name: record[name] for name in names}
    for trial in found["choice"]["trials"]:
        del trial["seconds"]
    return found | {"seconds": round(time.perf_counter() - began, 1)}


def networks(
    data: datasets.Dataset, config: Config, progress: runner.Progress
) -> dict[str, Any]:
    """Return the scores of networks trained on the same splits."""
    if data.features is None:
        return dict.fromkeys(config.models, published.FEATURELESS)
    num_splits = len(data.splits.train)
    count = config.num_seeds if num_splits == 1 else num_splits
    if data.num_nodes > trained.LARGE:
        count = min(count, config.num_large)
    train = functools.partial(
        trained.run,
        seed=config.seed,
        num_epochs=config.num_epochs,
        progress=progress,
        title=data.name,
    )
    row_normalize = presets.settings(data.name).row_normalize
    plain = trained.subject(data, count, row_normalize=row_normalize)
    names = [name for name in config.models if name in trained.RECIPES]
    found: dict[str, Any] = train(plain, trained.recipes(data, names))
    adjacency = graph.raw_adjacency(data.edges, data.num_nodes)
    mlp = trained.recipes(data, ["MLP"])
    size = (SIGN_HOPS + 1) * data.num_nodes * data.features.shape[1]
    if "SIGN" in config.models and size > MAX_HOP_ENTRIES:
        found["SIGN"] = "not run: its hop features are too large"
    elif "SIGN" in config.models:
        wide = data.features.shape[1] > DENSE_FEATURES
        scaling = "cosine" if wide else "standard"
        z = features.hop_features(
            data.features, adjacency, features.HopSettings(SIGN_HOPS, scaling=scaling)
        )
        z = z if wide else z * np.sqrt(z.shape[1])  # columns of deviation one
        hops = trained.subject(data._replace(features=z), count, row_normalize=False)
        found["SIGN"] = train(hops, mlp)["MLP"]
    if "C&S" in config.models:
        found["C&S"] = corrected.run(
            plain,
            mlp["MLP"],
            sparse.prepare(graph.normalize(adjacency, self_loops=0)),
            seed=config.seed,
            num_epochs=config.num_epochs,
            progress=functools.partial(_rename, progress, f"{data.name} C&S"),
        )
    return found


def _rename(progress: runner.Progress, title: str, _: str, done: int, of: int) -> None:
    progress(title, done, of)


def planetoid_splits(labels: np.ndarray, num_splits: int, seed: int) -> Split:
    """Return random splits of the sizes of Planetoid's public one."""
    generator = np.random.default_rng(seed)
    shape = num_splits, len(labels)
    train, val, test = (np.zeros(shape, bool) for _ in range(3))
    for row in range(num_splits):
        order = generator.permutation(np.flatnonzero(labels >= 0))
        for label in np.unique(labels[labels >= 0]):
            train[row, order[labels[order] == label][:PER_CLASS]] = True
        rest = order[~train[row, order]]
        val[row, rest[:NUM_VAL]] = True
        test[row, rest[NUM_VAL : NUM_VAL + NUM_TEST]] = True
    return Split(train, val, test)


def best_published(name: str) -> dict[str, Any]:
    """Return the published score of RP, and of the best network of its table."""
    tables = (published.HOMOPHILIC, published.HETEROPHILIC)
    cells = {
        who: row[name] for one in tables for who, row in one.items() if name in row
    }
    if name in published.OGB_TEST:
        cells = published.OGB_TEST[name]
    others = {who: cell for who, cell in cells.items() if who not in {"RP", "LP"}}
    best = max(others, key=lambda who: others[who].mean, default=None)
    return {
        "RP": cells.get("RP"),
        "best": None if best is None else [best, *others[best]],
    }


def figure(rows: dict[str, Any]) -> Figure:
    """Draw validation score against alignment for each candidate of each dataset."""
    present = {name: row for name, row in rows.items() if row != published.ABSENT}
    if not present:
        return Figure()
    columns = min(4, len(present))
    lines = -(-len(present) // columns)
    drawn = Figure(figsize=(2.6 * columns, 2.1 * lines), layout="constrained")
    panels = drawn.subplots(lines, columns, squeeze=False).ravel()
    for axes in panels[len(present) :]:
        axes.set_axis_off()
    for axes, (name, row) in zip(panels, present.items(), strict=False):
        choice = next(iter(row["chosen"].values()))["choice"]
        for label, color, belongs in plotting.CANDIDATES:
            some = [trial for trial in choice["trials"] if belongs(trial["parts"])]
            x, y = ([trial[key] for trial in some] for key in ("alignment", "val_mean"))
            axes.plot(x, y, "o", color=color, markersize=4, label=label)
        ranks = choice["rank_correlation"]
        title = name if ranks is None else f"{name} ({ranks:+.2f})"
        axes.set_title(title, fontsize="small")
        axes.tick_params(labelsize="x-small")
    handles, labels = panels[0].get_legend_handles_labels()
    drawn.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=3,
        frameon=False,
        fontsize="small",
    )
    drawn.supxlabel("alignment with the training labels", fontsize="small")
    drawn.supylabel("validation score, %", fontsize="small")
    return drawn


if __name__ == "__main__":
    runner.main(Config, run, "beyond")
