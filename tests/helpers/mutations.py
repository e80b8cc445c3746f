"""Mutations of files by hypothesis: of bytes, of numbers, of what archives hold."""

import gzip
import io
import re
import struct
import zipfile

import miniatures
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


# The same numbers, as other programs write them.
VARIANTS = {
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "blank last lines": lambda text: text + b"\n \r\n\n",
    "no last line end": lambda text: text.rstrip(),
    "blanks after commas": lambda text: text.replace(b",", b", "),
    "blanks before commas": lambda text: text.replace(b",", b"  ,"),
    "blanks around lines": lambda text: b" " + text.replace(b"\n", b"  \n "),
    "line ends of Windows": lambda text: text.replace(b"\n", b"\r\n"),
    "line ends of an old Mac": lambda text: text.replace(b"\n", b"\r"),
}

# Values of pickles that are nested deep, or shared to look exponentially large. Each
# leaves one value on the stack; memo entry 7 is used.
_DTYPE = miniatures.opcode_global("numpy", "dtype")
NESTED = {
    "tuples": lambda depth: b")" + b"\x85" * depth,
    "pairs": lambda depth: b")" + b"q\x07h\x07\x86" * depth,
    "wide tuples": lambda depth: b")" + (b"q\x07(" + b"h\x07" * 50 + b"t") * depth,
    "lists": lambda depth: b"]" * (depth + 1) + b"a" * depth,
    "a cycle": lambda depth: b"]q\x07" + b"h\x07a" * depth,
    "dictionaries": lambda depth: b"}K\x00" * depth + b"}" + b"s" * depth,
    "arguments": lambda depth: _DTYPE * depth + b")" + b"R" + b"\x85R" * (depth - 1),
    "states": lambda depth: (_DTYPE + b")R") * depth + b"\x85b" * (depth - 1),
    "marks": lambda depth: b"(" * depth + b"t" * depth,
}


def in_graph(key=b"K\x00", value=b"]"):
    """Return the pickle of a graph with one key, both as they stand in a program."""
    start = miniatures.pickled_graph({}).removesuffix(b"(u")
    return miniatures.pickle_program(start + key + value + b"s")


def in_array(**parts):
    """Return the pickle of an array with its shape, dtype or state put in."""
    ones = np.ones((2, 2), "<i4")
    program = miniatures.pickled_array(ones)
    olds = {
        "shape": b"(" + 2 * miniatures._integer(2) + b"t",
        "dtype": miniatures._string(b"i4"),
        "order": miniatures._string(b"<"),
        "raw": miniatures._string(ones.tobytes()),
    }
    for part, new in parts.items():
        assert olds[part] in program
        program = program.replace(olds[part], new, 1)
    return miniatures.pickle_program(program)


# Places in a pickle, and the part of Planetoid that has such a place.
PLACES = {
    "key": ("graph", lambda value: in_graph(key=value)),
    "neighbors": ("graph", lambda value: in_graph(value=value)),
    "neighbor": ("graph", lambda value: in_graph(value=b"]" + value + b"a")),
    "shape": ("ally", lambda value: in_array(shape=value)),
    "dtype": ("ally", lambda value: in_array(dtype=value)),
    "byte order": ("ally", lambda value: in_array(order=value)),
    "raw bytes": ("ally", lambda value: in_array(raw=value)),
    "whole file": ("allx", miniatures.pickle_program),
}

# Beginnings of npy headers that Python's parser fails on when they are repeated.
NESTED_HEADERS = ("(", "[", "{1:", "-", "not ", "lambda:", " ", "9", ",", "'descr':")
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def with_header(text):
    """Return an npy of version 2 with any header."""
    header = text.encode()
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header


def with_dictionary(content, size):
    """Return a zip file of lzma whose first member claims a dictionary of this size."""
    content = bytearray(content)
    start = content.index(b"\x09\x04\x05\x00]") + 5
    content[start : start + 4] = struct.pack("<I", size)
    return bytes(content)


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
    kinds = ["number", "number", "drop", "double", "move", "variant"]
    kind = draw(strategies.sampled_from(kinds))
    place = draw(strategies.integers(0, len(lines) - 1))
    if kind == "variant":
        return VARIANTS[draw(strategies.sampled_from(sorted(VARIANTS)))](content)
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
    kinds = ["header", "array", "drop", "swap", "bytes", "nested", "packed"]
    kind = draw(strategies.sampled_from(kinds))
    if kind == "header":
        members[name] = _header(draw, members[name])
    elif kind == "array":
        members[name] = saved(draw(strategies.sampled_from(WRONG)))
    elif kind == "drop":
        del members[name]
    elif kind == "nested":
        inside = draw(strategies.sampled_from(NESTED_HEADERS))
        members[name] = with_header(inside * draw(strategies.integers(1, 60_000)))
    elif kind == "packed":
        return zipped(members, draw(strategies.sampled_from(METHODS)))
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
    kinds = ["number", "number", "string", "opcode", "nested"]
    kind = draw(strategies.sampled_from(kinds))
    if kind == "opcode" or not places:
        place = draw(strategies.integers(2, len(content) - 1))
        content[place] = draw(strategies.sampled_from(b"()]}eusbtR\x81\x85\x86h0N2q."))
    elif kind == "nested":
        place = draw(strategies.sampled_from(places))
        nested = NESTED[draw(strategies.sampled_from(sorted(NESTED)))]
        content[place : place + 5] = nested(draw(strategies.integers(1, 200)))
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


def zipped(members, method=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
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
