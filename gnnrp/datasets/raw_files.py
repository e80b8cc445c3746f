"""Files of unknown origin: readability, size, memory, digests and error messages."""

import contextlib
import dataclasses
import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gnnrp.runtime import memory, safe_text

MAX_BYTES = 8 << 30  # of one file, unpacked; ogbn-products' largest takes 2.6 GB
# Largest ratio of unpacked to packed size: published files stay below 44, deflate can
# reach 1032. Up to MIN_UNPACKED bytes, any ratio is allowed.
MAX_RATIO, MIN_UNPACKED = 100, 1 << 24
_MORE_MEMORY = "take a machine with more memory"


class TooLargeError(ValueError):
    """An intact file that needs more memory than there is."""


@dataclasses.dataclass(frozen=True)
class File:
    """A file, and the memory for reading it."""

    path: Path
    size: int  # bytes
    version: tuple[int, int, int]  # inode, bytes and time of the last change
    room: memory.Room

    def open(self) -> io.BufferedReader:
        """Open the file for reading in binary mode."""
        with os_errors(self.path):
            return self.path.open("rb")

    def read(self) -> bytes:
        """Return the bytes of the file, after ``reserve``."""
        with self.open() as stream:
            return stream.read(self.size)

    def reserve(self, num_bytes: int, allocated: int = 0) -> None:
        """Check that an allocation fits, before it is made."""
        left = max(0, self.room.limit - memory.process_bytes()) + allocated
        if num_bytes > left:
            size, source, fix = memory.format_bytes, self.room.source, _MORE_MEMORY
            if source == "allowed":
                fix = "allow more memory (max_bytes, --max-memory)"
            msg = (
                f"{self.path}: reading it takes {size(num_bytes)} or more and "
                f"{size(left)} are left of the {size(self.room.limit)} {source}; {fix}"
            )
            raise TooLargeError(msg)

    def max_unpacked_bytes(self) -> int:
        """Return the largest size in bytes that this file may unpack to."""
        return min(MAX_BYTES, max(MIN_UNPACKED, MAX_RATIO * self.size))


def stat(path: Path, room: memory.Room | None = None) -> File:
    """Return a file without opening it, since a pipe can be read only once."""
    with os_errors(path):
        status = path.stat()
    room = room or memory.room_on_host()
    return File(path, status.st_size, _version(status), room)


def stat_all(
    folder: Path, names: Iterable[str], max_bytes: int | None = None
) -> dict[str, File]:
    """Return the named files, all of them readable."""
    room = memory.room_on_host(max_bytes)
    files = {name: stat(folder / name, room) for name in names}
    for file in files.values():
        if file.size > MAX_BYTES:
            msg = (
                f"{file.path} is damaged or no dataset: it has {file.size} bytes; "
                "get it anew"
            )
            raise ValueError(msg)
        file.open().close()
    return files


def digests(files: Mapping[str, File]) -> dict[str, str]:
    """Return the sha256 of every file, of the bytes that were parsed."""
    return {name: _digest(file) for name, file in files.items()}


def _digest(file: File) -> str:
    with file.open() as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if _version(os.fstat(stream.fileno())) != file.version:
            msg = f"{file.path} changed while it was read; load it again"
            raise ValueError(msg)
    return digest


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def os_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into one sentence with the file or folder."""
    try:
        yield
    except OSError as error:
        msg = (
            f"{path} cannot be read ({error.strerror or error}); make it readable, or "
            "pass another folder as root (--data-dir)"
        )
        raise type(error)(msg) from error


@contextlib.contextmanager
def format_errors(
    path: Path, kind: str, fix: str = "delete it and get it anew"
) -> Iterator[None]:
    """Turn any exception of a parser into one sentence that starts with the file."""
    try:
        yield
    except TooLargeError:
        raise
    except MemoryError as error:
        msg = f"{path}: reading it takes more memory than there is; {_MORE_MEMORY}"
        raise TooLargeError(msg) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno:  # gzip's own have no number
            with os_errors(path):
                raise
        reason = safe_text.line(str(error).strip() or type(error).__name__, 160)
        msg = f"{path} is damaged or no {kind} file ({reason}); {fix}"
        raise ValueError(msg) from error
