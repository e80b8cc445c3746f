"""What training minimizes, and by which rule, as is usual in the field."""

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

    What the mask leaves out plays no part, NaN neither.

    Raises:
        ValueError: targets or a mask of another shape than the logits'.
        TypeError: a mask that is not boolean.
    """
    logits, targets, mask = _masked(logits, targets, mask)
    losses = -jnp.sum(targets * jax.nn.log_softmax(logits, axis=1), axis=1)
    return _mean(losses, mask)


def squared(
    logits: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return the mean over the masked nodes of |F_i - Y_i|^2 / 2.

    A step η of its gradient is a step η / n_l of the paper's, which sums over nodes.

    Raises:
        ValueError: targets or a mask of another shape than the logits'.
        TypeError: a mask that is not boolean.
    """
    logits, targets, mask = _masked(logits, targets, mask)
    return _mean(jnp.sum((logits - targets) ** 2, axis=1) / 2, mask)


def binary(
    logits: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return the mean binary cross-entropy of the masked nodes' known tasks.

    Targets are 1, 0, or NaN where unknown, which are left out.

    Raises:
        ValueError: targets or a mask of another shape than the logits'.
        TypeError: a mask that is not boolean.
    """
    logits, targets, mask = _masked(logits, targets, mask)
    known = mask[:, None] & jnp.isfinite(targets)
    targets = jnp.where(known, targets, 0)
    losses = jax.nn.softplus(logits) - targets * logits  # -log p(y), never infinite
    return _mean(losses, known)


def sgd(
    learning_rate: optax.ScalarOrSchedule,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> optax.GradientTransformation:
    """Return (heavy-ball) gradient descent; the decay λ W is added to the gradient.

    Equal settings give the same object, so that training is compiled once for them.

    Args:
        learning_rate: η, or a schedule of it.
        momentum: 0.9 in the paper's figures.
        weight_decay: λ, of weights only, not of biases; 5e-4 in the paper's figures.

    Raises:
        ValueError: a number out of its range.
    """
    checks.inside("momentum", momentum, 0, 1)
    return _built(_sgd, learning_rate, weight_decay, float(momentum))


def adam(
    learning_rate: optax.ScalarOrSchedule, *, weight_decay: float = 0.0
) -> optax.GradientTransformation:
    """Return Adam; the decay λ W is added to the gradient, as in most GNN code.

    Args:
        learning_rate: η, or a schedule of it.
        weight_decay: λ, of weights only. ``optax.adamw`` decays apart from Adam.

    Raises:
        ValueError: a number out of its range.
    """
    return _built(_adam, learning_rate, weight_decay)


def are_weights(params: Any) -> Any:
    """Return which parameters are matrices, so not biases."""
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


def _built(build: Callable, learning_rate: Any, decay: float, *more: float) -> Any:
    checks.inside("weight_decay", decay, 0, 1)
    decay = float(decay)
    if callable(learning_rate) or isinstance(learning_rate, jax.Array):
        return build(learning_rate, decay, *more)
    checks.positive("learning_rate", learning_rate)
    return _once(build, float(learning_rate), decay, *more)


@functools.cache
def _once(build: Callable, *settings: float) -> optax.GradientTransformation:
    return build(*settings)


def _sgd(
    learning_rate: Any, decay: float, momentum: float
) -> optax.GradientTransformation:
    return optax.chain(
        optax.add_decayed_weights(decay, mask=are_weights),
        optax.sgd(learning_rate, momentum=momentum or None),
    )


def _adam(learning_rate: Any, decay: float) -> optax.GradientTransformation:
    return optax.chain(
        optax.add_decayed_weights(decay, mask=are_weights), optax.adam(learning_rate)
    )


def _masked(
    logits: jax.Array, targets: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return all, with zeros where the mask is false: a gradient is finite there.

    Raises:
        ValueError: other shapes.
    """
    checks.plain("targets", targets)
    if jnp.shape(targets) != logits.shape:
        msg = (
            f"targets must have shape {logits.shape}, as the logits, got "
            f"{jnp.shape(targets)}; jax.nn.one_hot(labels, c) makes them of labels"
        )
        raise ValueError(msg)
    mask = jnp.asarray(checks.mask("the mask", mask, len(logits)))
    kept = mask[:, None]
    return jnp.where(kept, logits, 0), jnp.where(kept, targets, 0), mask


def _mean(losses: jax.Array, mask: jax.Array) -> jax.Array:
    count = jnp.maximum(jnp.sum(mask), 1).astype(losses.dtype)
    return jnp.sum(jnp.where(mask, losses, 0)) / count
