"""Access to files nobody vouches for: readability, size, memory, digests and errors."""

import contextlib
import dataclasses
import hashlib
import io
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from gnnrp.datasets import _npy
from gnnrp.runtime import memory

MAX_BYTES = 8 << 30  # of one file, unpacked; ogbn-products' largest takes 2.6 GB
# Unpacked over packed size: published files stay below 44, deflate can reach 1032. Up
# to ALWAYS bytes, any ratio is allowed.
MAX_RATIO, ALWAYS = 100, 1 << 24
MAX_READ = 1 << 20  # bytes of an archive at once, its table of contents included
# numpy writes no other; lzma could claim a dictionary of 4 GB.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ALLOWED = "(max_bytes, --max-memory)"
MORE = "take a machine with more memory"


class TooLargeError(ValueError):
    """A file that is not damaged, but needs more memory than there is."""


@dataclasses.dataclass(frozen=True)
class File:
    """A file, and the memory that reading it may take."""

    path: Path
    size: int  # bytes
    version: tuple[int, int, int]  # inode, bytes and time of the last change
    room: memory.Room  # when it was opened

    def open(self) -> io.BufferedReader:
        """Open the file for reading in binary mode."""
        with opening(self.path):
            return self.path.open("rb")

    def read(self) -> bytes:
        """Return the bytes of the file, after ``reserve``."""
        with self.open() as stream:
            return stream.read(self.size)

    def reserve(self, num_bytes: int, allocated: int = 0) -> None:
        """Check that an allocation fits, before it is made.

        Args:
            num_bytes: size of the allocation.
            allocated: part of it that exists already.

        Raises:
            TooLargeError: it does not fit.
        """
        left = max(0, self.room.limit - memory.held()) + allocated
        if num_bytes > left:
            said, source = memory.said, self.room.source
            fix = f"allow more memory {ALLOWED}" if source == "allowed" else MORE
            msg = (
                f"{self.path}: reading it takes {said(num_bytes)} or more and "
                f"{said(left)} are left of the {said(self.room.limit)} {source}; {fix}"
            )
            raise TooLargeError(msg)

    def unpacked_limit(self) -> int:
        """Return the largest size in bytes that this file may unpack to."""
        return min(MAX_BYTES, max(ALWAYS, MAX_RATIO * self.size))


def stated(path: Path, room: memory.Room | None = None) -> File:
    """Return a file without opening it, since a pipe can be read only once.

    Args:
        path: of the file.
        room: the memory left; by default, that of the machine or container.

    Raises:
        OSError: it does not exist.
    """
    with opening(path):
        status = path.stat()
    room = room or memory.room_on_host()
    return File(path, status.st_size, _version(status), room)


def contents(
    folder: Path, names: Iterable[str], max_bytes: int | None = None
) -> dict[str, File]:
    """Return the named files, each of which can be read.

    Raises:
        OSError: one cannot be read.
        ValueError: one is larger than any of the published files.
    """
    room = memory.room_on_host(max_bytes)
    files = {name: stated(folder / name, room) for name in names}
    for file in files.values():
        if file.size > MAX_BYTES:
            msg = (
                f"{file.path} is damaged or no data set: it has {file.size} bytes; "
                "get it anew"
            )
            raise ValueError(msg)
        file.open().close()
    return files


@contextlib.contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turn an error of reading into one sentence that names the file or folder.

    Raises:
        OSError: of the class that was raised inside.
    """
    try:
        yield
    except OSError as error:
        msg = (
            f"{path} cannot be read ({error.strerror or error}); make it readable, or "
            "pass another folder as root (--data-dir)"
        )
        raise type(error)(msg) from error


def digests(files: Mapping[str, File]) -> dict[str, str]:
    """Return the sha256 of every file, of the bytes that were parsed.

    Raises:
        ValueError: a file has changed since it was parsed.
    """
    return {name: _digest(file) for name, file in files.items()}


def _digest(file: File) -> str:
    with file.open() as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
        if _version(os.fstat(stream.fileno())) != file.version:
            msg = f"{file.path} changed while it was read; load it again"
            raise ValueError(msg)
    return found


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn any exception of a parser into one sentence that starts with the file.

    Args:
        path: the file, or the folder where several files disagree.
        what: the format it should have, for the message.

    Raises:
        ValueError: anything else was raised inside.
        TooLargeError: the memory did not suffice.
        OSError: the file could not be read to its end.
    """
    try:
        yield
    except TooLargeError:
        raise
    except MemoryError as error:
        msg = f"{path}: reading it takes more memory than there is; {MORE}"
        raise TooLargeError(msg) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno:  # gzip's own have no number
            with opening(path):
                raise
        reason = _plain(str(error) or type(error).__name__)
        msg = (
            f"{path} is damaged or no {what} file ({reason}); remove it and get it anew"
        )
        raise ValueError(msg) from error


def _plain(text: str) -> str:
    """Return the first line of a message, short and without control characters."""
    line = next(iter(text[:1000].strip().splitlines()), "")
    line = "".join(x if x.isprintable() else ascii(x)[1:-1] for x in line)
    return line if len(line) <= 160 else f"{line[:157]}..."


def members(
    content: File | Path, expected: Mapping[str, tuple[str, int]]
) -> dict[str, np.ndarray]:
    """Read the named arrays of an npz and nothing else in it.

    Args:
        content: the npz file.
        expected: name -> admissible dtype kinds (``"iu"``, ``"f"``, ...) and number of
            dimensions; a name that ends in ``?`` may be missing.

    Raises:
        ValueError: a member is missing, pickled, of another type, or does not hold the
            data that its header claims; or all of them do not fit in memory.
    """
    file = content if isinstance(content, File) else stated(content)
    with _Pieces(file.path) as stream, zipfile.ZipFile(stream) as archive:
        infos = dict(_infos(archive, expected, file.unpacked_limit()))
        headers = {}
        for name, info in infos.items():
            with archive.open(info) as member:
                headers[name] = _npy.header(member, name, info.file_size)
            kinds, num_dimensions = expected.get(name) or expected[f"{name}?"]
            dtype, shape = headers[name].dtype, headers[name].shape
            if dtype.kind not in kinds or len(shape) != num_dimensions:
                msg = (
                    f"member {name!r} has dtype {dtype} and {len(shape)} dimensions, "
                    f"expected kind {kinds!r} and {num_dimensions}"
                )
                raise ValueError(msg)
        file.reserve(sum(map(_npy.needed, headers.values())))
        arrays = {}
        for name, info in infos.items():
            with archive.open(info) as member:
                arrays[name] = _npy.read(member, headers[name])
    return arrays


def _infos(
    archive: zipfile.ZipFile, expected: Iterable[str], limit: int
) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    """Yield the members to read; sizes are compared before anything is unpacked.

    Raises:
        ValueError: one is missing, too large, or packed in an unusual way.
    """
    there = set(archive.namelist())
    for wanted in expected:
        name = wanted.removesuffix("?")
        if f"{name}.npy" not in there:
            if name != wanted:
                continue
            msg = f"it has no member {name!r}"
            raise ValueError(msg)
        info = archive.getinfo(f"{name}.npy")
        if info.compress_type not in METHODS:
            msg = f"member {name!r} is packed by method {info.compress_type}, not by 8"
            raise ValueError(msg)
        if info.file_size > limit:
            msg = f"member {name!r} unpacks to {info.file_size} bytes"
            raise ValueError(msg)
        yield name, info


class _Pieces(io.BufferedReader):
    """A file of which ``zipfile`` cannot read much at once."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:  # the end of the archive, 64 KB at most
            size = MAX_READ
        if size > MAX_READ:
            msg = f"its table of contents claims {size} bytes"
            raise ValueError(msg)
        return super().read(size)
