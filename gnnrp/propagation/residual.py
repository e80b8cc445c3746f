"""Residual propagation (RP): gradient descent in function space, without weights.

``init`` and ``step`` are the algorithm. ``run`` drives it over many steps and splits,
keeps the best step by validation, and takes the shortest way there (see ``run``).
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gnnrp.propagation import (
    _curves,
    _iterated,
    _remarks,
    _report,
    losses,
    maps,
    methods,
    selection,
)
from gnnrp.propagation.problem import Problem, as_split, make_problem
from gnnrp.propagation.problem import peak_bytes as problem_peak
from gnnrp.runtime import checkpoints, checks, fingerprint, memory, tracing
from gnnrp.types import LinearMap, MetricFn, ResidualFn, Scalar, Split

MOST_STEPS = 10_000_000

# ``_iterated`` owns the state, so that the pure step and the driver share one.
State = _iterated.State
init = _iterated.init
step = _iterated.step
residuals = _iterated.residuals


# ``_report`` owns what comes out, so that drivers and this module share it.
Divergence = _report.Divergence
Report = _report.Report
Trajectory = _report.Trajectory


def run(
    similarity: LinearMap,
    targets: Float[Any, "n c"],
    split: Split,
    *,
    step_size: Scalar,
    num_steps: int,
    metric: MetricFn,
    residual_fn: ResidualFn = losses.squared,
    initial: Float[Any, "*s n c"] | None = None,
    method: str = "auto",
    select: str = "first",
    patience: int | None = None,
    folder: Path | None = None,
    made_with: dict[str, Any] | None = None,
    checkpoint_seconds: float = checkpoints.SECONDS,
    max_bytes: int | None = None,
    callback: Callable[[int, int], None] | None = None,
) -> Trajectory:
    """Run RP and keep, for each split, the step with the best validation value.

    Methods: "iterate" takes the steps one by one and serves every loss; "exact" takes
    all of them from the eigenvectors of S_XX, "krylov" from a Krylov space, both for
    the squared loss and a symmetric S. "auto" takes the one that sends the fewest
    columns through S, of those that serve and fit the memory: "exact" up to 2,000
    training nodes a split, "krylov" if its vectors fit 2 GiB. The report says why.

    Args:
        similarity: S.
        targets: Y; NaN where unknown (such entries are never fed back). Rows outside
            the training mask are only used by the metric.
        split: masks (n,), or (s, n) for several splits at once, which then share each
            product. Without a validation node the last step is kept.
        step_size: η > 0.
        num_steps: t.
        metric: such as ``metrics.accuracy``.
        residual_fn: see ``losses``.
        initial: F_0, zero if left out; predictions of another model, say.
        method: see above.
        select: "first" or "last" of several best steps.
        patience: stop after so many steps without a better validation value.
        folder: of checkpoints; if it holds one, the run goes on from there, to the same
            bits as without interruption.
        made_with: what else a checkpoint must have been made with, as plain JSON. An
            entry "metric", "residual_fn" or "similarity" names that function, which
            lambdas, closures and other objects that cannot be compared need. Where
            devices share the rows, whose contents are not compared, name the data.
        checkpoint_seconds: between two of them.
        max_bytes: what may be held in all; what there is if left out, see ``memory``.
        callback: called with (done, total) now and then.

    Raises:
        ValueError: shapes, masks or settings that do not fit; a method that does not
            serve the loss or the similarity, or takes more memory than there is; a
            checkpoint of another run, or a damaged one; a metric that is NaN at every
            step.
        KeyboardInterrupt: on Ctrl-C, after saving a checkpoint if ``folder`` is set.
        TypeError: a similarity, metric or residual that is no function, or, with a
            folder, that can neither be compared nor is named in ``made_with``.

    Warns:
        UserWarning: the best step is the last one although validation still rises, or
            all nodes are predicted to be of one class.

    Source: Eq. 6 and Algorithm 1 (App. D.3). Its "while validation performance
    increases" is not what produced the published numbers; a fixed number of steps is.
    """
    trajectories = run_all(
        similarity,
        targets,
        split,
        step_sizes=[checks.number("step_size", step_size)],
        num_steps=num_steps,
        metric=metric,
        residual_fn=residual_fn,
        initial=initial,
        method=method,
        select=select,
        patience=patience,
        folder=folder,
        made_with=made_with,
        checkpoint_seconds=checkpoint_seconds,
        max_bytes=max_bytes,
        callback=callback,
    )
    if jax.process_index() == 0:
        for remark in trajectories[0].report.remarks.values():
            warnings.warn(remark, UserWarning, stacklevel=2)
    return trajectories[0]


def run_all(
    similarity: LinearMap,
    targets: Float[Any, "n c"],
    split: Split,
    *,
    step_sizes: Sequence[float],
    num_steps: int,
    metric: MetricFn,
    residual_fn: ResidualFn = losses.squared,
    initial: Float[Any, "*s n c"] | None = None,
    method: str = "auto",
    select: str = "first",
    patience: int | None = None,
    max_bytes: int | None = None,
    sent: Callable[[], Array] | None = None,
    folder: Path | None = None,
    made_with: dict[str, Any] | None = None,
    checkpoint_seconds: float = checkpoints.SECONDS,
    callback: Callable[[int, int], None] | None = None,
) -> list[Trajectory]:
    """Run RP for several step sizes at once; return a trajectory for each.

    The closed forms share their products with S; where steps are iterated, the step
    sizes are columns of one product. The reports hold what ``run`` warns of.

    Args:
        similarity: see ``run``.
        targets: see ``run``.
        split: see ``run``.
        step_sizes: η, each positive.
        num_steps: see ``run``.
        metric: see ``run``.
        residual_fn: see ``run``.
        initial: see ``run``.
        method: see ``run``.
        select: see ``run``.
        patience: see ``run``; each step size has its own.
        max_bytes: see ``run``.
        sent: gives S [R_0, 0], (n, s, c), where that costs less than S does; only the
            method "krylov" asks.
        folder: see ``run``.
        made_with: see ``run``.
        checkpoint_seconds: see ``run``.
        callback: see ``run``.

    Raises:
        ValueError: as ``run``; no step size.
        TypeError: as ``run``.
    """
    step_sizes = [
        checks.number("step_size", step_size)
        for step_size in checks.several("step_sizes", step_sizes)
    ]
    held = {
        "metric": tracing.as_static(metric),
        "residual_fn": tracing.as_static(residual_fn),
    }
    functions = {name: tracing.unwrap(each) for name, each in held.items()}
    residual_fn = functions["residual_fn"]
    num_steps, choice = _checked_settings(
        step_sizes, num_steps, functions, method, select, patience
    )
    if callback is not None:
        checks.function("callback", callback)
    _check_targets_fit(targets, max_bytes)
    problem = make_problem(targets, split, initial)
    similarity = maps.everywhere(maps.as_pytree(similarity))
    maps.check(similarity, problem.targets)
    method, reason, krylov_bytes = methods.choose(
        method, similarity, problem, residual_fn, num_steps, len(step_sizes), max_bytes
    )
    asked: dict[str, Any] = {"step_sizes": step_sizes, "num_steps": num_steps}
    if made_with is not None:
        checks.instance("made_with", made_with, dict, "it is kept as JSON")
    identity = made_with or {}
    if folder is not None:
        named = asked | functions | {"method": method, "select": select}
        named["patience"] = patience
        identity = _identity(similarity, problem, named, identity)
    if not problem.is_shared:
        similarity = maps.on_support(similarity, problem.train.any(axis=0))
    similarity = tracing.as_argument(similarity)
    known = _known_product(sent, problem) if method == "krylov" else None
    with checkpoints.Keeper(folder, identity, checkpoint_seconds) as keeper:
        asked |= {"keeper": keeper, "callback": callback}
        if method == "krylov":
            asked |= {"sent": known, "max_bytes": krylov_bytes}
        found = _driven(method, similarity, problem, asked, held, choice)
    taken, single = (method, reason, residual_fn), np.ndim(as_split(split).train) == 1
    runs = _trajectories(found, step_sizes, taken, similarity, problem, single=single)
    return [
        each._replace(report=each.report._replace(remarks=remarks))
        for each, remarks in zip(
            runs,
            (_remarks.of_run(one, problem, held["metric"], num_steps) for one in found),
            strict=True,
        )
    ]


def _check_targets_fit(targets: Any, max_bytes: int | None) -> None:
    """Refuse targets that are too large before they are copied.

    Raises:
        ValueError: they are.
    """
    shape = np.shape(targets)
    if len(shape) != 2 or isinstance(targets, jax.Array):  # shared ones stay in place
        return
    memory.check(
        f"a run on {shape[0]:,} nodes and {shape[1]:,} columns",
        problem_peak(shape, itemsize=jnp.zeros(0).dtype.itemsize),
        memory.room(max_bytes),
        "take fewer columns",
    )


def _trajectories(
    found: list[_report.Found],
    step_sizes: list[float],
    taken: tuple[str, str, ResidualFn],
    similarity: LinearMap,
    problem: Problem,
    *,
    single: bool,
) -> list[Trajectory]:
    """Return what was found with each step size as users see it."""
    method, reason, residual_fn = taken

    @functools.cache
    def ends() -> np.ndarray:
        return np.asarray(_report.ends(similarity, jnp.asarray(problem.train)))

    return [
        _report.trajectory(each, method, reason, (residual_fn, at, ends), single=single)
        for at, each in zip(step_sizes, found, strict=True)
    ]


def _driven(
    method: str,
    similarity: LinearMap,
    problem: Problem,
    asked: dict[str, Any],
    functions: dict[str, Any],
    choice: dict[str, Any],
) -> list[_report.Found]:
    """Return what the driver of a method finds."""
    if method == "iterate":
        return _iterated.run(similarity, problem, **asked, **functions, **choice)
    settings = choice | {"metric": functions["metric"]}
    if method == "exact":
        return _curves.by_eigenvectors(similarity, problem, **asked, settings=settings)
    return _curves.by_krylov_space(similarity, problem, **asked, settings=settings)


def _identity(
    similarity: LinearMap,
    problem: Problem,
    named: dict[str, Any],
    made_with: dict[str, Any],
) -> dict[str, Any]:
    """Return the identity of this run as plain JSON.

    Raises:
        TypeError: a function that cannot be compared and has no name.
    """
    named = named | {
        "similarity": fingerprint.Structure(similarity),
        "shape": f"{problem.targets.dtype}{list(problem.targets.shape)}",
    }
    if problem.is_shared:  # no process sees all of it
        return fingerprint.identify(named, made_with)
    trees = {"graph": similarity, "targets and splits": problem}
    return fingerprint.identify(named, made_with, **trees)


def _known_product(sent: Callable[[], Array] | None, problem: Problem) -> Array | None:
    """Return what the caller knows of S [R_0, 0].

    Raises:
        ValueError: of another shape, or not finite.
    """
    if sent is None:
        return None
    known = jnp.asarray(sent(), problem.targets.dtype)
    num_nodes, num_classes = problem.targets.shape
    checks.shape("sent", known, (num_nodes, len(problem.train), num_classes))
    if not np.isfinite(known).all():
        msg = "sent must be finite"
        raise ValueError(msg)
    return known


def _checked_settings(
    step_sizes: Sequence[float],
    num_steps: int,
    functions: dict[str, Any],
    method: str,
    select: str,
    patience: int | None,
) -> tuple[int, dict[str, Any]]:
    """Return the number of steps, and how one of them is selected.

    Raises:
        ValueError: a setting out of range.
        TypeError: a metric or residual that is no function.
    """
    checks.one_of("method", method, methods.METHODS)
    checks.one_of("select", select, selection.RULES)
    for step_size in step_sizes:
        checks.positive("step_size", step_size)
        checks.fits("step_size", step_size, jnp.zeros(0).dtype)
    num_steps = checks.count("num_steps", num_steps, 1, MOST_STEPS)
    limit = np.iinfo(np.int32).max
    if patience is not None:
        limit = checks.count("patience", patience, 1)
    for name, function in functions.items():
        checks.function(name, function, "see metrics.by_name and losses.by_name")
    return num_steps, {"rule": select, "patience": jnp.asarray(limit, jnp.int32)}
