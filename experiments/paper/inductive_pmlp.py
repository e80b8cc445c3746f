"""Train on one graph and predict on another: inductive learning and PMLP.

    python -m experiments.paper.inductive_pmlp --data-dir DIR --output reproduced
    python -m experiments.paper.inductive_pmlp --quick

A GCN is trained on the whole graph (transductive), on the graph of the training nodes
(inductive, A_XX of the normalized A) or without a graph (PMLP). It then predicts on the
whole graph. An MLP never uses a graph.

Each infinitely wide network is a kernel of App. C.1; the scores are those at the step
with the best validation score and those at the end of training. Finite networks are
trained for a number of epochs with Adam and dropout, without biases like the kernel,
and with little weight decay. Few of Cora's training nodes are neighbors, so their
inputs through A_XX are small, and biases or weight decay would prevent the networks
from learning them (``--use-bias --weight-decay 5e-4`` shows it).

``restricted`` is the relative distance between the transductive kernel's block of
training and other nodes and the correct block: the transductive block is wrong in every
other setting.

Source: App. C.1.
"""

import dataclasses
import functools
import operator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from experiments import published, runner
from gnnrp import datasets, graph, metrics, sparse
from gnnrp.kernels import gntk
from gnnrp.kernels.gntk import inductive as across_graphs
from gnnrp.models import gnn, objectives, training
from gnnrp.propagation import exact
from gnnrp.studies import gntk_kernels, presets, records
from gnnrp.studies import ntk as ntk_study

SETTINGS = {
    "transductive": ("A", "A"),
    "inductive": ("A_XX", "A"),
    "PMLP": ("none", "A"),
    "MLP": ("none", "none"),
}
"""Graphs of training and of prediction."""


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Networks and their training."""

    datasets: tuple[str, ...] = ("sbm", "cora")
    depth: int = 2
    width: int = 64
    """Width of the finite networks."""
    num_seeds: int = 10
    """Finite networks per setting."""
    num_epochs: int = 300
    """Epochs of the finite networks."""
    use_bias: bool = False
    """Biases in the finite networks."""
    weight_decay: float = 5e-5
    """Weight decay of the finite networks."""

    SHORT: ClassVar[dict[str, Any]] = {
        "datasets": ("sbm",), "num_seeds": 2, "num_epochs": 20
    }  # fmt: skip


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return a row per setting for each available dataset."""
    found: dict[str, Any] = dict.fromkeys(config.datasets, published.ABSENT)
    files = {}
    compute = functools.partial(panel, config=config, progress=progress)
    for data, made in runner.each(config, "inductive_pmlp", compute):
        found[data.name], files[data.name] = made, data.files
    return runner.Outcome({"datasets": found}, {}, files)


def panel(
    data: datasets.Dataset, config: Config, progress: runner.Progress
) -> dict[str, Any]:
    """Return a row per setting for the first split.

    Raises:
        ValueError: the dataset has binary tasks.
    """
    if data.metric != "accuracy":
        msg = f"{data.name} has binary tasks; choose a dataset scored by accuracy"
        raise ValueError(msg)
    data = datasets.select_split(data, 0)
    columns = kernels(data, config.depth)
    finite = networks(data, config, progress)
    rest = ~data.splits.train[0]
    return {
        setting: {
            "trained through": through[0],
            "predicts through": through[1],
            "infinite": infinite(data, columns[setting]),
            "restricted": distance(columns["transductive"], columns[setting], rest),
            "finite": finite[setting],
        }
        for setting, through in SETTINGS.items()
    }


def kernels(data: datasets.Dataset, depth: int) -> dict[str, np.ndarray]:
    """Return the columns Θ[:, X] of each setting; rows X are the training block."""
    adjacency = graph.normalized_adjacency(data.edges, data.num_nodes)
    matrix, gram = sparse.prepare(adjacency), gntk_kernels.inputs(data)
    index = np.flatnonzero(data.splits.train[0])
    kernel_fn = functools.partial(gntk.gcn, network=gntk.Network(depth))
    across = functools.partial(across_graphs.between, kernel_fn, gram, index)
    blocks = {
        "inductive": across_graphs.inductive(kernel_fn, gram, adjacency, index),
        "PMLP": across(train=across_graphs.identity, test=matrix),
    }
    alone = gntk.gcn(across_graphs.identity, gram, gntk.Network(depth)).ntk
    whole = gntk.gcn(matrix, gram, gntk.Network(depth)).ntk
    found = {name: np.asarray(kernel)[:, index] for name, kernel in (
        ("transductive", whole), ("MLP", alone)
    )}  # fmt: skip
    for name, block in blocks.items():
        found[name] = np.array(block.cross.ntk)
        found[name][index] = block.train.ntk
    return found


def infinite(data: datasets.Dataset, columns: np.ndarray) -> dict[str, Any]:
    """Return the scores of gradient descent with these columns, and of its limit."""
    index = np.flatnonzero(data.splits.train[0])
    targets = datasets.targets(data)
    factors = exact.factorize(columns, index, psd=True)
    steps = np.unique(np.geomspace(1, 1e6, 400).astype(int))
    start = targets[index].astype(np.float64)
    step_size = 1 / factors.eigenvalues[-1]
    path = exact.trajectory(factors, start, steps, step_size=step_size)
    y, metric = jnp.asarray(targets), jax.jit(metrics.by_name(data.metric))

    def scores(F: np.ndarray) -> tuple[float, float]:
        parts = (data.splits.val[0], data.splits.test[0])
        logits = jnp.asarray(F, y.dtype)
        val, test = (float(metric(logits, y, jnp.asarray(mask))) for mask in parts)
        return val, test

    along = [scores(F) for F in path]
    best = max(range(len(along)), key=lambda i: along[i][0])  # first of equal maxima
    val, test = along[best]
    return {
        "val_mean": records.percent(val),
        "test_mean": records.percent(test),
        "best_step": int(steps[best]),
        "test_at_end": records.percent(scores(exact.limit(factors, start))[1]),
    }


def networks(
    data: datasets.Dataset, config: Config, progress: runner.Progress
) -> dict[str, dict[str, Any]]:
    """Return the scores of finite networks after the last epoch."""
    adjacency = sparse.to_scipy(graph.normalized_adjacency(data.edges, data.num_nodes))
    inside = scipy.sparse.diags_array(data.splits.train[0].astype(adjacency.dtype))
    matrix, part = (
        sparse.prepare(adjacency),
        sparse.prepare(inside @ adjacency @ inside),
    )
    settings = presets.settings(data.name, has_features=data.features is not None)
    x = ntk_study.inputs(data, row_normalize=settings.row_normalize)
    train, val, test = (jnp.asarray(mask[0]) for mask in data.splits)
    targets = jnp.asarray(datasets.targets(data))
    keys = jax.random.split(jax.random.key(config.seed), config.num_seeds)
    how = {
        "transductive": (gnn.GCN, matrix, matrix),
        "inductive": (gnn.GCN, part, matrix),
        "PMLP": (gnn.PMLP, matrix, matrix),
        "MLP": (gnn.MLP, None, None),
    }
    found = {}
    for number, (name, (kind, seen, used)) in enumerate(how.items()):
        progress(f"{data.name}, finite", number, len(how))
        network = kind(
            targets.shape[1],
            config.width,
            config.depth,
            use_bias=config.use_bias,
            dropout=0.5,
        )
        optimizer = objectives.adam(0.01, weight_decay=config.weight_decay)
        rule = training.Rule(network, optimizer)
        learned = training.Data(x, seen, targets, train)
        params = training.run(rule, learned, keys, num_steps=config.num_epochs).params
        metric = metrics.by_name(data.metric)
        score = jax.jit(functools.partial(_score, network, metric))
        each = (
            jax.tree.map(operator.itemgetter(i), params)
            for i in range(config.num_seeds)
        )
        scores = np.array([score(one, x, used, targets, (val, test)) for one in each])
        found[name] = records.summary(*scores.T) | {"num_seeds": config.num_seeds}
    return found


def _score(
    network: gnn.MLP, metric: Any, params: Any, x: Any, matrix: Any, y: Any, parts: Any
) -> jax.Array:
    logits: Any = network.apply(params, x, matrix)
    return jnp.stack([metric(logits, y, mask) for mask in parts])


def distance(found: np.ndarray, right: np.ndarray, rows: np.ndarray) -> float:
    """Return |found - right| / |right| on a subset of the rows."""
    off = np.linalg.norm(found[rows] - right[rows]) / np.linalg.norm(right[rows])
    return float(f"{off:.6g}")


if __name__ == "__main__":
    runner.main(Config, run, "inductive_pmlp")
