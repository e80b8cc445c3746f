"""Every step and step size of RP from few products: a Krylov space of S_XX and R_0.

Lanczos gives an orthonormal V with V^T S_XX V = T tridiagonal. With g_t of ``exact``,
R_t ~ |R_0| V (I - η T)^t e_1,  F_t - F_0 ~ |R_0| S[rest, X] V g_t(T) e_1.
A space of m + 1 vectors gives m steps exactly. Splits and classes are columns.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gnnrp.propagation.convergence import Convergence, Definiteness
from gnnrp.propagation.linear_maps import as_pytree
from gnnrp.propagation.problem import Part, Problem, Steps
from gnnrp.propagation.sizes import (
    WIDE,
    Sizes,
    metric_entries,
    sizes_of,
    total_bytes,
)
from gnnrp.propagation.solvers import _closed_forms, _lanczos, _node_positions, exact
from gnnrp.propagation.solvers._closed_forms import ClosedForm
from gnnrp.propagation.solvers._node_positions import InPlace, Positions
from gnnrp.propagation.solvers.base import Cost, Evaluation, Solution, keeper
from gnnrp.runtime import checks, memory, tracing
from gnnrp.runtime.options import Options
from gnnrp.types import LinearMap

NUM_VECTORS = 48  # typical size of a space; real graphs took 20 to 64
MAX_BYTES = 2**31  # of the vectors

# A diverging run ends in infinity and NaN, which the report explains.
_DIVERGING = np.errstate(over="ignore", invalid="ignore")


@dataclasses.dataclass(frozen=True)
class Krylov:
    """Solve all splits and step sizes in one Krylov space.

    It needs the squared loss, no NaN among the training targets and a symmetric S. It
    is practical if its vectors fit 2 GiB.

    Args:
        first_product_fn: returns S [R_0, 0], (n, s, c), if that costs less than a
            product with S.

    Source: squared loss of Eq. 6; Lanczos with full reorthogonalization.
    """

    first_product_fn: Callable[[], Array] | None = dataclasses.field(
        default=None, compare=False
    )

    def unsupported(self, problem: Problem, similarity: LinearMap) -> str | None:
        """Return the reason why the solver does not support the problem, or None."""
        return _closed_forms.unsupported(problem, similarity)

    def cost(self, sizes: Sizes) -> Cost:
        """Return the cost of a space of the typical size."""
        num_vectors = min(sizes.num_steps + 1, sizes.num_train, NUM_VECTORS)
        capacity = MAX_BYTES // _vector_bytes(sizes)
        return Cost(
            num_vectors * sizes.num_splits * sizes.num_classes,
            peak_bytes(sizes, max(1, min(num_vectors, capacity))),
            num_vectors <= capacity,
        )

    def solve(
        self,
        problem: Problem,
        similarity: LinearMap,
        steps: Steps,
        evaluation: Evaluation,
        options: Options,
    ) -> list[Solution]:
        """Return a solution for each step size."""
        sizes = sizes_of(problem, similarity, steps)
        room = memory.room(options.max_bytes)
        first_product = self._first_product(problem)
        positions = _positions_of(problem)
        basis = build(
            similarity,
            positions,
            _initial_residual(problem, positions),
            steps,
            max_vectors=vector_capacity(sizes, room),
            first_product=first_product,
            options=options,
        )
        num_known = 0 if first_product is None else basis.norms.size
        num_columns = basis.eigenvalues.size - num_known
        splits = range(sizes.num_splits)
        images_fns = [_evaluated_images(basis, problem, split) for split in splits]
        solutions = []
        for step_size in steps.step_sizes:
            curves = []
            for split, images_fn in enumerate(images_fns):
                form = _form(basis, positions, problem, split, images_fn, step_size)
                curves.append(
                    _closed_forms.evaluate(
                        form, problem, split, steps.num_steps, evaluation
                    )
                )
            solutions.append(
                _closed_forms.join(
                    curves,
                    steps.num_steps,
                    evaluation,
                    num_columns=num_columns,
                    error=basis.error,
                )
            )
        return solutions

    def _first_product(self, problem: Problem) -> Array | None:
        """Return S [R_0, 0], or None without ``first_product_fn``.

        Raises:
            ValueError: it has another shape, or is not finite.
        """
        if self.first_product_fn is None:
            return None
        product = jnp.asarray(self.first_product_fn(), problem.targets.dtype)
        num_nodes, num_classes = problem.targets.shape
        shape = (num_nodes, len(problem.train), num_classes)
        checks.shape("first_product_fn()", product, shape)
        if not np.isfinite(product).all():
            msg = "first_product_fn() must be finite"
            raise ValueError(msg)
        return product


def peak_bytes(sizes: Sizes, num_vectors: int) -> int:
    """Return the peak memory with a Krylov space of so many vectors.

    Evaluation copies the rows of one split, and of the evaluated nodes of all splits;
    before that, while the space grows, two thirds of it are in memory twice.
    """
    n, s, c = sizes.num_nodes, sizes.num_splits, sizes.num_classes
    width = c * num_vectors * sizes.itemsize  # of a node and a split
    basis = s * n * width
    rows = (n - sizes.num_train) * width + s * sizes.num_evaluated * width
    growing = 2 * basis // 3 if num_vectors > 32 else 0
    # The allocator retains one span of steps after it is freed.
    arrays = 6.5 if sizes.itemsize < WIDE else 9
    modes = _closed_forms.mode_bytes(sizes.num_steps, c * num_vectors, arrays, 0)
    products = (3 + sizes.num_step_sizes) * s * n * c * sizes.itemsize
    scores = metric_entries(sizes, s * c) * sizes.itemsize
    peak = basis + max(growing, rows + modes) + products + scores
    return total_bytes(sizes, peak)


def vector_capacity(sizes: Sizes, room: memory.Room) -> int:
    """Return the number of vectors that fit in the free memory and in 2 GiB."""
    one, two = (peak_bytes(sizes, number) for number in (64, 128))
    capacity = 64 + (room.left - one) * 64 // max(1, two - one)  # almost linear
    return min(MAX_BYTES // _vector_bytes(sizes), max(1, capacity))


def _vector_bytes(sizes: Sizes) -> int:
    """Return the bytes of one vector of all splits on all processes, at least 1."""
    entries = sizes.num_all_nodes * sizes.num_classes * sizes.num_splits
    return max(1, entries * sizes.itemsize)


class Basis(NamedTuple):
    """A Krylov space, per split and column."""

    vectors: Float[Array, "s c m l"]  # V on the training nodes; zero beyond the last
    images: Float[Array, "s c m r"]  # S[rest, X] V
    eigenvalues: Float[np.ndarray, "s c j"]  # of T, j <= m
    eigenvectors: Float[np.ndarray, "s c j j"]
    norms: Float[np.ndarray, "s c"]  # |R_0|
    error: float  # estimated, relative, of the predictions at the last steps


@_DIVERGING
def build(
    similarity: LinearMap,
    positions: Positions,
    residual: Float[Array, "s c l"],
    steps: Steps,
    *,
    tolerance: float | None = None,
    max_vectors: int = _lanczos.CAPACITIES[-1],
    first_product: Float[Array, "n s c"] | None = None,
    options: Options = Options(),
) -> Basis:
    """Extend the space until the predictions at all steps stop changing.

    The error of F_t is estimated at steps spaced evenly in log t, in the norm
    x^T |S_XX| x, as the change by the last four vectors times its ratio to the change
    before (at most 1). The tolerance is 1e-4 by default, 1e-10 in float64.

    Source: squared loss of Eq. 6; Lanczos with full reorthogonalization.
    """
    # No space is larger than the training nodes, even if a diverging error never ends.
    limit = min(max(1, max_vectors), residual.shape[2], _lanczos.CAPACITIES[-1])
    limit = min(steps.num_steps + 1, limit)
    if tolerance is None:
        tolerance = 1e-4 if residual.dtype == jnp.float32 else 1e-10
    norms = np.asarray(jnp.linalg.norm(residual, axis=-1), np.float64)
    scale = jnp.asarray(np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0))
    scale = scale.astype(residual.dtype)
    first_image = None if first_product is None else first_product * scale
    similarity = tracing.as_argument(as_pytree(similarity))
    if not isinstance(positions, InPlace):
        positions = jax.device_put(positions)
    init = functools.partial(
        _lanczos.init, residual * scale[..., None], positions.num_rest
    )
    start = init(0)
    estimate_fn = _ErrorEstimate(norms, steps)

    def find_fault(_: int, state: _lanczos.Space) -> str | None:
        return _lanczos.find_fault(state, start.vector, similarity, positions)

    with keeper(options) as saved:
        state = saved.restore(init, find_fault, _lanczos.CAPACITIES[-1]) or start
        while (size := len(state.diagonal)) < limit and estimate_fn(state) > tolerance:
            count = min(_lanczos.INTERVAL, limit - size)
            state = _lanczos.extend(
                state, similarity, positions, count, limit, first_image, options
            )
            saved.save_if_due(size + count, lambda: _lanczos.trim(state))  # noqa: B023
        saved.save(len(state.diagonal), lambda: _lanczos.trim(state))
    # A space of t + 1 vectors, or of all training nodes, holds every step.
    is_complete = len(state.diagonal) >= min(steps.num_steps + 1, residual.shape[2])
    error = 0.0 if is_complete else estimate_fn(state)
    eigen = estimate_fn.eigen(state, len(state.diagonal))
    return Basis(state.vectors, state.images, *eigen, norms, error)


class _ErrorEstimate:
    """The error of the predictions, from the changes by the last two extensions."""

    def __init__(self, norms: Float[np.ndarray, "s c"], steps: Steps) -> None:
        self._norms, self._steps = norms, steps
        self._eigen: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._changes: dict[tuple[int, int], float] = {}

    def __call__(self, state: _lanczos.Space) -> float:
        """Return the relative error, infinite before the second extension."""
        oldest, middle, newest = state.sizes.tolist()
        last = self._change(state, oldest, middle)
        change = self._change(state, middle, newest)
        return change * (min(1.0, change / last) if last < np.inf else 1)

    def eigen(
        self, state: _lanczos.Space, size: int
    ) -> tuple[Float[np.ndarray, "s c j"], Float[np.ndarray, "s c j j"]]:
        """Return the eigenvalues and eigenvectors of T of the first vectors."""
        if size not in self._eigen:
            diagonal, off_diagonal = (
                np.moveaxis(each[:size], 0, -1)
                for each in (state.diagonal, state.off_diagonal)
            )
            T = np.zeros((*diagonal.shape, size))
            i = np.arange(size)
            T[..., i, i] = diagonal
            T[..., i[1:], i[:-1]] = T[..., i[:-1], i[1:]] = off_diagonal[..., :-1]
            values, vectors = np.linalg.eigh(T)
            self._eigen[size] = values, vectors
        return self._eigen[size]

    def _change(self, state: _lanczos.Space, before: int, after: int) -> float:
        """Return the largest change of ``_change`` over the step sizes."""
        if before == 0:
            return np.inf
        if (before, after) not in self._changes:
            pair = self.eigen(state, before), self.eigen(state, after)
            self._changes[before, after] = max(
                _change(*pair, self._norms, step_size, self._steps.num_steps)
                for step_size in self._steps.step_sizes
            )
        return self._changes[before, after]


def select_split(basis: Basis, split: int) -> Basis:
    """Return the space with the eigenvalues and norms of one split only."""
    here = slice(split, split + 1)
    return basis._replace(
        eigenvalues=basis.eigenvalues[here],
        eigenvectors=basis.eigenvectors[here],
        norms=basis.norms[here],
    )


@_DIVERGING
def coefficients(
    basis: Basis, step_size: float, steps: Int[np.ndarray, " t"]
) -> Float[np.ndarray, "t s c m"]:
    """Return a with F_t - F_0 = images^T a on the rest, for each step."""
    g = exact.growth(basis.eigenvalues.ravel(), step_size, steps)
    g = g.reshape(-1, *basis.eigenvalues.shape)
    return _scale_and_pad(basis, _in_basis(basis.eigenvectors, g))


@_DIVERGING
def residual_coefficients(
    basis: Basis, step_size: float, steps: Int[np.ndarray, " t"]
) -> Float[np.ndarray, "t s c m"]:
    """Return a with R_t = vectors^T a on the training nodes; |R_t| = |a|."""
    base = 1 - step_size * basis.eigenvalues
    decay = base ** np.asarray(steps)[:, None, None, None]
    return _scale_and_pad(basis, _in_basis(basis.eigenvectors, decay))


def _scale_and_pad(basis: Basis, unit: np.ndarray) -> np.ndarray:
    """Multiply by |R_0|, and pad to the capacity of the arrays."""
    spare = basis.images.shape[2] - unit.shape[-1]
    scaled = unit * basis.norms[None, ..., None]
    return np.pad(scaled, [(0, 0), (0, 0), (0, 0), (0, spare)])


def convergence(basis: Basis, split: int, step_size: float) -> Convergence:
    """Return the convergence that the Ritz values, a part of the spectrum, imply.

    Args:
        basis: the space.
        split: index of the split.
        step_size: η.
    """
    theta = basis.eigenvalues[split]
    smallest, largest = float(theta.min()), float(theta.max())
    tiny = theta.shape[-1] * float(jnp.finfo(basis.images.dtype).eps) * abs(largest)
    safe = 2 / largest if largest > 0 else np.inf
    is_negative = smallest < -tiny
    definiteness = Definiteness.INDEFINITE if is_negative else Definiteness.UNKNOWN
    return Convergence(
        definiteness,
        smallest,
        largest,
        safe,
        step_size,
        has_large_mode=step_size >= safe,
        has_negative_mode=is_negative,
        drifts=False,
    )


def _in_basis(eigenvectors: np.ndarray, function: np.ndarray) -> np.ndarray:
    """Return Q f(θ) Q^T e_1."""
    return np.einsum(
        "scij,tscj,scj->tsci", eigenvectors, function, eigenvectors[:, :, 0]
    )


def _change(
    previous: tuple[np.ndarray, np.ndarray],
    current: tuple[np.ndarray, np.ndarray],
    norms: np.ndarray,
    step_size: float,
    num_steps: int,
) -> float:
    """Return the largest relative change of F_t caused by the last vectors.

    The maximum is over columns and steps. The change is measured in the norm of
    |S_XX|, and each column relative to itself, so that a column of small targets is as
    accurate as the others. For a PSD S the other nodes follow:
    |S[rest, X] x|^2 <= λ_max(S) x^T S_XX x.
    """
    steps = np.unique(np.geomspace(1, num_steps, 24).astype(np.int64))
    theta, Q = current

    def energy(x):  # x^T |T| x
        modes = np.einsum("scij,tsci->tscj", Q, x)
        return np.sqrt(np.sum(np.abs(theta) * modes**2, axis=3)) * norms

    new = _in_basis(
        Q, exact.growth(theta.ravel(), step_size, steps).reshape(-1, *theta.shape)
    )
    g = exact.growth(previous[0].ravel(), step_size, steps)
    old = _in_basis(previous[1], g.reshape(-1, *previous[0].shape))
    old = np.pad(old, [(0, 0)] * 3 + [(0, new.shape[-1] - old.shape[-1])])
    change = energy(new - old) / np.maximum(energy(new), np.finfo(float).tiny)
    return float(np.max(np.where(np.isfinite(change), change, np.inf)))


def _positions_of(problem: Problem) -> Positions:
    """Return the node positions, of which each part is a contiguous slice."""
    if problem.is_sharded:
        return InPlace(problem.train)
    covered = (
        problem.train | _cover(problem, problem.val) | _cover(problem, problem.test)
    )
    others = _node_positions.padded_index(~covered)
    parts: Any = (problem.val.index, problem.test.index, others)
    return _node_positions.index_nodes(problem.train, np.concatenate(parts, axis=1))


def _cover(problem: Problem, part: Part) -> np.ndarray:
    """Return a mask (s, n) of the nodes of a part."""
    mask = np.zeros_like(problem.train)
    for row, index, inside in zip(mask, part.index, part.mask, strict=True):
        row[index[inside]] = True
    return mask


def _initial_residual(problem: Problem, positions: Positions) -> Float[Array, "s c l"]:
    """Return R_0 on the training nodes."""
    residual = problem.initial_residual
    if isinstance(positions, InPlace):
        return jnp.moveaxis(residual, 2, 1)
    padded = np.pad(residual, [(0, 0), (0, 1), (0, 0)])
    index = np.asarray(positions.train)[..., None]
    return jnp.asarray(np.moveaxis(np.take_along_axis(padded, index, axis=1), 2, 1))


def _evaluated_images(
    basis: Basis, problem: Problem, split: int
) -> Callable[[bool], Array]:
    """Return a function that slices the images on validation or test nodes, once."""

    @functools.cache
    def images_fn(is_val: bool) -> Float[Array, "c m q"]:
        images = basis.images[split]
        if problem.is_sharded:
            return images
        num_val = problem.val.index.shape[1]
        num_test = problem.test.index.shape[1]
        return images[
            :, :, slice(num_val) if is_val else slice(num_val, num_val + num_test)
        ]

    return images_fn


def _form(
    basis: Basis,
    positions: Positions,
    problem: Problem,
    split: int,
    images_fn: Callable[[bool], Array],
    step_size: float,
) -> ClosedForm:
    """Return the closed form of one split and step size."""
    num_classes, num_vectors = basis.images.shape[1:3]
    one = select_split(basis, split)

    def modes(steps):
        return coefficients(one, step_size, steps)[:, 0].reshape(len(steps), -1)

    def residual(steps):
        return residual_coefficients(one, step_size, steps)[:, 0]

    def fields(part):
        images = images_fn(part is problem.val)
        shape = (num_classes, num_vectors)
        return lambda mix: _combine_modes(
            images, mix.reshape(len(mix), *shape).astype(images.dtype)
        )

    def predictions(step):
        steps = np.array([step])
        a = modes(steps)[0].reshape(num_classes, num_vectors)
        change = _combine_vectors(basis.images, split, a.astype(basis.images.dtype))
        if isinstance(positions, InPlace):
            start = problem.initial
            return change if start is None else start[split] + change
        a = residual(steps)[0].astype(basis.vectors.dtype)
        left = _combine_vectors(basis.vectors, split, a)
        return _in_node_order(problem, split, positions.rest[split], change, left)

    def norms_at(steps):
        # The coefficients of all steps at once could exceed the space.
        span = _closed_forms.steps_at_once(num_classes * num_vectors)
        chunks = np.split(steps, range(span, len(steps), span))
        return np.concatenate([
            np.linalg.norm(residual(chunk).reshape(len(chunk), -1), axis=1)
            for chunk in chunks
        ])

    norms = one.norms[0]  # each column is as accurate relative to its own norm
    weights = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    return ClosedForm(
        modes,
        np.repeat(weights, num_vectors),
        fields,
        predictions,
        norms_at,
        lambda step: int(
            np.argmax(np.linalg.norm(residual(np.array([step]))[0], axis=1))
        ),
        convergence(basis, split, step_size),
    )


def _in_node_order(
    problem: Problem,
    split: int,
    rest: Int[np.ndarray, " r"],
    change: Float[Array, "r c"],
    left: Float[Array, "l c"],
) -> Float[np.ndarray, "n c"]:
    """Return F_t of all nodes, from F_t - F_0 on the rest and R_t on the training."""
    out = _closed_forms.initial_predictions(problem, split)
    train = problem.train[split]
    inside = rest < len(out)
    # A node that occurs twice, as padding or in two parts, has the same value.
    out[rest[inside]] += np.asarray(change)[inside]
    out[train] = problem.targets[train] - np.asarray(left)[: train.sum()]
    return out


@jax.jit
def _combine_vectors(array, split, mix):
    return jnp.einsum("cmr,cm->rc", array[split], mix, precision="highest")


@jax.jit
def _combine_modes(images, mix):
    return jnp.einsum("cmq,rcm->rqc", images, mix, precision="highest")
