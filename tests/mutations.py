"""Mutations of files by hypothesis: of bytes, of numbers, of what archives hold."""

import gzip
import io
import re
import struct
import zipfile

import numpy as np
from hypothesis import strategies

NUMBERS = (
    b"0", b"-1", b"7", b"1e3", b"1e400", b"nan", b"-inf", b"", b"x", b"\xff",
    str(2**31).encode(), str(2**60).encode(), b"9" * 40,
)  # fmt: skip
SIZES = (0, 1, 3, -1, 2**31, 2**60, 2**63, 2**64)
VALUES = (0, 1, -1, 2**31 - 1, -(2**31))
DTYPES = ("<i8", ">i4", "<u8", "<f8", "<f2", "<c16", "|b1", "|S3", "<U2", "<M8[s]")
WRONG = (
    np.zeros(0), np.array(3), np.full((12, 2), np.nan), np.full(12, 2**60),
    np.full((12, 2), -1), np.zeros((0, 2), int), np.ones((10, 12), bool),
    np.arange(12)[::-1], np.zeros((1, 1, 1)), np.array(["a", "b"]),
)  # fmt: skip


def changed(draw, path, others):
    """Return other content for a file; ``others`` are those beside it."""
    content = path.read_bytes()
    kinds = [_bytes, _swapped]
    if path.suffix == ".npz":
        kinds += [_archive] * 4
    elif path.suffix == ".gz":
        kinds += [_packed] * 3
    elif path.suffix in {".txt", ".csv", ".index", ".json"}:
        kinds += [_text] * 3
    else:
        kinds += [_pickle] * 3
    kind = draw(strategies.sampled_from(kinds))
    return kind(draw, content, others)


def _bytes(draw, content, _):
    content = bytearray(content)
    place = draw(strategies.integers(0, len(content)))
    kind = draw(strategies.sampled_from(["flip", "cut", "insert", "append", "twice"]))
    if kind == "flip":
        for _ in range(draw(strategies.integers(1, 4))):
            place = draw(strategies.integers(0, len(content) - 1))
            content[place] = draw(strategies.integers(0, 255))
    elif kind == "cut":
        del content[place:]
    elif kind == "twice":
        content *= 2
    else:
        place = len(content) if kind == "append" else place
        content[place:place] = draw(strategies.binary(min_size=1, max_size=20))
    return bytes(content)


def _swapped(draw, _, others):
    return draw(strategies.sampled_from(others)).read_bytes()


def _text(draw, content, _):
    lines = content.splitlines(keepends=True)
    kind = draw(strategies.sampled_from(["number", "number", "drop", "double", "move"]))
    place = draw(strategies.integers(0, len(lines) - 1))
    if kind == "number":
        found = list(re.finditer(rb"[\w.-]+", content))
        old = found[draw(strategies.integers(0, len(found) - 1))]
        new = draw(strategies.sampled_from(NUMBERS))
        return content[: old.start()] + new + content[old.end() :]
    line = lines.pop(place)
    if kind == "double":
        lines[place:place] = [line] * draw(strategies.integers(2, 30))
    elif kind == "move":
        lines.insert(draw(strategies.integers(0, len(lines))), line)
    return b"".join(lines)


def _packed(draw, content, _):
    return gzip.compress(_text(draw, gzip.decompress(content), _))


def _archive(draw, content, _):
    members = unzipped(content)
    names = strategies.sampled_from(sorted(members))
    name, other = draw(names), draw(names)
    kind = draw(strategies.sampled_from(["header", "array", "drop", "swap", "bytes"]))
    if kind == "header":
        members[name] = _header(draw, members[name])
    elif kind == "array":
        members[name] = saved(draw(strategies.sampled_from(WRONG)))
    elif kind == "drop":
        del members[name]
    elif kind == "swap":
        members[name], members[other] = members[other], members[name]
    else:
        members[name] = _bytes(draw, members[name], None)
    return zipped(members)


def _header(draw, member):
    """Return a member whose header claims another shape or type of the same bytes."""
    stream = io.BytesIO(member)
    try:
        np.lib.format.read_magic(stream)
        shape, order, dtype = np.lib.format.read_array_header_1_0(stream)
    except ValueError:
        return member
    code = dtype.str if dtype.kind != "O" else "|O"
    if draw(strategies.booleans()):
        code = draw(strategies.sampled_from(DTYPES))
    else:
        sizes = strategies.sampled_from((*SIZES, *shape))
        shape = tuple(draw(strategies.lists(sizes, max_size=3)))
    return claiming(code, shape, stream.read(), order=order)


def _pickle(draw, content, _):
    """Put other numbers where the program has its four-byte ones."""
    content = bytearray(content)
    places = [i for i, byte in enumerate(content[:-5]) if byte == ord("J")]
    kind = draw(strategies.sampled_from(["number", "number", "string", "opcode"]))
    if kind == "opcode" or not places:
        place = draw(strategies.integers(2, len(content) - 1))
        content[place] = draw(strategies.sampled_from(b"()]}eusbtR\x81\x85\x86h0N2q."))
    elif kind == "string":
        strings = [i for i, byte in enumerate(content[:-5]) if byte == ord("T")]
        place = draw(strategies.sampled_from(strings or places))
        size = draw(strategies.sampled_from(VALUES))
        content[place + 1 : place + 5] = struct.pack("<i", size)
    else:
        for _ in range(draw(strategies.integers(1, 2))):
            place = draw(strategies.sampled_from(places))
            number = draw(strategies.sampled_from(VALUES))
            content[place + 1 : place + 5] = struct.pack("<i", number)
    return bytes(content)


def unzipped(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def zipped(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def saved(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def claiming(code, shape, data=b"", *, order=False):
    """Return an npy whose header claims what its data need not hold."""
    stream = io.BytesIO()
    header = {"descr": code, "fortran_order": order, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + data
