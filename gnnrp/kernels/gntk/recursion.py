r"""The node-level GNTK: covariance and tangent kernel of infinitely wide GNNs.

A network is a sequence of layers, and each has its effect on a pair of n x n kernels,
the covariance of its outputs at initialization (NNGP, K) and the tangent kernel of the
parameters so far (NTK, N). Four pure steps build every architecture of the paper:

    initialize   X                K = X X^T                  N = 0
    dense        Z W [+ b]        K <- K + β^2               N <- N + τ K
    transform    sqrt(c_σ) φ(Z)   K <- c_σ T(K)              N <- c_σ Td(K) o N
    propagate    P Z              K <- P K P^T               N <- P N P^T

Weights are N(0, 1) over the root of the width, so the first dense layer has no 1 /
sqrt(d); τ is 1 where a layer is trained. ``concatenate`` and ``add`` join branches.
With several outputs the kernels are K (x) I_c and N (x) I_c, which are never formed.

Source: Def. 4.1 and App. B.3, where Θ̄ and Σ̄ are N and K before ``propagate``. The text
there does not say that c_σ is 2, that the last layer has no activation and the first
no 1 / sqrt(d); its two-layer theorem takes c_σ = 1.
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
from gnnrp.kernels.features.inputs import as_float, checked
from gnnrp.kernels.gntk import activations
from gnnrp.kernels.gntk.activations import Activation
from gnnrp.runtime import arrays, checks
from gnnrp.types import LinearMap, Scalar

BIASES = ("none", "before", "after")  # where, of the aggregation


class Kernels(NamedTuple):
    """Kernels of the outputs of a layer; rectangular where they are a block of one."""

    nngp: Float[Array, "n m"]  # K, covariance at initialization
    ntk: Float[Array, "n m"]  # N, tangent kernel of the layers so far


def initialize(gram: Float[Array, "n m"]) -> Kernels:
    """Return the kernels of the inputs, K = X X^T and N = 0.

    Args:
        gram: X X^T, from ``gram``; the identity for one-hot inputs.

    Raises:
        ValueError: not a matrix.
        TypeError: not of real numbers.
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
        trained: whether its weights and bias are, τ.

    Raises:
        ValueError: β, where it is a number, is negative, NaN or too large.
        TypeError: no kernels.
    """
    checks.instance("kernels", kernels, Kernels, "gntk.initialize makes them")
    check_bias(bias_std, kernels.nngp.dtype)
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
        scale: c_σ; that of the activation if left out.
        variances: K_ii of the rows and of the columns, needed for any block; the
            diagonal if left out.

    Raises:
        ValueError: a block without variances, or of other nodes; c_σ, where it is a
            number, is negative or NaN.
        TypeError: no kernels, or no activation.
    """
    checks.instance("kernels", kernels, Kernels, "gntk.initialize makes them")
    checked_activation(activation, scale)
    nngp, ntk = kernels
    if variances is None and nngp.shape[0] != nngp.shape[1]:
        msg = f"a block of shape {nngp.shape} needs the variances of its nodes"
        raise ValueError(msg)
    factor = jnp.asarray(activation.scale if scale is None else scale, nngp.dtype)
    own = (jnp.diagonal(nngp),) * 2
    rows, columns = own if variances is None else _pair(variances)
    checks.shape("the variances of the rows", rows, nngp.shape[:1])
    checks.shape("the variances of the columns", columns, nngp.shape[1:])
    variance = rows[:, None], columns[None, :]
    sides = (activations.snap_parallel(nngp, *variance), *variance)
    return Kernels(
        factor * activation.covariance(*sides),
        factor * activation.derivative(*sides) * ntk,
    )


def propagate(
    kernels: Kernels, propagation: LinearMap, columns: LinearMap | None = None
) -> Kernels:
    """Apply Z <- P Z: K <- P K P^T, N <- P N P^T; P need not be symmetric.

    Costs four products of P with n columns: n times its entries if it is sparse.

    Args:
        kernels: of its inputs.
        propagation: V -> P V, such as a matrix from ``sparse.prepare``, or a
            personalized PageRank.
        columns: P of the columns, needed for any block; the same if left out.

    Raises:
        TypeError: no kernels, or what is no linear map.
    """
    checks.instance("kernels", kernels, Kernels, "gntk.initialize makes them")
    return Kernels(*(_both_sides(propagation, kernel, columns) for kernel in kernels))


def concatenate(branches: Sequence[Kernels]) -> Kernels:
    """Join the channels of equally wide branches (jumping knowledge): the mean.

    A dense layer after it divides by the root of the joint width.

    Raises:
        ValueError: no branch.
    """
    total = add(branches)
    return Kernels(*(kernel / len(branches) for kernel in total))


def add(branches: Sequence[Kernels]) -> Kernels:
    """Add the outputs of branches (residual connections).

    Of any two branches one at least must end in a dense layer that is its own, or
    outputs are correlated and kernels do not simply add.

    Raises:
        ValueError: no branch, or branches of other shapes.
        TypeError: a branch that is no ``Kernels``.
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

    Memory beside it: sparse features become dense in blocks of columns at most.

    Raises:
        ValueError: not a matrix, without a column, not finite, or with squares beyond
            the floating type; a trace does not check values.
        TypeError: not of real numbers.
    """
    given = isinstance(features, jax.Array)
    if not given:
        features = as_float(checked(features))
    if scipy.sparse.issparse(features):
        found = sparse_rows.inner(features, features)
    else:
        x = arrays.floating("features", features)
        if x.ndim != 2:
            msg = f"features must have shape (n, d), got {x.shape}"
            raise ValueError(msg)
        if given and not isinstance(x, Tracer) and not jnp.isfinite(x).all():
            msg = "features must be finite, and hold NaN or infinity"
            raise ValueError(msg)
        found = pairwise.inner(x, x)
    if not isinstance(found, Tracer):
        check_squares(features, np.asarray(jnp.diagonal(found)))
    return found


def check_squares(features: Any, squares: np.ndarray) -> None:
    """Refuse features whose squares leave the range of their type.

    Args:
        features: X, dense or sparse.
        squares: |x_i|^2.

    Raises:
        ValueError: a square is infinite, or all are zero, and X is not.
    """
    if not np.isfinite(squares).all():
        row = int(np.argmin(np.isfinite(squares)))
        kind = squares.dtype
        msg = f"the square of features row {row} exceeds {kind}; scale them down"
        raise ValueError(msg)
    if len(squares) and not squares.any() and abs(features).max() > 0:
        msg = f"the squares of all features are zero in {squares.dtype}; scale them up"
        raise ValueError(msg)


def gcn(
    propagation: LinearMap,
    gram: Float[Array, "n n"],
    *,
    depth: int,
    activation: Activation = activations.RELU,
    scale: Scalar | None = None,
    bias: str = "none",
    bias_std: Scalar = 1.0,
    trained: Sequence[bool] | None = None,
) -> Kernels:
    """Return the kernels of a GCN, Z <- P φ(Z) W [+ b], with a linear last layer.

    Args:
        propagation: V -> P V, at every layer.
        gram: X X^T of the inputs.
        depth: L, weight matrices, at least 1.
        activation: φ, between layers.
        scale: c_σ; that of the activation if left out.
        bias: "none"; "after" the aggregation, P Z W + β b, as in the authors' code; or
            "before" it, P (Z W + β b).
        bias_std: β; not used without a bias.
        trained: which layers are, from the first; all if left out.

    Raises:
        ValueError: a depth below 1, an unknown bias, not one flag a layer, or a gram
            matrix that is not square.
        TypeError: what is no linear map, activation or matrix.

    Source: Def. 4.1 (App. B.3), with a linear last layer.
    """
    checks.square("gram", gram)
    gram = arrays.floating("gram", gram)
    checked_activation(activation, scale)
    flags = checked_layers(depth, trained)
    checks.one_of("bias", bias, BIASES)
    std = 0.0 if bias == "none" else bias_std
    kernels = initialize(gram)
    for layer, flag in enumerate(flags):
        if layer > 0:
            kernels = transform(kernels, activation, scale=scale)
        if bias == "before" or (bias == "none" and layer > 0):
            # P (Z W) = (P Z) W, and in this order the last K, where it is not asked
            # for, is compiled away: a third of all products.
            kernels = dense(kernels, bias_std=std, trained=flag)
            kernels = propagate(kernels, propagation)
        else:
            kernels = (
                propagate(kernels, propagation)
                if layer > 0
                else initialize(_both_sides(propagation, gram))  # N is still zero
            )
            kernels = dense(kernels, bias_std=std, trained=flag)
    return kernels


def decoupled(
    propagation: LinearMap,
    gram: Float[Array, "n n"],
    *,
    depth: int,
    num_hops: int,
    activation: Activation = activations.RELU,
    scale: Scalar | None = None,
    bias_std: Scalar = 0.0,
    trained: Sequence[bool] | None = None,
) -> Kernels:
    """Return the kernels of P^l MLP(X): APPNP with a PageRank P, SGC with depth 1.

    Args:
        propagation: V -> P V.
        gram: X X^T of the inputs.
        depth: L, weight matrices of the MLP, at least 1.
        num_hops: l, how often P is applied to its outputs.
        activation: φ, between layers.
        scale: c_σ; that of the activation if left out.
        bias_std: β of every layer.
        trained: which layers are, from the first; all if left out.

    Raises:
        ValueError: a depth below 1, negative hops, not one flag a layer, or a gram
            matrix that is not square.
        TypeError: what is no linear map, activation or matrix.

    Source: Thm. 4.3 (App. B.5), without its restriction to one-hot inputs.
    """
    checks.square("gram", gram)
    gram = arrays.floating("gram", gram)
    checked_activation(activation, scale)
    flags = checked_layers(depth, trained)
    num_hops = checks.count("num_hops", num_hops, 0)
    kernels = initialize(gram)
    for layer, flag in enumerate(flags):
        if layer > 0:
            kernels = transform(kernels, activation, scale=scale)
        kernels = dense(kernels, bias_std=bias_std, trained=flag)
    for _ in range(num_hops):
        kernels = propagate(kernels, propagation)
    return kernels


def _both_sides(
    propagation: LinearMap, kernel: Array, columns: LinearMap | None = None
) -> Array:
    columns = propagation if columns is None else columns
    for name, send in (("the propagation", propagation), ("columns", columns)):
        checks.linear_map(name, send)
    return propagation(columns(kernel.T).T)


def _pair(variances: Any) -> tuple[Array, Array]:
    """Return the variances of the rows and of the columns.

    Raises:
        ValueError: not two arrays.
    """
    if not isinstance(variances, list | tuple) or len(variances) != 2:
        msg = "variances must be a pair, those of the rows and those of the columns"
        raise ValueError(msg)
    return variances[0], variances[1]


def checked_activation(activation: Any, scale: Scalar | None = None) -> None:
    """Refuse what is no activation, or no scale of one.

    Raises:
        ValueError: c_σ, where it is a number, is negative or NaN.
        TypeError: no activation.
    """
    remedy = "activations.by_name makes one of its name"
    checks.instance("activation", activation, Activation, remedy)
    if scale is not None and not isinstance(scale, Tracer):
        checks.at_least("scale", scale, 0)
        checks.fits("scale", scale, jnp.zeros(0).dtype)


def check_bias(bias_std: Scalar, dtype: Any) -> None:
    """Refuse a β that is negative, infinite, or with a square beyond the type.

    Raises:
        ValueError: β, where it is a number, is out of range.
    """
    if isinstance(bias_std, Tracer):
        return
    checks.at_least("bias_std", bias_std, 0)
    if np.isinf(bias_std):
        msg = "bias_std must be finite, got inf"
        raise ValueError(msg)
    checks.fits("bias_std", bias_std, dtype, power=2)


def checked_layers(depth: int, trained: Sequence[bool] | None) -> Sequence[bool]:
    """Return which layers are trained, all if left out.

    Raises:
        ValueError: a depth below 1, or not one flag a layer.
    """
    depth = checks.count("depth", depth, 1)
    flags = [True] * depth if trained is None else checks.several("trained", trained)
    if len(flags) != depth:
        msg = f"trained must have one flag for each of {depth} layers, got {len(flags)}"
        raise ValueError(msg)
    return flags
