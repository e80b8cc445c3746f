"""Variances of a second layer: sums over the pairs of neighbors of each node."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int

from gnnrp.kernels.features import pairwise
from gnnrp.kernels.gntk import recursion
from gnnrp.kernels.gntk._neighborhoods import power_of_two
from gnnrp.runtime import tracing

_MOST_COLUMNS = 2**14  # of sparse inputs that become dense as they are


def with_variances(
    nngp: Array, variances: tuple[Array, Array], rows: Any, columns: Any
) -> Array:
    """Write K_ii where both nodes are one: round-off there costs half of all digits."""
    same = rows[:, None] == columns[None, :]
    return jnp.where(same, variances[0][:, None], nngp)


def second_variances(
    P: Any,
    Z: Any,
    first: np.ndarray,
    nodes: np.ndarray,
    side: int,
    settings: dict[str, Any],
) -> np.ndarray:
    """Return diag K_2 of some nodes, zero elsewhere: sums over pairs of neighbors.

    Args:
        P: CSR.
        Z: features with K_1 = Z Z^T, dense or CSR.
        first: diag K_1.
        nodes: those asked for.
        side: a power of two; about its square of entries is held at once.
        settings: of ``gntk.transform`` and the bias.
    """
    found = np.zeros_like(first)
    degrees = np.diff(P.indptr)[nodes]
    rounded = np.array([power_of_two(int(degree)) for degree in degrees], int)
    for width in np.unique(rounded):  # nodes of about the same degree together
        members = nodes[rounded == width]
        width = int(width)
        batch = max(1, side**2 // (width * max(width, Z.shape[1])))
        for start in range(0, len(members), batch):
            some = np.resize(members[start : start + batch], batch)  # one shape
            place = P.indptr[some][:, None] + np.arange(width)
            inside = place < P.indptr[some + 1][:, None]
            place = np.where(inside, place, 0)
            neighbors = P.indices[place]
            inputs = _dense(Z[neighbors.ravel()])
            found[some] = _sum_over_pairs(
                inputs.reshape(batch, width, -1),
                neighbors,
                first[neighbors],
                np.where(inside, P.data[place], 0),
                side=side,
                **settings,
            )
    return found


def _dense(inputs: Any) -> np.ndarray:
    """Return rows as a dense matrix, of many columns only those with an entry."""
    if not scipy.sparse.issparse(inputs):
        return inputs
    if inputs.shape[1] > _MOST_COLUMNS:
        used = np.unique(inputs.indices)
        missing = power_of_two(len(used)) - len(used)  # for few shapes
        return np.pad(inputs[:, used].toarray(), ((0, 0), (0, missing)))
    return inputs.toarray()


@functools.partial(tracing.Jit, static_argnames=("side",))
def _sum_over_pairs(
    inputs: Float[Array, "b w d"],
    neighbors: Int[Array, "b w"],
    variances: Float[Array, "b w"],
    weights: Float[Array, "b w"],
    *,
    scale: Any,
    before: Any,
    after: Any,
    activation: Any,
    side: int,
) -> Float[Array, " b"]:
    """Return w^T S w + β^2 of each node, S over its neighbors, a strip at a time."""
    activation = tracing.unwrap(activation)

    def of_node(node):
        def of_strip(strip):
            z, nodes, variance, weight = strip
            sides = variance, node[2]
            nngp = with_variances(pairwise.inner(z, node[0]), sides, nodes, node[1])
            kernels = recursion.transform(
                recursion.initialize(nngp), activation, scale=scale, variances=sides
            )
            S = recursion.dense(kernels, bias_std=before).nngp
            return jnp.sum(weight[:, None] * S * node[3][None, :])

        height = min(len(node[1]), side)
        strips = [part.reshape(-1, height, *part.shape[1:]) for part in node]
        return jnp.sum(jax.lax.map(of_strip, strips))

    found = jax.vmap(of_node)((inputs, neighbors, variances, weights))
    return found + jnp.asarray(after, found.dtype) ** 2
