"""Checks of a shard of a graph: its nodes, its entries and its borders.

Two shards hold the entries between them from two sides, with equal digests if and only
if these are symmetric: a process can check its own shard without communication.
"""

import hashlib

import numpy as np
import numpy.typing as npt
import scipy.sparse
from jaxtyping import Float, Int

from gnnrp import sparse
from gnnrp.distributed.partitioning import Round
from gnnrp.distributed.sharded_matrix import Block
from gnnrp.runtime.atomic_files import refuse
from gnnrp.types import Split

PRIME = (1 << 31) - 1  # products of two residues fit int64


def check_nodes(arrays: dict[str, np.ndarray], num_nodes: int, metric: str) -> None:
    """Refuse ids (-1: a blank row), masks and targets of nodes that no dataset has."""
    nodes, masks = arrays["nodes"], {name: arrays[name] for name in Split._fields}
    if (outside := (nodes < -1) | (nodes >= num_nodes)).any():
        refuse(f"node {nodes[first(outside)]} is none of {num_nodes} nodes")
    ids, counts = np.unique(nodes[nodes >= 0], return_counts=True)
    if (counts > 1).any():
        refuse(f"node {ids[first(counts > 1)]} is in it twice")
    for name, mask in masks.items():
        if (bytes_of := mask.view(np.uint8)).size and bytes_of.max() > 1:
            refuse(f"the {name} mask has a byte of {bytes_of.max()}, not 0 or 1")
        if (blank := mask.any(axis=0) & (nodes < 0)).any():
            refuse(f"row {first(blank)} is in the {name} mask but has no node")
    for name in ("val", "test"):
        if (both := (masks["train"] & masks[name]).any(axis=0)).any():
            refuse(
                f"node {nodes[first(both)]} is in both the train and the {name} mask"
            )
    used = np.any([mask.any(axis=0) for mask in masks.values()], axis=0)
    _check_targets(arrays["targets"], nodes, used, metric)


def _check_targets(
    targets: np.ndarray, nodes: np.ndarray, used: np.ndarray, metric: str
) -> None:
    # NaN is an unknown target of the ROC-AUC.
    unknown = np.isnan(targets) if metric == "roc_auc" else np.zeros_like(targets, bool)
    wrong = ~((targets == 0) | (targets == 1) | unknown)
    if wrong.any():
        row, column = (int(x) for x in np.argwhere(wrong)[0])
        also = " or nan" if metric == "roc_auc" else ""
        refuse(
            f"targets[{row}, {column}] must be 0 or 1{also}, got {targets[row, column]}"
        )
    if metric == "roc_auc":
        return
    classes = targets.sum(axis=1)
    wrong = (classes > 1) | (used & (classes != 1)) | ((nodes < 0) & (classes > 0))
    if wrong.any():
        row = first(wrong)
        refuse(
            f"row {row} of targets has {classes[row]:g} classes, for node {nodes[row]}"
        )


def node_sums(nodes: Int[np.ndarray, " r"]) -> list[int]:
    """Return sums of the ids, their squares and their cubes, modulo a prime."""
    # Up to three ids that are wrong, anywhere, change one of them.
    ids = nodes[nodes >= 0] % PRIME
    powers = (ids, ids * ids % PRIME, ids * ids % PRIME * ids % PRIME)
    return [int(power.sum()) % PRIME for power in powers]


def all_node_sums(num_nodes: int) -> list[int]:
    """Return ``node_sums`` of all nodes, from closed forms."""
    n, half = num_nodes, num_nodes * (num_nodes - 1) // 2
    return [x % PRIME for x in (half, half * (2 * n - 1) // 3, half**2)]


_Side = tuple[slice, Int[np.ndarray, " h"] | None]
"""Columns that come from another part, and own rows that go there, None: all rows."""


def border_digests(
    block: Block, part: int, num_parts: int, rows: int, rounds: tuple[Round, ...] | None
) -> dict[int, str]:
    """Check values, order and symmetry of a block; digest its entries by other part."""
    csr = _strip_padding(block, rows)
    if rounds is None:
        own, others = part * rows, (q for q in range(num_parts) if q != part)
        sides = {q: (slice(q * rows, (q + 1) * rows), None) for q in others}
    else:
        own, sides = 0, _sides(block, part, rows, rounds)
    inside = csr[:, own : own + rows]
    _check_symmetric(inside)
    digests, left = {}, csr.nnz - inside.nnz
    for other, (columns, sent) in sides.items():
        between = csr[:, columns].tocoo()
        left -= between.nnz
        row, column = _positions(between.row, sent, other), between.col
        if part > other:
            row, column = column, row
        digests[other] = _digest(row, column, between.data)
    if left:
        refuse(f"{left} entries are in columns that no part sends")
    return digests


def _strip_padding(block: Block, rows: int) -> scipy.sparse.csr_array:
    data, last = block.data, block.width - 1
    if data.size and not (data.min() >= 0 and data.max() <= 1):  # NaN too
        at = int(np.argmin((data >= 0) & (data <= 1)))
        refuse(f"data[{at}] must lie in [0, 1], got {data[at]}")
    start = block.pointers[-2]
    used = np.flatnonzero(block.indices[start:] != last)
    count = int(start + used[-1] + 1 if len(used) else start)
    if data[count:].any():
        at = count + first(data[count:] != 0)
        refuse(f"data[{at}] is {data[at]} in the column of padding")
    pointers = np.append(block.pointers[:-1], np.asarray(count, block.pointers.dtype))
    parts = (data[:count], block.indices[:count], pointers)
    csr = scipy.sparse.csr_array(parts, (rows, block.width))
    if not csr.has_canonical_format:
        row = np.repeat(np.arange(rows), np.diff(pointers))
        at = first((np.diff(row) == 0) & (np.diff(parts[1]) <= 0))
        refuse(
            f"row {row[at]} has column {parts[1][at + 1]} after {parts[1][at]}; the "
            "columns of a row must ascend"
        )
    return csr


def _sides(
    block: Block, part: int, rows: int, rounds: tuple[Round, ...]
) -> dict[int, _Side]:
    columns, sent, start = {}, {}, 0
    for pairs, size in rounds:
        segment = np.asarray(block.send[start : start + size])
        descends = np.append(np.diff(segment, prepend=-1) <= 0, True)
        targets = [to for source, to in pairs if source == part]
        count = first(descends) if targets else 0
        if segment[count:].any():
            at = start + count + first(segment[count:] != 0)
            refuse(
                f"send[{at}] is {block.send[at]}; the rows for a part must ascend, and "
                "zeros follow"
            )
        sent |= dict.fromkeys(targets, segment[:count])
        for source, to in pairs:
            if to == part:
                columns[source] = slice(rows + start, rows + start + size)
        start += size
    none, empty = slice(0, 0), np.zeros(0, np.int64)
    others = sorted(columns.keys() | sent.keys())
    return {to: (columns.get(to, none), sent.get(to, empty)) for to in others}


def _positions(
    row: Int[np.ndarray, " m"], sent: Int[np.ndarray, " h"] | None, other: int
) -> Int[np.ndarray, " m"]:
    # Among the rows sent to another part; a row that is not sent has a one-sided entry.
    if sent is None or not len(row):
        return row
    position = np.minimum(np.searchsorted(sent, row), max(0, len(sent) - 1))
    wrong = sent[position] != row if len(sent) else np.ones(len(row), bool)
    if wrong.any():
        refuse(
            f"row {row[first(wrong)]} has an entry in a column of part {other}, but is "
            "not among the rows for it; the matrix must be symmetric"
        )
    return position


def _check_symmetric(csr: scipy.sparse.csr_array) -> None:
    if sparse.is_symmetric(csr):
        return
    wrong = (csr - csr.T.tocsr()).tocoo()
    wrong.eliminate_zeros()
    where = f"row {wrong.row[0]} and column {wrong.col[0]}" if wrong.nnz else "a row"
    refuse(
        f"the entry of {where} differs from its transpose; the matrix must be symmetric"
    )


def _digest(
    row: Int[np.ndarray, " m"],
    column: Int[np.ndarray, " m"],
    data: Float[np.ndarray, " m"],
) -> str:
    order = np.lexsort((column, row))
    sha256 = hashlib.sha256()
    for array in (row, column):
        sha256.update(array[order].astype("<i8").tobytes())
    sha256.update(data[order].astype(data.dtype.newbyteorder("<")).tobytes())
    return sha256.hexdigest()


def first(flags: npt.ArrayLike) -> int:
    """Return the index of the first flag that is set."""
    return int(np.argmax(flags))
