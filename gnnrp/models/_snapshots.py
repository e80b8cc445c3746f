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
    """Return the identity of a run as plain JSON."""
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


class Snapshots:
    """Saves and restores the states of a run; compiles its loss once."""

    def __init__(
        self, keeper: checkpoints.Keeper, rule: Any, data: Any, start: Any
    ) -> None:
        """Save nothing yet; ``start`` is the state before the first step."""
        self._keeper, self._rule, self._data, self._start = keeper, rule, data, start
        self._loss_fn = jax.jit(self._over_seeds(rule.loss_fn, data.train))

    def restore(self) -> Any:
        """Return the state of the last checkpoint, validated, or None."""
        snapshot = self._keeper.restore(
            lambda _: self._make(self._start), self._find_fault
        )
        return None if snapshot is None else snapshot.state

    def save(
        self, state: Any, diverged: Int[np.ndarray, "*s"], *, is_last: bool = False
    ) -> None:
        """Save a state if it is due or the last, unless all seeds have diverged."""
        if ((diverged < 0) & _finite_seeds(state)).any():
            save = self._keeper.save if is_last else self._keeper.save_if_due
            save(int(state.t), lambda: self._make(state))

    def _make(self, state: Any) -> Snapshot:
        loss = self._loss_fn(state.params, self._data, self._data.train)
        return Snapshot(state, loss)

    def _over_seeds(self, fn: Callable, mask: jax.Array) -> Callable:
        """Return (params, data, mask) -> fn(logits, targets, mask), for each seed."""

        def evaluate(params, data, mask):
            logits = self._rule.network.apply(params, data.x, data.matrix)
            return fn(logits, data.targets, mask)

        if _num_seed_axes(self._start):
            return jax.vmap(evaluate, in_axes=(0, None, 0 if mask.ndim > 1 else None))
        return evaluate

    def _find_fault(self, t: int, snapshot: Snapshot) -> str | None:
        """Return the fault of the snapshot of checkpoint t, or None."""
        # Changes of the optimizer other than its counts and NaN are not detected.
        state, data = snapshot.state, self._data
        if int(state.t) != t:
            return f"its state is of step {int(state.t)}"
        if not _equal_keys(state.key, self._start.key):
            return "its key is not that of the run"
        if not _has_counts_of(state.optimizer, t):
            return f"its optimizer does not count {t} steps"
        if not np.any(_finite_seeds(state)):
            return "its parameters are not finite, or those of its optimizer are NaN"
        if not _are_close(snapshot.loss, self._make(state).loss):
            return "its parameters do not have the loss that it states"
        if state.best is None or t == 0:
            return None
        best_step, score = np.asarray(state.best.t), np.asarray(state.best.score)
        if not ((best_step >= 0) & (best_step < t)).all():
            return "its best step is not one of its steps"
        # A new function at each call, so that a changed metric is traced anew.
        metric_fn = jax.jit(self._over_seeds(self._rule.metric_fn, data.val))
        actual = np.asarray(metric_fn(state.best.params, data, data.val))
        undefined = np.isneginf(score) & ~(actual > -np.inf)  # no score was a number
        # Round-off may move one node across a tie.
        slack = 1.5 / np.maximum(1, np.sum(data.val, axis=-1))
        if not _are_close(np.where(undefined, score, actual), score, slack):
            return "its best parameters do not score as it states"
        return None


def _finite_seeds(state: Any) -> Bool[np.ndarray, "*s"]:
    """Return a flag for each seed: finite parameters, and no NaN in the optimizer."""
    # The optimizer may hold infinity: the square of a gradient overflows first.
    num_axes = _num_seed_axes(state)
    return np.asarray(_are_finite(state.params, state.optimizer, num_axes))


def _num_seed_axes(state: Any) -> int:
    return state.key.ndim - (not jnp.issubdtype(state.key.dtype, jax.dtypes.prng_key))


@functools.partial(jax.jit, static_argnums=2)
def _are_finite(params: Any, optimizer: Any, num_axes: int) -> jax.Array:
    flags = [jnp.isfinite(leaf) for leaf in jax.tree.leaves(params)]
    flags += [~jnp.isnan(leaf) for leaf in jax.tree.leaves(optimizer)]
    by_seed = [each.all(axis=tuple(range(num_axes, each.ndim))) for each in flags]
    return jnp.stack(by_seed).all(axis=0)


def _are_close(actual: Any, expected: Any, slack: Any = 0) -> bool:
    """Return whether numbers are equal up to round-off, and infinite or NaN alike."""
    return np.allclose(actual, expected, rtol=1e-3, atol=1e-6 + slack, equal_nan=True)


def _equal_keys(one: jax.Array, other: jax.Array) -> bool:
    if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
        one, other = map(jax.random.key_data, (one, other))
    return np.array_equal(one, other)


def _has_counts_of(optimizer: Any, t: int) -> bool:
    """Return whether the integers of an optimizer state fit step t."""
    # Each step raises a ``count`` by one. Other integers may pause, as in optax's
    # wrappers that accumulate gradients or skip steps.
    integers = {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(optimizer)
        if jnp.issubdtype(leaf.dtype, jnp.integer)
    }
    low = t if all(name.endswith(".count") for name in integers) else 0
    high = min(t, np.iinfo(np.int32).max)
    return all(((x >= low) & (x <= high)).all() for x in integers.values())
