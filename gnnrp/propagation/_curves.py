"""Whole curves of RP from its closed forms.

As functions of t the modes are nearly dependent: sixteen of their combinations (in
float64, thirty-two) carry thousands of steps to round-off, so that the work per step is
that of so narrow a product whatever the number of modes.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from gnnrp.propagation import selection
from gnnrp.propagation._forms import Form
from gnnrp.propagation._iterated import Found
from gnnrp.propagation.problem import Problem
from gnnrp.types import MetricFn

_MODE_FLOATS = 2**22  # a(t) of one span of steps
_SCORE_FLOATS = 2**19  # scores of one chunk of steps: they stay in the cache
_STEPS_AT_ONCE, _MOST_FLOATS = 8, 2**26  # where one step's scores do not
_RANK = 16  # first width tried


@np.errstate(over="ignore", invalid="ignore")
def run(
    closed_forms: list[Form],
    problem: Problem,
    num_steps: int,
    *,
    metric: MetricFn,
    rule: str,
    patience: Int[Any, ""],
) -> Found:
    """Evaluate the metric at every step, choose, and form the chosen predictions."""
    steps = np.arange(1, num_steps + 1)
    val, test, norms = [], [], []
    for split, form in enumerate(closed_forms):
        for curves, curve in zip(
            (val, test), _curves(form, problem, split, steps, metric), strict=True
        ):
            curves.append(curve)
        fed_back = problem.train[split].sum() * problem.targets.shape[1]
        norms.append(form.norms_fn(steps - 1) / np.sqrt(fed_back))
    val, test, norms = np.stack(val), np.stack(test), np.stack(norms)
    # Without validation nodes, the later the better.
    judged = problem.val.mask.any(axis=1, keepdims=True)
    score = np.where(judged, val, steps.astype(val.dtype))
    chosen = selection.over_curve(score, rule=rule, patience=patience)
    seen = selection.last_step(chosen, num_steps, patience)
    best = [
        form.predictions_fn(int(step))
        for form, step in zip(closed_forms, chosen.step, strict=True)
    ]
    return Found(
        norms[:, :seen].astype(val.dtype),
        val[:, :seen],
        test[:, :seen],
        chosen,
        np.stack(best).astype(val.dtype),
        tuple(form.convergence for form in closed_forms),
        error=0.0,
        columns=0,
    )


def _curves(
    form: Form, problem: Problem, split: int, steps: np.ndarray, metric: MetricFn
) -> list[Float[np.ndarray, " t"]]:
    """Return the metric of one split at each step, on validation and test nodes."""
    dtype = problem.targets.dtype
    parts = [problem.val, problem.test]
    fields_of = [form.fields_fn(part) for part in parts]
    curves = [np.empty(len(steps), dtype) for _ in parts]
    span = int(np.clip(_MODE_FLOATS // len(form.weights), 1, len(steps)))
    for first in range(0, len(steps), span):
        some = slice(first, first + span)
        tall, mix = _compress(form.modes_fn(steps[some]), form.weights, dtype)
        for curve, part, fields in zip(curves, parts, fields_of, strict=True):
            index, targets, mask = (array[split] for array in part)
            start = np.zeros((1, 1), dtype)
            if problem.initial is not None:
                start = problem.initial[split][index]
            chunks = _chunks(tall, span, targets.size)
            values = _metric_of_chunks(
                chunks, fields(mix), start, targets, mask, metric=metric
            )
            curve[some] = np.asarray(values).ravel()[: len(tall)]
    return curves


def _chunks(
    tall: Float[np.ndarray, "t r"], span: int, num_scores: int
) -> Float[np.ndarray, "p k r"]:
    """Cut steps into chunks whose scores stay in the cache.

    The last chunk and the last span are filled up, so that all share one trace.
    """
    num_scores = max(1, num_scores)
    # However many nodes, several steps at once, so that the fields are read less often.
    least = min(_STEPS_AT_ONCE, max(1, _MOST_FLOATS // num_scores))
    size = int(np.clip(max(least, _SCORE_FLOATS // num_scores), 1, span))
    filled = np.pad(tall, [(0, -(-span // size) * size - len(tall)), (0, 0)])
    return filled.reshape(-1, size, tall.shape[1])


def _compress(
    modes: Float[np.ndarray, "t x"], weights: Float[np.ndarray, " x"], dtype: Any
) -> tuple[Float[np.ndarray, "t r"], Float[np.ndarray, "r x"]]:
    """Factor a = U B with r small, to round-off of the dtype relative to each step.

    A random range finder, doubled until the error is small; it always ends, since U
    spans everything at r = t.
    """
    tolerance = 3e-8 if np.dtype(dtype) == np.float32 else 4e-15
    weighted = modes * weights
    size = np.abs(weighted).max(axis=1, keepdims=True, initial=0)
    # Steps past overflow take no part, and are NaN.
    lost = ~np.isfinite(size[:, 0])
    scaled = np.where(lost[:, None], 0, weighted / np.where(size > 0, size, 1))
    rank = min(_RANK, *scaled.shape)
    while True:
        draw = np.random.default_rng(0).standard_normal((scaled.shape[1], rank))
        tall = np.linalg.qr(scaled @ draw)[0]
        mix = tall.T @ scaled
        error = np.abs(scaled - tall @ mix).max(initial=0)
        if error <= tolerance or rank == min(scaled.shape):
            break
        rank = min(2 * rank, *scaled.shape)
    room = [(0, 0), (0, max(0, _RANK - rank))]  # few ranks, few traces
    mix = mix / np.where(weights > 0, weights, np.inf)
    tall = np.where(lost[:, None], np.nan, size * tall)
    return np.pad(tall, room).astype(dtype), np.pad(mix, room[::-1])


@functools.partial(jax.jit, static_argnames="metric")
def _metric_of_chunks(chunks, fields, start, targets, mask, *, metric):
    # One chunk at a time in one program: its scores are overwritten in the cache, where
    # a large array of all scores would be paged in anew (six times slower).
    def of_chunk(tall):
        scores = jnp.einsum("tr,rqc->tqc", tall, fields, precision="highest")
        return jax.vmap(lambda at_t: metric(at_t + start, targets, mask))(scores)

    return jax.lax.map(of_chunk, chunks)
