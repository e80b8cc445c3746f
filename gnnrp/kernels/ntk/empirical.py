"""Tangent kernel Θ = J J^T of any finite network with outputs (n, c), and its maps.

J_ik is the gradient of the k-th output of node i in all parameters. Of the c x c block
of a pair of nodes,

    "full"    everything, (n, c, n, c), node-major;
    "trace"   Σ_k Θ_ik,jk / c, the usual reduction (and neural-tangents' default);
    "sum"     Σ_kl Θ_ik,jl, of the sum of logits: what the paper's figures show;
    "pseudo"  the same over c, the pseudo-NTK.

All agree at infinite width; at width 16 the last differs from the trace by some 7
percent, and under softmax cross-entropy it looks where the loss never pushes: the sum
of logits. Alignments do not tell "sum" from "pseudo".

Source: Eq. 5; App. C.3 (whose pseudo-NTK lacks the 1 / c) and D.2.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy.typing as npt
from jaxtyping import Array, Float

from gnnrp.kernels.ntk import _jacobians
from gnnrp.kernels.ntk._jacobians import REDUCTIONS, ApplyFn
from gnnrp.runtime import arrays, checks

METHODS = ("auto", "contraction", "products")

_HIGHEST = jax.lax.Precision.HIGHEST


def ntk(
    apply_fn: ApplyFn,
    params: Any,
    x: Any,
    rows: npt.ArrayLike | None = None,
    columns: npt.ArrayLike | None = None,
    *,
    reduce: str = "trace",
    method: str = "auto",
    block_size: int = 32,
    max_bytes: int = 2**33,
) -> Float[Array, "k ..."]:
    """Return Θ of some nodes with some others, (k, j), or (k, c, j, c) if full.

    "contraction" multiplies Jacobians, which it holds: c numbers a parameter and node,
    or one for "sum". "products" pulls each row back and pushes it forward, and holds
    ``block_size`` of them at a time; its time does not depend on the columns asked for.
    For networks with a structure that is known, ``structured`` is far faster.

    Args:
        apply_fn: the network, pure, of (params, x).
        params: any pytree.
        x: any pytree.
        rows: nodes; all if left out.
        columns: nodes; as ``rows`` if left out.
        reduce: one of ``REDUCTIONS``.
        method: "auto" contracts if the Jacobians fit.
        block_size: rows at a time.
        max_bytes: of Jacobians and result.

    Raises:
        ValueError: unknown names, outputs that are no matrix, no numbers of nodes, a
            result that does not fit.

    Example:
        >>> import jax.numpy as jnp
        >>> linear = lambda W, x: x @ W
        >>> ntk(linear, jnp.ones((2, 3)), jnp.array([[1.0, 2.0]])).tolist()
        [[5.0]]
    """
    checks.one_of("reduce", reduce, REDUCTIONS)
    checks.one_of("method", method, METHODS)
    block_size = checks.count("block_size", block_size, 1)
    outputs, flat, (n, c) = _jacobians.flattened(apply_fn, params, x)
    same = columns is None or columns is rows
    left_nodes = arrays.node_ids("rows", rows, n)
    right_nodes = left_nodes if same else arrays.node_ids("columns", columns, n)
    per_node = 1 if reduce in {"sum", "pseudo"} else c
    held = (len(left_nodes) + (0 if same else len(right_nodes))) * per_node * flat.size
    max_bytes = checks.count("max_bytes", max_bytes, 0, 2**62)
    result = len(left_nodes) * len(right_nodes) * (c**2 if reduce == "full" else 1)
    size = flat.dtype.itemsize
    if result * size > max_bytes:
        msg = (
            f"the kernel takes {result * size / 1e9:.1f} GB and max_bytes allows "
            f"{max_bytes / 1e9:.1f}; ask for rows and columns of it, or see Product"
        )
        raise ValueError(msg)
    if method == "auto":
        fits = (held + result) * size <= max_bytes
        method = "contraction" if fits else "products"
    if method == "products":
        return _by_products(
            outputs, flat, c, left_nodes, right_nodes, reduce, block_size
        )
    left = _jacobians.jacobian(outputs, flat, (n, c), left_nodes, reduce, block_size)
    right = left
    if not same:
        right = _jacobians.jacobian(
            outputs, flat, (n, c), right_nodes, reduce, block_size
        )
    return _contracted(left, right, reduce, c)


def jacobian(
    apply_fn: ApplyFn,
    params: Any,
    x: Any,
    nodes: npt.ArrayLike | None = None,
    *,
    block_size: int = 32,
) -> Float[Array, "k c p"]:
    """Return the gradients of all outputs of some nodes, parameters raveled.

    Args:
        apply_fn: the network.
        params: any pytree; the floating leaves count, in the order of
            ``jax.flatten_util.ravel_pytree``.
        x: any pytree.
        nodes: all if left out.
        block_size: nodes at a time.

    Raises:
        ValueError: outputs that are no matrix, no numbers of nodes.
    """
    block_size = checks.count("block_size", block_size, 1)
    outputs, flat, shape = _jacobians.flattened(apply_fn, params, x)
    some = arrays.node_ids("nodes", nodes, shape[0])
    return _jacobians.jacobian(outputs, flat, shape, some, "full", block_size)


def over_nodes(full: Float[Array, "k c j c"]) -> Float[Array, "c c"]:
    """Return the mean of the full kernel over all pairs of nodes: class by class.

    Raises:
        ValueError: not the full kernel.

    Source: the paper's figure of NTK blocks.
    """
    _check_full(full)
    return jnp.mean(full, axis=(0, 2))


def over_classes(full: Float[Array, "k c j c"]) -> Float[Array, "k j"]:
    """Return the mean of the full kernel over all pairs of classes: node by node.

    It is "sum" over c^2, and not the "trace".

    Raises:
        ValueError: not the full kernel.

    Source: the paper's figure of NTK blocks.
    """
    _check_full(full)
    return jnp.mean(full, axis=(1, 3))


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("params", "x"),
    meta_fields=("apply_fn", "reduce", "block_size"),
)
@dataclasses.dataclass(frozen=True, eq=False)
class Product:
    """V -> Θ V, at the cost of a backward and a forward pass a column (or c of them).

    V has a row a node; of "full", a row a node and class, node-major. With
    ``alignment.Operator`` and ``stochastic`` it serves graphs whose Θ fits nowhere.
    """

    apply_fn: ApplyFn
    params: Any
    x: Any
    reduce: str = "trace"
    block_size: int = 8  # columns at a time

    @property
    def is_symmetric(self) -> bool:
        """True: every reduction of J J^T is."""
        return True

    def __call__(self, v: Float[Array, "q k"]) -> Float[Array, "q k"]:
        """Return Θ V.

        Raises:
            ValueError: an unknown reduction, V of another shape.
        """
        checks.one_of("reduce", self.reduce, REDUCTIONS)
        block_size = checks.count("block_size", self.block_size, 1)
        outputs, flat, (n, c) = _jacobians.flattened(self.apply_fn, self.params, self.x)
        num_rows = n * c if self.reduce == "full" else n
        if v.ndim != 2 or len(v) != num_rows:
            msg = f"V must have shape ({num_rows}, k), got {v.shape}"
            raise ValueError(msg)
        _, pull = jax.vjp(outputs, flat)
        _, push = jax.linearize(outputs, flat)

        def through(w: jax.Array) -> jax.Array:
            return push(pull(w)[0])

        def column(w: jax.Array) -> jax.Array:
            if self.reduce == "full":
                return through(w.reshape(n, c)).ravel()
            if self.reduce == "trace":
                each = jax.lax.map(
                    lambda e: through(w[:, None] * e[None, :]) @ e,
                    jnp.eye(c, dtype=w.dtype),
                )
                return jnp.mean(each, axis=0)
            total = jnp.sum(through(jnp.tile(w[:, None], (1, c))), axis=1)
            return total / c if self.reduce == "pseudo" else total

        columns = v.astype(flat.dtype).T
        return jax.lax.map(column, columns, batch_size=block_size).T


def trace(
    apply_fn: ApplyFn,
    params: Any,
    x: Any,
    *,
    reduce: str = "trace",
    block_size: int = 32,
) -> Float[Array, ""]:
    """Return tr Θ exactly, without Θ: one gradient a node, or c of them.

    Args:
        apply_fn: the network.
        params: any pytree.
        x: any pytree.
        reduce: one of ``REDUCTIONS``.
        block_size: nodes at a time.

    Raises:
        ValueError: an unknown reduction, outputs that are no matrix.
    """
    checks.one_of("reduce", reduce, REDUCTIONS)
    outputs, flat, (n, c) = _jacobians.flattened(apply_fn, params, x)
    of = _jacobians.gradients(outputs, flat, (n, c), reduce)
    total = _sum_of_squares(of, n, block_size)
    return total if reduce in {"full", "sum"} else total / c


def squared_norm(
    apply_fn: ApplyFn,
    params: Any,
    x: Any,
    *,
    reduce: str = "trace",
    block_size: int = 32,
) -> Float[Array, ""]:
    """Return |Θ|_F^2 exactly, from rows of Θ that are not kept.

    ``stochastic.squared_norm`` of a ``Product`` estimates it from a few products.

    Args:
        apply_fn: the network.
        params: any pytree.
        x: any pytree.
        reduce: one of ``REDUCTIONS``.
        block_size: rows at a time.

    Raises:
        ValueError: an unknown reduction, outputs that are no matrix.
    """
    checks.one_of("reduce", reduce, REDUCTIONS)
    outputs, flat, (n, c) = _jacobians.flattened(apply_fn, params, x)
    row = _jacobians.row_fn(outputs, flat, c, jnp.arange(n), reduce)
    return _sum_of_squares(row, n, block_size)


def _check_full(full: Array) -> None:
    """Refuse a kernel that is reduced over classes already.

    Raises:
        ValueError: it is.
    """
    if jnp.ndim(full) != 4 or full.shape[1] != full.shape[3]:
        got = jnp.shape(full)
        msg = f'a kernel of reduce="full" has shape (k, c, j, c), got {got}'
        raise ValueError(msg)


def _sum_of_squares(of: Callable[[Array], Array], n: int, block_size: int) -> Array:
    """Return Σ_i |of(i)|², some nodes at a time."""
    block_size = min(checks.count("block_size", block_size, 1), n)
    squares = jax.lax.map(
        lambda i: jnp.sum(of(i) ** 2), jnp.arange(n), batch_size=block_size
    )
    return jnp.sum(squares)


def _contracted(left: jax.Array, right: jax.Array, reduce: str, c: int) -> jax.Array:
    if reduce == "full":
        return jnp.einsum("kap,jbp->kajb", left, right, precision=_HIGHEST)
    product = jnp.einsum("kap,jap->kj", left, right, precision=_HIGHEST)
    return product if reduce == "sum" else product / c


def _by_products(
    outputs: Callable,
    flat: jax.Array,
    c: int,
    rows: jax.Array,
    columns: jax.Array,
    reduce: str,
    block_size: int,
) -> jax.Array:
    row = _jacobians.row_fn(outputs, flat, c, columns, reduce)
    return jax.lax.map(row, rows, batch_size=min(block_size, len(rows)))
