"""What residuals flow along: similarities S as linear maps V -> S V, never formed.

Each map is a pytree with one operation: arrays are leaves, powers are static, so that a
map is an argument of ``jit``. Wherever a map is taken, a plain function is too.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from gnnrp import _checks, spmm
from gnnrp.propagation import label
from gnnrp.types import LinearMap, Scalar

_MOST_SUPPORT = 0.9  # beyond which a second matrix does not pay
_LEAST_ENTRIES = 2**20  # below which a second compilation does not


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
    first: spmm.Matrix | None = None  # see ``on_support``

    def __post_init__(self) -> None:
        """Refuse a power that is no number of hops.

        Raises:
            ValueError: it is not.
        """
        _keep_count(self, "power")

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return A^K V."""
        return spmm.iterate(
            self.adjacency, lambda new, *_: new, v, self.power, first=self.first
        )


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
    first: spmm.Matrix | None = None  # see ``on_support``

    def __post_init__(self) -> None:
        """Refuse a power that is no number of hops.

        Raises:
            ValueError: it is not.
        """
        _keep_count(self, "power")

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return (α A + (1 - α) I)^K V.

        Raises:
            ValueError: α out of [0, 1], which is not seen in a trace.
        """
        _check_alpha(self.alpha)

        def hop(new, old, _):
            alpha = jnp.asarray(self.alpha, old.dtype)
            return alpha * new + (1 - alpha) * old

        return spmm.iterate(self.adjacency, hop, v, self.power, first=self.first)


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
        """Refuse a number of iterations that is none.

        Raises:
            ValueError: it is not.
        """
        _keep_count(self, "num_iterations")

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return LP(V; k, α)."""
        return label.propagate(
            self.adjacency, v, num_iterations=self.num_iterations, alpha=self.alpha
        )


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
    right: LinearMap | None = None  # B where V comes in, see ``on_support``

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return B M B V."""
        for name in ("outer", "inner"):
            _checks.linear_map(name, getattr(self, name))
        right = self.outer if self.right is None else self.right
        return self.outer(self.inner(right(v)))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Dense:
    """V -> M V for a matrix that is held: a kernel, an NTK."""

    matrix: Float[Array, "n n"]

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return M V, in full precision on every device.

        Raises:
            ValueError: V has another number of rows than M has columns.
        """
        _checks.square("the matrix of similarity.Dense", self.matrix)
        _checks.rows("V", v, len(self.matrix))
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
    """Return B = (α A + (1 - α) I)^K: ``Power`` where α is 1, else ``LazyWalk``.

    Raises:
        ValueError: out of range.
    """
    _check_alpha(alpha)
    if alpha == 1:
        return Power(adjacency, power)
    return LazyWalk(adjacency, power, alpha)


def _keep_count(walk: Any, name: str) -> None:
    """Make the number of hops, which is static, an int.

    Leaves are not looked at: pytrees are rebuilt of anything.

    Raises:
        ValueError: it is no whole number, or negative.
    """
    count = _checks.count(name, getattr(walk, name), 0)
    object.__setattr__(walk, name, count)  # the way of frozen dataclasses


def _is_walk(part: Any) -> bool:
    return isinstance(part, LazyWalk | Restart)


def _check_alpha(alpha: Any) -> None:
    if not isinstance(alpha, Tracer):
        _checks.inside("alpha", alpha, 0, 1)


def on_support(similarity: LinearMap, support: Bool[np.ndarray, " n"]) -> LinearMap:
    """Return a map that equals S on V that vanish outside some nodes, and does less.

    Its first hop skips the other columns of the matrix. A map that does not begin with
    a hop, of which they are less than a tenth, or whose matrix has fewer than 2^20
    entries, where compiling once more would cost more, stays as it is.

    Args:
        similarity: the map; what it was specialized to before is forgotten.
        support: where V may differ from zero.

    Raises:
        TypeError: a support that is not boolean.
        ValueError: not a value for each column of the matrix.
    """
    similarity = everywhere(similarity)
    matrix = _hopped(similarity)
    is_known = isinstance(matrix, spmm.Matrix)  # another map does not tell its n
    num_nodes = matrix.shape[1] if is_known else np.size(support)
    support = _checks.mask("the support", support, num_nodes)
    if support.sum() > _MOST_SUPPORT * support.size:
        return similarity
    if not is_known or matrix.data.size < _LEAST_ENTRIES:
        return similarity
    if isinstance(similarity, Sandwich):
        right = on_support(similarity.outer, support)
        return dataclasses.replace(similarity, right=right)
    if isinstance(similarity, Power | LazyWalk):
        if similarity.power == 0:
            return similarity
        first = spmm.on_support(matrix, support)
        return dataclasses.replace(similarity, first=first)
    return spmm.on_support(matrix, support)


def _hopped(similarity: LinearMap) -> LinearMap:
    """Return what a walk takes its hops along; of no walk, the map itself."""
    if isinstance(similarity, Sandwich):
        return _hopped(similarity.outer)
    if isinstance(similarity, Power | LazyWalk):
        return similarity.adjacency
    return similarity


def everywhere(similarity: LinearMap) -> LinearMap:
    """Return the map of all V that ``on_support`` was given."""
    if isinstance(similarity, Sandwich):
        outer = everywhere(similarity.outer)
        return dataclasses.replace(similarity, outer=outer, right=None)
    if isinstance(similarity, Power | LazyWalk):
        return dataclasses.replace(similarity, first=None)
    return similarity


def as_pytree(similarity: LinearMap) -> LinearMap:
    """Return the map as an argument of ``jit``: plain functions in it become static.

    Raises:
        ValueError: a walk with α out of [0, 1].
        TypeError: not callable.
    """
    if not callable(similarity) or isinstance(similarity, type):
        what = getattr(similarity, "__name__", type(similarity).__name__)
        msg = (
            f"a similarity must be a map V -> S V, got {what}; "
            "wrap a dense matrix in similarity.Dense, a sparse one in spmm.prepare"
        )
        raise TypeError(msg)
    for part in jax.tree.leaves(similarity, is_leaf=_is_walk):
        if _is_walk(part):
            _check_alpha(part.alpha)
    if not any(callable(leaf) for leaf in jax.tree.leaves(similarity)):
        return similarity
    return jax.tree.map(
        lambda leaf: jax.tree_util.Partial(leaf) if callable(leaf) else leaf, similarity
    )


@jax.jit
def product(similarity: LinearMap, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Return S V, compiled; S from ``as_pytree``."""
    return similarity(v)


def check_map(similarity: LinearMap, like: Any) -> None:
    """Refuse a map that does not send (n, c) to real numbers (n, c), without a product.

    Args:
        similarity: from ``as_pytree``.
        like: an array of the shape and type of V.

    Raises:
        ValueError: it does not.
        TypeError: it is not made of functions of JAX.
    """
    v = jax.ShapeDtypeStruct(like.shape, like.dtype)
    try:
        sent: Any = jax.eval_shape(product, similarity, v)  # which keeps its traces
    except jax.errors.TracerArrayConversionError as error:
        msg = (
            "a similarity must be made of functions of jax.numpy, and this one calls "
            "numpy or the like; jax.pure_callback wraps those"
        )
        raise TypeError(msg) from error
    found = getattr(sent, "shape", None)
    if found != v.shape or not jnp.issubdtype(sent.dtype, jnp.floating):
        got = type(sent).__name__ if found is None else f"{sent.dtype} {found}"
        msg = f"a similarity must send floats {v.shape} to floats {v.shape}, got {got}"
        raise ValueError(msg)


def columns(
    similarity: LinearMap,
    index: Int[np.ndarray, " l"],
    num_nodes: int,
    *,
    dtype: jnp.dtype | None = None,
    max_bytes: int = 2**29,
) -> Float[np.ndarray, "n l"]:
    """Return S[:, index] on the host, by sending unit vectors through the map.

    Args:
        similarity: the map.
        index: the columns.
        num_nodes: n.
        dtype: of the unit vectors; JAX's default float if left out.
        max_bytes: how much one block of unit vectors may take.

    Raises:
        ValueError: a column that is not among the n.
    """
    num_nodes = _checks.count("num_nodes", num_nodes, 0)
    index = _checks.node_ids("index", index, num_nodes).astype(np.int32)
    dtype = jnp.dtype(dtype or jnp.zeros(0).dtype)
    block = max(1, min(len(index), max_bytes // max(1, num_nodes * dtype.itemsize)))
    out = np.empty((num_nodes, len(index)), dtype)
    for start in range(0, len(index), block):
        part = jnp.asarray(index[start : start + block])
        out[:, start : start + len(part)] = _unit_columns(
            as_pytree(similarity), part, num_nodes, dtype
        )
    return out


def _unit_columns_impl(similarity, part, num_nodes, dtype):
    units = jnp.zeros((num_nodes, len(part)), dtype)
    return similarity(units.at[part, jnp.arange(len(part))].set(1))


_unit_columns = jax.jit(_unit_columns_impl, static_argnames=("num_nodes", "dtype"))
