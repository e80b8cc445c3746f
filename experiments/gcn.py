"""The GCN that stands beside RP in the benchmarks: flax, Adam, full batch."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy.typing as npt
import optax

from gnnrp import spmm


class GCN(nn.Module):
    """Graph convolutions without dropout."""

    hidden: int
    num_classes: int
    num_layers: int = 3

    @nn.compact
    def __call__(self, matrix: spmm.Matrix, x: jax.Array) -> jax.Array:
        """Return the logits of all nodes."""
        for _ in range(self.num_layers - 1):
            x = nn.relu(spmm.matmul(matrix, nn.Dense(self.hidden)(x)))
        return spmm.matmul(matrix, nn.Dense(self.num_classes)(x))


class Training(NamedTuple):
    """A compiled step, where it starts, and what it learns from."""

    step: Callable  # (parameters, state, *data) -> (parameters, state, logits before)
    parameters: Any
    state: Any
    data: tuple[spmm.Matrix, jax.Array, jax.Array, jax.Array]  # A, X, Y, mask


def training(
    matrix: spmm.Matrix,
    x: jax.Array,
    targets: jax.Array,
    mask: jax.Array,
    *,
    hidden: int,
    num_layers: int = 3,
    learning_rate: float = 0.01,
) -> Training:
    """Return full-batch training by Adam on the masked nodes' cross-entropy."""
    model = GCN(hidden, targets.shape[1], num_layers)
    optimizer = optax.adam(learning_rate)

    def loss(parameters, matrix, x, targets, mask):
        logits = cast(jax.Array, model.apply(parameters, matrix, x))
        losses = optax.softmax_cross_entropy(logits, targets)
        return jnp.sum(jnp.where(mask, losses, 0)) / jnp.sum(mask), logits

    @jax.jit
    def step(parameters, state, *data):
        gradient, logits = jax.grad(loss, has_aux=True)(parameters, *data)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(parameters, updates), state, logits

    parameters = jax.jit(model.init)(jax.random.key(0), matrix, x)
    return Training(
        step, parameters, optimizer.init(parameters), (matrix, x, targets, mask)
    )


def race(
    matrix: spmm.Matrix,
    x: jax.Array,
    targets: npt.NDArray,
    splits: Any,
    *,
    metric: Callable,
    num_epochs: int,
) -> tuple[list[float], list[float]]:
    """Return the validation score before each epoch, and the seconds until then.

    A two-layer GCN of 64 units, on the first split, compiled before the clock starts.
    """
    y = jnp.asarray(targets)
    train, val = (jnp.asarray(mask[0]) for mask in splits[:2])
    score = jax.jit(metric)
    step, weights, state, data = training(matrix, x, y, train, hidden=64, num_layers=2)
    score(step(weights, state, *data)[2], y, val)  # compiles
    scores: list[float] = []
    seconds: list[float] = []
    began = time.perf_counter()
    for _ in range(num_epochs):
        weights, state, logits = step(weights, state, *data)
        scores.append(float(score(logits, y, val)))
        seconds.append(time.perf_counter() - began)
    return scores, seconds
