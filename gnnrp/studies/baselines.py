"""What RP is compared with: majority class, label propagation, RP without features."""

import functools
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gnnrp import propagation, sparse
from gnnrp.propagation import Steps, label, similarity
from gnnrp.propagation.problem import Problem, as_split, judge, make_problem
from gnnrp.propagation.sizes import Sizes
from gnnrp.runtime import checks, memory, tracing
from gnnrp.runtime.options import Options
from gnnrp.types import MetricFn, Split

LP_ITERATIONS = (*range(1, 11), 20, 50)
LP_ALPHA = 0.9  # of the converged form
_PLAIN_STEPS = 100


class Line(NamedTuple):
    """A baseline's score on each split."""

    val: Float[np.ndarray, " s"]
    test: Float[np.ndarray, " s"]
    settings: dict[str, Any]
    grid: dict[str, float]  # mean test score of every setting tried


def run(
    matrix: sparse.Matrix,
    targets: Float[np.ndarray, "n c"],
    splits: Split,
    *,
    metric: MetricFn,
    with_plain: bool,
    max_bytes: int | None = None,
    callback: Callable[[int, int], None] | None = None,
) -> dict[str, Line]:
    """Return the baselines by name: "majority", "lp" and, asked for, plain "rp".

    Label propagation takes k in 1..10, 20, 50 at α = 1, or runs to its end at α = 0.9,
    whichever has the best mean validation score. Plain RP starts from the best k <= 10:
    S = A^k, η = 1, 100 steps, whose first step is label propagation.

    Raises:
        ValueError: targets or masks that do not fit.
        TypeError: what is no linear map, or no split.

    Source: Proposition 3.1.
    """
    checks.linear_map("the matrix", matrix)
    splits = as_split(splits)
    problem = make_problem(targets, splits)
    metric = tracing.as_static(metric)
    lines = {
        "majority": _majority(problem, metric),
        "lp": _lp(matrix, problem, metric, callback),
    }
    if with_plain:
        by_val = lines["lp"].settings.pop("val_by_iterations")
        power = 1 + int(np.argmax(by_val[:10]))
        (found,) = propagation.run(  # a baseline warns of nothing
            similarity.Power(matrix, power),
            targets,
            splits,
            Steps([1.0], _PLAIN_STEPS),
            metric=metric,
            options=Options(max_bytes=max_bytes),
        )
        chosen = {"power": power, "step_size": 1.0, "num_steps": _PLAIN_STEPS}
        lines["rp"] = Line(found.best_val, found.best_test, chosen, {})
    lines["lp"].settings.pop("val_by_iterations", None)
    return lines


def check_memory(
    targets: Float[np.ndarray, "n c"] | jax.ShapeDtypeStruct,
    splits: Split,
    max_bytes: int | None = None,
) -> None:
    """Refuse splits whose label propagation would not fit, all of them at once.

    Args:
        targets: Y, or its shape alone, before it is allocated.
        splits: all of them.
        max_bytes: see ``runtime.memory.room``.

    Raises:
        ValueError: it would not.
        TypeError: no split.
    """
    train, val, test = map(np.atleast_2d, as_split(splits))
    sizes = Sizes(
        *targets.shape,
        num_splits=len(train),
        num_train=0,
        num_evaluated=int(np.max(val.sum(axis=1)) + np.max(test.sum(axis=1))),
        num_steps=0,
        itemsize=jnp.zeros(0).dtype.itemsize,
    )
    memory.check(
        f"label propagation of {len(train)} split(s) on {targets.shape[0]:,} nodes",
        label.limit_bytes(sizes),
        memory.room(max_bytes),
        "take one split at a time" if len(train) > 1 else "take a smaller graph",
    )


def _majority(problem: Problem, metric: MetricFn) -> Line:
    """Score every node by the share of each class among the training nodes."""
    train = problem.train.astype(problem.targets.dtype)
    shares = (train @ problem.targets) / train.sum(axis=1, keepdims=True)
    scores = np.broadcast_to(shares, (problem.targets.shape[0], *shares.shape))
    val, test = judge(problem, jnp.asarray(scores), metric=metric)
    return Line(val, test, {}, {})


def _lp(
    matrix: sparse.Matrix,
    problem: Problem,
    metric: MetricFn,
    callback: Callable[[int, int], None] | None,
) -> Line:
    num_nodes, num_classes = problem.targets.shape
    mask = problem.train.T[:, :, None]
    start = np.where(mask, problem.targets[:, None, :], 0).reshape(num_nodes, -1)
    device = jax.device_put(problem)

    def scores_of(flat: Array) -> Float[np.ndarray, "2 s"]:
        scores = flat.reshape(num_nodes, -1, num_classes)
        return judge(device, scores, metric=metric)

    current, tried = jnp.array(start), {}
    for done, k in pairwise((0, *LP_ITERATIONS)):
        current = _hops(matrix, current, num_iterations=k - done)
        tried[str(k)] = scores_of(current)
        if callback:
            callback(k, max(LP_ITERATIONS) + 1)
    tried["inf"] = scores_of(_limit(matrix, start))
    val = np.array([np.mean(curve[0]) for curve in tried.values()])
    best = list(tried)[int(np.argmax(val))]
    chosen: dict[str, Any] = {
        "num_iterations": None if best == "inf" else int(best),
        "alpha": LP_ALPHA if best == "inf" else 1.0,
        "val_by_iterations": val,
    }
    grid = {k: float(np.mean(curve[1])) for k, curve in tried.items()}
    val, test = tried[best]
    return Line(val, test, chosen, grid)


_hops = jax.jit(label.propagate, static_argnames="num_iterations")
_limit = jax.jit(functools.partial(label.limit, alpha=LP_ALPHA, tolerance=1e-4))
