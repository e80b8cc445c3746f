"""Run RP with a solver: checks, choice of the solver, trajectories, warnings."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from gnnrp.propagation import linear_maps
from gnnrp.propagation.problem import Problem, Steps, as_split, make_problem, peak_bytes
from gnnrp.propagation.selection import FIRST_BEST, Selection
from gnnrp.propagation.solvers.base import Evaluation, Solver, identity_of, name_of
from gnnrp.propagation.solvers.choose import AUTO, Auto, choose
from gnnrp.propagation.trajectory import Trajectory, drop_split_axis, make_trajectories
from gnnrp.runtime import checks, fingerprint, memory, tracing
from gnnrp.runtime.options import Options
from gnnrp.types import LinearMap, MetricFn, Scalar, Split


@overload
def run(
    similarity: LinearMap,
    targets: Float[Any, "n c"],
    split: Split,
    steps: Steps[Scalar],
    *,
    metric: MetricFn,
    initial: Float[Any, "*s n c"] | None = None,
    solver: Solver | Auto = AUTO,
    selection: Selection = FIRST_BEST,
    options: Options = Options(),
) -> Trajectory: ...


@overload
def run(
    similarity: LinearMap,
    targets: Float[Any, "n c"],
    split: Split,
    steps: Steps[Sequence[Scalar]],
    *,
    metric: MetricFn,
    initial: Float[Any, "*s n c"] | None = None,
    solver: Solver | Auto = AUTO,
    selection: Selection = FIRST_BEST,
    options: Options = Options(),
) -> list[Trajectory]: ...


def run(
    similarity: LinearMap,
    targets: Float[Any, "n c"],
    split: Split,
    steps: Steps,
    *,
    metric: MetricFn,
    initial: Float[Any, "*s n c"] | None = None,
    solver: Solver | Auto = AUTO,
    selection: Selection = FIRST_BEST,
    options: Options = Options(),
) -> Trajectory | list[Trajectory]:
    """Run RP, and select for each split the step with the best validation score.

    Args:
        similarity: S.
        targets: Y; NaN where unknown (such entries are never fed back). Rows outside
            the training mask are only used by the metric.
        split: masks (n,), or (s, n) for several splits at once, which then share each
            product. A split without validation nodes selects its last step.
        steps: step size η, or several of them, which share products; number of steps.
        metric: such as ``metrics.accuracy``.
        initial: F_0, zero by default; predictions of another model, for example.
        solver: ``Iterate(residual_fn)`` supports every loss; ``Exact()`` and
            ``Krylov()`` need the squared loss and a symmetric S; ``AUTO`` chooses.
        selection: rule for ties, and patience.
        options: checkpoints, memory limit and progress. A resumed run is bit-identical
            to an uninterrupted one. If devices share the rows, whose contents are not
            compared, ``metadata`` should name the data.

    Returns:
        A trajectory, or a list of them if ``steps`` has a list of step sizes.

    Raises:
        ValueError: shapes or masks do not fit; the solver does not support the problem
            or does not fit in memory; a checkpoint is damaged or of another run; the
            metric is NaN at every step.
        OSError: the folder cannot be written, or another run uses it.
        KeyboardInterrupt: on Ctrl-C, after saving a checkpoint if ``folder`` is set.
        TypeError: an argument is of another type, or, with a folder, has no fingerprint
            and no name in ``metadata``.

    Warns:
        UserWarning: of a single trajectory, if the best step is the last one although
            validation still rises, or if all nodes are predicted to be of one class.
            ``report.warnings`` has the same texts.

    Source: Eq. 6 and Algorithm 1 (App. D.3).
    """
    checks.instance("steps", steps, Steps, "Steps(step_size, num_steps) makes one")
    checks.instance("selection", selection, Selection, "Selection(rule=...) makes one")
    checks.instance("options", options, Options, "Options(folder=...) makes one")
    checks.function("metric", metric, "see metrics.by_name")
    if not isinstance(solver, Solver | Auto):
        msg = (
            "solver must be a solver such as Iterate(), got "
            f"{checks.format_value(solver)}; solvers.by_name returns one"
        )
        raise TypeError(msg)
    _check_targets(targets, options.max_bytes)
    problem = make_problem(targets, split, initial)
    checks.representable("step_size", steps.step_sizes, problem.targets.dtype)
    similarity = linear_maps.full_map(linear_maps.as_pytree(similarity))
    linear_maps.check(similarity, problem.targets)
    solver, reason = choose(solver, problem, similarity, steps, options.max_bytes)
    metric = tracing.as_static(metric)
    evaluation = Evaluation(metric, selection)
    if options.folder is not None:
        settings = identity_of(solver, steps, evaluation)
        identity = _identify(settings, similarity, problem, dict(options.metadata))
        options = dataclasses.replace(options, metadata=identity)
    if not problem.is_sharded:
        similarity = linear_maps.restrict(similarity, problem.train.any(axis=0))
    solutions = solver.solve(problem, similarity, steps, evaluation, options)
    trajectories = make_trajectories(
        solutions, problem, similarity, steps, metric, (name_of(solver), reason)
    )
    if np.ndim(as_split(split).train) == 1:
        trajectories = [drop_split_axis(each) for each in trajectories]
    if not steps.is_single:
        return trajectories
    if jax.process_index() == 0:
        for text in trajectories[0].report.warnings.values():
            warnings.warn(text, UserWarning, stacklevel=2)
    return trajectories[0]


def _check_targets(targets: Any, max_bytes: int | None) -> None:
    """Refuse targets that are too large before they are copied."""
    shape = np.shape(targets)
    if len(shape) != 2 or isinstance(targets, jax.Array):  # sharded ones stay in place
        return
    memory.check(
        f"a run on {shape[0]:,} nodes and {shape[1]:,} columns",
        peak_bytes(shape, itemsize=jnp.zeros(0).dtype.itemsize),
        memory.room(max_bytes),
        "take fewer columns",
    )


def _identify(
    settings: dict[str, Any], similarity: LinearMap, problem: Problem, metadata: Any
) -> dict[str, Any]:
    """Return the identity of this run as plain JSON."""
    values = settings | {
        "similarity": fingerprint.Structure(similarity),
        "shape": f"{problem.targets.dtype}{list(problem.targets.shape)}",
    }
    arrays = {"graph": similarity, "targets and splits": problem}
    if problem.is_sharded:  # no process has all rows
        arrays = {}
    return fingerprint.identify(values, metadata, **arrays)
