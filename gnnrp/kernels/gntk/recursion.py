r"""The node-level GNTK: covariance and tangent kernel of infinitely wide GNNs.

Each layer acts on a pair of n x n kernels, the covariance of its outputs at
initialization (NNGP, K) and the tangent kernel of the parameters so far (NTK, N). Four
pure steps build every architecture of the paper:

    initialize   X                K = X X^T                  N = 0
    dense        Z W [+ b]        K <- K + β^2               N <- N + τ K
    transform    sqrt(c_σ) φ(Z)   K <- c_σ T(K)              N <- c_σ Td(K) o N
    propagate    P Z              K <- P K P^T               N <- P N P^T

Weights are N(0, 1) over the root of the width, so the first dense layer has no 1 /
sqrt(d); τ is 1 where a layer is trained. ``concatenate`` and ``add`` join branches.
With several outputs the kernels are K (x) I_c and N (x) I_c, which are never formed.

Source: Def. 4.1 and App. B.3, where Θ̄ and Σ̄ are N and K before ``propagate``. The
text there does not say that c_σ is 2, that the last layer has no activation and the
first no 1 / sqrt(d); its two-layer theorem takes c_σ = 1.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.core import Tracer
from jaxtyping import Array, Float

from gnnrp.kernels.features import pairwise, sparse_rows
from gnnrp.kernels.features.inputs import as_float, validate
from gnnrp.kernels.gntk import activations
from gnnrp.kernels.gntk import network as networks
from gnnrp.kernels.gntk._correlation import snap_parallel
from gnnrp.kernels.gntk.activations import Activation
from gnnrp.kernels.gntk.network import Network
from gnnrp.runtime import arrays, checks
from gnnrp.types import LinearMap, Scalar


class Kernels(NamedTuple):
    """Kernels of the outputs of a layer, or a rectangular block of them."""

    nngp: Float[Array, "n m"]  # K, covariance at initialization
    ntk: Float[Array, "n m"]  # N, tangent kernel of the layers so far


def initialize(gram: Float[Array, "n m"]) -> Kernels:
    """Return the kernels of the inputs, K = X X^T (``gntk.gram``) and N = 0.

    Raises:
        ValueError: not a matrix.
        TypeError: not real numbers.
    """
    gram = arrays.floating("gram", gram)
    if gram.ndim != 2:
        msg = f"gram must be a matrix X X^T, got shape {gram.shape}; see gntk.gram"
        raise ValueError(msg)
    return Kernels(gram, jnp.zeros_like(gram))


def dense(kernels: Kernels, *, bias_std: Scalar = 0.0, trained: bool = True) -> Kernels:
    """Apply a dense layer, Z W / sqrt(width) + β b: K <- K + β^2, N <- N + τ K.

    Args:
        kernels: of its inputs.
        bias_std: β.
        trained: τ, whether its weights and bias are trained.

    Raises:
        ValueError: β, unless traced, is negative, NaN or too large.
        TypeError: not ``Kernels``.
    """
    _check_kernels(kernels)
    networks.check_bias(bias_std, kernels.nngp.dtype)
    nngp = kernels.nngp + jnp.asarray(bias_std, kernels.nngp.dtype) ** 2
    return Kernels(nngp, kernels.ntk + nngp if trained else kernels.ntk)


def transform(
    kernels: Kernels,
    activation: Activation = activations.RELU,
    *,
    scale: Scalar | None = None,
    variances: tuple[Float[Array, " n"], Float[Array, " m"]] | None = None,
) -> Kernels:
    """Apply sqrt(c_σ) φ elementwise: K <- c_σ T(K), N <- c_σ Td(K) o N.

    Nodes without variance (K_ii = 0) get N_ij = 0 with every other.

    Args:
        kernels: of its inputs.
        activation: φ.
        scale: c_σ; the usual one of the activation by default.
        variances: K_ii of the rows and of the columns, required for a block; the
            diagonal by default.

    Raises:
        ValueError: a block without variances, or with variances of other nodes; c_σ,
            unless traced, is negative or NaN.
        TypeError: not ``Kernels``, or not an ``Activation``.
    """
    _check_kernels(kernels)
    networks.check_activation(activation)
    nngp, ntk = kernels
    networks.check_scale(scale, nngp.dtype)
    if variances is None:
        if nngp.shape[0] != nngp.shape[1]:
            msg = f"a block of shape {nngp.shape} needs the variances of its nodes"
            raise ValueError(msg)
        variances = (jnp.diagonal(nngp),) * 2
    elif not isinstance(variances, list | tuple) or len(variances) != 2:
        msg = "variances must be a pair, those of the rows and those of the columns"
        raise ValueError(msg)
    rows, columns = variances
    checks.shape("the variances of the rows", rows, nngp.shape[:1])
    checks.shape("the variances of the columns", columns, nngp.shape[1:])
    factor = jnp.asarray(activation.scale if scale is None else scale, nngp.dtype)
    variance = rows[:, None], columns[None, :]
    sides = (snap_parallel(nngp, *variance), *variance)
    derivative = activation.derivative(*sides)
    return Kernels(factor * activation.covariance(*sides), factor * derivative * ntk)


def propagate(
    kernels: Kernels, propagation: LinearMap, columns: LinearMap | None = None
) -> Kernels:
    """Apply Z <- P Z: K <- P K P^T, N <- P N P^T; P need not be symmetric.

    Costs four products of P with n columns: n times its entries if it is sparse.

    Args:
        kernels: of its inputs.
        propagation: V -> P V, such as a matrix from ``sparse.prepare``, or a
            personalized PageRank.
        columns: P of the columns, required for a block; the same by default.

    Raises:
        TypeError: not ``Kernels``, or not a linear map.
    """
    _check_kernels(kernels)
    columns = propagation if columns is None else columns
    return Kernels(*(_conjugate(propagation, kernel, columns) for kernel in kernels))


def concatenate(branches: Sequence[Kernels]) -> Kernels:
    """Join the channels of equally wide branches (jumping knowledge): the mean.

    A dense layer after it divides by the root of the joint width.
    """
    return jax.tree.map(lambda kernel: kernel / len(branches), add(branches))


def add(branches: Sequence[Kernels]) -> Kernels:
    """Add the outputs of branches (residual connections).

    At least one of any two branches must end in a dense layer of its own; otherwise
    their outputs are correlated, and the kernels do not add.

    Raises:
        ValueError: no branch, or branches of different shapes.
        TypeError: a branch that is not ``Kernels``.
    """
    if len(branches) == 0:
        msg = "there must be at least one branch"
        raise ValueError(msg)
    for branch in branches:
        remedy = "gntk.dense and others make them"
        checks.instance("each branch", branch, Kernels, remedy)
        checks.shape("the kernel of each branch", branch.nngp, branches[0].nngp.shape)
    return jax.tree.map(lambda *parts: sum(parts[1:], start=parts[0]), *branches)


def gram(features: Any) -> Float[Array, "n n"]:
    """Return X X^T in full precision, of dense or scipy sparse features.

    Memory besides the result: dense blocks of columns of sparse features.

    Raises:
        ValueError: not a matrix, without a column, not finite, or with squares beyond
            the floating type; traced values are not checked.
        TypeError: not real numbers.
    """
    on_device = isinstance(features, jax.Array)
    if not on_device:
        features = as_float(validate(features))
    if scipy.sparse.issparse(features):
        product = sparse_rows.inner(features, features)
    else:
        x = arrays.floating("features", features)
        if x.ndim != 2:
            msg = f"features must have shape (n, d), got {x.shape}"
            raise ValueError(msg)
        if on_device and not isinstance(x, Tracer) and not jnp.isfinite(x).all():
            msg = "features must be finite, and hold NaN or infinity"
            raise ValueError(msg)
        product = pairwise.inner(x, x)
    if not isinstance(product, Tracer):
        check_squares(features, np.asarray(jnp.diagonal(product)))
    return product


def check_squares(features: Any, squares: np.ndarray) -> None:
    """Refuse squares |x_i|^2 that are infinite, or all zero although X is not."""
    if not np.isfinite(squares).all():
        row = int(np.argmin(np.isfinite(squares)))
        kind = squares.dtype
        msg = f"the square of features row {row} exceeds {kind}; scale them down"
        raise ValueError(msg)
    if len(squares) and not squares.any() and abs(features).max() > 0:
        msg = f"the squares of all features are zero in {squares.dtype}; scale them up"
        raise ValueError(msg)


def gcn(propagation: LinearMap, gram: Float[Array, "n n"], network: Network) -> Kernels:
    """Return the kernels of a GCN, Z <- P φ(Z) W [+ b], with a linear last layer.

    Args:
        propagation: V -> P V, at every layer.
        gram: X X^T of the inputs.
        network: depth, activation, scale, bias and trained layers.

    Raises:
        ValueError: a gram matrix that is not square, or numbers out of range.
        TypeError: not a linear map, not a matrix, or not a ``Network``.

    Source: Def. 4.1 (App. B.3), with a linear last layer.
    """
    gram = square_gram(gram)
    networks.check(network, gram.dtype)
    kernels = initialize(gram)
    for layer, trained in enumerate(network.trained):
        if layer > 0:
            kernels = transform(kernels, network.activation, scale=network.scale)
        if network.bias == "before" or (network.bias == "none" and layer > 0):
            # P (Z W) = (P Z) W, and in this order the last K, where it is unused, is
            # compiled away: a third of all products.
            kernels = dense(kernels, bias_std=network.bias_before, trained=trained)
            kernels = propagate(kernels, propagation)
        else:
            if layer > 0:
                kernels = propagate(kernels, propagation)
            else:  # N = 0
                kernels = initialize(_conjugate(propagation, gram, propagation))
            kernels = dense(kernels, bias_std=network.bias_after, trained=trained)
    return kernels


def decoupled(
    propagation: LinearMap,
    gram: Float[Array, "n n"],
    network: Network,
    *,
    num_hops: int,
) -> Kernels:
    """Return the kernels of P^l MLP(X): APPNP with a PageRank P, SGC with depth 1.

    Arguments and errors are those of ``gcn``; l is ``num_hops``, at least 0. A bias has
    no position in an MLP: "before" and "after" are equal.

    Source: Thm. 4.3 (App. B.5), without its restriction to one-hot inputs.
    """
    gram = square_gram(gram)
    networks.check(network, gram.dtype)
    num_hops = checks.count("num_hops", num_hops, 0)
    bias_std = 0.0 if network.bias == "none" else network.bias_std
    kernels = initialize(gram)
    for layer, trained in enumerate(network.trained):
        if layer > 0:
            kernels = transform(kernels, network.activation, scale=network.scale)
        kernels = dense(kernels, bias_std=bias_std, trained=trained)
    for _ in range(num_hops):
        kernels = propagate(kernels, propagation)
    return kernels


def square_gram(gram: Any) -> Float[Array, "n n"]:
    """Return a square Gram matrix as floats."""
    checks.square("gram", gram)
    return arrays.floating("gram", gram)


def _conjugate(propagation: LinearMap, kernel: Array, columns: LinearMap) -> Array:
    """Return P K P^T, with another P of the columns."""
    checks.linear_map("the propagation", propagation)
    checks.linear_map("columns", columns)
    return propagation(columns(kernel.T).T)


def _check_kernels(kernels: Any) -> None:
    checks.instance("kernels", kernels, Kernels, "gntk.initialize makes them")
