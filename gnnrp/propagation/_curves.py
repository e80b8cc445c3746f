"""Whole curves of RP from its closed forms.

As functions of t the modes are nearly dependent: sixteen of their combinations (in
float64, thirty-two) carry thousands of steps to round-off, so that the work per step is
that of so narrow a product whatever the number of modes.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, UInt8

from gnnrp import _tracing, checkpoints
from gnnrp.propagation import _forms, _resumed, exact, selection
from gnnrp.propagation._forms import Form
from gnnrp.propagation._report import Found, grown
from gnnrp.propagation.problem import Problem, with_nan, without_nan
from gnnrp.types import LinearMap, MetricFn

_SCORE_FLOATS = 2**19  # scores of one chunk of steps: they stay in the cache
_STEPS_AT_ONCE, _MOST_FLOATS = 8, 2**26  # where one step's scores do not
_RANK = 16  # first width tried


class Piece(NamedTuple):
    """What was found of one split and step size."""

    norms: Float[np.ndarray, " t"]
    val: Float[np.ndarray, " t"]
    test: Float[np.ndarray, " t"]
    worst: Int[np.ndarray, ""]  # column of the largest residual when it had grown
    chosen: selection.Selection  # of one split
    best: Float[Any, "n c"]  # predictions
    told: UInt8[np.ndarray, " 1024"]  # convergence, in JSON


def by_eigenvectors(
    similarity: LinearMap,
    problem: Problem,
    *,
    step_sizes: Sequence[float],
    num_steps: int,
    settings: dict[str, Any],
    keeper: checkpoints.Keeper,
    callback: Callable[[int, int], None] | None,
) -> list[Found]:
    """Run split by split, so that the eigenvectors of one are held, not of all."""
    num_splits = len(problem.train)

    def like(done: int) -> list[list[Piece]]:
        return [[_empty(problem, num_steps) for _ in step_sizes] for _ in range(done)]

    def find_fault(_: int, pieces: list[list[Piece]]) -> str | None:
        start = _forms.initial_residual(problem)
        choice = _resumed.Choice(**settings)
        return _resumed.fault_of_pieces(pieces, problem, start, choice)

    pieces = keeper.resumed(like, find_fault, num_splits) or []
    for split in range(len(pieces), num_splits):
        forms = _forms.of_eigenvectors(similarity, problem, split, step_sizes)
        pieces.append([
            _piece(form, problem, split, num_steps, **settings) for form in forms
        ])
        if callback:
            callback(split + 1, num_splits)
        keeper.offer(split + 1, lambda: pieces)
    keeper.finish(num_splits, lambda: pieces)
    width = int(problem.train.sum())
    patience = settings["patience"]
    return [
        _joined(list(some), num_steps, patience, 0.0, width)
        for some in zip(*pieces, strict=True)
    ]


def by_krylov_space(
    similarity: LinearMap,
    problem: Problem,
    *,
    step_sizes: Sequence[float],
    num_steps: int,
    settings: dict[str, Any],
    **more: Any,
) -> list[Found]:
    """Run all splits and step sizes in one space; see ``_forms.of_krylov_space``."""
    forms, error, columns = _forms.of_krylov_space(
        similarity, problem, step_sizes=step_sizes, num_steps=num_steps, **more
    )
    found = []
    for some in forms:
        pieces = [
            _piece(form, problem, split, num_steps, **settings)
            for split, form in enumerate(some)
        ]
        patience = settings["patience"]
        found.append(_joined(pieces, num_steps, patience, error, columns))
    return found


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def _piece(
    form: Form,
    problem: Problem,
    split: int,
    num_steps: int,
    *,
    metric: MetricFn,
    rule: str,
    patience: Int[Any, ""],
) -> Piece:
    """Evaluate the metric at every step, choose, and form the chosen predictions."""
    steps = np.arange(1, num_steps + 1)
    val, test = _curves(form, problem, split, steps, metric)
    fed_back = problem.train[split].sum() * problem.targets.shape[1]
    norms = (form.norms_fn(steps - 1) / np.sqrt(int(fed_back))).astype(val.dtype)
    # Without validation nodes, the later the better.
    judged = bool(problem.val.mask[split].any())
    score = val if judged else steps.astype(val.dtype)
    chosen = selection.over_curve(score[None], rule=rule, patience=patience)
    best = form.predictions_fn(int(chosen.step[0])).astype(val.dtype)
    worst = form.column_fn(int(grown(norms[None])[0]))
    told = json.dumps(form.convergence._asdict()).encode().ljust(1024)
    chosen = jax.tree.map(np.asarray, chosen)
    return Piece(
        norms, val, test, np.array(worst), chosen, best, np.frombuffer(told, np.uint8)
    )


def _empty(problem: Problem, num_steps: int) -> Piece:
    """Return a piece of the shapes and types of all others."""
    dtype = problem.targets.dtype
    curve = np.zeros(num_steps, dtype)
    chosen = jax.tree.map(np.asarray, selection.init(1, dtype))
    best = np.zeros(problem.targets.shape, dtype)
    return Piece(curve, curve, curve, np.array(0), chosen, best, np.zeros(1024, "u1"))


def _joined(
    pieces: list[Piece],
    num_steps: int,
    patience: Int[Any, ""],
    error: float,
    columns: int,
) -> Found:
    norms, val, test, worst = (
        np.stack([piece[i] for piece in pieces]) for i in range(4)
    )
    chosen = jax.tree.map(
        lambda *each: np.concatenate(each), *(piece.chosen for piece in pieces)
    )
    seen = selection.last_step(chosen, num_steps, patience)
    best: Any = [piece.best for piece in pieces]
    return Found(
        norms[:, :seen],
        val[:, :seen],
        test[:, :seen],
        worst,
        chosen,
        jnp.stack(best) if isinstance(best[0], jax.Array) else np.stack(best),
        tuple(exact.Convergence(**json.loads(bytes(piece.told))) for piece in pieces),
        error,
        columns,
    )


def _curves(
    form: Form, problem: Problem, split: int, steps: np.ndarray, metric: MetricFn
) -> list[Float[np.ndarray, " t"]]:
    """Return the metric of one split at each step, on validation and test nodes."""
    dtype = problem.targets.dtype
    parts = [problem.val, problem.test]
    fields_of = [form.fields_fn(part) for part in parts]
    curves = [np.empty(len(steps), dtype) for _ in parts]
    span = min(_forms.span(len(form.weights)), len(steps))
    for first in range(0, len(steps), span):
        some = slice(first, first + span)
        tall, mix = _compress(form.modes_fn(steps[some]), form.weights, dtype)
        for curve, part, fields in zip(curves, parts, fields_of, strict=True):
            index, targets, mask = part.of_split(split)
            start = np.zeros((1, 1), dtype)
            if problem.initial is not None:
                start = problem.initial[split][index]
            chunks = _chunks(tall, span, targets.size)
            values = _metric_of_chunks(
                chunks, fields(mix), start, targets, mask, metric=metric
            )
            curve[some] = with_nan(values).ravel()[: len(tall)]
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


@_tracing.Jit
def _metric_of_chunks(chunks, fields, start, targets, mask, *, metric):
    # One chunk at a time in one program: its scores are overwritten in the cache, where
    # a large array of all scores would be paged in anew (six times slower).
    def of_chunk(tall):
        scores = jnp.einsum("tr,rqc->tqc", tall, fields, precision="highest")
        values = jax.vmap(lambda at_t: metric(at_t + start, targets, mask))(scores)
        return without_nan(values)

    return jax.lax.map(of_chunk, chunks)
