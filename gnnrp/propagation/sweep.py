"""Grid search over step sizes and similarities, such as the powers of a matrix."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gnnrp.propagation import driver, linear_maps
from gnnrp.propagation.problem import Steps, as_split, make_problem
from gnnrp.propagation.selection import FIRST_BEST, Selection
from gnnrp.propagation.similarity import Power
from gnnrp.propagation.solvers.base import Solver, identity_of, keeper, name_of
from gnnrp.propagation.solvers.choose import AUTO, Auto
from gnnrp.propagation.solvers.krylov import Krylov
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

    Raises:
        ValueError: a power is negative or not an integer, or there is none.
        TypeError: A is not a linear map.

    Source: App. D.1, grid of the hyperparameter search.
    """
    checks.linear_map("the adjacency", adjacency)
    return {K: Power(adjacency, K) for K in checks.several("powers", powers)}


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

    Ascending powers of one matrix also share the first product of their Krylov spaces.

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
        KeyboardInterrupt: on Ctrl-C, after saving a checkpoint if ``folder`` is set.

    Source: App. D.1, grid of the hyperparameter search.
    """
    similarities = _validate(similarities)
    checks.instance("steps", steps, Steps, "Steps(step_size, num_steps) makes one")
    grid = Steps(steps.step_sizes, steps.num_steps)  # a list, even of one
    split = as_split(split)
    metric = tracing.as_static(metric)
    products = None
    if _share_first_products(similarities, solver):
        products = _FirstProducts(similarities, targets, split, initial)
    if options.folder is not None:
        values = {
            "powers": list(similarities),
            "similarities": fingerprint.Structure(similarities),
            "step_sizes": steps.step_sizes,
            "num_steps": steps.num_steps,
            "metric": tracing.unwrap(metric),
            "rule": selection.rule,
            "patience": selection.patience,
            **identity_of(solver),
        }
        identity = fingerprint.identify(
            values,
            dict(options.metadata),
            "metadata",
            graph=_distinct_arrays(similarities),
            data=(targets, split, initial),
        )
        options = dataclasses.replace(options, metadata=identity)
    names = [name_of(each) for each in _candidates(solver)]
    num_rows = len(steps.step_sizes) * len(np.atleast_2d(split.train))  # of a power

    def like(done: int) -> tuple[Any, Table]:
        return products and products.state, _empty_rows(done * num_rows)

    def find_fault(done: int, state: tuple[Any, Table]) -> str | None:
        fault = products and products.find_fault(state[0])
        reached = list(similarities)[:done]
        return fault or _find_row_fault(state[1], reached, steps, num_rows, len(names))

    with keeper(options) as saved:
        first, rows = saved.resumed(like, find_fault, len(similarities)) or like(0)
        if products:
            products.state = first
        todo = list(enumerate(similarities.items(), 1))[len(rows.power) // num_rows :]
        for done, (power, S) in todo:
            trajectories = driver.run(
                S,
                targets,
                split,
                grid,
                metric=metric,
                initial=initial,
                solver=products.solver_for(power, solver) if products else solver,
                selection=selection,
                options=Options(max_bytes=options.max_bytes),
            )
            for step_size, each in zip(steps.step_sizes, trajectories, strict=True):
                rows = _append(rows, power, step_size, each, names)
            options.report(STAGE, done, len(similarities))
            saved.offer(done, lambda: (products and products.state, rows))  # noqa: B023
        saved.finish(len(similarities), lambda: (products and products.state, rows))
    return rows._replace(solver=np.array(names)[rows.solver])


def _validate(similarities: Any) -> dict[int, LinearMap]:
    """Return the similarities by power.

    Raises:
        ValueError: there is none, or a power is negative or not an integer.
        TypeError: not a mapping.
    """
    remedy = "sweep.powers(adjacency) makes one"
    checks.instance("similarities", similarities, Mapping, remedy)
    if not similarities:
        msg = "similarities must not be empty; sweep.powers(adjacency) has the paper's"
        raise ValueError(msg)
    return {checks.count("power", K, 0): S for K, S in similarities.items()}


def _candidates(solver: Solver | Auto) -> tuple[Solver, ...]:
    return solver.candidates if isinstance(solver, Auto) else (solver,)


def _share_first_products(
    similarities: Mapping[int, LinearMap], solver: Solver | Auto
) -> bool:
    """Return whether S are ascending powers of one matrix, for a Krylov space."""
    walks = [S for S in similarities.values() if isinstance(S, Power)]
    return (
        len(walks) == len(similarities)
        and all(S.adjacency is walks[0].adjacency for S in walks)
        and bool(np.all(np.diff([S.power for S in walks]) >= 0))
        and any(isinstance(each, Krylov) for each in _candidates(solver))
    )


def _distinct_arrays(similarities: Mapping[int, LinearMap]) -> list[Any]:
    """Return the arrays of all similarities, those that several share only once."""
    leaves = jax.tree.leaves(list(similarities.values()))
    return list({id(leaf): leaf for leaf in leaves}.values())


class _FirstProducts:
    """A^K [R_0, 0] of ascending powers K."""

    def __init__(
        self, similarities: dict[int, Any], targets: Any, split: Split, initial: Any
    ) -> None:
        start = make_problem(targets, split, initial).initial_residual
        self.state = (jnp.moveaxis(jnp.asarray(start), 0, 1), np.array(0))
        self._walks = similarities

    def solver_for(self, power: int, solver: Solver | Auto) -> Solver | Auto:
        """Return the solver, in which a Krylov space begins with the known product."""

        def with_product(each: Solver) -> Solver:
            if not isinstance(each, Krylov):
                return each
            product_fn = functools.partial(self.product, power)
            return dataclasses.replace(each, first_product_fn=product_fn)

        if not isinstance(solver, Auto):
            return with_product(solver)
        return Auto(tuple(map(with_product, solver.candidates)))

    def product(self, power: int) -> Float[Array, "n s c"]:
        """Return A^K [R_0, 0], from that of the power before."""
        value, reached = self.state
        hops = self._walks[power].power
        self.state = (self._multiply(value, hops - int(reached)), np.array(hops))
        return self.state[0]

    def find_fault(self, state: Any) -> str | None:
        """Return the fault of a restored product, or None."""
        value, reached = state
        if int(reached) not in {0, *(S.power for S in self._walks.values())}:
            return f"its products are of power {int(reached)}"
        start = self.state[0]
        expected = self._multiply(start, int(reached))
        bound = 1e3 * float(jnp.finfo(start.dtype).eps)
        error, largest = (float(jnp.abs(x).max()) for x in (value - expected, expected))
        if not error <= bound * largest:
            return "its products are not those of the adjacency"
        return None

    def _multiply(self, value: Float[Array, "n s c"], num_hops: int) -> Array:
        adjacency = next(iter(self._walks.values())).adjacency
        S = tracing.as_argument(linear_maps.as_pytree(Power(adjacency, num_hops)))
        return linear_maps.product(S, value.reshape(len(value), -1)).reshape(
            value.shape
        )


def _find_row_fault(
    rows: Table, powers: list[int], steps: Steps, num_rows: int, num_solvers: int
) -> str | None:
    """Return the fault of restored rows, or None; scores are not computed again."""
    splits = np.arange(num_rows // len(steps.step_sizes))
    grid = np.meshgrid(powers, steps.step_sizes, splits, indexing="ij")
    for column, expected in zip(rows[:3], grid, strict=True):
        if not np.array_equal(column, expected.ravel()):
            return "its rows are not those of the grid"
    known = (rows.best_step >= 0) & (rows.best_step <= steps.num_steps)
    known &= (rows.solver >= 0) & (rows.solver < num_solvers)
    if not known.all():
        return "it names a step or a solver that there is not"
    if np.isinf([rows.val, rows.test]).any():
        return "it has scores that are infinite"
    return None


def _empty_rows(count: int) -> Table:
    """Return rows of zeros, in which a solver is a number."""
    dtype = jnp.zeros(0).dtype
    dtypes = (np.int64, np.float64, np.int64, np.int32, dtype, dtype, bool, np.int64)
    return Table(*(np.zeros(count, each) for each in dtypes))


def _append(
    rows: Table,
    power: int,
    step_size: float,
    trajectory: Trajectory,
    names: list[str],
) -> Table:
    """Return the rows with one more for each split."""
    report = trajectory.report
    step, val, test, diverged = map(
        np.atleast_1d,
        (
            trajectory.best_step,
            trajectory.best_val,
            trajectory.best_test,
            report.diverged,
        ),
    )
    same = np.ones(len(step))
    more = (
        same * power,
        same * step_size,
        np.arange(len(step)),
        step,
        val,
        test,
        diverged,
        same * names.index(report.solver),
    )
    return Table(
        *(
            np.concatenate([old, np.asarray(new, old.dtype)])
            for old, new in zip(rows, more, strict=True)
        )
    )


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
    settings = np.stack([table.power, table.step_size], axis=1)
    _, first, of_row = np.unique(
        settings, axis=0, return_index=True, return_inverse=True
    )
    of_row = of_row.ravel()
    count = np.bincount(of_row)
    val = np.bincount(of_row, table.val) / count
    test = np.bincount(of_row, table.test) / count
    if np.isnan(val).all():
        why = "use smaller steps" if table.diverged.any() else "it needs such nodes"
        msg = f"every setting has a split without a validation score; {why}"
        raise ValueError(msg)
    # In the order of the table, so that a tie goes to its first setting.
    order = np.argsort(first)
    best = order[np.nanargmax(val[order])]
    row = first[best]
    return Winner(
        int(table.power[row]),
        float(table.step_size[row]),
        float(val[best]),
        float(test[best]),
    )
