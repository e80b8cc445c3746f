"""The grid search of the paper: step sizes times powers, sharing their products."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gnnrp.propagation import losses, maps, methods, residual, similarity
from gnnrp.propagation._forms import initial_residual
from gnnrp.propagation.problem import as_split, make_problem
from gnnrp.runtime import checkpoints, checks, fingerprint, tracing
from gnnrp.types import LinearMap, MetricFn, ResidualFn, Split

STEP_SIZES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
POWERS = tuple(range(1, 11))


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
    method: np.ndarray  # (r,) "exact", "krylov" or "iterate"


class Winner(NamedTuple):
    """The setting with the best mean validation score over the splits."""

    power: int
    step_size: float
    val: float
    test: float


def run(
    adjacency: LinearMap,
    targets: Float[Any, "n c"],
    split: Split,
    *,
    step_sizes: Sequence[float] = STEP_SIZES,
    powers: Sequence[int] = POWERS,
    num_steps: int = 100,
    metric: MetricFn,
    residual_fn: ResidualFn = losses.squared,
    make_similarity: Callable[[LinearMap, int], LinearMap] = similarity.Power,
    method: str = "auto",
    select: str = "first",
    patience: int | None = None,
    folder: Path | None = None,
    made_with: dict[str, Any] | None = None,
    checkpoint_seconds: float = checkpoints.SECONDS,
    callback: Callable[[int, int], None] | None = None,
) -> Table:
    """Run RP for every power and step size; all step sizes share their products.

    Of the powers A^K themselves, ascending, each takes its first product on from that
    of the one before, in the Krylov form, where it is one of few.

    Args:
        adjacency: A, such as a matrix from ``sparse.prepare``.
        targets: Y, as in ``residual.run``.
        split: masks (n,), or (s, n).
        step_sizes: η; the paper's grid if left out.
        powers: K; the paper's grid if left out.
        num_steps: of each run.
        metric: such as ``metrics.accuracy``.
        residual_fn: see ``losses``.
        make_similarity: (A, K) -> S; A^K if left out.
        method: see ``residual.run``.
        select: see ``residual.run``.
        patience: see ``residual.run``.
        folder: of checkpoints, between powers; if it holds one, the sweep goes on from
            there, to the same bits as without interruption.
        made_with: what else a checkpoint must have been made with, as plain JSON. An
            entry "metric", "residual_fn", "make_similarity" or "adjacency" names that
            function, see ``residual.run``.
        checkpoint_seconds: between two of them.
        callback: called with (powers done, number of powers).

    Raises:
        ValueError: an empty or invalid grid; what ``residual.run`` refuses; a
            checkpoint of another sweep, or a damaged one.
        TypeError: what is no map, function or split; with a folder, a function that can
            neither be compared nor is named in ``made_with``.
        KeyboardInterrupt: on Ctrl-C, after saving a checkpoint if ``folder`` is set.

    Source: App. D.1, grid of the hyperparameter search.
    """
    checks.linear_map("the adjacency", adjacency)
    checks.function("make_similarity", make_similarity)
    if callback is not None:
        checks.function("callback", callback)
    powers, step_sizes = _checked_grid(powers, step_sizes)
    data = (adjacency, targets, as_split(split))
    settings = {
        "step_sizes": step_sizes,
        "num_steps": num_steps,
        "metric": metric,
        "residual_fn": residual_fn,
        "method": method,
        "select": select,
        "patience": patience,
    }
    grid = {"powers": powers, "make_similarity": make_similarity}
    hops = _FirstProducts(*data) if _shares_hops(grid, settings) else None
    if made_with is not None:
        checks.instance("made_with", made_with, dict, "it is kept as JSON")
    identity = {}
    if folder is not None:
        named = settings | grid | {"adjacency": fingerprint.Structure(adjacency)}
        identity = fingerprint.identify(named, made_with, data=data)
    with checkpoints.Keeper(folder, identity, checkpoint_seconds) as keeper:
        rows = _swept(data, grid, settings, hops, keeper, callback)
    return rows._replace(method=np.array(methods.METHODS)[rows.method])


def _shares_hops(grid: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Tell whether each power may take its first product on from the one before."""
    ascending = all(np.diff(grid["powers"]) >= 0)
    closed = (
        settings["residual_fn"] is losses.squared and settings["method"] != "iterate"
    )
    return closed and ascending and grid["make_similarity"] is similarity.Power


def _swept(
    data: tuple[LinearMap, Any, Split],
    grid: dict[str, Any],
    settings: dict[str, Any],
    hops: "_FirstProducts | None",
    keeper: checkpoints.Keeper,
    callback: Callable[[int, int], None] | None,
) -> Table:
    """Return the rows of all powers, the method of each told by its number."""
    adjacency, targets, split = data
    powers, step_sizes = grid["powers"], settings["step_sizes"]
    functions: dict[str, Any] = {
        name: tracing.as_static(settings[name]) for name in ("metric", "residual_fn")
    }
    per_power = len(step_sizes) * len(np.atleast_2d(split[0]))

    def like(done: int) -> tuple[Any, Table]:
        return hops and hops.state, _no_rows(done * per_power)

    def find_fault(done: int, state: tuple[Any, Table]) -> str | None:
        fault = hops and hops.find_fault(state[0], powers[:done])
        return fault or _fault(state[1], grid, settings, done)

    first, rows = keeper.resumed(like, find_fault, len(powers)) or like(0)
    if hops:
        hops.state = first
    for done in range(len(rows.power) // per_power, len(powers)):
        power = powers[done]
        trajectories = residual.run_all(
            grid["make_similarity"](adjacency, power),
            targets,
            split,
            sent=functools.partial(hops.at, power) if hops else None,
            **settings | functions,
        )
        for step_size, found in zip(step_sizes, trajectories, strict=True):
            rows = _with_rows(rows, power, step_size, found)
        if callback:
            callback(done + 1, len(powers))
        keeper.offer(done + 1, lambda: (hops and hops.state, rows))  # noqa: B023
    keeper.finish(len(powers), lambda: (hops and hops.state, rows))
    return rows


class _FirstProducts:
    """A^K [Y, 0] of ascending K."""

    def __init__(self, adjacency: LinearMap, targets: Any, split: Split) -> None:
        start = initial_residual(make_problem(targets, split, None))
        self.state = (jnp.moveaxis(jnp.asarray(start), 0, 1), np.array(0))
        self._adjacency = adjacency

    def find_fault(self, state: Any, powers: list[int]) -> str | None:
        """Return the fault of restored products, or None."""
        value, reached = state
        if int(reached) not in {0, *powers}:
            return f"its products are of power {int(reached)}"
        more = similarity.Power(self._adjacency, int(reached))
        start = self.state[0]
        columns = start.reshape(len(start), -1)
        send = tracing.as_argument(maps.as_pytree(more))
        expected = maps.product(send, columns).reshape(start.shape)
        bound = 1e3 * float(jnp.finfo(start.dtype).eps)
        error, largest = (float(jnp.abs(x).max()) for x in (value - expected, expected))
        if not error <= bound * largest:
            return "its products are not those of the adjacency"
        return None

    def at(self, power: int) -> Float[Array, "n s c"]:
        value, reached = self.state
        columns = value.reshape(len(value), -1)
        more = similarity.Power(self._adjacency, power - int(reached))
        sent = maps.product(tracing.as_argument(maps.as_pytree(more)), columns)
        value = sent.reshape(value.shape)
        self.state = (value, np.array(power))
        return value


def _fault(
    rows: Table, grid: dict[str, Any], settings: dict[str, Any], done: int
) -> str | None:
    """Return the fault of restored rows, or None.

    Scores are not computed again.
    """
    step_sizes, powers = settings["step_sizes"], grid["powers"][:done]
    num_splits = len(rows.power) // max(1, done * len(step_sizes))
    places = np.meshgrid(powers, step_sizes, np.arange(num_splits), indexing="ij")
    for column, expected in zip(rows[:3], places, strict=True):
        if not np.array_equal(column, expected.ravel()):
            return "its rows are not those of the grid"
    steps = (rows.best_step >= 0) & (rows.best_step <= settings["num_steps"])
    known = (rows.method >= 0) & (rows.method < len(methods.METHODS))
    if not (steps & known).all():
        return "it names a step or a method that there is not"
    if np.isinf([rows.val, rows.test]).any():
        return "it has scores that are infinite"
    return None


def winner(table: Table) -> Winner:
    """Return the setting with the best mean validation score; the first of several.

    Settings with a split that scored NaN take no part.

    Raises:
        ValueError: every setting has such a split.
        TypeError: no table.
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
    # In the order of the table, so that a tie goes to what was asked for first.
    order = np.argsort(first)
    best = order[np.nanargmax(val[order])]
    row = first[best]
    return Winner(
        int(table.power[row]),
        float(table.step_size[row]),
        float(val[best]),
        float(test[best]),
    )


def _checked_grid(powers: Any, step_sizes: Any) -> tuple[list[int], list[float]]:
    """Return both as lists of numbers; ``residual.run_all`` checks the step sizes.

    Raises:
        ValueError: no list, an empty one, or one that does not hold numbers.
    """
    powers = checks.several("powers", powers)
    step_sizes = checks.several("step_sizes", step_sizes)
    return (
        [checks.count("power", power, 0) for power in powers],
        [checks.number("step_size", step_size) for step_size in step_sizes],
    )


def _no_rows(count: int) -> Table:
    """Return rows to be filled, of which the method is told by its number."""
    dtype = jnp.zeros(0).dtype
    kinds = (np.int64, np.float64, np.int64, np.int32, dtype, dtype, bool, np.int64)
    return Table(*(np.zeros(count, kind) for kind in kinds))


def _with_rows(
    rows: Table, power: int, step_size: float, found: residual.Trajectory
) -> Table:
    """Return the rows, and after them one of each split."""
    step, val, test, diverged = map(
        np.atleast_1d,
        (found.best_step, found.best_val, found.best_test, found.report.diverged),
    )
    same = np.ones(len(step))
    method = methods.METHODS.index(found.report.method)
    more = (
        same * power,
        same * step_size,
        np.arange(len(step)),
        step,
        val,
        test,
        diverged,
        same * method,
    )
    return Table(
        *(
            np.concatenate([old, np.asarray(new, old.dtype)])
            for old, new in zip(rows, more, strict=True)
        )
    )
