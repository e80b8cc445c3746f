"""Forward and backward passes of layers, as the two sides of their kernels."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gnnrp import sparse
from gnnrp.runtime import arrays, checks
from gnnrp.types import Layer, LinearMap

ActivationFn = Callable[[jax.Array], jax.Array]
"""Elementwise, (n, m) -> (n, m)."""

_HIGHEST = jax.lax.Precision.HIGHEST


def dense(x: Any) -> Array:
    if isinstance(x, sparse.Matrix):
        return sparse.matmul(x, jnp.eye(x.shape[1], dtype=x.data.dtype))
    return arrays.real("x", x)


def sent(v: Array, matrix: LinearMap | None) -> Array:
    if matrix is None:
        return v
    checks.linear_map("the matrix", matrix)
    return matrix(v)


class _Gram(NamedTuple):
    """U U^T in the place of U."""

    entries: Float[Array, "n n"]


def through(
    layers: Sequence[Layer],
    x: Any,
    matrix: LinearMap | None,
    activation_fn: ActivationFn,
    given: Array | None,
) -> tuple[list[Any], list[Array]]:
    """Return the inputs U of each layer, and φ' of each hidden layer's outputs.

    Raises:
        ValueError: a Gram matrix of another shape.
    """
    if given is not None:
        checks.shape("the Gram matrix", given, (x.shape[0], x.shape[0]))
    inputs: list[Any] = [sent(dense(x), matrix) if given is None else _Gram(given)]
    slopes = []
    for number, layer in enumerate(layers[:-1]):
        if number > 0:
            z = jnp.matmul(inputs[-1], layer.weights, precision=_HIGHEST)
        elif isinstance(x, sparse.Matrix):
            z = sent(sparse.matmul(x, layer.weights), matrix)
        else:
            z = jnp.matmul(jnp.asarray(x), layer.weights, precision=_HIGHEST)
            z = sent(z, matrix)
        z = z if layer.bias is None else z + layer.bias[None, :]
        h, slope = jax.jvp(activation_fn, (z,), (jnp.ones_like(z),))
        inputs.append(sent(h, matrix))
        slopes.append(slope)
    return inputs, slopes


def backward(
    layers: Sequence[Layer], slopes: list[Array], reduce: str
) -> list[tuple[Array, Array]]:
    """Return B of each layer, without propagation, as both sides of its Gram matrix.

    They are (n, s, m), of the last layer (1, s, c), for s weightings of the outputs:
    one, of all of them, or each by itself.
    """
    b = weightings(layers[-1], reduce)
    found = [(b, b)]
    for number, (layer, slope) in enumerate(
        zip(layers[:0:-1], slopes[::-1], strict=True)
    ):
        pulled = jnp.matmul(b, layer.weights.T, precision=_HIGHEST)
        b = slope[:, None] * pulled
        sides = b, b
        if reduce == "trace" and number == 0:
            # Every class sees the same φ': their sum has the rank of one of them.
            sides = slope * jnp.sum(pulled[0] ** 2, axis=0, keepdims=True), slope
            sides = sides[0][:, None], sides[1][:, None]
        found.append(sides)
    return found[::-1]


def weightings(last: Layer, reduce: str) -> Array:
    """Return what the outputs of a node are weighted with, (1, s, c)."""
    c, dtype = last.weights.shape[1], last.weights.dtype
    if reduce in {"sum", "pseudo"}:
        return jnp.ones((1, 1, c), dtype)
    return jnp.eye(c, dtype=dtype)[None]


def forward(layer: Layer, u: Any, nodes: Array | None) -> Array:
    """Return columns of w² U U^T + β², all of them if none are named."""
    if isinstance(u, _Gram):
        product = u.entries if nodes is None else u.entries[nodes].T
    else:
        some = u if nodes is None else u[nodes]
        product = jnp.matmul(u, some.T, precision=_HIGHEST)
    product *= jnp.asarray(layer.weight_scale, product.dtype) ** 2
    if layer.bias is None:
        return product
    return product + jnp.asarray(layer.bias_scale, product.dtype) ** 2
