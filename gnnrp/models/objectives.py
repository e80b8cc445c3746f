"""What training minimizes, and by which rule, as is usual in the field."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from gnnrp import _checks

LossFn = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""(logits (n, c), targets (n, c), mask (n,)) -> the mean loss of the masked nodes."""


def cross_entropy(
    logits: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return the mean over the masked nodes of -Σ_k Y_ik log softmax(F_i)_k."""
    losses = -jnp.sum(targets * jax.nn.log_softmax(logits, axis=1), axis=1)
    return _mean(losses, mask)


def squared(
    logits: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return the mean over the masked nodes of |F_i - Y_i|^2 / 2.

    A step η of its gradient is a step η / n_l of the paper's, which sums over nodes.
    """
    return _mean(jnp.sum((logits - targets) ** 2, axis=1) / 2, mask)


def binary(
    logits: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return the mean binary cross-entropy of the masked nodes' known tasks.

    Targets are 1, 0, or NaN where unknown, which are left out.
    """
    known = mask[:, None] & jnp.isfinite(targets)
    targets = jnp.where(known, targets, 0)
    losses = jax.nn.softplus(logits) - targets * logits  # -log p(y), never infinite
    return _mean(losses, known)


LOSSES: dict[str, LossFn] = {
    "cross_entropy": cross_entropy,
    "squared": squared,
    "binary": binary,
}


def by_name(name: str) -> LossFn:
    """Return one of ``LOSSES``.

    Raises:
        ValueError: unknown name.
    """
    _checks.one_of("loss", name, LOSSES)
    return LOSSES[name]


def sgd(
    learning_rate: optax.ScalarOrSchedule,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> optax.GradientTransformation:
    """Return (heavy-ball) gradient descent; the decay λ W is added to the gradient.

    Args:
        learning_rate: η, or a schedule of it.
        momentum: 0.9 in the paper's figures.
        weight_decay: λ, of weights only, not of biases; 5e-4 in the paper's figures.
    """
    return optax.chain(
        optax.add_decayed_weights(weight_decay, mask=are_weights),
        optax.sgd(learning_rate, momentum=momentum or None),
    )


def adam(
    learning_rate: optax.ScalarOrSchedule, *, weight_decay: float = 0.0
) -> optax.GradientTransformation:
    """Return Adam; the decay λ W is added to the gradient, as in most GNN code.

    Args:
        learning_rate: η, or a schedule of it.
        weight_decay: λ, of weights only. ``optax.adamw`` decays apart from Adam.
    """
    return optax.chain(
        optax.add_decayed_weights(weight_decay, mask=are_weights),
        optax.adam(learning_rate),
    )


def are_weights(params: Any) -> Any:
    """Return which parameters are matrices, so not biases."""
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


def _mean(losses: jax.Array, mask: jax.Array) -> jax.Array:
    count = jnp.maximum(jnp.sum(mask), 1).astype(losses.dtype)
    return jnp.sum(jnp.where(mask, losses, 0)) / count
