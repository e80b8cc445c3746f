"""Remarks on results that may mislead: too few steps, or one class for all nodes."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gnnrp.propagation._report import Found, grown
from gnnrp.propagation.problem import Problem, judge
from gnnrp.types import MetricFn


def of_run(
    found: Found, problem: Problem, metric: MetricFn, num_steps: int
) -> dict[str, str]:
    """Return a sentence for each remark, by its kind, of all splits together.

    Splits whose residual grew are left out: their report has its own explanation.

    Args:
        found: the result of a driver.
        problem: of the run.
        metric: from ``runtime.tracing.as_static``.
        num_steps: the most that validation could choose.
    """
    bounded = grown(found.train_residual) == 0
    late = bounded & _rises_to_the_end(found, problem, num_steps)
    same = bounded & _is_constant(found, problem, metric)
    remarks = {}
    if late.any():
        remarks["last step"] = (
            f"the validation score is best at the last of {num_steps:,} steps"
            f"{_where(late)} and may still rise; take more steps"
        )
    if same.any():
        remarks["one class"] = (
            f"all nodes are predicted to be of one class{_where(same)}; check the "
            "graph, the training nodes, and the numbers of steps and hops"
        )
    return remarks


def _where(flags: Bool[np.ndarray, " s"]) -> str:
    total = len(flags)
    return f" in {int(flags.sum())} of {total} splits" if total > 1 else ""


def _rises_to_the_end(
    found: Found, problem: Problem, num_steps: int
) -> Bool[np.ndarray, " s"]:
    """Return a flag for each split: its first best step is the very last one.

    A plateau does not count, although ``select="last"`` keeps its end: more steps would
    not change its score. Nor does a single step, or a split without validation nodes.
    """
    rising = np.asarray(found.selection.rising) == num_steps
    if num_steps == 1 or not rising.any():
        return np.zeros_like(rising)
    return rising & np.asarray(jnp.any(problem.val.mask, axis=1))


def _is_constant(
    found: Found, problem: Problem, metric: MetricFn
) -> Bool[np.ndarray, " s"]:
    """Return a flag for each split: all nodes get one class, though training has more.

    A metric that sees more in the scores than their largest entry, as a ROC-AUC does,
    exempts a split: an imbalanced class may well be the largest everywhere.
    """
    F = found.predictions
    count = range(len(F))  # one split at a time: memory
    ends = [_winners(F[split]) for split in count]
    same = np.array([bool(low >= high) for low, high in ends])
    if not same.any() or not (same := same & _has_classes(problem)).any():
        return same
    decisions = jnp.stack([_decisions(F[split]) for split in count])
    scores = [
        np.asarray(judge(problem, jnp.moveaxis(jnp.asarray(x), 0, 1), metric=metric))
        for x in (F, decisions)
    ]
    with np.errstate(invalid="ignore"):
        return same & ~(np.abs(scores[0] - scores[1]) > 0).any(axis=0)


def _has_classes(problem: Problem) -> Bool[np.ndarray, " s"]:
    """Return a flag for each split: training nodes are of several classes, one each."""
    flags = _classes(problem.targets, problem.train, problem.known)
    return np.asarray(flags)


@jax.jit
def _classes(targets, train, known):
    one_hot = (jnp.max(targets, axis=1) == 1) & (jnp.sum(targets != 0, axis=1) == 1)
    if known is not None:
        one_hot &= known.all(axis=1)
    present = jnp.matmul(train.astype(targets.dtype), jnp.abs(targets)) > 0
    return ~jnp.any(train & ~one_hot[None], axis=1) & (jnp.sum(present, axis=1) > 1)


@jax.jit
def _winners(F: Float[Array, "n c"]) -> tuple[Array, Array]:
    """Return the lowest and the highest class with the largest score of any node.

    A node without scores has no prediction; of shared rows, some are blank.
    """
    reached, winner = jnp.any(F != 0, axis=1), jnp.argmax(F, axis=1)
    lowest = jnp.min(jnp.where(reached, winner, F.shape[1]))
    return lowest, jnp.max(jnp.where(reached, winner, -1))


@jax.jit
def _decisions(F: Float[Array, "n c"]) -> Float[Array, "n c"]:
    """Return the largest score of each node as a one-hot row."""
    one_hot = jax.nn.one_hot(jnp.argmax(F, axis=1), F.shape[1], dtype=F.dtype)
    return jnp.where(jnp.any(F != 0, axis=1)[:, None], one_hot, 0)
