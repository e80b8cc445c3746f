"""Process-independent fingerprints of settings, functions and arrays, as plain JSON.

A function is compared by its qualified name, an array by its contents, and an object by
its class and its fields. Bytecode is never compared.
"""

import dataclasses
import enum
import functools
import hashlib
import sys
import types
from collections.abc import Mapping
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

_JITTED = type(jax.jit(len))
_NAMED = (
    *(type, types.FunctionType, types.BuiltinFunctionType, np.ufunc, jnp.ufunc),
    *(jax.custom_jvp, jax.custom_vjp, _JITTED),
)
_OF_FLAX = {"parent", "name"}  # fields that flax sets itself


class IncomparableError(TypeError):
    """A value without a fingerprint."""


@dataclasses.dataclass(frozen=True)
class Structure:
    """A pytree that is compared without the contents of its arrays."""

    tree: Any


def identify(
    values: dict[str, Any], metadata: dict[str, Any], **trees: Any
) -> dict[str, Any]:
    """Return the identity of a run: the caller's JSON and fingerprints."""
    identity = {key: x for key, x in metadata.items() if key not in values}
    for name, value in values.items():
        try:
            identity[name] = fingerprint(value)
        except IncomparableError as error:
            if name not in metadata:
                msg = (
                    f"{name} is or holds {error}, which cannot be compared with that "
                    "of an earlier run in the folder; use one that can be imported "
                    f'from a module, or name it by metadata={{"{name}": "..."}}'
                )
                raise TypeError(msg) from None
            identity[name] = {"named": metadata[name]}
        else:
            if name in metadata and not _is_value(value):
                own = identity[name]
                identity[name] = {"named": metadata[name], "fingerprint": own}
    return identity | {name: digest(tree) for name, tree in trees.items()}


def fingerprint(value: Any, *, contents: bool = True) -> Any:
    """Return JSON that differs between different values, in any process.

    Lambdas, closures, functions of a script and objects with hidden attributes cannot
    be compared. The source of a function and the globals that it reads are not.
    """
    again = functools.partial(fingerprint, contents=contents)
    if _is_value(value):
        return value
    if isinstance(value, Structure):
        return fingerprint(value.tree, contents=False)
    if isinstance(value, enum.Enum):
        return [_class(value), value.name]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        if value.dtype == object:  # of pointers
            _refuse(value)
        return digest(value) if contents else str(value.dtype)
    if isinstance(value, Mapping):
        return {str(key): again(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [again(item) for item in value]
        return [_class(value), *items] if hasattr(value, "_fields") else items
    if isinstance(value, functools.partial):
        return ["partial", *map(again, (value.func, value.args, value.keywords))]
    if isinstance(value, types.MethodType):
        return [again(value.__self__), value.__func__.__name__]
    if isinstance(value, np.dtype | jax.tree_util.PyTreeDef | jax.sharding.Mesh):
        return _text(value)
    if name := _import_name(value):
        return name
    if type(value) is _JITTED:
        jitted: Any = value
        return again(jitted.__wrapped__)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [_class(value), {name: again(x) for name, x in _fields(value).items()}]
    return [_class(value), *map(again, _node(value))]


def digest(*trees: Any) -> str:
    """Return the SHA-256 of all arrays, with their types and shapes."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(trees):
        plain = np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
        if plain.dtype == object:  # a function, which is part of the structure
            continue
        found.update(f"{plain.dtype}{plain.shape}".encode())
        found.update(np.ascontiguousarray(plain).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def is_key(leaf: Any) -> bool:
    """Return whether a leaf is a key of random numbers."""
    dtype = getattr(leaf, "dtype", np.float64)
    return jnp.issubdtype(dtype, jax.dtypes.prng_key)


def checksum(array: jax.Array) -> int:
    """Return the sum of hashes of numbers and positions, modulo 2^32.

    It does not depend on the devices that hold the parts of the array.
    """
    return int(_checksum(array))


@jax.jit
def _checksum(array: jax.Array) -> jax.Array:
    words = array
    if array.dtype != bool:  # of 64 bits: two words
        kind = jnp.dtype(f"uint{min(32, 8 * array.dtype.itemsize)}")
        words = jax.lax.bitcast_convert_type(array, kind)
    words = words.astype(jnp.uint32)
    place = jnp.zeros(words.shape, jnp.uint32)
    for axis, size in enumerate(words.shape):
        along = jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis)
        place = place * np.uint32(size) + along
    return jnp.sum(_hash(words ^ _hash(place + np.uint32(1))), dtype=jnp.uint32)


def _hash(words: jax.Array) -> jax.Array:
    """Return a bijective hash of 32-bit words: the finalizer of MurmurHash3."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        words = (words ^ (words >> np.uint32(shift))) * np.uint32(factor)
    return words ^ (words >> np.uint32(16))


def _is_value(value: Any) -> bool:
    return value is None or type(value) in {bool, int, float, str}


def _import_name(value: Any) -> str | None:
    """Return the qualified name of a function or class, None if it has none."""
    if not isinstance(value, _NAMED):
        return None
    home = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(home, str) or not isinstance(name, str) or home == "__main__":
        return None  # another script has another main module
    found: Any = sys.modules.get(home)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{home}.{name}" if found is value else None


def _class(value: Any) -> str:
    name = _import_name(type(value))
    if name is None:
        _refuse(value)
    return name


def _fields(value: Any) -> dict[str, Any]:
    # Other attributes of the object might matter.
    fields = {field.name for field in dataclasses.fields(value)}
    hidden = getattr(value, "__dict__", {}).keys() - fields
    if any(not name.startswith("_") for name in hidden):
        _refuse(value)
    is_module = fields >= _OF_FLAX and hasattr(value, "apply")
    names = fields - _OF_FLAX if is_module else fields
    return {name: getattr(value, name) for name in sorted(names)}


def _node(value: Any) -> list[Any]:
    # The children and the static parts of a pytree node that is not a dataclass.
    if jax.tree_util.all_leaves([value]):
        _refuse(value)
    children, static = jax.tree_util.default_registry.flatten_one_level(value)
    return [list(children), static]


def _text(value: Any) -> str:
    # Without an address, as of most objects of JAX and NumPy.
    text = str(value)
    if " at 0x" in text:
        _refuse(value)
    return text


def _refuse(value: Any) -> NoReturn:
    msg = f"an object of {type(value).__qualname__}"
    if isinstance(value, types.FunctionType):
        is_local = "<locals>" in value.__qualname__
        kind = "a closure" if is_local else "a function of a script"
        kind = "a lambda" if value.__name__ == "<lambda>" else kind
        msg = f"{kind} ({value.__qualname__})"
    raise IncomparableError(msg)
