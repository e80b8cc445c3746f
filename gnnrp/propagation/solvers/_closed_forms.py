"""Curves of RP from closed forms F_t - F_0 = Σ_x a_x(t) b_x, exact or Krylov.

The a(t) are float64 on the host, the b on the device. As functions of t the modes are
nearly dependent: 16 to 64 combinations of them represent thousands of steps.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from gnnrp.propagation import selection, symmetry
from gnnrp.propagation.convergence import Convergence, divergence_steps
from gnnrp.propagation.problem import Part, Problem, decode_nan, encode_nan
from gnnrp.propagation.selection import Choice
from gnnrp.propagation.sizes import WIDE
from gnnrp.propagation.solvers.base import Evaluation, Solution
from gnnrp.runtime import tracing
from gnnrp.types import LinearMap, MetricFn

_MODE_FLOATS = 2**22  # a(t) of one span of steps
_SCORE_FLOATS = 2**19  # scores of one chunk of steps: they stay in the cache
_STEPS_AT_ONCE, _MAX_FLOATS = 8, 2**26  # if the scores of one step do not
_RANK = 16  # first width tried


@runtime_checkable
class ClosedForm(Protocol):
    """The closed form of one split and step size."""

    @property
    def problem(self) -> Problem: ...
    @property
    def split(self) -> int: ...
    def modes(self, steps: np.ndarray) -> np.ndarray: ...  # a, (t, x)
    def weights(self) -> np.ndarray: ...  # size of each mode on the evaluated nodes
    def fields(self, part: Part) -> Callable: ...  # (r, x) -> sums of b, (r, q, c)
    def predictions(self, step: int) -> Any: ...  # F_t of all nodes, (n, c)
    def norms(self, steps: np.ndarray) -> np.ndarray: ...  # |R_t|
    def worst_column(self, step: int) -> int: ...  # of the largest residual
    def convergence(self) -> Convergence: ...


class Curve(NamedTuple):
    """Scores of one split and step size at every step, as a checkpoint stores them."""

    norms: Float[np.ndarray, " t"]
    val: Float[np.ndarray, " t"]
    test: Float[np.ndarray, " t"]
    worst_column: Int[np.ndarray, ""]  # of the largest residual once it has grown
    choice: Choice  # of one split
    best: Float[Any, "n c"]  # predictions of the selected step
    convergence: Float[np.ndarray, "8"]  # see ``Convergence.pack``


def unsupported(problem: Problem, similarity: LinearMap) -> str | None:
    """Return the reason why a problem has no closed form, or None."""
    if problem.known is not None:
        return "some training targets are unknown, so the columns differ in S_XX"
    num_nodes, dtype = len(problem.targets), problem.targets.dtype
    return symmetry.find_asymmetry(similarity, num_nodes, dtype)


def mode_bytes(
    num_steps: int, num_modes: int, arrays_of_span: float, arrays_of_all: float
) -> float:
    """Return the bytes of arrays of a span of steps, and of arrays of all steps."""
    all_steps = num_steps * num_modes
    of_span = arrays_of_span * min(all_steps, _MODE_FLOATS)
    return WIDE * (of_span + arrays_of_all * all_steps)


def steps_at_once(num_modes: int) -> int:
    """Return the number of steps whose a(t) are held at once."""
    return max(1, _MODE_FLOATS // num_modes)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def evaluate(form: ClosedForm, num_steps: int, evaluation: Evaluation) -> Curve:
    """Evaluate the metric at every step, and the predictions at the selected one."""
    problem, split = form.problem, form.split
    steps = np.arange(1, num_steps + 1)
    val, test = _score_curves(form, steps, evaluation.metric)
    num_known = problem.train[split].sum() * problem.targets.shape[1]
    norms = (form.norms(steps - 1) / np.sqrt(int(num_known))).astype(val.dtype)
    has_val = np.atleast_1d(problem.val.mask[split].any())
    choice = jax.tree.map(np.asarray, evaluation.choose(val[None], has_val))
    return Curve(
        norms,
        val,
        test,
        np.array(form.worst_column(int(divergence_steps(norms[None])[0]))),
        choice,
        form.predictions(int(choice.step[0])).astype(val.dtype),
        form.convergence().pack(),
    )


def empty_curve(problem: Problem, num_steps: int) -> Curve:
    """Return a curve of the shapes and types of all others."""
    best = np.zeros_like(problem.targets)
    curve = np.zeros(num_steps, best.dtype)
    choice = jax.tree.map(np.asarray, selection.init(1, best.dtype))
    return Curve(curve, curve, curve, np.array(0), choice, best, np.zeros(8))


def join(curves: Sequence[Curve], evaluation: Evaluation, num_columns: int) -> Solution:
    """Return the curves of all splits as one solution."""
    norms, val, test, columns, choices, best, convergence = zip(*curves, strict=True)
    choice = jax.tree.map(lambda *each: np.concatenate(each), *choices)
    patience = evaluation.selection.max_waits
    count = selection.count_steps(choice, len(norms[0]), patience)
    norms, val, test = (np.stack(each)[:, :count] for each in (norms, val, test))
    best = jnp.stack(best) if isinstance(best[0], jax.Array) else np.stack(best)
    reports = tuple(map(Convergence.unpack, convergence))
    columns = np.stack(columns)
    return Solution(norms, val, test, columns, choice, best, num_columns, reports)


def initial_predictions(problem: Problem, split: int) -> Float[np.ndarray, "n c"]:
    """Return F_0 of one split in float64."""
    if problem.initial is None:
        return np.zeros(problem.targets.shape)
    return np.array(problem.initial[split], np.float64)


def _score_curves(
    form: ClosedForm, steps: np.ndarray, metric: MetricFn
) -> list[Float[np.ndarray, " t"]]:
    """Return the metric at each step, on validation and test nodes."""
    problem, split, weights = form.problem, form.split, form.weights()
    dtype = problem.targets.dtype
    parts = [problem.val, problem.test]
    fields_of = [form.fields(part) for part in parts]
    curves = [np.empty(len(steps), dtype) for _ in parts]
    span = min(steps_at_once(len(weights)), len(steps))
    for first in range(0, len(steps), span):
        some = slice(first, first + span)
        tall, mix = _compress(form.modes(steps[some]), weights, dtype)
        for curve, part, fields in zip(curves, parts, fields_of, strict=True):
            index, targets, mask = part.split_inputs(split)
            start = np.zeros((1, 1), dtype)
            if problem.initial is not None:
                start = problem.initial[split][index]
            chunks = _chunks(tall, span, targets.size)
            values = _metric_of_chunks(
                chunks, fields(mix), start, targets, mask, metric=metric
            )
            curve[some] = decode_nan(values).ravel()[: len(tall)]
    return curves


def _chunks(
    tall: Float[np.ndarray, "t r"], span: int, num_scores: int
) -> Float[np.ndarray, "p k r"]:
    """Cut steps into chunks whose scores fit the cache, padded to share one trace."""
    num_scores = max(1, num_scores)
    # Several steps at once even if there are many nodes, to read the fields less often.
    least = min(_STEPS_AT_ONCE, max(1, _MAX_FLOATS // num_scores))
    size = int(np.clip(max(least, _SCORE_FLOATS // num_scores), 1, span))
    padded = np.pad(tall, [(0, -(-span // size) * size - len(tall)), (0, 0)])
    return padded.reshape(-1, size, tall.shape[1])


def _compress(
    modes: Float[np.ndarray, "t x"], weights: Float[np.ndarray, " x"], dtype: Any
) -> tuple[Float[np.ndarray, "t r"], Float[np.ndarray, "r x"]]:
    """Factor a = U B with r small, to round-off of the dtype relative to each step.

    A random range finder, doubled until the error is small; it always ends, since the
    factorization is exact at r = t.
    """
    round_off = 4 * np.finfo(float).eps * np.sqrt(len(modes))  # of the projection
    tolerance = 3e-8 if np.dtype(dtype) == np.float32 else round_off
    weighted = modes * weights
    size = np.abs(weighted).max(axis=1, keepdims=True, initial=0)
    # Steps past overflow are ignored, and become NaN.
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


@tracing.Jit
def _metric_of_chunks(chunks, fields, start, targets, mask, *, metric):
    # One chunk at a time in one program: its scores are overwritten in the cache, where
    # a large array of all scores would be paged in anew (six times slower).
    def evaluate_chunk(tall):
        scores = jnp.einsum("tr,rqc->tqc", tall, fields, precision="highest")
        values = jax.vmap(lambda at_t: metric(at_t + start, targets, mask))(scores)
        return encode_nan(values)

    return jax.lax.map(evaluate_chunk, chunks)
