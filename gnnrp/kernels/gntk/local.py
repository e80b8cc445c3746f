r"""Blocks Θ[I, J] of the GNTK of shallow GCNs, without an n x n array.

A node's features of L layers depend on its L-hop neighborhood alone. With Z = P X (and
the bias as one column more), K_1[I, J] = Z_I Z_J^T for any nodes, and

    K_l[I, J] = P[I, N(I)] S_l[N(I), N(J)] P[J, N(J)]^T + β^2,  N_l likewise.

The block is cut into tiles with neighborhoods of bounded size, which share a few
traces. Three layers also take the variances diag K_2, sums over the pairs of neighbors
of each node. For deeper networks, ``blocked`` is the better route.

Source: Def. 4.1 (App. B.3), with a linear last layer; the same numbers as ``gntk.gcn``.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int

from gnnrp import sparse
from gnnrp.kernels.features import pairwise, sparse_rows
from gnnrp.kernels.features.inputs import as_float, validate
from gnnrp.kernels.features.sparse_rows import power_of_two
from gnnrp.kernels.gntk import network as networks
from gnnrp.kernels.gntk import recursion
from gnnrp.kernels.gntk.network import Network
from gnnrp.kernels.gntk.recursion import Kernels
from gnnrp.runtime import checks, tracing

MAX_BYTES = 2**31  # of one tile
_SIDE = 2048  # nodes of a tile's innermost neighborhood, if a single node has no more
_MAX_DEPTH = 3
_NUM_ARRAYS = 6  # of a tile's innermost size at once, at most
_MAX_ROWS = 512  # of a tile
_MAX_COLUMNS = 2**14  # of sparse inputs that become dense with all their columns


class _Side(NamedTuple):
    """The rows, or the columns, of a tile; from layer 2 to layer L."""

    hops: tuple[sparse.Matrix, ...]  # P from each neighborhood to the next
    nodes: tuple[Int[Any, " s"], ...]  # of the neighborhoods, padded with node 0


class _Layers(NamedTuple):
    """Arrays on the host that all tiles share."""

    P: scipy.sparse.csr_array
    Z: Any  # P X, with the bias as a column; dense or CSR
    variances: tuple[np.ndarray, ...]  # of layers 1, .., L - 1, of all nodes


def gcn(
    adjacency: Any,
    features: Any,
    rows: Sequence[int] | Int[np.ndarray, " m"],
    columns: Sequence[int] | Int[np.ndarray, " k"],
    network: Network,
    *,
    max_bytes: int = MAX_BYTES,
) -> Kernels:
    """Return K[I, J] and Θ[I, J] of ``gntk.gcn``, as arrays of the host.

    The cost grows with the pairs of neighbors. Tiles follow the order of ``rows`` and
    ``columns``, so place nodes with common neighbors next to each other.

    Args:
        adjacency: P, BCOO or scipy sparse; need not be symmetric.
        features: X, dense or scipy sparse.
        rows: I, nodes in any order.
        columns: J.
        network: of depth 1 to 3, with activation, scale, bias and trained layers.
        max_bytes: memory of one tile, which two nodes with their neighbors must fit.

    Raises:
        ValueError: an argument out of range, or features of other nodes or not finite.
        TypeError: a dense adjacency, features not real numbers, not a ``Network``.

    Source: Def. 4.1 (App. B.3), with a linear last layer.
    """
    networks.check(network, jnp.zeros(0).dtype)
    checks.count("depth", network.depth, 1, _MAX_DEPTH)
    max_bytes = checks.count("max_bytes", max_bytes, 0, 2**62)
    P: Any = sparse.to_scipy(adjacency)
    checks.square("the adjacency", P)
    P.eliminate_zeros()  # which would be neighbors of a tile
    own, other = (
        checks.node_ids(name, side, P.shape[0]).astype(np.int32)
        for name, side in (("rows", rows), ("columns", columns))
    )
    row_sides, column_sides = _tiles(P, own, other, network.depth, max_bytes)
    layers = _first_layer(P, features, network)
    argument = tracing.as_argument(network)
    if network.depth == _MAX_DEPTH:
        near = np.unique(P[np.union1d(own, other)].indices)
        second = _second_variances(layers, near, _SIDE, argument)
        layers = layers._replace(variances=(*layers.variances, second))
    shape = len(own), len(other)
    block: Any = [np.empty(shape, layers.Z.dtype) for _ in range(2)]
    for at, row in row_sides:
        for beside, column in column_sides:
            gram = _inner(layers.Z, row, column)
            variances = tuple(
                [
                    each[nodes]
                    for each, nodes in zip(layers.variances, side.nodes, strict=True)
                ]
                for side in (row, column)
            )
            tile = _tile(row, column, gram, variances, argument)
            height, width = at.stop - at.start, beside.stop - beside.start
            for kernel, part in zip(block, tile, strict=True):
                kernel[at, beside] = np.asarray(part)[:height, :width]
    return Kernels(*block)


def _first_layer(P: Any, features: Any, network: Network) -> _Layers:
    """Return Z with K_1 = Z Z^T, and its variances; refuse features of other nodes."""
    X: Any = as_float(validate(features))
    if X.shape[0] != P.shape[1]:
        msg = f"features must have shape ({P.shape[1]}, d), d > 0, got {X.shape}"
        raise ValueError(msg)
    dtype = jax.dtypes.canonicalize_dtype(np.promote_types(P.dtype, X.dtype))
    P = P.astype(dtype)
    bias = network.bias_before * P.sum(axis=1) + network.bias_after  # one is zero
    bias = np.asarray(bias, dtype)
    if scipy.sparse.issparse(X):
        parts: Any = [P @ X.astype(dtype), scipy.sparse.csr_array(bias[:, None])]
        Z: Any = scipy.sparse.hstack(parts, format="csr")
    else:
        Z = np.asarray(sparse.matmul(sparse.prepare(P), jnp.asarray(X, dtype)))
        Z = np.hstack([Z, bias[:, None]]) if bias.any() else Z
    with np.errstate(over="ignore"):
        squares = np.asarray((Z * Z).sum(axis=1)).ravel()
    recursion.check_squares(Z, squares)
    return _Layers(P, Z, (squares.astype(dtype),))


def _inner(Z: Any, row: _Side, column: _Side) -> Float[Array, "s r"]:
    """Return Z Z^T between the innermost neighborhoods."""
    sides = Z[row.nodes[0]], Z[column.nodes[0]]
    if scipy.sparse.issparse(Z):
        return sparse_rows.inner(*sides)
    return pairwise.inner(*map(jnp.asarray, sides))


@tracing.Jit
def _tile(
    row: _Side, column: _Side, gram: Array, variances: Any, network: Any
) -> Kernels:
    """Return a tile of the block, with its padding."""
    network = tracing.unwrap(network)
    kernels = recursion.dense(recursion.initialize(gram), trained=network.trained[0])
    shift = jnp.asarray(network.bias_after, gram.dtype) ** 2
    for at, trained in enumerate(network.trained[1:]):
        sides = variances[0][at], variances[1][at]
        nodes = row.nodes[at], column.nodes[at]
        kernels = _activate(kernels, sides, nodes, network, trained=trained)
        nngp, ntk = recursion.propagate(kernels, row.hops[at], column.hops[at])
        kernels = Kernels(nngp + shift, ntk + shift if trained else ntk)
    return kernels


def _activate(
    kernels: Kernels,
    variances: tuple[Array, Array],
    nodes: tuple[Array, Array],
    network: Network,
    *,
    trained: bool,
) -> Kernels:
    """Apply activation and weights; K_ii comes from the variances.

    Round-off of K_ii where both nodes are one would cost half of all digits.
    """
    same = nodes[0][:, None] == nodes[1][None, :]
    nngp = jnp.where(same, variances[0][:, None], kernels.nngp)
    phi, kernels = network.activation, kernels._replace(nngp=nngp)
    kernels = recursion.transform(
        kernels, phi, scale=network.scale, variances=variances
    )
    return recursion.dense(kernels, bias_std=network.bias_before, trained=trained)


# Neighborhoods of bounded size, and P between them


def _tiles(
    P: Any, rows: np.ndarray, columns: np.ndarray, depth: int, max_bytes: int
) -> list[list[tuple[slice, _Side]]]:
    """Return the sides of all tiles, as large as the memory allows."""
    itemsize = jnp.zeros(0).dtype.itemsize
    most = max(1, math.isqrt(max_bytes // (_NUM_ARRAYS * itemsize)))
    most = min(_SIDE, 1 << (most.bit_length() - 1))  # sides are powers of two
    both = [list(_sides(P, nodes, depth, most)) for nodes in (rows, columns)]
    widest = [max((len(side.nodes[0]) for _, side in each), default=0) for each in both]
    needed = _NUM_ARRAYS * widest[0] * widest[1] * itemsize
    if needed > max_bytes:
        msg = (
            f"nodes with up to {widest[0]:,} and {widest[1]:,} others within reach "
            f"take {needed / 1e6:,.1f} MB and max_bytes allows {max_bytes / 1e6:,.1f}; "
            "take fewer layers, or a larger max_bytes"
        )
        raise ValueError(msg)
    return both


def _sides(
    P: Any, nodes: Int[np.ndarray, " m"], depth: int, most: int
) -> Iterator[tuple[slice, _Side]]:
    """Yield parts of the nodes, each with a neighborhood of at most ``most`` nodes."""
    pattern, start = abs(P), 0  # no sum of products may vanish
    while start < len(nodes):
        some = nodes[start : start + (_MAX_ROWS if depth > 1 else most)]
        every = np.arange(len(some) + 1)
        units = np.ones(len(some), pattern.dtype), some, every
        reach: Any = scipy.sparse.csr_array(units, (len(some), pattern.shape[0]))
        for _ in range(depth - 1):
            reach = reach @ pattern
        _, first = np.unique(reach.indices, return_index=True)
        owner = np.searchsorted(reach.indptr, first, side="right") - 1
        counts = np.cumsum(np.bincount(owner, minlength=len(some)))
        stop = start + max(1, int(np.searchsorted(counts, most, side="right")))
        stop = min(stop, start + len(some))
        yield slice(start, stop), _side(P, nodes[start:stop], depth)
        start = stop


def _side(P: Any, nodes: np.ndarray, depth: int) -> _Side:
    """Return the neighborhoods of some nodes, from the innermost on."""
    hops, neighborhoods = [], []
    for _ in range(depth - 1):
        block: Any = P[nodes]
        inner, place = np.unique(block.indices, return_inverse=True)
        parts = (block.data, place.astype(np.int32), block.indptr)
        block = scipy.sparse.csr_array(parts, (len(nodes), len(inner)))
        shape = power_of_two(len(nodes)), power_of_two(len(inner))
        hops.append(sparse.pad_to_power_of_two(block, shape))
        neighborhoods.append(np.pad(inner, (0, shape[1] - len(inner))))
        nodes = inner
    if depth == 1:
        neighborhoods.append(np.pad(nodes, (0, power_of_two(len(nodes)) - len(nodes))))
    return _Side(tuple(hops[::-1]), tuple(neighborhoods[::-1]))


# Variances of a second layer: sums over the pairs of neighbors of each node


def _second_variances(
    layers: _Layers, nodes: np.ndarray, side: int, network: Any
) -> np.ndarray:
    """Return diag K_2 of some nodes, zero elsewhere: sums over pairs of neighbors.

    About ``side`` squared entries, a power of two, are held at once.
    """
    P, Z, (first,) = layers
    second = np.zeros_like(first)
    degrees = map(int, np.diff(P.indptr)[nodes])
    widths = np.array([power_of_two(degree) for degree in degrees])
    for width in map(int, np.unique(widths)):  # nodes of about the same degree together
        members = nodes[widths == width]
        batch = max(1, side**2 // (width * max(width, Z.shape[1])))
        batch = min(batch, power_of_two(len(members)))
        for start in range(0, len(members), batch):
            some = np.resize(members[start : start + batch], batch)  # one shape
            place = P.indptr[some][:, None] + np.arange(width)
            inside = place < P.indptr[some + 1][:, None]
            place = np.where(inside, place, 0)
            neighbors = P.indices[place]
            inputs = _dense(Z[neighbors.ravel()]).reshape(batch, width, -1)
            weights = np.where(inside, P.data[place], 0)
            parts = inputs, neighbors, first[neighbors], weights
            second[some] = _sum_over_pairs(parts, network, side=side)
    return second


def _dense(inputs: Any) -> np.ndarray:
    """Return rows as a dense matrix, of many columns only those with an entry."""
    if not scipy.sparse.issparse(inputs):
        return inputs
    if inputs.shape[1] > _MAX_COLUMNS:
        used = np.unique(inputs.indices)
        missing = power_of_two(len(used)) - len(used)  # for few shapes
        return np.pad(inputs[:, used].toarray(), ((0, 0), (0, missing)))
    return inputs.toarray()


@functools.partial(tracing.Jit, static_argnames=("side",))
def _sum_over_pairs(
    parts: tuple[Array, Array, Array, Array], network: Any, *, side: int
) -> Float[Array, " b"]:
    """Return w^T S w + β^2 of each node, S over its neighbors, a strip at a time.

    The parts are Z (b, w, d), nodes, variances and weights w of b nodes' w neighbors.
    """
    network = tracing.unwrap(network)

    def sum_of_node(node: Any) -> Array:
        def sum_of_strip(strip: Any) -> Array:
            z, nodes, variance, weight = strip
            kernels = recursion.initialize(pairwise.inner(z, node[0]))
            sides = variance, node[2]
            S, _ = _activate(kernels, sides, (nodes, node[1]), network, trained=False)
            return jnp.sum(weight[:, None] * S * node[3][None, :])

        height = min(len(node[1]), side)
        strips = [part.reshape(-1, height, *part.shape[1:]) for part in node]
        return jnp.sum(jax.lax.map(sum_of_strip, strips))

    total = jax.vmap(sum_of_node)(parts)
    return total + jnp.asarray(network.bias_after, total.dtype) ** 2
