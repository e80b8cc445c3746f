"""States of training as they are saved, and faults of restored ones."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


class Saved(NamedTuple):
    """A state, and the training loss by which its parameters are recognized."""

    state: Any
    loss: Float[Array, "*s"]


def make_saved_fn(rule: Any, data: Any, some: bool) -> Callable[[Any], Saved]:
    """Return a map from a state to what is saved of it, compiled once for a run."""

    def loss(params, data, train):
        logits = rule.network.apply(params, data.x, data.matrix)
        return rule.loss_fn(logits, data.targets, train)

    if some:
        axes = (0, None, 0 if data.train.ndim > 1 else None)
        loss = jax.vmap(loss, in_axes=axes)
    compiled = jax.jit(loss)
    return lambda state: Saved(state, compiled(state.params, data, data.train))


def find_fault(
    rule: Any,
    data: Any,
    saved_fn: Callable[[Any], Saved],
    begun: Any,
    some: bool,
    t: int,
    saved: Saved,
) -> str | None:
    """Return the fault of a restored state, or None.

    The step, the key, the counts of the optimizer and the best step must be those of
    step t, one seed at least must be finite, the parameters must have the loss and the
    best ones the score that are stated. Other changes of the optimizer do not show.

    Args:
        rule: see ``training``.
        data: see ``training``; as an argument of compiled functions.
        saved_fn: from ``make_saved_fn``.
        begun: state of the start.
        some: there is an axis of seeds.
        t: number of the checkpoint.
        saved: restored.
    """
    state = saved.state
    if int(state.t) != t:
        return f"its state is of step {int(state.t)}"
    if not _is_same_key(state.key, begun.key):
        return "its key is not that of the run"
    if not _count_alike(state.optimizer, t):
        return f"its optimizer does not count {t} steps"
    if not np.any(finite_seeds(state)):
        return "its parameters are not finite, or those of its optimizer are NaN"
    if not _are_close(saved.loss, saved_fn(state).loss):
        return "its parameters do not have the loss that it states"
    if state.best is None or t == 0:
        return None
    step, score = np.asarray(state.best.t), np.asarray(state.best.score)
    if not ((step >= 0) & (step < t)).all():
        return "its best step is not one of its steps"
    # A new function at each call, so that a changed metric is traced anew.
    found = np.asarray(_scores(rule, data, state.best.params, some))
    none = np.isneginf(score) & ~(found > -np.inf)  # no score was a number
    # Round-off may move one node across a tie.
    slack = 1.5 / np.maximum(1, np.sum(data.val, axis=-1))
    if not _are_close(np.where(none, score, found), score, slack):
        return "its best parameters do not score as it states"
    return None


def _are_close(found: Any, expected: Any, slack: Any = 0) -> bool:
    """Return whether numbers are equal up to round-off, and infinite or NaN alike."""
    found, expected = np.asarray(found), np.asarray(expected)
    size = np.abs(np.where(np.isfinite(expected), expected, 0))
    with np.errstate(invalid="ignore"):  # of infinities
        near = np.abs(found - expected) <= 1e-3 * (size + 1e-3) + slack
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    return bool((near | same).all())


def is_sound(state: Any, diverged: Int[np.ndarray, "*s"]) -> bool:
    """Return whether one seed at least has finite losses and parameters."""
    return bool(((diverged < 0) & finite_seeds(state)).any())


def finite_seeds(state: Any) -> Bool[np.ndarray, "*s"]:
    """Return a flag for each seed: finite parameters, and no NaN in the optimizer.

    The optimizer may hold infinity: the square of a gradient overflows first.
    """
    some = state.key.ndim - (not jnp.issubdtype(state.key.dtype, jax.dtypes.prng_key))
    return np.asarray(_finite(state.params, state.optimizer, axes=int(some)))


def _finite_impl(params, optimizer, axes):
    def all_of(flags):
        return flags.all(axis=tuple(range(axes, flags.ndim)))

    flags = [all_of(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(params)]
    flags += [all_of(~jnp.isnan(leaf)) for leaf in jax.tree.leaves(optimizer)]
    return jnp.stack(flags).all(axis=0)


_finite = jax.jit(_finite_impl, static_argnames="axes")


def _scores(rule: Any, data: Any, params: Any, some: bool) -> jax.Array:
    def score(params, data, val):
        logits = rule.network.apply(params, data.x, data.matrix)
        return rule.metric_fn(logits, data.targets, val)

    if some:
        score = jax.vmap(score, in_axes=(0, None, 0 if data.val.ndim > 1 else None))
    return jax.jit(score)(params, data, data.val)


def _is_same_key(one: jax.Array, other: jax.Array) -> bool:
    if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
        one, other = map(jax.random.key_data, (one, other))
    return np.array_equal(one, other)


def _count_alike(optimizer: Any, t: int) -> bool:
    """Return whether the whole numbers of an optimizer fit step t.

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
