"""Warnings of misleading results: too few steps, or one class for all nodes."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gnnrp.propagation.convergence import divergence_steps
from gnnrp.propagation.problem import Problem, evaluate
from gnnrp.propagation.solvers.base import Solution
from gnnrp.types import MetricFn


def find(
    solution: Solution, problem: Problem, metric: MetricFn, num_steps: int
) -> dict[str, str]:
    """Return the text of each warning by its kind, for all splits together.

    Splits whose residual grew are left out, since their divergence is reported.
    """
    bounded = divergence_steps(solution.train_residual) == 0
    late = bounded & _rises_to_the_end(solution, problem, num_steps)
    same = bounded & _is_constant(solution, problem, metric)
    texts = {}
    if late.any():
        texts["last step"] = (
            f"the validation score is best at the last of {num_steps:,} steps"
            f"{_where(late)} and may still rise; take more steps"
        )
    if same.any():
        texts["one class"] = (
            f"all nodes are predicted to be of one class{_where(same)}; check the "
            "graph, the training nodes, and the numbers of steps and hops"
        )
    return texts


def _where(flags: Bool[np.ndarray, " s"]) -> str:
    total = len(flags)
    return f" in {int(flags.sum())} of {total} splits" if total > 1 else ""


def _rises_to_the_end(
    solution: Solution, problem: Problem, num_steps: int
) -> Bool[np.ndarray, " s"]:
    """Return a flag for each split: its first best step is the last of several.

    A plateau does not count, although the rule "last" selects its end.
    """
    rising = np.asarray(solution.choice.rising) == num_steps
    if num_steps == 1 or not rising.any():
        return np.zeros_like(rising)
    return rising & np.asarray(jnp.any(problem.val.mask, axis=1))


def _is_constant(
    solution: Solution, problem: Problem, metric: MetricFn
) -> Bool[np.ndarray, " s"]:
    """Return a flag for each split: all nodes get one class, though training has more.

    A split is exempt if the metric uses more than the largest score, as a ROC-AUC does:
    an imbalanced class may then have the largest score everywhere.
    """
    F = solution.predictions
    splits = range(len(F))  # one at a time: memory
    extremes = [_extreme_classes(F[split]) for split in splits]
    same = np.array([bool(low >= high) for low, high in extremes])
    if same.any():
        several = _has_several_classes(problem.targets, problem.train, problem.known)
        same &= np.asarray(several)
    if not same.any():
        return same
    decisions = jnp.stack([_one_hot_decisions(F[split]) for split in splits])
    scores = [
        evaluate(problem, jnp.moveaxis(jnp.asarray(x), 0, 1), metric=metric)
        for x in (F, decisions)
    ]
    with np.errstate(invalid="ignore"):
        return same & ~(np.abs(scores[0] - scores[1]) > 0).any(axis=0)


@jax.jit
def _has_several_classes(targets, train, known):
    """Return a flag for each split: training nodes have one class each, not all one."""
    one_hot = (jnp.max(targets, axis=1) == 1) & (jnp.sum(targets != 0, axis=1) == 1)
    if known is not None:
        one_hot &= known.all(axis=1)
    present = jnp.matmul(train.astype(targets.dtype), jnp.abs(targets)) > 0
    return ~jnp.any(train & ~one_hot[None], axis=1) & (jnp.sum(present, axis=1) > 1)


@jax.jit
def _extreme_classes(F: Float[Array, "n c"]) -> tuple[Array, Array]:
    """Return the lowest and the highest class with the largest score of any node.

    A node without scores has no prediction; of shared rows, some are blank.
    """
    reached, winner = jnp.any(F != 0, axis=1), jnp.argmax(F, axis=1)
    lowest = jnp.min(jnp.where(reached, winner, F.shape[1]))
    return lowest, jnp.max(jnp.where(reached, winner, -1))


@jax.jit
def _one_hot_decisions(F: Float[Array, "n c"]) -> Float[Array, "n c"]:
    """Return the largest score of each node as a one-hot row."""
    one_hot = jax.nn.one_hot(jnp.argmax(F, axis=1), F.shape[1], dtype=F.dtype)
    return jnp.where(jnp.any(F != 0, axis=1)[:, None], one_hot, 0)
