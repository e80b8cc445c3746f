"""A sparse matrix whose rows are distributed over the devices of a mesh.

Each device holds a range of rows and the same rows of the operand (``spread``). Before
a hop it receives the rows that its entries need (its halo), or all if they are fewer.

    layout = partitioning.balance(adjacency, mesh.size)
    A = sharded_matrix.prepare(adjacency, layout, mesh)
    y = sharded_matrix.gather(layout, A(sharded_matrix.spread(layout, x, mesh)))
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Shaped

from gnnrp import sparse
from gnnrp.distributed import partitioning
from gnnrp.distributed.partitioning import Halo, Layout, Round
from gnnrp.runtime import checks

EXCHANGES = ("auto", "halo", "gather")


class Block(NamedTuple):
    """A CSR matrix between the rows of a part and those it receives; rows to send."""

    data: Shaped[np.ndarray, " e"]
    indices: Int[np.ndarray, " e"]
    pointers: Int[np.ndarray, " m"]
    width: int  # columns; the last one holds the zeros that pad all parts alike
    send: Int[np.ndarray, " h"] | None  # see ``Matrix``


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Matrix:
    """V -> A V for V in a layout; made by ``prepare``."""

    leaves: tuple[Shaped[Array, "p ..."], ...]  # of a ``sparse.Matrix`` per device
    send: Int[Array, "p h"] | None  # own rows by round; None: all go to all
    rounds: tuple[Round, ...] | None = dataclasses.field(metadata={"static": True})
    structure: Any = dataclasses.field(metadata={"static": True})  # of the leaves
    rows: int = dataclasses.field(metadata={"static": True})  # of a device
    mesh: Mesh = dataclasses.field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, blanks included."""
        size = self.mesh.size * self.rows
        return size, size

    def __call__(self, v: jax.Array) -> jax.Array:
        """Return A V, for V of shape (n, k) or (n,) with blanks.

        Raises:
            ValueError: V has another number of rows.
        """
        if v.shape[:1] != self.shape[:1]:
            msg = f"V must have {self.shape[0]} rows, as spread gives it, got {v.shape}"
            raise ValueError(msg)
        (axis,) = self.mesh.axis_names
        rows = PartitionSpec(axis)
        columns = v[:, None] if v.ndim == 1 else v

        def product(leaves: Any, send: Any, own: Array) -> Array:
            local = jax.tree.unflatten(self.structure, [leaf[0] for leaf in leaves])
            received, start = [own], 0
            for pairs, num_rows in self.rounds or ():
                sent = own[send[0, start : start + num_rows]]
                received.append(jax.lax.ppermute(sent, axis, pairs))
                start += num_rows
            if self.rounds is None:
                received = [jax.lax.all_gather(own, axis, tiled=True)]
            # The last column holds the zeros that pad all parts alike.
            received.append(jnp.zeros((1, own.shape[1]), own.dtype))
            return sparse.matmul(local, jnp.concatenate(received))

        result = jax.shard_map(
            product,
            mesh=self.mesh,
            in_specs=rows,
            out_specs=rows,
            check_vma=False,  # the sparse product has no rule for it
        )(self.leaves, self.send, columns)
        return result[:, 0] if v.ndim == 1 else result


def prepare(
    adjacency: Any, layout: Layout, mesh: Mesh, *, exchange: str = "auto"
) -> Matrix:
    """Distribute a square matrix over the devices of a mesh, once, on the host.

    Args:
        adjacency: A, BCOO or scipy sparse.
        layout: from ``partitioning``, of as many parts as the mesh has devices.
        mesh: of one axis.
        exchange: "halo": needed rows; "gather": all rows; "auto": the fewer of them.

    Raises:
        ValueError: a mesh of several axes or of another size; an unknown exchange.
        TypeError: not a layout, a mesh, or a sparse matrix.
    """
    checks.instance("layout", layout, Layout, "partitioning.balance makes one")
    checks.instance("mesh", mesh, Mesh, 'Mesh(jax.devices(), ("nodes",)) makes one')
    if mesh.devices.shape != (layout.parts,):
        msg = (
            f"the mesh must have one axis of {layout.parts} devices, one for each "
            f"part of the layout, got {mesh.devices.shape}"
        )
        raise ValueError(msg)
    of_parts, rounds = blocks(adjacency, layout, exchange=exchange)
    return assemble(of_parts.__getitem__, layout.rows, rounds, mesh)


def blocks(
    adjacency: Any, layout: Layout, *, exchange: str = "auto"
) -> tuple[list[Block], tuple[Round, ...] | None]:
    """Return the block of each part, on the host, and rounds; None: all go to all."""
    checks.one_of("exchange", exchange, EXCHANGES)
    csr = partitioning.layout_matrix(adjacency, layout)
    halo = partitioning.layout_halos(csr, layout)
    others = (layout.parts - 1) * layout.rows
    gather = exchange == "gather" or (exchange == "auto" and halo.received >= others)
    send = [None] * layout.parts if gather else _rows_to_send(halo, layout)
    width = layout.rows + (others if gather else halo.received)
    most = int(np.diff(csr.indptr[:: layout.rows]).max())
    result = []
    for part in range(layout.parts):
        block = csr[part * layout.rows : (part + 1) * layout.rows]
        if not gather:
            block.indices = _local_columns(block.indices, halo, layout, part)
            block.sort_indices()
        result.append(Block(*_pad(block, width, most), width + 1, send[part]))
    return result, None if gather else halo.rounds


def assemble(
    read: Callable[[int], Block],
    rows: int,
    rounds: tuple[Round, ...] | None,
    mesh: Mesh,
) -> Matrix:
    """Return a matrix, of which each process reads the blocks of its own devices."""
    mesh = _automatic(mesh)
    parts, own = own_parts(mesh), []
    for part in parts:
        data, indices, pointers, width, send = read(part)
        csr = scipy.sparse.csr_array((data, indices, pointers), (rows, width))
        leaves, structure = jax.tree.flatten(sparse.from_csr(csr))
        own.append((tuple(leaves), send))

    def stack(*shards: Any) -> Array:
        stacked = [np.asarray(shard)[None] for shard in shards]
        return concatenate(dict(zip(parts, stacked, strict=True)), mesh)

    leaves, send = jax.tree.map(stack, *own)
    return Matrix(leaves, send, rounds, structure, rows, mesh)


def own_parts(mesh: Mesh) -> list[int]:
    """Return the parts of the devices of this process."""
    here = jax.process_index()
    return [i for i, d in enumerate(mesh.devices.flat) if d.process_index == here]


def concatenate(
    shards: dict[int, Shaped[np.ndarray, "..."]], mesh: Mesh, axis: int = 0
) -> Shaped[Array, "..."]:
    """Return an array of a shard for each part, from those of this process."""
    shape = list(next(iter(shards.values())).shape)
    rows = shape[axis]
    shape[axis] *= mesh.size
    return jax.make_array_from_callback(
        tuple(shape),
        _sharding(mesh, axis),
        lambda at: shards[(at[axis].start or 0) // rows],
    )


def spread(
    layout: Layout,
    values: Shaped[np.ndarray, "..."],
    mesh: Mesh,
    *,
    fill: Any = 0,
    axis: int = 0,
) -> Shaped[Array, "..."]:
    """Distribute values of all nodes over the devices of a mesh.

    Args:
        layout: from ``partitioning``, of as many parts as the mesh has devices.
        values: of all nodes.
        mesh: of one axis.
        fill: value of blank rows.
        axis: of the nodes; the last one for masks of several splits.

    Raises:
        ValueError: not a value for each node, or another number of devices.
        TypeError: not a layout.
    """
    checks.instance("layout", layout, Layout, "partitioning.balance makes one")
    checks.no_masked_entries("values", values)
    values = np.asarray(values)
    axis = checks.count("axis", axis, -values.ndim, values.ndim - 1) % values.ndim
    shape = list(values.shape)
    if shape[axis] != len(layout.place):
        msg = f"values must have {len(layout.place)} nodes on axis {axis}, got {shape}"
        raise ValueError(msg)
    if mesh.size != layout.parts:
        msg = f"the layout has {layout.parts} parts, and the mesh {mesh.size} devices"
        raise ValueError(msg)
    shape[axis] = layout.parts * layout.rows
    placed = np.full(shape, fill, values.dtype)
    placed[(slice(None),) * axis + (layout.place,)] = values
    sharding = _sharding(_automatic(mesh), axis)
    return jax.make_array_from_callback(placed.shape, sharding, placed.__getitem__)


def gather(
    layout: Layout, placed: Shaped[Array, "m ..."]
) -> Shaped[np.ndarray, "n ..."]:
    """Return the values of all nodes, in their own order, on the host of each process.

    Args:
        layout: that of the values.
        placed: values over the devices, as from ``spread``.

    Raises:
        ValueError: another number of rows.
        TypeError: not a layout.
    """
    checks.instance("layout", layout, Layout, "partitioning.balance makes one")
    checks.rows("placed", placed, layout.parts * layout.rows)
    placed = jnp.asarray(placed)
    if not placed.is_fully_addressable:
        placed = multihost_utils.process_allgather(placed, tiled=True)
    return np.asarray(placed)[layout.place]


def _sharding(mesh: Mesh, axis: int) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, *mesh.axis_names))


def _automatic(mesh: Mesh) -> Mesh:
    # The compiler derives the shardings of its axes.
    return Mesh(mesh.devices, mesh.axis_names)


def _local_columns(
    columns: Int[np.ndarray, " e"], halo: Halo, layout: Layout, part: int
) -> Int[np.ndarray, " e"]:
    """Return columns among own and received rows."""
    place = np.zeros(layout.parts, np.int64)  # of the first row from each part
    for (source, to), start in halo.starts.items():
        if to == part:
            place[source] = layout.rows + start
    foreign = np.concatenate(halo.needed[part])
    owner = foreign // layout.rows
    first = np.searchsorted(foreign, np.arange(layout.parts) * layout.rows)
    received = place[owner] + np.arange(len(foreign)) - first[owner]
    local = columns - part * layout.rows
    outside = (local < 0) | (local >= layout.rows)
    local[outside] = received[np.searchsorted(foreign, columns[outside])]
    return local


def _rows_to_send(halo: Halo, layout: Layout) -> Int[np.ndarray, "p h"]:
    """Return the rows that each part sends, by round, padded with the first one."""
    send = np.zeros((layout.parts, halo.received), np.int32)
    for (source, to), start in halo.starts.items():
        rows = halo.needed[to][source] - source * layout.rows
        send[source, start : start + len(rows)] = rows
    return send


def _pad(
    block: scipy.sparse.csr_array, width: int, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pad with zeros of the last row and column to the most entries of any part."""
    pointers, missing = block.indptr.copy(), most - block.nnz
    pointers[-1] += missing
    indices = np.pad(block.indices, (0, missing), constant_values=width)
    return np.pad(block.data, (0, missing)), indices, pointers
