"""Power, step size and number of steps where they are left out: by validation."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from gnnrp import metrics, propagation
from gnnrp.estimator._inputs import OPTIONAL, Task
from gnnrp.propagation import Steps, sweep
from gnnrp.studies.presets import RPSettings

MOST_STEPS = 100  # looked at where their number is left out, as in the paper's search


class Choice(NamedTuple):
    """A setting, and its score on the validation nodes."""

    power: int
    step_size: float
    best_step: int
    val: float


def run(
    task: Task, settings: RPSettings, params: dict[str, Any]
) -> tuple[Choice, propagation.Trajectory]:
    """Choose by validation what is left out (None), and run RP with it.

    Args:
        task: see ``estimator._inputs.make``.
        settings: power, step size and number of steps, where they are given.
        params: of the estimator: which of them are None; holdout and seed, for
            ``held_out``, of use without validation nodes only.

    Raises:
        ValueError: no setting has a validation score; nothing can be held out.
    """
    free = {name for name in OPTIONAL if params[name] is None}
    powers = sweep.POWERS if "power" in free else (settings.power,)
    step_sizes = sweep.STEP_SIZES if "step_size" in free else (settings.step_size,)
    steps = MOST_STEPS if "num_steps" in free else settings.num_steps
    chosen = Choice(powers[0], step_sizes[0], steps, float("nan"))
    grid = {"powers": powers, "step_sizes": step_sizes, "num_steps": steps}
    late = {}
    if free and not task.val.any():
        least = 1 if task.metric is metrics.accuracy else 2
        out = held_out(
            task.codes,
            task.train,
            fraction=float(params["holdout"]),
            seed=int(params["seed"]),
            num_classes=least,
        )
        part = task._replace(train=task.train & ~out, val=out)
        chosen = best(part, **grid)
        if chosen.best_step == steps:  # the end of a plateau, perhaps
            remarks = _fitted(part, chosen, steps).report.warnings
            late = {kind: x for kind, x in remarks.items() if kind == "last step"}
        steps = chosen.best_step
    elif free - {"num_steps"}:
        chosen = best(task, **grid)
    found = _fitted(task, chosen, steps)
    report = found.report._replace(warnings=late | found.report.warnings)
    found = found._replace(report=report)
    if task.val.any():
        chosen = chosen._replace(val=float(found.best_val))
    return chosen._replace(best_step=int(found.best_step)), found


def best(
    task: Task,
    *,
    powers: tuple[int, ...],
    step_sizes: tuple[float, ...],
    num_steps: int,
) -> Choice:
    """Return the setting of the grid that is best on the validation nodes.

    Args:
        task: with validation nodes.
        powers: K, one or more.
        step_sizes: η, one or more.
        num_steps: looked at for each.

    Raises:
        ValueError: no setting has a validation score.
    """
    table = sweep.run(
        {power: task.make_similarity(task.matrix, power) for power in powers},
        task.targets,
        task.split(),
        Steps(step_sizes, num_steps),
        **task.options(),
    )
    won = sweep.winner(table)
    row = (table.power == won.power) & (table.step_size == won.step_size)
    step = int(table.best_step[np.argmax(row)])
    return Choice(won.power, won.step_size, step, won.val)


def _fitted(task: Task, chosen: Choice, num_steps: int) -> propagation.Trajectory:
    """Run RP with the chosen power and step size."""
    (found,) = propagation.run(
        task.make_similarity(task.matrix, chosen.power),
        task.targets,
        task.split(),
        Steps([chosen.step_size], num_steps),
        **task.options(),
    )
    return found


def held_out(
    codes: Int[np.ndarray, " n"],
    train: Bool[np.ndarray, " n"],
    *,
    fraction: float,
    seed: int,
    num_classes: int = 1,
) -> Bool[np.ndarray, " n"]:
    """Return training nodes to hold out: a share of each class, one at least.

    A class of a single training node keeps it.

    Args:
        codes: class of each node.
        train: training nodes.
        fraction: of each class, rounded; in (0, 1).
        seed: of numpy's default generator.
        num_classes: that must be among those held out, for a metric to tell apart.

    Raises:
        ValueError: fewer classes have two training nodes.
    """
    generator = np.random.default_rng(seed)
    result = np.zeros(len(codes), bool)
    for code in np.unique(codes[train]):
        nodes = generator.permutation(np.flatnonzero(train & (codes == code)))
        most = len(nodes) - 1
        result[nodes[: min(most, max(1, round(fraction * len(nodes))))]] = True
    if len(np.unique(codes[result])) < num_classes:
        msg = (
            f"choosing by held-out nodes needs {num_classes} class(es) with two "
            "training nodes at least; pass val_mask, or power, step_size and num_steps"
        )
        raise ValueError(msg)
    return result
