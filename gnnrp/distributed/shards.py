"""A partitioned graph on disk, with one shard for each device.

``write`` partitions a dataset once, on one machine. ``read`` loads the shards of its
own devices in every process that JAX's distributed runtime joins.
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
from gnnrp.distributed import _files, _part_checks, partitioning
from gnnrp.distributed import sharded_matrix as sharded
from gnnrp.distributed.partitioning import Layout
from gnnrp.runtime import checks
from gnnrp.types import Split


class Shards(NamedTuple):
    """A graph over the devices of a mesh, with targets and splits of its nodes."""

    name: str
    metric: str
    files: dict[str, str]  # of the dataset, with their SHA-256
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
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Write the shards of a dataset, and return their table of contents.

    An unfinished folder is overwritten.

    Args:
        folder: new or empty.
        dataset: see ``datasets.load``; features are left out.
        num_parts: number of devices that will share it.
        part: of each node, from 0, as METIS and other partitioners return it; by
            default, ranges of about as many entries, see ``partitioning.balance``.
        exchange: see ``sharded_matrix.prepare``.
        progress: called with (stage, done, total).

    Raises:
        OSError: the folder cannot be written.
        ValueError: a folder that is not empty; more parts than nodes; parts out of
            range, or not one for each node.
        TypeError: not a dataset; parts that are not numbers.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    num_parts = checks.count("parts", num_parts, 1, dataset.num_nodes)
    folder, layout = Path(folder), None
    if part is not None:
        part = checks.labels("part", part, dataset.num_nodes)
        layout = partitioning.from_parts(part, num_parts)
    report = progress or (lambda *_: None)

    with _files.transaction(folder):
        report("order of nodes", 0, 1)
        adjacency = graph.normalized_adjacency(dataset.edges, dataset.num_nodes)
        if layout is None:
            layout = partitioning.balance(adjacency, num_parts)
        blocks, rounds = sharded.blocks(adjacency, layout, exchange=exchange)
        targets, rows = datasets.targets(dataset), layout.rows
        moved = [len(each.pairs) * each.rows for each in rounds or ()]
        all_rows = num_parts * (num_parts - 1) * rows
        table = {
            "dataset": dataset.name,
            "metric": dataset.metric,
            "files": dataset.files,
            "dtype": str(blocks[0].data.dtype),
            "num_nodes": dataset.num_nodes,
            "num_columns": targets.shape[1],
            "num_splits": len(np.atleast_2d(dataset.splits.train)),
            "rows": rows,
            "entries": [int(block.pointers[-1]) for block in blocks],
            "rows_moved_a_hop": all_rows if rounds is None else sum(moved),
            "rounds": rounds,
            "parts": [],
            "node_sums": [],
            "borders": {},
        }
        for i, block in enumerate(blocks):
            report("parts", i, num_parts)
            arrays = _node_arrays(layout, i, targets, dataset.splits)
            table["parts"].append(_files.write_part(folder, i, block, arrays))
            table["node_sums"].append(_part_checks.node_sums(arrays["nodes"]))
            sides = _part_checks.border_digests(block, i, num_parts, rows, rounds)
            table["borders"] |= {_files.border(i, to): x for to, x in sides.items()}
        return _files.write_table(folder, table)


def contents(folder: Path) -> dict[str, Any]:
    """Return the table of contents of a folder from ``write``.

    Args:
        folder: with the shards and the table.

    Raises:
        ValueError: it is missing, damaged or of another version.
    """
    return _files.read_table(Path(folder))


def read(folder: Path) -> Shards:
    """Return the graph over all devices of all processes.

    Raises:
        ValueError: the numbers of devices and parts differ; a damaged part.
    """
    folder, table = Path(folder), contents(folder)
    devices = jax.devices()
    if len(devices) != len(table["parts"]):
        msg = (
            f"{str(folder)!r} has {len(table['parts'])} parts, and there are "
            f"{len(devices)} device(s) in {jax.process_count()} process(es); each part "
            "needs a device: set --hosts, or, to try it on the processors of one "
            f"machine, JAX_NUM_CPU_DEVICES={len(table['parts'])}"
        )
        raise ValueError(msg)
    mesh = Mesh(np.array(devices), ("nodes",))
    own = {i: _files.read_part(folder, i, table) for i in sharded.own_parts(mesh)}
    matrix = sharded.assemble(lambda i: own[i][0], table["rows"], table["rounds"], mesh)

    def share(name: str, axis: int) -> jax.Array:
        shards = {i: arrays[name] for i, (_, arrays) in own.items()}
        return sharded.concatenate(shards, mesh, axis)

    return Shards(
        table["dataset"],
        table["metric"],
        table["files"],
        matrix,
        share("targets", 0),
        Split(*(share(name, 1) for name in Split._fields)),  # pyright: ignore[reportArgumentType]
        table["sha256"],
    )


def _node_arrays(
    layout: Layout, part: int, targets: np.ndarray, splits: Split
) -> dict[str, np.ndarray]:
    """Return ids, targets and masks of the rows of a part; a blank row has id -1."""
    nodes = np.flatnonzero(layout.place // layout.rows == part)
    here = layout.place[nodes] - part * layout.rows
    ids = np.full(layout.rows, -1, np.int64)
    ids[here] = nodes
    y = np.zeros((layout.rows, targets.shape[1]), np.float32)
    y[here] = targets[nodes]
    arrays = {"nodes": ids, "targets": y}
    for name, masks in splits._asdict().items():
        masks = np.atleast_2d(masks)
        arrays[name] = np.zeros((len(masks), layout.rows), bool)
        arrays[name][:, here] = masks[:, nodes]
    return arrays
