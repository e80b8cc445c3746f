"""Tables of numbers in text files, gzipped or not, parsed in bounded chunks."""

import gzip
import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int, Num

from gnnrp.datasets import raw_files
from gnnrp.datasets._validate import require
from gnnrp.datasets.raw_files import File

CHUNK = 1 << 20  # bytes of text parsed at once; no line is longer
INTEGERS = b"0123456789-"
FLOATS = INTEGERS + b"+.eEnaN"
MAX_DIGITS = 18  # of an integer in int64
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NO_TABLE = "not every line has {} number(s)"


def table(
    file: File,
    num_columns: int | None = None,  # None: those of the first line
    *,
    floats: bool = False,  # float32, nan allowed, instead of int64
    separators: bytes = b",",
    header: bytes | None = None,  # the first line; None: no header, empty: any header
    max_rows: int | None = None,
    copies: int = 0,  # that the caller makes, for the memory check
) -> Num[np.ndarray, "rows columns"]:
    """Parse lines of numbers in one pass, so that the file may be a pipe."""
    dtype = np.float32 if floats else np.int64
    values: np.ndarray = np.empty((0, num_columns or 1), dtype)
    ended = False  # by a blank line
    for lines in _clean_lines(file, separators, header):
        text = lines.rstrip(b"\n")
        if not text:
            ended = True
            continue
        if num_columns is None:
            num_columns = text.partition(b"\n")[0].count(b",") + 1
            values = np.empty((0, num_columns), dtype)
        require(not ended, _NO_TABLE.format(num_columns))
        ended = len(text) < len(lines) - 1
        count = len(values)
        fits = max_rows is None or count <= max_rows
        require(fits, f"it holds more than {count} lines, but {max_rows} are stated")
        rows = _numbers(text + b"\n", num_columns, dtype)
        num_rows = len(values) + len(rows)
        size = values.nbytes + rows.nbytes
        file.reserve(size + copies * size, allocated=values.nbytes)
        values.resize((num_rows, num_columns), refcheck=False)
        values[num_rows - len(rows) :] = rows
    return values


def ragged_lines(
    file: File, *, separators: bytes = b",", header: bytes | None = None
) -> list[Int[np.ndarray, " k"]]:
    """Parse lines of integers of different lengths."""
    rows = []
    for lines in _clean_lines(file, separators, header):
        text = lines.strip(b"\n")
        file.reserve(16 * len(lines) + 128 * (len(rows) + lines.count(b"\n")))
        for line in text.split(b"\n"):
            fields = line.split(b",")
            valid = all(field.removeprefix(b"-").isdigit() for field in fields)
            valid = valid and max(map(len, fields)) < MAX_DIGITS
            require(valid, f"line {len(rows) + 1} is not a list of integers")
            rows.append(np.array(fields, "S").astype(np.int64))
    return rows


def _clean_lines(
    file: File, separators: bytes, header: bytes | None
) -> Iterator[bytes]:
    """Yield chunks of whole lines without blanks, with commas between the numbers."""
    commas = bytes.maketrans(separators, b"," * len(separators))
    tabs = b"" if b"\t" in separators else b"\t"
    inner = re.compile(rb"(?<![ %b])[ %b]+(?=[,\n])|(?<=[,\n])[ %b]+" % ((tabs,) * 3))
    with file.open() as stream:
        for lines in _whole_lines(*_unpack(stream, file)):
            lines = lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            lines = lines if separators == b"," else lines.translate(commas)
            if b" " in lines or (tabs and tabs in lines):
                lines = inner.sub(b"", lines.lstrip(b" " + tabs))
            if header is not None:
                first, _, lines = lines.partition(b"\n")
                valid = header in {b"", first}
                require(valid, f"the first line is not {header.decode()!r}")
                header = None
            if lines:
                yield lines
    require(header is None, "it is empty")


def _unpack(stream: io.BufferedReader, file: File) -> tuple[io.BufferedIOBase, int]:
    """Return a stream of the text, and its largest allowed size in bytes."""
    if stream.peek(2)[:2] == b"\x1f\x8b":
        unpacked: Any = gzip.GzipFile(fileobj=stream)
        return unpacked, file.max_unpacked_bytes()
    return stream, raw_files.MAX_BYTES


def _whole_lines(stream: io.BufferedIOBase, limit: int) -> Iterator[bytes]:
    rest, total = b"", 0
    while block := stream.read(CHUNK):
        if not total:
            block = block.removeprefix(BYTE_ORDER_MARK)
        total += len(block)
        require(total <= limit, f"it unpacks to more than {limit} bytes")
        block = rest + block
        # A carriage return at the very end may be the first half of a line end.
        end = max(block.rfind(b"\n"), block.rfind(b"\r", 0, -1)) + 1
        rest = block[end:]
        require(len(rest) <= CHUNK, f"a line is longer than {CHUNK} bytes")
        if end:
            yield block[:end]
    if rest:
        yield rest + b"\n"


def _numbers(
    lines: bytes, num_columns: int, dtype: type
) -> Num[np.ndarray, "rows columns"]:
    num_lines, error = lines.count(b"\n"), _NO_TABLE.format(num_columns)
    digits = INTEGERS if dtype is np.int64 else FLOATS
    # Without the digits, only separators and line ends may remain: one pass finds short
    # lines, blank lines and foreign characters.
    skeleton = lines.translate(None, digits)
    # Its length first, since a first line of many columns claims a huge one.
    require(len(skeleton) == num_lines * num_columns, error)
    line = b"," * (num_columns - 1) + b"\n"
    require(skeleton == line * num_lines, error)
    blanks = lines.translate(bytes.maketrans(b",\n", b"  "))
    values = np.fromstring(blanks, dtype=dtype, sep=" ")
    require(values.size == num_lines * num_columns, error)
    return values.reshape(num_lines, num_columns)
