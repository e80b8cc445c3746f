"""Closed forms of the GNTK from the paper's theorems, equal to ``gntk``.

With one-hot inputs, the kernel of a deep decoupled GNN is that of RP, A^{2l}, plus a
matrix of rank one.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from gnnrp import sparse
from gnnrp.kernels.gntk import activations, recursion
from gnnrp.kernels.gntk import network as networks
from gnnrp.kernels.gntk._correlation import snap_parallel
from gnnrp.runtime import arrays, checks
from gnnrp.types import LinearMap, Scalar

_ROUND_OFF = 1e-9  # such that mirror images may differ by 1e-6 of their rows


def spectral_gram(adjacency: Float[Any, "n n"]) -> Float[np.ndarray, "n n"]:
    """Return A_+, the X X^T of spectral inputs: A with its eigenvalues clipped at zero.

    It is the X X^T nearest to A. A itself only if A is PSD, which most normalized
    adjacencies are not; the paper's A^3 and A^{2l+1} presuppose it.

    Args:
        adjacency: A, symmetric, dense; factorized in float64 on the host.

    Raises:
        ValueError: not a symmetric matrix.
        TypeError: not real numbers, or sparse.

    Source: Thm. 4.2 and Cor. 4.4, their second initialization.
    """
    A = checks.reals("the adjacency", adjacency).astype(np.float64)
    checks.square("the adjacency", A)
    if arrays.asymmetric_pair(A, _ROUND_OFF) is not None:
        msg = "the adjacency must be symmetric to have a spectral embedding"
        raise ValueError(msg)
    values, vectors = scipy.linalg.eigh((A + A.T) / 2)
    positive = values > 0
    return (vectors[:, positive] * values[positive]) @ vectors[:, positive].T


def two_layer(
    propagation: LinearMap, gram: Float[Array, "n n"], *, scale: Scalar = 1.0
) -> Float[Array, "n n"]:
    """Return Θ = P ((P G P^T) o c_σ Σ̇) P^T of a two-layer GCN, W_1 alone trained.

    Σ̇_ij = (π - arccos ρ_ij) / (2 π), ρ the correlations of C = P G P^T. One-hot inputs,
    G = I, have C = A^2; spectral ones (``spectral_gram``) C = A A_+ A, which is A^3
    only for a PSD A.

    Args:
        propagation: V -> P V.
        gram: G = X X^T.
        scale: c_σ; 1 in the theorem, 2 in the general recursion.

    Raises:
        ValueError: a gram matrix that is not square; c_σ, unless traced, is negative or
            NaN.
        TypeError: not a linear map, or not a matrix.

    Source: Thm. 4.2 (App. B.4).
    """
    checks.linear_map("the propagation", propagation)
    gram = recursion.square_gram(gram)
    networks.check_scale(scale, gram.dtype)
    C = linear(propagation, gram, num_hops=1)
    variance = jnp.diagonal(C)[:, None], jnp.diagonal(C)[None, :]
    aligned = snap_parallel(C, *variance)
    share = activations.RELU.derivative(aligned, *variance)
    return linear(propagation, C * jnp.asarray(scale, C.dtype) * share, num_hops=1)


class Constants(NamedTuple):
    """Constants of a decoupled GNN with one-hot inputs, functions of its depth."""

    diagonal: float  # c', the factor of A^{2l}
    shared: float  # c, of the part that all nodes share


def constants(depth: int, *, scale: float = 2.0) -> Constants:
    """Return c' and c of Θ = c' A^l (I + c 11^T) A^l for an MLP of L layers.

    With ρ_1 = o_1 = 0, ρ_{j+1} = [sqrt(1 - ρ_j^2) + ρ_j (π - arccos ρ_j)] / π and
    o_{j+1} = o_j (π - arccos ρ_j) / π + ρ_{j+1}: c' = L - o_L and c = o_L / c'. c is 0
    for L = 1, 0.189 for L = 2, largest at L = 12, and tends to 1/3. c_σ changes c'
    alone, by (c_σ / 2)^{L-1}.

    Args:
        depth: L, at least 1.
        scale: c_σ.

    Raises:
        ValueError: a depth below 1 or a scale that is not positive.

    Source: Thm. 4.3 (App. B.5), where c' is dropped: it is absorbed in the step size.
    """
    depth = checks.count("depth", depth, 1)
    checks.positive("scale", scale)
    # In δ = 1 - ρ, which tends to zero and of which arccos would lose the digits.
    delta, off = 1.0, 0.0
    for _ in range(depth - 1):
        angle = 2 * math.asin(math.sqrt(delta / 2))
        sine = math.sqrt(delta * (2 - delta))
        delta = (angle - sine + delta * (math.pi - angle)) / math.pi
        off = off * (1 - angle / math.pi) + 1 - delta
    diagonal = depth - off
    return Constants(diagonal * (scale / 2) ** (depth - 1), off / diagonal)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Decoupled:
    """V -> c' (A^{2l} V + c u u^T V), u = A^l 1: the GNTK of a deep decoupled GNN.

    A similarity for RP that costs what A^{2l} costs.
    """

    adjacency: LinearMap
    ones: Float[Array, " n"]  # u
    diagonal: Scalar  # c'
    shared: Scalar  # c
    num_hops: int = dataclasses.field(metadata={"static": True})  # l

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return Θ V."""
        checks.rows("V", v, len(self.ones))
        far = _propagate(self.adjacency, v, 2 * self.num_hops)
        ones = self.ones.astype(far.dtype)
        c, c_prime = (jnp.asarray(x, far.dtype) for x in (self.shared, self.diagonal))
        overlap = jnp.matmul(ones, v, precision=jax.lax.Precision.HIGHEST)
        return c_prime * (far + c * ones[:, None] * overlap[None, :])


def decoupled(
    adjacency: LinearMap, num_nodes: int, *, num_hops: int, depth: int
) -> Decoupled:
    """Return the GNTK of A^l MLP(I), one-hot inputs, as a map for RP.

    Args:
        adjacency: A, symmetric, such as a matrix from ``sparse.prepare``.
        num_nodes: n.
        num_hops: l, not negative.
        depth: L, layers of the MLP with ReLU between them and c_σ = 2.

    Raises:
        ValueError: negative hops, or a depth below 1.
        TypeError: not a linear map.

    Source: Thm. 4.3 (App. B.5), with its c'.
    """
    num_nodes = checks.count("num_nodes", num_nodes, 0)
    num_hops = checks.count("num_hops", num_hops, 0)
    c_prime, c = constants(depth)
    ones = _propagate(adjacency, jnp.ones((num_nodes, 1)), num_hops)
    return Decoupled(adjacency, ones[:, 0], c_prime, c, num_hops)


def linear(
    propagation: LinearMap, gram: Float[Array, "n n"], *, num_hops: int
) -> Float[Array, "n n"]:
    """Return Θ = P^l X X^T P^lT of a linear GNN, f = P^l X W.

    One-hot inputs give A^{2l}: gradient descent from W = 0 is RP with K = 2l, step by
    step. Spectral inputs give A^l A_+ A^l, K = 2l + 1 only if A is PSD.

    Args:
        propagation: V -> P V.
        gram: X X^T.
        num_hops: l, not negative.

    Raises:
        ValueError: negative hops, or a gram matrix that is not square.
        TypeError: not a linear map, or not a matrix.

    Source: Cor. 4.4.
    """
    gram = recursion.square_gram(gram)
    num_hops = checks.count("num_hops", num_hops, 0)
    right = _propagate(propagation, gram.T, num_hops).T
    return _propagate(propagation, right, num_hops)


def _propagate(propagation: LinearMap, v: Array, num_hops: int) -> Array:
    return sparse.propagate(propagation, lambda new, *_: new, v, num_hops)
