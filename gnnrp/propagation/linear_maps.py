"""Operations on any linear map V -> S V: conversion, checks, columns, restriction."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gnnrp import sparse
from gnnrp.propagation.label import check_alpha
from gnnrp.propagation.similarity import Dense, LazyWalk, Power, Restart, Sandwich, Sum
from gnnrp.runtime import checks, tracing
from gnnrp.types import LinearMap

_MAX_SUPPORT = 0.9  # share of the nodes up to which a second matrix pays
_MIN_ENTRIES = 2**20  # from which on a second compilation pays
BLOCK_BYTES = 2**29  # unit vectors of a block of ``columns``


def as_pytree(similarity: LinearMap) -> LinearMap:
    """Return the map as a pytree for ``jit``, in which plain functions are static.

    Raises:
        ValueError: α of a walk is out of [0, 1], or a weight of a sum is negative or
            not finite.
        TypeError: the map is not callable.
    """
    if not callable(similarity) or isinstance(similarity, type):
        what = getattr(similarity, "__name__", type(similarity).__name__)
        msg = (
            f"a similarity must be a map V -> S V, got {what}; "
            "wrap a dense matrix in similarity.Dense, a sparse one in sparse.prepare"
        )
        raise TypeError(msg)
    _check_parameters(similarity)
    if not any(callable(leaf) for leaf in jax.tree.leaves(similarity)):
        return similarity
    return jax.tree.map(
        lambda leaf: jax.tree_util.Partial(leaf) if callable(leaf) else leaf, similarity
    )


@tracing.Jit
def product(similarity: LinearMap, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Return S V, compiled; S from ``runtime.tracing.as_argument``."""
    return similarity(v)


def check(similarity: LinearMap, like: Any) -> None:
    """Check, without a product, that a map returns real matrices of the shape of V.

    Args:
        similarity: from ``as_pytree``.
        like: an array of the shape and type of V.

    Raises:
        ValueError: the map returns another shape or type.
        TypeError: the map calls functions that JAX cannot trace.
    """
    v = jax.ShapeDtypeStruct(like.shape, like.dtype)
    try:
        image: Any = product.eval_shape(tracing.as_argument(similarity), v)
    except jax.errors.TracerArrayConversionError as error:
        msg = (
            "a similarity must be made of functions of jax.numpy, and this one calls "
            "other functions, such as numpy's; jax.pure_callback wraps those"
        )
        raise TypeError(msg) from error
    shape = getattr(image, "shape", None)
    if shape != v.shape or not jnp.issubdtype(image.dtype, jnp.floating):
        got = type(image).__name__ if shape is None else f"{image.dtype} {shape}"
        msg = f"a similarity must send floats {v.shape} to floats {v.shape}, got {got}"
        raise ValueError(msg)


def columns(
    similarity: LinearMap,
    index: Int[np.ndarray, " l"],
    num_nodes: int,
    *,
    dtype: jnp.dtype | None = None,
    max_bytes: int = BLOCK_BYTES,
) -> Float[np.ndarray, "n l"]:
    """Return S[:, index] on the host, from products with unit vectors.

    Args:
        similarity: S.
        index: columns.
        num_nodes: n.
        dtype: of the unit vectors; JAX's default float if None.
        max_bytes: of one block of unit vectors.
    """
    num_nodes = checks.count("num_nodes", num_nodes, 0)
    index = checks.node_ids("index", index, num_nodes).astype(np.int32)
    dtype = jnp.dtype(dtype or jnp.zeros(0).dtype)
    if isinstance(similarity, Dense):
        return np.asarray(similarity.matrix[:, index], dtype)
    block = max(1, min(len(index), max_bytes // max(1, num_nodes * dtype.itemsize)))
    out = np.empty((num_nodes, len(index)), dtype)
    similarity = tracing.as_argument(as_pytree(similarity))
    for start in range(0, len(index), block):
        part = jnp.asarray(index[start : start + block])
        out[:, start : start + len(part)] = _unit_columns(
            similarity, part, num_nodes, dtype
        )
    return out


@functools.partial(tracing.Jit, static_argnames=("num_nodes", "dtype"))
def _unit_columns(similarity, part, num_nodes, dtype):
    units = jnp.zeros((num_nodes, len(part)), dtype)
    return similarity(units.at[part, jnp.arange(len(part))].set(1))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Restriction:
    """V -> S V for matrices V that vanish outside some nodes; see ``restrict``."""

    similarity: LinearMap  # S, for any V
    factors: tuple[LinearMap, ...]  # their product is S on such V

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return S V."""
        for factor in reversed(self.factors):
            v = factor(v)
        return v


def restrict(similarity: LinearMap, support: Bool[np.ndarray, " n"]) -> LinearMap:
    """Return a map that equals S on matrices that vanish outside some nodes.

    Its first product with a sparse matrix skips the other columns. The map is returned
    unchanged if it has no such product, if less than a tenth of the columns can be
    skipped, or if the matrix is too small for another compilation to pay.

    Args:
        similarity: S; an earlier restriction is undone.
        support: nodes where V may differ from zero.
    """
    similarity = full_map(similarity)
    matrix = _first_matrix(similarity)
    is_sparse = isinstance(matrix, sparse.Matrix)
    num_nodes = matrix.shape[1] if is_sparse else np.size(support)
    support = checks.mask("the support", support, num_nodes)
    if support.sum() > _MAX_SUPPORT * support.size:
        return similarity
    if not is_sparse or matrix.data.size < _MIN_ENTRIES:
        return similarity
    return Restriction(similarity, _restriction_factors(similarity, support))


def _restriction_factors(similarity: Any, support: np.ndarray) -> tuple[LinearMap, ...]:
    """Return factors of S, the last of which skips the columns outside the support."""
    if isinstance(similarity, Sandwich):
        last = _restriction_factors(similarity.outer, support)
        return (similarity.outer, similarity.inner, *last)
    if isinstance(similarity, Power | LazyWalk):
        if similarity.power == 0:
            return (similarity,)
        matrix = sparse.select_columns(_first_matrix(similarity), support)
        rest = dataclasses.replace(similarity, power=similarity.power - 1)
        return (rest, dataclasses.replace(similarity, adjacency=matrix, power=1))
    return (sparse.select_columns(similarity, support),)


def _first_matrix(similarity: LinearMap) -> Any:
    """Return the adjacency of a walk, or else the map itself."""
    if isinstance(similarity, Sandwich):
        return _first_matrix(similarity.outer)
    if isinstance(similarity, Power | LazyWalk):
        return similarity.adjacency
    return similarity


def full_map(similarity: LinearMap) -> LinearMap:
    """Return the map before ``restrict``."""
    return similarity.similarity if isinstance(similarity, Restriction) else similarity


def _check_parameters(similarity: Any) -> None:
    """Check α of walks and restarts, and the weights of sums."""

    def has_parameter(part: Any) -> bool:
        return isinstance(part, LazyWalk | Restart | Sum)

    for part in jax.tree.leaves(similarity, is_leaf=has_parameter):
        if isinstance(part, LazyWalk | Restart):
            check_alpha(part.alpha)
        elif isinstance(part, Sum):
            part.check_weights()
            _check_parameters(part.parts)
