"""MLP, SGC, GCN, JKNet and APPNP trained as is usual in the field, for the tables.

Full batch, Adam, dropout, weight decay, early stopping on validation; several seeds of
a public split, or one for each random split. Settings are common ones, the same for all
data sets, and not tuned: those behind the published figures were.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnnrp import datasets, graph, metrics, records, spmm, tracking
from gnnrp.models import gnn, objectives, training

WIDTH = 64
EPOCHS = 1000
PATIENCE = 100
EVERY = 50

NETWORKS: dict[str, Callable[..., gnn.MLP]] = {
    "MLP": functools.partial(gnn.MLP, dropout=0.5),
    "SGC": functools.partial(gnn.SGC, power=2),
    "GCN": functools.partial(gnn.GCN, dropout=0.5),
    "JKNet": functools.partial(gnn.JKNet, depth=3, dropout=0.5),
    "APPNP": functools.partial(gnn.APPNP, power=10, alpha=0.1, dropout=0.5),
}
LEARNING_RATE = {"SGC": 0.1}  # else 0.01
WEIGHT_DECAY = {"SGC": 5e-5}  # else 5e-4


def run(
    data: datasets.Dataset,
    names: tuple[str, ...],
    *,
    row_normalize: bool,
    num_seeds: int,
    seed: int,
    num_epochs: int = EPOCHS,
) -> dict[str, dict[str, Any]]:
    """Return validation and test scores of each network, in percent.

    Args:
        data: with one split, or as many as there should be seeds.
        names: of ``NETWORKS``.
        row_normalize: of the features.
        num_seeds: networks; taken in turn on the splits.
        seed: of the weights and of dropout.
        num_epochs: at most.
    """
    matrix = spmm.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    x = tracking.inputs(data, row_normalize=row_normalize)
    targets = jnp.asarray(datasets.targets(data))
    turn = np.arange(num_seeds) % len(data.splits.train)
    train, val, test = (jnp.asarray(mask[turn]) for mask in data.splits)
    metric = metrics.by_name(data.metric)
    learned = training.Data(x, matrix, targets, train, val)
    keys = jax.random.split(jax.random.key(seed), num_seeds)
    return {
        name: _trained(name, learned, test, keys, metric, data.metric, num_epochs)
        for name in names
    }


def _trained(
    name: str,
    data: training.Data,
    test: jax.Array,
    keys: jax.Array,
    metric: Any,
    kind: str,
    num_epochs: int,
) -> dict[str, Any]:
    network = NETWORKS[name](
        data.targets.shape[1], width=WIDTH, initialization="glorot"
    )
    rule = training.Rule(
        network,
        objectives.adam(
            LEARNING_RATE.get(name, 0.01), weight_decay=WEIGHT_DECAY.get(name, 5e-4)
        ),
        objectives.binary if kind == "roc_auc" else objectives.cross_entropy,
        metric_fn=metric,
        patience=PATIENCE,
    )
    found = training.run(rule, data, keys, num_steps=num_epochs, every=EVERY)

    @jax.jit
    def score(params: Any, mask: jax.Array, data: training.Data) -> jax.Array:
        logits: Any = network.apply(params, data.x, data.matrix)
        return metric(logits, data.targets, mask)

    each = [
        jax.tree.map(operator.itemgetter(i), found.params) for i in range(len(test))
    ]
    scores = [float(score(*one, data)) for one in zip(each, test, strict=True)]
    return {
        **records.summary(np.asarray(found.best_val), np.asarray(scores)),
        "num_seeds": len(scores),
        "best_epochs": np.asarray(found.best_step).tolist(),
        "epochs_run": len(found.losses),
        "diverged": found.diverged.tolist(),
    }
