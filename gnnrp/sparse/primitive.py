"""The sparse product as one primitive, bilinear in the entries and the dense side.

Its rules for forward mode, transposition and ``vmap`` use the primitive itself.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.experimental.sparse import BCOO, BCSR
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float, Int


class Pattern(NamedTuple):
    """Places of the entries, sorted by row, then column."""

    rows: Int[Array, " *"]  # row pointers (n + 1) for "bcsr", otherwise row ids (e)
    columns: Int[Array, " e"]
    order: Int[Array, " e"] | None  # index into ``data`` of each entry; None: as stored


def product_dtype(
    shape: tuple[int, int], entries: Any, v: jax.Array, num_steps: int
) -> Any:
    """Return the type of ``num_steps`` products with V."""
    rows, columns = shape
    if v.ndim not in {1, 2} or v.shape[0] != columns:
        msg = (
            f"a {rows} x {columns} matrix multiplies arrays of "
            f"shape ({columns}, k) or ({columns},), got {v.shape}"
        )
        raise ValueError(msg)
    if num_steps != 1 and rows != columns:
        msg = f"{num_steps} products need a square matrix, got {shape}"
        raise ValueError(msg)
    dtype = jnp.promote_types(entries, v.dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        msg = f"the product must be of real numbers, got {dtype}"
        raise TypeError(msg)
    return dtype


def as_pattern(
    indptr: np.ndarray, indices: np.ndarray, order: np.ndarray | None, backend: str
) -> Pattern:
    """Return the pattern of compressed rows in the form of the back end."""
    rows = indptr
    if backend != "bcsr":
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    as_index = functools.partial(jnp.asarray, dtype=jnp.int32)
    places = None if order is None else as_index(order)
    return Pattern(as_index(rows), as_index(indices), places)


def transposed_pattern(
    pattern: Pattern, transposed: Pattern, num_rows: int, backend: str
) -> Pattern:
    """Return the pattern of A^T for entries that are no longer symmetric.

    A symmetric A has one pattern, in which A^T is stored as A.
    """
    if transposed.order is not None:
        return transposed
    rows = _row_ids(pattern, num_rows, backend)
    return transposed._replace(order=jnp.lexsort((rows, pattern.columns)))


def _row_ids(pattern: Pattern, num_rows: int, backend: str) -> Int[Array, " e"]:
    if backend != "bcsr":
        return pattern.rows
    counts, num_entries = jnp.diff(pattern.rows), pattern.columns.shape[0]
    return jnp.repeat(jnp.arange(num_rows), counts, total_repeat_length=num_entries)


def product(
    data: Float[Array, " e"],
    pattern: Pattern,
    transposed: Pattern,
    v: Float[Array, "n k"],
    *,
    shape: tuple[int, int],
    backend: str,
) -> Float[Array, "m k"]:
    """Return A v; ``transposed`` is the pattern of A^T, for the derivatives."""
    leaves, structure = jax.tree.flatten((pattern, transposed))
    static = {"structure": structure, "shape": shape, "backend": backend}
    return cast(Array, _product_p.bind(data, v, *leaves, **static))


_product_p = Primitive("spmm")


def _compute(data, v, *leaves, structure, shape, backend):
    pattern = jax.tree.unflatten(structure, leaves)[0]
    data = data if pattern.order is None else data[pattern.order]
    return KERNELS[backend](shape, data, pattern, v)


def _abstract(_, v, *_leaves, shape, **_params):
    return ShapedArray((shape[0], v.shape[1]), v.dtype)


def _jvp(primals, tangents, **params):
    out = _product_p.bind(*primals, **params)
    parts = [  # linear in the entries, and in v
        _product_p.bind(*primals[:i], tangents[i], *primals[i + 1 :], **params)
        for i in (0, 1)
        if not isinstance(tangents[i], ad.Zero)
    ]
    return out, sum(parts[1:], start=parts[0])


def _transpose(cotangent, data, v, *leaves, structure, shape, backend):
    pattern, transposed = jax.tree.unflatten(structure, leaves)
    others = [None] * len(leaves)
    if ad.is_undefined_primal(data):
        return _entrywise_outer(pattern, cotangent, v, backend), None, *others
    v_bar = product(
        data, transposed, pattern, cotangent, shape=shape[::-1], backend=backend
    )
    return None, v_bar, *others


def _batch(arguments, axes, **params):
    v, axis = arguments[1], axes[1]
    if all(other is None for i, other in enumerate(axes) if i != 1):
        # A batch of right sides: one product with all columns.
        columns = jnp.moveaxis(v, axis, 1)
        stacked = columns.reshape(len(columns), -1)
        out = _product_p.bind(arguments[0], stacked, *arguments[2:], **params)
        return out.reshape(len(out), *columns.shape[1:]), 1
    # A batch of matrices: one at a time.
    pairs = list(zip(arguments, axes, strict=True))
    mapped = [jnp.moveaxis(each, at, 0) for each, at in pairs if at is not None]

    def one(parts):
        part = iter(parts)
        inputs = [each if at is None else next(part) for each, at in pairs]
        return _product_p.bind(*inputs, **params)

    return jax.lax.map(one, mapped), 0


_product_p.def_impl(
    jax.jit(_compute, static_argnames=("structure", "shape", "backend"))
)
_product_p.def_abstract_eval(_abstract)
mlir.register_lowering(_product_p, mlir.lower_fun(_compute, multiple_results=False))
ad.primitive_jvps[_product_p] = _jvp
ad.primitive_transposes[_product_p] = _transpose
batching.primitive_batchers[_product_p] = _batch


def _entrywise_outer(
    pattern: Pattern, left: Array, right: Array, backend: str
) -> Float[Array, " e"]:
    """Return (left right^T)_ij at the entries, column by column, in memory e."""
    num_entries = pattern.columns.shape[0]
    rows = _row_ids(pattern, left.shape[0], backend)

    def body(total, pair):
        return total + pair[0][rows] * pair[1][pattern.columns], None

    start = jnp.zeros(num_entries, left.dtype)
    outer = jax.lax.scan(body, start, (left.T, right.T))[0]
    return outer if pattern.order is None else start.at[pattern.order].set(outer)


def _bcsr(shape: tuple[int, int], data: Array, pattern: Pattern, v: Array) -> Array:
    parts = (data, pattern.columns, pattern.rows)
    return cast(Array, BCSR(parts, shape=shape) @ v)


def _bcoo(shape: tuple[int, int], data: Array, pattern: Pattern, v: Array) -> Array:
    indices = jnp.stack([pattern.rows, pattern.columns], axis=1)
    matrix = BCOO(
        (data, indices), shape=shape, indices_sorted=True, unique_indices=True
    )
    return cast(Array, matrix @ v)


def _segment_sum(
    shape: tuple[int, int], data: Array, pattern: Pattern, v: Array
) -> Array:
    return jax.ops.segment_sum(
        data[:, None] * v[pattern.columns],
        pattern.rows,
        num_segments=shape[0],
        indices_are_sorted=True,
    )


KERNELS: dict[str, Callable[[tuple[int, int], Any, Pattern, Any], Array]] = {
    "bcsr": _bcsr,
    "bcoo": _bcoo,
    "segment_sum": _segment_sum,
}
