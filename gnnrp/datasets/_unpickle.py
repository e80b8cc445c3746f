"""A restricted evaluation of the pickles of Planetoid, which runs no foreign code.

The few operations of the published files make plain values and inert stand-ins for six
globals. Containers are flat: no value is deeply nested, or shared to look huge.
"""

import dataclasses
import math
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Num

from gnnrp.datasets._validate import require
from gnnrp.runtime import checks

MAX_OPERATIONS = 1 << 21  # the largest published file has 178,216
MAX_STACK = 1 << 16  # pickle writes 1,000 items at once
MAX_WIDTH = 16  # of a tuple and of a state
CHECK_EVERY = 1 << 16  # operations between two checks of the memory
DTYPES = {"i4": 4, "i8": 8, "f4": 4, "f8": 8}  # bytes
KINDS = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy dtype": "dtype",
    "scipy.sparse.csr csr_matrix": "matrix",
    "collections defaultdict": "graph",
    "numpy ndarray": "type",
    "__builtin__ list": "type",
}
_ALLOWED_INSIDE = {"dtype": (), "array": ("dtype",), "matrix": ("array",)}
_SCALARS = (bool, int, float, str, type(None))


@dataclasses.dataclass(eq=False, slots=True)
class Global:
    """Stand-in for a global; calling it makes a ``Part`` or a ``Graph``."""

    kind: str


@dataclasses.dataclass(eq=False, slots=True)
class Part:
    """An array, a dtype or a matrix as the arguments and the state in the file."""

    kind: str
    arguments: tuple[Any, ...]
    state: Any = None


class Graph(dict):
    """Stand-in for ``defaultdict(list)``."""

    __slots__ = ()


def load(content: bytes, check_memory: Callable[[], None] = lambda: None) -> Any:
    """Evaluate a Python 2 pickle with stand-ins for every global."""
    machine = _Machine(len(content))
    for number, (opcode, argument, position) in enumerate(pickletools.genops(content)):
        valid = number < MAX_OPERATIONS
        require(valid, f"it has more than {MAX_OPERATIONS} operations")
        if number % CHECK_EVERY == 0:
            check_memory()
        name, place = opcode.name, f"at byte {position}"
        overflow = len(machine.stack) > MAX_STACK
        require(not overflow, f"more than {MAX_STACK} values are stacked {place}")
        require(name in _OPERATIONS, f"operation {name} {place} is not allowed")
        try:
            _OPERATIONS[name](machine, argument)
        except ValueError as error:
            msg = f"{error} {place}"
            raise ValueError(msg) from None
        except (IndexError, KeyError):  # of the stack, the marks or the memo
            msg = f"operation {name} {place} lacks its operands"
            raise ValueError(msg) from None
    num_values = len(machine.stack)
    require(num_values == 1, f"it ends with {num_values} values, not one")
    return machine.stack[0]


class _Machine:
    """The stack and the memo during an evaluation."""

    def __init__(self, max_memo: int) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []  # heights of the stack
        self.memo: dict[int, Any] = {}
        self.max_memo = max_memo

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def put(self, index: int) -> None:
        require(index <= self.max_memo, f"memo index {index} is larger than the file")
        self.memo[index] = self.stack[-1]

    def pop(self, count: int) -> list[Any]:
        """Remove the last values, of those above the last mark."""
        base = self.marks[-1] if self.marks else 0
        require(len(self.stack) - count >= base, "too few values are stacked")
        return self._cut(len(self.stack) - count)

    def pop_mark(self) -> list[Any]:
        return self._cut(self.marks.pop())

    def _cut(self, height: int) -> list[Any]:
        values = self.stack[height:]
        del self.stack[height:]
        return values


def _set_items(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    require(isinstance(target, dict), "items are set on no dictionary")
    require(len(items) % 2 == 0, "a key has no value")
    keys, values = items[::2], items[1::2]
    plain = all(type(key) in {int, str} for key in keys)
    require(plain, "a key is neither a number nor a string")
    nested = any(isinstance(value, dict) for value in values)
    require(not nested, "a dictionary holds a dictionary")
    target.update(zip(keys, values, strict=True))


def _append(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    require(type(target) is list, "items are appended to no list")
    require(_are_scalars(items), "a list holds something else than scalars")
    target += items


def _push_tuple(machine: _Machine, items: list[Any]) -> None:
    """Push a tuple, which may hold tuples of scalars only."""
    require(len(items) <= MAX_WIDTH, f"a tuple has {len(items)} items")
    nested = any(isinstance(item, list | dict) for item in items)
    require(not nested, "a tuple holds a list or dictionary")
    flat = all(type(item) is not tuple or _are_scalars(item) for item in items)
    require(flat, "tuples are nested")
    machine.push(tuple(items))


def _are_scalars(items: list[Any] | tuple[Any, ...]) -> bool:
    return all(isinstance(item, _SCALARS) for item in items)


def _push_global(machine: _Machine, name: str) -> None:
    shown = checks.format_value(name[:80].replace(" ", "."))
    require(name in KINDS, f"it asks for {shown}, which is not allowed,")
    machine.push(Global(KINDS[name]))


def _call(machine: _Machine) -> None:
    function, arguments = machine.pop(2)
    kind = function.kind if isinstance(function, Global) else "none"
    valid = kind in {"graph", *_ALLOWED_INSIDE} and type(arguments) is tuple
    require(valid, "something else than one of six globals is called")
    require(kind != "graph" or len(arguments) == 1, "a graph has no factory")
    nested = any(isinstance(argument, Part) for argument in arguments)
    require(not nested, "an argument is an array, a dtype or a matrix")
    machine.push(Graph() if kind == "graph" else Part(kind, arguments))


def _build(machine: _Machine) -> None:
    """Set the state of a part to a copy, so that no later operation nests it."""
    state: Any = machine.pop(1)[0]
    part = machine.stack[-1]
    valid = isinstance(part, Part) and isinstance(state, tuple | dict)
    valid = valid and len(state) <= MAX_WIDTH
    require(valid, "a state is no short tuple or dictionary")
    for value in state.values() if isinstance(state, dict) else state:
        nested = isinstance(value, Part)
        allowed = not nested or value.kind in _ALLOWED_INSIDE[part.kind]
        require(allowed, "arrays, dtypes or matrices are nested")
    part.state = dict(state) if isinstance(state, dict) else state


# The operations of the 24 published files. No other one is allowed.
_OPERATIONS: dict[str, Callable[[_Machine, Any], Any]] = {
    "PROTO": lambda *_: None,
    "STOP": lambda *_: None,
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "APPEND": lambda machine, _: _append(machine, machine.pop(1)),
    "APPENDS": lambda machine, _: _append(machine, machine.pop_mark()),
    "SETITEM": lambda machine, _: _set_items(machine, machine.pop(2)),
    "SETITEMS": lambda machine, _: _set_items(machine, machine.pop_mark()),
    "TUPLE": lambda machine, _: _push_tuple(machine, machine.pop_mark()),
    "TUPLE1": lambda machine, _: _push_tuple(machine, machine.pop(1)),
    "TUPLE2": lambda machine, _: _push_tuple(machine, machine.pop(2)),
    "TUPLE3": lambda machine, _: _push_tuple(machine, machine.pop(3)),
    "GLOBAL": _push_global,
    "REDUCE": lambda machine, _: _call(machine),
    "NEWOBJ": lambda machine, _: _call(machine),
    "BUILD": lambda machine, _: _build(machine),
    "BINGET": lambda machine, index: machine.push(machine.memo[index]),
    "LONG_BINGET": lambda machine, index: machine.push(machine.memo[index]),
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "BININT": _Machine.push,
    "BININT1": _Machine.push,
    "BININT2": _Machine.push,
    "BINSTRING": _Machine.push,
    "SHORT_BINSTRING": _Machine.push,
}


def is_shape(shape: object, num_dimensions: tuple[int, ...]) -> bool:
    """Return whether this is a tuple of so many sizes."""
    return (
        isinstance(shape, tuple)
        and len(shape) in num_dimensions
        and all(type(size) is int and size >= 0 for size in shape)
    )


def dense(array: object) -> Num[np.ndarray, "..."]:
    """Build an array of one or two dimensions from its raw parts."""
    state: Any = (
        array.state if isinstance(array, Part) and array.kind == "array" else None
    )
    require(isinstance(state, tuple), "an array is missing")
    require(len(state) == 5, f"an array has {len(state)} parts instead of 5")
    _, shape, dtype, fortran_order, raw = state
    plain = isinstance(dtype, Part) and dtype.kind == "dtype" and isinstance(raw, str)
    require(plain, "an array has no plain dtype or no raw bytes")
    code = dtype.arguments[0] if dtype.arguments else None
    state = dtype.state if isinstance(dtype.state, tuple) else ()
    byte_order = state[1] if len(state) > 1 else None
    if not isinstance(code, str) or code not in DTYPES or byte_order not in ("<", ">"):
        shown = checks.format_value(code[:80]) if isinstance(code, str) else "none"
        msg = f"an array has dtype {shown} or no byte order"
        raise ValueError(msg)
    require(is_shape(shape, (1, 2)), "the shape of an array is not one or two sizes")
    fits = math.prod(shape) * DTYPES[code] == len(raw)
    require(fits, f"an array of shape {shape} is stored in {len(raw)} bytes")
    flat = np.frombuffer(raw.encode("latin1"), byte_order + code)
    return flat.reshape(shape, order="F" if fortran_order else "C")
