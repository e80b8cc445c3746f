"""Argument checks that name the argument, its value and the accepted ones.

A wrong setting (number, name, list, node ids) or shape raises ValueError. An array of a
wrong type or an object of a wrong class raises TypeError.
"""

import difflib
import numbers
import operator
import reprlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from gnnrp.runtime import safe_text

_REPR = reprlib.Repr()
_REPR.maxlevel = 3
_REPR.maxtuple = _REPR.maxlist = _REPR.maxdict = _REPR.maxset = 12
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 100
_LONGEST = 80  # characters of a value in a message


def format_value(value: Any) -> str:
    """Format a value, or a part of it, on one line without control characters."""
    if getattr(value, "shape", ()) != () or hasattr(value, "nnz"):
        return f"{type(value).__name__} of shape {value.shape}"
    try:
        text = str(value) if isinstance(value, numbers.Real) else _REPR.repr(value)
    except ValueError:  # Python refuses to spell very large integers
        text = f"too large an {type(value).__name__}"
    return safe_text.line(" ".join(text.split()), _LONGEST)


def _must(expected: str, name: str, value: Any, fix: str = "") -> str:
    hint = f"; {fix}" if fix else ""
    return f"{name} must {expected}, got {format_value(value)}{hint}"


def _require(
    valid: Any,
    name: str,
    expected: str,
    value: Any,
    fix: str = "",
    error: type[Exception] = ValueError,
) -> None:
    if not valid:
        raise error(_must(expected, name, value, fix))


def one_of(name: str, value: Any, allowed: Iterable[str]) -> None:
    """Refuse a name that is not in the list, and suggest the nearest."""
    allowed = list(allowed)
    if not (isinstance(value, str) and value in allowed):
        near = difflib.get_close_matches(str(value).lower(), allowed, n=1)
        hint = f"did you mean {near[0]!r}?" if near else ""
        raise ValueError(_must(f"be one of {', '.join(allowed)}", name, value, hint))


def number(name: str, value: Any) -> float:
    """Return a single real number as a float."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    is_scalar = kind in {"i", "u", "f"} and np.ndim(value) == 0
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    _require(is_scalar or is_real, name, "be a number", value)
    try:
        return float(value)
    except OverflowError:
        msg = _must("be a number that a float can hold", name, value)
        raise ValueError(msg) from None


def at_least(name: str, value: Any, minimum: float) -> None:
    """Refuse a number below its minimum, or NaN."""
    number(name, value)
    _require(value >= minimum, name, f"be at least {minimum}", value)


def count(
    name: str, value: Any, minimum: int, maximum: int = np.iinfo(np.int32).max
) -> int:
    """Return a whole number in a range as an int."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    number: Any = None if isinstance(value, bool) else value
    try:
        whole = operator.index(number)
    except TypeError:
        raise ValueError(_must("be a whole number", name, value)) from None
    _require(whole >= minimum, name, f"be at least {minimum}", whole)
    _require(whole <= maximum, name, f"be at most {maximum}", whole)
    return whole


def in_interval(name: str, value: Any, low: float, high: float) -> None:
    """Refuse a number outside the closed interval, or NaN."""
    number(name, value)
    _require(low <= value <= high, name, f"lie in [{low}, {high}]", value)


def positive(name: str, value: Any) -> None:
    """Refuse a number that is not positive and finite."""
    number(name, value)
    _require(0 < value < np.inf, name, "be positive and finite", value)


def representable(name: str, values: Any, dtype: Any, *, power: int = 1) -> None:
    """Refuse finite numbers beyond the range of the type to which they are cast."""
    array = np.asarray(values)
    if array.size == 0 or array.dtype.kind == "b":
        return
    ends = np.fmax.reduce(array, axis=None), np.fmin.reduce(array, axis=None)
    largest = max(abs(float(end)) for end in ends)
    limit = float(np.finfo(dtype).max) ** (1 / power)
    if limit < largest < np.inf:
        kind = np.dtype(dtype).name + (" when squared" if power == 2 else "")
        fix = "scale them down" if array.ndim else "choose a smaller one"
        msg = (
            f"{name} must be at most {limit:.2g} in size to fit {kind}, got "
            f"{largest:.4g}; {fix}"
        )
        raise ValueError(msg)


def nonempty_list(name: str, values: Any) -> list[Any]:
    """Return a list that is not empty."""
    is_list = isinstance(values, list | tuple | range)
    is_list |= getattr(values, "ndim", 0) == 1
    _require(is_list, name, "be a list, such as [1, 2]", values)
    if not len(values):
        msg = f"{name} must not be empty"
        raise ValueError(msg)
    return list(values)


def function(name: str, value: Any, fix: str = "") -> None:
    """Refuse an object that cannot be called."""
    _require(callable(value), name, "be a function", value, fix, TypeError)


def linear_map(name: str, value: Any) -> None:
    """Refuse an object that is not a linear map V -> A V, such as a bare matrix."""
    if not callable(value):
        msg = (
            f"{name} must be a linear map, got {type(value).__name__}; sparse.prepare "
            "makes one of a sparse matrix, similarity.Dense of a dense one"
        )
        raise TypeError(msg)


def instance(name: str, value: Any, kind: type, fix: str) -> None:
    """Refuse an object of another class, and name the function that returns one."""
    is_valid = isinstance(value, kind)
    _require(is_valid, name, f"be a {kind.__name__}", value, fix, TypeError)


def shape(name: str, array: npt.ArrayLike, expected: tuple[int, ...]) -> None:
    """Refuse an array of another shape."""
    own = np.shape(array)
    _require(own == expected, name, f"have shape {expected}", own)


def rows(name: str, array: Any, expected: int) -> None:
    """Refuse an array of another number of rows; it may be traced."""
    if np.shape(array)[:1] != (expected,):
        msg = f"{name} must have {expected} rows, got shape {np.shape(array)}"
        raise ValueError(msg)


def square(name: str, array: Any) -> None:
    """Refuse an array that is not a square matrix; it may be traced."""
    found = array.shape if hasattr(array, "shape") else np.shape(array)
    if len(found) != 2 or found[0] != found[1]:
        msg = f"{name} must be a square matrix, got shape {found}"
        raise ValueError(msg)


def no_masked_entries(name: str, values: Any) -> None:
    """Refuse arrays with entries that ``as_array`` would drop or cannot read."""
    rows = values if isinstance(values, list | tuple) else [values]
    masked = [np.ma.count_masked(x) for x in rows if isinstance(x, np.ma.MaskedArray)]
    if any(masked):
        msg = (
            f"{name} must have no masked entries, got {sum(masked)}; drop them or "
            "fill them (numpy.ma.filled)"
        )
        raise ValueError(msg)
    layout = str(getattr(values, "layout", ""))
    if hasattr(values, "detach") and "sparse" in layout:
        msg = (
            f"{name} must not be a sparse tensor, got layout {layout}; pass a dense "
            "tensor or, for a graph or features, a scipy sparse matrix"
        )
        raise TypeError(msg)


def as_array(values: Any) -> np.ndarray:
    """Return an array on the host, from NumPy, JAX, torch, pandas or a list."""
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        tensor = values.detach().cpu()
        try:
            return np.asarray(tensor.numpy())
        except TypeError:  # bfloat16, which NumPy lacks
            return np.asarray(tensor.float().numpy())
    array = np.asarray(values)
    # pandas returns objects for nullable columns and for columns of several types.
    of_pandas = array.dtype == object and hasattr(values, "to_numpy")
    if of_pandas and all(map(_is_real, array.ravel())):
        array = np.array(array.tolist()).reshape(array.shape)
    return array


def try_as_array(values: Any) -> np.ndarray:
    """Return ``as_array``, or an array of dtype object if that fails."""
    try:
        return as_array(values)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return np.array(None)


def reals(name: str, values: Any) -> Any:
    """Return an array of real numbers on the host."""
    no_masked_entries(name, values)
    # A sparse matrix would be split into its entries.
    is_sparse = hasattr(values, "nnz") or hasattr(values, "nse")
    array = np.array(None) if is_sparse else try_as_array(values)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        kind = content(array) if array.ndim else type(values).__name__
        msg = f"{name} must hold real numbers, got {kind}"
        raise TypeError(msg)
    return array


def content(array: np.ndarray) -> str:
    """Return the type of an array, or the first object in it that is not a number."""
    if array.dtype == object:
        for place, value in np.ndenumerate(array):
            if not _is_real(value):
                return f"{format_value(value)} in row {place[0]}"
    return str(array.dtype)


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real | np.bool_)


def mask(name: str, values: Any, num_nodes: int, *, several: bool = False) -> Any:
    """Return a boolean mask (n,), or (s, n) if ``several``; it may be traced."""
    no_masked_entries(name, values)
    of_numpy = isinstance(getattr(values, "dtype", None), np.dtype)  # and of JAX
    # A series of pandas would be indexed by its labels.
    is_array = of_numpy and not hasattr(values, "to_numpy")
    array = values if is_array else as_array(values)
    if array.dtype != np.bool_:
        is_mask = array.shape[-1:] == (num_nodes,)
        hint = ".astype(bool)" if is_mask else "np.isin(np.arange(n), ids)"
        of = "it" if is_mask else "node ids"
        msg = f"{name} must be boolean, got {array.dtype}; {hint} makes a mask of {of}"
        raise TypeError(msg)
    if array.ndim not in ({1, 2} if several else {1}) or array.shape[-1] != num_nodes:
        also = f" or (s, {num_nodes})" if several else ""
        msg = f"{name} must have shape ({num_nodes},){also}, got {array.shape}"
        raise ValueError(msg)
    return array


def ids(name: str, array: Any) -> None:
    """Refuse an array that is not a list of ids, such as a mask; it may be traced."""
    if array.ndim != 1 or not (array.dtype.kind in "iu" or not array.size):
        msg = (
            f"{name} must be a list of node ids, got {array.dtype} of shape "
            f"{array.shape}; np.flatnonzero(mask) makes one of a mask"
        )
        raise ValueError(msg)


def node_ids(name: str, nodes: Any, num_nodes: int) -> np.ndarray:
    """Return a list of node ids on the host."""
    no_masked_entries(name, nodes)
    array = as_array(nodes)
    ids(name, array)
    outside = (array < 0) | (array >= num_nodes) if array.size else np.zeros(0, bool)
    if outside.any():
        bad = array[outside][0]
        last = num_nodes - 1
        msg = f"{name}: node {bad} is not one of {num_nodes} nodes, 0 to {last}"
        raise ValueError(msg)
    return array.astype(np.int64)


def labels(name: str, values: Any, num_nodes: int | None = None) -> np.ndarray:
    """Return class ids (n,), -1 where unknown, on the host."""
    no_masked_entries(name, values)
    array = as_array(values)
    shape(name, array, (array.size if num_nodes is None else num_nodes,))
    if array.dtype.kind not in "iu" and array.size:
        msg = (
            f"{name} must be class ids, whole numbers with -1 where unknown, got "
            f"{array.dtype}; np.unique(labels, return_inverse=True)[1] makes them"
        )
        raise TypeError(msg)
    return array.astype(np.int64)


def int32_indexable(num_rows: int, num_entries: int) -> None:
    """Refuse a sparse matrix that int32 indices cannot address."""
    limit = np.iinfo(np.int32).max
    for name, size in (("rows", num_rows), ("entries", num_entries)):
        if size > limit:
            msg = (
                f"the matrix has {size} {name}, more than int32 indices address "
                f"({limit}); split it into row blocks"
            )
            raise ValueError(msg)
