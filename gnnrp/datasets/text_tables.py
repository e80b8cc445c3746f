"""Tables of numbers in text files, gzipped or not, parsed in bounded pieces."""

import gzip
import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Num

from gnnrp.datasets import raw_files
from gnnrp.datasets.raw_files import File

CHUNK = 1 << 20  # bytes of text parsed at once; no line is longer
INTEGERS = b"0123456789-"
FLOATS = INTEGERS + b"+.eEnaN"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def table(
    file: File,
    num_columns: int | None = None,
    *,
    floats: bool = False,
    separators: bytes = b",",
    header: bytes | None = None,
    max_rows: int | None = None,
    copies: int = 0,
) -> Num[np.ndarray, "rows columns"]:
    """Parse lines of numbers, gzipped or not.

    A byte order mark, blanks around numbers, any line ends and blank lines at the end
    are ignored.

    Args:
        file: to read, once, so that it may be a pipe.
        num_columns: in every line; None takes the number of the first line.
        floats: float32 (nan allowed) instead of int64.
        separators: each of these bytes separates two numbers.
        header: the first line; None if there is none, empty if it may be anything.
        max_rows: a file of many more lines is refused before it is read to its end.
        copies: of the table, which the caller will need memory for.

    Raises:
        ValueError: the text is anything but such lines, or does not fit in memory.
    """
    dtype = np.float32 if floats else np.int64
    values: np.ndarray = np.empty((0, num_columns or 1), dtype)
    ended = False  # by a blank line
    for lines in _tidy_lines(file, separators, header):
        kept = lines.rstrip(b"\n")
        if not kept:
            ended = True
            continue
        if num_columns is None:
            num_columns = kept.partition(b"\n")[0].count(b",") + 1
            values = np.empty((0, num_columns), dtype)
        _require(not ended, num_columns)
        ended = len(kept) < len(lines) - 1
        if max_rows is not None and len(values) > max_rows:
            msg = f"it holds more than {len(values)} lines, but {max_rows} are stated"
            raise ValueError(msg)
        rows = _numbers(kept + b"\n", num_columns, dtype)
        num_rows = len(values) + len(rows)
        size = values.nbytes + rows.nbytes
        file.reserve(size + copies * size, allocated=values.nbytes)
        values.resize((num_rows, num_columns), refcheck=False)
        values[num_rows - len(rows) :] = rows
    return values


def _tidy_lines(file: File, separators: bytes, header: bytes | None) -> Iterator[bytes]:
    """Yield pieces of whole lines without blanks, with commas between the numbers.

    Raises:
        ValueError: the first line is not the header, or there is none.
    """
    commas = bytes.maketrans(separators, b"," * len(separators))
    tabs = b"" if b"\t" in separators else b"\t"
    inner = re.compile(rb"(?<![ %b])[ %b]+(?=[,\n])|(?<=[,\n])[ %b]+" % ((tabs,) * 3))
    with file.open() as opened:
        for lines in _whole_lines(*_unpacked(opened, file)):
            lines = lines if separators == b"," else lines.translate(commas)
            if b" " in lines or (tabs and tabs in lines):
                lines = inner.sub(b"", lines.lstrip(b" " + tabs))
            if header is not None:
                first, _, lines = lines.partition(b"\n")
                if header and first != header:
                    msg = f"the first line is not {header.decode()!r}"
                    raise ValueError(msg)
                header = None
            if lines:
                yield lines
    if header is not None:
        msg = "it is empty"
        raise ValueError(msg)


def _unpacked(opened: io.BufferedReader, file: File) -> tuple[io.BufferedIOBase, int]:
    """Return a stream of the text, and the bytes that it may have."""
    if opened.peek(2)[:2] == b"\x1f\x8b":
        unpacked: Any = gzip.GzipFile(fileobj=opened)
        return unpacked, file.unpacked_limit()
    return opened, raw_files.MAX_BYTES


def _whole_lines(stream: io.BufferedIOBase, limit: int) -> Iterator[bytes]:
    rest, total = b"", 0
    while block := stream.read(CHUNK):
        if not total:
            block = block.removeprefix(BYTE_ORDER_MARK)
        total += len(block)
        if total > limit:
            msg = f"it unpacks to more than {limit} bytes"
            raise ValueError(msg)
        block = rest + block
        # A carriage return at the very end may be the first half of a line end.
        end = max(block.rfind(b"\n"), block.rfind(b"\r", 0, -1)) + 1
        rest = block[end:]
        if len(rest) > CHUNK:
            msg = f"a line is longer than {CHUNK} bytes"
            raise ValueError(msg)
        if end:
            yield _with_newlines(block[:end])
    if rest:
        yield _with_newlines(rest + b"\n")


def _with_newlines(block: bytes) -> bytes:
    if b"\r" not in block:
        return block
    return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _numbers(
    lines: bytes, num_columns: int, dtype: type
) -> Num[np.ndarray, "rows columns"]:
    num_lines = lines.count(b"\n")
    digits = INTEGERS if dtype is np.int64 else FLOATS
    # Without the digits, only separators and line ends may remain: this finds short
    # lines, blank lines and foreign characters in one pass.
    skeleton = lines.translate(None, digits)
    # Its length first, since a first line of many columns claims a huge one.
    _require(len(skeleton) == num_lines * num_columns, num_columns)
    line = b"," * (num_columns - 1) + b"\n"
    _require(skeleton == line * num_lines, num_columns)
    blanks = lines.translate(bytes.maketrans(b",\n", b"  "))
    values = np.fromstring(blanks, dtype=dtype, sep=" ")
    _require(values.size == num_lines * num_columns, num_columns)
    return values.reshape(num_lines, num_columns)


def _require(condition: bool, num_columns: int) -> None:
    """Refuse text that is no table.

    Raises:
        ValueError: the condition does not hold.
    """
    if not condition:
        msg = f"not every line has {num_columns} number(s)"
        raise ValueError(msg)
