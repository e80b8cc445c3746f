"""Whole curves of RP from its closed forms, exact or Krylov.

Both forms are sums over modes, F_t - F_0 = Σ_x a_x(t) b_x, with a(t) known for every t
on the host, in float64, and b on device. As functions of t the modes are nearly
dependent: some thirty combinations of them carry thousands of steps to round-off, so
that the work per step is that of a product of width thirty whatever their number.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from gnnrp.propagation import exact, krylov, selection
from gnnrp.propagation._iterated import Found
from gnnrp.propagation.problem import Part, Problem
from gnnrp.propagation.similarity import columns
from gnnrp.types import LinearMap, MetricFn

_MODE_FLOATS = 2**22  # a(t) of one span of steps
_SCORE_FLOATS = 2**19  # scores of one chunk of steps: they stay in the cache
_RANK = 32  # first width tried


class Form(NamedTuple):
    """The closed form of one split."""

    modes_fn: Callable[[np.ndarray], np.ndarray]  # steps -> a, (t, x)
    weights: Float[np.ndarray, " x"]  # how large each mode is where it is looked at
    fields_fn: Callable[[Part], Callable]  # nodes -> ((r, x) -> sums of b, (r, q, c))
    predictions_fn: Callable[[int], np.ndarray]  # step -> F_t of all nodes, (n, c)
    norms_fn: Callable[[np.ndarray], np.ndarray]  # steps -> |R_t|
    convergence: exact.Convergence


def krylov_capacity(problem: Problem, max_bytes: int) -> int:
    """Return how many Krylov vectors fit: each takes n x s x c numbers."""
    size = problem.targets.nbytes * len(problem.train)
    return int(max_bytes // max(1, size))


@np.errstate(over="ignore", invalid="ignore")
def forms(
    method: str,
    similarity: LinearMap,
    problem: Problem,
    *,
    step_size: float,
    num_steps: int,
    max_bytes: int,
    callback: Callable[[int, int], None] | None,
) -> tuple[list[Form], float]:
    """Return the closed form of each split, and the estimated relative error."""
    if method == "exact":
        made = []
        for split in range(len(problem.train)):
            made.append(_exact_form(similarity, problem, split, step_size))
            if callback:
                callback(split + 1, len(problem.train))
        return made, 0.0
    # Each part stands in one piece, so that a slice takes it out.
    seen = (
        problem.train | _covered(problem, problem.val) | _covered(problem, problem.test)
    )
    others = krylov.padded_index(~seen)
    rest = np.concatenate([problem.val.index, problem.test.index, others], axis=1)
    places = krylov.layout(problem.train, rest)
    start = np.pad(_initial_residual(problem), [(0, 0), (0, 1), (0, 0)])
    index = np.asarray(places.train)[..., None]
    residual = np.moveaxis(np.take_along_axis(start, index, axis=1), 2, 1)
    basis = krylov.build(
        similarity,
        places,
        jnp.asarray(residual),
        step_size=step_size,
        num_steps=num_steps,
        max_vectors=krylov_capacity(problem, max_bytes),
        callback=callback,
    )
    count = range(len(problem.train))
    made = [_krylov_form(basis, places, problem, i, step_size) for i in count]
    return made, basis.error


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
        for part, curves in ((problem.val, val), (problem.test, test)):
            curves.append(_curve(form, problem, split, part, steps, metric))
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
        0.0,
    )


def _initial_residual(problem: Problem) -> Float[np.ndarray, "s n c"]:
    """Return [R_0, 0] of each split."""
    start = problem.targets[None]
    if problem.initial is not None:
        start = start - problem.initial
    return np.where(problem.train[:, :, None], start, 0)


def _covered(problem: Problem, part: Part) -> Bool[np.ndarray, "s n"]:
    out = np.zeros_like(problem.train)
    for row, index, inside in zip(out, part.index, part.mask, strict=True):
        row[index[inside]] = True
    return out


def _initial(problem: Problem, split: int) -> Float[np.ndarray, "n c"]:
    if problem.initial is None:
        return np.zeros(problem.targets.shape)
    return np.array(problem.initial[split], np.float64)


def _exact_form(
    similarity: LinearMap, problem: Problem, split: int, step_size: float
) -> Form:
    train = np.flatnonzero(problem.train[split])
    dtype = problem.targets.dtype
    factors = exact.factorize(
        columns(similarity, train, len(problem.targets), dtype=dtype), train
    )
    residual = _initial_residual(problem)[split, train].astype(np.float64)
    coefficients = factors.eigenvectors.T @ residual

    def modes(steps):
        return exact.growth(factors.eigenvalues, step_size, steps)

    def fields(part):
        rows = jnp.asarray(factors.rows[part.index[split]], dtype)
        return lambda mix: _exact_fields(
            rows, (mix[:, :, None] * coefficients).astype(dtype)
        )

    def predictions(step):
        a = modes(np.array([step]))[0]
        return _initial(problem, split) + factors.rows @ (a[:, None] * coefficients)

    return Form(
        modes,
        np.abs(factors.rows).max(axis=0) * np.abs(coefficients).max(axis=1),
        fields,
        predictions,
        lambda steps: exact.residual_norms(
            factors, residual, steps, step_size=step_size
        ),
        exact.convergence(factors, residual, step_size=step_size),
    )


def _krylov_form(
    basis: krylov.Basis,
    places: krylov.Layout,
    problem: Problem,
    split: int,
    step_size: float,
) -> Form:
    train, rest = problem.train[split], places.rest[split]
    num_classes, num_vectors = basis.images.shape[1:3]
    one = basis._replace(
        eigenvalues=basis.eigenvalues[split : split + 1],
        eigenvectors=basis.eigenvectors[split : split + 1],
        norms=basis.norms[split : split + 1],
    )

    def modes(steps):
        return krylov.coefficients(one, step_size, steps)[:, 0].reshape(len(steps), -1)

    def residual(steps):
        return krylov.residual_coefficients(one, step_size, steps)[:, 0]

    def fields(part):
        first = 0 if part is problem.val else problem.val.index.shape[1]
        images = basis.images[split][:, :, first : first + part.index.shape[1]]
        shape = (num_classes, num_vectors)
        return lambda mix: _krylov_fields(
            images, mix.reshape(len(mix), *shape).astype(images.dtype)
        )

    def predictions(step):
        at = np.array([step])
        out = _initial(problem, split)
        a = modes(at)[0].reshape(num_classes, num_vectors)
        moved = np.einsum("cmr,cm->rc", basis.images[split], a)
        left = np.einsum("cml,cm->lc", basis.vectors[split], residual(at)[0])
        inside = rest < len(out)
        # Nodes that pad a part, or stand in two, are all the same node's value.
        out[rest[inside]] += moved[inside]
        out[train] = problem.targets[train] - left[: train.sum()]
        return out

    return Form(
        modes,
        np.ones(num_classes * num_vectors),
        fields,
        predictions,
        lambda steps: np.linalg.norm(residual(steps).reshape(len(steps), -1), axis=1),
        krylov.convergence(basis, split, step_size),
    )


def _curve(
    form: Form,
    problem: Problem,
    split: int,
    part: Part,
    steps: np.ndarray,
    metric: MetricFn,
) -> Float[np.ndarray, " t"]:
    """Return the metric of one split on one part at each step."""
    index, targets, mask = (array[split] for array in part)
    start = np.zeros((1, 1), problem.targets.dtype)
    if problem.initial is not None:
        start = problem.initial[split][index]
    fields_of = form.fields_fn(part)
    span = int(np.clip(_MODE_FLOATS // len(form.weights), 1, len(steps)))
    chunk = int(np.clip(_SCORE_FLOATS // max(1, targets.size), 1, span))
    curve = []
    for first in range(0, len(steps), span):
        some = steps[first : first + span]
        tall, mix = _compress(form.modes_fn(some), form.weights, targets.dtype)
        fields = fields_of(mix)
        # The last chunk and the last span are filled up, so that all share one trace.
        tall = np.pad(tall, [(0, -(-span // chunk) * chunk - len(some)), (0, 0)])
        tall = tall.reshape(-1, chunk, tall.shape[1])
        values = _metric_of_chunks(tall, fields, start, targets, mask, metric=metric)
        curve.append(np.asarray(values).ravel()[: len(some)])
    return np.concatenate(curve)


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


@jax.jit
def _exact_fields(rows, mix):
    return jnp.einsum("ql,rlc->rqc", rows, mix, precision="highest")


@jax.jit
def _krylov_fields(images, mix):
    return jnp.einsum("cmq,rcm->rqc", images, mix, precision="highest")


@functools.partial(jax.jit, static_argnames="metric")
def _metric_of_chunks(chunks, fields, start, targets, mask, *, metric):
    # One chunk at a time in one program: its scores are overwritten in the cache, where
    # a large array of all scores would be paged in anew (six times slower).
    def of_chunk(tall):
        scores = jnp.einsum("tr,rqc->tqc", tall, fields, precision="highest")
        return jax.vmap(lambda at_t: metric(at_t + start, targets, mask))(scores)

    return jax.lax.map(of_chunk, chunks)
