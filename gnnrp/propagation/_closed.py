"""Whole curves of RP from its closed forms, exact or Krylov, evaluated on device.

Both forms say: on some nodes F_t - F_0 = rows a(t), with a(t) small and known for every
t. The rows stay on device; a(t) comes from the host in float64, in chunks of steps.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gnnrp.propagation import exact, krylov, selection
from gnnrp.propagation._iterated import Found
from gnnrp.propagation.problem import Part, Problem
from gnnrp.propagation.similarity import columns
from gnnrp.types import LinearMap, MetricFn

_CHUNK_FLOATS = 2**24  # scores of one chunk of steps


class Form(NamedTuple):
    """The closed form of one split."""

    rows_fn: Callable[[np.ndarray], Any]  # nodes -> (q, l) or, by class, (c, l, q)
    coefficients_fn: Callable[[np.ndarray], np.ndarray]  # steps -> (t, l, c) or (t, c, l)
    step_axis: int  # where rows want the steps: (l, t, c) or (c, l, t)
    predictions_fn: Callable[[int], np.ndarray]  # step -> F_t of all nodes, (n, c)
    norms_fn: Callable[[np.ndarray], np.ndarray]  # steps -> |R_t|
    convergence: exact.Convergence | None


def krylov_capacity(problem: Problem, max_bytes: int) -> int:
    """Return how many Krylov vectors fit: each takes n x s x c numbers."""
    size = problem.targets.size * len(problem.train) * problem.targets.dtype.itemsize
    return int(max_bytes // max(1, size))


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
    places = krylov.layout(problem.train)
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
    return [_krylov_form(basis, problem, i, step_size) for i in count], basis.error


def run(
    closed_forms: list[Form],
    problem: Problem,
    num_steps: int,
    *,
    metric: MetricFn,
    rule: str,
    patience: Int[Array, ""],
) -> Found:
    """Evaluate the metric at every step, choose, and form the chosen predictions."""
    steps = np.arange(1, num_steps + 1)
    val, test, norms = [], [], []
    for split, form in enumerate(closed_forms):
        curves = _curves(form, problem, split, steps, metric)
        val.append(curves[0])
        test.append(curves[1])
        fed_back = problem.train[split].sum() * problem.targets.shape[1]
        norms.append(form.norms_fn(steps - 1) / np.sqrt(fed_back))
    val, test, norms = np.stack(val), np.stack(test), np.stack(norms)
    # Without validation nodes, the later the better.
    judged = problem.val.mask.any(axis=1, keepdims=True)
    score = np.where(judged, val, steps.astype(val.dtype))
    chosen = selection.over_curve(score, rule=rule, patience=patience)
    seen = num_steps
    if np.all(chosen.stopped):  # as the step by step form would have ended
        seen = int(min(num_steps, np.max(chosen.rising) + int(patience)))
    best = [
        form.predictions_fn(int(step))
        for form, step in zip(closed_forms, chosen.step, strict=True)
    ]
    convergence = None
    if closed_forms[0].convergence is not None:
        convergence = tuple(f.convergence for f in closed_forms if f.convergence)
    return Found(
        norms[:, :seen].astype(val.dtype),
        val[:, :seen],
        test[:, :seen],
        chosen,
        np.stack(best).astype(val.dtype),
        convergence,
        0.0,
    )


def _initial_residual(problem: Problem) -> Float[np.ndarray, "s n c"]:
    """Return [R_0, 0] of each split."""
    start = np.asarray(problem.targets)[None]
    if problem.initial is not None:
        start = start - np.asarray(problem.initial)
    return np.where(problem.train[:, :, None], start, 0)


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
    modes = factors.eigenvectors.T @ residual

    def coefficients(steps):
        g = exact.growth(factors.eigenvalues, step_size, steps)
        with np.errstate(over="ignore", invalid="ignore"):
            return g[:, :, None] * modes

    def predictions(step):
        with np.errstate(over="ignore", invalid="ignore"):
            moved = factors.rows @ coefficients(np.array([step]))[0]
        return _initial(problem, split) + moved

    return Form(
        lambda nodes: factors.rows[nodes].astype(dtype),
        coefficients,
        1,
        predictions,
        lambda steps: exact.residual_norms(factors, residual, steps, step_size=step_size),
        exact.convergence(factors, residual, step_size=step_size),
    )


def _krylov_form(
    basis: krylov.Basis, problem: Problem, split: int, step_size: float
) -> Form:
    train = problem.train[split]
    place = np.cumsum(~train) - 1  # of a node among the rest
    one = basis._replace(
        eigenvalues=basis.eigenvalues[split : split + 1],
        eigenvectors=basis.eigenvectors[split : split + 1],
        norms=basis.norms[split : split + 1],
    )

    def coefficients(steps):
        return krylov.coefficients(one, step_size, steps)[:, 0]

    def residual(steps):
        return krylov.residual_coefficients(one, step_size, steps)[:, 0]

    def predictions(step):
        at = np.array([step])
        out = _initial(problem, split)
        rest = np.einsum("cmr,cm->rc", basis.images[split], coefficients(at)[0])
        left = np.einsum("cml,cm->lc", basis.vectors[split], residual(at)[0])
        out[~train] += rest[: np.sum(~train)]
        out[train] = np.asarray(problem.targets)[train] - left[: train.sum()]
        return out

    return Form(
        lambda nodes: basis.images[split][:, :, place[nodes]],
        coefficients,
        2,
        predictions,
        lambda steps: np.linalg.norm(residual(steps).reshape(len(steps), -1), axis=1),
        None,
    )


def _curves(
    form: Form, problem: Problem, split: int, steps: np.ndarray, metric: MetricFn
) -> Float[np.ndarray, "2 t"]:
    parts = [_of_split(part, split) for part in (problem.val, problem.test)]
    start = [np.zeros((1, 1), problem.targets.dtype)] * 2
    if problem.initial is not None:
        start = [problem.initial[split][part.index] for part in parts]
    rows = [form.rows_fn(part.index) for part in parts]
    width = max(part.targets.size for part in parts)
    chunk = int(np.clip(_CHUNK_FLOATS // max(1, width), 1, len(steps)))
    curves = []
    for first in range(0, len(steps), chunk):
        some = steps[first : first + chunk]
        # The last chunk is filled up, so that all share one trace.
        a = form.coefficients_fn(np.r_[some, np.zeros(chunk - len(some), some.dtype)])
        a = np.moveaxis(a, 0, form.step_axis).astype(problem.targets.dtype)
        pair = _chunk_metric(rows, a, start, parts, metric=metric)
        curves.append(np.asarray(pair)[:, : len(some)])
    return np.concatenate(curves, axis=1)


def _of_split(part: Part, split: int) -> Part:
    return Part(part.index[split], part.targets[split], part.mask[split])


def _chunk_metric_impl(rows, coefficients, start, parts, *, metric):
    """Return the metric on both parts at each step, (2, t)."""
    curves = []
    for some_rows, some_start, part in zip(rows, start, parts, strict=True):
        # Products come out in the order in which they are computed: no transpose.
        by_class = some_rows.ndim == 3
        shape = "clq,clt->cqt" if by_class else "ql,ltc->qtc"
        scores = jnp.einsum(shape, some_rows, coefficients, precision="highest")

        def evaluate(at_t, by_class=by_class, some_start=some_start, part=part):
            at_t = at_t.T if by_class else at_t
            return metric(at_t + some_start, part.targets, part.mask)

        curves.append(jax.vmap(evaluate, in_axes=2 if by_class else 1)(scores))
    return jnp.stack(curves)


_chunk_metric = jax.jit(_chunk_metric_impl, static_argnames="metric")
