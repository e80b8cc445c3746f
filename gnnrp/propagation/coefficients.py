"""Coefficients α of a run on its training nodes: F_t = F_0 + S[:, X] α_t.

A run is the pair of α and S, as in kernel regression. Along a similarity S of a larger
graph with the same training nodes, one product S[:, X] α gives scores of its nodes.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from gnnrp.propagation import linear_maps, residual
from gnnrp.propagation.problem import Problem, Steps, make_problem
from gnnrp.propagation.solvers import exact, krylov
from gnnrp.propagation.solvers.base import Solver
from gnnrp.propagation.solvers.choose import AUTO, Auto, choose
from gnnrp.propagation.solvers.exact import Exact
from gnnrp.propagation.solvers.iterate import Iterate
from gnnrp.propagation.solvers.krylov import Krylov
from gnnrp.runtime import checks, tracing
from gnnrp.types import LinearMap, Split


def compute(
    similarity: LinearMap,
    targets: Float[Any, "n c"],
    train_mask: Bool[Any, " n"],
    steps: Steps[float],
    *,
    initial: Float[Any, "n c"] | None = None,
    solver: Solver | Auto = AUTO,
) -> Float[np.ndarray, "l c"]:
    """Return α_t = η Σ_{s<t} R_s on the training nodes, in their order.

    ``Exact()`` and ``Krylov()`` have closed forms of the sum, and ``Iterate`` takes the
    steps, for every loss. With a singular S_XX, α is not the only one that gives F_t.

    Args:
        similarity: S.
        targets: Y; NaN where unknown.
        train_mask: X.
        steps: step size η and number of steps t.
        initial: F_0, zero by default.
        solver: ``Exact()``, ``Krylov()``, ``Iterate(residual_fn)`` or ``AUTO``.

    Raises:
        ValueError: shapes or values do not fit, several step sizes, devices share the
            rows, or the solver does not support the problem or does not fit in memory.
        TypeError: an argument is of another type.

    Source: Eq. 6, summed over the steps; Theorem 3.2.

    Example:
        >>> from gnnrp import graph, propagation, sparse
        >>> A = sparse.prepare(graph.normalized_adjacency(np.array([[0, 1], [1, 2]])))
        >>> S = propagation.similarity.Power(A, 2)
        >>> Y, X = np.eye(2)[[0, 0, 1]], np.array([True, False, True])
        >>> alpha = compute(S, Y, X, propagation.Steps(0.5, 10))
        >>> scores = linear_maps.columns(S, np.flatnonzero(X), 3) @ alpha
        >>> scores.argmax(axis=1).tolist()
        [0, 0, 1]
    """
    checks.instance("steps", steps, Steps, "Steps(step_size, num_steps) makes one")
    if not steps.is_single:
        msg = f"steps must have one step size, got {len(steps.step_sizes)}; take one"
        raise ValueError(msg)
    if not isinstance(solver, Exact | Krylov | Iterate | Auto):
        msg = (
            "solver must be Exact(), Krylov(), Iterate() or AUTO, got "
            f"{checks.format_value(solver)}"
        )
        raise TypeError(msg)
    mask = checks.mask("train_mask", train_mask, len(targets))
    none = jnp.zeros_like(mask) if isinstance(mask, jax.Array) else np.zeros_like(mask)
    masks: Any = mask, none, none
    problem = make_problem(targets, Split(*masks), initial)
    if problem.is_sharded:
        msg = (
            "coefficients need all rows on one device, and devices share those of the "
            "targets; use residual.coefficients"
        )
        raise ValueError(msg)
    checks.representable("step_size", steps.step_sizes, problem.targets.dtype)
    similarity = linear_maps.full_map(linear_maps.as_pytree(similarity))
    linear_maps.check(similarity, problem.targets)
    chosen, _ = choose(solver, problem, similarity, steps)
    similarity = linear_maps.restrict(similarity, problem.train[0])
    if isinstance(chosen, Exact):
        return _exact(similarity, problem, steps)
    if isinstance(chosen, Krylov):
        return krylov.train_coefficients(similarity, problem, steps)
    assert isinstance(chosen, Iterate)
    return _iterate(similarity, problem, steps, chosen)


def _exact(
    similarity: LinearMap, problem: Problem, steps: Steps[float]
) -> Float[np.ndarray, "l c"]:
    train = np.flatnonzero(problem.train[0])
    num_nodes, dtype = len(problem.targets), problem.targets.dtype
    columns = linear_maps.columns(similarity, train, num_nodes, dtype=dtype)
    alpha = exact.coefficients(
        exact.factorize(columns, train),
        problem.initial_residual[0, train].astype(np.float64),
        step_size=steps.step_size,
        num_steps=steps.num_steps,
    )
    return alpha.astype(dtype)


def _iterate(
    similarity: LinearMap, problem: Problem, steps: Steps[float], solver: Iterate
) -> Float[np.ndarray, "l c"]:
    mask = problem.train[0][:, None]
    if problem.known is not None:
        mask = mask & problem.known
    start = None if problem.initial is None else jnp.asarray(problem.initial[0])
    alpha = _sum_steps(
        tracing.as_argument(similarity),
        jnp.asarray(problem.targets),
        jnp.asarray(mask),
        start,
        (jnp.asarray(steps.step_size, problem.targets.dtype), steps.num_steps),
        residual_fn=tracing.as_static(solver.residual_fn),
    )
    return np.asarray(alpha)[problem.train[0]]


@tracing.Jit
def _sum_steps(similarity, targets, mask, start, steps, *, residual_fn):
    step_size, num_steps = steps
    return residual.coefficients(
        similarity,
        targets,
        mask,
        step_size=step_size,
        num_steps=num_steps,
        initial=start,
        residual_fn=residual_fn,
    )
