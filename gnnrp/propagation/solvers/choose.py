"""Choice of a solver: supported, fits in memory, fewest columns multiplied by S."""

import dataclasses

import numpy as np

from gnnrp.propagation import losses
from gnnrp.propagation.problem import Problem, Steps
from gnnrp.propagation.sizes import Sizes, sizes_of
from gnnrp.propagation.solvers.base import Solver, name_of
from gnnrp.propagation.solvers.exact import Exact
from gnnrp.propagation.solvers.iterate import Iterate
from gnnrp.propagation.solvers.krylov import Krylov
from gnnrp.runtime import checks, memory
from gnnrp.types import LinearMap, ResidualFn

REQUESTED = "requested"


@dataclasses.dataclass(frozen=True)
class Auto:
    """Choose the practical solver that multiplies S by the fewest columns.

    It must support the problem and fit in memory. Products dominate the cost of a run,
    apart from the metric, which every solver evaluates at each step.

    Args:
        candidates: solvers to choose from; the first of several equal ones.
    """

    candidates: tuple[Solver, ...] = (Exact(), Krylov(), Iterate())


AUTO = Auto()


def choose(
    solver: Solver | Auto,
    problem: Problem,
    similarity: LinearMap,
    steps: Steps,
    max_bytes: int | None = None,
) -> tuple[Solver, str]:
    """Return a solver that supports the problem and fits in memory, and the reason."""
    sizes = sizes_of(problem, similarity, steps)
    room = memory.room(max_bytes)
    if isinstance(solver, Auto):
        return _choose_cheapest(solver, problem, similarity, sizes, room)
    reason = solver.unsupported(problem, similarity)
    if reason is None and solver.cost(sizes).num_bytes <= room.left:
        return solver, REQUESTED
    others = [x for x in AUTO.candidates if name_of(x) != name_of(solver)]
    others = [x for x in others if x.unsupported(problem, similarity) is None]
    if reason is not None:
        names = " or ".join(repr(name_of(each)) for each in others)
        msg = f"solver {name_of(solver)!r} is not supported: {reason}; use {names}"
        raise ValueError(msg)
    _check_memory(solver, others, sizes, room)
    return solver, REQUESTED


def _choose_cheapest(
    auto: Auto, problem: Problem, similarity: LinearMap, sizes: Sizes, room: memory.Room
) -> tuple[Solver, str]:
    """Return the cheapest candidate and the reason; support may take products."""
    costs = [(each, each.cost(sizes)) for each in auto.candidates]
    costs = [pair for pair in costs if pair[1].is_practical] or costs
    unsupported: dict[str, list[str]] = {}  # solvers by reason
    fitting = [pair for pair in costs if pair[1].num_bytes <= room.left]
    too_large = []
    for solver, cost in sorted(costs, key=lambda pair: pair[1].num_columns):
        if reason := solver.unsupported(problem, similarity):
            unsupported.setdefault(reason, []).append(name_of(solver))
            fitting = [pair for pair in fitting if pair[0] is not solver]
        elif cost.num_bytes <= room.left:
            break
        else:
            too_large.append((solver, cost))
    reasons = [f"not {', '.join(names)}: {why}" for why, names in unsupported.items()]
    if not fitting and too_large:
        smallest = min(too_large, key=lambda pair: pair[1].num_bytes)[0]
        _check_memory(smallest, [], sizes, room)
    if not fitting:
        msg = (
            f"no candidate supports this problem ({'; '.join(reasons)}); add Iterate()"
        )
        raise ValueError(msg)
    counts = (f"{name_of(each)} {cost.num_columns:,}" for each, cost in fitting)
    lacks = (
        f"{memory.LACK} not {name_of(each)}, which "
        f"{memory.compare(cost.num_bytes, room)}"
        for each, cost in too_large
    )
    fewest = f"fewest columns through S: {', '.join(counts)}"
    return solver, "; ".join([fewest, *lacks, *reasons])


def _check_memory(
    solver: Solver, others: list[Solver], sizes: Sizes, room: memory.Room
) -> None:
    """Refuse a solver that does not fit in memory, and name alternatives that do."""
    ways = [
        f"the solver {name_of(each)!r}, about "
        f"{memory.format_bytes(each.cost(sizes).num_bytes)}"
        for each in others
        if each.cost(sizes).num_bytes <= room.left
    ]
    if not ways:
        smaller = (
            ("one split at a time", sizes.num_splits > 1),
            ("one step size at a time", sizes.num_step_sizes > 1),
            ("float32", sizes.itemsize > np.dtype(np.float32).itemsize),
        )
        ways = [way for way, applies in smaller if applies] or ["a smaller graph"]
    memory.check(
        f"the solver {name_of(solver)!r} on {sizes.num_nodes:,} nodes",
        solver.cost(sizes).num_bytes,
        room,
        f"take {' or '.join(ways)}",
    )


NAMES = ("auto", "exact", "krylov", "iterate")
"""Names of the solvers in settings and on the command line."""


def by_name(name: str, residual_fn: ResidualFn = losses.squared) -> Solver | Auto:
    """Return a solver by its name; for another than the squared loss, only Iterate."""
    checks.one_of("method", name, NAMES)
    if residual_fn is losses.squared and name != "iterate":
        return {"auto": AUTO, "exact": Exact(), "krylov": Krylov()}[name]
    if name in {"auto", "iterate"}:
        return Iterate(residual_fn)
    msg = f"method {name!r} supports the squared loss only; use 'iterate'"
    raise ValueError(msg)
