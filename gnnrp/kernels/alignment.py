"""Alignment of kernels, with each other, with the graph and with the labels.

    A(K1, K2) = <K1, K2> / (|K1| |K2|),

or, centered, that of H K1 H and H K2 H with H = I - 11^T / n. The paper defines the
first, its figures show the second. It is at least 0 if both kernels are PSD, or, not
centered, nonnegative. A kernel is symmetric: a dense matrix, a scipy sparse one or
BCOO, a ``Factor`` Φ of K = Φ Φ^T, or an ``Operator`` V -> K V, never multiplied out.

Source: Def. 5.1.
"""

import dataclasses
import warnings
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.core import Tracer
from jax.experimental.sparse import BCOO
from jaxtyping import Array, Float, Int

from gnnrp import sparse
from gnnrp.runtime import arrays, checks
from gnnrp.types import LinearMap, Scalar


class Factor(NamedTuple):
    """K = Φ Φ^T, stored as Φ."""

    phi: Float[Array, "n r"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Operator:
    """K as a symmetric map, such as ``similarity.Power``, with its number of nodes."""

    apply: LinearMap
    size: int = dataclasses.field(metadata={"static": True})


Kernel: TypeAlias = (
    jax.Array
    | np.ndarray
    | Factor
    | Operator
    | BCOO
    | scipy.sparse.sparray
    | scipy.sparse.spmatrix
)
"""Representations of a symmetric n x n matrix."""

_HIGHEST = jax.lax.Precision.HIGHEST
_WIDTH = 256  # columns of an operator in memory at once


def ideal_kernel(targets: Float[Any, "n c"]) -> Factor:
    """Return Θ* = Y Y^T: 1 for nodes of one class, else 0 (one-hot) or -1 (±1, c = 1).

    The paper's figures take one-hot targets Y, its bound and Bayes kernel a column of
    ±1.

    Raises:
        ValueError: not a matrix.
        TypeError: not real numbers.
    """
    return _factor("targets", targets)


def label_kernel(labels: Int[np.ndarray, " n"], num_classes: int) -> Factor:
    """Return ``ideal_kernel`` of one-hot labels; unknown ones (-1) give zero rows.

    Raises:
        ValueError: not one label per node, or, unless traced, one beyond the classes.
        TypeError: labels that are not integers.
    """
    num_classes = checks.count("num_classes", num_classes, 1)
    if not isinstance(labels, Tracer):
        labels = checks.labels("labels", labels)
        largest = labels.max(initial=-1)
        checks.in_interval("the largest label", largest, -1, num_classes - 1)
    return Factor(jax.nn.one_hot(jnp.asarray(labels), num_classes))


def alignment(first: Kernel, second: Kernel, *, centered: bool = False) -> Scalar:
    """Return A(K1, K2); NaN, with a warning outside of ``jit``, if one of them is zero.

    Kernel-graph alignment takes A or a power of it, kernel-target alignment
    ``ideal_kernel``. Differentiable in dense kernels and factors. ``jit`` takes all but
    sparse kernels, if the map of an operator is a pytree (``similarity.Power``).

    Args:
        first: K1.
        second: K2, of as many nodes.
        centered: align H K1 H and H K2 H, as in the paper's figures, which do not say
            so. H Y Y^T H is zero if all nodes are of one class.

    Raises:
        ValueError: kernels that are not square or of different sizes.
        TypeError: not a kernel, or not real numbers.

    Source: Def. 5.1; centered, Cortes et al. 2012.
    """
    one, two = _validate(first), _validate(second)
    dtype = np.promote_types(_dtype(one, two), np.float32)
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    if _size(one) != _size(two):
        msg = f"kernels of {_size(one)} and {_size(two)} nodes have no alignment"
        raise ValueError(msg)
    one, two = _cast(one, dtype), _cast(two, dtype)
    if centered:
        one, two = _center(one), _center(two)
    squares = _inner(one, one), _inner(two, two)
    zero = (squares[0] <= 0) | (squares[1] <= 0)
    if not isinstance(zero, Tracer) and zero:
        which = "first" if squares[0] <= 0 else "second"
        when = " when centered" if centered else ""
        msg = f"the {which} kernel is zero{when}: A(K1, K2) is NaN"
        warnings.warn(msg, RuntimeWarning, stacklevel=2)
    # Two roots: the product of the squares may be beyond float32.
    norms = [jnp.sqrt(jnp.where(zero, 1, square)) for square in squares]
    return jnp.where(zero, jnp.nan, _inner(one, two) / norms[0] / norms[1])


class _CenteredSparse(NamedTuple):
    """H A H of a sparse A, stored as A: the product is not sparse."""

    entries: scipy.sparse.csr_array
    sums: np.ndarray  # A 1


def _validate(kernel: Any) -> Any:
    if isinstance(kernel, Factor):
        return _factor("the factor of a kernel", kernel.phi)
    if isinstance(kernel, Operator):
        checks.linear_map("the map of an operator", kernel.apply)
        return kernel
    if isinstance(kernel, BCOO) or scipy.sparse.issparse(kernel):
        kernel = sparse.to_scipy(kernel)
    elif callable(kernel):
        msg = (
            f"a kernel must be a matrix, got {type(kernel).__name__}; wrap a map in "
            "alignment.Operator, with its number of nodes"
        )
        raise TypeError(msg)
    else:
        kernel = arrays.real("a kernel", kernel)
    checks.square("a kernel", kernel)
    return kernel


def _factor(name: str, phi: Any) -> Factor:
    """Return the factor of a kernel, or refuse one that is not a matrix."""
    phi = arrays.real(name, phi)
    if phi.ndim != 2:
        fix = "alignment.label_kernel takes labels"
        msg = f"{name} must be a matrix (n, r), got shape {phi.shape}; {fix}"
        raise ValueError(msg)
    return Factor(phi)


def _arrays(*kernels: Any) -> list[Any]:
    """Return the arrays that represent kernels; an operator has none."""
    return jax.tree.leaves([k for k in kernels if not isinstance(k, Operator)])


def _dtype(one: Any, two: Any) -> Any:
    """Return the common type of two kernels; an operator takes any."""
    dtypes = [x.dtype for x in _arrays(one, two)]
    return np.promote_types(dtypes[0], dtypes[-1]) if dtypes else jnp.zeros(0).dtype


def _cast(kernel: Any, dtype: Any) -> Any:
    if isinstance(kernel, Operator):
        return kernel
    return jax.tree.map(lambda array: array.astype(dtype), kernel)


def _size(kernel: Any) -> int:
    return kernel.size if isinstance(kernel, Operator) else _arrays(kernel)[0].shape[0]


def _center(kernel: Any) -> Any:
    if isinstance(kernel, Factor):
        return Factor(kernel.phi - jnp.mean(kernel.phi, axis=0, keepdims=True))
    if isinstance(kernel, Operator):

        def apply(v: Array) -> Array:
            product = kernel.apply(v - jnp.mean(v, axis=0, keepdims=True))
            return product - jnp.mean(product, axis=0, keepdims=True)

        return Operator(apply, kernel.size)
    if scipy.sparse.issparse(kernel):
        return _CenteredSparse(kernel, np.asarray(kernel.sum(axis=1)).ravel())
    rows = jnp.mean(kernel, axis=0)
    return kernel - rows[None, :] - rows[:, None] + jnp.mean(rows)


def _inner(one: Any, two: Any) -> Any:
    """Return <K1, K2> = tr(K1 K2) of any representations."""
    if isinstance(one, Factor):
        if isinstance(two, Factor):
            return jnp.sum(jnp.matmul(one.phi.T, two.phi, precision=_HIGHEST) ** 2)
        return _inner(two, one)
    if isinstance(two, Factor):
        return jnp.sum(two.phi * _multiply(one, two.phi))
    if isinstance(one, Operator) or isinstance(two, Operator):
        return _inner_by_columns(one, two)
    if isinstance(one, jax.Array) and isinstance(two, jax.Array):
        return jnp.sum(one * two)
    if isinstance(one, jax.Array):
        return _inner(two, one)
    return _sparse_inner(one, two)


def _inner_by_columns(one: Any, two: Any) -> Any:
    """Return <K1, K2> of an operator and another kernel, some columns at a time."""
    size = _size(one)
    width, dtype = max(1, min(_WIDTH, size)), _dtype(one, two)
    one, two = _dense_or_map(one), _dense_or_map(two)

    def inner(start: Any, width: int) -> Array:
        unit = jnp.arange(size)[:, None] == start + jnp.arange(width)[None, :]
        unit = unit.astype(dtype)

        def columns(kernel: Any) -> Array:
            if isinstance(kernel, jax.Array):
                return jax.lax.dynamic_slice_in_dim(kernel, start, width, 1)
            return kernel(unit)

        return jnp.sum(columns(one) * columns(two))

    rest = inner(size - size % width, size % width)
    return jax.lax.fori_loop(
        0, size // width, lambda i, total: total + inner(i * width, width), rest
    )


def _dense_or_map(kernel: Any) -> Any:
    """Return a dense kernel, or V -> K V of another, for a centered V if K is."""
    if isinstance(kernel, jax.Array):
        return kernel
    if isinstance(kernel, Operator):
        return kernel.apply
    return sparse.prepare(_entries(kernel), reorder=False)


def _entries(kernel: Any) -> Any:
    return kernel.entries if isinstance(kernel, _CenteredSparse) else kernel


def _multiply(kernel: Any, v: Array) -> Array:
    kernel = _dense_or_map(kernel)
    if isinstance(kernel, jax.Array):
        return jnp.matmul(kernel, v, precision=_HIGHEST)
    return kernel(v)


def _sparse_inner(one: Any, two: Any) -> Any:
    """Return <K1, K2> of a sparse K1, centered if it is."""
    csr = _entries(one)
    if isinstance(two, jax.Array):  # centered, its rows sum to zero
        rows = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
        return jnp.sum(jnp.asarray(csr.data) * two[rows, csr.indices])
    overlap = csr.multiply(_entries(two)).sum()
    if isinstance(one, _CenteredSparse):
        num_nodes, a, b = len(one.sums), one.sums, two.sums
        overlap += a.sum() * b.sum() / num_nodes**2 - 2 * (a @ b) / num_nodes
    return jnp.asarray(float(overlap), csr.dtype)
