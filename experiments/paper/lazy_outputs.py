"""Kernels of several outputs under the training of the paper's figures.

Networks of the standard parameterization are trained as in Figure 4: framework
initialization with biases, mean cross-entropy, heavy-ball steps and weight decay, with
one step size for all widths. Before and after training, the kernel of all outputs is
compared with two kernels of nodes, the pseudo-NTK and the trace. Eq. 109 states a rate
in the number of nodes, so the first is also computed for more and more of them.

Source: App. C.3, Eq. 108-109; App. D.2.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.paper import figure4_ntk_blocks, lazy_findings, lazy_training
from experiments.paper.lazy_worlds import World, distance
from gnnrp.kernels.ntk import structured
from gnnrp.models import gnn, objectives, training

NODES = (10, 30, 100, 300)
"""Numbers of nodes, drawn at random, for the rate of Eq. 109."""


def study(
    world: World,
    widths: tuple[int, ...],
    *,
    num_steps: int,
    num_networks: int,
    budget: float,
    seed: int,
) -> dict[str, Any]:
    """Return distances and drift for each width, their slopes, and the rate in nodes.

    Args:
        world: graph, features and targets.
        widths: m.
        num_steps: of training.
        num_networks: largest number of networks per width.
        budget: 10^12 operations for the networks of a width.
        seed: of the weights.

    Raises:
        ValueError: the budget allows no width.
    """
    rows = []
    for width in widths:
        allowed = int(budget * 1e12 / operations(world, width, num_steps))
        if allowed < 2:
            continue
        count = min(allowed, num_networks)
        keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(count)]
        found = [measure(world, width, num_steps, key) for key in keys]
        row: dict[str, Any] = {"width": width, "networks": count}
        row["drift"] = lazy_findings.summary([each["drift"][-1] for each in found])
        for name in lazy_training.REDUCTIONS:
            row[name] = lazy_findings.start_and_end([each[name] for each in found])
        rows.append(row)
    if not rows:
        msg = f"budget must allow two networks of some width, got {budget}"
        raise ValueError(msg)
    middle = rows[len(rows) // 2]["width"]
    distances = over_nodes(world, middle, jax.random.key(seed))
    return {
        "steps": num_steps,
        "widths": rows,
        "slope": lazy_findings.slopes_of_reductions(rows),
        "nodes": {"width": middle, "pseudo": distances},
    }


def operations(world: World, width: int, num_steps: int) -> float:
    """Return an estimate of the floating-point operations of ``measure``."""
    (n, rank), c = world.x.shape, world.targets.shape[1]
    return 6.0 * n * width * (rank + c) * num_steps + 8 * n**2 * width * c**2


def published_rule(world: World, width: int) -> training.Rule:
    """Return network, optimizer and loss of the paper's figures."""
    network = gnn.GCN(world.targets.shape[1], width)
    return training.Rule(network, objectives.sgd(1e-2, momentum=0.9, weight_decay=5e-4))


def measure(
    world: World, width: int, num_steps: int, key: jax.Array
) -> dict[str, list[float]]:
    """Return the distances of the reductions before and after training, and the drift.

    Args:
        world: graph, features and targets.
        width: m, of two layers.
        num_steps: of training.
        key: of the weights.
    """
    rule = published_rule(world, width)
    start = rule.network.init(key, world.x, world.matrix), world.x
    found: dict[str, list[float]] = {"drift": []}
    first = None
    for params in lazy_training.snapshots(world, rule, start, (0, num_steps)):
        full = lazy_training.full_rows(rule.network, params, world.x, world)
        trace = jnp.einsum("ikjk->ij", full)
        first = trace if first is None else first
        found["drift"].append(distance(trace, first))
        for name, value in lazy_training.reductions(full).items():
            found.setdefault(name, []).append(value)
    return found


def over_nodes(world: World, width: int, key: jax.Array) -> dict[str, float]:
    """Return the distance of the pseudo-NTK at the start, by number of nodes."""
    network: Any = published_rule(world, width).network
    params = network.init(key, world.x, world.matrix)
    layers: Any = gnn.layers(network, params)
    full = structured.gcn(layers, world.x, world.matrix, reduce="full")
    order = np.random.default_rng(0).permutation(len(full))
    found = {}
    for count in NODES:
        chosen = order[:count]
        some = full[chosen][:, :, chosen]
        if count <= len(full):
            value = figure4_ntk_blocks.to_pseudo(some)
            found[str(count)] = lazy_findings.digits(value)
    return found
