"""The pickles of Planetoid, run without numpy, scipy or anything else that could act.

A pickle is a program. The six globals that occur in the published files become inert
stand-ins; arrays are built afterwards from their raw parts, once these fit together.
"""

import io
import math
import pickle
import pickletools
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Num

# What the 24 published files use. Everything else is refused, since some operations
# copy without end, and one damaged byte can turn a memo index into gigabytes.
OPCODES = frozenset((
    *("APPEND", "APPENDS", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT"),
    *("BINSTRING", "BUILD", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "GLOBAL"),
    *("LONG_BINGET", "LONG_BINPUT", "MARK", "NEWFALSE", "NEWOBJ", "NEWTRUE"),
    *("NONE", "PROTO", "REDUCE", "SETITEM", "SETITEMS", "SHORT_BINSTRING"),
    *("STOP", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
))
DTYPES = {"i4": 4, "i8": 8, "f4": 4, "f8": 8}  # bytes


class Marker:
    """Stands for a type that is named but never called."""

    __slots__ = ()


class Part:
    """Stands for an array, a dtype or a matrix; keeps what it was built from."""

    __slots__ = ("arguments", "state")

    def __init__(self, *arguments: object) -> None:
        """Keep the arguments of the call."""
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        """Keep the state without interpreting it."""
        self.state = state


class Array(Part):
    """Stands for ``numpy.ndarray``."""

    __slots__ = ()


class Dtype(Part):
    """Stands for ``numpy.dtype``."""

    __slots__ = ()


class Matrix(Part):
    """Stands for ``scipy.sparse.csr_matrix``."""

    __slots__ = ()


class Graph(dict):
    """Stands for ``defaultdict(list)``."""

    __slots__ = ()

    def __init__(self, _: object) -> None:
        """Start empty; no factory is kept."""
        super().__init__()


STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): Array,
    ("numpy", "ndarray"): Marker,
    ("numpy", "dtype"): Dtype,
    ("scipy.sparse.csr", "csr_matrix"): Matrix,
    ("collections", "defaultdict"): Graph,
    ("__builtin__", "list"): Marker,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return STAND_INS[module_name, global_name]
        except KeyError:
            msg = f"it asks for {module_name}.{global_name}, which is not allowed"
            raise ValueError(msg) from None


def load(content: bytes) -> Any:
    """Run a Python 2 pickle with stand-ins for every global.

    Raises:
        ValueError: it uses a global, an operation or a memo index that the published
            files do not.
    """
    operations: Iterator[Any] = pickletools.genops(content)
    for opcode, argument, position in operations:
        if opcode.name not in OPCODES:
            msg = f"operation {opcode.name} at byte {position} is not allowed"
            raise ValueError(msg)
        if opcode.name == "GLOBAL" and tuple(argument.split(" ")) not in STAND_INS:
            name = argument.replace(" ", ".")
            msg = f"it asks for {name} at byte {position}, which is not allowed"
            raise ValueError(msg)
        if opcode.name.endswith("BINPUT") and argument > len(content):
            msg = f"memo index {argument} at byte {position} is absurd"
            raise ValueError(msg)
    return _Unpickler(io.BytesIO(content), encoding="latin1").load()


def is_shape(shape: object, num_dimensions: tuple[int, ...]) -> bool:
    """Return whether this is a tuple of so many sizes."""
    return (
        isinstance(shape, tuple)
        and len(shape) in num_dimensions
        and all(type(size) is int and size >= 0 for size in shape)
    )


def dense(array: object) -> Num[np.ndarray, "..."]:
    """Build an array of one or two dimensions from what numpy pickles of it.

    Raises:
        TypeError: it is no array, or a part of its state has the wrong type.
        ValueError: the parts do not fit together.
    """
    if not isinstance(array, Array) or not isinstance(array.state, tuple):
        msg = "an array is missing"
        raise TypeError(msg)
    _, shape, dtype, fortran_order, raw = array.state
    if not isinstance(dtype, Dtype) or not isinstance(raw, str):
        msg = "an array has no plain dtype or no raw bytes"
        raise TypeError(msg)
    code, byte_order = str(dtype.arguments[0]), dtype.state[1]
    if code not in DTYPES or byte_order not in {"<", ">"}:
        msg = f"an array has dtype {byte_order!r} {code!r}"
        raise ValueError(msg)
    if not is_shape(shape, (1, 2)) or math.prod(shape) * DTYPES[code] != len(raw):
        msg = f"an array of shape {shape!r} is stored in {len(raw)} bytes"
        raise ValueError(msg)
    flat = np.frombuffer(raw.encode("latin1"), byte_order + code)
    return flat.reshape(shape, order="F" if fortran_order else "C")
