"""The product rules behind ``spmm``: reverse mode and ``vmap`` in the fast kernel."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero
from jax.experimental import sparse
from jaxtyping import Array, Float, Int


class Pattern(NamedTuple):
    """Where the entries stand, sorted by row, then column."""

    rows: Int[
        Array, " *"
    ]  # row pointers (n + 1) for "bcsr", else a row id an entry (e)
    columns: Int[Array, " e"]
    order: (
        Int[Array, " e"] | None
    )  # which entry of ``data`` stands here; None: as stored


@functools.cache
def differentiable(shape: tuple[int, int], backend: str) -> Callable:
    """Return (data, pattern, transposed, v) -> A v with its reverse-mode rule."""
    forward = _batchable(shape, backend)

    @jax.custom_vjp
    def product(data, pattern, transposed, v):
        del transposed
        return forward(data, pattern, v)

    def product_fwd(*primals):
        data, pattern, transposed, v = jax.tree.map(lambda leaf: leaf.value, primals)
        # None or (): a fact about the arguments that stays static among the residuals.
        wanted = [None if primals[i].perturbed else () for i in (0, 3)]
        # The product itself, not its kernel, so that derivatives nest.
        out = product(data, pattern, transposed, v)
        return out, (data, pattern, transposed, v, wanted)

    def product_bwd(residuals, cotangent):
        data, pattern, transposed, v, (data_wanted, v_wanted) = residuals
        data_bar, v_bar = jnp.zeros_like(data), jnp.zeros_like(v)
        if not isinstance(cotangent, SymbolicZero):
            if v_wanted is None:
                adjoint = differentiable((shape[1], shape[0]), backend)
                v_bar = adjoint(data, transposed, pattern, cotangent)
            if data_wanted is None:
                data_bar = _entrywise_outer(pattern, cotangent, v, backend)
        no_tangent = jax.tree.map(
            lambda leaf: np.zeros(leaf.shape, jax.dtypes.float0), (pattern, transposed)
        )
        return data_bar, *no_tangent, v_bar

    product.defvjp(product_fwd, product_bwd, symbolic_zeros=True)
    return product


@functools.cache
def _batchable(shape: tuple[int, int], backend: str) -> Callable:
    """Return (data, pattern, v) -> A v with its ``vmap`` rule."""
    kernel = functools.partial(KERNELS[backend], shape)

    @custom_vmap
    def product(data, pattern, v):
        data = data if pattern.order is None else data[pattern.order]
        return kernel(data, pattern, v)

    @product.def_vmap
    def product_vmap(axis_size, in_batched, data, pattern, v):
        if any(jax.tree.leaves(in_batched[:2])):  # a batch of matrices: one at a time
            batched = jax.tree.leaves(in_batched)
            leaves, structure = jax.tree.flatten((data, pattern, v))

            def one(mapped):
                it = iter(mapped)
                args = [
                    next(it) if is_mapped else leaf
                    for leaf, is_mapped in zip(leaves, batched, strict=True)
                ]
                return product(*jax.tree.unflatten(structure, args))

            mapped = [
                x for x, is_mapped in zip(leaves, batched, strict=True) if is_mapped
            ]
            return jax.lax.map(one, mapped), True
        stacked = jnp.moveaxis(v, 0, 1).reshape(shape[1], -1)
        out = product(data, pattern, stacked).reshape(shape[0], axis_size, -1)
        return jnp.moveaxis(out, 1, 0), True

    return product


def _entrywise_outer(
    pattern: Pattern, left: Array, right: Array, backend: str
) -> Float[Array, " e"]:
    """Return (left right^T)_ij at the entries, column by column: memory e, not e k."""
    num_entries = pattern.columns.shape[0]
    rows = pattern.rows
    if backend == "bcsr":
        rows = jnp.repeat(
            jnp.arange(len(rows) - 1), jnp.diff(rows), total_repeat_length=num_entries
        )

    def body(total, pair):
        return total + pair[0][rows] * pair[1][pattern.columns], None

    start = jnp.zeros(num_entries, left.dtype)
    return jax.lax.scan(body, start, (left.T, right.T))[0]


def _bcsr(shape: tuple[int, int], data: Array, pattern: Pattern, v: Array) -> Array:
    parts = (data, pattern.columns, pattern.rows)
    return cast(Array, sparse.BCSR(parts, shape=shape) @ v)


def _bcoo(shape: tuple[int, int], data: Array, pattern: Pattern, v: Array) -> Array:
    indices = jnp.stack([pattern.rows, pattern.columns], axis=1)
    matrix = sparse.BCOO(
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


KERNELS: dict[str, Any] = {
    "bcsr": _bcsr,
    "bcoo": _bcoo,
    "segment_sum": _segment_sum,
}
