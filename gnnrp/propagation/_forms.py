"""The closed forms of RP, exact or Krylov: sums over modes, F_t - F_0 = Σ_x a_x(t) b_x.

The a(t) are known for every t on the host, in float64; the b are on device.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gnnrp import checkpoints
from gnnrp.propagation import _nodes, exact, krylov
from gnnrp.propagation.maps import columns
from gnnrp.propagation.problem import Part, Problem
from gnnrp.types import LinearMap

_MODE_FLOATS = 2**22  # a(t) of one span of steps


class Form(NamedTuple):
    """The closed form of one split."""

    modes_fn: Callable[[np.ndarray], np.ndarray]  # steps -> a, (t, x)
    weights: Float[np.ndarray, " x"]  # how large each mode is where it is looked at
    fields_fn: Callable[[Part], Callable]  # nodes -> ((r, x) -> sums of b, (r, q, c))
    predictions_fn: Callable[[int], np.ndarray]  # step -> F_t of all nodes, (n, c)
    norms_fn: Callable[[np.ndarray], np.ndarray]  # steps -> |R_t|
    column_fn: Callable[[int], int]  # step -> the column of the largest residual
    convergence: exact.Convergence


def span(num_modes: int) -> int:
    """Return the number of steps whose a(t) are held at once."""
    return max(1, _MODE_FLOATS // num_modes)


def krylov_capacity(problem: Problem, max_bytes: int) -> int:
    """Return how many Krylov vectors fit: each takes n x s x c numbers."""
    size = problem.targets.nbytes * len(problem.train)
    return int(max_bytes // max(1, size))


def of_krylov_space(
    similarity: LinearMap,
    problem: Problem,
    *,
    step_sizes: Sequence[float],
    num_steps: int,
    max_bytes: int,
    sent: Float[Array, "n s c"] | None,
    keeper: checkpoints.Keeper,
    callback: Callable[[int, int], None] | None,
) -> tuple[list[list[Form]], float, int]:
    """Return the form of each split, for each step size, the error and the columns.

    All step sizes share the space. It begins with S [R_0, 0], which may be known.
    """
    start = initial_residual(problem)
    if problem.is_shared:
        places = _nodes.InPlace(problem.train)
        residual = jnp.moveaxis(start, 2, 1)
    else:
        places = _places(problem)
        start = np.pad(start, [(0, 0), (0, 1), (0, 0)])
        index = np.asarray(places.train)[..., None]
        chosen = np.take_along_axis(start, index, axis=1)
        residual = jnp.asarray(np.moveaxis(chosen, 2, 1))
    basis = krylov.build(
        similarity,
        places,
        residual,
        step_sizes=step_sizes,
        num_steps=num_steps,
        max_vectors=krylov_capacity(problem, max_bytes),
        sent=sent,
        keeper=keeper,
        callback=callback,
    )
    count = range(len(problem.train))
    looks = [_looks(basis, problem, i) for i in count]
    made = [
        [_krylov_form(basis, places, problem, i, looks[i], at) for i in count]
        for at in step_sizes
    ]
    known = 0 if sent is None else basis.norms.size
    return made, basis.error, basis.eigenvalues.size - known


def _places(problem: Problem) -> _nodes.Indexed:
    """Return where nodes stand; each part in one piece, so that a slice cuts it out."""
    seen = (
        problem.train | _covered(problem, problem.val) | _covered(problem, problem.test)
    )
    others = _nodes.padded_index(~seen)
    parts: Any = (problem.val.index, problem.test.index, others)
    rest = np.concatenate(parts, axis=1)
    return _nodes.indexed(problem.train, rest)


def initial_residual(problem: Problem) -> Float[Any, "s n c"]:
    """Return [R_0, 0] of each split."""
    start = problem.targets[None]
    if problem.initial is not None:
        start = start - problem.initial
    xp: Any = jnp if problem.is_shared else np
    return xp.where(problem.train[:, :, None], start, 0)


def _covered(problem: Problem, part: Part) -> Bool[np.ndarray, "s n"]:
    out = np.zeros_like(problem.train)
    for row, index, inside in zip(out, part.index, part.mask, strict=True):
        row[index[inside]] = True
    return out


def _initial(problem: Problem, split: int) -> Float[np.ndarray, "n c"]:
    if problem.initial is None:
        return np.zeros(problem.targets.shape)
    return np.array(problem.initial[split], np.float64)


def of_eigenvectors(
    similarity: LinearMap, problem: Problem, split: int, step_sizes: Sequence[float]
) -> list[Form]:
    """Return the form of one split, for each step size."""
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
        rows = jnp.asarray(factors.rows[part.of_split(split)[0]], dtype)
        return lambda mix: _exact_fields(
            rows, (mix[:, :, None] * coefficients).astype(dtype)
        )

    def predictions(step):
        a = modes(np.array([step]))[0]
        return _initial(problem, split) + factors.rows @ (a[:, None] * coefficients)

    def column(step):
        # Relative to the mode that grew most, so that nothing overflows.
        grown = step * np.log(np.abs(1 - step_size * factors.eigenvalues))
        sizes = np.exp(grown - grown.max())[:, None] * coefficients
        return int(np.argmax(np.linalg.norm(sizes, axis=0)))

    return Form(
        modes,
        np.abs(factors.rows).max(axis=0) * np.abs(coefficients).max(axis=1),
        fields,
        predictions,
        lambda steps: exact.residual_norms(
            factors, residual, steps, step_size=step_size
        ),
        column,
        exact.convergence(factors, residual, step_size=step_size),
    )


def _looks(
    basis: krylov.Basis, problem: Problem, split: int
) -> Callable[[bool], Array]:
    """Return what gives the images on the validation or test nodes, cut out once."""

    @functools.cache
    def look(is_val: bool) -> Array:
        if problem.is_shared:
            return basis.images[split]
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
    places: _nodes.Indexed | _nodes.InPlace,
    problem: Problem,
    split: int,
    look: Callable[[bool], Array],
    step_size: float,
) -> Form:
    num_classes, num_vectors = basis.images.shape[1:3]
    one = krylov.spectrum_of(basis, split)

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
        a = modes(at)[0].reshape(num_classes, num_vectors)
        moved = _combine(basis.images, split, a.astype(basis.images.dtype))
        if isinstance(places, _nodes.InPlace):
            start = problem.initial
            return moved if start is None else start[split] + moved
        mix = residual(at)[0].astype(basis.vectors.dtype)
        left = _combine(basis.vectors, split, mix)
        return _in_order(problem, split, places.rest[split], moved, left)

    def norms_at(steps):
        # A span at a time: of all steps, the coefficients would exceed the space.
        num_steps = span(num_classes * num_vectors)
        spans = np.split(steps, range(num_steps, len(steps), num_steps))
        return np.concatenate([
            np.linalg.norm(residual(some).reshape(len(some), -1), axis=1)
            for some in spans
        ])

    norms = one.norms[0]  # of the columns: each is as accurate relative to its own
    weights = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    return Form(
        modes,
        np.repeat(weights, num_vectors),
        fields,
        predictions,
        norms_at,
        lambda step: int(
            np.argmax(np.linalg.norm(residual(np.array([step]))[0], axis=1))
        ),
        krylov.convergence(basis, split, step_size),
    )


def _in_order(
    problem: Problem,
    split: int,
    rest: Int[np.ndarray, " r"],
    moved: Float[Array, "r c"],
    left: Float[Array, "l c"],
) -> Float[np.ndarray, "n c"]:
    """Return F_t of all nodes, from F_t - F_0 of the rest and R_t of the training."""
    out, train = _initial(problem, split), problem.train[split]
    inside = rest < len(out)
    # Nodes that pad a part, or stand in two, are all the same node's value.
    out[rest[inside]] += np.asarray(moved)[inside]
    out[train] = problem.targets[train] - np.asarray(left)[: train.sum()]
    return out


@jax.jit
def _combine(array, split, mix):
    return jnp.einsum("cmr,cm->rc", array[split], mix, precision="highest")


@jax.jit
def _exact_fields(rows, mix):
    return jnp.einsum("ql,rlc->rqc", rows, mix, precision="highest")


@jax.jit
def _krylov_fields(images, mix):
    return jnp.einsum("cmq,rcm->rqc", images, mix, precision="highest")
