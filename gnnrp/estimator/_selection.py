"""Selection of power, step size and number of steps by validation."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from gnnrp import propagation
from gnnrp.estimator import _scores
from gnnrp.estimator._inputs import SELECTED, Inputs
from gnnrp.propagation import Steps, sweep
from gnnrp.runtime.options import Options
from gnnrp.studies import choice as auto
from gnnrp.studies.candidates import Candidate
from gnnrp.types import LinearMap, Scalar

NUM_STEPS = 100  # of the grid, as in the paper's search


class Choice(NamedTuple):
    """A setting, and its score on the validation nodes."""

    power: int
    step_size: float
    best_step: int
    val: float
    similarity: str
    candidate: Candidate | None = None  # of an automatic choice, as are the next two
    trials: list[dict[str, Any]] | None = None
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


def fit(inputs: Inputs, params: dict[str, Any], options: Options) -> Fit:
    """Choose the parameters that are None by validation, and run RP with them."""
    if inputs.similarity is None:
        return _fit_auto(inputs, params, options)
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
        choice = best_of_grid(part, *grid, options=options)
        if choice.best_step == num_steps:  # unless it is the end of a plateau
            warned = _run(part, choice, num_steps).report.warnings
            remarks = {key: x for key, x in warned.items() if key == "last step"}
        num_steps = choice.best_step
    elif free - {"num_steps"}:
        choice = best_of_grid(inputs, *grid, options=options)
    trajectory = _run(inputs, choice, num_steps)
    report = trajectory.report._replace(warnings=remarks | trajectory.report.warnings)
    if inputs.val.any():
        choice = choice._replace(val=float(trajectory.best_val))
    choice = choice._replace(best_step=int(trajectory.best_step))
    trajectory = trajectory._replace(report=report)
    calibration = None
    if params["calibrate"]:
        calibration = _calibration(inputs, trajectory, choice, params)
    return Fit(choice, trajectory, calibration)


def _fit_auto(inputs: Inputs, params: dict[str, Any], options: Options) -> Fit:
    """Choose the similarity too."""
    part = inputs if inputs.val.any() else _hold_out(inputs, params)
    assert inputs.maps is not None
    seconds = float(params["search_seconds"])
    found = auto.choose(part.task(), seconds=seconds, options=options, maps=inputs.maps)
    trial = found.trials[found.chosen[0]]
    choice = Choice(
        trial.candidate.parts[-1].power,
        trial.step_size,
        int(trial.best_step[0]),
        float(trial.val[0]) if inputs.val.any() else float("nan"),
        str(trial.candidate),
        trial.candidate,
        found.as_dict()["trials"],
        found.skipped,
    )
    calibration = None
    if params["calibrate"]:
        scores = np.asarray(found.predictions[0])[part.val]
        calibration = Calibration(scores, part.codes[part.val])
    if part is not inputs:
        found = refit(inputs, choice, options.max_bytes)
        return found._replace(calibration=calibration)
    settings = trial.candidate.parts[-1]
    chosen = inputs._replace(settings=settings)
    flow = inputs.maps.build(trial.candidate)
    steps = Steps[Sequence[Scalar]]([trial.step_size], settings.num_steps)
    trajectory = _run_along(chosen, flow, steps, options.max_bytes)
    choice = choice._replace(best_step=int(trajectory.best_step))
    return Fit(choice, trajectory, calibration)


def refit(inputs: Inputs, choice: Choice, max_bytes: int | None = None) -> Fit:
    """Run RP on other inputs with a chosen similarity, up to the chosen time η t."""
    if choice.candidate is None:
        return Fit(choice, _run(inputs, choice, choice.best_step))
    assert inputs.maps is not None
    flow = inputs.maps.build(choice.candidate)
    # More training nodes have a larger λ_max, so η becomes smaller.
    step_size = auto.step_size_along(flow, inputs.train[None])
    num_steps = max(1, round(choice.best_step * choice.step_size / step_size))
    chosen = inputs._replace(settings=choice.candidate.parts[-1])
    steps = Steps[Sequence[Scalar]]([step_size], num_steps)
    trajectory = _run_along(chosen, flow, steps, max_bytes)
    choice = choice._replace(step_size=step_size, best_step=num_steps)
    return Fit(choice, trajectory)


def _calibration(
    inputs: Inputs, trajectory: propagation.Trajectory, choice: Choice, params: Any
) -> Calibration:
    """Return the scores of validation nodes, or of nodes held out of another run."""
    part = inputs
    if not inputs.val.any():
        part = _hold_out(inputs, params)
        without = part._replace(val=np.zeros_like(part.val))
        trajectory = _run(without, choice, choice.best_step)
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
    *,
    options: Options = Options(),
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
        options=options,
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
    steps = Steps[Sequence[Scalar]]([choice.step_size], num_steps)
    found = _run_along(weighted, flow, steps)
    if (scale := inputs.scale()) is None:
        return found
    return found._replace(predictions=np.asarray(found.predictions) / scale)


def _run_along(
    inputs: Inputs,
    flow: LinearMap,
    steps: Steps[Sequence[Scalar]],
    max_bytes: int | None = None,
) -> propagation.Trajectory:
    """Run RP along a similarity."""
    (trajectory,) = propagation.run(
        flow,
        inputs.targets,
        inputs.split(),
        steps,
        metric=inputs.metric,
        initial=inputs.start(),
        solver=inputs.settings.solver(),
        selection=inputs.settings.selection(),
        options=Options(max_bytes=max_bytes),
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
