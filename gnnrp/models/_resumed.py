"""Faults of restored states of training."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int


def find_fault(
    rule: Any, data: Any, begun: Any, some: bool, t: int, state: Any
) -> str | None:
    """Return what is wrong with a restored state, None if nothing is.

    The step, the key, the counts of the optimizer and the best step must be those of
    step t, one seed at least must have finite parameters, and the best parameters must
    score as stated. Other changes of parameters and of the optimizer do not show.

    Args:
        rule: see ``training``.
        data: see ``training``.
        begun: state of the start.
        some: there is an axis of seeds.
        t: number of the checkpoint.
        state: restored.
    """
    if int(state.t) != t:
        return f"its state is of step {int(state.t)}"
    if not _is_same_key(state.key, begun.key):
        return "its key is not that of the run"
    if not _count_alike(state.optimizer, t):
        return f"its optimizer does not count {t} steps"
    if not np.any(finite_seeds(state)):
        return "its parameters are not finite"
    if state.best is None or t == 0:
        return None
    step, score = np.asarray(state.best.t), np.asarray(state.best.score)
    if not ((step >= 0) & (step < t)).all():
        return "its best step is not one of those taken"
    # A new function at each call, so that a changed metric is traced anew.
    found = np.asarray(_scores(rule, data, state.best.params, some))
    tolerance = 1e3 * float(jnp.finfo(score.dtype).eps)
    none = np.isneginf(score) & ~(found > -np.inf)  # no score was a number
    if not (np.isclose(found, score, tolerance, tolerance) | none).all():
        return "its best parameters do not score as it states"
    return None


def is_sound(state: Any, diverged: Int[np.ndarray, "*s"]) -> bool:
    """Tell whether one seed has not diverged: its losses and parameters are finite."""
    return bool(((diverged < 0) & finite_seeds(state)).any())


def finite_seeds(state: Any) -> Bool[np.ndarray, "*s"]:
    """Return which seeds have finite parameters."""
    some = state.key.ndim - (not jnp.issubdtype(state.key.dtype, jax.dtypes.prng_key))
    return np.asarray(_finite(state.params, axes=some))


def _finite_impl(params, axes):
    flags = [
        jnp.isfinite(leaf).all(axis=tuple(range(axes, leaf.ndim)))
        for leaf in jax.tree.leaves(params)
    ]
    return jnp.stack(flags).all(axis=0)


_finite = jax.jit(_finite_impl, static_argnames="axes")


def _scores(rule: Any, data: Any, params: Any, some: bool) -> jax.Array:
    def score(params, val):
        logits = rule.network.apply(params, data.x, data.matrix)
        return rule.metric_fn(logits, data.targets, val)

    if some:
        score = jax.vmap(score, in_axes=(0, 0 if data.val.ndim > 1 else None))
    return jax.jit(score)(params, data.val)


def _is_same_key(one: jax.Array, other: jax.Array) -> bool:
    keys = (one, other)
    if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
        keys = tuple(map(jax.random.key_data, keys))
    return np.array_equal(*keys)


def _count_alike(optimizer: Any, t: int) -> bool:
    """Tell whether the whole numbers of an optimizer fit step t.

    If all are counts, each step raises them by one. Others may pause, as the wrappers
    of optax do that accumulate gradients or skip steps.
    """
    leaves = jax.tree_util.tree_leaves_with_path(optimizer)
    whole = {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in leaves
        if jnp.issubdtype(leaf.dtype, jnp.integer)
    }
    least = t if all(name.endswith(".count") for name in whole) else 0
    most = min(t, np.iinfo(np.int32).max)
    return all(((x >= least) & (x <= most)).all() for x in whole.values())
