"""Run all drivers, and lower each function that they compile for other platforms.

The drivers are those of ``api.test_jax_flags``. They run on the CPU, with the sparse
products of a GPU. Prints the number of functions that each one added.
"""

import functools
import importlib
import json
from typing import Any

import jax
import jax.numpy as jnp

PLATFORMS = ("cuda", "rocm", "tpu")
_jit = jax.jit
_lowered: dict[int, Any] = {}  # a trace's identity -> the trace, which stays alive


class Lowering:
    """A compiled function that is lowered for all platforms before it runs."""

    def __init__(self, function: Any, **options: Any) -> None:
        """Wrap a function, with options of ``jax.jit``."""
        functools.update_wrapper(self, function)
        self._jitted = _jit(function, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Lower, and call."""
        if not isinstance(jnp.zeros(()), jax.core.Tracer):  # not within another trace
            traced = self._jitted.trace(*args, **kwargs)
            if id(traced.jaxpr) not in _lowered:
                text = traced.lower(lowering_platforms=PLATFORMS).as_text()
                if "callback" in text:
                    msg = f"{self.__name__} calls the host"
                    raise AssertionError(msg)
                _lowered[id(traced.jaxpr)] = traced.jaxpr
        return self._jitted(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind a method."""
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        """Return another attribute of the compiled function."""
        return getattr(self._jitted, name)


def lowering_jit(function: Any = None, **options: Any) -> Any:
    """Replace ``jax.jit``, as a function or as a decorator with options."""
    if function is None:
        return functools.partial(lowering_jit, **options)
    return Lowering(function, **options)


def run_drivers() -> dict[str, int]:
    """Run all drivers, and return the number of new traces of each."""
    from tests.api import test_jax_flags

    found = {}
    for name, driver in test_jax_flags.DRIVERS.items():
        before = len(_lowered)
        is_pure = name in test_jax_flags.PURE
        jax.block_until_ready((lowering_jit(driver) if is_pure else driver)())
        found[name] = len(_lowered) - before
    return found


def main() -> None:
    """Print the number of lowered functions of each driver."""
    for name in ("flax.linen", "optax", "jax.experimental.sparse"):
        importlib.import_module(name)  # libraries keep their own compiled functions

    jax.jit = lowering_jit
    jax.default_backend = lambda: "gpu"
    print(json.dumps(run_drivers()))


if __name__ == "__main__":
    main()
