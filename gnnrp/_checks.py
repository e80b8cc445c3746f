"""Checks of arguments: one sentence that names the value and the remedy."""

import difflib
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt


def one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a name that is not in the list, and suggest the nearest.

    Raises:
        ValueError: ``value`` is not in ``allowed``.
    """
    allowed = list(allowed)
    if value in allowed:
        return
    near = difflib.get_close_matches(str(value), allowed, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    msg = f"{name} must be one of {', '.join(allowed)}, got {value!r}{hint}"
    raise ValueError(msg)


def at_least(name: str, value: float | np.number, minimum: float) -> None:
    """Refuse a number below its minimum (NaN included).

    Raises:
        ValueError: ``value < minimum``, or it is not a number.
    """
    if not value >= minimum:
        msg = f"{name} must be at least {minimum}, got {value}"
        raise ValueError(msg)


def count(
    name: str, value: Any, minimum: int, maximum: int = np.iinfo(np.int32).max
) -> int:
    """Refuse what is not a whole number in a range; return it as an int.

    Raises:
        ValueError: out of range, or not whole.
    """
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    whole: Any = value
    number = operator.index(whole) if hasattr(whole, "__index__") else None
    if number is None:
        msg = f"{name} must be a whole number, got {value!r}"
        raise ValueError(msg)
    at_least(name, number, minimum)
    if number > maximum:
        msg = f"{name} must be at most {maximum}, got {number}"
        raise ValueError(msg)
    return number


def inside(name: str, value: float | np.number, low: float, high: float) -> None:
    """Refuse a number outside the closed interval (NaN included).

    Raises:
        ValueError: ``value`` is not in ``[low, high]``.
    """
    if not low <= value <= high:
        msg = f"{name} must lie in [{low}, {high}], got {value}"
        raise ValueError(msg)


def positive(name: str, value: float | np.number) -> None:
    """Refuse a number that is not positive and finite.

    Raises:
        ValueError: ``value`` is zero, negative, infinite or NaN.
    """
    if not 0 < value < np.inf:
        msg = f"{name} must be positive and finite, got {value}"
        raise ValueError(msg)


def shape(name: str, array: npt.ArrayLike, expected: tuple[int, ...]) -> None:
    """Refuse an array of another shape.

    Raises:
        ValueError: the shapes differ.
    """
    if np.shape(array) != expected:
        msg = f"{name} must have shape {expected}, got {np.shape(array)}"
        raise ValueError(msg)


def int32_indexable(num_rows: int, num_entries: int) -> None:
    """Refuse a sparse matrix that int32 indices cannot address.

    Raises:
        ValueError: rows or entries exceed 2^31 - 1.
    """
    limit = np.iinfo(np.int32).max
    for what, count in (("rows", num_rows), ("entries", num_entries)):
        if count > limit:
            msg = (
                f"the matrix has {count} {what}, more than int32 indices address "
                f"({limit}); split it into row blocks"
            )
            raise ValueError(msg)
