"""Empirical tangent kernels of GCNs, SGC, MLPs and APPNP without any Jacobian.

A layer Z = U W + b has gradients U_a B_a^T, so its share of Θ is, over nodes a and b,

    Σ_ab <B_i[a], B_j[b]> (w² <U_a, U_b> + β²),

with B_i = d f_i / dZ. Without propagation B_i[a] vanishes but for a = i, and the share
is the entrywise product of two Gram matrices: forward, of the inputs U, and backward,
of the slopes B. With it, each hop puts A on both sides. Two hops below the output, the
slopes of hidden units share no Gram matrix, and a layer costs two products of an n x n
matrix per unit; three hops below, per pair of units, so GCNs have at most three layers.

Outputs are reduced as in ``empirical``. All functions are differentiable, also in the
entries of A.

Source: Eq. 5; App. C.3 and D.2.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gnnrp import sparse
from gnnrp.kernels.ntk.empirical import REDUCTIONS
from gnnrp.runtime import arrays, checks, memory
from gnnrp.types import Layer, LinearMap

DEEPEST = 3  # layers of a GCN

ActivationFn: TypeAlias = Callable[[jax.Array], jax.Array]
"""Elementwise, (n, m) -> (n, m)."""

_Pair: TypeAlias = tuple[Any, Any]
"""Classes k and l of a block of the full kernel; None, None: sum over all."""

_Nodes: TypeAlias = Array | None
"""Node ids; None: all nodes."""

_HIGHEST = jax.lax.Precision.HIGHEST


def gram(x: Any, matrix: LinearMap | None = None) -> Float[Array, "n n"]:
    """Return (A X)(A X)^T, for the kernels of many weights on one graph.

    X is dense, or sparse from ``sparse.prepare``; A is the identity by default.

    Raises:
        TypeError: inputs that are not real numbers, or not a linear map.
    """
    u = _propagate(_dense(x), matrix)
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
            ``similarity.Restart`` of APPNP; the identity by default.
        reduce: "full", "trace", "sum" or "pseudo".
        gram: X X^T, precomputed.
        activation_fn: between the layers, as in the network.
        block_size: columns of n numbers at a time.

    Raises:
        ValueError: an unknown reduction, no layer, or inputs of another width.
        TypeError: layers, inputs, map or activation of another type.
    """
    _check(layers, x, activation_fn, reduce)
    inputs, slopes = _forward(layers, x, None, activation_fn, gram)
    sides = _backward(layers, slopes, reduce)

    def entry(pair: _Pair) -> Array:
        def columns(nodes: _Nodes) -> Array:
            shares = [
                _input_gram(layer, u, nodes) * _slope_gram(b, nodes, pair)
                for layer, u, b in zip(layers, inputs, sides, strict=True)
            ]
            return sum(shares[1:], start=shares[0])

        return _propagate_both(columns, x.shape[0], propagate, block_size)

    return _reduce(entry, layers, reduce)


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
    """Return Θ of a GCN of one to three layers, or of SGC (one layer, A^K).

    For two layers, with U = A X, V = A H and slopes B,

        Θ = A [(w_1² U U^T + β_1²) o (B B^T)] A^T + w_2² V V^T + β_2².

    Arguments are those of ``mlp``, but for ``matrix``, A or A^K for SGC, perhaps not
    symmetric, and ``gram(x, matrix)``.

    Raises:
        ValueError: as ``mlp``, or more than three layers.
    """
    _check(layers, x, activation_fn, reduce)
    if len(layers) > DEEPEST:
        most = f"at most {DEEPEST} layers for its structured kernel"
        msg = f"a GCN must have {most}, got {len(layers)}; see empirical.ntk"
        raise ValueError(msg)
    inputs, slopes = _forward(layers, x, matrix, activation_fn, gram)
    sides = _backward(layers, slopes, reduce)

    def entry(pair: _Pair) -> Array:
        last = _input_gram(layers[-1], inputs[-1], None)
        last *= _slope_gram(sides[-1], None, pair)
        if len(layers) == 1:
            return last
        deeper = None
        if len(layers) == DEEPEST:
            b = _covectors(layers[2], reduce)
            for layer, slope in ((layers[2], slopes[1][:, None]), (layers[1], 1)):
                b = slope * jnp.matmul(b, layer.weights.T, precision=_HIGHEST)
            v = _select_class(b, pair[0]), _select_class(b, pair[1])
            first = _input_gram(layers[0], inputs[0], None)
            deeper = _sum_over_units(first, slopes[0], v, matrix)

        def columns(nodes: _Nodes) -> Array:
            share = _input_gram(layers[-2], inputs[-2], nodes)
            share *= _slope_gram(sides[-2], nodes, pair)
            if deeper is None:
                return share
            return share + (deeper if nodes is None else deeper[nodes]).T

        return last + _propagate_both(columns, x.shape[0], matrix, block_size)

    return _reduce(entry, layers, reduce)


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
    """Return the peak of a GCN's kernel, with all A^{2L} and Gram matrices."""
    working = {1: 4, 2: 5}.get(depth, 9)
    squares = (working + num_targets + num_grams) * num_nodes**2
    columns = 2 * num_features + 2 * (depth - 1) * width + 6 * num_classes
    return (squares + num_nodes * columns) * itemsize + memory.RUNTIME


def _check(layers: Any, x: Any, activation_fn: ActivationFn, reduce: str) -> None:
    """Validate a network and its inputs."""
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


def _dense(x: Any) -> Array:
    if isinstance(x, sparse.Matrix):
        return sparse.matmul(x, jnp.eye(x.shape[1], dtype=x.data.dtype))
    return arrays.real("x", x)


def _propagate(v: Array, matrix: LinearMap | None) -> Array:
    if matrix is None:
        return v
    checks.linear_map("the matrix", matrix)
    return matrix(v)


class _Gram(NamedTuple):
    """U U^T in place of U."""

    entries: Float[Array, "n n"]


def _forward(
    layers: Sequence[Layer], x: Any, matrix: Any, activation_fn: ActivationFn, gram: Any
) -> tuple[list[Any], list[Array]]:
    """Return the inputs U of each layer, and φ' of the outputs of each hidden layer."""
    if gram is None:
        inputs: list[Any] = [_propagate(_dense(x), matrix)]
    else:
        checks.shape("the Gram matrix", gram, (x.shape[0], x.shape[0]))
        inputs = [_Gram(gram)]
    slopes = []
    for number, layer in enumerate(layers[:-1]):
        if number > 0:
            z = jnp.matmul(inputs[-1], layer.weights, precision=_HIGHEST)
        elif isinstance(x, sparse.Matrix):
            z = _propagate(sparse.matmul(x, layer.weights), matrix)
        else:
            z = jnp.matmul(jnp.asarray(x), layer.weights, precision=_HIGHEST)
            z = _propagate(z, matrix)
        z = z if layer.bias is None else z + layer.bias[None, :]
        h, slope = jax.jvp(activation_fn, (z,), (jnp.ones_like(z),))
        inputs.append(_propagate(h, matrix))
        slopes.append(slope)
    return inputs, slopes


def _backward(
    layers: Sequence[Layer], slopes: list[Array], reduce: str
) -> list[tuple[Array, Array]]:
    """Return B of each layer, without propagation, as both sides of its Gram matrix.

    They are (n, s, m), of the last layer (1, s, c), for s covectors of the outputs.
    """
    b = _covectors(layers[-1], reduce)
    sides = [(b, b)]
    above = zip(layers[:0:-1], slopes[::-1], strict=True)
    for number, (layer, slope) in enumerate(above):
        pulled = jnp.matmul(b, layer.weights.T, precision=_HIGHEST)
        b = slope[:, None] * pulled
        both = b, b
        if reduce == "trace" and number == 0:
            # All classes share φ': the sum over them has the rank of one.
            left = slope * jnp.sum(pulled[0] ** 2, axis=0, keepdims=True)
            both = left[:, None], slope[:, None]
        sides.append(both)
    return sides[::-1]


def _covectors(last: Layer, reduce: str) -> Array:
    """Return the covectors of the outputs of a node, (1, s, c)."""
    c, dtype = last.weights.shape[1], last.weights.dtype
    if reduce in {"sum", "pseudo"}:
        return jnp.ones((1, 1, c), dtype)
    return jnp.eye(c, dtype=dtype)[None]


def _input_gram(layer: Layer, u: Any, nodes: _Nodes) -> Array:
    """Return columns of w² U U^T + β²."""
    if isinstance(u, _Gram):
        product = u.entries if nodes is None else u.entries[nodes].T
    else:
        some = u if nodes is None else u[nodes]
        product = jnp.matmul(u, some.T, precision=_HIGHEST)
    product *= jnp.asarray(layer.weight_scale, product.dtype) ** 2
    if layer.bias is None:
        return product
    return product + jnp.asarray(layer.bias_scale, product.dtype) ** 2


def _slope_gram(sides: tuple[Array, Array], nodes: _Nodes, pair: _Pair) -> Array:
    """Return <B_i, B_j> at (j, i), summed over covectors or of a pair of them."""
    left, right = (_select_class(b, k) for b, k in zip(sides, pair, strict=True))
    if len(left) == 1:  # of the last layer, the same for all nodes
        return jnp.sum(left * right)
    left, right = (b.reshape(len(b), -1) for b in (left, right))
    left = left if nodes is None else left[nodes]
    return jnp.matmul(right, left.T, precision=_HIGHEST)


def _select_class(b: Array, k: Any) -> Array:
    return b if k is None else b[:, k][:, None]


def _sum_over_units(
    gram: Array, slope: Array, v: tuple[Array, Array], matrix: LinearMap
) -> Array:
    """Return Σ_h <v_h, v_h> o A (G o φ'_h φ'_h^T) A^T, over hidden units h.

    G is the Gram matrix of the layer's inputs, φ' (n, m) the slope of its outputs, v
    (n, s, m) on each side the slopes of the network's outputs in those, without φ'.
    """

    def add(total: Array, unit: Any) -> tuple[Array, None]:
        d, left, right = unit
        masked = gram * d[:, None] * d[None, :]
        far = matrix(matrix(masked).T)
        return total + far * jnp.matmul(left, right.T, precision=_HIGHEST), None

    units = (slope.T, *(jnp.moveaxis(side, -1, 0) for side in v))
    return jax.lax.scan(add, jnp.zeros_like(gram), units)[0]


def _propagate_both(
    columns: Callable[[_Nodes], Array], n: int, send: LinearMap | None, block_size: int
) -> Array:
    """Return P K P^T from columns of K^T, all of them or some at a time."""
    count = -(-n // checks.count("block_size", block_size, 1))
    width = -(-n // count)

    def block(start: Array | None) -> Array:
        # The last block is padded with the last row, which is cut off below.
        last = n - 1
        nodes = None if start is None else jnp.minimum(start + jnp.arange(width), last)
        return _propagate(columns(nodes), send).T

    if count == 1:
        return _propagate(block(None), send)
    rows = jax.lax.map(block, jnp.arange(count) * width).reshape(-1, n)
    return _propagate(rows[:n], send)


def _reduce(entry: Callable[[_Pair], Array], layers: Any, reduce: str) -> Array:
    c = layers[-1].weights.shape[1]
    if reduce == "full":
        pairs = jnp.divmod(jnp.arange(c * c), c)
        blocks = jax.lax.map(entry, pairs)
        return jnp.einsum("klij->ikjl", blocks.reshape(c, c, *blocks.shape[1:]))
    total = entry((None, None))
    return total if reduce == "sum" else total / c
