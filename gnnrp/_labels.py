"""Labels as people have them, of any type and with gaps, as the codes of classes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

_NO_CLASS = ("-1", "nan", "None")  # what numpy makes of missing labels beside strings
_MISSING_TYPES = ("NAType", "NaTType")  # of pandas


def as_array(values: Any) -> np.ndarray:
    """Return an array on the host; torch's tensors too, which may hold gradients."""
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)


def codes(
    labels: Any, classes: np.ndarray | None = None
) -> tuple[np.ndarray, Int[np.ndarray, " n"]]:
    """Return the classes, sorted, and which of them each node has.

    Args:
        labels: (n,) or (n, 1), of any one type; -1, None and NaN mean none.
        classes: those to tell apart; if left out, all that there are.

    Returns:
        The classes, (c,), and the codes: -1 without a label, c for another class.

    Raises:
        ValueError: several labels a node; labels that cannot be sorted, or whose
            missing ones have become strings.
        TypeError: a dict.
    """
    values = labels
    if isinstance(labels, Mapping):
        msg = (
            "labels must be a list in the order of the graph's nodes, got a dict; "
            "[labels[node] for node in graph] makes one"
        )
        raise TypeError(msg)
    if isinstance(labels, list | tuple):  # numpy would make strings of all of them
        values = np.empty(len(labels), object)
        values[:] = labels
    values = as_array(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        msg = (
            f"labels must have shape (n,), one for each node, got {values.shape}; "
            "residual.run takes several columns of targets"
        )
        raise ValueError(msg)
    known = _known(values)
    try:
        found, inverse = np.unique(_plain(values[known]), return_inverse=True)
    except TypeError as error:
        msg = f"labels cannot be sorted ({error}); make them all strings or all numbers"
        raise ValueError(msg) from error
    classes = found if classes is None else classes
    place = {value: i for i, value in enumerate(classes.tolist())}
    of_found = [place.get(value, len(place)) for value in found.tolist()]
    result = np.full(len(values), -1)
    result[known] = np.array(of_found, int)[inverse.ravel()]
    return classes, result


def is_text(classes: np.ndarray) -> bool:
    """Tell whether classes, of which there is one, are strings."""
    return isinstance(classes.tolist()[0], str)


def _known(values: np.ndarray) -> Bool[np.ndarray, " n"]:
    """Tell which labels are given.

    Raises:
        ValueError: a missing one has become a string.
    """
    if values.dtype.kind == "O":
        return np.array([not _is_missing(value) for value in values], bool)
    if values.dtype.kind in "UT":
        for word in _NO_CLASS:
            if (values == word).any():
                msg = (
                    f"labels hold the string {word!r}, as numpy writes a missing label "
                    "beside strings; use None in a list or an array of objects"
                )
                raise ValueError(msg)
        return np.ones(len(values), bool)
    known = values == values  # not so for NaN of any type
    return known & (values != -1) if values.dtype.kind in "if" else known


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in _MISSING_TYPES:
        return True
    if isinstance(value, bool | np.bool_ | str):
        return False
    return bool(value != value or value == -1)


def _plain(values: np.ndarray) -> np.ndarray:
    """Return objects as strings or numbers where all of them are."""
    if values.dtype.kind != "O":
        return values
    for kinds in ((str,), (bool | np.bool_,), (int | float | np.number,)):
        if len(values) and all(isinstance(value, kinds) for value in values):
            return np.array(values.tolist())
    return values
