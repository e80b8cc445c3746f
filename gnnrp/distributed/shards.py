"""A graph cut into parts on disk, each read by the process that computes with it.

``write`` cuts a data set once, on one machine. ``read`` gives every process, of however
many that JAX's distributed runtime joins, the rows of its own devices. There is one
device a part.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int

from gnnrp import datasets, graph
from gnnrp.datasets import Dataset
from gnnrp.distributed import _files, _part_nodes, partitioning
from gnnrp.distributed import borders as _borders
from gnnrp.distributed import matrix as sharded
from gnnrp.distributed.partitioning import Layout, Round
from gnnrp.runtime import checks
from gnnrp.types import Split


class Shards(NamedTuple):
    """A graph over the devices of a mesh, and what is known of its nodes."""

    name: str
    metric: str
    files: dict[str, str]  # of the data set, with their SHA-256
    matrix: sharded.Matrix  # A
    targets: jax.Array  # (n, c), rows shared
    splits: Any  # a ``Split`` of (s, n), nodes shared
    digest: str  # of the table of contents


def write(
    folder: Path,
    dataset: Dataset,
    num_parts: int,
    *,
    part: Int[np.ndarray, " n"] | None = None,
    exchange: str = "auto",
    reorder: bool = True,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Cut a data set into parts of about as many entries; return what they hold.

    An unfinished folder is none, and is written anew.

    Args:
        folder: new or empty; a file for each part.
        dataset: see ``datasets.load``; features are left out.
        num_parts: devices that will share it.
        part: of each node, from 0 on, as METIS and other partitioners return it; if
            left out, ranges of about as many entries, see ``partitioning.balanced``.
        exchange: see ``matrix.prepare``.
        reorder: see ``partitioning.balanced``; without effect if ``part`` is given.
        progress: called with what is being done, how far it is, and of how much.

    Raises:
        OSError: the folder cannot be written.
        ValueError: a folder that holds something; more parts than nodes; a part that
            is not among them, or not one for each node.
        TypeError: no data set; parts that are not numbered.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    num_parts = checks.count("parts", num_parts, 1, dataset.num_nodes)
    folder = Path(folder)
    layout = None
    if part is not None:
        part = checks.labels("part", part, dataset.num_nodes)
        layout = partitioning.from_parts(part, num_parts)

    def told(what: str, done: int, total: int) -> None:
        if progress:
            progress(what, done, total)

    with _files.writing(folder):
        told("order of nodes", 0, 1)
        adjacency = graph.normalized_adjacency(dataset.edges, dataset.num_nodes)
        if layout is None:
            layout = partitioning.balanced(adjacency, num_parts, reorder=reorder)
        blocks, rounds = sharded.blocks(adjacency, layout, exchange=exchange)
        targets = datasets.targets(dataset)
        digests, sums, borders = [], [], {}
        for i, block in enumerate(blocks):
            told("parts", i, num_parts)
            nodes = np.flatnonzero(layout.place // layout.rows == i)
            here = layout.place[nodes] - i * layout.rows
            known = _known(layout.rows, here, nodes, targets, dataset.splits)
            digests.append(_files.write_part(folder, i, block, known))
            sums.append(_part_nodes.sums(nodes))
            found = _borders.digests(block, i, num_parts, layout.rows, rounds)
            borders |= {_files.border(i, other): x for other, x in found.items()}
        table = {
            "dataset": dataset.name,
            "metric": dataset.metric,
            "files": dataset.files,
            "dtype": str(blocks[0].data.dtype),
            "num_nodes": dataset.num_nodes,
            "num_columns": targets.shape[1],
            "num_splits": len(np.atleast_2d(dataset.splits.train)),
            "rows": layout.rows,
            "entries": [int(block.pointers[-1]) for block in blocks],
            "rows_moved_a_hop": _moved(layout, rounds),
            "rounds": rounds,
            "parts": digests,
            "node_sums": sums,
            "borders": borders,
        }
        return _files.write_table(folder, table)


def contents(folder: Path) -> dict[str, Any]:
    """Return the table of contents of a folder that ``write`` made.

    Raises:
        ValueError: there is none, or it is damaged or of another version.
    """
    return _files.read_table(Path(folder))


def read(folder: Path) -> Shards:
    """Return the graph over all devices of all processes, each with its rows.

    Raises:
        ValueError: another number of devices than of parts; a part that is damaged.
    """
    folder, table = Path(folder), contents(folder)
    devices = jax.devices()
    if len(devices) != len(table["parts"]):
        msg = (
            f"{str(folder)!r} is of {len(table['parts'])} parts, and there are "
            f"{len(devices)} device(s) in {jax.process_count()} process(es); it takes "
            "one device a part: name --hosts, or, to try it on the processors of one "
            f"machine, set JAX_NUM_CPU_DEVICES={len(table['parts'])}"
        )
        raise ValueError(msg)
    mesh = Mesh(np.array(devices), ("nodes",))
    own = {
        part: _files.read_part(folder, part, table) for part in sharded.own_parts(mesh)
    }
    matrix = sharded.assemble(
        lambda part: own[part][0], table["rows"], table["rounds"], mesh
    )

    def over(name: str, axis: int) -> jax.Array:
        blocks = {part: known[name] for part, (_, known) in own.items()}
        return sharded.joined(blocks, mesh, axis)

    return Shards(
        table["dataset"],
        table["metric"],
        table["files"],
        matrix,
        over("targets", 0),
        Split(*(over(name, 1) for name in Split._fields)),  # pyright: ignore[reportArgumentType]
        table["sha256"],
    )


def _known(
    rows: int, here: np.ndarray, nodes: np.ndarray, targets: np.ndarray, splits: Split
) -> dict[str, np.ndarray]:
    """Return what is known of the nodes of a part, in its rows; -1 is no node."""
    ids = np.full(rows, -1, np.int64)
    ids[here] = nodes
    y = np.zeros((rows, targets.shape[1]), np.float32)
    y[here] = targets[nodes]
    found = {"nodes": ids, "targets": y}
    for name, masks in splits._asdict().items():
        masks = np.atleast_2d(masks)
        found[name] = np.zeros((len(masks), rows), bool)
        found[name][:, here] = masks[:, nodes]
    return found


def _moved(layout: Layout, rounds: tuple[Round, ...] | None) -> int:
    """Return how many rows change their device at a hop, padding included."""
    if rounds is None:
        return layout.parts * (layout.parts - 1) * layout.rows
    return sum(len(each.pairs) * each.rows for each in rounds)
