"""Labels as people have them, of any type and with gaps, as the codes of classes."""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Bool, Int

from gnnrp.runtime import checks

_NO_CLASS = ("-1", "nan", "None")  # missing labels that have been made strings
_MISSING_TYPES = ("NAType", "NaTType", "MaskedConstant")  # of pandas and NumPy
_SCALARS = (int, float, bool, str, type(None))


def codes(
    labels: Any, classes: np.ndarray | None = None
) -> tuple[np.ndarray, Int[np.ndarray, " n"]]:
    """Return the classes, sorted, and which of them each node has.

    Args:
        labels: (n,) or (n, 1), of any one type; -1, None, NaN and masked mean none.
        classes: those to tell apart; if left out, all that there are.

    Returns:
        The classes, (c,), and the codes: -1 without a label, c for another class.

    Raises:
        ValueError: several labels a node; labels that cannot be sorted, or whose
            missing ones have become strings.
        TypeError: a dict.
    """
    if isinstance(labels, Mapping):
        msg = (
            "labels must be a list in the order of the graph's nodes, got a dict; "
            "[labels[node] for node in graph] makes one"
        )
        raise TypeError(msg)
    values, known = _read(labels)
    known[known] = _known(values[known])
    try:
        found, inverse = np.unique(_plain(values[known]), return_inverse=True)
    except TypeError as error:
        msg = f"labels cannot be sorted ({error}); make them all strings or all numbers"
        raise ValueError(msg) from error
    classes = found if classes is None else classes
    try:
        place = {value: i for i, value in enumerate(classes.tolist())}
        of_found = [place.get(value, len(place)) for value in found.tolist()]
    except TypeError as error:
        msg = f"labels cannot be compared ({error}); make them strings or numbers"
        raise ValueError(msg) from error
    result = np.full(len(values), -1)
    result[known] = np.array(of_found, int)[inverse.ravel()]
    return classes, result


def is_text(classes: np.ndarray) -> bool:
    """Tell whether classes, of which there is one, are strings."""
    return isinstance(classes.tolist()[0], str)


def _read(labels: Any) -> tuple[np.ndarray, Bool[np.ndarray, " n"]]:
    """Return labels as an array of scalars, (n,), and which of them are not masked.

    Raises:
        ValueError: several labels a node.
        TypeError: a sparse tensor.
    """
    visible = np.array(True)
    if isinstance(labels, np.ma.MaskedArray):
        labels, visible = labels.data, ~np.ma.getmaskarray(labels)
    elif isinstance(labels, list | tuple):  # NumPy would make strings of all of them
        labels = np.fromiter(labels, object)
    else:
        checks.plain("labels", labels)
    values = checks.as_array(labels)
    if values.ndim == 2 and values.shape[1] == 1:
        values, visible = values[:, 0], visible.reshape(-1)
    if values.ndim != 1:
        _refuse_columns(values.shape)
    if values.dtype.kind == "O":
        values = np.fromiter(map(_scalar, values), object, len(values))
    return _wide(values), np.array(np.broadcast_to(visible, values.shape))


def _scalar(label: Any) -> Any:
    """Return a label as a scalar, from a list or an array of one.

    Raises:
        ValueError: there are several.
    """
    if type(label) in _SCALARS or isinstance(label, np.generic | np.ma.MaskedArray):
        return label
    if isinstance(label, list | tuple):
        if len(label) != 1:
            _refuse_columns(("n", len(label)))
        return _scalar(label[0])
    if not hasattr(label, "shape"):
        return label
    array = _wide(checks.as_array(label))
    if array.size != 1:
        _refuse_columns(("n", *array.shape))
    return array.reshape(-1)[0]


def _wide(values: np.ndarray) -> np.ndarray:
    """Return numbers of types that NumPy lacks, such as bfloat16, as float32."""
    lacking = values.dtype.kind == "V" and np.can_cast(values.dtype, np.float32)
    return values.astype(np.float32) if lacking else values


def _refuse_columns(shape: tuple[Any, ...]) -> NoReturn:
    told = ", ".join(map(str, shape))
    msg = (
        f"labels must have shape (n,), one for each node, got ({told}); "
        "propagation.run takes several columns of targets"
    )
    raise ValueError(msg)


def _known(values: np.ndarray) -> Bool[np.ndarray, " n"]:
    """Return which labels are not missing.

    Raises:
        ValueError: a missing one has become a string.
    """
    if values.dtype.kind in "OUT":
        words = {value for value in values if isinstance(value, str)}
        for word in _NO_CLASS:
            if word in words:
                msg = (
                    f"labels hold the string {word!r}, as numpy writes a missing label "
                    "beside strings; use None in a list or an array of objects"
                )
                raise ValueError(msg)
    if values.dtype.kind == "O":
        return np.array([not _is_missing(value) for value in values], bool)
    known = values == values  # not so for NaN of any type
    return known & (values != -1) if values.dtype.kind in "ifc" else known


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
