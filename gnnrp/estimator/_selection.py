"""Power, step size and number of steps where they are left out: by validation."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from gnnrp import metrics
from gnnrp.estimator._inputs import OPTIONAL, Task
from gnnrp.propagation import residual, sweep
from gnnrp.studies.presets import RPSettings
from gnnrp.types import Split

MOST_STEPS = 100  # looked at where their number is left out, as in the paper's search


class Choice(NamedTuple):
    """A setting, and its score on the validation nodes."""

    power: int
    step_size: float
    best_step: int
    val: float


def run(
    task: Task, settings: RPSettings, params: dict[str, Any]
) -> tuple[Choice, residual.Trajectory]:
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
            remarks = _fitted(part, chosen, steps).report.remarks
            late = {kind: x for kind, x in remarks.items() if kind == "last step"}
        steps = chosen.best_step
    elif free - {"num_steps"}:
        chosen = best(task, **grid)
    found = _fitted(task, chosen, steps)
    report = found.report._replace(remarks=late | found.report.remarks)
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
    split = task.split()
    grid = {"step_sizes": step_sizes, "num_steps": num_steps}
    if task.initial is None:
        table = sweep.run(
            task.matrix,
            task.targets,
            split,
            powers=powers,
            make_similarity=task.make_similarity,
            **grid,
            **task.options(),
        )
    else:  # which a sweep does not take
        table = _from(task, split, powers, grid)
    won = sweep.winner(table)
    row = (table.power == won.power) & (table.step_size == won.step_size)
    step = int(table.best_step[np.argmax(row)])
    return Choice(won.power, won.step_size, step, won.val)


def _fitted(task: Task, chosen: Choice, num_steps: int) -> residual.Trajectory:
    """Run RP with the chosen power and step size."""
    (found,) = residual.run_all(
        task.make_similarity(task.matrix, chosen.power),
        task.targets,
        task.split(),
        step_sizes=[chosen.step_size],
        num_steps=num_steps,
        initial=task.initial,
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


def _from(
    task: Task, split: Split, powers: tuple[int, ...], grid: dict[str, Any]
) -> sweep.Table:
    """Return the table of a sweep that begins at F_0."""
    rows = []
    for power in powers:
        trajectories = residual.run_all(
            task.make_similarity(task.matrix, power),
            task.targets,
            split,
            initial=task.initial,
            **grid,
            **task.options(),
        )
        for step_size, found in zip(grid["step_sizes"], trajectories, strict=True):
            best = (found.best_step, found.best_val, found.best_test)
            told = (found.report.diverged, found.report.method)
            rows.append((power, step_size, 0, *best, *told))
    return sweep.Table(*map(np.array, zip(*rows, strict=True)))
