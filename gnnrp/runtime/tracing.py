"""Arguments of compiled functions; those that may hold state are traced anew.

``jax.jit`` compiles once for each static argument, even if a global, a closure, a list
or an attribute behind it has changed. A driver therefore wraps the functions of its
caller in each call: linear maps by ``as_argument``, others by ``as_static``. ``Jit``
compiles once for such a wrapper, and drops the compilation with it.
"""

import dataclasses
import functools
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.tree_util import PyTreeDef

# Packages whose functions hold state in closures and defaults only.
_LIBRARIES = {"gnnrp", "jax", "jaxlib", "optax", "flax"}
_PLAIN = (
    *(types.NoneType, bool, int, float, complex, str, bytes),
    *(np.generic, np.dtype, jax.sharding.Mesh),  # a mesh is callable
)


@dataclasses.dataclass(eq=False)
class _Call:
    """The builder of a wrapped value, and the functions compiled for it."""

    build: Callable[[list[Any]], Any]
    compiled: dict["Jit", Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(eq=False)
class Fresh:
    """A value that may hold state, as an argument of ``Jit``; arrays are leaves."""

    arrays: list[Any]
    call: Any  # of this wrapper alone

    @property
    def value(self) -> Any:
        """The value that was wrapped."""
        return self.call.build(self.arrays)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the value."""
        return self.value(*args, **kwargs)


# JAX's caches hold a weak reference, which keeps no call alive.
jax.tree_util.register_pytree_node(
    Fresh,
    lambda fresh: (fresh.arrays, weakref.ref(fresh.call)),
    lambda call, arrays: Fresh(list(arrays), call()),
)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Constant:
    """A value without state, as an argument of ``Jit``; equal ones share a trace."""

    value: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the value."""
        return self.value(*args, **kwargs)


class Jit:
    """``jax.jit`` that drops compilations for a ``Fresh`` argument with it."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        """Wrap a function, with options of ``jax.jit``."""
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._jitted: Any = jax.jit(function, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function."""
        return self._compiled(args, kwargs)(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return shapes and types of the result."""
        return self._compiled(args, kwargs).eval_shape(*args, **kwargs)

    def _compiled(self, *arguments: Any) -> Any:
        leaves = jax.tree.leaves(arguments, is_leaf=lambda x: isinstance(x, Fresh))
        fresh = next((leaf for leaf in leaves if isinstance(leaf, Fresh)), None)
        if fresh is None:
            return self._jitted
        compiled = fresh.call.compiled
        if self not in compiled:
            # JAX shares its caches among all jits of one function object.
            function = self._function
            own = functools.wraps(function)(lambda *args, **kw: function(*args, **kw))
            compiled[self] = jax.jit(own, **self._options)
        return compiled[self]


def as_argument(tree: Any) -> Any:
    """Return a pytree as an argument of ``Jit``; functions in it become static."""
    if isinstance(tree, Fresh | Constant):
        return tree
    leaves, structure = jax.tree.flatten(tree)
    functions = {i: leaf for i, leaf in enumerate(leaves) if callable(leaf)}
    if is_stateless((structure, *functions.values())):
        if not functions:
            return tree
        as_node = jax.tree_util.Partial
        return jax.tree.map(lambda x: as_node(x) if callable(x) else x, tree)

    def build(arrays: list[Any]) -> Any:
        rest = iter(arrays)
        merged = [functions[i] if i in functions else next(rest) for i in places]
        return jax.tree.unflatten(structure, merged)

    places = range(len(leaves))
    return Fresh([leaves[i] for i in places if i not in functions], _Call(build))


def as_static(value: Any) -> Fresh | Constant:
    """Return a metric or another function as a static argument of ``Jit``."""
    if isinstance(value, Fresh | Constant):
        return value
    try:
        hash(value)
        is_constant = is_stateless(value)
    except TypeError:
        is_constant = False
    return Constant(value) if is_constant else Fresh([], _Call(lambda _: value))


def unwrap(argument: Any) -> Any:
    """Return the value in a wrapper, or an argument that is not wrapped."""
    return argument.value if isinstance(argument, Fresh | Constant) else argument


def is_stateless(value: Any) -> bool:
    """Return whether nothing reachable from a value can change its behavior."""
    pending, seen = [value], {}
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # keeps its id unique
        parts = _parts(value)
        if parts is None:
            return False
        pending += parts
    return True


def _parts(value: Any) -> list[Any] | None:
    """Return the parts that a value depends on; None if it may hold state itself."""
    if isinstance(value, _PLAIN):
        return []
    if isinstance(value, jax.Array):
        return None if isinstance(value, Tracer) else []
    if isinstance(value, tuple | frozenset):
        return list(value)
    if isinstance(value, PyTreeDef):
        return list(_static_fields(value))
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, types.FunctionType):
        return _parts_of_function(value)
    if isinstance(value, type):
        return [] if _is_ours(value.__module__) else None
    if dataclasses.is_dataclass(value):
        return _parts_of_dataclass(value)
    if callable(value):
        is_jax = type(value).__module__.partition(".")[0] in {"jax", "jaxlib"}
        return [value.__wrapped__] if is_jax and hasattr(value, "__wrapped__") else None
    # An object that is compared by identity may change; one with a value must not.
    return None if type(value).__hash__ in {None, object.__hash__} else []


def _parts_of_function(function: types.FunctionType) -> list[Any] | None:
    # Not ``__module__``, which functools.wraps copies from another function.
    home = function.__globals__.get("__name__", "")
    if home.startswith("jaxtyping."):  # it wraps functions to check their arguments
        return [function.__wrapped__]
    if not _is_ours(home):
        return None
    defaults = [function.__defaults__, *(function.__kwdefaults__ or {}).values()]
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # an empty cell
        return None
    return [*defaults, *cells]


def _parts_of_dataclass(value: Any) -> list[Any] | None:
    kind: Any = type(value)
    if not _is_ours(kind.__module__):
        is_node = not jax.tree_util.all_leaves([value])
        if not kind.__dataclass_params__.frozen or (callable(value) and not is_node):
            return None
    return [getattr(value, field.name) for field in dataclasses.fields(kind)]


def _static_fields(structure: Any) -> Iterator[Any]:
    """Yield the static data of each node of a pytree; keys of dicts as a tuple."""
    data = structure.node_data()
    if data is not None:
        kind, static = data
        yield tuple(static) if kind is dict else static
    for child in structure.children():
        yield from _static_fields(child)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES
