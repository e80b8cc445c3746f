"""Figure 4: the c x c, n x n and nc x nc tangent kernels of a trained GCN.

    python -m experiments.paper.figure4_ntk_blocks --data-dir DIR --output reproduced
    python -m experiments.paper.figure4_ntk_blocks --quick

All three use the same 50 nodes. The first two are means of the third over pairs of
nodes and over pairs of classes. For independent outputs, the third would be Θ (x) I_c:
``off_class_share`` is the share of its squared norm between different classes, and
``relative_difference`` is its distance to the pseudo-NTK (x) I_c.

Source: App. C.3.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from experiments import published, runner
from gnnrp import datasets, graph, plotting, sparse
from gnnrp.kernels.ntk import empirical
from gnnrp.models import gnn, objectives, training
from gnnrp.runtime import checks
from gnnrp.runtime.options import Options
from gnnrp.studies import ntk as ntk_study


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """The network and the nodes shown."""

    dataset: str = "cora"
    num_nodes: int = 50
    """Nodes drawn at random, then sorted by class."""
    width: int = 16
    num_steps: int = 2000
    learning_rate: float = 1e-2

    SHORT: ClassVar[dict[str, Any]] = {
        "dataset": "sbm",
        "num_steps": 50,
        "num_nodes": 20,
    }


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Train a network; return the blocks of its kernel and their differences."""
    data = runner.load(config.dataset, config)
    if data is None:
        absent = {"dataset": config.dataset, "found": published.ABSENT}
        return runner.Outcome(absent, {}, {})
    checks.count("num_nodes", config.num_nodes, 1, data.num_nodes)
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    x = ntk_study.inputs(data, row_normalize=False)
    targets = jnp.asarray(datasets.targets(data), matrix.data.dtype)
    mask = jnp.asarray(data.splits.train[0])
    network = gnn.GCN(data.num_classes, config.width)
    optimizer = objectives.sgd(config.learning_rate, momentum=0.9, weight_decay=5e-4)
    params = training.run(
        training.Rule(network, optimizer),
        training.Data(x, matrix, targets, mask),
        jax.random.key(config.seed),
        num_steps=config.num_steps,
        options=Options(progress=progress),
    ).params
    rng = np.random.default_rng(config.seed)
    nodes = rng.choice(data.num_nodes, config.num_nodes, replace=False)
    nodes = nodes[np.argsort(data.labels[nodes], kind="stable")]
    full = empirical.ntk(
        lambda params, x: network.apply(params, x, matrix),
        params,
        x,
        nodes,
        reduce="full",
    )
    blocks = {
        "c x c": np.asarray(empirical.over_nodes(full)),
        "n x n": np.asarray(empirical.over_classes(full)),
        "nc x nc": np.asarray(full).reshape((full.shape[0] * full.shape[1],) * 2),
    }
    result = {
        "dataset": data.name,
        "nodes": nodes.tolist(),
        "labels": data.labels[nodes].tolist(),
        "c x c": blocks["c x c"].round(4).tolist(),
        "off_class_share": round(off_class_share(full), 6),
        "relative_difference": round(to_pseudo(full), 6),
    }
    figure = plotting.matrices(blocks, f"Tangent kernels of a GCN on {data.name}")
    return runner.Outcome(result, {"": figure}, {data.name: data.files})


def off_class_share(full: jax.Array) -> float:
    """Return the share of |Θ|² between different classes."""
    own = jnp.sum(jnp.einsum("ikjk->ijk", full) ** 2)
    return float(1 - own / jnp.sum(full**2))


def to_pseudo(full: jax.Array) -> float:
    """Return |pseudo (x) I_c - Θ| / |Θ|; pseudo: the sum over classes / c."""
    c = full.shape[1]
    pseudo = jnp.sum(full, axis=(1, 3)) / c
    apart = jnp.einsum("ij,kl->ikjl", pseudo, jnp.eye(c, dtype=full.dtype)) - full
    return float(jnp.linalg.norm(apart.ravel()) / jnp.linalg.norm(full.ravel()))


if __name__ == "__main__":
    runner.main(Config, run, "figure4_ntk_blocks")
