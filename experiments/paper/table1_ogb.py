"""Table 1: scores, time and memory of RP, LP, MLP, SGC and GCN on OGB datasets.

    python -m experiments.paper.table1_ogb --data-dir DIR --output reproduced
    python -m experiments.paper.table1_ogb --quick

LP and RP use only the graph. Networks are trained if the files contain features;
proteins has features on its edges, and each node gets the mean of those of its edges.

The published scores of LP come from OGB's leaderboard, whose form of LP is the row "LP,
column-normalized" (``baselines.column_lp``). The row "LP" is that of Eq. 3, with the
number of hops chosen by validation; another row resets the labels after each hop.

The last rows are those of the paper: the time of an RP step and of a full-batch
training step of the GCN, compiled and interleaved; the memory of both; and the time RP
needs to reach the best validation score of the trained GCN, relative to the GCN. Steps
and memory depend only on the sizes: a dataset without features gets random inputs of
its width.

Source: Table 1, Sec. 3.3.
"""

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from experiments import published, runner
from experiments.benchmarks import harness
from experiments.paper import table4_homophilic, trained
from gnnrp import datasets, graph, metrics, sparse
from gnnrp.models import training
from gnnrp.propagation import label, linear_maps, residual, similarity
from gnnrp.runtime.options import Options
from gnnrp.studies import baselines, presets, records
from gnnrp.studies import ntk as ntk_study
from gnnrp.studies import rp as rp_study

HELD_HOPS = 50
COLUMN_LP = "LP, column-normalized"


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Cells of the table."""

    datasets: tuple[str, ...] = ("arxiv", "proteins", "products")
    models: tuple[str, ...] = tuple(trained.OGB_RECIPES)
    num_seeds: int = 3
    """Networks per model."""
    num_epochs: int = trained.EPOCHS
    """Maximum number of epochs."""
    repeats: int = 3
    """Rounds of timing."""

    MODELS: ClassVar[tuple[str, ...]] = tuple(trained.OGB_RECIPES)
    SHORT: ClassVar[dict[str, Any]] = {
        "datasets": ("sbm",),
        "num_seeds": 2,
        "num_epochs": 5,
        "repeats": 1,
    }


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return scores and times for each available dataset."""
    stated = {
        "val": published.OGB_VAL,
        "test": published.OGB_TEST,
        "speed": published.OGB_SPEED,
    }
    result: dict[str, Any] = {
        name: {
            "published": {part: table.get(name, {}) for part, table in stated.items()},
            "found": published.ABSENT,
        }
        for name in config.datasets
    }
    measured, files = {}, {}
    compute = functools.partial(panel, config=config, progress=progress)
    for data, made in runner.each(config, "table1_ogb", compute):
        measured[data.name] = made.pop("measured")
        result[data.name] |= made
        files[data.name] = data.files
    return runner.Outcome({"datasets": result}, {}, files, measured)


def panel(
    data: datasets.Dataset, config: Config, progress: runner.Progress
) -> dict[str, Any]:
    """Return the scores on a dataset and the measurements."""
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    rp = rp_study.run(data, plain(data.name), options=Options(progress=progress))
    networks = train(data, config, progress)
    lines = table4_homophilic.LINES_ALONE
    found = networks | table4_homophilic.without_weights(rp.record, lines)
    found[COLUMN_LP] = column_lp(data)
    found["LP, labels held"] = labels_held(data, matrix)
    measured = speed(data, matrix, config)
    seconds = measured["seconds a step"]
    measured["time to accuracy"] = to_accuracy(rp, networks.get("GCN"), seconds)
    return {"metric": data.metric, "found": found, "measured": measured}


def plain(name: str) -> presets.RPSettings:
    """Return the settings of RP without features."""
    return presets.settings(name, has_features=False)


def train(
    data: datasets.Dataset, config: Config, progress: runner.Progress
) -> dict[str, Any]:
    """Return the scores of each network, or FEATURELESS without features."""
    if data.features is None:
        return dict.fromkeys(config.models, published.FEATURELESS)
    return trained.run(
        trained.subject(data, config.num_seeds, row_normalize=False),
        {model: trained.OGB_RECIPES[model] for model in config.models},
        seed=config.seed,
        num_epochs=config.num_epochs,
        progress=progress,
        title=data.name,
    )


def column_lp(data: datasets.Dataset) -> dict[str, Any]:
    """Return the scores of label propagation as on OGB's leaderboard."""
    made = baselines.column_lp(
        data.edges,
        datasets.targets(data),
        data.splits,
        metric=metrics.by_name(data.metric),
    )
    scores = records.summary(made.val, made.test)
    return {"settings": made.settings} | scores | {"num_seeds": len(made.val)}


def labels_held(data: datasets.Dataset, matrix: sparse.Matrix) -> dict[str, Any]:
    """Return the scores of label propagation with labels reset after each hop."""
    train, val, test = (jnp.asarray(mask[0])[:, None] for mask in data.splits)
    y = jnp.asarray(datasets.targets(data))

    @jax.jit
    def spread(matrix: sparse.Matrix, known: jax.Array, train: jax.Array) -> jax.Array:
        def hop(_: int, scores: jax.Array) -> jax.Array:
            return jnp.where(train, known, matrix(scores))

        return jax.lax.fori_loop(0, HELD_HOPS, hop, known)

    scores = spread(matrix, label.seeds(y, train[:, 0]), train)
    metric = metrics.by_name(data.metric)
    parts = (np.array([metric(scores, y, mask[:, 0])]) for mask in (val, test))
    return records.summary(*parts) | {"num_seeds": 1}


def speed(
    data: datasets.Dataset, matrix: sparse.Matrix, config: Config
) -> dict[str, Any]:
    """Measure seconds and bytes of an RP step and a GCN training step."""
    data = datasets.select_split(data, 0)
    mask = np.asarray(data.splits.train[0])
    targets = jnp.nan_to_num(jnp.asarray(datasets.targets(data)))
    S = linear_maps.restrict(similarity.Power(matrix, plain(data.name).power), mask)
    if data.features is None:
        shape = (data.num_nodes, datasets.published(data.name).num_features or 1)
        x = jax.random.normal(jax.random.key(config.seed), shape)
    else:
        x = ntk_study.inputs(data, row_normalize=False)
    learned = training.Data(x, matrix, targets, jnp.asarray(mask))
    rule = trained.rule(trained.OGB_RECIPES["GCN"], targets.shape[1], data.metric)
    rule = rule._replace(metric_fn=None, patience=None)
    state = jax.jit(functools.partial(training.init, rule))(learned, jax.random.key(0))
    compiled = {
        "RP": jax.jit(functools.partial(residual.step, step_size=1.0)),
        "GCN": jax.jit(functools.partial(training.step, rule)),
    }
    start = residual.init(targets)
    arguments = {
        "RP": (start, S, targets, jnp.asarray(mask)[:, None]),
        "GCN": (state, learned),
    }

    def step(name: str) -> Any:
        return jax.block_until_ready(compiled[name](*arguments[name]))

    times = harness.interleaved(
        {name: functools.partial(step, name) for name in compiled}, config.repeats
    )
    held = {name: harness.held(compiled[name], *arguments[name]) for name in compiled}
    seconds = {name: times[name]["median"] for name in times}
    return {
        "inputs": "as stored" if data.features is not None else "drawn",
        "seconds a step": {name: round(value, 6) for name, value in seconds.items()},
        "bytes": held,
        "speedup of a step": round(seconds["GCN"] / seconds["RP"], 3),
        "memory": round(held["RP"] / held["GCN"], 4),
    }


def to_accuracy(
    rp: rp_study.Run, network: Any, seconds: dict[str, float]
) -> dict[str, Any] | str:
    """Return the time of RP to the GCN's best validation score, relative to the GCN.

    The GCN's time is the median of the trained networks; ``ratio`` is None if RP does
    not reach the score.
    """
    if not isinstance(network, dict):
        return network or "not run: no GCN among the models"
    epochs = max(float(np.median(network["best_epochs"])), 1.0)
    goal, ratio, steps = network["val_mean"], None, None
    enough = np.asarray(rp.trajectory.val[0]) * 100 >= goal
    if enough.any():
        steps = 1 + int(enough.argmax())
        ratio = steps * seconds["RP"] / (epochs * seconds["GCN"])
    return {
        "val": goal,
        "GCN epochs": epochs,
        "RP steps": steps,
        "ratio": None if ratio is None else float(f"{ratio:.4g}"),
    }


if __name__ == "__main__":
    runner.main(Config, run, "table1_ogb")
