"""Results of a run: trajectory, report, and the explanation of a divergence."""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from gnnrp.propagation import _warnings, convergence
from gnnrp.propagation.convergence import Convergence, Definiteness
from gnnrp.propagation.problem import Problem, Steps
from gnnrp.propagation.solvers.base import Solution
from gnnrp.runtime import tracing
from gnnrp.types import LinearMap, MetricFn


class Divergence(NamedTuple):
    """A residual that grew past its start and did not shrink again."""

    step: int  # the first one whose update made it grow
    column: int  # class or task with the largest residual at that step
    safe_step_size: float  # 2 / λ_max, about; 0: none is safe; NaN: unknown
    explanation: str


class Report(NamedTuple):
    """Solver, convergence and warnings of a run."""

    solver: str  # "exact", "krylov", "iterate", or the name of another class
    reason: str  # for this solver
    num_steps: int  # fewer than requested if the run stopped early
    diverged: Bool[np.ndarray, "*s"]  # the residual grew, or is not finite
    divergences: tuple[Divergence | None, ...]  # one a split
    convergence: tuple[Convergence, ...] | None  # one a split; None: unknown
    error: float  # estimated relative error of the predictions ("krylov"), else 0
    num_columns: int  # multiplied by S; closed forms share them among step sizes
    warnings: dict[str, str]  # by kind; ``run`` emits those of a single trajectory


class Trajectory(NamedTuple):
    """Scores of a run at each step, and its best step; curves start after step 1."""

    train_residual: Float[np.ndarray, "*s t"]  # RMS of the residual before each step
    val: Float[np.ndarray, "*s t"]
    test: Float[np.ndarray, "*s t"]
    best_step: Int[np.ndarray, "*s"]
    best_val: Float[np.ndarray, "*s"]
    best_test: Float[np.ndarray, "*s"]
    predictions: Float[Any, "*s n c"]  # F at the best step, of all nodes
    report: Report


def make_trajectories(
    solutions: list[Solution],
    problem: Problem,
    similarity: LinearMap,
    steps: Steps,
    metric: MetricFn,
    solver: tuple[str, str],
) -> list[Trajectory]:
    """Return the trajectory of each step size; ``solver`` is a name and the reason."""

    @functools.cache
    def ends() -> Float[np.ndarray, "2 s"]:
        train = jnp.asarray(problem.train)
        return np.asarray(convergence.spectrum_ends(similarity, train))

    def explain(solution: Solution, split: int, step_size: float) -> tuple[float, str]:
        if solution.convergence is None:
            curvature = solution.max_curvature
            return convergence.safe_step_size(ends()[:, split], step_size, curvature)
        known = solution.convergence[split]
        no_step = known.definiteness is Definiteness.INDEFINITE
        return 0.0 if no_step else known.safe_step_size, known.explanation

    similarity = tracing.as_argument(similarity)
    trajectories = []
    for solution, step_size in zip(solutions, steps.step_sizes, strict=True):
        first = convergence.divergence_steps(solution.train_residual).tolist()
        columns = solution.worst_column.tolist()
        divergences = tuple(
            Divergence(t, column, *explain(solution, split, step_size)) if t else None
            for split, (t, column) in enumerate(zip(first, columns, strict=True))
        )
        warnings = _warnings.find(solution, problem, metric, steps.num_steps)
        trajectories.append(_make_trajectory(solution, divergences, warnings, solver))
    return trajectories


def _make_trajectory(
    solution: Solution,
    divergences: tuple[Divergence | None, ...],
    warnings: dict[str, str],
    solver: tuple[str, str],
) -> Trajectory:
    """Return the solution with its report."""
    steps = np.asarray(solution.choice.step)
    diverged = np.array([each is not None for each in divergences])
    if (unscored := (steps == 0) & ~diverged).any():
        msg = (
            f"the metric is NaN on the validation nodes of split {np.argmax(unscored)} "
            "at every step, as a ROC-AUC is where all are of one class; take other "
            "nodes or another metric"
        )
        raise ValueError(msg)
    report = Report(
        *solver,
        num_steps=solution.train_residual.shape[1],
        diverged=diverged,
        divergences=divergences,
        convergence=solution.convergence,
        error=float(solution.error),
        num_columns=solution.num_columns,
        warnings=warnings,
    )
    best = np.arange(len(steps)), np.maximum(steps, 1) - 1
    curves = solution.train_residual, solution.val, solution.test
    scores = solution.val[best], solution.test[best]
    return Trajectory(*curves, steps, *scores, solution.predictions, report)


def drop_split_axis(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory of the first split."""
    report = trajectory.report
    report = report._replace(diverged=report.diverged[0])
    return Trajectory(*(each[0] for each in trajectory[:-1]), report=report)
