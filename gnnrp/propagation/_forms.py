"""The closed forms of RP, exact or Krylov: sums over modes, F_t - F_0 = Σ_x a_x(t) b_x.

The a(t) are known for every t on the host, in float64; the b are on device.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gnnrp.propagation import exact, krylov
from gnnrp.propagation.problem import Part, Problem
from gnnrp.propagation.similarity import columns
from gnnrp.types import LinearMap


class Cost(NamedTuple):
    """What closed forms cost in precision and in work."""

    error: float  # estimated, relative, of the predictions
    columns: int  # that S was applied to, one by one or together


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
def build(
    method: str,
    similarity: LinearMap,
    problem: Problem,
    *,
    step_sizes: Sequence[float],
    num_steps: int,
    max_bytes: int,
    sent: Float[Array, "n s c"] | None,
    callback: Callable[[int, int], None] | None,
) -> tuple[list[list[Form]], Cost]:
    """Return the closed form of each split, for each step size, and what it cost.

    What costs products with S, eigenvectors or a Krylov space, all step sizes share.
    The latter begins with S [R_0, 0], which may be known already.
    """
    if method == "exact":
        made = []
        for split in range(len(problem.train)):
            made.append(_exact_forms(similarity, problem, split, step_sizes))
            if callback:
                callback(split + 1, len(problem.train))
        columns_sent = int(problem.train.sum())
        return [list(forms) for forms in zip(*made, strict=True)], Cost(0, columns_sent)
    # Each part stands in one piece, so that a slice takes it out.
    seen = (
        problem.train | _covered(problem, problem.val) | _covered(problem, problem.test)
    )
    others = krylov.padded_index(~seen)
    rest = np.concatenate([problem.val.index, problem.test.index, others], axis=1)
    places = krylov.layout(problem.train, rest)
    start = np.pad(initial_residual(problem), [(0, 0), (0, 1), (0, 0)])
    index = np.asarray(places.train)[..., None]
    residual = np.moveaxis(np.take_along_axis(start, index, axis=1), 2, 1)
    basis = krylov.build(
        similarity,
        places,
        jnp.asarray(residual),
        step_sizes=step_sizes,
        num_steps=num_steps,
        max_vectors=krylov_capacity(problem, max_bytes),
        sent=sent,
        callback=callback,
    )
    count = range(len(problem.train))
    looks = [_looks(basis, problem, i) for i in count]
    made = [
        [_krylov_form(basis, places, problem, i, looks[i], at) for i in count]
        for at in step_sizes
    ]
    known = 0 if sent is None else basis.norms.size
    return made, Cost(basis.error, basis.eigenvalues.size - known)


def initial_residual(problem: Problem) -> Float[np.ndarray, "s n c"]:
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


def _exact_forms(
    similarity: LinearMap, problem: Problem, split: int, step_sizes: Sequence[float]
) -> list[Form]:
    train = np.flatnonzero(problem.train[split])
    dtype = problem.targets.dtype
    factors = exact.factorize(
        columns(similarity, train, len(problem.targets), dtype=dtype), train
    )
    return [_exact_form(factors, problem, split, train, at) for at in step_sizes]


def _exact_form(
    factors: exact.Factorization,
    problem: Problem,
    split: int,
    train: Int[np.ndarray, " l"],
    step_size: float,
) -> Form:
    dtype = problem.targets.dtype
    residual = initial_residual(problem)[split, train].astype(np.float64)
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


def _looks(
    basis: krylov.Basis, problem: Problem, split: int
) -> Callable[[bool], Array]:
    """Return what gives the images on the validation or test nodes, cut out once."""

    @functools.cache
    def look(is_val: bool) -> Array:
        width = problem.val.index.shape[1]
        part = (
            slice(width)
            if is_val
            else slice(width, width + problem.test.index.shape[1])
        )
        return basis.images[split][:, :, part]

    return look


def _krylov_form(
    basis: krylov.Basis,
    places: krylov.Layout,
    problem: Problem,
    split: int,
    look: Callable[[bool], Array],
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
        images = look(part is problem.val)
        shape = (num_classes, num_vectors)
        return lambda mix: _krylov_fields(
            images, mix.reshape(len(mix), *shape).astype(images.dtype)
        )

    def predictions(step):
        at = np.array([step])
        out = _initial(problem, split)
        a = modes(at)[0].reshape(num_classes, num_vectors)
        moved = _combined(basis.images, split, a)
        left = _combined(basis.vectors, split, residual(at)[0])
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


def _combined(array: Array, split: int, mix: np.ndarray) -> np.ndarray:
    return np.asarray(_combine(array, split, mix.astype(array.dtype)))


@jax.jit
def _combine(array, split, mix):
    return jnp.einsum("cmr,cm->rc", array[split], mix, precision="highest")


@jax.jit
def _exact_fields(rows, mix):
    return jnp.einsum("ql,rlc->rqc", rows, mix, precision="highest")


@jax.jit
def _krylov_fields(images, mix):
    return jnp.einsum("cmq,rcm->rqc", images, mix, precision="highest")
