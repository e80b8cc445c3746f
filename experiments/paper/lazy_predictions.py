"""Trajectories that a fixed kernel predicts, and the steps of a comparison.

With a fixed kernel, gradient descent on the weights is residual propagation along it,

    F <- F + η Θ [ρ(Y, F), 0],

for the squared loss and the cross-entropy.

Source: Eq. 5; App. C.2 and C.3.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from experiments.paper.lazy_worlds import Infinite, World, kernel
from gnnrp.models import objectives
from gnnrp.propagation import losses, residual
from gnnrp.types import ResidualFn

LOSSES = {
    "squared": (objectives.squared, losses.squared),
    "cross-entropy": (objectives.cross_entropy, losses.softmax),
}
SHARES = (0, 1 / 64, 1 / 16, 1 / 4, 1 / 2, 1)
"""Times of measurement, as shares of the time of training."""


class Plan(NamedTuple):
    """A network, its loss and the steps of its training."""

    parameterization: str
    loss: str
    width: int
    depth: int
    step_size: float  # of the loss summed over nodes
    times: tuple[int, ...]  # steps at which to measure, from 0 on


def plan(
    world: World,
    kernels: Infinite,
    setup: tuple[str, str],
    width: int,
    depth: int,
    *,
    tolerance: float,
    max_steps: int,
) -> Plan:
    """Return step size and times of a network.

    The step size is 1 / λ_max of the infinite kernel on the training nodes. Training
    ends when the residual that this kernel predicts from F_0 = 0 is ``tolerance``
    times the first one; that of the network may be larger.

    Args:
        world: graph and training nodes.
        kernels: of infinite width.
        setup: parameterization and loss.
        width: m.
        depth: L.
        tolerance: share of the predicted residual at the end.
        max_steps: limit of the steps.
    """
    theta = np.asarray(kernel(kernels, world, setup[0], width))[world.train]
    step_size = 1 / float(np.linalg.eigvalsh(theta[:, world.train])[-1])
    state = residual.init(world.targets)
    residual_fn = LOSSES[setup[1]][1]
    sizes, count = [], 0
    while not sizes or (sizes[-1] > tolerance * sizes[0] and count < max_steps):
        rest = residual.residuals(
            state, world.targets, mask(world), residual_fn=residual_fn
        )
        sizes.append(float(jnp.linalg.norm(rest)))
        state = _follow(state, theta, world, step_size, 1, residual_fn=residual_fn)
        count += 1
    times = sorted({round(share * count) for share in SHARES})
    return Plan(*setup, width, depth, step_size, tuple(times))


def predict(
    world: World, rows: Array, initial: Any, plan: Plan
) -> Float[np.ndarray, "t n c"]:
    """Return F at the times of a plan, by gradient descent with a fixed kernel.

    Args:
        world: targets and training nodes.
        rows: Θ[X, :], of one output (l, n) or of all of them (l, c, n, c).
        initial: F_0 (n, c).
        plan: loss, step size and times.
    """
    state, path = residual.init(world.targets, jnp.asarray(initial)), []
    residual_fn = LOSSES[plan.loss][1]
    for count in np.diff(plan.times, prepend=0):
        state = _follow(
            state, rows, world, plan.step_size, int(count), residual_fn=residual_fn
        )
        path.append(np.asarray(state.predictions))
    return np.stack(path)


@functools.partial(jax.jit, static_argnames="residual_fn")
def _follow(
    state: residual.State,
    rows: Array,
    world: World,
    step_size: float,
    count: int,
    *,
    residual_fn: ResidualFn,
) -> residual.State:
    index = "ij,ik->jk" if rows.ndim == 2 else "ikjl,ik->jl"

    def similarity(v: Array) -> Array:
        return jnp.einsum(index, rows, v[world.train], precision="highest")

    def step(_: Any, state: residual.State) -> residual.State:
        return residual.step(
            state,
            similarity,
            world.targets,
            mask(world),
            step_size=step_size,
            residual_fn=residual_fn,
        )

    return jax.lax.fori_loop(0, count, step, state)


def mask(world: World) -> Array:
    """Return the mask (n, 1) of the training nodes."""
    return jnp.zeros((len(world.x), 1), bool).at[world.train].set(True)


def residual_size(
    world: World, plan: Plan, predictions: Float[np.ndarray, "n c"]
) -> float:
    """Return |R| of the training nodes, relative to that of predictions of zero."""
    residual_fn = LOSSES[plan.loss][1]
    targets = world.targets[world.train]
    rest = residual_fn(targets, jnp.asarray(predictions)[world.train])
    zero = residual_fn(targets, jnp.zeros_like(targets))
    return float(jnp.linalg.norm(rest) / jnp.linalg.norm(zero))


def accuracy(world: World, predictions: Float[np.ndarray, "n c"]) -> float:
    """Return the accuracy outside of the training nodes, in percent."""
    right = predictions[world.rest].argmax(1) == world.labels[world.rest]
    return 100 * float(np.mean(right))


def gaps(
    path: Float[np.ndarray, "t n c"], expected: Float[np.ndarray, "t n c"]
) -> list[float]:
    """Return |F_t - expected| over the largest distance that F moves, at most 1.

    1 is the error of predicting no motion. The kernel of a narrow network may have
    η λ > 2, so that its predictions diverge; they count as 1 too.
    """
    moved = max(np.linalg.norm(f - path[0]) for f in path)
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.linalg.norm((path - expected).astype(np.float64), axis=(1, 2))
    errors = np.nan_to_num(errors / moved, nan=1.0, posinf=1.0)
    return np.minimum(errors, 1.0).tolist()
