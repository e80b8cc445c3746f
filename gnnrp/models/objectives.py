"""Losses of node predictions, and optimizers with weight decay.

The losses raise ValueError if targets and logits differ in shape or the mask does not
fit, and TypeError if the mask is not boolean.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from gnnrp.runtime import checks

LossFn = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""(logits (n, c), targets (n, c), mask (n,)) -> the mean loss of the masked nodes."""


def cross_entropy(
    logits: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return the mean over the masked nodes of -Σ_k Y_ik log softmax(F_i)_k.

    Nodes outside of the mask do not contribute, even if they hold NaN.
    """
    logits, targets, mask = _apply_mask(logits, targets, mask)
    losses = -jnp.sum(targets * jax.nn.log_softmax(logits, axis=1), axis=1)
    return _mean(losses, mask)


def squared(
    logits: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return the mean over the masked nodes of |F_i - Y_i|^2 / 2.

    The paper's loss sums over nodes: a step η here is a step η / n_l there.
    """
    logits, targets, mask = _apply_mask(logits, targets, mask)
    return _mean(jnp.sum((logits - targets) ** 2, axis=1) / 2, mask)


def binary(
    logits: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return the mean binary cross-entropy of targets 1 and 0, leaving NaN out."""
    logits, targets, mask = _apply_mask(logits, targets, mask)
    observed = mask[:, None] & jnp.isfinite(targets)
    targets = jnp.where(observed, targets, 0)
    losses = jax.nn.softplus(logits) - targets * logits  # -log p(y), never infinite
    return _mean(losses, observed)


def sgd(
    learning_rate: optax.ScalarOrSchedule,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> optax.GradientTransformation:
    """Return (heavy-ball) gradient descent; the decay λ W is added to the gradient.

    Equal settings return the same object, so that training compiles once for them.

    Args:
        learning_rate: η, or a schedule of it.
        momentum: in [0, 1]; 0.9 in the paper's figures.
        weight_decay: λ in [0, 1], of weights and not of biases; 5e-4 in the figures.

    Raises:
        ValueError: a number is out of range.
    """
    checks.in_interval("momentum", momentum, 0, 1)
    momentum = float(momentum)
    return _add_decay(optax.sgd, learning_rate, weight_decay, momentum or None)


def adam(
    learning_rate: optax.ScalarOrSchedule, *, weight_decay: float = 0.0
) -> optax.GradientTransformation:
    """Return Adam; the decay λ W is added to the gradient, unlike in ``optax.adamw``.

    Args:
        learning_rate: η, or a schedule of it.
        weight_decay: λ in [0, 1], of weights and not of biases.

    Raises:
        ValueError: a number is out of range.
    """
    return _add_decay(optax.adam, learning_rate, weight_decay)


def _add_decay(
    optimizer: Callable, learning_rate: Any, weight_decay: float, *settings: Any
) -> optax.GradientTransformation:
    checks.in_interval("weight_decay", weight_decay, 0, 1)
    if callable(learning_rate) or isinstance(learning_rate, jax.Array):
        return _chain(optimizer, learning_rate, weight_decay, *settings)
    checks.positive("learning_rate", learning_rate)
    numbers = float(learning_rate), float(weight_decay)
    return _cached_chain(optimizer, *numbers, *settings)


def _chain(
    optimizer: Callable, learning_rate: Any, weight_decay: float, *settings: Any
) -> optax.GradientTransformation:
    are_weights = functools.partial(jax.tree.map, lambda leaf: leaf.ndim > 1)
    decay = optax.add_decayed_weights(weight_decay, mask=are_weights)
    return optax.chain(decay, optimizer(learning_rate, *settings))


_cached_chain = functools.cache(_chain)


def _apply_mask(
    logits: jax.Array, targets: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Validate, and set the rows outside of the mask to zero for finite gradients."""
    checks.no_masked_entries("targets", targets)
    if jnp.shape(targets) != logits.shape:
        expected, got = logits.shape, jnp.shape(targets)
        fix = "use jax.nn.one_hot(labels, c) for labels"
        msg = f"targets must have shape {expected}, as the logits, got {got}; {fix}"
        raise ValueError(msg)
    mask = jnp.asarray(checks.mask("the mask", mask, len(logits)))
    rows = mask[:, None]
    return jnp.where(rows, logits, 0), jnp.where(rows, targets, 0), mask


def _mean(losses: jax.Array, mask: jax.Array) -> jax.Array:
    count = jnp.maximum(jnp.sum(mask), 1).astype(losses.dtype)
    return jnp.sum(jnp.where(mask, losses, 0)) / count
