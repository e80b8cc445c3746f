"""Grid search over step sizes and similarities, such as the powers of a matrix."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from gnnrp.propagation import driver
from gnnrp.propagation.problem import Steps, as_split
from gnnrp.propagation.selection import FIRST_BEST, Selection
from gnnrp.propagation.similarity import Power
from gnnrp.propagation.solvers.base import (
    Evaluation,
    Solver,
    identity_of,
    keeper,
    name_of,
)
from gnnrp.propagation.solvers.choose import AUTO, Auto
from gnnrp.propagation.trajectory import Trajectory
from gnnrp.runtime import checks, fingerprint, tracing
from gnnrp.runtime.options import Options
from gnnrp.types import LinearMap, MetricFn, Split

STEP_SIZES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
POWERS = tuple(range(1, 11))
STAGE = "sweep"  # name of its progress


class Table(NamedTuple):
    """One row for each power, step size and split, in this order of nesting.

    ``pandas.DataFrame(table._asdict())`` makes a frame of it.
    """

    power: Int[np.ndarray, " r"]  # K
    step_size: Float[np.ndarray, " r"]  # η
    split: Int[np.ndarray, " r"]
    best_step: Int[np.ndarray, " r"]
    val: Float[np.ndarray, " r"]
    test: Float[np.ndarray, " r"]
    diverged: np.ndarray  # (r,) bool
    solver: np.ndarray  # (r,) str, see ``trajectory.Report``


class Winner(NamedTuple):
    """The setting with the best mean validation score over the splits."""

    power: int
    step_size: float
    val: float
    test: float


def powers(adjacency: LinearMap, powers: Sequence[int] = POWERS) -> dict[int, Power]:
    """Return A^K by K, for ``run``.

    Args:
        adjacency: A, such as a matrix from ``sparse.prepare``.
        powers: K; the paper's grid by default.

    Source: App. D.1, grid of the hyperparameter search.
    """
    checks.linear_map("the adjacency", adjacency)
    return {K: Power(adjacency, K) for K in checks.nonempty_list("powers", powers)}


def run(
    similarities: Mapping[int, LinearMap],
    targets: Float[Any, "n c"],
    split: Split,
    steps: Steps,
    *,
    metric: MetricFn,
    initial: Float[Any, "*s n c"] | None = None,
    solver: Solver | Auto = AUTO,
    selection: Selection = FIRST_BEST,
    options: Options = Options(),
) -> Table:
    """Run RP for every similarity and step size; step sizes share their products.

    Args:
        similarities: S by power, see ``powers``.
        targets: Y, as are the next arguments, see ``propagation.run``.
        split: masks (n,), or (s, n).
        steps: step sizes η, such as ``STEP_SIZES``, and number of steps.
        metric: such as ``metrics.accuracy``.
        initial: F_0.
        solver: of every run.
        selection: of every run.
        options: checkpoints are saved and progress is reported after each power.

    Raises:
        ValueError: no similarity; an error of ``propagation.run``; a checkpoint is
            damaged or of another sweep.
        TypeError: an argument is of another type, or, with a folder, has no fingerprint
            and no name in ``metadata``.
        OSError: the folder cannot be written, or another run uses it.
        KeyboardInterrupt: on Ctrl-C, after saving a checkpoint if ``folder`` is set.

    Source: App. D.1, grid of the hyperparameter search.
    """
    similarities = _validate(similarities)
    checks.instance("steps", steps, Steps, "Steps(step_size, num_steps) makes one")
    grid = Steps(steps.step_sizes, steps.num_steps)  # a list, even of one
    split = as_split(split)
    metric = tracing.as_static(metric)
    solvers = solver.candidates if isinstance(solver, Auto) else (solver,)
    names = [name_of(each) for each in solvers]
    num_rows = len(grid.step_sizes) * len(np.atleast_2d(split.train))  # of a power
    run_fn = functools.partial(
        driver.run,
        targets=targets,
        split=split,
        steps=grid,
        metric=metric,
        initial=initial,
        solver=solver,
        selection=selection,
        options=Options(max_bytes=options.max_bytes),
    )
    if options.folder is not None:
        settings = identity_of(solver, grid, Evaluation(metric, selection))
        data, metadata = (targets, split, initial), dict(options.metadata)
        identity = _identify(settings, similarities, data, metadata)
        options = dataclasses.replace(options, metadata=identity)

    def like(done: int) -> Table:
        return _make_table([(0,) * 8] * (done * num_rows))

    def find_fault(done: int, rows: Table) -> str | None:
        powers = list(similarities)[:done]
        return _find_fault(rows, powers, grid, num_rows, len(names))

    with keeper(options) as saved:
        table = saved.restore(like, find_fault, len(similarities)) or like(0)
        rows = list(zip(*table, strict=True))
        num_done = len(np.unique(table.power))
        rest = list(similarities.items())[num_done:]
        for done, (power, S) in enumerate(rest, num_done + 1):
            for step_size, each in zip(grid.step_sizes, run_fn(S), strict=True):
                rows.extend(_rows(power, step_size, each, names))
            options.report(STAGE, done, len(similarities))
            saved.save_if_due(done, lambda: _make_table(rows))
        saved.save(len(similarities), lambda: _make_table(rows))
    table = _make_table(rows)
    return table._replace(solver=np.array(names)[table.solver])


def _validate(similarities: Any) -> dict[int, LinearMap]:
    """Return the similarities by power."""
    remedy = "sweep.powers(adjacency) makes one"
    checks.instance("similarities", similarities, Mapping, remedy)
    if not similarities:
        msg = "similarities must not be empty; sweep.powers(adjacency) has the paper's"
        raise ValueError(msg)
    return {checks.count("power", K, 0): S for K, S in similarities.items()}


def _identify(
    settings: dict[str, Any],
    similarities: dict[int, LinearMap],
    data: Any,
    metadata: Any,
) -> dict[str, Any]:
    """Return the identity of this sweep as plain JSON."""
    values = settings | {
        "powers": list(similarities),
        "similarities": fingerprint.Structure(similarities),
    }
    arrays = {id(leaf): leaf for leaf in jax.tree.leaves(similarities)}  # each once
    trees = {"graph": list(arrays.values()), "data": data}
    return fingerprint.identify(values, metadata, **trees)


def _find_fault(
    rows: Table, powers: list[int], grid: Steps, num_rows: int, num_solvers: int
) -> str | None:
    """Return the fault of restored rows, or None; scores are not computed again."""
    splits = np.arange(num_rows // len(grid.step_sizes))
    places = np.meshgrid(powers, grid.step_sizes, splits, indexing="ij")
    for column, expected in zip(rows[:3], places, strict=True):
        if not np.array_equal(column, expected.ravel()):
            return "its rows are not those of the grid"
    valid = (rows.best_step >= 0) & (rows.best_step <= grid.num_steps)
    valid &= (rows.solver >= 0) & (rows.solver < num_solvers)
    if not valid.all():
        return "a step or a solver is out of range"
    if np.isinf([rows.val, rows.test]).any():
        return "its scores are infinite"
    return None


def _rows(
    power: int, step_size: float, trajectory: Trajectory, names: list[str]
) -> list[tuple]:
    """Return a row for each split, in which the solver is a number."""
    solver = names.index(trajectory.report.solver)
    best = (trajectory.best_step, trajectory.best_val, trajectory.best_test)
    columns = map(np.atleast_1d, (*best, trajectory.report.diverged))
    return [
        (power, step_size, split, *each, solver)
        for split, each in enumerate(zip(*columns, strict=True))
    ]


def _make_table(rows: list[tuple]) -> Table:
    """Return the table of rows, in which the solver is a number."""
    dtype = jnp.zeros(0).dtype
    dtypes = (np.int64, np.float64, np.int64, np.int32, dtype, dtype, bool, np.int64)
    columns = zip(*rows, strict=True) if rows else [()] * len(dtypes)
    return Table(*(np.array(x, kind) for x, kind in zip(columns, dtypes, strict=True)))


def winner(table: Table) -> Winner:
    """Return the setting with the best mean validation score; the first of several.

    Settings with a NaN score of a split are ignored.

    Raises:
        ValueError: the table is empty, or every setting has such a split.
        TypeError: not a table.
    """
    checks.instance("table", table, Table, "sweep.run makes one")
    if not len(table.power):
        msg = "the table has no row; sweep.run makes one a power, step size and split"
        raise ValueError(msg)
    pairs = np.stack([table.power, table.step_size], axis=1)
    _, first, number = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    number = number.ravel()  # of the setting of each row
    count = np.bincount(number)
    val, test = (np.bincount(number, x) / count for x in (table.val, table.test))
    if np.isnan(val).all():
        why = "use smaller steps" if table.diverged.any() else "it needs such nodes"
        msg = f"every setting has a split without a validation score; {why}"
        raise ValueError(msg)
    # In the order of the table, so that a tie goes to its first setting.
    order = np.argsort(first)
    best = order[np.nanargmax(val[order])]
    power, step_size = pairs[first[best]].tolist()
    return Winner(int(power), step_size, float(val[best]), float(test[best]))
