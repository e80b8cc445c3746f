"""Every step and step size of RP from few products: a Krylov space of S_XX and R_0.

Lanczos gives an orthonormal V with V^T S_XX V = T tridiagonal. With g_t of ``exact``,
R_t ~ |R_0| V (I - η T)^t e_1,  F_t - F_0 ~ |R_0| S[rest, X] V g_t(T) e_1.
A space of m + 1 vectors gives m steps exactly. Splits and classes are columns.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gnnrp.propagation.convergence import Convergence, Definiteness
from gnnrp.propagation.linear_maps import as_pytree
from gnnrp.propagation.problem import Problem, Steps
from gnnrp.propagation.sizes import WIDE, Sizes, metric_entries, sizes_of, total_bytes
from gnnrp.propagation.solvers import _closed_forms, _lanczos, _node_positions, exact
from gnnrp.propagation.solvers._node_positions import AllNodes, Positions
from gnnrp.propagation.solvers.base import Cost, Evaluation, Solution, keeper
from gnnrp.runtime import memory, tracing
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

    Source: squared loss of Eq. 6; Lanczos with full reorthogonalization.
    """

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
        positions = _node_positions.find(problem)
        basis = build(
            similarity,
            positions,
            _initial_residual(problem, positions),
            steps,
            max_vectors=vector_capacity(sizes, memory.room(options.max_bytes)),
            options=options,
        )
        solutions = []
        for step_size in steps.step_sizes:
            curves = []
            for split in range(sizes.num_splits):
                own = _select_split(basis, split)
                form = _Form(basis, own, positions, problem, split, step_size)
                curves.append(_closed_forms.evaluate(form, steps.num_steps, evaluation))
            joined = _closed_forms.join(curves, evaluation, basis.eigenvalues.size)
            solutions.append(joined._replace(error=basis.error))
        return solutions


def peak_bytes(sizes: Sizes, num_vectors: int) -> int:
    """Return the peak memory with a Krylov space of so many vectors.

    Evaluation copies rows of the images; before that, while the space grows, two thirds
    of it are in memory twice.
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
    options: Options = Options(),
) -> Basis:
    """Extend the space until the predictions at all steps stop changing.

    The error of F_t is estimated at steps spaced evenly in log t, in the norm
    x^T |S_XX| x, as the change by the last four vectors times its ratio to the change
    before (at most 1). The tolerance is 1e-4 by default, 1e-10 in float64.

    Source: squared loss of Eq. 6; Lanczos with full reorthogonalization.
    """
    # A space of t + 1 vectors, or of all training nodes, holds every step.
    complete = min(steps.num_steps + 1, residual.shape[2])
    limit = min(max(1, max_vectors), complete, _lanczos.CAPACITIES[-1])
    if tolerance is None:
        tolerance = 1e-4 if residual.dtype == jnp.float32 else 1e-10
    norms = np.asarray(jnp.linalg.norm(residual, axis=-1), np.float64)
    scale = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    first = residual * jnp.asarray(scale, residual.dtype)[..., None]
    similarity = tracing.as_argument(as_pytree(similarity))
    if not isinstance(positions, AllNodes):
        positions = jax.device_put(positions)

    @functools.cache
    def eigen(size):  # the same in every larger space
        return _lanczos.eigen(state, size)

    @functools.cache
    def change_fn(before: int, after: int) -> float:
        return max(
            _change(eigen(before), eigen(after), norms, step_size, steps.num_steps)
            for step_size in steps.step_sizes
        )

    def estimate_error():
        oldest, middle, newest = state.sizes.tolist()
        last = change_fn(oldest, middle) if oldest else np.inf
        change = change_fn(middle, newest) if middle else np.inf
        return change * min(1.0, change / last) if last < np.inf else change

    def find_fault(_: int, state: _lanczos.Space) -> str | None:
        return _lanczos.find_fault(state, first, similarity, positions)

    init = functools.partial(_lanczos.init, first, positions.num_rest)
    with keeper(options) as saved:
        state = saved.restore(init, find_fault, _lanczos.CAPACITIES[-1]) or init(0)
        while (size := len(state.diagonal)) < limit and estimate_error() > tolerance:
            count = min(_lanczos.INTERVAL, limit - size)
            state = _lanczos.extend(state, similarity, positions, count, limit, options)
            saved.save_if_due(size + count, lambda: _lanczos.trim(state))  # noqa: B023
        saved.save(len(state.diagonal), lambda: _lanczos.trim(state))
    size = len(state.diagonal)
    error = 0.0 if size >= complete else estimate_error()
    return Basis(state.vectors, state.images, *eigen(size), norms, error)


def train_coefficients(
    similarity: LinearMap, problem: Problem, steps: Steps[float]
) -> Float[np.ndarray, "l c"]:
    """Return α_t ~ |R_0| V g_t(T) e_1 of one split, with F_t = F_0 + S[:, X] α_t."""
    positions = _node_positions.find(problem)
    sizes = sizes_of(problem, similarity, steps)
    basis = build(
        similarity,
        positions,
        _initial_residual(problem, positions),
        steps,
        max_vectors=vector_capacity(sizes, memory.room()),
    )
    a = coefficients(basis, steps.step_size, np.array([steps.num_steps]))[0, 0]
    mixed = _combine_vectors(basis.vectors, 0, a.astype(basis.vectors.dtype))
    return np.asarray(mixed)[: problem.train[0].sum()]


def _select_split(basis: Basis, split: int) -> Basis:
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
    growth = exact.growth(basis.eigenvalues, step_size, steps)
    return _scale_and_pad(basis, _apply(basis.eigenvectors, growth))


@_DIVERGING
def residual_coefficients(
    basis: Basis, step_size: float, steps: Int[np.ndarray, " t"]
) -> Float[np.ndarray, "t s c m"]:
    """Return a with R_t = vectors^T a on the training nodes; |R_t| = |a|."""
    base = 1 - step_size * basis.eigenvalues
    decay = base ** np.asarray(steps)[:, None, None, None]
    return _scale_and_pad(basis, _apply(basis.eigenvectors, decay))


def _scale_and_pad(basis: Basis, unit: np.ndarray) -> np.ndarray:
    """Multiply by |R_0|, and pad to the capacity of the arrays."""
    spare = basis.images.shape[2] - unit.shape[-1]
    return np.pad(unit * basis.norms[..., None], [(0, 0)] * 3 + [(0, spare)])


def _apply(eigenvectors: np.ndarray, function: np.ndarray) -> np.ndarray:
    """Return Q f(θ) Q^T e_1."""
    return np.einsum(
        "scij,tscj,scj->tsci", eigenvectors, function, eigenvectors[:, :, 0]
    )


def _convergence(basis: Basis, split: int, step_size: float) -> Convergence:
    """Return the convergence that the Ritz values, a part of the spectrum, imply."""
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

    def energy(x):  # x^T |T| x
        modes = np.einsum("scij,tsci->tscj", current[1], x)
        return np.sqrt(np.sum(np.abs(current[0]) * modes**2, axis=3)) * norms

    old, new = (
        _apply(Q, exact.growth(theta, step_size, steps))
        for theta, Q in (previous, current)
    )
    old = np.pad(old, [(0, 0)] * 3 + [(0, new.shape[-1] - old.shape[-1])])
    change = energy(new - old) / np.maximum(energy(new), np.finfo(float).tiny)
    return float(np.max(np.where(np.isfinite(change), change, np.inf)))


def _initial_residual(problem: Problem, positions: Positions) -> Float[Array, "s c l"]:
    """Return R_0 on the training nodes."""
    residual = problem.initial_residual
    if isinstance(positions, AllNodes):
        return jnp.moveaxis(residual, 2, 1)
    padded = np.pad(residual, [(0, 0), (0, 1), (0, 0)])
    index = np.asarray(positions.train)[..., None]
    return jnp.asarray(np.moveaxis(np.take_along_axis(padded, index, axis=1), 2, 1))


class _Form(NamedTuple):
    """The closed form of one split and step size, see ``_closed_forms.ClosedForm``."""

    basis: Basis  # of all splits
    own: Basis  # with the eigenvalues and norms of this split only
    positions: Positions
    problem: Problem
    split: int
    step_size: float

    def modes(self, steps):
        a = coefficients(self.own, self.step_size, steps)
        return a.reshape(len(steps), -1)

    def weights(self):
        norms = self.own.norms[0]  # each column is as accurate relative to its own norm
        weights = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
        return np.repeat(weights, self.basis.images.shape[2])

    def fields(self, part):
        first = 0 if part is self.problem.val else self.problem.val.mask.shape[1]
        nodes = slice(first, first + part.mask.shape[1])
        if self.problem.is_sharded:
            nodes = slice(None)
        images = self.basis.images[self.split, :, :, nodes]
        shape = (-1, *images.shape[:2])
        return lambda mix: _combine_modes(
            images, mix.reshape(shape).astype(images.dtype)
        )

    def predictions(self, step):
        problem, split, dtype = self.problem, self.split, self.basis.images.dtype
        steps = np.array([step])
        a = coefficients(self.own, self.step_size, steps)[0, 0].astype(dtype)
        change = _combine_vectors(self.basis.images, split, a)
        if isinstance(self.positions, AllNodes):
            return (
                change if problem.initial is None else problem.initial[split] + change
            )
        a = self._residual(steps)[0].astype(dtype)
        left = np.asarray(_combine_vectors(self.basis.vectors, split, a))
        out = _closed_forms.initial_predictions(problem, split)
        train, rest = problem.train[split], self.positions.rest[split]
        inside = rest < len(out)
        # A node that occurs twice, as padding or in two parts, has the same value.
        out[rest[inside]] += np.asarray(change)[inside]
        out[train] = problem.targets[train] - left[: train.sum()]
        return out

    def norms(self, steps):
        # The coefficients of all steps at once could exceed the space.
        span = _closed_forms.steps_at_once(len(self.weights()))
        chunks = np.split(steps, range(span, len(steps), span))
        flat = (self._residual(chunk).reshape(len(chunk), -1) for chunk in chunks)
        return np.concatenate([np.linalg.norm(each, axis=1) for each in flat])

    def worst_column(self, step):
        residual = self._residual(np.array([step]))[0]
        return int(np.argmax(np.linalg.norm(residual, axis=1)))

    def convergence(self):
        return _convergence(self.basis, self.split, self.step_size)

    def _residual(self, steps):
        return residual_coefficients(self.own, self.step_size, steps)[:, 0]


@jax.jit
def _combine_vectors(array, split, mix):
    return jnp.einsum("cmr,cm->rc", array[split], mix, precision="highest")


@jax.jit
def _combine_modes(images, mix):
    return jnp.einsum("cmq,rcm->rqc", images, mix, precision="highest")
