"""Dropout masks, drawn 32 entries to a random word, and their application."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Shaped

from gnnrp import sparse
from gnnrp.sparse.primitive import transposed_pattern

DIGITS = 24  # binary digits of a probability, as many as float32 has


def sample_mask(
    key: Shaped[Array, "..."], probability: float, shape: tuple[int, ...]
) -> Bool[Array, "..."]:
    """Sample independent booleans that are true with a probability.

    Comparing a uniform number with the probability costs a random word per entry. Here
    a word yields a binary digit of 32 entries: from the least significant one on,
    p <- (digit + p) / 2 is ``or`` with a random bit if the digit is 1, else ``and``.

    Args:
        key: of the sample.
        probability: in (0, 1], rounded to 24 binary digits, at least 2^-24.
        shape: of the result.
    """
    numerator = max(1, round(probability * 2**DIGITS))
    if numerator == 2**DIGITS:
        return jnp.ones(shape, bool)
    digits = f"{numerator:0{DIGITS}b}".rstrip("0")
    size = math.prod(shape)
    num_words = -(-size // 32)
    random_words = jax.random.bits(key, (len(digits), num_words), jnp.uint32)
    words = jnp.zeros(num_words, jnp.uint32)
    for digit, random in zip(reversed(digits), random_words, strict=True):
        words = words | random if digit == "1" else words & random
    bits = (words[:, None] >> jnp.arange(32, dtype=jnp.uint32)[None, :]) & jnp.uint32(1)
    return bits.astype(bool).reshape(-1)[:size].reshape(shape)


def apply_mask(z: Any, mask: jax.Array, probability: float) -> Any:
    """Zero the unmasked entries and divide the others by their probability.

    Args:
        z: dense array, or ``sparse.Matrix``, of which the stored entries are masked.
        mask: true for each entry that is retained.
        probability: of retaining an entry.
    """
    if not isinstance(z, sparse.Matrix):
        return jnp.where(mask, z / jnp.asarray(probability, z.dtype), 0)
    data = jnp.where(mask, z.data / jnp.asarray(probability, z.data.dtype), 0)
    # Masked symmetric inputs are no longer symmetric: reverse mode needs A^T itself.
    transposed = transposed_pattern(z.pattern, z.transposed, z.shape[0], z.backend)
    return dataclasses.replace(z, data=data, transposed=transposed)
