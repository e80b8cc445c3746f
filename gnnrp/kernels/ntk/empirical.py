"""Tangent kernel Θ = J J^T of any finite network with outputs (n, c), and its maps.

J_ik is the gradient of the k-th output of node i in all floating parameters; other
leaves, such as random keys, are constants. Of the c x c block of a pair of nodes,

    "full"    everything, (n, c, n, c), node-major;
    "trace"   Σ_k Θ_ik,jk / c, the usual reduction (and neural-tangents' default);
    "sum"     Σ_kl Θ_ik,jl, of the sum of logits: the kernel of the paper's figures;
    "pseudo"  the same over c, the pseudo-NTK.

All agree at infinite width; at width 16 the last differs from the trace by some 7
percent. Under softmax cross-entropy its direction, the sum of logits, has no gradient.

Source: Eq. 5; App. C.3 (whose pseudo-NTK lacks the 1 / c) and D.2.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy.typing as npt
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from gnnrp.runtime import arrays, checks

REDUCTIONS = ("full", "trace", "sum", "pseudo")
METHODS = ("auto", "contraction", "products")

ApplyFn = Callable[[Any, Any], Any]
"""(params, x) -> outputs (n, c)."""

_HIGHEST = jax.lax.Precision.HIGHEST
_STATIC = {"static": True}


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

    "contraction" multiplies Jacobians, which it holds: c numbers per parameter and
    node, or one for "sum". "products" pulls each row back and pushes it forward, and
    holds ``block_size`` of them at a time; its time does not depend on the columns.
    For GCNs, SGC, APPNP and MLPs, ``structured`` is far faster.

    Args:
        apply_fn: the network, pure, of (params, x).
        params: any pytree.
        x: any pytree.
        rows: nodes; all by default.
        columns: nodes; as ``rows`` by default.
        reduce: one of ``REDUCTIONS``.
        method: one of ``METHODS``; "auto" contracts if the Jacobians fit.
        block_size: rows at a time.
        max_bytes: of Jacobians and result.

    Raises:
        ValueError: unknown names, outputs that are not a matrix, node ids out of range,
            or a result that does not fit.

    Example:
        >>> import jax.numpy as jnp
        >>> linear = lambda W, x: x @ W
        >>> ntk(linear, jnp.ones((2, 3)), jnp.array([[1.0, 2.0]])).tolist()
        [[5.0]]
    """
    checks.one_of("method", method, METHODS)
    block_size = checks.count("block_size", block_size, 1)
    max_bytes = checks.count("max_bytes", max_bytes, 0, 2**62)
    network = _flatten(apply_fn, params, x, reduce)
    same = columns is None or columns is rows
    left = arrays.node_ids("rows", rows, network.num_nodes)
    right = left if same else arrays.node_ids("columns", columns, network.num_nodes)
    itemsize, c = network.flat.dtype.itemsize, network.num_outputs
    result = len(left) * len(right) * (c**2 if reduce == "full" else 1) * itemsize
    if result > max_bytes:
        msg = (
            f"the kernel takes {result / 1e9:.1f} GB and max_bytes allows "
            f"{max_bytes / 1e9:.1f}; take some rows and columns of it, or see Product"
        )
        raise ValueError(msg)
    if method == "auto":
        num_nodes = len(left) + (0 if same else len(right))
        num_gradients = num_nodes * network.num_covectors
        jacobians = num_gradients * network.flat.size * itemsize
        fits = jacobians + result <= max_bytes
        method = "contraction" if fits else "products"
    if method == "products":
        return _map(_row_fn(network, right), left, block_size)
    return _contract(network, left, None if same else right, block_size)


def over_nodes(full: Float[Array, "k c j c"]) -> Float[Array, "c c"]:
    """Return the mean of the full kernel over all pairs of nodes: class by class.

    Source: the paper's figure of NTK blocks.
    """
    _check_full(full)
    return jnp.mean(full, axis=(0, 2))


def over_classes(full: Float[Array, "k c j c"]) -> Float[Array, "k j"]:
    """Return the mean of the full kernel over all pairs of classes: node by node.

    It is "sum" over c^2, and not the "trace".

    Source: the paper's figure of NTK blocks.
    """
    _check_full(full)
    return jnp.mean(full, axis=(1, 3))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Product:
    """V -> Θ V, at the cost of a backward and a forward pass a column (or c of them).

    V has a row per node; of "full", a row per node and class, node-major.
    """

    apply_fn: ApplyFn = dataclasses.field(metadata=_STATIC)
    params: Any
    x: Any
    reduce: str = dataclasses.field(default="trace", metadata=_STATIC)
    block_size: int = dataclasses.field(default=8, metadata=_STATIC)  # columns at once

    is_symmetric = True

    def __call__(self, v: Float[Array, "q k"]) -> Float[Array, "q k"]:
        """Return Θ V."""
        block_size = checks.count("block_size", self.block_size, 1)
        network = _flatten(self.apply_fn, self.params, self.x, self.reduce)
        n, c = network.num_nodes, network.num_outputs
        num_rows = n * c if self.reduce == "full" else n
        if v.ndim != 2 or len(v) != num_rows:
            msg = f"V must have shape ({num_rows}, k), got {v.shape}"
            raise ValueError(msg)
        _, pull = jax.vjp(network.outputs_fn, network.flat)
        _, push = jax.linearize(network.outputs_fn, network.flat)

        def apply(w: Array) -> Array:
            return push(pull(w)[0])

        def column(w: Array) -> Array:
            if self.reduce == "full":
                return apply(w.reshape(n, c)).ravel()
            if self.reduce == "trace":
                units = jnp.eye(c, dtype=w.dtype)
                each = jax.lax.map(lambda e: apply(w[:, None] * e[None, :]) @ e, units)
                return jnp.mean(each, axis=0)
            total = jnp.sum(apply(jnp.tile(w[:, None], (1, c))), axis=1)
            return total / c if self.reduce == "pseudo" else total

        columns = v.astype(network.flat.dtype).T
        return jax.lax.map(column, columns, batch_size=block_size).T


class _Network(NamedTuple):
    """A network as a function of one vector of parameters."""

    outputs_fn: Callable[[Array], Array]
    flat: Float[Array, " p"]
    num_nodes: int
    num_outputs: int  # c
    reduce: str

    @property
    def num_covectors(self) -> int:
        """Number of gradients per node: one of the sum, or c."""
        return 1 if self.reduce in {"sum", "pseudo"} else self.num_outputs


def _flatten(apply_fn: ApplyFn, params: Any, x: Any, reduce: str) -> _Network:
    """Return the network as a function of its raveled floating parameters."""
    checks.one_of("reduce", reduce, REDUCTIONS)
    checks.function("apply_fn", apply_fn, "such as network.apply of params and x")
    leaves, structure = jax.tree.flatten(params)
    is_free = [_is_floating(leaf) for leaf in leaves]
    flat, unravel = ravel_pytree(list(itertools.compress(leaves, is_free)))
    if not flat.size:
        msg = f"params must hold floating numbers, got {checks.format_value(params)}"
        raise ValueError(msg)

    def outputs_fn(flat: Array) -> Any:
        free = iter(unravel(flat))
        pairs = zip(leaves, is_free, strict=True)
        merged = [next(free) if own else leaf for leaf, own in pairs]
        return apply_fn(jax.tree.unflatten(structure, merged), x)

    outputs: Any = jax.eval_shape(outputs_fn, flat)
    if not hasattr(outputs, "shape"):
        fix = "wrap it in a function that returns the outputs alone"
        kind = type(outputs).__name__
        msg = f"apply_fn must return one array (n, c), got {kind}; {fix}"
        raise TypeError(msg)
    if len(outputs.shape) != 2:
        msg = f"apply_fn must return a matrix (n, c), got shape {outputs.shape}"
        raise ValueError(msg)
    if not jnp.issubdtype(outputs.dtype, jnp.floating):
        msg = f"apply_fn must return real floating numbers, got {outputs.dtype}"
        raise TypeError(msg)
    num_nodes, c = outputs.shape
    return _Network(outputs_fn, flat, num_nodes, c, reduce)


def _is_floating(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        return isinstance(leaf, float)
    return jnp.issubdtype(dtype, jnp.floating)


def _gradients_fn(network: _Network) -> Callable[[Array], Array]:
    """Return i -> its gradients (s, p): of the sum of its outputs, or of each."""
    outputs, pull = jax.vjp(network.outputs_fn, network.flat)
    c, dtype = network.num_outputs, outputs.dtype
    is_sum = network.num_covectors == 1
    covectors = jnp.ones((1, c), dtype) if is_sum else jnp.eye(c, dtype=dtype)

    def gradients(node: Array) -> Array:
        def gradient(w: Array) -> Array:
            return pull(jnp.zeros(outputs.shape, dtype).at[node].set(w))[0]

        return jax.vmap(gradient)(covectors)

    return gradients


def _row_fn(network: _Network, columns: Array) -> Callable[[Array], Array]:
    """Return i -> Θ[i, columns], by pulling back and pushing forward."""
    _, push = jax.linearize(network.outputs_fn, network.flat)
    gradients_fn, c = _gradients_fn(network), network.num_outputs

    def row(node: Array) -> Array:
        changes = jax.vmap(push)(gradients_fn(node))[:, columns]  # (s, j, c)
        if network.reduce == "full":
            return changes
        if network.reduce == "trace":
            return jnp.einsum("kjk->j", changes) / c
        total = jnp.sum(changes[0], axis=1)
        return total / c if network.reduce == "pseudo" else total

    return row


def _contract(
    network: _Network, rows: Array, columns: Array | None, block_size: int
) -> Array:
    """Return Θ[rows, columns] as a product of Jacobians; of the rows if None."""
    gradients_fn = _gradients_fn(network)
    J = _map(gradients_fn, rows, block_size)
    K = J if columns is None else _map(gradients_fn, columns, block_size)
    if network.reduce == "full":
        return jnp.einsum("kap,jbp->kajb", J, K, precision=_HIGHEST)
    product = jnp.einsum("kap,jap->kj", J, K, precision=_HIGHEST)
    return product if network.reduce == "sum" else product / network.num_outputs


def _map(fn: Callable[[Array], Array], nodes: Array, block_size: int) -> Array:
    return jax.lax.map(fn, nodes, batch_size=min(block_size, len(nodes)))


def _check_full(full: Array) -> None:
    """Refuse a kernel that is not of reduce="full"."""
    if jnp.ndim(full) != 4 or full.shape[1] != full.shape[3]:
        got = jnp.shape(full)
        msg = f'a kernel of reduce="full" has shape (k, c, j, c), got {got}'
        raise ValueError(msg)
