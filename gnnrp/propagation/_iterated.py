"""RP step by step: the pure functions, and the loop that runs them on device."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from gnnrp.propagation import _resumed, losses, selection
from gnnrp.propagation._report import Found, grown
from gnnrp.propagation.problem import Part, Problem, evaluate, with_nan, without_nan
from gnnrp.runtime import checkpoints, tracing
from gnnrp.types import LinearMap, MetricFn, ResidualFn, Scalar

_BUFFER = 256  # steps between two looks by the host, at most
_SECONDS = 0.5  # between two looks, about
_HOPELESS = 1e6  # times its start a residual grows before its run is stopped


class State(NamedTuple):
    """Where RP stands after ``t`` steps."""

    predictions: Float[Array, "n *s c"]  # F_t, of known and unknown nodes alike
    t: Int[Array, ""]


def init(
    targets: Float[Array, "n *s c"], initial: Float[Array, "n *s c"] | None = None
) -> State:
    """Return the start, F_0 = 0 unless given, of the shape of the targets."""
    start = jnp.zeros_like(targets) if initial is None else initial
    return State(start, jnp.asarray(0, jnp.int32))


def residuals(
    state: State,
    targets: Float[Array, "n *s c"],
    train_mask: Bool[Array, "n *#s #c"],
    *,
    residual_fn: ResidualFn = losses.squared,
) -> Float[Array, "n *s c"]:
    """Return [R_t, 0]: minus the loss gradient on the known targets, zero elsewhere.

    Args:
        state: holds F_t.
        targets: Y; what the mask leaves out, NaN too, plays no part.
        train_mask: (n, 1), or (n, c) where single targets are unknown.
        residual_fn: see ``losses``.
    """
    safe = jnp.where(train_mask, targets, 0)
    return jnp.where(train_mask, residual_fn(safe, state.predictions), 0)


def step(
    state: State,
    similarity: LinearMap,
    targets: Float[Array, "n *s c"],
    train_mask: Bool[Array, "n *#s #c"],
    *,
    step_size: Scalar | Float[Array, "*s 1"],
    residual_fn: ResidualFn = losses.squared,
) -> State:
    """Take one step, F <- F + η S [R, 0].

    The state holds predictions rather than residuals, so that one step serves every
    loss and start; for the squared loss R_t = Y - F_t and R'_t = -F'_t.

    Args:
        state: F_t.
        similarity: V -> S V, applied to all columns at once.
        targets: Y, (n, c), or (n, s, c) for several splits at once.
        train_mask: which targets are fed back, (n, 1), (n, c) or (n, s, 1).
        step_size: η, may be traced; one a split, (s, 1), if they differ. Residuals of
            the squared loss shrink if S_XX is PSD and 0 < η < 2 / λ_max(S_XX);
            ``exact.convergence`` tells.
        residual_fn: see ``losses``.

    Source: Eq. 6 and Algorithm 1 (App. D.3); other losses App. C.2.
    """
    visible = residuals(state, targets, train_mask, residual_fn=residual_fn)
    sent = similarity(visible.reshape(len(visible), -1)).reshape(visible.shape)
    rate = jnp.asarray(step_size, sent.dtype)
    rate = rate[None] if rate.ndim else rate
    return State(state.predictions + rate * sent, state.t + 1)


class _Carry(NamedTuple):
    state: State  # (n, s, c)
    best: Float[Array, "n s c"]
    chosen: selection.Selection
    curves: Float[Array, "4 b s"]  # train residual, val, test (-inf: NaN), column


def run(
    similarity: LinearMap,
    problem: Problem,
    *,
    step_sizes: Sequence[float],
    num_steps: int,
    metric: MetricFn,
    residual_fn: ResidualFn,
    rule: str,
    patience: Int[Array, ""],
    keeper: checkpoints.Keeper,
    callback: Callable[[int, int], None] | None,
) -> list[Found]:
    """Take the steps one by one, for each step size, all in the same products.

    It stops early where the patience of every split and step size ran out, or its
    residual has grown beyond hope.
    """
    problem = _repeated(problem, len(step_sizes))
    carry, mask, rates = _start(problem, step_sizes)
    num_splits, dtype = len(problem.train), problem.targets.dtype
    device = problem._replace(train=None)
    if not problem.is_shared:
        device, mask = jax.device_put((device, mask))
    settings = (rates, patience, mask)
    advance = functools.partial(
        _advance, metric=metric, residual_fn=residual_fn, rule=rule
    )
    begun = carry  # for its shapes
    choice = _resumed.Choice(metric, rule, patience)
    norm_fn = functools.partial(_norms, residual_fn)
    kept = keeper.resumed(
        lambda t: (begun, np.zeros((4, t, num_splits), dtype)),
        lambda t, kept: _resumed.fault_of_steps(
            t, kept[0], kept[1], begun, device, mask, norm_fn, choice
        ),
        num_steps,
    )
    carry, curves = (carry, []) if kept is None else (kept[0], [np.asarray(kept[1])])
    done, count = int(carry.state.t), 1
    while done < num_steps and not _is_over(carry, curves):
        began = time.perf_counter()
        count = min(count, num_steps - done)
        carry = advance(carry, similarity, device, settings, count)
        curves.append(np.asarray(carry.curves[:, :count]))
        done += count
        if all(checkpoints.agreed(time.perf_counter() - began < _SECONDS)):
            count = min(2 * count, _BUFFER)
        if callback:
            callback(done, num_steps)
        keeper.offer(done, lambda: (carry, np.concatenate(curves, axis=1)))  # noqa: B023
    keeper.finish(done, lambda: (carry, np.concatenate(curves, axis=1)))
    curves = np.moveaxis(np.concatenate(curves, axis=1), 2, 1)
    return _found(carry, curves, len(step_sizes), patience)


def _start(
    problem: Problem, step_sizes: Sequence[float]
) -> tuple[_Carry, Any, Float[Array, "s 1"]]:
    """Return where the run begins, what is fed back, and η of each split."""
    num_splits, num_nodes = problem.train.shape
    shape = (num_nodes, num_splits, problem.targets.shape[1])
    dtype = problem.targets.dtype
    rates = np.repeat(step_sizes, num_splits // len(step_sizes))[:, None]
    rows: Any = None
    if problem.is_shared:
        rows = problem.targets.sharding
    start = jnp.zeros(shape, dtype, device=rows)
    if problem.initial is not None:
        start = jnp.moveaxis(jnp.asarray(problem.initial), 0, 1)
    mask = problem.train.T[:, :, None]
    if problem.known is not None:
        mask = mask & problem.known[:, None, :]
    rest = (
        jnp.asarray(0, jnp.int32),
        selection.init(num_splits, dtype),
        jnp.zeros((4, _BUFFER, num_splits), dtype),
    )
    if problem.is_shared:  # by every device alike, so that they can be donated
        whole = NamedSharding(rows.mesh, PartitionSpec())
        rest = jax.tree.map(
            lambda x: jax.make_array_from_callback(
                x.shape, whole, np.asarray(x).__getitem__
            ),
            rest,
        )
    t, chosen, curves = rest
    # Each its own buffer, since they are donated.
    carry = _Carry(State(jnp.array(start), t), jnp.array(start), chosen, curves)
    return carry, mask, jnp.asarray(rates, dtype)


def _norms(
    residual_fn: ResidualFn,
    problem: Problem,
    mask: Bool[Array, "n *#s #c"],
    predictions: Float[Array, "n s c"],
) -> Float[Array, " s"]:
    """Return the root mean square residual of each split."""
    targets = jnp.broadcast_to(problem.targets[:, None, :], predictions.shape)
    state = State(predictions, jnp.asarray(0))
    visible = residuals(state, targets, mask, residual_fn=residual_fn)
    every = jnp.broadcast_to(mask, predictions.shape)
    fed_back = jnp.sum(every, axis=(0, 2), dtype=targets.dtype)
    return jnp.sqrt(jnp.sum(visible**2, axis=(0, 2)) / fed_back)


def _is_over(carry: _Carry, curves: list[Float[np.ndarray, "4 _ s"]]) -> bool:
    """Return whether every split ran out of patience, or diverged."""
    over = np.asarray(carry.chosen.stopped)
    if curves:
        first, last = curves[0][0, 0], curves[-1][0, -1]
        over = over | ~(last <= _HOPELESS * first)
    return bool(np.all(over))


def _found(
    carry: _Carry,
    curves: Float[np.ndarray, "4 s t"],
    num_step_sizes: int,
    patience: Int[Array, ""],
) -> list[Found]:
    """Return what was found of each step size."""
    num_splits, done = curves.shape[1:]
    predictions = jnp.moveaxis(carry.best, 1, 0)
    if predictions.is_fully_replicated:  # else devices share the rows
        predictions = np.asarray(predictions)
    found = []
    for some in np.split(np.arange(num_splits), num_step_sizes):
        chosen = jax.tree.map(lambda each, some=some: each[some], carry.chosen)
        seen = selection.last_step(chosen, done, patience)
        norms, val, test, columns = curves[:, some, :seen]
        val, test = with_nan(val), with_nan(test)
        # The residual that a step leaves is the one that the next sends.
        at = np.minimum(grown(norms), seen - 1)
        worst = columns[np.arange(len(some)), at].astype(np.int64)
        best = predictions[some]
        width = done * len(some) * best.shape[2]
        found.append(Found(norms, val, test, worst, chosen, best, None, 0.0, width))
    return found


def _repeated(problem: Problem, count: int) -> Problem:
    """Return the problem with all its splits, ``count`` times one after the other."""
    if count == 1:
        return problem
    xp: Any = jnp if problem.is_shared else np

    def repeat(array):
        return xp.tile(array, (count, *[1] * (array.ndim - 1)))

    def repeated(part):
        if part.index is None:
            return part._replace(mask=repeat(part.mask))
        return Part(*map(repeat, part))

    start = problem.initial
    return problem._replace(
        train=repeat(problem.train),
        initial=None if start is None else repeat(start),
        val=repeated(problem.val),
        test=repeated(problem.test),
    )


def judged(
    part: Part, values: Float[Array, " s"], step: Int[Array, ""]
) -> Float[Array, " s"]:
    """What steps are chosen by: without validation nodes, the later the better."""
    return jnp.where(jnp.any(part.mask, axis=1), values, step.astype(values.dtype))


def _advance_impl(
    carry: _Carry,
    similarity: LinearMap,
    problem: Problem,
    settings: tuple[Array, Array, Array],
    count: Int[Array, ""],
    *,
    metric: MetricFn,
    residual_fn: ResidualFn,
    rule: str,
) -> _Carry:
    step_size, patience, mask = settings
    targets = jnp.broadcast_to(problem.targets[:, None, :], carry.best.shape)
    every = jnp.broadcast_to(mask, carry.best.shape)
    fed_back = jnp.sum(every, axis=(0, 2), dtype=targets.dtype)

    def body(i, carry):
        # The residual is formed here once more for its norm; XLA shares the two.
        visible = residuals(carry.state, targets, mask, residual_fn=residual_fn)
        by_column = jnp.sum(visible**2, axis=0)
        norm = jnp.sqrt(jnp.sum(by_column, axis=1) / fed_back)
        worst = jnp.argmax(by_column, axis=1).astype(norm.dtype)
        state = step(
            carry.state,
            similarity,
            targets,
            mask,
            step_size=step_size,
            residual_fn=residual_fn,
        )
        val = evaluate(metric, problem.val, state.predictions)
        test = evaluate(metric, problem.test, state.predictions)
        score = judged(problem.val, val, state.t)
        chosen, kept = selection.update(
            carry.chosen, score, state.t, rule=rule, patience=patience
        )
        best = jnp.where(kept[:, None], state.predictions, carry.best)
        seen = jnp.stack([norm, without_nan(val), without_nan(test), worst])
        curves = carry.curves.at[:, i].set(seen)
        return _Carry(state, best, chosen, curves)

    return jax.lax.fori_loop(0, count, body, carry)


_advance = tracing.Jit(
    _advance_impl, static_argnames=("rule",), donate_argnames=("carry",)
)
