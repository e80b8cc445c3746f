"""Train MLP, SGC, GCN, JKNet and APPNP with common settings for the tables.

Training uses full batches, Adam, dropout, weight decay and early stopping on the
validation score, with several seeds on one split, or one seed per split on several.
Settings are common ones and not tuned, unlike those of the published scores. Weight
decay is used if few nodes are labeled, as on the Planetoid datasets, and not if most
nodes are labeled. All other settings are the same for all datasets of a table.
"""

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import runner
from gnnrp import datasets, graph, metrics, sparse
from gnnrp.models import gnn, objectives, training
from gnnrp.runtime.options import Options
from gnnrp.studies import ntk as ntk_study
from gnnrp.studies import records
from gnnrp.types import MetricFn

EPOCHS = 300
PATIENCE = 50
EVERY = 25
LARGE = 5_000
"""Number of nodes above which fewer networks are trained."""


class Recipe(NamedTuple):
    """A network with its training settings."""

    build: Callable[..., gnn.MLP]  # number of outputs -> network
    learning_rate: float = 0.01
    weight_decay: float = 5e-4


def _recipe(kind: Callable[..., gnn.MLP], *rates: float, **more: Any) -> Recipe:
    settings = {"dropout": 0.5, "initialization": "glorot"} | more
    return Recipe(functools.partial(kind, **settings), *rates)


RECIPES: dict[str, Recipe] = {
    "MLP": _recipe(gnn.MLP, width=64),
    "SGC": _recipe(gnn.SGC, 0.1, 5e-5, power=2, dropout=0.0),
    "GCN": _recipe(gnn.GCN, width=64),
    "JKNet": _recipe(gnn.JKNet, width=64, depth=3),
    "APPNP": _recipe(gnn.APPNP, width=64, power=10, alpha=0.1),
}
"""Tables 4 and 5: two layers of width 64, three layers for JKNet."""

OGB_RECIPES: dict[str, Recipe] = {
    "MLP": _recipe(gnn.MLP, 0.01, 0.0, width=256, depth=3),
    "SGC": _recipe(gnn.SGC, 0.1, 0.0, power=3, dropout=0.0),
    "GCN": _recipe(gnn.GCN, 0.01, 0.0, width=256, depth=3),
}
"""Table 1: sizes as in OGB's examples, without their batch normalization."""


def recipes(data: datasets.Dataset, models: Iterable[str]) -> dict[str, Recipe]:
    """Return the training settings for a dataset of Tables 4 and 5."""
    chosen = {model: RECIPES[model] for model in models}
    if 2 * data.splits.train[0].sum() < data.num_nodes:
        return chosen
    return {model: each._replace(weight_decay=0.0) for model, each in chosen.items()}


class Subject(NamedTuple):
    """Training data, test mask and metric; masks (s, n) have one row per network."""

    data: training.Data
    test: jax.Array
    metric: str


def subject(data: datasets.Dataset, num_seeds: int, *, row_normalize: bool) -> Subject:
    """Return the data of ``num_seeds`` networks, which cycle through the splits."""
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    x = ntk_study.inputs(data, row_normalize=row_normalize)
    targets = jnp.asarray(datasets.targets(data))
    turn = np.arange(num_seeds) % len(data.splits.train)
    train, val, test = (jnp.asarray(mask[turn]) for mask in data.splits)
    return Subject(
        training.Data(x, matrix, targets, train, val), test, metric=data.metric
    )


def run(
    learned: Subject,
    chosen: dict[str, Recipe],
    *,
    seed: int,
    num_epochs: int = EPOCHS,
    progress: runner.Progress = runner.silent,
    title: str = "",
) -> dict[str, dict[str, Any]]:
    """Return validation and test scores of each network, in percent.

    Args:
        learned: the dataset with a mask per network.
        chosen: recipes by name.
        seed: of weights and dropout.
        num_epochs: maximum number of epochs.
        progress: callback for each network.
        title: prefix of the network name in progress reports.
    """
    keys = jax.random.split(jax.random.key(seed), len(learned.test))
    found = {}
    for name, recipe in chosen.items():

        def report(_: str, done: int, total: int, name: str = name) -> None:
            progress(f"{title} {name}", done, total)

        found[name] = _trained(recipe, learned, keys, num_epochs, report)
    return found


def rule(recipe: Recipe, num_outputs: int, metric: str) -> training.Rule:
    """Return network, optimizer, loss and metric for a recipe."""
    return training.Rule(
        recipe.build(num_outputs),
        objectives.adam(recipe.learning_rate, weight_decay=recipe.weight_decay),
        objectives.binary if metric == "roc_auc" else objectives.cross_entropy,
        metric_fn=metrics.by_name(metric),
        patience=PATIENCE,
    )


def _trained(
    recipe: Recipe,
    learned: Subject,
    keys: jax.Array,
    num_epochs: int,
    progress: runner.Progress,
) -> dict[str, Any]:
    how = rule(recipe, learned.data.targets.shape[1], learned.metric)
    found = fit(how, learned, keys, num_epochs, progress)
    metric_fn: MetricFn = metrics.by_name(learned.metric)

    @jax.jit
    def score(params: Any, mask: jax.Array, data: training.Data) -> jax.Array:
        logits: Any = how.network.apply(params, data.x, data.matrix)
        return metric_fn(logits, data.targets, mask)

    scores = []
    for i, mask in enumerate(learned.test):
        params = jax.tree.map(operator.itemgetter(i), found.params)
        scores.append(float(score(params, mask, learned.data)))
    return {
        **records.summary(np.asarray(found.best_val), np.asarray(scores)),
        "num_seeds": len(scores),
        "best_epochs": np.asarray(found.best_step).tolist(),
        "epochs_run": len(found.losses),
        "diverged": found.diverged.tolist(),
    }


def fit(
    how: training.Rule,
    learned: Subject,
    keys: jax.Array,
    num_epochs: int,
    progress: runner.Progress,
) -> training.Result:
    """Train a network for each key."""
    return training.run(
        how,
        learned.data,
        keys,
        num_steps=num_epochs,
        every=EVERY,
        options=Options(progress=progress),
    )
