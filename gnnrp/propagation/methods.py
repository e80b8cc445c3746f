"""How a run takes its steps: which method serves, and which sends fewest columns."""

import jax
import jax.numpy as jnp
import numpy as np

from gnnrp.propagation import _forms, losses
from gnnrp.propagation.problem import Problem
from gnnrp.types import LinearMap, ResidualFn

METHODS = ("auto", "exact", "krylov", "iterate")
EXACT_UP_TO = 2_000  # training nodes: 64 MB and about two seconds of eigh
KRYLOV_VECTORS = 48  # that a space takes, about; real graphs took 20 to 64
_SHARED = "rows are shared by devices, eigenvectors of S_XX are of one machine"
KRYLOV_BYTES = 2**31  # for the Krylov vectors


def choose(
    method: str,
    similarity: LinearMap,
    problem: Problem,
    residual_fn: ResidualFn,
    num_steps: int,
    num_step_sizes: int,
) -> tuple[str, str]:
    """Return the method and why, or refuse one that cannot serve.

    Raises:
        ValueError: the method asked for does not serve.
    """
    obstacle = None
    if residual_fn is not losses.squared:
        obstacle = "only the squared loss has a closed form"
    elif problem.known is not None:
        obstacle = "some training targets are unknown, so the columns differ in S_XX"
    elif method != "iterate" and not _is_symmetric(similarity, problem):
        obstacle = "the similarity is not symmetric"
    if method == "exact" and problem.is_shared:
        obstacle = obstacle or _SHARED
    if method != "auto":
        if obstacle and method != "iterate":
            other = "krylov" if obstacle == _SHARED else "iterate"
            msg = f'method={method!r} does not serve: {obstacle}; use method="{other}"'
            raise ValueError(msg)
        return method, "asked for"
    if obstacle:
        return "iterate", obstacle
    columns = _columns(problem, num_steps, num_step_sizes)
    fewest = min(columns, key=lambda name: columns[name])
    told = ", ".join(f"{name} {count:,}" for name, count in columns.items())
    return fewest, f"fewest columns through S: {told}"


def _columns(problem: Problem, num_steps: int, num_step_sizes: int) -> dict[str, int]:
    """Return how many columns each method that can serve would send through S.

    That is what runs cost, but for the eigenvectors of S_XX, which are kept small, and
    the metric, which all methods evaluate at every step.
    """
    width = len(problem.train) * problem.targets.shape[1]
    sizes = np.asarray(problem.train.sum(axis=1))
    columns = {}
    if sizes.max() <= EXACT_UP_TO and not problem.is_shared:
        columns["exact"] = int(sizes.sum())
    vectors = min(num_steps + 1, int(sizes.max()), KRYLOV_VECTORS)
    if _forms.krylov_capacity(problem, KRYLOV_BYTES) >= vectors:
        columns["krylov"] = vectors * width
    columns["iterate"] = num_steps * num_step_sizes * width
    return columns


def _is_symmetric(similarity: LinearMap, problem: Problem) -> bool:
    """Compare <u, S v> with <S u, v> for two random vectors on the nodes."""
    num_nodes = problem.targets.shape[0]
    if problem.is_shared:
        draw = jax.random.normal(jax.random.key(0), (num_nodes, 4))
    else:
        draw = np.random.default_rng(0).standard_normal((num_nodes, 4))
    gap, size = _asymmetry(similarity, draw.astype(problem.targets.dtype))
    eps = np.finfo(problem.targets.dtype).eps
    return bool(np.all(np.asarray(gap) <= 100 * eps * np.asarray(size)))


@jax.jit
def _asymmetry(similarity, x):
    Sx = similarity(x)
    u, v, Su, Sv = x[:, :2], x[:, 2:], Sx[:, :2], Sx[:, 2:]
    gap = jnp.abs(jnp.sum(u * Sv, axis=0) - jnp.sum(Su * v, axis=0))
    return gap, jnp.linalg.norm(u, axis=0) * jnp.linalg.norm(Sv, axis=0)
