"""Any step of RP, and its limit, from the eigenvectors of S_XX.

S_XX = Q diag(λ) Q^T, R_0 = Y - F_0, squared loss; float64 on the host:
F_t = F_0 + S[:, X] Q diag(g_t) Q^T R_0, g_t = (1 - (1 - η λ)^t) / λ, g_t(0) = η t.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Float, Int, Shaped

from gnnrp.propagation import linear_maps
from gnnrp.propagation.convergence import Convergence, Definiteness
from gnnrp.propagation.problem import Problem, Steps
from gnnrp.propagation.sizes import WIDE, Sizes, metric_entries, total_bytes
from gnnrp.propagation.solvers import _closed_forms, _restart_checks
from gnnrp.propagation.solvers._closed_forms import ClosedForm, Curve
from gnnrp.propagation.solvers.base import STAGE, Cost, Evaluation, Solution, keeper
from gnnrp.runtime import arrays, checks, tracing
from gnnrp.runtime.options import Options
from gnnrp.types import LinearMap

MAX_TRAIN = 2_000  # training nodes of a practical run: 64 MB, two seconds of ``eigh``


@dataclasses.dataclass(frozen=True)
class Exact:
    """Solve by the eigenvectors of S_XX, one split after the other.

    It needs the squared loss, no NaN among the training targets and a symmetric S. It
    multiplies S by one column for each training node, whatever the number of steps and
    step sizes, and is practical for up to 2,000 training nodes a split.

    Source: Theorem 3.2 and its proof (App. B.2).
    """

    def unsupported(self, problem: Problem, similarity: LinearMap) -> str | None:
        """Return the reason why the solver does not support the problem, or None."""
        if problem.is_sharded:
            return "devices share the rows, and eigenvectors of S_XX need one machine"
        return _closed_forms.unsupported(problem, similarity)

    def cost(self, sizes: Sizes) -> Cost:
        """Return the cost, with the factorization of one split at a time."""
        n, num_train, itemsize = sizes.num_nodes, sizes.num_train, sizes.itemsize
        square, tall = WIDE * num_train**2, WIDE * n * num_train
        columns = n * num_train * itemsize
        factorizing = max(
            columns + 2 * min(columns, linear_maps.BLOCK_BYTES),  # by unit vectors
            columns + 5 * square,  # eigenvectors of S_XX
            columns + 2 * tall + 2 * square,  # S[:, X] Q, of S in float64
        )
        rows = sizes.num_evaluated * num_train * (WIDE + itemsize)
        modes = _closed_forms.mode_bytes(sizes.num_steps, num_train, 5, 0.6)
        width = sizes.num_splits * sizes.num_classes
        predictions = (2 * WIDE + sizes.num_step_sizes * itemsize) * n * width
        scores = metric_entries(sizes, width) * itemsize
        peak = max(factorizing, square + tall + rows + modes) + predictions + scores
        peak = total_bytes(sizes, peak)
        return Cost(sizes.num_train_total, peak, num_train <= MAX_TRAIN)

    def solve(
        self,
        problem: Problem,
        similarity: LinearMap,
        steps: Steps,
        evaluation: Evaluation,
        options: Options,
    ) -> list[Solution]:
        """Return a solution for each step size."""
        num_splits, num_steps = len(problem.train), steps.num_steps
        similarity = tracing.as_argument(similarity)

        def like(done: int) -> list[list[Curve]]:
            empty = _closed_forms.empty_curve(problem, num_steps)
            return [[empty for _ in steps.step_sizes] for _ in range(done)]

        def find_fault(_: int, curves: list[list[Curve]]) -> str | None:
            return _restart_checks.find_exact_fault(curves, problem, evaluation)

        with keeper(options) as saved:
            curves = saved.restore(like, find_fault, num_splits) or []
            for split in range(len(curves), num_splits):
                curves.append([
                    _closed_forms.evaluate(form, num_steps, evaluation)
                    for form in _forms(similarity, problem, split, steps)
                ])
                options.report(STAGE, split + 1, num_splits)
                saved.save_if_due(split + 1, lambda: curves)
            saved.save(num_splits, lambda: curves)
        num_columns = int(problem.train.sum())
        return [
            _closed_forms.join(each, evaluation, num_columns)
            for each in zip(*curves, strict=True)
        ]


class Factorization(NamedTuple):
    """Spectral decomposition of S_XX, in float64."""

    eigenvalues: Float[np.ndarray, " l"]  # λ of S_XX, ascending
    eigenvectors: Float[np.ndarray, "l l"]  # Q
    rows: Float[np.ndarray, "m l"]  # S[nodes, X] Q
    noise: float  # eigenvalues up to this size may be round-off of S


def factorize(
    columns: Float[np.ndarray, "m l"],
    train_position: Int[np.ndarray, " l"],
    *,
    psd: bool = False,
) -> Factorization:
    """Factorize S_XX, once for all steps and step sizes.

    Args:
        columns: S[nodes, X], the training nodes among the rows.
        train_position: which rows are X, in the order of the columns.
        psd: S is positive semi-definite, so that negative eigenvalues are
            round-off and become 0.

    Raises:
        ValueError: S_XX is empty, not symmetric or not finite; not a row for each
            column.
        TypeError: columns that are not real.

    Source: Theorem 3.2 and its proof (App. B.2).
    """
    columns = checks.reals("columns", columns)
    if columns.ndim != 2:
        msg = f"columns must be a matrix S[nodes, X], got shape {columns.shape}"
        raise ValueError(msg)
    if columns.dtype.kind != "f":
        columns = columns.astype(np.float64)
    train_position = checks.node_ids("train_position", train_position, len(columns))
    checks.shape("train_position", train_position, columns.shape[1:])
    if columns.shape[1] == 0:
        msg = "S_XX is empty: there must be at least one training node"
        raise ValueError(msg)
    noise = float(np.finfo(columns.dtype).eps)
    S_XX = columns[train_position].astype(np.float64)
    if not np.isfinite(S_XX).all():
        msg = "the similarity has entries that are not finite"
        raise ValueError(msg)
    if (pair := arrays.asymmetric_pair(S_XX, noise)) is not None:
        here, there = float(S_XX[pair]), float(S_XX[pair[::-1]])
        msg = (
            f"exact trajectories need a symmetric similarity; entry {pair} of S_XX, "
            f"{here:.4g}, differs from its transpose by {abs(here - there):.3g}; "
            'use the solver "iterate", which needs no symmetry'
        )
        raise ValueError(msg)
    S_XX = (S_XX + S_XX.T) / 2
    try:
        eigenvalues, eigenvectors = scipy.linalg.eigh(S_XX)
    except scipy.linalg.LinAlgError:
        # The usual algorithm has failed on a spectrum with tight clusters; this one
        # takes another l x l array.
        eigenvalues, eigenvectors = scipy.linalg.eigh(S_XX, driver="evd")
    if psd:
        eigenvalues = np.maximum(eigenvalues, 0)
    rows = columns.astype(np.float64) @ eigenvectors
    noise *= len(eigenvalues) * float(np.abs(eigenvalues).max(initial=0))
    return Factorization(eigenvalues, eigenvectors, rows, noise)


def growth(
    eigenvalues: Float[np.ndarray, "..."],
    step_size: float,
    steps: Shaped[np.ndarray, " t"],
    *,
    flow: bool = False,
) -> Float[np.ndarray, "t ..."]:
    """Return g_t(λ) = (1 - (1 - η λ)^t) / λ without cancellation; g_t(0) = η t.

    λ < 0 grows like (1 + η |λ|)^t, up to infinity. ``flow`` gives that of the gradient
    flow, (1 - exp(-η λ t)) / λ, also at steps t that are no integers.

    Source: paper's proof of Theorem 3.2; the stable forms are ours.
    """
    z = step_size * np.asarray(eigenvalues, np.float64)
    t = np.asarray(steps, np.float64).reshape(-1, *[1] * z.ndim)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if flow:
            h = -np.expm1(-z * t)
        else:
            log_decay = np.where(z < 1, np.log1p(-z), np.log(np.abs(z - 1)))
            exponent = np.where(t == 0, 0.0, t * log_decay)  # guards 0 * inf at z = 1
            is_odd = (z > 1) & (t % 2 == 1)
            h = np.where(is_odd, 1 + np.exp(exponent), -np.expm1(exponent))
        return np.where(z == 0, step_size * t, step_size * h / z)


def trajectory(
    factorization: Factorization,
    initial_residual: Float[np.ndarray, "l c"],
    steps: Shaped[np.ndarray, " t"],
    *,
    step_size: float,
    flow: bool = False,
) -> Float[np.ndarray, "t m c"]:
    """Return F_t - F_0 on the nodes of the factorization, for all steps at once.

    Args:
        factorization: of S.
        initial_residual: R_0 = Y - F_0 on the training nodes.
        steps: t, in any order.
        step_size: η > 0.
        flow: gradient flow (real t) instead of discrete steps.

    Raises:
        ValueError: a step size that is not positive, steps that are negative or not
            whole, or not a residual for each training node.
        TypeError: no factorization.
    """
    checks.positive("step_size", step_size)
    steps = _validate_steps(steps, whole=not flow)
    coefficients = _coefficients(factorization, initial_residual)
    g = growth(factorization.eigenvalues, step_size, steps, flow=flow)
    with np.errstate(invalid="ignore", over="ignore"):
        changes = [factorization.rows @ (g_t[:, None] * coefficients) for g_t in g]
    shape = len(g), len(factorization.rows), coefficients.shape[1]
    return np.reshape(changes, shape)


def coefficients(
    factorization: Factorization,
    initial_residual: Float[np.ndarray, "l c"],
    *,
    step_size: float,
    num_steps: int,
) -> Float[np.ndarray, "l c"]:
    """Return α_t = Q diag(g_t) Q^T R_0, with F_t = F_0 + S[:, X] α_t.

    Args:
        factorization: of S.
        initial_residual: R_0 = Y - F_0 on the training nodes.
        step_size: η > 0.
        num_steps: t.

    Raises:
        ValueError: a step size that is not positive, a negative number of steps, or not
            a residual for each training node.

    Source: Theorem 3.2 and its proof (App. B.2); the sum of η R_s in closed form.
    """
    checks.positive("step_size", step_size)
    steps = np.array([checks.count("num_steps", num_steps, 0)])
    modes = _coefficients(factorization, initial_residual)
    g = growth(factorization.eigenvalues, step_size, steps)[0]
    with np.errstate(invalid="ignore", over="ignore"):
        return factorization.eigenvectors @ (g[:, None] * modes)


def residual_norms(
    factorization: Factorization,
    initial_residual: Float[np.ndarray, "l c"],
    steps: Shaped[np.ndarray, " t"],
    *,
    step_size: float,
) -> Float[np.ndarray, " t"]:
    """Return |R_t|, the Frobenius norm over the training nodes, for all steps."""
    checks.positive("step_size", step_size)
    steps = _validate_steps(steps, whole=True)
    coefficients = _coefficients(factorization, initial_residual)
    energy = np.sum(coefficients**2, axis=1)
    decay = np.abs(1 - step_size * factorization.eigenvalues)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sqrt(decay ** (2.0 * steps[:, None]) @ energy)


def limit(
    factorization: Factorization,
    initial_residual: Float[np.ndarray, "l c"],
    *,
    ridge: float = 0.0,
) -> Float[np.ndarray, "m c"]:
    """Return S[nodes, X] (S_XX + μ I)^-1 R_0, the limit of F_t - F_0 if μ = 0.

    If μ = 0, eigenvalues within round-off of 0 count as 0 (the pseudo-inverse).
    ``convergence`` reports whether the limit is reached.

    Source: Theorem 3.2, Table 2 (App. B.2).
    """
    coefficients = _coefficients(factorization, initial_residual)
    return factorization.rows @ (inverse(factorization, ridge)[:, None] * coefficients)


def inverse(factorization: Factorization, ridge: float) -> Float[np.ndarray, " l"]:
    """Return 1 / (λ + μ), or for μ = 0 the pseudo-inverse, up to round-off of S."""
    checks.at_least("ridge", ridge, 0)
    values = factorization.eigenvalues + ridge
    if ridge > 0:
        if not values[0] > 0:
            msg = (
                f"ridge must exceed {-factorization.eigenvalues[0]:.4g}, got {ridge}; "
                "of a PSD matrix that is round-off: factorize(..., psd=True)"
            )
            raise ValueError(msg)
        return 1 / values
    nonzero = np.abs(values) > factorization.noise
    return np.divide(1.0, values, out=np.zeros_like(values), where=nonzero)


def convergence(
    factorization: Factorization,
    initial_residual: Float[np.ndarray, "l c"],
    *,
    step_size: float,
) -> Convergence:
    """Return the row of the paper's convergence table that holds for this S, Y and η.

    A negative or too large η λ matters only if R_0 has a component along its mode, a
    zero λ only if S carries that component to other nodes, which drift by η t S P R_0.

    Source: Table 2 (App. B.2), Theorem 3.2.
    """
    checks.positive("step_size", step_size)
    coefficients = _coefficients(factorization, initial_residual)
    values, noise = factorization.eigenvalues, factorization.noise
    smallest, largest = float(values[0]), float(values[-1])
    norms = np.linalg.norm(coefficients, axis=0)  # of each column: scales may differ
    present = (np.abs(coefficients) > 1e-6 * norms).any(axis=1)
    safe = 2 / largest if largest > noise else np.inf
    negative, zero = values < -noise, np.abs(values) <= noise
    drift = np.abs(factorization.rows[:, zero] @ coefficients[zero])
    # A null vector q of S_XX has S[m, X] q = 0 for a PSD S; round-off leaves at most
    # sqrt(noise S_mm) of it, since 2 x 2 minors of a PSD matrix are not negative.
    largest_row = float(np.abs(factorization.rows).max(initial=0))
    floor = 1e-6 * largest_row + 10 * np.sqrt(noise * largest_row)
    definiteness = Definiteness.POSITIVE_DEFINITE
    if negative.any():
        definiteness = Definiteness.INDEFINITE
    elif zero.any():
        definiteness = Definiteness.POSITIVE_SEMIDEFINITE
    return Convergence(
        definiteness,
        smallest,
        largest,
        safe,
        step_size,
        has_large_mode=bool((present & (step_size * values >= 2)).any()),
        has_negative_mode=bool((present & negative).any()),
        drifts=bool((drift > norms * floor).any()),
    )


def _coefficients(
    factorization: Factorization, initial_residual: Any
) -> Float[np.ndarray, "l c"]:
    """Return Q^T R_0."""
    remedy = "exact.factorize makes one"
    checks.instance("factorization", factorization, Factorization, remedy)
    residual = checks.reals("initial_residual", initial_residual)
    num_train = len(factorization.eigenvalues)
    if residual.ndim != 2 or len(residual) != num_train:
        msg = (
            f"initial_residual must have shape ({num_train}, c), a row for each "
            f"training node, got {residual.shape}"
        )
        raise ValueError(msg)
    return factorization.eigenvectors.T @ residual


def _validate_steps(steps: Any, *, whole: bool) -> Shaped[np.ndarray, " t"]:
    """Return the steps as an array."""
    steps = checks.reals("steps", steps)
    if steps.ndim != 1:
        msg = f"steps must be a list of them, got shape {steps.shape}"
        raise ValueError(msg)
    checks.at_least("steps", np.min(steps, initial=0), 0)
    broken = steps % 1 != 0
    if whole and broken.any():
        msg = f"steps must be whole numbers, got {steps[broken][0]}"
        raise ValueError(msg)
    return steps


def _forms(
    similarity: LinearMap, problem: Problem, split: int, steps: Steps
) -> list[ClosedForm]:
    """Return the closed form of one split, for each step size."""
    train = np.flatnonzero(problem.train[split])
    num_nodes, dtype = len(problem.targets), problem.targets.dtype
    columns = linear_maps.columns(similarity, train, num_nodes, dtype=dtype)
    factors = factorize(columns, train)
    residual = problem.initial_residual[split, train].astype(np.float64)
    coefficients = factors.eigenvectors.T @ residual
    return [
        _Form(factors, problem, split, residual, coefficients, step_size)
        for step_size in steps.step_sizes
    ]


class _Form(NamedTuple):
    """The closed form of one split and step size, see ``_closed_forms.ClosedForm``."""

    factors: Factorization
    problem: Problem
    split: int
    residual: Float[np.ndarray, "l c"]  # R_0
    coefficients: Float[np.ndarray, "l c"]  # Q^T R_0
    step_size: float

    def modes(self, steps):
        return growth(self.factors.eigenvalues, self.step_size, steps)

    def weights(self):
        largest = np.abs(self.coefficients).max(axis=1)
        return np.abs(self.factors.rows).max(axis=0) * largest

    def fields(self, part):
        dtype = self.problem.targets.dtype
        rows = self.factors.rows[part.split_inputs(self.split)[0]]
        rows = jnp.asarray(rows, dtype)
        return lambda mix: _combine_modes(
            rows, (mix[:, :, None] * self.coefficients).astype(dtype)
        )

    def predictions(self, step):
        a = self.modes(np.array([step]))[0]
        change = self.factors.rows @ (a[:, None] * self.coefficients)
        return _closed_forms.initial_predictions(self.problem, self.split) + change

    def norms(self, steps):
        return residual_norms(
            self.factors, self.residual, steps, step_size=self.step_size
        )

    def worst_column(self, step):
        # Relative to the mode that grew most, so that nothing overflows.
        decay = 1 - self.step_size * self.factors.eigenvalues
        log_growth = step * np.log(np.abs(decay))
        residuals = np.exp(log_growth - log_growth.max())[:, None] * self.coefficients
        return int(np.argmax(np.linalg.norm(residuals, axis=0)))

    def convergence(self):
        return convergence(self.factors, self.residual, step_size=self.step_size)


@jax.jit
def _combine_modes(rows, mix):
    return jnp.einsum("ql,rlc->rqc", rows, mix, precision="highest")
