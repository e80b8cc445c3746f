"""Gradient descent on networks, beside the trajectories that kernels predict.

Two kernels predict each network from its own f_0: the kernel of infinite width, and the
network's own kernel at the start. The error of the second is due to the drift of the
kernel alone.

Source: Eq. 5, Def. 4.1, App. C.2 and C.3.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from experiments.paper import figure4_ntk_blocks
from experiments.paper.lazy_predictions import (
    LOSSES,
    Plan,
    accuracy,
    gaps,
    mask,
    predict,
    residual_size,
)
from experiments.paper.lazy_worlds import Infinite, World, distance, kernel
from gnnrp.kernels import alignment
from gnnrp.kernels.ntk import empirical, structured
from gnnrp.models import gnn, training

REDUCTIONS = ("pseudo", "trace", "between classes")

_sgd = functools.cache(optax.sgd)  # training compiles once per optimizer


def operations(world: World, plan: Plan) -> float:
    """Return an estimate of the floating-point operations of ``measure``.

    Training takes three products per layer and step. Kernels take a Gram matrix of the
    hidden units, or with three layers two sparse products per unit; the kernel of all
    outputs takes that for each pair of outputs, or a pass per training output.
    """
    (n, rank), c, m = world.x.shape, world.targets.shape[1], plan.width
    weights = rank * m + (plan.depth - 2) * m**2 + c * m
    steps = 6.0 * n * weights * plan.times[-1]
    if plan.depth == 2:
        return steps + 4 * n**2 * m * (len(plan.times) + c**2)
    traces = n * m * (4 * len(world.matrix.data) + 2 * n * c) * len(plan.times)
    return steps + traces + 2 * len(world.train) * c * 4 * n * weights


def rule(world: World, plan: Plan) -> training.Rule:
    """Return network, optimizer and loss; equal plans compile once."""
    network = gnn.GCN(
        world.targets.shape[1],
        plan.width,
        plan.depth,
        use_bias=False,
        parameterization=plan.parameterization,
    )
    # The loss is a mean over nodes, and the step size that of a sum.
    optimizer = _sgd(plan.step_size * len(world.train))
    return training.Rule(network, optimizer, LOSSES[plan.loss][0])


@functools.partial(jax.jit, static_argnames="network")
def draw(world: World, network: gnn.GCN, key: Array) -> tuple[Any, Array]:
    """Return weights and inputs of a network.

    Both parameterizations draw the same function: the standard one has the weights as
    the forward pass of the other uses them, and of the first layer the factor
    (2 / d)^1/2 in the weights and its inverse in the inputs.
    """
    wide = network.clone(parameterization="ntk")
    params: Any = wide.init(key, world.x, world.matrix)
    if network.parameterization == "ntk":
        return params, world.x
    factor = (2 / world.num_features) ** 0.5
    weights = [layer.weights for layer in gnn.layers(wide, params)]
    weights[0] *= factor
    names = [f"layers_{number}" for number in range(network.depth)]
    parts = {name: {"weights": W} for name, W in zip(names, weights, strict=True)}
    return {"params": parts}, world.x / factor


def snapshots(
    world: World, rule: training.Rule, start: tuple[Any, Array], times: Sequence[int]
) -> Iterator[Any]:
    """Yield the weights at some times; each of them is valid until the next."""
    params, x = start
    data = training.Data(x, world.matrix, world.targets, mask(world)[:, 0])
    optimizer, key = rule.optimizer.init(params), jax.random.key(0)
    state = training.State(params, optimizer, key, None, jnp.asarray(0))
    for count in np.diff(times, prepend=0):
        state = _advance(rule, state, data, int(count))
        yield state.params


@functools.partial(jax.jit, static_argnames="rule", donate_argnames="state")
def _advance(
    rule: training.Rule, state: training.State, data: training.Data, count: int
) -> training.State:
    def step(_: Any, state: training.State) -> training.State:
        return training.step(rule, state, data)[0]

    return jax.lax.fori_loop(0, count, step, state)


def measure(
    world: World, kernels: Infinite, plan: Plan, key: Array
) -> tuple[dict[str, list[float]], Float[np.ndarray, "n c"]]:
    """Train a network and measure it at the times of a plan.

    Kernels are traces over classes divided by c. Predictions are compared relative to
    the largest distance that they move. Distances between the reductions of several
    outputs are those at the first and the last time.

    Returns:
        distances, alignments and accuracies by name; the last predictions.
    """
    theta = kernel(kernels, world, plan.parameterization, plan.width)
    recipe = rule(world, plan)
    network: Any = recipe.network
    start = draw(world, network, key)
    found = {name: [] for name in ("kernel", "drift", "graph", "labels", "residual")}
    found |= {name: [] for name in REDUCTIONS}
    path, first = [], None
    own: Any = None
    for t, params in zip(
        plan.times, snapshots(world, recipe, start, plan.times), strict=True
    ):
        layers = gnn.layers(network, params)
        theta_t = _trace_kernel(layers, start[1], world.matrix)
        first = theta_t if first is None else first
        found["kernel"].append(distance(theta_t, theta))
        found["drift"].append(distance(theta_t, first))
        for name, target in (("graph", kernels.hops), ("labels", kernels.ideal)):
            aligned = alignment.alignment(theta_t, target, centered=True)
            found[name].append(float(aligned))
        path.append(np.asarray(_outputs(network, params, start[1], world)))
        if t in {0, plan.times[-1]}:
            full = full_rows(network, params, start[1], world)
            own = full if own is None else own
            for name, value in reductions(full).items():
                found[name].append(value)
    moved = np.stack(path)
    found["residual"] = [residual_size(world, plan, f) for f in moved]
    wide = predict(world, theta[world.train], moved[0], plan)
    found["trajectory"] = gaps(moved, wide)
    found["frozen"] = gaps(moved, predict(world, own, moved[0], plan))
    found["test"] = [accuracy(world, f) for f in moved]
    found["agreement"] = [
        100 * float(np.mean(f[world.rest].argmax(1) == g[world.rest].argmax(1)))
        for f, g in zip(moved, wide, strict=True)
    ]
    return found, moved[-1]


def initial_error(world: World, kernels: Infinite, plan: Plan, key: Array) -> float:
    """Return |Θ_0 - Θ| / |Θ| of a network that is not trained."""
    network: Any = rule(world, plan).network
    params, x = draw(world, network, key)
    theta_0 = _trace_kernel(gnn.layers(network, params), x, world.matrix)
    theta = kernel(kernels, world, plan.parameterization, plan.width)
    return distance(theta_0, theta)


@jax.jit
def _trace_kernel(layers: Any, x: Array, matrix: Any) -> Float[Array, "n n"]:
    return structured.gcn(layers, x, matrix)


@functools.partial(jax.jit, static_argnames="network")
def _outputs(network: gnn.GCN, params: Any, x: Array, world: World) -> Any:
    return network.apply(params, x, world.matrix)


@functools.partial(jax.jit, static_argnames="network")
def full_rows(
    network: gnn.GCN, params: Any, x: Array, world: World
) -> Float[Array, "l c n c"]:
    """Return Θ[X, :] of all outputs, by structure for two layers."""
    if network.depth == 2:
        layers = gnn.layers(network, params)
        return structured.gcn(layers, x, world.matrix, reduce="full")[world.train]

    def outputs(params: Any, x: Array) -> Any:
        return network.apply(params, x, world.matrix)

    num_nodes = range(len(world.targets))
    return empirical.ntk(
        outputs, params, x, world.train, num_nodes,
        reduce="full", method="products", block_size=4,
    )  # fmt: skip


def reductions(full: Float[Array, "l c n c"]) -> dict[str, float]:
    """Return the distances |K (x) I_c - Θ| / |Θ| of two kernels K of nodes.

    K is the pseudo-NTK, or the trace over classes divided by c. "between classes" is
    the share of |Θ|² between different outputs.
    """
    c = full.shape[1]
    trace = jnp.einsum("ikjk->ij", full) / c
    apart = jnp.einsum("ij,kl->ikjl", trace, jnp.eye(c, dtype=full.dtype)) - full
    return {
        "pseudo": figure4_ntk_blocks.to_pseudo(full),
        "trace": float(jnp.linalg.norm(apart.ravel()) / jnp.linalg.norm(full.ravel())),
        "between classes": figure4_ntk_blocks.off_class_share(full),
    }
