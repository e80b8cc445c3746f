"""The files of a graph in parts: one a part, and a table of contents.

The table is written last, so that an unfinished folder is none. It has the SHA-256 of
each part and its own, which tell of damage; who forges them is told that what he made
does not fit together.
"""

import contextlib
import hashlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gnnrp import _interrupts, _writing, checkpoints, records
from gnnrp.datasets import _csr, _files
from gnnrp.propagation.layouts import Round
from gnnrp.propagation.sharded import Block
from gnnrp.types import Split

FORMAT = 2
_TABLE, _PART = "shards.json", r"part-\d+\.npz"
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
_KINDS = {"dataset": str, "metric": str, "files": dict, "rows": int, "parts": list}


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Make a folder ready, and remove the parts in it if not all can be written.

    Raises:
        ValueError: it holds something else than what an unfinished one left.
    """
    checkpoints.prepare(folder)
    if not all(map(_is_part, folder.iterdir())):
        msg = f"{str(folder)!r} is not empty; choose another folder"
        raise ValueError(msg)
    _clear(folder)

    def undo() -> None:
        if not (folder / _TABLE).exists():  # else all parts are there
            _clear(folder)  # gigabytes perhaps

    with _interrupts.cleanup(undo):
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
    """Tell whether a file is a part, or the half that a kill left."""
    return re.fullmatch(_PART, path.name) is not None or _writing.is_half(path.name)


def write_part(
    folder: Path, part: int, block: Block, known: dict[str, np.ndarray]
) -> str:
    """Write the file of a part, whole or not at all, and return its SHA-256."""
    content = io.BytesIO()
    arrays: dict[str, Any] = known | block._asdict()
    np.savez(content, **{name: x for name, x in arrays.items() if x is not None})
    with content.getbuffer() as view:  # let go of, whatever happens
        _writing.write(_path(folder, part), view)
        return hashlib.sha256(view).hexdigest()


def write_table(folder: Path, table: dict[str, Any]) -> dict[str, Any]:
    """Write the table of contents, and return it with what is added."""
    table = json.loads(records.dumps({"format": FORMAT} | table))  # as it is read again
    table["sha256"] = digest(table)
    _writing.write(folder / _TABLE, records.dumps(table, indent=None).encode())
    return table


def digest(table: dict[str, Any]) -> str:
    """Return the SHA-256 of a table of contents, but for what it states itself."""
    text = json.dumps({k: v for k, v in table.items() if k != "sha256"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_table(folder: Path) -> dict[str, Any]:
    """Return the table of contents, its "rounds" as ``layouts.Round``.

    Raises:
        ValueError: there is none, or it is damaged or of another version.
    """
    try:
        table = json.loads((folder / _TABLE).read_text())
        known = (
            table["format"] == FORMAT
            and table["sha256"] == digest(table)
            and all(type(table[name]) is kind for name, kind in _KINDS.items())
        )
        table["rounds"] = _rounds(table["rounds"], len(table["parts"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        known = False
    if not known:
        msg = (
            f"{str(folder)!r} holds no parts of a graph, or they are damaged or of "
            "another version; gnnrp partition makes them"
        )
        raise ValueError(msg)
    return table


def _rounds(given: list[Any] | None, num_parts: int) -> tuple[Round, ...] | None:
    """Return the rounds that a table states; None: all rows go to all.

    Raises:
        ValueError: they are none.
        TypeError: as well.
    """
    if given is None:
        return None
    found = tuple(Round(tuple(map(tuple, pairs)), rows) for pairs, rows in given)
    for pairs, rows in found:
        sides = list(zip(*pairs, strict=True))
        numbers = {rows, *(part for side in sides for part in side)}
        fits = (
            all(type(each) is int for each in numbers)
            and rows > 0
            and len(sides) == 2
            and all(len(set(side)) == len(side) for side in sides)
            and {part for side in sides for part in side} <= set(range(num_parts))
        )
        if not fits:
            raise ValueError
    return found


def read_part(
    folder: Path, part: int, table: dict[str, Any]
) -> tuple[Block, dict[str, np.ndarray]]:
    """Return the matrix of a part, and what is known of its nodes.

    Raises:
        ValueError: the file is not there, or not the one that was written.
    """
    path, rows = _path(folder, part), table["rows"]
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        found = None
    if found != table["parts"][part]:
        msg = f"{path} is missing or damaged; copy it again, or make the parts anew"
        raise ValueError(msg)
    with _files.reading(path, "part"):  # of a folder that others may have made
        arrays = _files.members(path, _MEMBERS)
        if arrays["nodes"].shape != (rows,):
            msg = f"it has {len(arrays['nodes'])} rows, and {rows} are stated"
            raise ValueError(msg)
        send = arrays.pop("send", None)
        data, indices, pointers, width = map(arrays.pop, Block._fields[:4])
        block = Block(data, indices, pointers, int(width), send)
        _check(block, rows, table)
    return block, arrays


def _check(block: Block, rows: int, table: dict[str, Any]) -> None:
    """Refuse what would be read or written out of bounds.

    Raises:
        ValueError: the arrays do not fit together, or not the table.
    """
    rounds, send = table["rounds"], block.send
    if rounds is None:
        received, fits = rows * (len(table["parts"]) - 1), send is None
    else:
        received = sum(each.rows for each in rounds)
        fits = send is not None and len(send) == received and _within(send, rows)
    if not fits:
        msg = "what it sends does not fit the rounds that are stated"
        raise ValueError(msg)
    if block.width != rows + received + 1:
        msg = f"it takes {block.width} rows, and {rows + received + 1} are there"
        raise ValueError(msg)
    _csr.check(block.data, block.indices, block.pointers, (rows, block.width))


def _within(ids: np.ndarray, size: int) -> bool:
    return bool(((ids >= 0) & (ids < size)).all())


def _path(folder: Path, part: int) -> Path:
    return folder / f"part-{part}.npz"
