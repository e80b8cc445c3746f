"""Files written whole or not at all; folders tried beforehand, and sealed."""

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from gnnrp.runtime import interrupts

_MANIFEST = "manifest.json"
_MOST_BYTES = 2**28  # of a manifest


def obstacle(folder: Path) -> OSError | None:
    """Return the error of writing a file into a folder, or None; leave no trace.

    A folder that does not exist is not made: the nearest one above it is tried.
    """
    there = folder.absolute()
    try:
        while not os.path.lexists(there):
            there = there.parent
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"0")
    except OSError as error:
        return error
    return None


def try_folder(folder: Path) -> None:
    """Refuse a folder in which nothing can be written.

    Raises:
        OSError: a file where a folder should be, no permission, no room.
    """
    if error := obstacle(folder):
        with telling(folder):
            raise error


def write(path: Path, content: bytes | memoryview) -> None:
    """Write a file whole or not at all: under another name beside it, then renamed.

    Raises:
        OSError: it cannot be written.
    """
    # No other file system can be renamed from. Without the file's own name, since that
    # may be as long as one can be.
    half = path.with_name(f".{secrets.token_hex(8)}.half")
    remove = functools.partial(half.unlink, missing_ok=True)
    with interrupts.Held(), interrupts.cleanup(remove), telling(path):
        file = half.open("xb")
        try:
            with file:
                file.write(content)
            half.replace(path)
        except BaseException:
            remove()
            raise


def is_half(name: str) -> bool:
    """Return whether the name is that of a file that a killed ``write`` left."""
    return re.fullmatch(r"\.[0-9a-f]{16}\.half", name) is not None


@contextlib.contextmanager
def telling(path: Path) -> Iterator[None]:
    """Turn an error of writing into one sentence that names the file or folder.

    Raises:
        OSError: of the class and number of the one that was raised inside.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        plain = type(error)(
            f"{str(path)!r} cannot be written ({error.strerror or error}); "
            f"{'make room, or ' if full else ''}choose another place"
        )
        plain.errno = error.errno
        raise plain from error


class DamagedError(ValueError):
    """A file or folder that is not the one that was written."""


def refuse(reason: str) -> NoReturn:
    """Refuse a damaged file or folder.

    Raises:
        DamagedError: always.
    """
    raise DamagedError(reason)


def seal(folder: Path, **known: Any) -> None:
    """Write ``manifest.json``: the size and digest of each file of a folder, and more.

    The seal is a SHA-256 of the manifest. It detects accidents, and files that come
    from another folder. It is no signature: this function seals changed files too.

    Args:
        folder: of the files.
        known: entries of the manifest, plain JSON.

    Raises:
        OSError: it cannot be written.
    """
    made = known | {"files": _files(folder)}  # before there is one more
    content = json.dumps(made | {"seal": seal_of(made)}).encode()
    write(folder / _MANIFEST, content)


def unseal(folder: Path, **expected: Any) -> dict[str, Any]:
    """Return the manifest of a folder that has not changed since ``seal``.

    Args:
        folder: must hold its manifest and the files listed there, and nothing else.
        expected: entries that the manifest must have.

    Raises:
        OSError: a file cannot be read.
        DamagedError: a file is missing, new or changed; a symbolic link or another
            special file; a manifest that is missing, changed or of another place.
    """
    tree = _tree(folder)
    size = tree.pop(_MANIFEST, None)
    if size is None:
        refuse(f"it has no {_MANIFEST}")
    if size > _MOST_BYTES:
        refuse(f"its {_MANIFEST} has {size:,} bytes")
    try:
        made = json.loads((folder / _MANIFEST).read_bytes())
        known = made.pop("seal") == seal_of(made)
        listed = {name: each and each[0] for name, each in made["files"].items()}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        known = False
    if not known or any(made.get(name) != expected[name] for name in expected):
        refuse(f"its {_MANIFEST} is not the one that was written there")
    if wrong := sorted(tree.items() ^ listed.items(), key=str):
        refuse(f"{wrong[0][0]!r} is missing, new or of another size")
    for name, each in made["files"].items():
        if each is not None and each[1] != _sha256(folder / name):
            refuse(f"{name!r} is not the file that was written")
    return made


def seal_of(made: Any) -> str:
    """Return the SHA-256 of plain JSON, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()


def _files(folder: Path) -> dict[str, list[Any] | None]:
    """Return size and SHA-256 of each file, None for folders.

    Raises:
        OSError: one cannot be read.
        DamagedError: a special file.
    """
    return {
        name: None if size is None else [size, _sha256(folder / name)]
        for name, size in _tree(folder).items()
    }


def _tree(folder: Path) -> dict[str, int | None]:
    """Return the size of each file below a folder, None for folders; follow no link.

    Raises:
        OSError: a folder cannot be read.
        DamagedError: a special file.
    """
    if not stat.S_ISDIR(folder.lstat().st_mode):
        refuse("it is not a folder")

    def fail(error: OSError) -> NoReturn:
        raise error

    found: dict[str, int | None] = {}
    for parent, folders, files in os.walk(folder, onerror=fail):
        for path in (Path(parent, name) for name in folders + files):
            status, name = path.lstat(), path.relative_to(folder).as_posix()
            if stat.S_ISDIR(status.st_mode):
                found[name] = None
            elif stat.S_ISREG(status.st_mode):
                found[name] = status.st_size
            else:
                refuse(f"{name!r} is neither a file nor a folder")
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Journal:
    """Rows of plain JSON that a run appends to, saved with each of its checkpoints.

    A file of JSON lines shows them. It is written anew from the rows at each change and
    never read, so that it cannot disagree with the run.
    """

    def __init__(
        self,
        path: Path | None,
        find_fault: Callable[[int, list[Any], Any], str | None] = lambda *_: None,
    ) -> None:
        """Start without rows.

        Args:
            path: of the file; None: there is none.
            find_fault: from step, rows and state of a checkpoint, the fault of the
                rows, or None.

        Raises:
            IsADirectoryError: a folder is in the place of the file.
        """
        if path is not None and path.is_dir():
            msg = f"{str(path)!r} is a folder, and rows are saved there; remove it"
            raise IsADirectoryError(msg)
        self.rows: list[Any] = []
        self.find_fault = find_fault
        self._path = path

    def append(self, row: Any) -> None:
        """Add a row.

        Raises:
            OSError: the file cannot be written.
        """
        self.restore([*self.rows, row])

    def restore(self, rows: list[Any]) -> None:
        """Take over the rows of a checkpoint.

        Raises:
            OSError: the file cannot be written.
        """
        self.rows = rows
        if self._path is not None:
            lines = "".join(_line(row) for row in rows)
            write(self._path, lines.encode())


def _line(row: Any) -> str:
    """Return a row as a line of JSON, null where a number is not finite."""
    text = json.dumps(row)
    return json.dumps(json.loads(text, parse_constant=lambda _: None)) + "\n"
