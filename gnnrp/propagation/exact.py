"""Any step of RP at once, and where it ends, from the eigenvectors of S_XX.

S_XX = Q diag(λ) Q^T, z = η λ. For the squared loss from F_0, with R_0 = Y - F_0,

    F_t = F_0 + S[:, X] Q diag(g_t) Q^T R_0,   g_t = (1 - (1 - z)^t) / λ,   g_t(0) = η t

for known and unknown nodes alike. Only the columns S[:, X] are formed; the
factorization is float64 on the host.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int, Shaped

from gnnrp.runtime import arrays, checks


class Factorization(NamedTuple):
    """What every step needs of S, in float64."""

    eigenvalues: Float[np.ndarray, " l"]  # λ of S_XX, ascending
    eigenvectors: Float[np.ndarray, "l l"]  # Q
    rows: Float[np.ndarray, "m l"]  # S[nodes, X] Q
    noise: float  # eigenvalues up to this size may be round-off of S


class Convergence(NamedTuple):
    """Which row of the paper's convergence table holds, and the spectrum behind it."""

    definiteness: str  # of S_XX: "positive definite", "positive semi-definite", ...
    smallest: float  # eigenvalue of S_XX
    largest: float
    safe_step_size: float  # residuals stay bounded for η below it: 2 / λ_max
    residual_converges: bool
    predictions_converge: bool
    explanation: str


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
        psd: S is known to be positive semi-definite, so that negative eigenvalues are
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
            'residual.run(..., method="iterate") takes any'
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
    eigenvalues: Float[np.ndarray, " l"],
    step_size: float,
    steps: Shaped[np.ndarray, " t"],
    *,
    flow: bool = False,
) -> Float[np.ndarray, "t l"]:
    """Return g_t(λ) = (1 - (1 - η λ)^t) / λ without cancellation; g_t(0) = η t.

    Args:
        eigenvalues: λ, of any sign; λ < 0 grows like (1 + η |λ|)^t, up to infinity.
        step_size: η.
        steps: t >= 0, integers unless ``flow``.
        flow: the gradient flow instead, (1 - exp(-η λ t)) / λ.

    Source: paper's proof of Theorem 3.2; the stable forms are ours.
    """
    z = step_size * np.asarray(eigenvalues, np.float64)
    t = np.asarray(steps, np.float64)[:, None]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if flow:
            h = -np.expm1(-z * t)
        else:
            log_decay = np.where(z < 1, np.log1p(-z), np.log(np.abs(z - 1)))
            exponent = np.where(t == 0, 0.0, t * log_decay)  # guards 0 * inf at z = 1
            h = np.where(
                (z > 1) & (t % 2 == 1), 1 + np.exp(exponent), -np.expm1(exponent)
            )
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
    steps = _checked_steps(steps, whole=not flow)
    coefficients = _coefficients(factorization, initial_residual)
    g = growth(factorization.eigenvalues, step_size, steps, flow=flow)
    with np.errstate(invalid="ignore", over="ignore"):
        found = [factorization.rows @ (g_t[:, None] * coefficients) for g_t in g]
    shape = len(factorization.rows), coefficients.shape[1]
    return np.stack(found) if found else np.zeros((0, *shape))


def residual_norms(
    factorization: Factorization,
    initial_residual: Float[np.ndarray, "l c"],
    steps: Shaped[np.ndarray, " t"],
    *,
    step_size: float,
) -> Float[np.ndarray, " t"]:
    """Return |R_t|, the Frobenius norm over the training nodes, for all steps.

    Raises:
        ValueError: as ``trajectory``.
        TypeError: no factorization.
    """
    checks.positive("step_size", step_size)
    steps = _checked_steps(steps, whole=True)
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
    """Return S[nodes, X] (S_XX + μ I)^-1 R_0: for μ = 0 where F_t - F_0 ends.

    Without a ridge, eigenvalues within round-off of 0 count as 0 (the pseudo-inverse),
    so that a singular S_XX is no error. ``convergence`` says whether it is reached.

    Args:
        factorization: of S.
        initial_residual: R_0 = Y - F_0 on the training nodes.
        ridge: μ; kernel ridge regression if positive.

    Raises:
        ValueError: a ridge that leaves S_XX + μ I not positive definite; not a residual
            for each training node.
        TypeError: no factorization.

    Source: Theorem 3.2, Table 2 (App. B.2).
    """
    coefficients = _coefficients(factorization, initial_residual)
    return factorization.rows @ (inverse(factorization, ridge)[:, None] * coefficients)


def inverse(factorization: Factorization, ridge: float) -> Float[np.ndarray, " l"]:
    """Return 1 / (λ + μ), or for μ = 0 the pseudo-inverse, up to round-off of S.

    Raises:
        ValueError: a negative ridge, or one that leaves S_XX + μ I not positive.
    """
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
    """Say which row of the paper's convergence table holds for this S, Y and η.

    The table's "not converge" means in general; here it is decided for the targets at
    hand: a negative or too large η λ matters if R_0 has a component there, a zero one
    if S carries that component to other nodes, which then drift, by η t S P R_0.

    Args:
        factorization: of S, with every node whose convergence is asked for.
        initial_residual: R_0 on the training nodes.
        step_size: η > 0.

    Raises:
        ValueError: a step size that is not positive, or not a residual for each
            training node.
        TypeError: no factorization.

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
    grows = present & (negative | (step_size * values >= 2))
    drift = factorization.rows[:, zero] @ coefficients[zero]
    drifts = bool((np.abs(drift) > norms * _drift_floor(factorization, zero)).any())
    if negative.any():
        definiteness = "indefinite"
    elif zero.any():
        definiteness = "positive semi-definite"
    else:
        definiteness = "positive definite"
    causes = []
    if (present & (step_size * values >= 2)).any():
        causes.append(f"step size {step_size:g} is not below 2 / λ_max = {safe:.4g}")
    if (present & negative).any():
        causes.append(f"S_XX has eigenvalue {smallest:.4g} < 0 and Y a component on it")
    if causes:
        why = f"diverges: {', and '.join(causes)}"
    elif drifts:
        why = (
            "residuals converge; predictions drift linearly with the null space of S_XX"
        )
    elif definiteness == "positive definite":
        why = "converges to kernel regression, S_X'X S_XX^-1 Y"
    else:
        why = "converges to the least-squares limit, S_X'X S_XX^+ Y"
    bounded = not grows.any()
    return Convergence(
        definiteness, smallest, largest, safe, bounded, bounded and not drifts, why
    )


def _coefficients(
    factorization: Factorization, initial_residual: Any
) -> Float[np.ndarray, "l c"]:
    """Return Q^T R_0.

    Raises:
        ValueError: not a residual for each training node.
        TypeError: no factorization.
    """
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


def _checked_steps(steps: Any, *, whole: bool) -> Shaped[np.ndarray, " t"]:
    """Return the steps as an array.

    Raises:
        ValueError: not a list, or one is negative or not whole.
    """
    found = checks.reals("steps", steps)
    if found.ndim != 1:
        msg = f"steps must be a list of them, got shape {found.shape}"
        raise ValueError(msg)
    checks.at_least("steps", np.min(found, initial=0), 0)
    broken = found % 1 != 0
    if whole and broken.any():
        msg = f"steps must be whole numbers, got {found[broken][0]}"
        raise ValueError(msg)
    return found


def _drift_floor(factorization: Factorization, zero: np.ndarray) -> float:
    """Return the drift that round-off alone explains, per unit step and unit residual.

    A null vector q of S_XX has S[m, X] q = 0 for a PSD S; what is computed of it is at
    most sqrt(noise S_mm), since 2 x 2 minors of a PSD matrix are not negative.
    """
    if not zero.any():
        return 0.0
    largest_row = float(np.abs(factorization.rows).max(initial=0))
    return 1e-6 * largest_row + 10 * np.sqrt(factorization.noise * largest_row)
