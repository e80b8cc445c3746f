"""What tells settings, functions and arrays from others: plain JSON, in any process."""

import functools
import hashlib
import json
import re
import types
from typing import Any

import jax
import numpy as np

from gnnrp import _orbax


def identity(named: dict[str, Any], **trees: Any) -> dict[str, Any]:
    """Return what tells a run from others, as plain JSON.

    Args:
        named: settings, see ``told``.
        trees: arrays, told by their contents.
    """
    return told(named) | {name: digest(tree) for name, tree in trees.items()}


def told(value: Any) -> Any:
    """Return what tells a value from others, as plain JSON.

    Arrays are told by their contents; functions by their names, and lambdas and those
    made within others also by their code and by what they hold; other objects by their
    type alone.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): told(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [told(each) for each in value]
    if isinstance(value, functools.partial):
        return [told(value.func), told(value.args), told(value.keywords)]
    if isinstance(value, types.MethodType):
        return [told(value.__func__), told(value.__self__)]
    if isinstance(value, types.FunctionType):
        return _function(value)
    if hasattr(value, "__wrapped__"):  # by jit, say
        return told(value.__wrapped__)
    leaves = jax.tree.leaves(value)
    if leaves and all(hasattr(leaf, "dtype") for leaf in leaves):
        return digest(value)
    return getattr(value, "__qualname__", type(value).__qualname__)


def digest(*trees: Any) -> str:
    """Return what tells arrays, keys among them, from others: a SHA-256."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(trees):
        plain = np.asarray(jax.random.key_data(leaf) if _orbax.is_key(leaf) else leaf)
        if plain.dtype == object:  # a function, say
            plain = np.asarray(json.dumps(told(leaf)))
        found.update(f"{plain.dtype}{plain.shape}".encode())
        found.update(np.ascontiguousarray(plain).tobytes())
    return found.hexdigest()


def described(tree: Any) -> list[Any]:
    """Return the structure of a tree, its static parts, and the functions in it."""
    nodes = jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, functools.partial))
    functions = [told(each) for each in nodes if isinstance(each, functools.partial)]
    return [re.sub(r" at 0x[0-9a-f]+", "", str(jax.tree.structure(tree))), functions]


def _function(function: types.FunctionType) -> Any:
    name = function.__qualname__
    if "<" not in name:  # neither a lambda nor made within another
        return name
    cells = [cell for cell in function.__closure__ or () if _is_filled(cell, function)]
    held = [told(cell.cell_contents) for cell in cells]
    defaults = [told(function.__defaults__), told(function.__kwdefaults__)]
    return [name, _code(function.__code__), held, defaults]


def _is_filled(cell: Any, function: types.FunctionType) -> bool:
    """Tell whether a cell holds anything but the function itself."""
    try:
        return cell.cell_contents is not function
    except ValueError:  # empty so far
        return False


def _code(code: types.CodeType) -> str:
    found = hashlib.sha256(code.co_code + repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.update(_code(constant).encode())
        elif isinstance(constant, frozenset):  # in another order in the next process
            found.update(repr(sorted(map(repr, constant))).encode())
        else:
            found.update(repr(constant).encode())
    return found.hexdigest()
