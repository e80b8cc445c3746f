"""Similarities S as linear maps V -> S V; the matrix is never formed.

Each map is a pytree with one operation: arrays are leaves, powers are static, so that a
map is an argument of ``jit``. A plain function is accepted wherever a map is.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from gnnrp import sparse
from gnnrp.propagation import label
from gnnrp.runtime import checks
from gnnrp.types import LinearMap, Scalar


def _static() -> Any:
    return dataclasses.field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Power:
    """V -> A^K V, the similarity of basic RP; PSD if K is even or A is.

    Source: Eq. 6.
    """

    adjacency: LinearMap
    power: int = _static()

    def __post_init__(self) -> None:
        """Validate the power."""
        _set_count(self, "power")

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return A^K V."""
        return sparse.propagate(self.adjacency, lambda new, *_: new, v, self.power)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class LazyWalk:
    """V -> (α A + (1 - α) I)^K V: each hop stays in place with weight 1 - α.

    PSD for every K if α <= 1 / (1 - λ_min(A)), so always for α <= 1/2. (The paper says
    α >= 1/2, the wrong way round.) Not the restart of ``Restart``.

    Source: App. B.2, last paragraph; B of the generalized RP (App. E.1).
    """

    adjacency: LinearMap
    power: int = _static()
    alpha: Scalar = 1.0

    def __post_init__(self) -> None:
        """Validate the power."""
        _set_count(self, "power")

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return (α A + (1 - α) I)^K V."""
        label.check_alpha(self.alpha)

        def hop(new, old, _):
            alpha = jnp.asarray(self.alpha, old.dtype)
            return alpha * new + (1 - alpha) * old

        return sparse.propagate(self.adjacency, hop, v, self.power)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Restart:
    """V -> LP(V; k, α): label propagation that restarts from V at each of k hops.

    Source: Eq. 3 and 8, one choice of LP*.
    """

    adjacency: LinearMap
    num_iterations: int = _static()
    alpha: Scalar = 0.9

    def __post_init__(self) -> None:
        """Validate the number of iterations."""
        _set_count(self, "num_iterations")

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return LP(V; k, α)."""
        return label.propagate(
            self.adjacency, v, num_iterations=self.num_iterations, alpha=self.alpha
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Coupling:
    """V -> C V with C = (B B^T + B^T B) / 2 of a directed adjacency B; PSD.

    B B^T compares nodes by their senders, B^T B by their receivers. For a symmetric B,
    C = B²; its eigenvalues are at most the largest squared singular value of B.

    Source: co-citation and bibliographic coupling, added as in Satuluri and
    Parthasarathy 2011; not in the paper.
    """

    adjacency: LinearMap
    transposed: LinearMap

    is_symmetric: ClassVar[bool] = True

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return C V."""
        for name in ("adjacency", "transposed"):
            checks.linear_map(name, getattr(self, name))
        by_senders = self.adjacency(self.transposed(v))
        return (by_senders + self.transposed(self.adjacency(v))) / 2


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Sandwich:
    """V -> B (M (B V)): the generalized RP for a walk B and a feature kernel M.

    Symmetric if B and M are; PSD if M is too.

    Source: Eq. 10 and 112 (App. E.1), with the kernel normalized, which the paper
    leaves out (``kernels.features.build``).
    """

    outer: LinearMap
    inner: LinearMap

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return B M B V."""
        for name in ("outer", "inner"):
            checks.linear_map(name, getattr(self, name))
        return self.outer(self.inner(self.outer(v)))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Sum:
    """V -> Σ_i μ_i S_i V of any maps, such as A^2 and a kernel of hop features.

    Symmetric if all S_i are; PSD if they are and μ >= 0. The weights can come from
    ``kernels.combination``.
    """

    parts: tuple[LinearMap, ...]
    weights: Float[Any, " k"]

    def check_weights(self) -> None:
        """Check that μ is finite and not negative, unless it is traced.

        Raises:
            ValueError: it is not.
        """
        if isinstance(self.weights, Tracer):
            return
        weights = np.asarray(self.weights, np.float64)
        if not (np.isfinite(weights) & (weights >= 0)).all():
            msg = f"weights of a sum must be finite and at least 0, got {weights}"
            raise ValueError(msg)

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return Σ_i μ_i S_i V.

        Raises:
            ValueError: there is not one weight for each part, there are none, or a
                part returns another shape.
            TypeError: the parts are no tuple, or one of them is not a linear map.
        """
        checks.instance("the parts of a sum", self.parts, tuple, "of linear maps")
        shape = np.shape(self.weights)
        if shape != (len(self.parts),) or not self.parts:
            msg = (
                "similarity.Sum must have one weight for each part, got weights of "
                f"shape {shape} for {len(self.parts)} parts"
            )
            raise ValueError(msg)
        total = jnp.zeros_like(v)
        for number, part in enumerate(self.parts):
            checks.linear_map(f"parts[{number}]", part)
            image = part(v)
            if jnp.shape(image) != v.shape:
                msg = f"parts[{number}] must keep shape {v.shape}, got {image.shape}"
                raise ValueError(msg)
            total += jnp.asarray(self.weights[number], v.dtype) * image
        return total


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Centered:
    """V -> H M H^T V, H = I - 1 w^T, of a map M such as a feature kernel.

    Symmetric and PSD if M is. Predictions along it have mean zero over the nodes, so
    that it suits targets without their mean, such as residuals from the class prior.

    Args:
        inner: M.
        weights: w, the weights of the nodes in the mean, of sum 1; 1 / n by default.
    """

    inner: LinearMap
    weights: Float[Array, "n 1"] | None = None

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return H M H^T V."""
        checks.linear_map("inner", self.inner)
        if self.weights is None:
            image = self.inner(v - jnp.mean(v, axis=0))
            return image - jnp.mean(image, axis=0)
        image = self.inner(v - self.weights * jnp.sum(v, axis=0))
        return image - jnp.sum(self.weights * image, axis=0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Weighted:
    """V -> D S D V, D = diag(d), which weights the residuals of RP by d².

    RP on targets D Y from D F_0 has the iterates D F, where F takes the steps
    F <- F + η S[:, X] (d² R): with d = 1 outside of the training nodes, predictions
    there are F itself. Symmetric and PSD if S is.
    """

    inner: LinearMap
    scale: Float[Array, "n 1"]

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return D S D V."""
        checks.linear_map("inner", self.inner)
        return self.scale * self.inner(self.scale * v)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Dense:
    """V -> M V for a dense matrix, such as a kernel or an NTK.

    State ``is_symmetric=True`` of a matrix that is symmetric by construction, so that
    its entries are not compared.
    """

    matrix: Float[Array, "n n"]
    is_symmetric: bool | None = dataclasses.field(
        default=None, metadata={"static": True}
    )

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return M V, in full precision on every device."""
        checks.square("the matrix of similarity.Dense", self.matrix)
        checks.rows("V", v, len(self.matrix))
        return jnp.matmul(self.matrix, v, precision=jax.lax.Precision.HIGHEST)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Probability:
    """V -> D S D V, D = diag(p (1 - p)): the kernel of sigmoid outputs p.

    It moves with p. With ``losses.reweighted`` it gives the paper's cross-entropy
    update, dp/dt = η D S D [c(R), 0] = η D S [R, 0], which is exact for the flow only;
    discrete RP runs in logits (``losses.sigmoid``).

    Source: App. C.2, corrected.
    """

    similarity: LinearMap
    probabilities: Float[Array, "n k"]

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return D S D V."""
        slope = self.probabilities * (1 - self.probabilities)
        return slope * self.similarity(slope * v)


def walk(adjacency: LinearMap, power: int, alpha: float) -> Power | LazyWalk:
    """Return B = (α A + (1 - α) I)^K: ``Power`` where α is 1, else ``LazyWalk``."""
    label.check_alpha(alpha)
    return Power(adjacency, power) if alpha == 1 else LazyWalk(adjacency, power, alpha)


def _set_count(walk: Any, name: str) -> None:
    """Validate the number of hops. Leaves are not validated: JAX may replace them."""
    count = checks.count(name, getattr(walk, name), 0)
    object.__setattr__(walk, name, count)
