"""Reading files nobody vouches for: numbers from text and arrays from npz."""

import contextlib
import gzip
import hashlib
import io
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Num

MAX_BYTES = 8 << 30  # of one file, unpacked; ogbn-products' largest takes 2.6 GB
# Of its packed size; the published files stay below 44, deflate could reach 1032.
MAX_RATIO, ALWAYS = 100, 1 << 24  # and so many bytes are taken, whatever the ratio
CHUNK = 1 << 24  # bytes of text parsed at once
INTEGERS = b"0123456789-"
FLOATS = INTEGERS + b"+.eEnaN"


def contents(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Return the bytes of the named files, so that what is hashed is what is parsed.

    Raises:
        OSError: one cannot be read.
        ValueError: one is larger than any of the published files.
    """
    return {name: _content(folder / name) for name in names}


def _content(path: Path) -> bytes:
    with opening(path):
        size = path.stat().st_size
        if size <= MAX_BYTES:
            return path.read_bytes()
    msg = f"{path} is damaged or no data set: it has {size} bytes; get it anew"
    raise ValueError(msg)


@contextlib.contextmanager
def opening(path: Path) -> Iterator[None]:
    """Tell in one sentence that a file or folder cannot be read.

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


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the sha256 of every file."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


@contextlib.contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn whatever a parser raises into one sentence that starts with the file.

    Args:
        path: the file, or the folder where several files disagree.
        what: the format it should have, for the message.

    Raises:
        ValueError: anything else was raised inside.
        MemoryError: passed on.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        msg = (
            f"{path} is damaged or no {what} file ({reason}); remove it and get it anew"
        )
        raise ValueError(msg) from error


def table(
    content: bytes,
    num_columns: int | None = None,
    *,
    floats: bool = False,
    separator: bytes = b",",
) -> Num[np.ndarray, "rows columns"]:
    """Parse lines of numbers, gzipped or not.

    Args:
        content: of the file, without a header line.
        num_columns: in every line; None takes what the first line has.
        floats: float32 (nan allowed) instead of int64.
        separator: between the numbers of a line, one byte.

    Raises:
        ValueError: the text is anything but such lines.
    """
    stream, limit = io.BytesIO(content), MAX_BYTES
    if content[:2] == b"\x1f\x8b":
        stream, limit = gzip.GzipFile(fileobj=stream), _limit(len(content))
    dtype = np.float32 if floats else np.int64
    parts = []
    for lines in _whole_lines(stream, limit):
        if num_columns is None:
            num_columns = lines[: lines.index(b"\n")].count(separator) + 1
        parts.append(_numbers(lines, num_columns, dtype, separator))
    if not parts:
        return np.empty((0, num_columns or 1), dtype)
    return np.concatenate(parts)


def without_header(content: bytes, header: bytes | None = None) -> bytes:
    """Return the lines after the first.

    Raises:
        ValueError: the first line is not the expected one.
    """
    first, _, rest = content.partition(b"\n")
    if header is not None and first.rstrip(b"\r") != header:
        msg = f"the first line is not {header.decode()!r}"
        raise ValueError(msg)
    return rest


def _limit(size: int) -> int:
    """Return how many bytes a file of so many may unpack to."""
    return min(MAX_BYTES, max(ALWAYS, MAX_RATIO * size))


def _whole_lines(stream: io.BufferedIOBase, limit: int) -> Iterator[bytes]:
    rest, total = b"", 0
    while block := stream.read(CHUNK):
        total += len(block)
        if total > limit:
            msg = f"it unpacks to more than {limit} bytes"
            raise ValueError(msg)
        block = (rest + block).replace(b"\r", b"")
        end = block.rfind(b"\n") + 1
        rest = block[end:]
        if len(rest) > CHUNK:
            msg = f"a line is longer than {CHUNK} bytes"
            raise ValueError(msg)
        if end:
            yield block[:end]
    if rest:
        yield rest + b"\n"


def _numbers(
    lines: bytes, num_columns: int, dtype: type, separator: bytes
) -> Num[np.ndarray, "rows columns"]:
    num_lines = lines.count(b"\n")
    digits = INTEGERS if dtype is np.int64 else FLOATS
    # With the digits taken out, only the skeleton of the table may be left: this finds
    # short lines, blank lines and foreign characters in one pass.
    skeleton = (separator * (num_columns - 1) + b"\n") * num_lines
    if lines.translate(None, digits) != skeleton:
        msg = f"not every line has {num_columns} number(s)"
        raise ValueError(msg)
    blanks = lines.translate(bytes.maketrans(separator + b"\n", b"  "))
    values = np.fromstring(blanks, dtype=dtype, sep=" ")
    if values.size != num_lines * num_columns:
        msg = f"not every line has {num_columns} number(s)"
        raise ValueError(msg)
    return values.reshape(num_lines, num_columns)


def members(
    content: bytes | Path, expected: Mapping[str, tuple[str, int]]
) -> dict[str, np.ndarray]:
    """Read the named arrays of an npz; nothing else in it is looked at.

    Args:
        content: of the npz file, or where it is.
        expected: name -> admissible dtype kinds (``"iu"``, ``"f"``, ...) and number of
            dimensions; a name that ends in ``?`` may be missing.

    Raises:
        ValueError: a member is missing, pickled, of another type, or does not hold the
            data that its header claims.
    """
    arrays = {}
    if isinstance(content, bytes):
        file, size = io.BytesIO(content), len(content)
    else:
        file, size = content, content.stat().st_size
    limit = _limit(size)
    with zipfile.ZipFile(file) as archive:
        there = set(archive.namelist())
        for wanted, (kinds, num_dimensions) in expected.items():
            name = wanted.removesuffix("?")
            if f"{name}.npy" not in there:
                if name != wanted:
                    continue
                msg = f"it has no member {name!r}"
                raise ValueError(msg)
            info = archive.getinfo(f"{name}.npy")
            # Sizes are compared before anything is unpacked or allocated.
            if info.file_size > limit:
                msg = f"member {name!r} unpacks to {info.file_size} bytes"
                raise ValueError(msg)
            with archive.open(info) as stream:
                arrays[name] = _array(stream, name, info.file_size)
            array = arrays[name]
            if array.dtype.kind not in kinds or array.ndim != num_dimensions:
                msg = (
                    f"member {name!r} has dtype {array.dtype} and {array.ndim} "
                    f"dimensions, expected kind {kinds!r} and {num_dimensions}"
                )
                raise ValueError(msg)
    return arrays


def _array(stream: Any, name: str, size: int) -> np.ndarray:
    version = np.lib.format.read_magic(stream)
    if version not in {(1, 0), (2, 0)}:
        msg = f"member {name!r} has npy version {version}"
        raise ValueError(msg)
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, fortran_order, dtype = read_header(stream)
    if dtype.hasobject or dtype.itemsize == 0:
        msg = f"member {name!r} is pickled or empty-typed ({dtype}), which is not read"
        raise ValueError(msg)
    claimed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or stream.tell() + claimed != size:
        msg = f"member {name!r} claims shape {shape}, but holds {size} bytes"
        raise ValueError(msg)
    flat = np.frombuffer(stream.read(), dtype)
    return flat.reshape(shape, order="F" if fortran_order else "C")
