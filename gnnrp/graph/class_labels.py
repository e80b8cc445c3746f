"""Labels of any type, some of them missing, as integer codes of classes."""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Bool, Int

from gnnrp.runtime import checks

_MISSING_WORDS = ("-1", "nan", "None")  # missing labels converted to strings
_MISSING_TYPES = ("NAType", "NaTType", "MaskedConstant")  # of pandas and NumPy
_SCALARS = (int, float, bool, str, type(None))


def encode(
    labels: Any, classes: np.ndarray | None = None
) -> tuple[np.ndarray, Int[np.ndarray, " n"]]:
    """Return the sorted classes, and the code of each node: -1 missing, c unknown."""
    if isinstance(labels, Mapping):
        msg = (
            "labels must be a list in the order of the graph's nodes, got a dict; "
            "use [labels[node] for node in graph]"
        )
        raise TypeError(msg)
    values, present = _read(labels)
    present[present] = _present(values[present])
    try:
        own, inverse = np.unique(_unify(values[present]), return_inverse=True)
    except TypeError as error:
        msg = f"labels cannot be sorted ({error}); make them all strings or all numbers"
        raise ValueError(msg) from error
    classes = own if classes is None else classes
    try:
        code = {value: i for i, value in enumerate(classes.tolist())}
        own_codes = [code.get(value, len(code)) for value in own.tolist()]
    except TypeError as error:
        msg = f"labels cannot be compared ({error}); make them strings or numbers"
        raise ValueError(msg) from error
    result = np.full(len(values), -1)
    result[present] = np.array(own_codes, int)[inverse.ravel()]
    return classes, result


def _read(labels: Any) -> tuple[np.ndarray, Bool[np.ndarray, " n"]]:
    """Return labels as an array of scalars, (n,), and the mask of the visible ones."""
    visible = np.array(True)
    if isinstance(labels, np.ma.MaskedArray):
        labels, visible = labels.data, ~np.ma.getmaskarray(labels)
    elif isinstance(labels, list | tuple):  # NumPy would convert all to strings
        labels = np.fromiter(labels, object)
    else:
        checks.no_masked_entries("labels", labels)
    values = checks.as_array(labels)
    if values.ndim == 2 and values.shape[1] == 1:
        values, visible = values[:, 0], visible.reshape(-1)
    if values.ndim != 1:
        _refuse_shape(values.shape)
    if values.dtype.kind == "O":
        values = np.fromiter(map(_scalar, values), object, len(values))
    return _as_float(values), np.array(np.broadcast_to(visible, values.shape))


def _scalar(label: Any) -> Any:
    """Return a label as a scalar, from a list or an array of size one."""
    if type(label) in _SCALARS or isinstance(label, np.generic | np.ma.MaskedArray):
        return label
    if isinstance(label, list | tuple):
        if len(label) != 1:
            _refuse_shape(("n", len(label)))
        return _scalar(label[0])
    if not hasattr(label, "shape"):
        return label
    array = _as_float(checks.as_array(label))
    if array.size != 1:
        _refuse_shape(("n", *array.shape))
    return array.reshape(-1)[0]


def _as_float(values: np.ndarray) -> np.ndarray:
    """Return numbers of types that NumPy lacks, such as bfloat16, as float32."""
    lacking = values.dtype.kind == "V" and np.can_cast(values.dtype, np.float32)
    return values.astype(np.float32) if lacking else values


def _refuse_shape(shape: tuple[Any, ...]) -> NoReturn:
    msg = (
        "labels must have shape (n,), one for each node, got "
        f"({', '.join(map(str, shape))}); propagation.run takes several columns of "
        "targets"
    )
    raise ValueError(msg)


def _present(values: np.ndarray) -> Bool[np.ndarray, " n"]:
    """Return the mask of the labels that are not missing."""
    if values.dtype.kind in "OUT":
        words = {value for value in values if isinstance(value, str)}
        for word in _MISSING_WORDS:
            if word in words:
                msg = (
                    f"labels must not hold the string {word!r}, a missing label that "
                    "NumPy converted; use None in a list or an array of objects"
                )
                raise ValueError(msg)
    if values.dtype.kind == "O":
        return np.array([not _is_missing(value) for value in values], bool)
    present = values == values  # False for NaN of any type
    return present & (values != -1) if values.dtype.kind in "ifc" else present


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in _MISSING_TYPES:
        return True
    if isinstance(value, bool | np.bool_ | str):
        return False
    return bool(value != value or value == -1)


def _unify(values: np.ndarray) -> np.ndarray:
    """Return objects as strings, booleans or numbers if all of them are."""
    if values.dtype.kind != "O":
        return values
    for kinds in ((str,), (bool | np.bool_,), (int | float | np.number,)):
        if len(values) and all(isinstance(value, kinds) for value in values):
            return np.array(values.tolist())
    return values
