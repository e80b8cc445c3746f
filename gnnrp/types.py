"""Shared types of functions, maps and numbers."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Array, Bool, Float

Scalar: TypeAlias = float | np.number | Float[Array, ""]
"""A number, traced or not."""

LinearMap: TypeAlias = Callable[[jax.Array], jax.Array]
"""V -> S V for a fixed n x n matrix S and any V of shape (n, k)."""

ResidualFn: TypeAlias = Callable[[jax.Array, jax.Array], jax.Array]
"""(targets, predictions) -> minus the gradient of the loss in the predictions."""

MetricFn: TypeAlias = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""(scores (m, c), targets (m, c), mask (m,)) -> a scalar, larger is better."""


class Layer(NamedTuple):
    """x -> x W + b, and the derivatives of W and b in their parameters."""

    weights: Float[Array, "d_in d_out"]  # W, as in the forward pass
    bias: Float[Array, " d_out"] | None  # b
    weight_scale: Scalar = 1.0  # dW / dθ: not 1 in the NTK parameterization
    bias_scale: Scalar = 1.0  # db / dθ


class Split(NamedTuple):
    """Masks of training, validation and test nodes, of one split or of s."""

    train: Bool[np.ndarray, "*s n"]
    val: Bool[np.ndarray, "*s n"]
    test: Bool[np.ndarray, "*s n"]
