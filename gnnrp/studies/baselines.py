"""Baselines of RP: majority class, label propagation, RP without features.

``column_lp`` is the form of label propagation on OGB's leaderboard.
"""

import functools
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gnnrp import graph, propagation, sparse
from gnnrp.propagation import Steps, label, similarity
from gnnrp.propagation.problem import Problem, as_split, evaluate, make_problem
from gnnrp.propagation.sizes import Sizes
from gnnrp.runtime import checks, memory, tracing
from gnnrp.runtime.options import Options
from gnnrp.types import MetricFn, Split

LP_ITERATIONS = (*range(1, 11), 20, 50)
LP_ALPHA = 0.9  # of the limit
COLUMN_HOPS, COLUMN_ALPHA = 50, 0.9
_PLAIN_STEPS = 100


class Baseline(NamedTuple):
    """Scores of a baseline on each split."""

    val: Float[np.ndarray, " s"]
    test: Float[np.ndarray, " s"]
    settings: dict[str, Any]
    grid: dict[str, float]  # mean test score of every setting


def run(
    matrix: sparse.Matrix,
    targets: Float[np.ndarray, "n c"],
    splits: Split,
    *,
    metric: MetricFn,
    with_plain: bool,
    options: Options = Options(),
) -> dict[str, Baseline]:
    """Return the baselines by name: "majority", "lp" and, if requested, plain "rp".

    Label propagation takes the best mean validation score of k = 1..10, 20, 50
    iterations at α = 1 and of the limit at α = 0.9. Plain RP, S = A^k, takes the best
    k <= 10, η = 1 and 100 steps: its first step is label propagation.

    Source: Proposition 3.1.
    """
    checks.linear_map("the matrix", matrix)
    splits = as_split(splits)
    problem = make_problem(targets, splits)
    metric = tracing.as_static(metric)
    lp, by_val = _label_propagation(matrix, problem, metric, options)
    result = {"majority": _majority(problem, metric), "lp": lp}
    if with_plain:
        power = 1 + int(np.argmax(by_val[:10]))
        (found,) = propagation.run(  # a baseline warns of nothing
            similarity.Power(matrix, power),
            targets,
            splits,
            Steps([1.0], _PLAIN_STEPS),
            metric=metric,
            options=Options(max_bytes=options.max_bytes),
        )
        settings = {"power": power, "step_size": 1.0, "num_steps": _PLAIN_STEPS}
        result["rp"] = Baseline(found.best_val, found.best_test, settings, {})
    return result


def column_lp(
    edges: graph.EdgesLike,
    targets: Float[np.ndarray, "n c"],
    splits: Split,
    *,
    metric: MetricFn,
) -> Baseline:
    """Return label propagation along A D^-1, as in Table 1 of the paper.

    F <- clip(α A D^-1 F + (1 - α) Z, 0, 1) for 50 hops, with α = 0.9, A without
    self-loops and Z = [Y, 0]. Nothing is chosen by validation.

    Args:
        edges: see ``graph.raw_adjacency``.
        targets: Y, one-hot or one column per task.
        splits: masks (n,), or (s, n).
        metric: such as ``metrics.accuracy``.

    Raises:
        ValueError: edges, targets or masks that do not match.
        TypeError: edges of an unknown type, or ``splits`` is not a split.

    Source: row "LP" of Table 1, from OGB's leaderboard.
    """
    problem = make_problem(targets, as_split(splits))
    metric = tracing.as_static(metric)
    adjacency = graph.normalized_adjacency(
        edges, len(targets), normalization="column", self_loops=0.0
    )
    flat = _propagate_clipped(sparse.prepare(adjacency), _seeds(problem))
    scores = flat.reshape(len(targets), -1, targets.shape[1])
    val, test = evaluate(problem, scores, metric=metric)
    settings = {"num_iterations": COLUMN_HOPS, "alpha": COLUMN_ALPHA}
    return Baseline(val, test, settings, {})


def check_memory(
    targets: Float[np.ndarray, "n c"] | jax.ShapeDtypeStruct,
    splits: Split,
    max_bytes: int | None = None,
) -> None:
    """Check that label propagation of all splits at once fits in memory."""
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


def _majority(problem: Problem, metric: MetricFn) -> Baseline:
    """Score every node by the class frequencies of the training nodes."""
    train = problem.train.astype(problem.targets.dtype)
    shares = (train @ problem.targets) / train.sum(axis=1, keepdims=True)
    scores = np.broadcast_to(shares, (problem.targets.shape[0], *shares.shape))
    val, test = evaluate(problem, jnp.asarray(scores), metric=metric)
    return Baseline(val, test, {}, {})


def _label_propagation(
    matrix: sparse.Matrix, problem: Problem, metric: MetricFn, options: Options
) -> tuple[Baseline, Float[np.ndarray, " k"]]:
    """Return the best label propagation, and the mean validation scores of all."""
    num_nodes, num_classes = problem.targets.shape
    start = _seeds(problem)
    device = jax.device_put(problem)

    def score(flat: Array) -> Float[np.ndarray, "2 s"]:
        scores = flat.reshape(num_nodes, -1, num_classes)
        return evaluate(device, scores, metric=metric)

    current, scores = jnp.array(start), {}
    for previous, k in pairwise((0, *LP_ITERATIONS)):
        current = _propagate(matrix, current, num_iterations=k - previous)
        scores[str(k)] = score(current)
        options.report("baselines", k, max(LP_ITERATIONS) + 1)
    scores["inf"] = score(_limit(matrix, start))
    by_val = np.array([np.mean(val) for val, _ in scores.values()])
    best = list(scores)[int(np.argmax(by_val))]
    is_limit = best == "inf"
    settings = {
        "num_iterations": None if is_limit else int(best),
        "alpha": LP_ALPHA if is_limit else 1.0,
    }
    grid = {k: float(np.mean(test)) for k, (_, test) in scores.items()}
    val, test = scores[best]
    return Baseline(val, test, settings, grid), by_val


def _seeds(problem: Problem) -> Float[np.ndarray, "n columns"]:
    """Return Z = [Y, 0] of all splits, side by side."""
    mask = problem.train.T[:, :, None]
    start = np.where(mask, problem.targets[:, None, :], 0)
    return start.reshape(len(start), -1)


@jax.jit
def _propagate_clipped(
    matrix: sparse.Matrix, start: Float[Array, "n columns"]
) -> Float[Array, "n columns"]:
    def hop(new: Array, _: Array, start: Array) -> Array:
        alpha = jnp.asarray(COLUMN_ALPHA, new.dtype)
        return jnp.clip(alpha * new + (1 - alpha) * start, 0, 1)

    return sparse.propagate(matrix, hop, start, COLUMN_HOPS)


_propagate = jax.jit(label.propagate, static_argnames="num_iterations")
_limit = jax.jit(functools.partial(label.limit, alpha=LP_ALPHA, tolerance=1e-4))
