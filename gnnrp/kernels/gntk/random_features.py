r"""Random features of the GNTK: Θ ~ Ψ Ψ^T and K ~ Φ Φ^T, with n x m arrays only.

The steps are those of ``gntk.recursion``, on factors instead of kernels. Both kernels
are sums of B B^T over common blocks B (n, k), with weights a of K and b of Θ:

    initialize   X                one block X, a = 1, b = 0
    dense        Z W [+ b]        a block β 1, a = 1; then b <- b + τ a
    transform    sqrt(c_σ) φ(Z)   see below
    propagate    P Z              B <- P B

With H = Φ W, W Gaussian, and σ_i = |Φ_i|, the activation splits into φ(h) = μ + α h +
rest (``activations.Pointwise``). The products of different parts have mean zero, so

    T  = μ μ^T + (α α^T) o K + E[rest rest^T],   Td = α α^T + E[(φ' - α) (φ' - α)^T].

The first parts are exact: a column sqrt(c) μ, and all blocks scaled by sqrt(c) α. Only
the rest is sampled, by sqrt(c / m) (φ(H) - μ - α H) for K and, as the product with Θ,
sqrt(c / m) (φ'(H) - α) o (Ψ G) for N, with another Gaussian G. Features are small where
nodes are nearly orthogonal, which leaves a quarter of the error of plain features on
Cora.

The kernels of two layers are unbiased. Deeper ones take T and Td of an estimate of K,
and have a bias of order 1 / m. The number of columns grows by 2 m + 1 a layer.

Source: random features of arc-cosine kernels and products of features, Zandieh et al.
2021 (arXiv 2106.07880); the split is derived here.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from gnnrp.kernels.gntk import activations
from gnnrp.kernels.gntk import network as networks
from gnnrp.kernels.gntk.activations import Activation
from gnnrp.kernels.gntk.network import Network
from gnnrp.kernels.gntk.recursion import Kernels
from gnnrp.runtime import arrays, checks
from gnnrp.types import LinearMap, Scalar

CHUNK = 1024  # columns of a sampled block
_STATIC = {"static": True}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Columns B with their weights in K and Θ."""

    columns: Float[Array, "n k"]
    nngp: float = dataclasses.field(metadata=_STATIC)  # a
    ntk: float = dataclasses.field(metadata=_STATIC)  # b
    sampled: bool = dataclasses.field(default=False, metadata=_STATIC)


class Features(NamedTuple):
    """Blocks with K ~ Σ a B B^T and Θ ~ Σ b B B^T."""

    blocks: tuple[Block, ...]

    @property
    def num_columns(self) -> int:
        """The number of columns of all blocks."""
        return sum(block.columns.shape[1] for block in self.blocks)


def initialize(x: Float[Array, "n d"]) -> Features:
    """Return the features of the inputs, X itself.

    Raises:
        ValueError: not a matrix.
        TypeError: not real numbers.
    """
    x = arrays.floating("features", x)
    if x.ndim != 2:
        msg = f"features must have shape (n, d), got {x.shape}"
        raise ValueError(msg)
    return Features((Block(x, 1.0, 0.0),))


def dense(
    features: Features, *, bias_std: Scalar = 0.0, trained: bool = True
) -> Features:
    """Apply a dense layer: K <- K + β^2, N <- N + τ K, as ``gntk.dense``."""
    first = features.blocks[0].columns
    networks.check_bias(bias_std, first.dtype)
    blocks = list(features.blocks)
    if not (isinstance(bias_std, int | float) and bias_std == 0):
        ones = jnp.ones((first.shape[0], 1), first.dtype)
        blocks.append(Block(jnp.asarray(bias_std, first.dtype) * ones, 1.0, 0.0))
    if trained:
        blocks = [
            dataclasses.replace(block, ntk=block.ntk + block.nngp) for block in blocks
        ]
    return Features(tuple(blocks))


def transform(
    features: Features,
    key: Key[Array, ""],
    activation: Activation = activations.RELU,
    *,
    num_features: int,
    scale: Scalar | None = None,
) -> Features:
    """Apply sqrt(c_σ) φ elementwise: K <- c_σ T(K), N <- c_σ Td(K) o N.

    Args:
        features: of its inputs.
        key: of the Gaussian projections.
        activation: φ, with its pointwise parts, as ``activations.by_name`` has it.
        num_features: m, samples of each of the two products, at least 2.
        scale: c_σ; the usual one of the activation by default.

    Raises:
        ValueError: m below 2, c_σ out of range, or an activation without its pointwise
            parts.
        TypeError: not an ``Activation``.
    """
    networks.check_activation(activation)
    num_features = checks.count("num_features", num_features, 2)
    parts = activation.pointwise
    if parts is None:
        msg = "random features need an activation with pointwise parts, such as RELU"
        raise ValueError(msg)
    dtype = features.blocks[0].columns.dtype
    networks.check_scale(scale, dtype)
    root = jnp.sqrt(jnp.asarray(activation.scale if scale is None else scale, dtype))
    squares = sum(
        block.nngp * jnp.sum(block.columns**2, axis=1, keepdims=True)
        for block in features.blocks
    )
    sigma = jnp.sqrt(jnp.asarray(squares, dtype))
    mean, slope = parts.mean(sigma), parts.slope(sigma)
    blocks = [
        dataclasses.replace(block, columns=root * slope * block.columns)
        for block in features.blocks
    ]
    if parts.is_linear:
        return Features(tuple(blocks))
    blocks.append(Block(root * mean, 1.0, 0.0))
    spread = root / jnp.sqrt(jnp.asarray(num_features, dtype))
    num_chunks = -(-num_features // CHUNK)
    for number in range(num_chunks):  # of equal width, up to one
        width = (num_features + number) // num_chunks
        first, second = jax.random.split(jax.random.fold_in(key, number))
        h = _project(features, first, width, "nngp")
        rest = parts.function(h) - mean - slope * h
        blocks.append(Block(spread * rest, 1.0, 0.0, sampled=True))
        product = (parts.derivative(h) - slope) * _project(
            features, second, width, "ntk"
        )
        blocks.append(Block(spread * product, 0.0, 1.0, sampled=True))
    return Features(tuple(blocks))


def propagate(features: Features, propagation: LinearMap) -> Features:
    """Apply Z <- P Z; the cost is that of P times all columns.

    Raises:
        TypeError: not a linear map.
    """
    checks.linear_map("the propagation", propagation)
    return Features(
        tuple(
            dataclasses.replace(block, columns=propagation(block.columns))
            for block in features.blocks
        )
    )


def layer(
    features: Features,
    propagation: LinearMap,
    network: Network,
    key: Key[Array, ""],
    *,
    number: int,
    num_features: int,
) -> Features:
    """Apply a layer of ``gcn``.

    Args:
        features: of its inputs.
        propagation: V -> P V.
        network: activation, scale, bias and trained layers.
        key: of the projections of this layer.
        number: of the layer, from 0; the first has no activation.
        num_features: m.
    """
    if number > 0:
        features = transform(
            features,
            key,
            network.activation,
            num_features=num_features,
            scale=network.scale,
        )
    trained = network.trained[number]
    if network.bias == "before":
        features = dense(features, bias_std=network.bias_std, trained=trained)
        return propagate(features, propagation)
    features = propagate(features, propagation)
    return dense(features, bias_std=network.bias_after, trained=trained)


def gcn(
    propagation: LinearMap,
    x: Float[Array, "n d"],
    network: Network,
    key: Key[Array, ""],
    *,
    num_features: int,
) -> Features:
    """Return random features of ``gntk.gcn``.

    Args:
        propagation: V -> P V, at every layer.
        x: X.
        network: depth, activation, scale, bias and trained layers.
        key: of the projections.
        num_features: m, samples of each kernel and layer.

    Raises:
        ValueError: numbers out of range, or an activation without pointwise parts.
        TypeError: not a linear map, not a matrix, or not a ``Network``.

    Source: Def. 4.1 (App. B.3), with a linear last layer.
    """
    features = initialize(x)
    networks.check(network, features.blocks[0].columns.dtype)
    for number in range(network.depth):
        features = layer(
            features,
            propagation,
            network,
            jax.random.fold_in(key, number),
            number=number,
            num_features=num_features,
        )
    return features


def decoupled(
    propagation: LinearMap,
    x: Float[Array, "n d"],
    network: Network,
    key: Key[Array, ""],
    *,
    num_hops: int,
    num_features: int,
) -> Features:
    """Return random features of ``gntk.decoupled``, P^l MLP(X).

    Arguments and errors are those of ``gcn``; l is ``num_hops``, at least 0.

    Source: Thm. 4.3 (App. B.5), without its restriction to one-hot inputs.
    """
    features = initialize(x)
    networks.check(network, features.blocks[0].columns.dtype)
    num_hops = checks.count("num_hops", num_hops, 0)
    bias_std = 0.0 if network.bias == "none" else network.bias_std
    for number, trained in enumerate(network.trained):
        if number > 0:
            features = transform(
                features,
                jax.random.fold_in(key, number),
                network.activation,
                num_features=num_features,
                scale=network.scale,
            )
        features = dense(features, bias_std=bias_std, trained=trained)
    for _ in range(num_hops):
        features = propagate(features, propagation)
    return features


def kernels(
    features: Features,
    rows: Int[Array, " m"] | None = None,
    columns: Int[Array, " k"] | None = None,
) -> Kernels:
    """Return the estimates of K[I, J] and Θ[I, J]; all nodes by default."""
    estimates = []
    for name in Kernels._fields:
        total: Any = 0.0
        for block, one, two in _sides(features, rows, columns):
            total = total + getattr(block, name) * _inner(one, two)
        estimates.append(total)
    return Kernels(*estimates)


def standard_errors(
    features: Features,
    rows: Int[Array, " m"] | None = None,
    columns: Int[Array, " k"] | None = None,
) -> Kernels:
    """Return estimated standard errors of the entries of ``kernels``.

    A sampled block is a sum over independent columns, whose variance follows from their
    spread. That is all of the error of two layers, but for the small correlation of the
    samples of K and Θ. In deeper networks, the effect of estimated kernels on later
    samples is left out: the errors are too small, by up to 40 percent in our trials.
    """
    estimates = []
    for name in Kernels._fields:
        total: Any = 0.0
        for block, one, two in _sides(features, rows, columns):
            if not block.sampled:
                continue
            count = one.shape[1]
            spread = _inner(one**2, two**2) - _inner(one, two) ** 2 / count
            variance = count / max(1, count - 1) * jnp.maximum(spread, 0)
            total = total + getattr(block, name) ** 2 * variance
        estimates.append(jnp.sqrt(total))
    return Kernels(*estimates)


def _sides(
    features: Features, rows: Any, columns: Any
) -> Iterator[tuple[Block, Array, Array]]:
    """Yield each block with its rows I and J."""
    for block in features.blocks:
        one = block.columns if rows is None else block.columns[rows]
        two = block.columns if columns is None else block.columns[columns]
        yield block, one, two


def _project(features: Features, key: Any, width: int, name: str) -> Array:
    """Return Φ W ("nngp") or Ψ G ("ntk"), for a Gaussian matrix of some columns."""
    first = features.blocks[0].columns
    total = jnp.zeros((first.shape[0], width), first.dtype)
    for number, block in enumerate(features.blocks):
        weight = getattr(block, name)
        if not weight:
            continue
        shape = block.columns.shape[1], width
        normal = jax.random.normal(jax.random.fold_in(key, number), shape, first.dtype)
        total = total + weight**0.5 * _inner(block.columns, normal.T)
    return total


def _inner(one: Array, two: Array) -> Array:
    return jnp.matmul(one, two.T, precision=jax.lax.Precision.HIGHEST)
