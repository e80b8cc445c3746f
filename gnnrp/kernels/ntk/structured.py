"""Empirical tangent kernels of GCNs, SGC, MLPs and APPNP without any Jacobian.

A layer Z = U W + b has gradients U_a B_a^T, so its share of Θ is, over nodes a and b,

    Σ_ab <B_i[a], B_j[b]> (w² <U_a, U_b> + β²),

with B_i = d f_i / dZ. Without propagation B_i[a] vanishes but for a = i, and the share
is the entrywise product of two Gram matrices: forward, of the inputs U, and backward,
of the slopes B. With it, each hop puts A on both sides, and below a nonlinearity the
slopes of different hidden units no longer share a Gram matrix: a layer two hops below
the output costs two sparse products of an n x n matrix for each hidden unit, one three
hops below for each pair of them, which no longer pays. So GCNs have up to three layers
here, MLPs (and what propagates only after them) any number.

Outputs are reduced as in ``empirical``: "full" (n, c, n, c), "trace", "sum",
"pseudo". All functions are differentiable, also in the entries of A.

Source: Eq. 5; App. C.3 and D.2.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gnnrp import sparse
from gnnrp.kernels.ntk import _passes
from gnnrp.kernels.ntk._jacobians import REDUCTIONS
from gnnrp.kernels.ntk._passes import ActivationFn
from gnnrp.runtime import arrays, checks, memory
from gnnrp.types import Layer, LinearMap

DEEPEST = 3  # layers of a GCN

_Pair: TypeAlias = tuple[Any, Any]
"""Classes k and l of a block of the full kernel; None, None: all are summed."""

_Nodes: TypeAlias = Array | None
"""Numbers of nodes; None: all of them."""

_STRIP = 64  # rows
_HIGHEST = jax.lax.Precision.HIGHEST


def gram(x: Any, matrix: LinearMap | None = None) -> Float[Array, "n n"]:
    """Return (A X)(A X)^T, for the kernels of many weights on one graph.

    Args:
        x: dense, or sparse from ``sparse.prepare``.
        matrix: A; the identity if left out.

    Raises:
        TypeError: inputs that are not real numbers, what is no linear map.
    """
    u = _passes.sent(_passes.dense(x), matrix)
    return jnp.matmul(u, u.T, precision=_HIGHEST)


def mlp(
    layers: Sequence[Layer],
    x: Any,
    propagate: LinearMap | None = None,
    *,
    reduce: str = "trace",
    gram: Float[Array, "n n"] | None = None,
    activation_fn: ActivationFn = jax.nn.relu,
    block_size: int = 4096,
) -> Float[Array, "n ..."]:
    """Return P [Σ_l (w_l² U_l U_l^T + β_l²) o (B_l B_l^T)] P^T of P MLP(X).

    Args:
        layers: from ``gnn.layers``, of any number, of an MLP, Decoupled or APPNP.
        x: inputs, dense, or sparse from ``sparse.prepare``.
        propagate: V -> P V, such as ``similarity.Power`` of A^K MLP(X) or
            ``similarity.Restart`` of APPNP; the identity if left out.
        reduce: "full", "trace", "sum" or "pseudo".
        gram: X X^T, if it is at hand.
        activation_fn: between the layers, as in the network.
        block_size: columns of n numbers at a time.

    Raises:
        ValueError: an unknown reduction, no layer, inputs of another width.
        TypeError: what are no layers, no inputs, no map or no activation.
    """
    _check(layers, x, activation_fn, reduce)
    inputs, slopes = _passes.through(layers, x, None, activation_fn, gram)
    sides = _passes.backward(layers, slopes, reduce)

    def entry(pair: _Pair) -> Array:
        def columns(nodes: _Nodes) -> Array:
            shares = [
                _passes.forward(layer, u, nodes) * _between(b, nodes, pair)
                for layer, u, b in zip(layers, inputs, sides, strict=True)
            ]
            return sum(shares[1:], start=shares[0])

        return _two_sided(columns, x.shape[0], propagate, block_size)

    return _reduced(entry, layers, reduce)


def gcn(
    layers: Sequence[Layer],
    x: Any,
    matrix: LinearMap,
    *,
    reduce: str = "trace",
    gram: Float[Array, "n n"] | None = None,
    activation_fn: ActivationFn = jax.nn.relu,
    block_size: int = 4096,
) -> Float[Array, "n ..."]:
    """Return Θ of a GCN of one to three layers; of one layer and A^K, of SGC.

    Of two layers, with U = A X, V = A H and slopes B,

        Θ = A [(w_1² U U^T + β_1²) o (B B^T)] A^T + w_2² V V^T + β_2².

    Args:
        layers: from ``gnn.layers`` of a GCN, or an SGC with its A^K as ``matrix``;
            those of other networks are not used so.
        x: inputs, dense, or sparse from ``sparse.prepare``.
        matrix: A, perhaps not symmetric.
        reduce: "full", "trace", "sum" or "pseudo".
        gram: ``gram(x, matrix)``, if it is at hand.
        activation_fn: between the layers, as in the network.
        block_size: columns of n numbers at a time.

    Raises:
        ValueError: an unknown reduction, no layer, or more than three, inputs of
            another width.
        TypeError: what are no layers, no inputs, no map or no activation.
    """
    _check(layers, x, activation_fn, reduce)
    if len(layers) > DEEPEST:
        msg = (
            f"a GCN of {len(layers)} layers has no structured kernel that pays, at "
            f"most {DEEPEST} have; see empirical.ntk"
        )
        raise ValueError(msg)
    inputs, slopes = _passes.through(layers, x, matrix, activation_fn, gram)
    sides = _passes.backward(layers, slopes, reduce)

    def entry(pair: _Pair) -> Array:
        last = _passes.forward(layers[-1], inputs[-1], None)
        last *= _between(sides[-1], None, pair)
        if len(layers) == 1:
            return last
        deeper = None
        if len(layers) == DEEPEST:
            b = _passes.weightings(layers[2], reduce)
            for layer, slope in ((layers[2], slopes[1][:, None]), (layers[1], 1)):
                b = slope * jnp.matmul(b, layer.weights.T, precision=_HIGHEST)
            v = _of_class(b, pair[0]), _of_class(b, pair[1])
            first = _passes.forward(layers[0], inputs[0], None)
            deeper = _by_units(first, slopes[0], v, matrix)

        def columns(nodes: _Nodes) -> Array:
            share = _passes.forward(layers[-2], inputs[-2], nodes)
            share *= _between(sides[-2], nodes, pair)
            if deeper is None:
                return share
            return share + (deeper if nodes is None else deeper[nodes]).T

        return last + _two_sided(columns, x.shape[0], matrix, block_size)

    return _reduced(entry, layers, reduce)


def peak_bytes(
    num_nodes: int,
    num_features: int,
    depth: int,
    num_targets: int,
    num_grams: int,
    *,
    width: int = 0,
    num_classes: int = 0,
    itemsize: int,
) -> int:
    """Return the peak of the kernel of a GCN and of its alignments.

    Args:
        num_nodes: n.
        num_features: d, columns of the inputs.
        depth: L, 1 to 3.
        num_targets: number of kernels A^{2L} in memory.
        num_grams: number of Gram matrices of the inputs in memory.
        width: m, hidden units of a layer.
        num_classes: c.
        itemsize: bytes of a number.
    """
    working = {1: 4, 2: 5}.get(depth, 9)
    squares = (working + num_targets + num_grams) * num_nodes**2
    columns = 2 * num_features + 2 * (depth - 1) * width + 6 * num_classes
    return (squares + num_nodes * columns) * itemsize + memory.RUNTIME


def _check(
    layers: Sequence[Layer], x: Any, activation_fn: ActivationFn, reduce: str
) -> None:
    """Refuse what is no network, or no inputs of one.

    Raises:
        ValueError: an unknown reduction, no layer, inputs of another width.
        TypeError: what are no layers, no inputs or no activation.
    """
    checks.one_of("reduce", reduce, REDUCTIONS)
    checks.function("activation_fn", activation_fn, "such as jax.nn.relu")
    listed = isinstance(layers, list | tuple)
    if not listed or not all(isinstance(layer, Layer) for layer in layers):
        msg = f"layers must come from gnn.layers, got {type(layers).__name__}"
        raise TypeError(msg)
    if not layers:
        msg = "a network needs at least one layer"
        raise ValueError(msg)
    width = len(layers[0].weights)
    x = x if isinstance(x, sparse.Matrix) else arrays.real("x", x)
    if len(x.shape) != 2 or x.shape[1] != width:
        msg = f"x must have shape (n, {width}), as the first layer has, got {x.shape}"
        raise ValueError(msg)


def _between(sides: tuple[Array, Array], nodes: _Nodes, pair: _Pair) -> Array:
    """Return <B_i, B_j> at (j, i), summed over weightings or of a pair of them."""
    left, right = (_of_class(b, k) for b, k in zip(sides, pair, strict=True))
    if len(left) == 1:  # of the last layer, the same for all nodes
        return jnp.sum(left * right)
    left, right = (b.reshape(len(b), -1) for b in (left, right))
    left = left if nodes is None else left[nodes]
    return jnp.matmul(right, left.T, precision=_HIGHEST)


def _of_class(b: Array, k: Any) -> Array:
    return b if k is None else b[:, k][:, None]


def _by_units(
    forward: Array, slope: Array, v: tuple[Array, Array], matrix: LinearMap
) -> Array:
    """Return Σ_h <v_h, v_h> o A (forward o φ'_h φ'_h^T) A^T, over hidden units h.

    Args:
        forward: of the layer's inputs.
        slope: φ' (n, m) of its outputs.
        v: slopes of the outputs in those, without φ', (n, s, m) on each side.
        matrix: A.
    """

    def add(total: Array, unit: Any) -> tuple[Array, None]:
        d, left, right = unit
        masked = forward * d[:, None] * d[None, :]
        sent = matrix(_transposed(matrix(masked)))
        return total + sent * jnp.matmul(left, right.T, precision=_HIGHEST), None

    units = (slope.T, *(jnp.moveaxis(side, -1, 0) for side in v))
    return jax.lax.scan(add, jnp.zeros_like(forward), units)[0]


def _two_sided(
    columns: Callable[[_Nodes], Array], n: int, send: LinearMap | None, block_size: int
) -> Array:
    """Return P K P^T, K^T given by columns, all of them or some at a time."""
    count = -(-n // checks.count("block_size", block_size, 1))
    width = -(-n // count)

    def block(start: Array | None) -> Array:
        # The last block is filled up with the last row, which is cut off below.
        last = n - 1
        nodes = None if start is None else jnp.minimum(start + jnp.arange(width), last)
        return _transposed(_passes.sent(columns(nodes), send))

    if count == 1:
        return _passes.sent(block(None), send)
    rows = jax.lax.map(block, jnp.arange(count) * width).reshape(-1, n)
    return _passes.sent(rows[:n], send)


def _transposed(x: Array) -> Array:
    """Return x^T, in strips that fit into the cache: XLA's own is twice as slow."""
    n, width = len(x), min(_STRIP, len(x))

    def strip(number: Array, total: Array) -> Array:
        start = jnp.minimum(number * width, n - width)
        part = jax.lax.dynamic_slice_in_dim(x, start, width).T
        return jax.lax.dynamic_update_slice_in_dim(total, part, start, 1)

    empty = jnp.zeros(x.shape[::-1], x.dtype)
    return jax.lax.fori_loop(0, -(-n // width), strip, empty)


def _reduced(
    entry: Callable[[_Pair], Array], layers: Sequence[Layer], reduce: str
) -> Array:
    c = layers[-1].weights.shape[1]
    if reduce == "full":
        pairs = jnp.divmod(jnp.arange(c * c), c)
        blocks = jax.lax.map(entry, pairs)
        return jnp.einsum("klij->ikjl", blocks.reshape(c, c, *blocks.shape[1:]))
    total = entry((None, None))
    return total if reduce == "sum" else total / c
