"""Gradients of a network's outputs, node by node, and rows of their kernel."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from gnnrp.runtime import checks

REDUCTIONS = ("full", "trace", "sum", "pseudo")

ApplyFn = Callable[[Any, Any], Any]
"""(params, x) -> outputs (n, c)."""


def flattened(
    apply_fn: ApplyFn, params: Any, x: Any
) -> tuple[Callable[[jax.Array], jax.Array], jax.Array, tuple[int, int]]:
    """Return the outputs as a function of one vector, that vector, and their shape.

    The vector holds the floating parameters. Others, such as keys of random numbers and
    counters, stay as they are.

    Raises:
        ValueError: there is no floating parameter, or the outputs are no matrix.
        TypeError: the network is no function, or returns no array.
    """
    checks.function("apply_fn", apply_fn, "such as network.apply of params and x")
    leaves, structure = jax.tree.flatten(params)
    moving = [_is_floating(leaf) for leaf in leaves]
    flat, unravel = ravel_pytree([
        x for x, own in zip(leaves, moving, strict=True) if own
    ])
    if not flat.size:
        msg = f"params must hold floating numbers, got {checks.shown(params)}"
        raise ValueError(msg)

    def outputs(flat: jax.Array) -> Any:
        moved = iter(unravel(flat))
        pairs = zip(leaves, moving, strict=True)
        every = [next(moved) if own else leaf for leaf, own in pairs]
        return apply_fn(jax.tree.unflatten(structure, every), x)

    found: Any = jax.eval_shape(outputs, flat)
    if not hasattr(found, "shape"):
        msg = (
            f"apply_fn must return one array (n, c), got {type(found).__name__}; wrap "
            "it in a function that returns the outputs alone"
        )
        raise TypeError(msg)
    if len(found.shape) != 2:
        msg = f"apply_fn must return a matrix (n, c), got shape {found.shape}"
        raise ValueError(msg)
    if not jnp.issubdtype(found.dtype, jnp.floating):
        msg = f"apply_fn must return real floating numbers, got {found.dtype}"
        raise TypeError(msg)
    return outputs, flat, found.shape


def _is_floating(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        return isinstance(leaf, float)
    return jnp.issubdtype(dtype, jnp.floating)


def covectors(reduce: str, c: int, dtype: Any) -> jax.Array:
    """Return what outputs of a node are weighted with, one row a gradient."""
    if reduce in {"sum", "pseudo"}:
        return jnp.ones((1, c), dtype)
    return jnp.eye(c, dtype=dtype)


def gradients(
    outputs: Callable, flat: jax.Array, shape: tuple[int, int], reduce: str
) -> Callable[[jax.Array], jax.Array]:
    """Return i -> its gradients (s, p)."""
    value, pull = jax.vjp(outputs, flat)
    weights = covectors(reduce, shape[1], value.dtype)

    def of(node: jax.Array) -> jax.Array:
        def one(w: jax.Array) -> jax.Array:
            return pull(jnp.zeros(shape, value.dtype).at[node].set(w))[0]

        return jax.vmap(one)(weights)

    return of


def jacobian(
    outputs: Callable,
    flat: jax.Array,
    shape: tuple[int, int],
    nodes: jax.Array,
    reduce: str,
    block_size: int,
) -> jax.Array:
    """Return the gradients of some nodes, (k, s, p)."""
    of = gradients(outputs, flat, shape, reduce)
    return jax.lax.map(of, nodes, batch_size=min(block_size, len(nodes)))


def row_fn(
    outputs: Callable, flat: jax.Array, c: int, columns: jax.Array, reduce: str
) -> Callable[[jax.Array], jax.Array]:
    """Return i -> Θ[i, columns], by pulling back and pushing forward."""
    value, push = jax.linearize(outputs, flat)
    of = gradients(outputs, flat, value.shape, reduce)

    def row(node: jax.Array) -> jax.Array:
        sent = jax.vmap(push)(of(node))[:, columns]  # (s, j, c)
        if reduce == "full":
            return sent
        if reduce == "trace":
            return jnp.einsum("kjk->j", sent) / c
        total = jnp.sum(sent[0], axis=1)
        return total / c if reduce == "pseudo" else total

    return row
