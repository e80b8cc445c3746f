"""NumPy's npz archives, read without pickle and without evaluating headers."""

import io
import math
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gnnrp.datasets import raw_files
from gnnrp.datasets._validate import require
from gnnrp.datasets.raw_files import File

CHUNK = 1 << 18  # bytes unpacked at once
MAX_READ = 1 << 20  # bytes of an archive at once, its table of contents included
MAX_HEADER = 4096  # bytes; numpy writes 118, or some more for many dimensions
# numpy writes no other; lzma could claim a dictionary of 4 GB.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

# The three items of the dictionary in any order, without nesting: Python's own parsers
# fail without a message on many brackets or signs. Each part of the pattern matches in
# one way only, so that the time is linear.
_DTYPE = r"[<>|=]?[?biufcmMOSUV]\d{0,9}(?:\[\w{1,5}\])?"
_ITEM = "|".join((
    rf"['\"]descr['\"]\s*:\s*['\"](?P<dtype>{_DTYPE})['\"]",
    r"['\"]fortran_order['\"]\s*:\s*(?P<order>True|False)",
    r"['\"]shape['\"]\s*:\s*\((?P<shape>[-\d\sL,]*)\)",
))
_HEADER = re.compile(rf"\{{\s*(?:(?:{_ITEM})\s*(?:,\s*)?){{3}}\}}\s*", re.ASCII)
_SIZE = re.compile(r"(-?\d{1,20})L?", re.ASCII)  # Python 2 wrote 12L


class Header(NamedTuple):
    """Size and type of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran_order: bool
    start: int  # of the data, in bytes

    def num_bytes(self) -> int:
        """Return the bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def peak_bytes(self) -> int:
        """Return the bytes of the array and its copies: float32, or int64 per axis."""
        copies = {"b": 0, "f": 4 * (self.dtype.itemsize != 4)}
        per_number = copies.get(self.dtype.kind, 8 * len(self.shape))
        return self.num_bytes() + per_number * math.prod(self.shape)


def read(
    file: File | Path, expected: Mapping[str, tuple[str, int | tuple[int, ...]]]
) -> dict[str, np.ndarray]:
    """Read the named arrays of an npz file and nothing else in it.

    Expected are the kinds of dtype and the number, or numbers, of dimensions; names of
    optional arrays end in "?".
    """
    file = file if isinstance(file, File) else raw_files.stat(file)
    with _BoundedReader(file.path) as stream, zipfile.ZipFile(stream) as archive:
        infos = dict(_infos(archive, expected, file.max_unpacked_bytes()))
        headers = {}
        for name, info in infos.items():
            with archive.open(info) as member:
                headers[name] = read_header(member, name, info.file_size)
            kinds, num_dimensions = expected.get(name) or expected[f"{name}?"]
            dtype, shape = headers[name].dtype, headers[name].shape
            allowed = np.atleast_1d(num_dimensions)
            require(
                dtype.kind in kinds and len(shape) in allowed,
                f"member {name!r} has dtype {dtype} and {len(shape)} dimensions, "
                f"expected kind {kinds!r} and {num_dimensions}",
            )
        file.reserve(sum(header.peak_bytes() for header in headers.values()))
        arrays = {}
        for name, info in infos.items():
            with archive.open(info) as member:
                arrays[name] = read_array(member, headers[name])
    return arrays


def _infos(
    archive: zipfile.ZipFile, expected: Iterable[str], limit: int
) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    """Yield the members to read, checked before anything is unpacked."""
    members = set(archive.namelist())
    for key in expected:
        name = key.removesuffix("?")
        if f"{name}.npy" not in members:
            require(name != key, f"it has no member {name!r}")
            continue
        info = archive.getinfo(f"{name}.npy")
        method, size = info.compress_type, info.file_size
        valid = method in METHODS
        require(valid, f"member {name!r} is packed by method {method}, not by 8")
        require(size <= limit, f"member {name!r} unpacks to {size} bytes")
        yield name, info


class _BoundedReader(io.BufferedReader):
    """A file of which ``zipfile`` cannot read much at once."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:  # the end of the archive, 64 KB at most
            size = MAX_READ
        require(size <= MAX_READ, f"its table of contents claims {size} bytes")
        return super().read(size)


def read_header(stream: Any, name: str, size: int) -> Header:
    """Read and check the header of an npy file."""
    start = stream.read(8)
    valid = start[:6] == b"\x93NUMPY" and len(start) == 8
    require(valid, f"member {name!r} is no npy file")
    version = start[6], start[7]
    code = {(1, 0): "<H", (2, 0): "<I"}.get(version, "")
    require(code, f"member {name!r} has npy version {version}")
    width = struct.calcsize(code)
    (length,) = struct.unpack(code, stream.read(width).ljust(width, b"\0"))
    require(length <= MAX_HEADER, f"member {name!r} has a header of {length} bytes")
    shape, dtype, fortran_order = _parse(stream.read(length).decode("latin1"), name)
    plain = not dtype.hasobject and dtype.itemsize
    fault = f"pickled or empty-typed ({dtype}), which is not read"
    require(plain, f"member {name!r} is {fault}")
    header = Header(shape, dtype, fortran_order, 8 + width + length)
    valid = min(shape, default=0) >= 0 and header.start + header.num_bytes() == size
    require(valid, f"member {name!r} claims shape {shape}, but holds {size} bytes")
    return header


def _parse(text: str, name: str) -> tuple[tuple[int, ...], np.dtype, bool]:
    match: Any = _HEADER.fullmatch(text)
    valid = match is not None and None not in match.groupdict().values()
    fault = "a header without descr, fortran_order and shape"
    require(valid, f"member {name!r} has {fault}")
    *sizes, last = (size.strip() for size in match["shape"].split(","))
    sizes = [_SIZE.fullmatch(size) for size in (*sizes, *([last] if last else []))]
    require(None not in sizes, f"member {name!r} has a shape that is no list of sizes")
    shape = tuple(int(size[1]) for size in sizes if size)
    return shape, np.dtype(match["dtype"]), match["order"] == "True"


def read_array(stream: Any, header: Header) -> np.ndarray:
    """Return the array, unpacked in chunks into its place."""
    stream.read(header.start)
    flat = np.empty(math.prod(header.shape), header.dtype)
    raw, done = flat.view(np.uint8), 0
    while done < raw.size:
        chunk = stream.read(min(CHUNK, raw.size - done))
        require(chunk, f"its data end after {done} of {raw.size} bytes")
        raw[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
        done += len(chunk)
    stream.read(1)  # to the end, where the checksum is compared
    return flat.reshape(header.shape, order="F" if header.fortran_order else "C")
