"""Checkpoints of training: identity of a run, saved states, and their validation."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gnnrp.runtime import checkpoints, fingerprint


class Snapshot(NamedTuple):
    """A state, and its training loss, by which changed parameters are detected."""

    state: Any
    loss: Float[Array, "*s"]


def identify(
    rule: Any, data: Any, keys: Any, state: Any, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the identity of a run as plain JSON; see ``training.run``.

    Raises:
        TypeError: a function that cannot be compared and that ``metadata`` lacks.
    """
    values = {
        "network": rule.network,
        "optimizer": rule.optimizer,
        "state": [f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(state)],
        "loss_fn": rule.loss_fn,
        "metric_fn": rule.metric_fn,
        "patience": rule.patience,
        "matrix": fingerprint.Structure(data.matrix),
    }
    return fingerprint.identify(values, dict(metadata), data=(data, keys))


def make_snapshot_fn(rule: Any, data: Any, start: Any) -> Callable[[Any], Snapshot]:
    """Return the map from a state to its snapshot, compiled once for a run."""
    loss_fn = jax.jit(_over_seeds(rule, rule.loss_fn, start, data.train))
    return lambda state: Snapshot(state, loss_fn(state.params, data, data.train))


def restore(
    keeper: checkpoints.Keeper,
    rule: Any,
    data: Any,
    snapshot_fn: Callable[[Any], Snapshot],
    start: Any,
) -> Any:
    """Return the state of the last checkpoint, validated, or None."""
    fault_fn = functools.partial(_find_fault, rule, data, snapshot_fn, start)
    snapshot = keeper.restore(lambda _: snapshot_fn(start), fault_fn)
    return None if snapshot is None else snapshot.state


def _find_fault(
    rule: Any,
    data: Any,
    snapshot_fn: Callable[[Any], Snapshot],
    start: Any,
    t: int,
    snapshot: Snapshot,
) -> str | None:
    """Return the fault of the snapshot of checkpoint t, or None.

    Step, key, counts of the optimizer and best step must be those of step t, at least
    one seed must be finite, and the parameters must reproduce the saved loss and the
    best score. Other changes of the optimizer are not detected.
    """
    state = snapshot.state
    if int(state.t) != t:
        return f"its state is of step {int(state.t)}"
    if not _equal_keys(state.key, start.key):
        return "its key is not that of the run"
    if not _has_counts_of(state.optimizer, t):
        return f"its optimizer does not count {t} steps"
    if not np.any(finite_seeds(state)):
        return "its parameters are not finite, or those of its optimizer are NaN"
    if not _are_close(snapshot.loss, snapshot_fn(state).loss):
        return "its parameters do not have the loss that it states"
    if state.best is None or t == 0:
        return None
    best_step, score = np.asarray(state.best.t), np.asarray(state.best.score)
    if not ((best_step >= 0) & (best_step < t)).all():
        return "its best step is not one of its steps"
    # A new function at each call, so that a changed metric is traced anew.
    metric_fn = jax.jit(_over_seeds(rule, rule.metric_fn, start, data.val))
    found = np.asarray(metric_fn(state.best.params, data, data.val))
    undefined = np.isneginf(score) & ~(found > -np.inf)  # no score was a number
    # Round-off may move one node across a tie.
    slack = 1.5 / np.maximum(1, np.sum(data.val, axis=-1))
    if not _are_close(np.where(undefined, score, found), score, slack):
        return "its best parameters do not score as it states"
    return None


def is_sound(state: Any, diverged: Int[np.ndarray, "*s"]) -> bool:
    """Return whether at least one seed has finite losses and parameters."""
    return bool(((diverged < 0) & finite_seeds(state)).any())


def finite_seeds(state: Any) -> Bool[np.ndarray, "*s"]:
    """Return a flag for each seed: finite parameters, and no NaN in the optimizer.

    The optimizer may hold infinity: the square of a gradient overflows first.
    """
    return np.asarray(
        _finite(state.params, state.optimizer, num_axes=_num_seed_axes(state))
    )


def _num_seed_axes(state: Any) -> int:
    return state.key.ndim - (not jnp.issubdtype(state.key.dtype, jax.dtypes.prng_key))


def _over_seeds(rule: Any, fn: Callable, start: Any, mask: jax.Array) -> Callable:
    """Return (params, data, mask) -> fn(logits, targets, mask), for each seed."""

    def evaluate(params, data, mask):
        logits = rule.network.apply(params, data.x, data.matrix)
        return fn(logits, data.targets, mask)

    if _num_seed_axes(start):
        return jax.vmap(evaluate, in_axes=(0, None, 0 if mask.ndim > 1 else None))
    return evaluate


def _finite_impl(params, optimizer, num_axes):
    def all_of(flags):
        return flags.all(axis=tuple(range(num_axes, flags.ndim)))

    flags = [all_of(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(params)]
    flags += [all_of(~jnp.isnan(leaf)) for leaf in jax.tree.leaves(optimizer)]
    return jnp.stack(flags).all(axis=0)


_finite = jax.jit(_finite_impl, static_argnames="num_axes")


def _are_close(values: Any, expected: Any, slack: Any = 0) -> bool:
    """Return whether numbers are equal up to round-off, and infinite or NaN alike."""
    values, expected = np.asarray(values), np.asarray(expected)
    size = np.abs(np.where(np.isfinite(expected), expected, 0))
    with np.errstate(invalid="ignore"):  # of infinities
        near = np.abs(values - expected) <= 1e-3 * (size + 1e-3) + slack
    same = (values == expected) | (np.isnan(values) & np.isnan(expected))
    return bool((near | same).all())


def _equal_keys(one: jax.Array, other: jax.Array) -> bool:
    if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
        one, other = map(jax.random.key_data, (one, other))
    return np.array_equal(one, other)


def _has_counts_of(optimizer: Any, t: int) -> bool:
    """Return whether the integers of an optimizer state fit step t.

    Each step raises a ``count`` by one. Other integers may pause, as in optax's
    wrappers that accumulate gradients or skip steps.
    """
    integers = {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(optimizer)
        if jnp.issubdtype(leaf.dtype, jnp.integer)
    }
    low = t if all(name.endswith(".count") for name in integers) else 0
    high = min(t, np.iinfo(np.int32).max)
    return all(((x >= low) & (x <= high)).all() for x in integers.values())
