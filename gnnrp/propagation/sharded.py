"""A sparse matrix whose rows are shared by the devices of a mesh, as a linear map.

Each device holds a range of rows, about as many entries as any other, and as many rows
of what is multiplied. Before a hop it receives what it lacks: the rows that its entries
name and others hold (an exchange of halos), or simply all of them, whichever is less.

Rows are laid out with blanks, so that every device has as many; ``spread`` and
``collected`` lead there and back. A blank row is a node without edges, in no mask, so
that RP, Krylov spaces and closed forms run on these arrays as they are.

    layout = sharded.balanced(adjacency, mesh.size)
    matrix = sharded.prepare(adjacency, layout, mesh)
    y = sharded.collected(layout, matrix(sharded.spread(layout, x, mesh)))
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Shaped

from gnnrp import _checks, spmm
from gnnrp.propagation.layouts import Layout as Layout
from gnnrp.propagation.layouts import balanced as balanced

EXCHANGES = ("auto", "halo", "gather")


class Halo(NamedTuple):
    """What each part lacks, in the rows of a layout."""

    needed: list[list[Int[np.ndarray, " h"]]]  # by part, of each part: its rows
    most: int  # rows between two parts, at most


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Matrix:
    """V -> A V for V in a layout, each device with its rows; made by ``prepare``."""

    leaves: tuple[Shaped[Array, "p ..."], ...]  # of an ``spmm.Matrix`` a device
    send: Int[Array, "p p h"] | None  # own rows that each other takes; None: all do all
    structure: Any = dataclasses.field(metadata={"static": True})  # of the leaves
    rows: int = dataclasses.field(metadata={"static": True})  # of a device
    mesh: Mesh = dataclasses.field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, blanks included."""
        size = self.mesh.size * self.rows
        return size, size

    def __call__(self, v: jax.Array) -> jax.Array:
        """Return A V, for V of shape (n, k) or (n,).

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
            if send is None:
                received = jax.lax.all_gather(own, axis, tiled=True)
            else:
                halo = jax.lax.all_to_all(own[send[0]], axis, 0, 0)
                received = jnp.concatenate([own, halo.reshape(-1, own.shape[1])])
            # The last column is where zeros are stored that make devices alike.
            return spmm.matmul(local, jnp.pad(received, ((0, 1), (0, 0))))

        found = jax.shard_map(
            product,
            mesh=self.mesh,
            in_specs=rows,
            out_specs=rows,
            check_vma=False,  # the sparse product has no rule for it
        )(self.leaves, self.send, columns)
        return found[:, 0] if v.ndim == 1 else found


def halos(adjacency: Any, layout: Layout) -> Halo:
    """Return the rows that each part takes from each other at a hop."""
    return _halos(_placed(adjacency, layout), layout)


def prepare(
    adjacency: Any, layout: Layout, mesh: Mesh, *, exchange: str = "auto"
) -> Matrix:
    """Lay a square matrix out for the devices of a mesh, once, on the host.

    Args:
        adjacency: A, BCOO or scipy sparse.
        layout: from ``layouts``, of as many parts as the mesh has devices.
        mesh: of one axis.
        exchange: "halo": what is lacked; "gather": all rows; "auto": what moves less.

    Raises:
        ValueError: a mesh of several axes or of another size; an unknown exchange.
    """
    _checks.one_of("exchange", exchange, EXCHANGES)
    if mesh.devices.shape != (layout.parts,):
        msg = (
            f"the mesh must have one axis of {layout.parts} devices, as the layout has "
            f"parts, got {mesh.devices.shape}"
        )
        raise ValueError(msg)
    mesh = _automatic(mesh)
    csr = _placed(adjacency, layout)
    halo = _halos(csr, layout)
    others = layout.parts * layout.rows
    gather = exchange == "gather" or (
        exchange == "auto" and layout.parts * halo.most >= others - layout.rows
    )
    blocks = []
    for part in range(layout.parts):
        block = csr[part * layout.rows : (part + 1) * layout.rows]
        width = others
        if not gather:
            block.indices = _received(block.indices, halo, layout, part)
            block.sort_indices()
            width = layout.rows + layout.parts * halo.most
        blocks.append((block, width + 1))
    leaves, structure = _stacked(blocks)
    send = None if gather else _sent(halo, layout)
    leaves = tuple(_on_devices(leaf, mesh) for leaf in leaves)
    send = None if send is None else _on_devices(send, mesh)
    return Matrix(leaves, send, structure, layout.rows, mesh)


def spread(
    layout: Layout, values: Shaped[np.ndarray, "n ..."], mesh: Mesh, *, fill: Any = 0
) -> Shaped[Array, "m ..."]:
    """Return values of all nodes in a layout, each device with its rows.

    Args:
        layout: see ``balanced``.
        values: of all nodes.
        mesh: of as many devices as the layout has parts.
        fill: of blank rows.
    """
    values = np.asarray(values)
    shape = (layout.parts * layout.rows, *values.shape[1:])
    placed = np.full(shape, fill, values.dtype)
    placed[layout.place] = values
    return _on_devices(placed, _automatic(mesh))


def collected(
    layout: Layout, placed: Shaped[Array, "m ..."]
) -> Shaped[np.ndarray, "n ..."]:
    """Return the values of all nodes, in their own order, on the host.

    Where several processes share the rows, every one gets all of them.
    """
    if not placed.is_fully_addressable:
        placed = multihost_utils.process_allgather(placed, tiled=True)
    return np.asarray(placed)[layout.place]


def _on_devices(stacked: Shaped[np.ndarray, "m ..."], mesh: Mesh) -> jax.Array:
    """Return an array of which each device holds its rows; a process gives its own."""
    shared = NamedSharding(mesh, PartitionSpec(*mesh.axis_names))
    return jax.make_array_from_callback(stacked.shape, shared, lambda at: stacked[at])


def _automatic(mesh: Mesh) -> Mesh:
    """Return the mesh with axes whose shardings the compiler derives."""
    return Mesh(mesh.devices, mesh.axis_names)


def _placed(adjacency: Any, layout: Layout) -> scipy.sparse.csr_array:
    """Return the matrix between the rows of a layout.

    Raises:
        ValueError: a matrix of another size.
    """
    coo = spmm.to_scipy(adjacency).tocoo()
    num_nodes = len(layout.place)
    if coo.shape != (num_nodes, num_nodes):
        msg = f"the layout is of {num_nodes} nodes, the matrix of shape {coo.shape}"
        raise ValueError(msg)
    size = layout.parts * layout.rows
    where = (layout.place[coo.row], layout.place[coo.col])
    csr = scipy.sparse.coo_array((coo.data, where), shape=(size, size)).tocsr()
    csr.sort_indices()
    return csr


def _halos(csr: scipy.sparse.csr_array, layout: Layout) -> Halo:
    borders = np.arange(layout.parts + 1) * layout.rows
    needed = []
    for part in range(layout.parts):
        block = slice(*csr.indptr[[borders[part], borders[part + 1]]])
        columns = np.unique(csr.indices[block])
        mine = (columns >= borders[part]) & (columns < borders[part + 1])
        foreign = columns[~mine]
        needed.append(np.split(foreign, np.searchsorted(foreign, borders[1:-1])))
    return Halo(needed, max(len(rows) for each in needed for rows in each))


def _received(
    columns: Int[np.ndarray, " e"], halo: Halo, layout: Layout, part: int
) -> Int[np.ndarray, " e"]:
    """Return where each column stands: among the own rows, or in what is received."""
    foreign = np.concatenate(halo.needed[part])
    owner = foreign // layout.rows
    first = np.searchsorted(foreign, np.arange(layout.parts) * layout.rows)
    stands = layout.rows + owner * halo.most + np.arange(len(foreign)) - first[owner]
    found = columns - part * layout.rows
    outside = (found < 0) | (found >= layout.rows)
    found[outside] = stands[np.searchsorted(foreign, columns[outside])]
    return found


def _sent(halo: Halo, layout: Layout) -> Int[np.ndarray, "p p h"]:
    """Return which of its rows each part sends to each, blanks the first one."""
    send = np.zeros((layout.parts, layout.parts, halo.most), np.int32)
    for receiver, each in enumerate(halo.needed):
        for sender, rows in enumerate(each):
            send[sender, receiver, : len(rows)] = rows - sender * layout.rows
    return send


def _stacked(blocks: list[tuple[scipy.sparse.csr_array, int]]) -> Any:
    """Return the leaves of a matrix a block, of as many entries, stacked; and what of.

    The entries that some lack are zeros of the last row and column.
    """
    most = max(block.nnz for block, _ in blocks)
    flat = []
    for block, width in blocks:
        pointers, missing = block.indptr.copy(), most - block.nnz
        pointers[-1] += missing
        parts = (
            np.pad(block.data, (0, missing)),
            np.pad(block.indices, (0, missing), constant_values=width - 1),
            pointers,
        )
        csr = scipy.sparse.csr_array(parts, (block.shape[0], width))
        flat.append(jax.tree.flatten(spmm.as_stored(csr)))
    leaves = tuple(
        np.stack(leaf) for leaf in zip(*(each for each, _ in flat), strict=True)
    )
    return leaves, flat[0][1]
