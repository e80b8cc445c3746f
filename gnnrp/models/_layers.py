"""Linear layers, their initialization, dropout, and the input formats of networks."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from gnnrp import sparse
from gnnrp.runtime import checks
from gnnrp.sparse.primitive import transposed_pattern
from gnnrp.types import LinearMap

INITIALIZATIONS = ("uniform", "glorot", "he")

Inputs = Any
"""Dense (n, d), sparse ``sparse.Matrix`` of that shape, or ``jraph.GraphsTuple``."""

_DIGITS = 24  # binary digits of a probability, as many as float32 has


class Linear(nn.Module):
    """Z -> A (Z W) + b; Z W comes first since it is narrower."""

    features: int
    use_bias: bool
    initialization: str  # one of INITIALIZATIONS, or "normal"
    weight_scale: float = 1.0
    bias_scale: float = 1.0

    @nn.compact
    def __call__(self, z: Any, matrix: LinearMap | None) -> jax.Array:
        """Return the outputs in the type of the inputs."""
        is_sparse = isinstance(z, sparse.Matrix)
        dtype = z.data.dtype if is_sparse else z.dtype
        fan_in = z.shape[1]
        init, init_bias = _initializers(self.initialization, fan_in)
        W = self.param("weights", init, (fan_in, self.features), dtype)
        W = W if self.weight_scale == 1 else W * jnp.asarray(self.weight_scale, dtype)
        z = sparse.matmul(z, W) if is_sparse else jnp.matmul(z, W, precision="highest")
        z = z if matrix is None else matrix(z)
        if not self.use_bias:
            return z
        b = self.param("bias", init_bias, (self.features,), dtype)
        return z + b[None, :] * jnp.asarray(self.bias_scale, dtype)


def parse_inputs(x: Inputs, matrix: LinearMap | None) -> tuple[Any, LinearMap | None]:
    """Return features and A, which the edges of a GraphsTuple define if it is None."""
    if hasattr(x, "senders"):
        aggregate = _aggregation(x)
        x, matrix = x.nodes, aggregate if matrix is None else matrix
    if matrix is not None:
        checks.linear_map("the matrix", matrix)
    if isinstance(x, sparse.Matrix):
        return x, matrix
    if not hasattr(x, "ndim") or hasattr(x, "nnz") or x.ndim != 2:
        is_dense = hasattr(x, "shape") and not hasattr(x, "nnz")
        got = f"shape {x.shape}" if is_dense else type(x).__name__
        msg = f"inputs must be a dense (n, d) array or from sparse.prepare, got {got}"
        raise TypeError(msg)
    if not jnp.issubdtype(x.dtype, jnp.floating) or 0 in x.shape:
        msg = (
            "inputs must be floats with at least one node and one feature, got "
            f"{x.dtype} of shape {x.shape}; use .astype(float)"
        )
        raise TypeError(msg)
    return x, matrix


def _aggregation(graph: Any) -> LinearMap:
    """Return V -> A V of a GraphsTuple; without edge values A counts the edges."""
    num_nodes, weights = len(graph.nodes), graph.edges
    if weights is not None:
        if weights.shape not in {graph.senders.shape, (*graph.senders.shape, 1)}:
            msg = (
                "edge values must be one number an edge, shape "
                f"{graph.senders.shape}, got {weights.shape}"
            )
            raise ValueError(msg)
        weights = weights.reshape(-1, 1)

    def aggregate(z: Float[Array, "n k"]) -> Float[Array, "n k"]:
        messages = z[graph.senders]
        messages = messages if weights is None else weights * messages
        return jax.ops.segment_sum(messages, graph.receivers, num_nodes)

    return aggregate


def _initializers(name: str, fan_in: int) -> tuple[Callable, Callable]:
    """Return the initializers (key, shape, dtype) of weights and biases."""

    def uniform(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        bound = jnp.asarray(fan_in**-0.5, dtype)
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    zeros = nn.initializers.zeros_init()
    return {
        "uniform": (uniform, uniform),
        "glorot": (nn.initializers.glorot_uniform(), zeros),
        "he": (nn.initializers.he_normal(), zeros),
        "normal": (jax.random.normal, jax.random.normal),
    }[name]


def sample_mask(
    key: Shaped[Array, "..."], probability: float, shape: tuple[int, ...]
) -> Bool[Array, "..."]:
    """Sample independent booleans that are true with a probability of 24 digits."""
    # Comparing a uniform number with p costs a random word per entry. Here a word
    # yields a binary digit of 32 entries: from the least significant one on,
    # p <- (digit + p) / 2 is ``or`` with a random bit if the digit is 1, else ``and``.
    numerator = max(1, round(probability * 2**_DIGITS))
    if numerator == 2**_DIGITS:
        return jnp.ones(shape, bool)
    digits = f"{numerator:0{_DIGITS}b}".rstrip("0")
    size = math.prod(shape)
    num_words = -(-size // 32)
    random_words = jax.random.bits(key, (len(digits), num_words), jnp.uint32)
    words = jnp.zeros(num_words, jnp.uint32)
    for digit, random in zip(reversed(digits), random_words, strict=True):
        words = words | random if digit == "1" else words & random
    bits = (words[:, None] >> jnp.arange(32, dtype=jnp.uint32)[None, :]) & jnp.uint32(1)
    return bits.astype(bool).reshape(-1)[:size].reshape(shape)


def apply_mask(z: Any, mask: jax.Array, probability: float) -> Any:
    """Zero the entries outside a mask, and divide the others by their probability."""
    if not isinstance(z, sparse.Matrix):
        return jnp.where(mask, z / jnp.asarray(probability, z.dtype), 0)
    data = jnp.where(mask, z.data / jnp.asarray(probability, z.data.dtype), 0)
    # Masked symmetric inputs are no longer symmetric: reverse mode needs A^T itself.
    transposed = transposed_pattern(z.pattern, z.transposed, z.shape[0], z.backend)
    return dataclasses.replace(z, data=data, transposed=transposed)
