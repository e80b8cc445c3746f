r"""The GNTK in blocks: two n x n arrays and little more, or shared by many devices.

``gntk`` makes new arrays at each step and holds up to six of them. Here a layer passes
over its kernels twice, and each block is written over what it came from: over columns,
where K is symmetric, and then over rows,

    Y[:, C] = P (S[:, C]),            (Y P^T)[R, :] = (P Y[R, :]^T)^T,

with S = c_σ T(K) + β^2, and likewise for N. Under ``jit``, with its kernels donated, a
layer holds K, N and a few blocks. On a mesh each device works on n / p columns; between
the passes one all-to-all exchange turns columns into rows, for which a device holds
four to five arrays of n x n / p.

Source: Def. 4.1 (App. B.3), with a linear last layer; the same numbers as ``gntk.gcn``.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float

from gnnrp.kernels.gntk import activations, recursion
from gnnrp.kernels.gntk.activations import Activation
from gnnrp.kernels.gntk.recursion import Kernels
from gnnrp.runtime import arrays, checks
from gnnrp.types import LinearMap, Scalar

_WIDTH = 256  # columns of a block: its products fit the cache of a core


def layer(
    kernels: Kernels,
    propagation: LinearMap,
    *,
    activation: Activation | None = activations.RELU,
    scale: Scalar | None = None,
    bias: str = "none",
    bias_std: Scalar = 1.0,
    trained: bool = True,
    last: bool = False,
    width: int = _WIDTH,
    axis: str | None = None,
) -> Kernels:
    """Apply a layer of a GCN, Z <- P φ(Z) W [+ b], in place where ``jit`` may.

    Args:
        kernels: of its inputs, symmetric.
        propagation: V -> P V.
        activation: φ; None for the first layer, which has none.
        scale: c_σ; that of the activation if left out.
        bias: "none", or "before" or "after" the aggregation.
        bias_std: β; not used without a bias.
        trained: whether its weights and bias are, τ.
        last: K will not be asked for: its products are saved, and what comes back in
            its place has no meaning.
        width: columns (and rows) that pass at once.
        axis: of a mesh, within ``shard_map``, over which the columns are shared.

    Raises:
        ValueError: an unknown bias, a β out of range, or a width below 1.

    Source: Def. 4.1 (App. B.3), one step of its recursion; see ``gntk``.
    """
    checks.one_of("bias", bias, recursion.BIASES)
    width = checks.count("width", width, 1)
    recursion.check_bias(bias_std, kernels.nngp.dtype)
    before = bias_std if bias == "before" else 0.0
    after = jnp.asarray(bias_std if bias == "after" else 0.0, kernels.nngp.dtype) ** 2
    variance = everyone = _own_variances(kernels.nngp, axis)
    if axis is not None:
        everyone = jax.lax.all_gather(variance, axis, tiled=True)

    def left(block: Kernels, start: Any) -> Kernels:
        if activation is not None:
            own = jax.lax.dynamic_slice_in_dim(variance, start, block.nngp.shape[1])
            sides = (everyone, own)
            block = recursion.transform(block, activation, scale=scale, variances=sides)
        block = recursion.dense(block, bias_std=before, trained=trained)
        return sent(block)

    def right(block: Kernels, _start: Any) -> Kernels:
        nngp, ntk = (kernel.T for kernel in sent(Kernels(*(k.T for k in block))))
        return Kernels(nngp + after, ntk + after if trained else ntk)

    def sent(block: Kernels) -> Kernels:
        if last:
            return block._replace(ntk=propagation(block.ntk))
        # One product, of which both depend: else XLA may write K while N still reads
        # it, and copies all of K before, for each block.
        both = propagation(jnp.concatenate(block, axis=1))
        return Kernels(*jnp.split(both, 2, axis=1))

    kernels = _swept(left, kernels, axis=1, width=width, last=last)
    if axis is not None:
        kernels = _exchanged(kernels, axis)
    kernels = _swept(right, kernels, axis=0, width=width, last=last)
    if axis is None:
        return kernels
    return Kernels(*(kernel.T for kernel in kernels))  # symmetric: columns again


def gcn(
    propagation: LinearMap,
    gram: Float[Array, "n n"],
    *,
    depth: int,
    activation: Activation = activations.RELU,
    scale: Scalar | None = None,
    bias: str = "none",
    bias_std: Scalar = 1.0,
    trained: Sequence[bool] | None = None,
    width: int = _WIDTH,
    mesh: Mesh | None = None,
) -> Float[Array, "n n"]:
    """Return the NTK of ``gntk.gcn``, in blocks.

    Args:
        propagation: V -> P V, at every layer.
        gram: X X^T of the inputs; donate it to ``jit`` where it is not needed again.
        depth: L, weight matrices, at least 1.
        activation: φ, between layers.
        scale: c_σ; that of the activation if left out.
        bias: "none", or "before" or "after" the aggregation.
        bias_std: β; not used without a bias.
        trained: which layers are, from the first; all if left out.
        width: columns (and rows) that pass at once.
        mesh: of one axis, over whose devices the columns are shared. The matrix P is on
            each of them; if n is no multiple of their number, so is the result.

    Raises:
        ValueError: a depth or width below 1, an unknown bias, not one flag a layer, a
            gram matrix that is not square, or a mesh of several axes.
        TypeError: what is no linear map, activation, matrix or mesh.

    Source: Def. 4.1 (App. B.3), with a linear last layer.
    """
    flags = recursion.checked_layers(depth, trained)
    recursion.checked_activation(activation, scale)
    checks.linear_map("the propagation", propagation)
    gram = arrays.floating("gram", gram)
    checks.square("gram", gram)
    # A function object of its own: JAX keeps the trace of the one that it was given.
    dtype = jax.eval_shape(lambda v: propagation(v), gram).dtype
    gram = gram.astype(dtype)
    apply = functools.partial(
        layer, scale=scale, bias=bias, bias_std=bias_std, width=width
    )

    def all_layers(propagation: LinearMap, gram: Array, axis: str | None) -> Array:
        kernels = recursion.initialize(gram)
        for at, flag in enumerate(flags):
            kernels = apply(
                kernels,
                propagation,
                activation=activation if at > 0 else None,
                trained=flag,
                last=at == depth - 1,
                axis=axis,
            )
        return kernels.ntk

    if mesh is None:
        return all_layers(propagation, gram, None)
    checks.instance("mesh", mesh, Mesh, 'Mesh(jax.devices(), ("n",)) makes one')
    return _sharded(all_layers, propagation, gram, mesh)


def _own_variances(nngp: Array, axis: str | None) -> Array:
    """Return K_ii of the nodes whose columns this device holds."""
    if axis is None:
        return jnp.diagonal(nngp)
    num_columns = nngp.shape[1]
    start = jax.lax.axis_index(axis) * num_columns
    return jnp.diagonal(jax.lax.dynamic_slice_in_dim(nngp, start, num_columns))


def _swept(
    fn: Callable[[Kernels, Any], Kernels],
    kernels: Kernels,
    *,
    axis: int,
    width: int,
    last: bool,
) -> Kernels:
    """Write fn(block, where it starts) over each block of rows (0) or columns (1)."""
    size = kernels.ntk.shape[axis]
    width = min(width, max(size, 1))

    def at(start: Any, width: int, kernels: Kernels) -> Kernels:
        block = Kernels(
            *(
                jax.lax.dynamic_slice_in_dim(kernel, start, width, axis)
                for kernel in kernels
            )
        )
        nngp, ntk = (
            jax.lax.dynamic_update_slice_in_dim(kernel, part, start, axis)
            for kernel, part in zip(kernels, fn(block, start), strict=True)
        )
        # K stays what it was, for the blocks to come, and its own are compiled away.
        return Kernels(kernels.nngp if last else nngp, ntk)

    kernels = jax.lax.fori_loop(
        0, size // width, lambda i, kernels: at(i * width, width, kernels), kernels
    )
    rest = size % width
    return at(size - rest, rest, kernels) if rest else kernels


def _exchanged(kernels: Kernels, axis: str) -> Kernels:
    """Turn the columns that each device holds into as many rows."""
    return Kernels(
        *(
            jax.lax.all_to_all(kernel, axis, split_axis=0, concat_axis=1, tiled=True)
            for kernel in kernels
        )
    )


def _sharded(
    all_layers: Callable[[LinearMap, Array, str | None], Array],
    propagation: LinearMap,
    gram: Array,
    mesh: Mesh,
) -> Array:
    """Apply all layers to columns shared by the devices of a mesh.

    Raises:
        ValueError: a mesh of several axes.
    """
    if len(mesh.axis_names) != 1:
        msg = f"the mesh must have one axis, got {mesh.axis_names}"
        raise ValueError(msg)
    (axis,), num_nodes = mesh.axis_names, len(gram)
    mesh = Mesh(mesh.devices, mesh.axis_names)  # of automatic axes, which gram may lack
    missing = -num_nodes % mesh.size  # nodes without inputs or edges

    def padded(v: Array) -> Array:
        return jnp.pad(propagation(v[:num_nodes]), ((0, missing), (0, 0)))

    columns = PartitionSpec(None, axis)
    found = jax.shard_map(
        lambda gram: all_layers(padded, gram, axis),
        mesh=mesh,
        in_specs=columns,
        out_specs=columns,
        check_vma=False,  # the sparse product has no rule for it
    )(jnp.pad(gram, ((0, missing), (0, missing))))
    return found[:num_nodes, :num_nodes]
