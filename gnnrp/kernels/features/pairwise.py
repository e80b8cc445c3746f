"""Inner products and distances of rows, to about the precision of their inputs.

|x|^2 + |y|^2 - 2 <x, y> costs one matrix product, and loses the digits of rows that lie
close together, far from zero. The pairs that change exp(-γ d) are few, and are
evaluated again from differences.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gnnrp.types import Scalar

PairsFn = Callable[[Int[Array, " p"], Int[Array, "p w"]], Float[Array, "p w"]]
"""(rows, columns of each row) -> their distances, from differences."""

_HIGHEST = jax.lax.Precision.HIGHEST
_COLUMNS = 128  # of one product: longer sums lose digits
_UNIT = 16  # neighboring columns that are evaluated again together
_CHUNK = 64  # such units at once
_ENTRIES = 2**20  # of the rows of one chunk, at most
# A relative error of the sums |x|^2 + |y|^2 becomes γ (|x|^2 + |y|^2) exp(-γ d) times
# as large in the kernel. Pairs up to this factor are accepted; a distance of a fifth of
# the sum, or more, stays below it for every γ.
_GROWTH = 2.0


@jax.jit  # a loop outside of a jit compiles anew at each call
def inner(x: Float[Array, "b d"], y: Float[Array, "n d"]) -> Float[Array, "b n"]:
    """Return <x_i, y_j>, summed over blocks of columns: less rounding than one sum."""
    num_blocks, rest = divmod(x.shape[1], _COLUMNS)

    def product(start, width):
        parts = (jax.lax.dynamic_slice_in_dim(z, start, width, 1) for z in (x, y))
        return _product(*parts)

    if num_blocks <= 1:
        return _product(x, y)
    total = jax.lax.fori_loop(
        1,
        num_blocks,
        lambda i, total: total + product(i * _COLUMNS, _COLUMNS),
        product(0, _COLUMNS),
    )
    return total + product(num_blocks * _COLUMNS, rest) if rest else total


def _product(x, y):
    return jnp.matmul(x, y.T, precision=_HIGHEST)


@jax.jit
def squared_distances(
    x: Float[Array, "b d"], y: Float[Array, "n d"], gamma: Scalar
) -> Float[Array, "b n"]:
    """Return |x_i - y_j|^2, with the digits that exp(-γ |x_i - y_j|^2) needs."""
    fixed_x, fixed_y = jax.lax.stop_gradient((x, y))

    def pair_distances(rows, columns):
        return jnp.sum((fixed_x[rows][:, None] - fixed_y[columns]) ** 2, axis=2)

    sums = jnp.sum(x**2, axis=1), jnp.sum(y**2, axis=1)
    return refine(
        sums[0][:, None] + sums[1][None] - 2 * _product(x, y),
        sums,
        gamma,
        pair_distances,
        length=x.shape[1],
        exact=_is_integer(fixed_x) & _is_integer(fixed_y),
    )


def refine(
    distances: Float[Array, "b n"],
    sums: tuple[Float[Array, " b"], Float[Array, " n"]],
    gamma: Scalar,
    pairs_fn: PairsFn,
    *,
    length: int,
    exact: Bool[Array, ""] | bool = False,
    known: Bool[Array, "b n"] | None = None,
) -> Float[Array, "b n"]:
    """Replace distances that lost digits which exp(-γ d) needs.

    The derivative is that of ``distances``, which has no such loss. ``sums`` are those
    of the terms of each row, such as |x_i|^2, of at most ``length`` terms; ``exact``
    says that all terms are integers, ``known`` which pairs have an exact distance.
    """
    if 0 in distances.shape:
        return distances
    fixed, sums = jax.lax.stop_gradient((distances, sums))
    gamma = jax.lax.stop_gradient(jnp.asarray(gamma, distances.dtype))
    most = jnp.max(sums[0]) + jnp.max(sums[1])
    exact = jnp.asarray(exact) & (most <= 2 / jnp.finfo(distances.dtype).eps)
    known = jnp.zeros((), bool) if known is None else known
    value = jax.lax.cond(
        (gamma * most <= _GROWTH) | exact,
        lambda: fixed,
        lambda: _replace(
            fixed, _lost_pairs(fixed, sums, gamma, length) & ~known, pairs_fn, length
        ),
    )
    return _replace_value(distances, value)


@jax.custom_jvp
def _replace_value(_distances: Array, value: Array) -> Array:
    """Return the value, with the derivative of the distances."""
    return value


@_replace_value.defjvp
def _(primals, tangents):
    return primals[1], tangents[0]


def _replace(distances, lost, pairs_fn, length):
    """Evaluate again each unit of columns with a lost pair."""
    num_rows, num_columns = distances.shape
    width = max(1, min(_UNIT, num_columns, _ENTRIES // max(1, length)))
    num_units = -(-num_columns // width)
    lost = jnp.pad(lost, ((0, 0), (0, num_units * width - num_columns)))
    lost = lost.reshape(num_rows, num_units, width).any(axis=2).ravel()
    (places,) = jnp.nonzero(lost, size=lost.size, fill_value=0)
    chunk = max(1, min(_CHUNK, lost.size, _ENTRIES // max(1, length * width)))

    def replace(carry):
        at, distances = carry
        some = jax.lax.dynamic_slice_in_dim(places, at, chunk)
        rows, units = some // num_units, some % num_units
        first = jnp.minimum(units * width, num_columns - width)
        columns = first[:, None] + jnp.arange(width)[None]
        pairs = pairs_fn(rows, columns)
        return at + chunk, distances.at[rows[:, None], columns].set(pairs)

    count = jnp.sum(lost)
    start = jnp.zeros((), count.dtype), distances
    return jax.lax.while_loop(lambda carry: carry[0] < count, replace, start)[1]


def _lost_pairs(distances, sums, gamma, length):
    """Return the pairs whose kernel has lost digits by the rounding of the sums."""
    both = sums[0][:, None] + sums[1][None]
    eps = jnp.finfo(distances.dtype).eps
    # Several times the usual rounding of a long sum.
    error = (4 + math.sqrt(length)) * float(eps) / 2 * both
    growth = gamma * both / _GROWTH
    # In this form, overflow counts as lost.
    accurate = gamma * (distances - error) >= jnp.log(growth)
    return (growth > 1) & ~accurate


def _is_integer(x: Float[Array, "b d"]) -> Bool[Array, ""]:
    return jnp.all(x == jnp.round(x))
