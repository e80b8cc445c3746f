"""Dropout: which inputs are kept, drawn 32 to a word, and what is left of them."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Shaped

from gnnrp import sparse
from gnnrp.sparse.primitive import transposed_pattern

DIGITS = 24  # of a share, in binary; a float32 has as many


def kept(
    key: Shaped[Array, "..."], share: float, shape: tuple[int, ...]
) -> Bool[Array, "..."]:
    """Return independent bits, each true with probability ``share``.

    Random words are what dropout costs. A number a bit, which is compared with the
    share, takes a word each; digit by digit, least significant first, p <- (digit + p)
    / 2 is ``or`` with a random bit where the digit is 1 and ``and`` where it is 0, for
    32 bits at once: a half takes a word for 32, and nothing more than 24 for 32.

    Args:
        key: of the draw.
        share: in (0, 1], taken to 24 binary digits, and 2^-24 at least.
        shape: of the result.
    """
    whole = max(1, round(share * 2**DIGITS))
    if whole == 2**DIGITS:
        return jnp.ones(shape, bool)
    digits = f"{whole:0{DIGITS}b}".rstrip("0")
    num_words = -(-math.prod(shape) // 32)
    drawn = jax.random.bits(key, (len(digits), num_words), jnp.uint32)
    words = jnp.zeros(num_words, jnp.uint32)
    for digit, random in zip(reversed(digits), drawn, strict=True):
        words = words | random if digit == "1" else words & random
    bits = (words[:, None] >> jnp.arange(32, dtype=jnp.uint32)[None, :]) & jnp.uint32(1)
    return bits.astype(bool).reshape(-1)[: math.prod(shape)].reshape(shape)


def dropped(z: Any, keep: jax.Array, share: float) -> Any:
    """Return inputs without those that are not kept, the others over their share.

    Args:
        z: dense, or sparse, of which the stored entries are dropped.
        keep: a bool for each.
        share: that is kept.
    """
    entries = z.data if isinstance(z, sparse.Matrix) else z
    entries = jnp.where(keep, entries / jnp.asarray(share, entries.dtype), 0)
    if not isinstance(z, sparse.Matrix):
        return entries
    # Of symmetric inputs, what is left is not: reverse mode needs a pattern of its own.
    transposed = transposed_pattern(z.pattern, z.transposed, z.shape[0], z.backend)
    return dataclasses.replace(z, data=entries, transposed=transposed)
