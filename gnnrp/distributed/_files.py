"""The files of a graph in parts: one a part, and a table of contents.

The table is written last, so that a folder without one is unfinished. It holds its own
SHA-256 and that of each part, and what parts must agree on: sizes, the sums of their
node ids, digests of their borders. Each part is checked against it when it is read.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gnnrp import metrics
from gnnrp.datasets import csr, npz, raw_files
from gnnrp.distributed import _part_nodes, borders, partitioning
from gnnrp.distributed.matrix import Block
from gnnrp.runtime import atomic_files, checkpoints, checks, interrupts, json_files
from gnnrp.types import Split

FORMAT = 3
_TABLE, _PART = "shards.json", r"part-\d+\.npz"
_LARGEST_TABLE = 1 << 26  # bytes
_SLACK = 1 << 16  # bytes of headers in a part
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
    "dataset": str,
    "metric": str,
    "files": dict,
    "dtype": str,
    "num_nodes": int,
    "num_columns": int,
    "num_splits": int,
    "rows": int,
    "entries": list,
    "parts": list,
    "node_sums": list,
    "borders": dict,
}


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Prepare a folder, and remove the parts in it if not all can be written.

    Raises:
        ValueError: it holds other files than those of an unfinished ``writing``.
    """
    checkpoints.prepare(folder)
    if not all(map(_is_part, folder.iterdir())):
        msg = f"{str(folder)!r} is not empty; choose another folder"
        raise ValueError(msg)
    _clear(folder)

    def undo() -> None:
        if not (folder / _TABLE).exists():  # else all parts are there
            _clear(folder)  # gigabytes perhaps

    with interrupts.cleanup(undo):
        try:
            yield
        except BaseException:
            undo()
            raise


def _clear(folder: Path) -> None:
    for path in list(folder.iterdir()):
        if _is_part(path):
            path.unlink()


def _is_part(path: Path) -> bool:
    """Return whether a file is a part, or one that a kill left unfinished."""
    return re.fullmatch(_PART, path.name) is not None or atomic_files.is_half(path.name)


def write_part(
    folder: Path, part: int, block: Block, known: dict[str, np.ndarray]
) -> str:
    """Write the file of a part, whole or not at all, and return its SHA-256."""
    content = io.BytesIO()
    arrays: dict[str, Any] = known | block._asdict()
    np.savez(content, **{name: x for name, x in arrays.items() if x is not None})
    with content.getbuffer() as view:
        atomic_files.write(_path(folder, part), view)
        return hashlib.sha256(view).hexdigest()


def write_table(folder: Path, table: dict[str, Any]) -> dict[str, Any]:
    """Write the table of contents, and return it with its format and digest."""
    table = json.loads(
        json_files.dumps({"format": FORMAT} | table)
    )  # as it is read again
    table["sha256"] = digest(table)
    atomic_files.write(folder / _TABLE, json_files.dumps(table, indent=None).encode())
    return table


def digest(table: dict[str, Any]) -> str:
    """Return the SHA-256 of a table of contents without its own entry "sha256"."""
    return atomic_files.seal_of({k: v for k, v in table.items() if k != "sha256"})


def read_table(folder: Path) -> dict[str, Any]:
    """Return the table of contents, its "rounds" as ``partitioning.Round``.

    Raises:
        ValueError: there is none, or it is damaged or of another version.
    """
    try:
        with _opened(folder / _TABLE, _LARGEST_TABLE) as file:
            table = _table(json.loads(file.read()))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        msg = (
            f"{str(folder)!r} holds no parts of a graph, or they are damaged or of "
            f"another version ({_TABLE}: {reason[:100]}); gnnrp partition makes them"
        )
        raise ValueError(msg) from error
    return table


def _table(given: Any) -> dict[str, Any]:
    """Return a table of contents whose entries fit each other.

    Raises:
        ValueError: they do not.
        KeyError: one is missing.
        TypeError: it is no table.
    """
    if given["format"] != FORMAT:
        msg = f"its format is {checks.shown(given['format'])}, not {FORMAT}"
        raise ValueError(msg)
    if given["sha256"] != digest(given):
        msg = "its sha256 is not that of its content"
        raise ValueError(msg)
    for name, kind in _KINDS.items():
        if type(given[name]) is not kind:
            msg = f"{name} is {checks.shown(given[name])}"
            raise ValueError(msg)
    num_parts = len(given["parts"])
    metrics.by_name(given["metric"])
    checks.one_of("dtype", given["dtype"], ("float32", "float64"))
    for name in ("num_nodes", "num_columns", "num_splits", "rows"):
        checks.count(name, given[name], 1)
    for name, kind in (("parts", str), ("entries", int), ("node_sums", list)):
        if [type(each) for each in given[name]] != [kind] * num_parts or not num_parts:
            msg = f"{name} does not have one value for each of {num_parts} part(s)"
            raise ValueError(msg)
    for entries in given["entries"]:
        checks.count("entries", entries, 0, np.iinfo(np.int64).max)
    if not all(type(x) is str for pair in given["files"].items() for x in pair):
        msg = "files does not map names to digests"
        raise ValueError(msg)
    sums = [
        sum(each) % _part_nodes.PRIME for each in zip(*given["node_sums"], strict=True)
    ]
    if sums != _part_nodes.all_sums(given["num_nodes"]):
        msg = f"node_sums are not those of {given['num_nodes']} nodes, each in one part"
        raise ValueError(msg)
    rounds = partitioning.parsed_rounds(given["rounds"], num_parts)
    if set(given["borders"]) != {
        f"{p}-{q}" for p, q in partitioning.exchanges(rounds, num_parts)
    }:
        msg = "borders are not those of the rounds"
        raise ValueError(msg)
    return given | {"rounds": rounds}


def read_part(
    folder: Path, part: int, table: dict[str, Any]
) -> tuple[Block, dict[str, np.ndarray]]:
    """Return the matrix of a part, and ids, targets and masks of its nodes.

    Raises:
        ValueError: the file is missing, not the one that was written, or holds values
            that no part has.
    """
    path = _path(folder, part)
    try:
        with _opened(path) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        found = None
    if found != table["parts"][part]:
        msg = f"{path} is missing or damaged; copy it again, or make the parts anew"
        raise ValueError(msg)
    with _reading(path):
        _check_size(path, part, table)
        arrays = npz.read(path, _MEMBERS)
        _check_arrays(arrays, part, table)
        send = arrays.pop("send", None)
        data, indices, pointers, width = map(arrays.pop, Block._fields[:4])
        block = Block(data, indices, pointers, int(width), send)
        _check(block, part, table)
        _part_nodes.check(arrays, table["num_nodes"], table["metric"])
        blank = arrays["nodes"] < 0
        if (filled := blank & _filled(block)).any():
            msg = f"row {_first(filled)} has entries but no node"
            raise ValueError(msg)
        if _part_nodes.sums(arrays["nodes"]) != table["node_sums"][part]:
            msg = "its nodes are not those that were put into it"
            raise ValueError(msg)
    return block, arrays


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn any error of a damaged part into one sentence that names it.

    Raises:
        ValueError: anything else was raised inside.
        TooLargeError: the part does not fit in memory.
        MemoryError: as well.
    """
    try:
        yield
    except (MemoryError, raw_files.TooLargeError):
        raise
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:150]
        msg = (
            f"{path} is damaged or no part file ({reason}); make the parts anew by "
            "gnnrp partition"
        )
        raise ValueError(msg) from error


def _opened(path: Path, largest: int | None = None) -> io.BufferedReader:
    """Open a regular file; a pipe in its place would wait forever.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is not a regular file, or too large.
    """
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode):
        reason = "it is not a regular file"
    elif largest is not None and status.st_size > largest:
        reason = f"it has {status.st_size} bytes"
    else:
        return io.BufferedReader(io.FileIO(number))
    os.close(number)
    raise ValueError(reason)


def _check_size(path: Path, part: int, table: dict[str, Any]) -> None:
    """Refuse a part that unpacks to more than its table allows, before it is read.

    Raises:
        ValueError: it does.
    """
    rows, sizes = table["rows"], (table["num_columns"], 3 * table["num_splits"])
    received = sum(each.rows for each in table["rounds"] or ())
    entry = np.dtype(table["dtype"]).itemsize + 8
    allowed = (
        entry * table["entries"][part]
        + rows * (16 + 4 * sizes[0] + sizes[1])
        + 8 * received
        + _SLACK
    )
    with zipfile.ZipFile(path) as archive:
        size = sum(each.file_size for each in archive.infolist())
    if size > allowed:
        msg = f"it unpacks to {size} bytes, and its table allows {allowed}"
        raise ValueError(msg)


def _check_arrays(
    arrays: dict[str, np.ndarray], part: int, table: dict[str, Any]
) -> None:
    """Refuse arrays of other sizes or types than the table states.

    Raises:
        ValueError: one is.
    """
    rows = table["rows"]
    if arrays["nodes"].shape != (rows,):
        msg = f"it has {len(arrays['nodes'])} rows, and {rows} are stated"
        raise ValueError(msg)
    masks = dict.fromkeys(Split._fields, (table["num_splits"], rows))
    shapes = {
        "data": (table["entries"][part],),
        "indices": (table["entries"][part],),
        "targets": (rows, table["num_columns"]),
    }
    for name, shape in (shapes | masks).items():
        if arrays[name].shape != shape:
            msg = f"{name} has shape {arrays[name].shape}, and {shape} is stated"
            raise ValueError(msg)
    for name, dtype in (_DTYPES | {"data": table["dtype"]}).items():
        if name in arrays and arrays[name].dtype != dtype:
            msg = f"{name} is {arrays[name].dtype}, and must be {dtype}"
            raise ValueError(msg)


def _check(block: Block, part: int, table: dict[str, Any]) -> None:
    """Refuse a matrix that is out of bounds, or not the normalized adjacency.

    Raises:
        ValueError: the arrays do not fit together, or not the table.
    """
    rounds, send, rows = table["rounds"], block.send, table["rows"]
    num_parts = len(table["parts"])
    if rounds is None:
        received, fits = rows * (num_parts - 1), send is None
    else:
        received = sum(each.rows for each in rounds)
        fits = send is not None and len(send) == received and _within(send, rows)
    if not fits:
        msg = "what it sends does not fit the rounds that are stated"
        raise ValueError(msg)
    if block.width != rows + received + 1:
        msg = f"it takes {block.width} rows, and {rows + received + 1} are there"
        raise ValueError(msg)
    csr.check(block.data, block.indices, block.pointers, (rows, block.width))
    found = borders.digests(block, part, num_parts, rows, rounds)
    for other, sha256 in found.items():
        if table["borders"][border(part, other)] != sha256:
            msg = (
                f"its entries with part {other} are not those of the other side; the "
                "matrix must be symmetric"
            )
            raise ValueError(msg)


def border(part: int, other: int) -> str:
    """Return the name of the border between two parts."""
    return f"{min(part, other)}-{max(part, other)}"


def _filled(block: Block) -> np.ndarray:
    """Flag the rows with entries, padding aside."""
    filled = np.diff(block.pointers) > 0
    last_row = block.indices[block.pointers[-2] :]
    filled[-1] = (last_row != block.width - 1).any()
    return filled


def _first(flags: np.ndarray) -> int:
    return int(np.argmax(flags))


def _within(ids: np.ndarray, size: int) -> bool:
    return bool(((ids >= 0) & (ids < size)).all())


def _path(folder: Path, part: int) -> Path:
    return folder / f"part-{part}.npz"
