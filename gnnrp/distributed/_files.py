"""The files of a partitioned graph: one per shard, and a table of contents.

The table is written last: a folder without one is unfinished. It has its own SHA-256
and that of each shard, sizes, sums of the node ids, and digests of the borders.
"""

import contextlib
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gnnrp import metrics
from gnnrp.datasets import csr, npz, raw_files
from gnnrp.distributed import _part_checks, partitioning
from gnnrp.distributed.sharded_matrix import Block
from gnnrp.runtime import atomic_files, checkpoints, checks, interrupts, json_files
from gnnrp.runtime.atomic_files import refuse
from gnnrp.types import Split

FORMAT = 3
_TABLE, _PART = "shards.json", r"part-\d+\.npz"
_LARGEST_TABLE = 1 << 26  # bytes
_SLACK = 1 << 16  # bytes of headers in a shard
_MEMBERS = {
    "data": ("f", 1),
    "indices": ("i", 1),
    "pointers": ("i", 1),
    "width": ("i", 0),
    "send?": ("i", 1),
    "nodes": ("i", 1),
    "targets": ("f", 2),
    **dict.fromkeys(Split._fields, ("b", 2)),
}
_DTYPES = {"nodes": "int64", "targets": "float32", "send": "int32"}
_KINDS = {
    **dict.fromkeys(("dataset", "metric", "dtype"), str),
    **dict.fromkeys(("num_nodes", "num_columns", "num_splits", "rows"), int),
    **dict.fromkeys(("entries", "parts", "node_sums"), list),
    **dict.fromkeys(("files", "borders"), dict),
}


@contextlib.contextmanager
def transaction(folder: Path) -> Iterator[None]:
    """Prepare a folder, and remove its shards if not all can be written."""
    checkpoints.prepare(folder)
    if not all(map(_is_part, folder.iterdir())):
        msg = f"{str(folder)!r} is not empty; choose another folder"
        raise ValueError(msg)

    def clear() -> None:
        if not (folder / _TABLE).exists():  # else all shards are there
            for path in filter(_is_part, list(folder.iterdir())):
                path.unlink()  # gigabytes perhaps

    clear()
    with interrupts.cleanup(clear):
        try:
            yield
        except BaseException:
            clear()
            raise


def _is_part(path: Path) -> bool:
    # Or a half-written one, which a kill leaves.
    return re.fullmatch(_PART, path.name) is not None or atomic_files.is_half(path.name)


def write_part(
    folder: Path, part: int, block: Block, node_arrays: dict[str, np.ndarray]
) -> str:
    """Write the file of a shard, and return its SHA-256."""
    content = io.BytesIO()
    arrays: dict[str, Any] = node_arrays | block._asdict()
    np.savez(content, **{name: x for name, x in arrays.items() if x is not None})
    with content.getbuffer() as view:
        atomic_files.write(_path(folder, part), view)
        return hashlib.sha256(view).hexdigest()


def write_table(folder: Path, table: dict[str, Any]) -> dict[str, Any]:
    """Write the table of contents, and return it with its format and digest."""
    # As it is read again.
    table = json.loads(json_files.dumps({"format": FORMAT} | table))
    table["sha256"] = digest(table)
    atomic_files.write(folder / _TABLE, json_files.dumps(table, indent=None).encode())
    return table


def digest(table: dict[str, Any]) -> str:
    """Return the SHA-256 of a table of contents without its own entry "sha256"."""
    return atomic_files.seal_of({k: v for k, v in table.items() if k != "sha256"})


def read_table(folder: Path) -> dict[str, Any]:
    """Return the table of contents, checked, its "rounds" as ``partitioning.Round``."""
    path = folder / _TABLE
    try:
        size = path.stat().st_size
        if not path.is_file():  # a pipe in its place would wait forever
            refuse("it is not a regular file")
        if size > _LARGEST_TABLE:
            refuse(f"it has {size} bytes")
        return _parse_table(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        msg = (
            f"{str(folder)!r} holds no parts of a graph, or they are damaged or of "
            f"another version ({_TABLE}: {reason[:100]}); gnnrp partition makes them"
        )
        raise ValueError(msg) from error


def _parse_table(table: Any) -> dict[str, Any]:
    if table["format"] != FORMAT:
        refuse(f"its format is {checks.format_value(table['format'])}, not {FORMAT}")
    if table["sha256"] != digest(table):
        refuse("its sha256 is not that of its content")
    for name, kind in _KINDS.items():
        if type(table[name]) is not kind:
            refuse(f"{name} is {checks.format_value(table[name])}")
    num_parts = len(table["parts"])
    metrics.by_name(table["metric"])
    checks.one_of("dtype", table["dtype"], ("float32", "float64"))
    for name in ("num_nodes", "num_columns", "num_splits", "rows"):
        checks.count(name, table[name], 1)
    for name, kind in (("parts", str), ("entries", int), ("node_sums", list)):
        if [type(each) for each in table[name]] != [kind] * num_parts or not num_parts:
            refuse(f"{name} does not have one value for each of {num_parts} part(s)")
    for entries in table["entries"]:
        checks.count("entries", entries, 0, np.iinfo(np.int64).max)
    if not all(type(x) is str for pair in table["files"].items() for x in pair):
        refuse("files does not map names to digests")
    sums = zip(*table["node_sums"], strict=True)
    expected = _part_checks.all_node_sums(table["num_nodes"])
    if [sum(each) % _part_checks.PRIME for each in sums] != expected:
        refuse(
            f"node_sums are not those of {table['num_nodes']} nodes, each in one part"
        )
    rounds = partitioning.parse_rounds(table["rounds"], num_parts)
    pairs = partitioning.exchanges(rounds, num_parts)
    if table["borders"].keys() != {border(*pair) for pair in pairs}:
        refuse("borders are not those of the rounds")
    return table | {"rounds": rounds}


def read_part(
    folder: Path, part: int, table: dict[str, Any]
) -> tuple[Block, dict[str, np.ndarray]]:
    """Return the matrix of a shard, and ids, targets and masks of its nodes."""
    path, sha256 = _path(folder, part), None
    with contextlib.suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != table["parts"][part]:
        refuse(f"{path} is missing or damaged; copy it again, or make the parts anew")
    try:
        return _load_part(path, part, table)
    except (MemoryError, raw_files.TooLargeError):
        raise
    except Exception as error:  # one sentence that names the file
        reason = (str(error) or type(error).__name__).splitlines()[0][:150]
        msg = (
            f"{path} is damaged or no part file ({reason}); make the parts anew by "
            "gnnrp partition"
        )
        raise ValueError(msg) from error


def _load_part(
    path: Path, part: int, table: dict[str, Any]
) -> tuple[Block, dict[str, np.ndarray]]:
    _check_size(path, part, table)
    arrays = npz.read(path, _MEMBERS)
    _check_arrays(arrays, part, table)
    send = arrays.pop("send", None)
    data, indices, pointers, width = map(arrays.pop, Block._fields[:4])
    block = Block(data, indices, pointers, int(width), send)
    _check_block(block, part, table)
    _part_checks.check_nodes(arrays, table["num_nodes"], table["metric"])
    _check_blank_rows(block, arrays["nodes"])
    if _part_checks.node_sums(arrays["nodes"]) != table["node_sums"][part]:
        refuse("its nodes are not those that were put into it")
    return block, arrays


def _check_size(path: Path, part: int, table: dict[str, Any]) -> None:
    # A shard must not unpack to more than its table allows.
    row = 16 + 4 * table["num_columns"] + 3 * table["num_splits"]
    allowed = (
        (np.dtype(table["dtype"]).itemsize + 8) * table["entries"][part]
        + row * table["rows"]
        + 8 * sum(each.rows for each in table["rounds"] or ())
        + _SLACK
    )
    with zipfile.ZipFile(path) as archive:
        size = sum(each.file_size for each in archive.infolist())
    if size > allowed:
        refuse(f"it unpacks to {size} bytes, and its table allows {allowed}")


def _check_arrays(
    arrays: dict[str, np.ndarray], part: int, table: dict[str, Any]
) -> None:
    rows = table["rows"]
    if arrays["nodes"].shape != (rows,):
        refuse(f"it has {len(arrays['nodes'])} rows, and {rows} are stated")
    shapes = {
        "data": (table["entries"][part],),
        "indices": (table["entries"][part],),
        "targets": (rows, table["num_columns"]),
        **dict.fromkeys(Split._fields, (table["num_splits"], rows)),
    }
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            refuse(f"{name} has shape {arrays[name].shape}, and {shape} is stated")
    for name, dtype in (_DTYPES | {"data": table["dtype"]}).items():
        if name in arrays and arrays[name].dtype != dtype:
            refuse(f"{name} is {arrays[name].dtype}, and must be {dtype}")


def _check_block(block: Block, part: int, table: dict[str, Any]) -> None:
    rounds, send, rows = table["rounds"], block.send, table["rows"]
    num_parts = len(table["parts"])
    if rounds is None:
        received, fits = rows * (num_parts - 1), send is None
    else:
        received = sum(each.rows for each in rounds)
        fits = (
            send is not None
            and len(send) == received
            and not ((send < 0) | (send >= rows)).any()
        )
    if not fits:
        refuse("what it sends does not fit the rounds that are stated")
    if block.width != rows + received + 1:
        refuse(f"it takes {block.width} rows, and {rows + received + 1} are there")
    csr.check(block.data, block.indices, block.pointers, (rows, block.width))
    digests = _part_checks.border_digests(block, part, num_parts, rows, rounds)
    for other, sha256 in digests.items():
        if table["borders"][border(part, other)] != sha256:
            refuse(
                f"its entries with part {other} are not those of the other side; the "
                "matrix must be symmetric"
            )


def border(part: int, other: int) -> str:
    """Return the name of the border between two parts."""
    return f"{min(part, other)}-{max(part, other)}"


def _check_blank_rows(block: Block, nodes: np.ndarray) -> None:
    has_entries = np.diff(block.pointers) > 0
    last_row = block.indices[block.pointers[-2] :]
    has_entries[-1] = (last_row != block.width - 1).any()  # other than padding
    if (wrong := has_entries & (nodes < 0)).any():
        refuse(f"row {_part_checks.first(wrong)} has entries but no node")


def _path(folder: Path, part: int) -> Path:
    return folder / f"part-{part}.npz"
