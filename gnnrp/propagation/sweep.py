"""The grid search of the paper: step sizes times powers, sharing their products."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gnnrp import _checks
from gnnrp.propagation import losses, residual, similarity
from gnnrp.propagation._forms import initial_residual
from gnnrp.propagation.problem import make_problem
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
    callback: Callable[[int, int], None] | None = None,
) -> Table:
    """Run RP for every power and step size; all step sizes share their products.

    Of the powers A^K themselves, ascending, each takes its first product on from that
    of the one before, in the Krylov form, where it is one of few.

    Args:
        adjacency: A, such as a matrix from ``spmm.prepare``.
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
        callback: called with (powers done, number of powers).

    Raises:
        ValueError: an empty or invalid grid; what ``residual.run`` refuses.

    Source: App. D.2, grid of the hyperparameter search.
    """
    if len(powers) == 0:
        msg = "powers must hold at least one power"
        raise ValueError(msg)
    for power in powers:
        _checks.count("power", power, 0)
    ascending = all(np.diff(powers) >= 0)
    closed = residual_fn is losses.squared and method != "iterate"
    shared = closed and ascending and make_similarity is similarity.Power
    hops = _FirstProducts(adjacency, targets, split) if shared else None
    rows = []
    for done, power in enumerate(powers, start=1):
        trajectories = residual.run_all(
            make_similarity(adjacency, power),
            targets,
            split,
            step_sizes=step_sizes,
            num_steps=num_steps,
            metric=metric,
            residual_fn=residual_fn,
            method=method,
            select=select,
            patience=patience,
            sent=functools.partial(hops.at, power) if hops else None,
        )
        for step_size, found in zip(step_sizes, trajectories, strict=True):
            rows += _rows(power, step_size, found)
        if callback:
            callback(done, len(powers))
    return Table(*(np.array(column) for column in zip(*rows, strict=True)))


class _FirstProducts:
    """A^K [Y, 0] of ascending K."""

    def __init__(self, adjacency: LinearMap, targets: Any, split: Split) -> None:
        start = initial_residual(make_problem(targets, split, None))
        self._value = jnp.moveaxis(jnp.asarray(start), 0, 1)
        self._adjacency, self._power = adjacency, 0

    def at(self, power: int) -> Float[Array, "n s c"]:
        columns = self._value.reshape(len(self._value), -1)
        more = similarity.Power(self._adjacency, power - self._power)
        sent = similarity.product(similarity.as_pytree(more), columns)
        self._value = sent.reshape(self._value.shape)
        self._power = power
        return self._value


def winner(table: Table) -> Winner:
    """Return the setting with the best mean validation score; the first of several.

    Settings with a split that scored NaN take no part.

    Raises:
        ValueError: every setting has such a split.
    """
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


def _rows(power: int, step_size: float, found: residual.Trajectory) -> list[tuple]:
    columns = map(
        np.atleast_1d,
        (found.best_step, found.best_val, found.best_test, found.report.diverged),
    )
    return [
        (power, step_size, split, *values, found.report.method)
        for split, values in enumerate(zip(*columns, strict=True))
    ]
