"""Files written whole or not at all; folders tried beforehand, and vouched for."""

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gnnrp import _interrupts

_SUMS = "sha256.json"


def obstacle(folder: Path) -> OSError | None:
    """Return what keeps files out of a folder, None if nothing does; leave no trace.

    One that is not there is not made: the nearest above it is tried.
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
    with _interrupts.Held(), _interrupts.cleanup(remove), telling(path):
        file = half.open("xb")
        try:
            with file:
                file.write(content)
            half.replace(path)
        except BaseException:
            remove()
            raise


def is_half(name: str) -> bool:
    """Tell whether a file of that name is what a killed ``write`` left."""
    return re.fullmatch(r"\.[0-9a-f]{16}\.half", name) is not None


@contextlib.contextmanager
def telling(path: Path) -> Iterator[None]:
    """Tell in one sentence that a file or folder cannot be written.

    Raises:
        OSError: of the class and number of the one that was raised inside.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        told = type(error)(
            f"{str(path)!r} cannot be written ({error.strerror or error}); "
            f"{'make room, or ' if full else ''}choose another place"
        )
        told.errno = error.errno
        raise told from error


def vouch(folder: Path) -> None:
    """Write what tells the files of a folder from any others: their SHA-256."""
    content = json.dumps(_sums(folder)).encode()  # before there is one more file
    write(folder / _SUMS, content)


def verify(folder: Path) -> None:
    """Refuse files that are not as ``vouch`` saw them; whatever, where it saw none.

    Raises:
        OSError: one cannot be read.
        ValueError: one is not as it was, or what ``vouch`` wrote is damaged.
    """
    path = folder / _SUMS
    if path.exists() and json.loads(path.read_text()) != _sums(folder):
        msg = f"a file in {str(folder)!r} is not the one that was written"
        raise ValueError(msg)


def _sums(folder: Path) -> dict[str, str]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name != _SUMS:
            with path.open("rb") as file:
                name = path.relative_to(folder).as_posix()
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
