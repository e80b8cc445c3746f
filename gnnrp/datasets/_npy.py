"""Arrays in numpy's npy format, read without evaluating the header as Python."""

import math
import re
import struct
from typing import Any, NamedTuple

import numpy as np

CHUNK = 1 << 18  # bytes unpacked at once
MAX_HEADER = 4096  # bytes; numpy writes 118, or some more for many dimensions

# The three items of the dictionary in any order, without nesting: Python's own parsers
# fail without a message on many brackets or signs. Each part of the pattern can match
# in one way only, so that the time is linear.
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
        return math.prod(self.shape) * self.dtype.itemsize


def needed(header: Header) -> int:
    """Return the bytes of an array and of its copies: float32, or int64 for each axis.

    Masks are not copied.
    """
    copies = {"b": 0, "f": 4 * (header.dtype.itemsize != 4)}
    per_number = copies.get(header.dtype.kind, 8 * len(header.shape))
    return header.num_bytes() + per_number * math.prod(header.shape)


def header(stream: Any, name: str, size: int) -> Header:
    """Read and check the header of an npy file.

    Args:
        stream: at its beginning.
        name: of the array, for the sentence of an error.
        size: of the file, in bytes.

    Raises:
        ValueError: another version, a header of another form, pickled data, or data of
            another size than it claims.
    """
    start = stream.read(8)
    if start[:6] != b"\x93NUMPY" or len(start) < 8:
        msg = f"member {name!r} is no npy file"
        raise ValueError(msg)
    version = start[6], start[7]
    code = {(1, 0): "<H", (2, 0): "<I"}.get(version)
    if code is None:
        msg = f"member {name!r} has npy version {version}"
        raise ValueError(msg)
    width = struct.calcsize(code)
    (length,) = struct.unpack(code, stream.read(width).ljust(width, b"\0"))
    if length > MAX_HEADER:
        msg = f"member {name!r} has a header of {length} bytes"
        raise ValueError(msg)
    shape, dtype, fortran_order = _parsed(stream.read(length).decode("latin1"), name)
    if dtype.hasobject or dtype.itemsize == 0:
        msg = f"member {name!r} is pickled or empty-typed ({dtype}), which is not read"
        raise ValueError(msg)
    found = Header(shape, dtype, fortran_order, 8 + width + length)
    if min(shape, default=0) < 0 or found.start + found.num_bytes() != size:
        msg = f"member {name!r} claims shape {shape}, but holds {size} bytes"
        raise ValueError(msg)
    return found


def _parsed(text: str, name: str) -> tuple[tuple[int, ...], np.dtype, bool]:
    match = _HEADER.fullmatch(text)
    if match is None or None in match.groupdict().values():
        msg = f"member {name!r} has a header without descr, fortran_order and shape"
        raise ValueError(msg)
    *sizes, last = (size.strip() for size in match["shape"].split(","))
    found = [_SIZE.fullmatch(size) for size in (*sizes, *([last] if last else []))]
    if None in found:
        msg = f"member {name!r} has a shape that is no list of sizes"
        raise ValueError(msg)
    shape = tuple(int(size[1]) for size in found if size)
    return shape, np.dtype(match["dtype"]), match["order"] == "True"


def read(stream: Any, header: Header) -> np.ndarray:
    """Return the array, unpacked piece by piece into its place.

    Raises:
        ValueError: the data end early.
    """
    stream.read(header.start)
    flat = np.empty(math.prod(header.shape), header.dtype)
    raw, done = flat.view(np.uint8), 0
    while done < raw.size:
        piece = stream.read(min(CHUNK, raw.size - done))
        if not piece:
            msg = f"its data end after {done} of {raw.size} bytes"
            raise ValueError(msg)
        raw[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    stream.read(1)  # the end, where the checksum is compared
    return flat.reshape(header.shape, order="F" if header.fortran_order else "C")
