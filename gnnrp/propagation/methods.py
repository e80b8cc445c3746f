"""How a run takes its steps: which method serves, fits, and sends fewest columns."""

import jax
import numpy as np

from gnnrp import sparse
from gnnrp.propagation import _forms, losses, symmetry
from gnnrp.propagation.problem import Problem
from gnnrp.runtime import memory, peaks
from gnnrp.types import LinearMap, ResidualFn

METHODS = ("auto", "exact", "krylov", "iterate")
EXACT_UP_TO = 2_000  # training nodes: 64 MB and about two seconds of eigh
KRYLOV_VECTORS = 48  # that a space takes, about; real graphs took 20 to 64
KRYLOV_BYTES = 2**31  # for the Krylov vectors, at most
_SHARED = "rows are shared by devices, eigenvectors of S_XX are of one machine"


def choose(
    method: str,
    similarity: LinearMap,
    problem: Problem,
    residual_fn: ResidualFn,
    num_steps: int,
    num_step_sizes: int,
    max_bytes: int | None = None,
) -> tuple[str, str, int]:
    """Return the method, why, and what Krylov vectors may take.

    Args:
        method: asked for, or "auto".
        similarity: S.
        problem: of the run.
        residual_fn: see ``losses``.
        num_steps: t.
        num_step_sizes: how many at once.
        max_bytes: what may be held in all; what there is if left out.

    Raises:
        ValueError: the method asked for does not serve; it, or any, does not fit.
    """
    obstacle = None
    if residual_fn is not losses.squared:
        obstacle = "only the squared loss has a closed form"
    elif problem.known is not None:
        obstacle = "some training targets are unknown, so the columns differ in S_XX"
    elif method != "iterate":
        num_nodes, dtype = len(problem.targets), problem.targets.dtype
        obstacle = symmetry.obstacle(similarity, num_nodes, dtype)
    if method == "exact" and problem.is_shared:
        obstacle = obstacle or _SHARED
    if method != "auto" and obstacle and method != "iterate":
        other = "krylov" if obstacle == _SHARED else "iterate"
        msg = f'method={method!r} does not serve: {obstacle}; use method="{other}"'
        raise ValueError(msg)
    sizes = sizes_of(similarity, problem, num_steps, num_step_sizes)
    room = memory.room(max_bytes)
    serving = METHODS[2:] if problem.is_shared else METHODS[1:]
    serving = ("iterate",) if obstacle else serving
    needed = {name: peak(name, sizes) for name in serving}
    if method == "auto":
        columns = _columns(problem, sizes)
        columns = {name: columns[name] for name in serving if name in columns}
        least = min(columns, key=lambda name: needed[name])
        _check(least, {least: needed[least]}, sizes, room)
        method, reason = _fewest(columns, needed, room)
        reason = obstacle or reason
    else:
        _check(method, needed, sizes, room)
        reason = "asked for"
    return method, reason, _krylov_bytes(sizes, room)


def _fewest(
    columns: dict[str, int], needed: dict[str, int], room: memory.Room
) -> tuple[str, str]:
    """Return what fits and sends the fewest columns, and why."""
    fitting = {name: x for name, x in columns.items() if needed[name] <= room.left}
    fewest = min(fitting, key=lambda name: fitting[name])
    told = ", ".join(f"{name} {count:,}" for name, count in fitting.items())
    lacking = [
        f"; {memory.LACK} not {name}, which {memory.told(needed[name], room)}"
        for name, count in columns.items()
        if name not in fitting and count <= fitting[fewest]
    ]
    return fewest, f"fewest columns through S: {told}" + "".join(lacking)


def sizes_of(
    similarity: LinearMap, problem: Problem, num_steps: int, num_step_sizes: int
) -> peaks.Sizes:
    """Return the sizes of a run, of which its memory is estimated."""
    num_nodes, num_classes = problem.targets.shape
    num_train = int(problem.train.sum(axis=1).max())
    if problem.is_shared:  # what this process holds of it
        held = len(problem.targets.addressable_shards)
        num_nodes = num_nodes * held // len(problem.targets.sharding.device_set)
        num_judged = 2 * num_nodes
    else:
        num_judged = problem.val.index.shape[1] + problem.test.index.shape[1]
    return peaks.Sizes(
        num_nodes,
        num_classes,
        num_splits=len(problem.train),
        num_train=num_train,
        num_judged=num_judged,
        num_steps=num_steps,
        num_step_sizes=num_step_sizes,
        num_entries=_entries(similarity),
        itemsize=problem.targets.dtype.itemsize,
    )


def peak(method: str, sizes: peaks.Sizes) -> int:
    """Return what a method is estimated to hold beside what it is given."""
    if method == "exact":
        return peaks.exact(sizes)
    if method == "iterate":
        return peaks.iterated(sizes)
    fitting = KRYLOV_BYTES // _vector_bytes(sizes)
    return peaks.krylov(sizes, max(1, min(_usual_vectors(sizes), fitting)))


def _krylov_bytes(sizes: peaks.Sizes, room: memory.Room) -> int:
    """Return what the Krylov vectors may take, of what there is for all."""
    one, two = (peaks.krylov(sizes, number) for number in (64, 128))
    fitting = 64 + (room.left - one) * 64 // max(1, two - one)  # it is almost linear
    return min(KRYLOV_BYTES, max(1, fitting) * _vector_bytes(sizes))


def _usual_vectors(sizes: peaks.Sizes) -> int:
    return min(sizes.num_steps + 1, sizes.num_train, KRYLOV_VECTORS)


def _vector_bytes(sizes: peaks.Sizes) -> int:
    """Return the bytes of a Krylov vector of all splits, not zero."""
    numbers = sizes.num_nodes * sizes.num_classes * sizes.num_splits
    return max(1, numbers * sizes.itemsize)


def _check(
    method: str,
    needed: dict[str, int],
    sizes: peaks.Sizes,
    room: memory.Room,
) -> None:
    """Refuse a method that does not fit, and say which of those that serve does.

    Raises:
        ValueError: it does not fit.
    """
    ways = [
        f'method="{name}", about {memory.said(num_bytes)}'
        for name, num_bytes in needed.items()
        if num_bytes <= room.left
    ]
    if not ways:
        flags = (
            ("one split at a time", sizes.num_splits > 1),
            ("one step size at a time", sizes.num_step_sizes > 1),
            ("float32", sizes.itemsize > np.dtype(np.float32).itemsize),
        )
        ways = [name for name, has in flags if has] or ["a smaller graph"]
    what = f'method="{method}" on {sizes.num_nodes:,} nodes'
    memory.check(what, needed[method], room, f"take {' or '.join(ways)}")


def _entries(similarity: LinearMap) -> int:
    """Return the entries of the largest sparse matrix in a similarity."""

    def is_matrix(node: object) -> bool:
        return isinstance(node, sparse.Matrix)

    leaves = jax.tree.leaves(similarity, is_leaf=is_matrix)
    return max((x.data.size for x in leaves if is_matrix(x)), default=0)


def _columns(problem: Problem, sizes: peaks.Sizes) -> dict[str, int]:
    """Return how many columns each method that can serve would send through S.

    That is what runs cost, but for the eigenvectors of S_XX, which are kept small, and
    the metric, which all methods evaluate at every step.
    """
    width = sizes.num_splits * sizes.num_classes
    columns = {}
    if sizes.num_train <= EXACT_UP_TO:
        columns["exact"] = int(problem.train.sum())
    vectors = _usual_vectors(sizes)
    if _forms.krylov_capacity(problem, KRYLOV_BYTES) >= vectors:
        columns["krylov"] = vectors * width
    columns["iterate"] = sizes.num_steps * sizes.num_step_sizes * width
    return columns
