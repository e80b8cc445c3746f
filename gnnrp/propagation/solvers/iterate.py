"""RP step by step on the device, for every loss and similarity."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from gnnrp.propagation import losses, selection
from gnnrp.propagation.convergence import divergence_steps
from gnnrp.propagation.problem import (
    Problem,
    Steps,
    decode_nan,
    encode_nan,
    part_scores,
)
from gnnrp.propagation.residual import State, residuals, step
from gnnrp.propagation.sizes import Sizes, metric_entries, total_bytes
from gnnrp.propagation.solvers import _restart_checks
from gnnrp.propagation.solvers.base import STAGE, Cost, Evaluation, Solution, keeper
from gnnrp.runtime import checkpoints, checks, tracing
from gnnrp.runtime.options import Options
from gnnrp.types import LinearMap, ResidualFn

_CHUNK = 256  # steps on the device between two checks by the host, at most
_CHUNK_SECONDS = 0.5  # between two checks, about
_OVERFLOW = 1e6  # growth of a residual at which its run is stopped


@dataclasses.dataclass(frozen=True)
class Iterate:
    """Solve by taking the steps one by one.

    Splits and step sizes are columns of one product. A run stops once every split
    and step size has run out of patience or its residual has grown 10^6-fold.

    Args:
        residual_fn: minus the gradient of the loss, see ``losses``.

    Source: Algorithm 1 (App. D.3). The published numbers come from a fixed number of
    steps, not from its "while validation performance increases".
    """

    residual_fn: ResidualFn = losses.squared

    def __post_init__(self) -> None:
        """Check that the loss is a function."""
        checks.function("residual_fn", self.residual_fn, "see losses.by_name")

    def unsupported(self, problem: Problem, similarity: LinearMap) -> str | None:
        """Return None: every problem is supported."""
        del problem, similarity

    def cost(self, sizes: Sizes) -> Cost:
        """Return the cost; F, the best F and one step's arrays are held, (n, s, c)."""
        width = sizes.num_splits * sizes.num_step_sizes * sizes.num_classes
        entries = 5.2 * sizes.num_nodes * width
        entries += metric_entries(sizes, width)
        peak = total_bytes(sizes, entries * sizes.itemsize)
        return Cost(sizes.num_steps * width, peak)

    def solve(
        self,
        problem: Problem,
        similarity: LinearMap,
        steps: Steps,
        evaluation: Evaluation,
        options: Options,
    ) -> list[Solution]:
        """Return a solution for each step size."""
        similarity = tracing.as_argument(similarity)
        residual_fn = tracing.as_static(self.residual_fn)
        problem = _repeat_splits(problem, len(steps.step_sizes))
        start, mask, rates = _init(problem, steps)
        device = problem._replace(train=None)
        if not problem.is_sharded:
            device, mask = jax.device_put((device, mask))
        patience = evaluation.selection.max_waits
        advance = functools.partial(
            _advance,
            similarity=similarity,
            problem=device,
            settings=(rates, patience, mask),
            metric=evaluation.metric,
            residual_fn=residual_fn,
            rule=evaluation.selection.rule,
        )

        def like(t: int) -> tuple[_Carry, np.ndarray]:
            shape = (4, t, len(problem.train))
            return start, np.zeros(shape, problem.targets.dtype)

        def find_fault(t: int, state: Any) -> str | None:
            norm_fn = functools.partial(_residual_norms, residual_fn)
            carry, curves = state
            return _restart_checks.find_iterate_fault(
                t, carry, curves, start, device, mask, norm_fn, evaluation
            )

        with keeper(options) as saved:
            restored = saved.restore(like, find_fault, steps.num_steps)
            carry, *curves = restored or (start,)
            carry, curves = _take_steps(
                advance, carry, curves, steps.num_steps, options, saved
            )
        solutions = _solutions(carry, curves, len(steps.step_sizes), patience)
        curvature = losses.max_curvature(self.residual_fn)
        return [each._replace(max_curvature=curvature) for each in solutions]


class _Carry(NamedTuple):
    """The state of a run between two steps, as a checkpoint stores it."""

    state: State  # (n, s, c)
    best: Float[Array, "n s c"]
    choice: selection.Choice
    curves: Float[Array, "4 b s"]  # train residual, val, test (-inf: NaN), column


def _take_steps(
    advance: Callable,
    carry: _Carry,
    curves: list[Any],
    num_steps: int,
    options: Options,
    saved: checkpoints.Keeper,
) -> tuple[_Carry, Float[np.ndarray, "4 t s"]]:
    """Advance in chunks of about half a second until every split is over."""
    curves = [np.asarray(each) for each in curves]
    done, count = int(carry.state.t), 1

    def state():
        return carry, np.concatenate(curves, axis=1)

    while done < num_steps and not _is_over(carry, curves):
        began = time.perf_counter()
        count = min(count, num_steps - done)
        carry = advance(carry, count=count)
        curves.append(np.asarray(carry.curves[:, :count]))
        done += count
        seconds = time.perf_counter() - began
        if all(checkpoints.any_process(seconds < _CHUNK_SECONDS)):
            count = min(2 * count, _CHUNK)
        options.report(STAGE, done, num_steps)
        saved.save_if_due(done, state)
    saved.save(done, state)
    return state()


def _init(problem: Problem, steps: Steps) -> tuple[_Carry, Any, Float[Array, "s 1"]]:
    """Return the first carry, the mask of fed-back targets, and η of each split."""
    num_splits, num_nodes = problem.train.shape
    shape = (num_nodes, num_splits, problem.targets.shape[1])
    dtype = problem.targets.dtype
    rates = np.repeat(steps.step_sizes, num_splits // len(steps.step_sizes))[:, None]
    rows: Any = problem.targets.sharding if problem.is_sharded else None
    start = jnp.zeros(shape, dtype, device=rows)
    if problem.initial is not None:
        start = jnp.moveaxis(jnp.asarray(problem.initial), 0, 1)
    mask = problem.train.T[:, :, None]
    if problem.known is not None:
        mask = mask & problem.known[:, None, :]
    rest = (
        jnp.asarray(0, jnp.int32),
        selection.init(num_splits, dtype),
        jnp.zeros((4, _CHUNK, num_splits), dtype),
    )
    if problem.is_sharded:  # replicated, so that they can be donated
        whole = NamedSharding(rows.mesh, PartitionSpec())
        rest = jax.tree.map(
            lambda x: jax.make_array_from_callback(
                x.shape, whole, np.asarray(x).__getitem__
            ),
            rest,
        )
    t, choice, curves = rest
    # Each field has its own buffer, since they are donated.
    carry = _Carry(State(jnp.array(start), t), jnp.array(start), choice, curves)
    return carry, mask, jnp.asarray(rates, dtype)


def _residual_norms(
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
    num_known = jnp.sum(every, axis=(0, 2), dtype=targets.dtype)
    return jnp.sqrt(jnp.sum(visible**2, axis=(0, 2)) / num_known)


def _is_over(carry: _Carry, curves: list[Float[np.ndarray, "4 _ s"]]) -> bool:
    """Return whether every split ran out of patience, or diverged."""
    over = np.asarray(carry.choice.stopped)
    if curves:
        first, last = curves[0][0, 0], curves[-1][0, -1]
        over = over | ~(last <= _OVERFLOW * first)
    return bool(np.all(over))


def _solutions(
    carry: _Carry,
    curves: Float[np.ndarray, "4 t s"],
    num_step_sizes: int,
    patience: Int[Array, ""],
) -> list[Solution]:
    """Return the solution of each step size."""
    done, num_splits = curves.shape[1:]
    predictions = jnp.moveaxis(carry.best, 1, 0)
    if predictions.is_fully_replicated:  # else devices share the rows
        predictions = np.asarray(predictions)
    solutions = []
    for splits in np.split(np.arange(num_splits), num_step_sizes):
        choice = jax.tree.map(lambda each, splits=splits: each[splits], carry.choice)
        count = selection.count_steps(choice, done, patience)
        norms, val, test, columns = np.moveaxis(curves[:, :count, splits], 2, 1)
        # The residual after a step is the one before the next.
        at = np.minimum(divergence_steps(norms), count - 1)
        worst = columns[np.arange(len(splits)), at].astype(np.int64)
        best = predictions[splits]
        width = done * len(splits) * best.shape[2]
        scores = decode_nan(val), decode_nan(test)
        solutions.append(Solution(norms, *scores, worst, choice, best, width))
    return solutions


def _repeat_splits(problem: Problem, count: int) -> Problem:
    """Return the problem with all its splits repeated ``count`` times."""
    if count == 1:
        return problem
    xp: Any = jnp if problem.is_sharded else np

    def repeat(array):
        return xp.tile(array, (count, *[1] * (array.ndim - 1)))

    def repeat_part(part):
        if problem.is_sharded:
            return part._replace(mask=repeat(part.mask))
        return jax.tree.map(repeat, part)

    return problem._replace(
        train=repeat(problem.train),
        initial=None if problem.initial is None else repeat(problem.initial),
        val=repeat_part(problem.val),
        test=repeat_part(problem.test),
    )


@functools.partial(tracing.Jit, static_argnames=("rule",), donate_argnames=("carry",))
def _advance(carry, similarity, problem, settings, count, *, metric, residual_fn, rule):
    """Return the carry after ``count`` more steps."""
    step_size, patience, mask = settings
    targets = jnp.broadcast_to(problem.targets[:, None, :], carry.best.shape)
    every = jnp.broadcast_to(mask, carry.best.shape)
    num_known = jnp.sum(every, axis=(0, 2), dtype=targets.dtype)
    step_fn = functools.partial(step, step_size=step_size, residual_fn=residual_fn)

    def body(i, carry):
        # ``step`` computes the residual again; XLA merges the two.
        visible = residuals(carry.state, targets, mask, residual_fn=residual_fn)
        by_column = jnp.sum(visible**2, axis=0)
        norm = jnp.sqrt(jnp.sum(by_column, axis=1) / num_known)
        worst = jnp.argmax(by_column, axis=1).astype(norm.dtype)
        state = step_fn(carry.state, similarity, targets, mask)
        val = part_scores(metric, problem.val, state.predictions)
        test = part_scores(metric, problem.test, state.predictions)
        # Without validation nodes the last step is selected.
        has_val = jnp.any(problem.val.mask, axis=1)
        score = jnp.where(has_val, val, state.t.astype(val.dtype))
        choice, selected = selection.update(
            carry.choice, score, state.t, rule=rule, patience=patience
        )
        best = jnp.where(selected[:, None], state.predictions, carry.best)
        column = jnp.stack([norm, encode_nan(val), encode_nan(test), worst])
        curves = carry.curves.at[:, i].set(column)
        return _Carry(state, best, choice, curves)

    return jax.lax.fori_loop(0, count, body, carry)
