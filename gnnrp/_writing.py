"""Files written whole or not at all; folders tried beforehand, and vouched for."""

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_SUMS = "sha256.json"


def try_folder(folder: Path) -> None:
    """Refuse a folder in which nothing can be written, with nothing left behind.

    One that is not there is not made: the nearest above it is tried.

    Raises:
        OSError: a file where a folder should be, no permission, no room.
    """
    there = folder.absolute()
    with telling(folder):
        while not os.path.lexists(there):
            there = there.parent
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"0")


@contextlib.contextmanager
def whole(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes its name once it is complete, and vanishes otherwise.

    Raises:
        OSError: it cannot be written.
    """
    with telling(path):
        # Beside it, since no other file system can be renamed from; a long name may be
        # as long as one can be.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:64]}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def telling(path: Path) -> Iterator[None]:
    """Tell in one sentence that a file or folder cannot be written.

    Raises:
        OSError: of the class that was raised inside.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        msg = (
            f"{str(path)!r} cannot be written ({error.strerror or error}); "
            f"{'make room, or ' if full else ''}choose another place"
        )
        raise type(error)(msg) from error


def vouch(folder: Path) -> None:
    """Write what tells the files of a folder from any others: their SHA-256."""
    content = json.dumps(_sums(folder)).encode()  # before there is one more file
    with whole(folder / _SUMS) as file:
        file.write(content)


def vouched(folder: Path) -> bool:
    """Tell whether the files of a folder are those that ``vouch`` saw, or it saw none.

    Raises:
        OSError: one cannot be read.
        ValueError: what ``vouch`` wrote is damaged.
    """
    path = folder / _SUMS
    return not path.exists() or json.loads(path.read_text()) == _sums(folder)


def _sums(folder: Path) -> dict[str, str]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name != _SUMS:
            with path.open("rb") as file:
                name = path.relative_to(folder).as_posix()
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
