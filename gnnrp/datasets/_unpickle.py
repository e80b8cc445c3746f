"""A restricted evaluation of the pickles of Planetoid, which runs no foreign code.

A pickle is a program. This module evaluates the few operations that the published files
use, on plain values and inert stand-ins for the six globals in them. Containers are
flat, so that no value is nested deep or shared to look exponentially large. Arrays are
built afterwards from their raw parts, once these fit together.
"""

import math
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Num

from gnnrp.runtime import checks

MAX_OPERATIONS = 1 << 21  # the largest published file has 178,216
MAX_STACK = 1 << 16  # pickle writes 1,000 items at once
MAX_WIDTH = 16  # of a tuple and of a state
CHECKED_EVERY = 1 << 16  # operations between two checks of the memory
DTYPES = {"i4": 4, "i8": 8, "f4": 4, "f8": 8}  # bytes


class Marker:
    """A type that is named but never called."""

    __slots__ = ()


class Part:
    """An array, a dtype or a matrix as the arguments and the state in the file."""

    __slots__ = ("arguments", "state")

    def __init__(self, *arguments: object) -> None:
        """Keep the arguments of the call."""
        self.arguments = arguments
        self.state: Any = None


class Array(Part):
    """Stand-in for ``numpy.ndarray``."""

    __slots__ = ()


class Dtype(Part):
    """Stand-in for ``numpy.dtype``."""

    __slots__ = ()


class Matrix(Part):
    """Stand-in for ``scipy.sparse.csr_matrix``."""

    __slots__ = ()


class Graph(dict):
    """Stand-in for ``defaultdict(list)``."""

    __slots__ = ()

    def __init__(self, _: object) -> None:
        """Start empty; the factory is dropped."""
        super().__init__()


STAND_INS = {
    "numpy.core.multiarray _reconstruct": Array,
    "numpy ndarray": Marker,
    "numpy dtype": Dtype,
    "scipy.sparse.csr csr_matrix": Matrix,
    "collections defaultdict": Graph,
    "__builtin__ list": Marker,
}
_CALLABLE = (Array, Dtype, Matrix, Graph)
_INSIDE = {Dtype: (), Array: (Dtype,), Matrix: (Array,)}
_SCALARS = (bool, int, float, str, type(None))


def load(content: bytes, check_memory: Callable[[], None] = lambda: None) -> Any:
    """Evaluate a Python 2 pickle with stand-ins for every global.

    Args:
        content: of the file.
        check_memory: called now and then; raises if memory is short.

    Raises:
        ValueError: an operation, a global or a container that the published files do
            not have, or too many of them.
    """
    machine = _Machine(len(content))
    for number, (opcode, argument, position) in enumerate(pickletools.genops(content)):
        if number >= MAX_OPERATIONS:
            msg = f"it has more than {MAX_OPERATIONS} operations"
            raise ValueError(msg)
        if number % CHECKED_EVERY == 0:
            check_memory()
        if len(machine.stack) > MAX_STACK:
            msg = f"more than {MAX_STACK} values are stacked at byte {position}"
            raise ValueError(msg)
        operation = _OPERATIONS.get(opcode.name)
        if operation is None:
            msg = f"operation {opcode.name} at byte {position} is not allowed"
            raise ValueError(msg)
        try:
            operation(machine, argument)
        except ValueError as error:
            msg = f"{error} at byte {position}"
            raise ValueError(msg) from None
        except (IndexError, KeyError):  # of the stack, the marks or the memo
            msg = f"operation {opcode.name} at byte {position} lacks its operands"
            raise ValueError(msg) from None
    return machine.result()


class _Machine:
    """The stack and the memo of a pickle that is being evaluated."""

    def __init__(self, max_memo: int) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []  # heights of the stack
        self.memo: dict[int, Any] = {}
        self.max_memo = max_memo

    def result(self) -> Any:
        """Return the only value on the stack."""
        _require(
            len(self.stack) == 1, f"it ends with {len(self.stack)} values, not one"
        )
        return self.stack[0]

    def put(self, index: int) -> None:
        _require(index <= self.max_memo, f"memo index {index} is larger than the file")
        self.memo[index] = self.stack[-1]

    def pop(self, count: int) -> list[Any]:
        """Remove the last values, of those above the last mark."""
        base = self.marks[-1] if self.marks else 0
        _require(len(self.stack) - count >= base, "too few values are stacked")
        return self._cut(len(self.stack) - count)

    def pop_mark(self) -> list[Any]:
        return self._cut(self.marks.pop())

    def _cut(self, height: int) -> list[Any]:
        values = self.stack[height:]
        del self.stack[height:]
        return values


def _require(condition: bool, otherwise: str) -> None:
    """Refuse a pickle.

    Raises:
        ValueError: the condition does not hold.
    """
    if not condition:
        raise ValueError(otherwise)


def _set_items(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    _require(
        isinstance(target, dict), "items are set on something else than a dictionary"
    )
    _require(len(items) % 2 == 0, "a key has no value")
    keys, values = items[::2], items[1::2]
    plain = all(type(key) in {int, str} for key in keys)
    _require(plain, "a key is neither a number nor a string")
    nested = any(isinstance(value, dict) for value in values)
    _require(not nested, "a dictionary holds a dictionary")
    target.update(zip(keys, values, strict=True))


def _append(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    _require(type(target) is list, "items are appended to something else than a list")
    _require(_are_scalars(items), "a list holds something else than scalars")
    target += items


def _push_tuple(machine: _Machine, items: list[Any]) -> None:
    """Push a tuple, which may hold tuples of scalars, but none of tuples."""
    _require(len(items) <= MAX_WIDTH, f"a tuple has {len(items)} items")
    held = any(isinstance(item, list | dict) for item in items)
    _require(not held, "a tuple holds a list or dictionary")
    flat = all(type(item) is not tuple or _are_scalars(item) for item in items)
    _require(flat, "tuples are nested")
    machine.stack.append(tuple(items))


def _are_scalars(items: list[Any] | tuple[Any, ...]) -> bool:
    return all(isinstance(item, _SCALARS) for item in items)


def _push_global(machine: _Machine, argument: str) -> None:
    name = checks.shown(argument[:80].replace(" ", "."))
    _require(argument in STAND_INS, f"it asks for {name}, which is not allowed,")
    machine.stack.append(STAND_INS[argument])


def _call(machine: _Machine) -> None:
    function, arguments = machine.pop(2)
    known = any(function is each for each in _CALLABLE) and type(arguments) is tuple
    _require(known, "something else than one of six globals is called")
    _require(function is not Graph or len(arguments) == 1, "a graph has no factory")
    inside = any(isinstance(argument, Part) for argument in arguments)
    _require(not inside, "an argument is an array, a dtype or a matrix")
    machine.stack.append(function(*arguments))


def _build(machine: _Machine) -> None:
    """Set the state of a part to a copy, so that no later operation nests it."""
    (state,) = machine.pop(1)
    part = machine.stack[-1]
    fits = isinstance(part, Part) and isinstance(state, tuple | dict)
    _require(
        fits and len(state) <= MAX_WIDTH, "a state is no short tuple or dictionary"
    )
    allowed = _INSIDE[type(part)]
    for value in state.values() if isinstance(state, dict) else state:
        inside = not isinstance(value, Part) or isinstance(value, allowed)
        _require(inside, "arrays, dtypes or matrices are nested")
    part.state = dict(state) if isinstance(state, dict) else state


# The operations of the 24 published files. No other one is allowed.
_OPERATIONS: dict[str, Callable[[_Machine, Any], Any]] = {
    "PROTO": lambda *_: None,
    "STOP": lambda *_: None,
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "NONE": lambda machine, _: machine.stack.append(None),
    "NEWTRUE": lambda machine, _: machine.stack.append(True),
    "NEWFALSE": lambda machine, _: machine.stack.append(False),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "APPEND": lambda machine, _: _append(machine, machine.pop(1)),
    "APPENDS": lambda machine, _: _append(machine, machine.pop_mark()),
    "SETITEM": lambda machine, _: _set_items(machine, machine.pop(2)),
    "SETITEMS": lambda machine, _: _set_items(machine, machine.pop_mark()),
    "TUPLE": lambda machine, _: _push_tuple(machine, machine.pop_mark()),
    "GLOBAL": _push_global,
    "REDUCE": lambda machine, _: _call(machine),
    "NEWOBJ": lambda machine, _: _call(machine),
    "BUILD": lambda machine, _: _build(machine),
}
for _count in (1, 2, 3):
    _OPERATIONS[f"TUPLE{_count}"] = lambda machine, _, count=_count: _push_tuple(
        machine, machine.pop(count)
    )
for _name in ("BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING"):
    _OPERATIONS[_name] = lambda machine, value: machine.stack.append(value)
for _name in ("BINGET", "LONG_BINGET"):
    _OPERATIONS[_name] = lambda machine, index: machine.stack.append(
        machine.memo[index]
    )
for _name in ("BINPUT", "LONG_BINPUT"):
    _OPERATIONS[_name] = _Machine.put


def is_shape(shape: object, num_dimensions: tuple[int, ...]) -> bool:
    """Return whether this is a tuple of so many sizes."""
    return (
        isinstance(shape, tuple)
        and len(shape) in num_dimensions
        and all(type(size) is int and size >= 0 for size in shape)
    )


def dense(array: object) -> Num[np.ndarray, "..."]:
    """Build an array of one or two dimensions from its raw parts.

    Raises:
        TypeError: it is no array, or a part of its state has the wrong type.
        ValueError: the parts do not fit together.
    """
    if not isinstance(array, Array) or not isinstance(array.state, tuple):
        msg = "an array is missing"
        raise TypeError(msg)
    if len(array.state) != 5:
        msg = f"an array has {len(array.state)} parts instead of 5"
        raise ValueError(msg)
    _, shape, dtype, fortran_order, raw = array.state
    if not isinstance(dtype, Dtype) or not isinstance(raw, str):
        msg = "an array has no plain dtype or no raw bytes"
        raise TypeError(msg)
    code = dtype.arguments[0] if dtype.arguments else None
    state = dtype.state if isinstance(dtype.state, tuple) else ()
    byte_order = state[1] if len(state) > 1 else None
    if not isinstance(code, str) or code not in DTYPES or byte_order not in ("<", ">"):
        found = checks.shown(code[:80]) if isinstance(code, str) else "none"
        msg = f"an array has dtype {found} or no byte order"
        raise ValueError(msg)
    if not is_shape(shape, (1, 2)):
        msg = "the shape of an array is not one or two sizes"
        raise ValueError(msg)
    if math.prod(shape) * DTYPES[code] != len(raw):
        msg = f"an array of shape {shape} is stored in {len(raw)} bytes"
        raise ValueError(msg)
    flat = np.frombuffer(raw.encode("latin1"), byte_order + code)
    return flat.reshape(shape, order="F" if fortran_order else "C")
