"""What is done with a map V -> S V, whatever it is: traced, checked, read, specialized.

The maps themselves stand in ``similarity``; a plain function is one too.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gnnrp import sparse
from gnnrp.propagation.similarity import LazyWalk, Power, Restart, Sandwich, check_alpha
from gnnrp.runtime import checks, tracing
from gnnrp.types import LinearMap

_MOST_SUPPORT = 0.9  # beyond which a second matrix does not pay
_LEAST_ENTRIES = 2**20  # below which a second compilation does not


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
            "wrap a dense matrix in similarity.Dense, a sparse one in sparse.prepare"
        )
        raise TypeError(msg)
    for part in jax.tree.leaves(similarity, is_leaf=_is_walk):
        if _is_walk(part):
            check_alpha(part.alpha)
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
        sent: Any = product.eval_shape(tracing.as_argument(similarity), v)
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
    num_nodes = checks.count("num_nodes", num_nodes, 0)
    index = checks.node_ids("index", index, num_nodes).astype(np.int32)
    dtype = jnp.dtype(dtype or jnp.zeros(0).dtype)
    block = max(1, min(len(index), max_bytes // max(1, num_nodes * dtype.itemsize)))
    out = np.empty((num_nodes, len(index)), dtype)
    send = tracing.as_argument(as_pytree(similarity))
    for start in range(0, len(index), block):
        part = jnp.asarray(index[start : start + block])
        out[:, start : start + len(part)] = _unit_columns(send, part, num_nodes, dtype)
    return out


def _unit_columns_impl(similarity, part, num_nodes, dtype):
    units = jnp.zeros((num_nodes, len(part)), dtype)
    return similarity(units.at[part, jnp.arange(len(part))].set(1))


_unit_columns = tracing.Jit(_unit_columns_impl, static_argnames=("num_nodes", "dtype"))


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
    is_known = isinstance(matrix, sparse.Matrix)  # another map does not tell its n
    num_nodes = matrix.shape[1] if is_known else np.size(support)
    support = checks.mask("the support", support, num_nodes)
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
        first = sparse.on_support(matrix, support)
        return dataclasses.replace(similarity, first=first)
    return sparse.on_support(matrix, support)


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


def _is_walk(part: Any) -> bool:
    return isinstance(part, LazyWalk | Restart)
