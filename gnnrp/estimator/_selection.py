"""Selection of power, step size and number of steps by validation."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from gnnrp import propagation
from gnnrp.estimator import _scores
from gnnrp.estimator._inputs import SELECTED, Inputs
from gnnrp.propagation import Steps, sweep
from gnnrp.studies import choice as auto
from gnnrp.studies.candidates import Candidate, Similarities, Task
from gnnrp.types import LinearMap

NUM_STEPS = 100  # of the grid, as in the paper's search


class Choice(NamedTuple):
    """A setting, and its score on the validation nodes."""

    power: int
    step_size: float
    best_step: int
    val: float
    similarity: str
    trials: list[dict[str, Any]] | None = None  # of an automatic choice
    skipped: dict[str, str] | None = None  # candidate -> reason


class Calibration(NamedTuple):
    """Scores of nodes of which the run has not seen the labels, and their classes."""

    scores: Float[np.ndarray, "q c"]
    codes: Int[np.ndarray, " q"]


class Fit(NamedTuple):
    """The chosen setting, its run, and what calibrates its probabilities."""

    choice: Choice
    trajectory: propagation.Trajectory
    calibration: Calibration | None = None


def fit(inputs: Inputs, params: dict[str, Any]) -> Fit:
    """Choose the parameters that are None by validation, and run RP with them."""
    if inputs.similarity is None:
        return _fit_auto(inputs, params)
    settings = inputs.settings
    free = {name for name in SELECTED if params[name] is None}
    powers = sweep.POWERS if "power" in free else (settings.power,)
    step_sizes = sweep.STEP_SIZES if "step_size" in free else (settings.step_size,)
    num_steps = NUM_STEPS if "num_steps" in free else settings.num_steps
    grid = (powers, step_sizes, num_steps)
    name = str(Candidate((settings,)))
    choice = Choice(powers[0], step_sizes[0], num_steps, float("nan"), name)
    remarks = {}
    if free and not inputs.val.any():
        part = _hold_out(inputs, params)
        choice = best_of_grid(part, *grid)
        if choice.best_step == num_steps:  # unless it is the end of a plateau
            warned = _run(part, choice, num_steps).report.warnings
            remarks = {key: x for key, x in warned.items() if key == "last step"}
        num_steps = choice.best_step
    elif free - {"num_steps"}:
        choice = best_of_grid(inputs, *grid)
    trajectory = _run(inputs, choice, num_steps)
    report = trajectory.report._replace(warnings=remarks | trajectory.report.warnings)
    if inputs.val.any():
        choice = choice._replace(val=float(trajectory.best_val))
    choice = choice._replace(best_step=int(trajectory.best_step))
    trajectory = trajectory._replace(report=report)
    rerun = functools.partial(_run, choice=choice, num_steps=choice.best_step)
    calibration = _calibration(inputs, params, trajectory, rerun)
    return Fit(choice, trajectory, calibration)


def _fit_auto(inputs: Inputs, params: dict[str, Any]) -> Fit:
    """Choose the similarity too."""
    part = inputs if inputs.val.any() else _hold_out(inputs, params)
    task = Task(
        inputs.adjacency,
        inputs.matrix,
        inputs.features,
        inputs.targets,
        part.train[None],
        part.val[None],
        inputs.metric,
    )
    found = auto.choose(task, seconds=float(params["search_seconds"]))
    trial = found.trials[found.chosen[0]]
    settings = trial.candidate.parts[-1]
    step_size, num_steps = trial.step_size, settings.num_steps
    chosen = inputs._replace(settings=settings)
    flow = Similarities(task).build(trial.candidate)
    if part is not inputs:  # more training nodes have a larger λ_max; η t stays
        step_size = auto.step_size_along(flow, inputs.train[None])
        time = float(trial.best_step[0]) * trial.step_size
        num_steps = max(1, round(time / step_size))
    trajectory = _run_along(chosen, flow, step_size, num_steps)
    choice = Choice(
        settings.power,
        step_size,
        int(trajectory.best_step),
        float(trial.val[0]) if inputs.val.any() else float("nan"),
        str(trial.candidate),
        found.as_dict()["trials"],
        found.skipped,
    )
    rerun = functools.partial(
        _run_along, flow=flow, step_size=step_size, num_steps=choice.best_step
    )
    calibration = _calibration(chosen, params, trajectory, rerun)
    return Fit(choice, trajectory, calibration)


def _calibration(
    inputs: Inputs,
    params: dict[str, Any],
    trajectory: propagation.Trajectory,
    rerun: Callable[[Inputs], propagation.Trajectory],
) -> Calibration | None:
    """Return the scores of validation nodes, or of nodes held out of another run."""
    if not params["calibrate"]:
        return None
    part = inputs
    if not inputs.val.any():
        part = _hold_out(inputs, params)
        trajectory = rerun(part._replace(val=np.zeros_like(part.val)))
    scores = np.asarray(trajectory.predictions)[part.val]
    return Calibration(scores, part.codes[part.val])


def _hold_out(inputs: Inputs, params: dict[str, Any]) -> Inputs:
    """Return the inputs with a share of the training nodes as validation nodes."""
    out = held_out(
        inputs.codes,
        inputs.train,
        fraction=float(params["holdout"]),
        seed=int(params["seed"]),
        num_classes=2 if params["metric"] in _scores.OF_TASKS else 1,
    )
    return inputs._replace(train=inputs.train & ~out, val=out)


def best_of_grid(
    inputs: Inputs,
    powers: tuple[int, ...],
    step_sizes: tuple[float, ...],
    num_steps: int,
) -> Choice:
    """Return the setting of the grid with the best validation score."""
    inputs = inputs.weigh()
    table = sweep.run(
        {power: inputs.with_power(power) for power in powers},
        inputs.targets,
        inputs.split(),
        Steps(step_sizes, num_steps),
        metric=inputs.metric,
        initial=inputs.start(),
        solver=inputs.settings.solver(),
        selection=inputs.settings.selection(),
    )
    winner = sweep.winner(table)
    row = (table.power == winner.power) & (table.step_size == winner.step_size)
    best_step = int(table.best_step[np.argmax(row)])
    settings = dataclasses.replace(inputs.settings, power=winner.power)
    name = str(Candidate((settings,)))
    return Choice(winner.power, winner.step_size, best_step, winner.val, name)


def _run(inputs: Inputs, choice: Choice, num_steps: int) -> propagation.Trajectory:
    """Run RP with the chosen power and step size."""
    weighted = inputs.weigh()
    flow = weighted.with_power(choice.power)
    found = _run_along(weighted, flow, choice.step_size, num_steps)
    if (scale := inputs.scale()) is None:
        return found
    return found._replace(predictions=np.asarray(found.predictions) / scale)


def _run_along(
    inputs: Inputs, flow: LinearMap, step_size: float, num_steps: int
) -> propagation.Trajectory:
    """Run RP along a similarity."""
    (trajectory,) = propagation.run(
        flow,
        inputs.targets,
        inputs.split(),
        Steps([step_size], num_steps),
        metric=inputs.metric,
        initial=inputs.start(),
        solver=inputs.settings.solver(),
        selection=inputs.settings.selection(),
    )
    return trajectory


def held_out(
    codes: Int[np.ndarray, " n"],
    train: Bool[np.ndarray, " n"],
    *,
    fraction: float,
    seed: int,
    num_classes: int = 1,
) -> Bool[np.ndarray, " n"]:
    """Return the held-out share of each class: at least one node, never its last."""
    generator = np.random.default_rng(seed)
    result = np.zeros(len(codes), bool)
    for code in np.unique(codes[train]):
        nodes = generator.permutation(np.flatnonzero(train & (codes == code)))
        count = max(1, round(fraction * len(nodes)))
        result[nodes[: min(count, len(nodes) - 1)]] = True
    if len(np.unique(codes[result])) < num_classes:
        msg = (
            f"validation by held-out nodes needs {num_classes} class(es) with two "
            "training nodes; pass val_mask, or set power, step_size and num_steps and "
            "do not calibrate"
        )
        raise ValueError(msg)
    return result
