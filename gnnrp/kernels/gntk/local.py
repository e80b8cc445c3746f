r"""Blocks Θ[I, J] of the GNTK of shallow GCNs, without an n x n array.

A node's features of L layers depend on its L-hop neighborhood alone. With Z = P X (and
the bias as one column more), K_1[I, J] = Z_I Z_J^T for any nodes, so that a block of
two layers needs the neighbors of I and J, one of three layers theirs too:

    K_l[I, J] = P[I, N(I)] S_l[N(I), N(J)] P[J, N(J)]^T + β^2,  N_l likewise.

The block is cut into tiles whose neighborhoods are bounded in size; all tiles share a
few traces. Three layers also take the variances diag K_2, sums over the pairs of
neighbors of each node. Deeper networks see so much of a graph that ``blocked`` serves
better.

Source: Def. 4.1 (App. B.3), with a linear last layer; the same numbers as ``gntk.gcn``.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Float, Int

from gnnrp import sparse
from gnnrp.kernels.features import pairwise, sparse_rows
from gnnrp.kernels.features.inputs import as_float, checked
from gnnrp.kernels.gntk import activations, recursion
from gnnrp.kernels.gntk._neighborhoods import Side, sides
from gnnrp.kernels.gntk._pairs import second_variances, with_variances
from gnnrp.kernels.gntk.activations import Activation
from gnnrp.kernels.gntk.recursion import Kernels
from gnnrp.runtime import checks, tracing

_SIDE = 2048  # nodes of a tile's innermost neighborhood, if a single node has no more
_MOST_DEPTH = 3
_HELD = 6  # arrays of a tile's innermost size at once, at most
MAX_BYTES = 2**31  # of one tile


class _Layers(NamedTuple):
    """What all tiles share, on the host."""

    P: scipy.sparse.csr_array
    Z: Any  # P X, with the bias as a column; dense or CSR
    variances: tuple[np.ndarray, ...]  # of layers 1, .., L - 1, of all nodes


def gcn(
    adjacency: Any,
    features: Any,
    rows: Sequence[int] | Int[np.ndarray, " m"],
    columns: Sequence[int] | Int[np.ndarray, " k"],
    *,
    depth: int,
    activation: Activation = activations.RELU,
    scale: float | None = None,
    bias: str = "none",
    bias_std: float = 1.0,
    trained: Sequence[bool] | None = None,
    max_bytes: int = MAX_BYTES,
) -> Kernels:
    """Return K[I, J] and Θ[I, J] of ``gntk.gcn``, as arrays of the host.

    The work is that of the pairs of neighbors, so least where the nodes of a side have
    neighbors in common: they are tiled in the order in which they come.

    Args:
        adjacency: P, BCOO or scipy sparse; need not be symmetric.
        features: X, dense or scipy sparse.
        rows: I, nodes in any order.
        columns: J.
        depth: L, 1 to 3.
        activation: φ, between layers.
        scale: c_σ; that of the activation if left out.
        bias: "none", or "before" or "after" the aggregation.
        bias_std: β; not used without a bias.
        trained: which layers are, from the first; all if left out.
        max_bytes: of one tile.

    Raises:
        ValueError: a depth or a node out of range, features that do not fit or are not
            finite, an unknown bias, not one flag a layer, or two nodes with too many
            neighbors for a tile.
        TypeError: an adjacency that is not sparse, features that are not real numbers,
            no activation.

    Source: Def. 4.1 (App. B.3), with a linear last layer.
    """
    depth = checks.count("depth", depth, 1, _MOST_DEPTH)
    flags = tuple(bool(flag) for flag in recursion.checked_layers(depth, trained))
    checks.one_of("bias", bias, recursion.BIASES)
    recursion.check_bias(bias_std, jnp.zeros(0).dtype)
    recursion.checked_activation(activation, scale)
    max_bytes = checks.count("max_bytes", max_bytes, 0, 2**62)
    P: Any = sparse.to_scipy(adjacency)
    checks.square("the adjacency", P)
    P.eliminate_zeros()  # which would be neighbors of a tile
    own, other = (
        checks.node_ids(name, side, P.shape[0]).astype(np.int32)
        for name, side in (("rows", rows), ("columns", columns))
    )
    settings = {
        "scale": activation.scale if scale is None else scale,
        "before": bias_std if bias == "before" else 0.0,
        "after": bias_std if bias == "after" else 0.0,
        "activation": tracing.as_static(activation),
    }
    row_sides, column_sides = _tiles(P, own, other, depth, max_bytes)
    layers = _first_layer(P, features, settings["before"], settings["after"])
    if depth == _MOST_DEPTH:
        near = np.unique(P[np.union1d(own, other)].indices)
        first = layers.variances[0]
        second = second_variances(layers.P, layers.Z, first, near, _SIDE, settings)
        layers = layers._replace(variances=(*layers.variances, second))
    dtype = layers.Z.dtype
    whole: Any = [np.empty((len(own), len(other)), dtype) for _ in range(2)]
    for at, row in row_sides:
        for beside, column in column_sides:
            tile = _tile(
                row,
                column,
                _inner(layers.Z, row, column),
                (_variances(layers, row), _variances(layers, column)),
                trained=flags,
                **settings,
            )
            height, width = at.stop - at.start, beside.stop - beside.start
            for kernel, part in zip(whole, tile, strict=True):
                kernel[at, beside] = np.asarray(part)[:height, :width]
    return Kernels(*whole)


def _first_layer(P: Any, features: Any, before: float, after: float) -> _Layers:
    """Return Z with K_1 = Z Z^T, and its variances.

    Raises:
        ValueError: not one row of features a node, none, or not finite.
        TypeError: not real numbers.
    """
    X: Any = as_float(checked(features))
    is_sparse = scipy.sparse.issparse(X)
    if X.ndim != 2 or X.shape[0] != P.shape[1] or X.shape[1] == 0:
        msg = f"features must have shape ({P.shape[1]}, d), d > 0, got {X.shape}"
        raise ValueError(msg)
    dtype = jax.dtypes.canonicalize_dtype(np.promote_types(P.dtype, X.dtype))
    P = P.astype(dtype)
    bias = (before * P.sum(axis=1) + after).astype(dtype)  # one of the two is zero
    if is_sparse:
        parts: Any = [P @ X.astype(dtype), scipy.sparse.csr_array(bias[:, None])]
        Z: Any = scipy.sparse.hstack(parts, format="csr")
    else:
        Z = np.asarray(sparse.matmul(sparse.prepare(P), jnp.asarray(X, dtype)))
        Z = np.hstack([Z, bias[:, None]]) if bias.any() else Z
    with np.errstate(over="ignore"):
        squares = np.asarray((Z * Z).sum(axis=1)).ravel()
    recursion.check_squares(Z, squares)
    return _Layers(P, Z, (squares.astype(dtype),))


def _inner(Z: Any, row: Side, column: Side) -> Float[jax.Array, "s r"]:
    """Return Z Z^T between the innermost neighborhoods."""
    sides = Z[row.nodes[0]], Z[column.nodes[0]]
    if scipy.sparse.issparse(Z):
        return sparse_rows.inner(*sides)
    return pairwise.inner(*map(jnp.asarray, sides))


def _variances(layers: _Layers, side: Side) -> list[np.ndarray]:
    """Return K_ii of the layer before, of each neighborhood of a side."""
    return [
        variance[nodes]
        for variance, nodes in zip(layers.variances, side.nodes, strict=True)
    ]


def _tiles(
    P: Any, rows: np.ndarray, columns: np.ndarray, depth: int, max_bytes: int
) -> list[list[tuple[slice, Side]]]:
    """Return the sides of all tiles, as large as fit.

    Raises:
        ValueError: two nodes alone need more than ``max_bytes``.
    """
    itemsize = jnp.zeros(0).dtype.itemsize
    fits = max(1, math.isqrt(max_bytes // (_HELD * itemsize)))
    most = min(_SIDE, 1 << (fits.bit_length() - 1))  # sides are powers of two
    both = [list(sides(P, nodes, depth, most)) for nodes in (rows, columns)]
    widest = [max((len(side.nodes[0]) for _, side in each), default=0) for each in both]
    needed = _HELD * widest[0] * widest[1] * itemsize
    if needed > max_bytes:
        msg = (
            f"nodes with up to {widest[0]:,} and {widest[1]:,} others within reach "
            f"take {needed / 1e6:,.1f} MB and max_bytes allows {max_bytes / 1e6:,.1f}; "
            "take fewer layers, or a larger max_bytes"
        )
        raise ValueError(msg)
    return both


@functools.partial(tracing.Jit, static_argnames=("trained",))
def _tile(
    row: Side,
    column: Side,
    gram: Float[Any, "s r"],
    variances: tuple[list[Any], list[Any]],
    *,
    scale: Any,
    before: Any,
    after: Any,
    activation: Any,
    trained: tuple[bool, ...],
) -> Kernels:
    """Return a tile of the block, with what pads it."""
    activation = tracing.unwrap(activation)
    kernels = recursion.initialize(gram)
    kernels = recursion.dense(kernels, trained=trained[0])
    shift = jnp.asarray(after, gram.dtype) ** 2
    for at, flag in enumerate(trained[1:]):
        both = variances[0][at], variances[1][at]
        nngp = with_variances(kernels.nngp, both, row.nodes[at], column.nodes[at])
        kernels = recursion.transform(
            kernels._replace(nngp=nngp), activation, scale=scale, variances=both
        )
        kernels = recursion.dense(kernels, bias_std=before, trained=flag)
        nngp, ntk = recursion.propagate(kernels, row.hops[at], column.hops[at])
        kernels = Kernels(nngp + shift, ntk + shift if flag else ntk)
    return kernels
