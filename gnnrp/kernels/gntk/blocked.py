r"""The GNTK in blocks: two n x n arrays and little more, or shared by many devices.

A layer passes over its kernels twice, and overwrites each block with its result: over
columns, where K is symmetric, and then over rows,

    Y[:, C] = P (S[:, C]),            (Y P^T)[R, :] = (P Y[R, :]^T)^T,

with S = c_σ T(K) + β^2, and likewise for N. Under ``jit``, with its kernels donated, a
layer holds K, N and a few blocks. On a mesh each device works on n / p columns; between
the passes one all-to-all exchange turns columns into rows, for which a device holds
four to five arrays of n x n / p.

Source: Def. 4.1 (App. B.3), with a linear last layer; the same numbers as ``gntk.gcn``.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float

from gnnrp.kernels.gntk import network as networks
from gnnrp.kernels.gntk import recursion
from gnnrp.kernels.gntk.network import Network
from gnnrp.kernels.gntk.recursion import Kernels
from gnnrp.runtime import checks
from gnnrp.types import LinearMap

_WIDTH = 256  # columns of a block: its products fit the cache of a core


def layer(
    kernels: Kernels,
    propagation: LinearMap,
    network: Network,
    *,
    first: bool = False,
    trained: bool = True,
    ntk_only: bool = False,
    width: int = _WIDTH,
    axis: str | None = None,
) -> Kernels:
    """Apply a layer of a GCN, Z <- P φ(Z) W [+ b], in place where ``jit`` may.

    Args:
        kernels: of its inputs, symmetric.
        propagation: V -> P V.
        network: activation, scale and bias.
        first: whether it is the first layer, which has no activation.
        trained: τ, whether its weights and bias are trained.
        ntk_only: skip the products of K, and leave K unchanged.
        width: columns (and rows) of a block.
        axis: of a mesh, within ``shard_map``, over which the columns are shared.

    Raises:
        ValueError: c_σ or β out of range, or a width below 1.
        TypeError: not a ``Network``.

    Source: Def. 4.1 (App. B.3), one step of its recursion; see ``gntk``.
    """
    dtype = kernels.nngp.dtype
    networks.check(network, dtype)
    width = checks.count("width", width, 1)
    after = jnp.asarray(network.bias_after, dtype) ** 2
    variance = every_variance = _diagonal(kernels.nngp, axis)
    if axis is not None:
        every_variance = jax.lax.all_gather(variance, axis, tiled=True)

    def propagate(block: Kernels) -> Kernels:
        if ntk_only:
            return block._replace(ntk=propagation(block.ntk))
        # One product for both: otherwise XLA may write K while N still reads it, and
        # copies all of K before, for each block.
        both = propagation(jnp.concatenate(block, axis=1))
        return Kernels(*jnp.split(both, 2, axis=1))

    def multiply_left(block: Kernels, start: Any) -> Kernels:
        if not first:
            own = jax.lax.dynamic_slice_in_dim(variance, start, block.nngp.shape[1])
            phi, variances = network.activation, (every_variance, own)
            block = recursion.transform(
                block, phi, scale=network.scale, variances=variances
            )
        block = recursion.dense(block, bias_std=network.bias_before, trained=trained)
        return propagate(block)

    def multiply_right(block: Kernels, _start: Any) -> Kernels:
        block = propagate(jax.tree.map(jnp.transpose, block))
        nngp, ntk = jax.tree.map(jnp.transpose, block)
        return Kernels(nngp + after, ntk + after if trained else ntk)

    kernels = _sweep(multiply_left, kernels, axis=1, width=width, ntk_only=ntk_only)
    if axis is not None:
        # The columns of each device become as many rows.
        exchange = functools.partial(
            jax.lax.all_to_all, axis_name=axis, split_axis=0, concat_axis=1, tiled=True
        )
        kernels = jax.tree.map(exchange, kernels)
    kernels = _sweep(multiply_right, kernels, axis=0, width=width, ntk_only=ntk_only)
    # Symmetric: columns again.
    return kernels if axis is None else jax.tree.map(jnp.transpose, kernels)


def gcn(
    propagation: LinearMap,
    gram: Float[Array, "n n"],
    network: Network,
    *,
    width: int = _WIDTH,
    mesh: Mesh | None = None,
) -> Kernels:
    """Return the kernels of ``gntk.gcn``, in blocks; arguments and errors are as there.

    Donate the Gram matrix to ``jit`` where it is not needed again. Blocks have
    ``width`` columns or rows. The devices of a ``mesh`` of one axis share the columns,
    and each holds P; if n is no multiple of their number, so is the result.

    Source: Def. 4.1 (App. B.3), with a linear last layer.
    """
    checks.linear_map("the propagation", propagation)
    gram = recursion.square_gram(gram)
    # A function object of its own: JAX caches traces by function object.
    gram = gram.astype(jax.eval_shape(lambda v: propagation(v), gram).dtype)
    networks.check(network, gram.dtype)

    def all_layers(propagation: LinearMap, gram: Array, axis: str | None) -> Kernels:
        kernels = recursion.initialize(gram)
        for number, trained in enumerate(network.trained):
            kernels = layer(
                kernels,
                propagation,
                network,
                first=number == 0,
                trained=trained,
                width=width,
                axis=axis,
            )
        return kernels

    if mesh is None:
        return all_layers(propagation, gram, None)
    checks.instance("mesh", mesh, Mesh, 'Mesh(jax.devices(), ("n",)) makes one')
    return _on_mesh(all_layers, propagation, gram, mesh)


def _diagonal(nngp: Array, axis: str | None) -> Array:
    """Return K_ii of the nodes whose columns this device holds."""
    if axis is None:
        return jnp.diagonal(nngp)
    num_columns = nngp.shape[1]
    start = jax.lax.axis_index(axis) * num_columns
    return jnp.diagonal(jax.lax.dynamic_slice_in_dim(nngp, start, num_columns))


def _sweep(
    block_fn: Any, kernels: Kernels, *, axis: int, width: int, ntk_only: bool
) -> Kernels:
    """Overwrite each block of rows (0) or columns (1) with block_fn(block, start)."""
    size = kernels.ntk.shape[axis]
    width = min(width, max(size, 1))

    def write(start: Any, width: int, kernels: Kernels) -> Kernels:
        block = jax.tree.map(
            lambda kernel: jax.lax.dynamic_slice_in_dim(kernel, start, width, axis),
            kernels,
        )
        nngp, ntk = jax.tree.map(
            lambda kernel, part: jax.lax.dynamic_update_slice_in_dim(
                kernel, part, start, axis
            ),
            kernels,
            block_fn(block, start),
        )
        # Later blocks read the unchanged K; its own new blocks are compiled away.
        return Kernels(kernels.nngp if ntk_only else nngp, ntk)

    kernels = jax.lax.fori_loop(
        0, size // width, lambda i, kernels: write(i * width, width, kernels), kernels
    )
    rest = size % width
    return write(size - rest, rest, kernels) if rest else kernels


def _on_mesh(
    all_layers: Callable[..., Kernels], propagation: LinearMap, gram: Array, mesh: Mesh
) -> Kernels:
    """Apply all layers to columns shared by the devices of a mesh of one axis."""
    if len(mesh.axis_names) != 1:
        msg = f"the mesh must have one axis, got {mesh.axis_names}"
        raise ValueError(msg)
    (axis,), num_nodes = mesh.axis_names, len(gram)
    mesh = Mesh(mesh.devices, mesh.axis_names)  # of automatic axes, which gram may lack
    missing = -num_nodes % mesh.size  # nodes without inputs or edges

    def pad(v: Array) -> Array:
        return jnp.pad(propagation(v[:num_nodes]), ((0, missing), (0, 0)))

    columns = PartitionSpec(None, axis)
    kernels = jax.shard_map(
        lambda gram: all_layers(pad, gram, axis),
        mesh=mesh,
        in_specs=columns,
        out_specs=columns,
        check_vma=False,  # the sparse product has no rule for it
    )(jnp.pad(gram, ((0, missing), (0, missing))))
    return Kernels(*(kernel[:num_nodes, :num_nodes] for kernel in kernels))
