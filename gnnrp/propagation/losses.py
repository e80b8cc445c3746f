"""Residuals of losses: minus the gradient in the predictions F.

One rule holds for every loss: F <- F + η S [ρ(Y, F), 0] with ρ = -dL/dF and L summed
over the training nodes (a loss averaged over l nodes divides η by l). F are logits for
the two cross-entropies; S is then the kernel of the logits. See
``similarity.Probability`` for the paper's form, which needs the kernel of the
probabilities.

Source: App. C.2, with the corrections noted at each function.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gnnrp.runtime import checks
from gnnrp.types import ResidualFn


def squared(
    targets: Float[Array, "*n c"], predictions: Float[Array, "*n c"]
) -> Float[Array, "*n c"]:
    """Return Y - F, of the loss |Y - F|^2 / 2."""
    return targets - predictions


def absolute(
    targets: Float[Array, "*n c"], predictions: Float[Array, "*n c"]
) -> Float[Array, "*n c"]:
    """Return sgn(Y - F), of the loss |Y - F|_1, with sgn(0) = 0.

    At a fixed step size it does not converge: the residual hovers around zero at about
    η times the row sums of S. (The paper puts sgn(0) = -1, which moves a perfect fit.)
    """
    return jnp.sign(targets - predictions)


def sigmoid(
    targets: Float[Array, "*n c"], logits: Float[Array, "*n c"]
) -> Float[Array, "*n c"]:
    """Return Y - p, p = 1 / (1 + exp(-F)), of each column's binary cross-entropy."""
    return targets - jax.nn.sigmoid(logits)


def softmax(
    targets: Float[Array, "*n c"], logits: Float[Array, "*n c"]
) -> Float[Array, "*n c"]:
    """Return Y - p, p_k = exp(F_k) / Σ_j exp(F_j), of the cross-entropy over columns.

    With the same S for every class the row sums of F never change.
    """
    return targets - jax.nn.softmax(logits, axis=-1)


def reweighted(
    targets: Float[Array, "*n c"], logits: Float[Array, "*n c"]
) -> Float[Array, "*n c"]:
    """Return the paper's c(R) = R / (p (1 - p)), R = Y - p, p = sigmoid(F), stably.

    For Y in {0, 1} it is s (1 + exp(-s F)) with s = 2 Y - 1, so |c| = 1 / (1 - |R|)
    grows with |R|. It belongs with the kernel of the probabilities,
    ``similarity.Probability``; with the kernel of the logits (as the paper writes it)
    the step is wrong, 16 times too large at p = 1/2.
    """
    sign = 2 * targets - 1
    return sign * (1 + jnp.exp(-sign * logits))


def max_curvature(residual_fn: ResidualFn) -> float:
    """Return the largest -dρ/dF of a loss, which bounds its step size; NaN: unknown."""
    known = {squared: 1.0, sigmoid: 0.25, softmax: 0.5}
    # By identity, since not every function of a caller can be hashed.
    return next((known[fn] for fn in known if fn is residual_fn), float("nan"))


def by_name(name: str) -> ResidualFn:
    """Return the residual of "squared", "absolute", "sigmoid" or "softmax"."""
    known = {fn.__name__: fn for fn in (squared, absolute, sigmoid, softmax)}
    checks.one_of("loss", name, known)
    return known[name]
