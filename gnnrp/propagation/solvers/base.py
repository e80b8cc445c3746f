"""Solvers of RP: the protocol, and the values that a solver takes and returns."""

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from gnnrp.propagation import selection
from gnnrp.propagation.convergence import Convergence
from gnnrp.propagation.problem import Problem, Steps
from gnnrp.propagation.selection import Choice, Selection
from gnnrp.propagation.sizes import Sizes
from gnnrp.runtime import checkpoints, tracing
from gnnrp.runtime.options import Options
from gnnrp.types import LinearMap, MetricFn

STAGE = "residual propagation"  # name of the progress of every solver


class Cost(NamedTuple):
    """The cost of a run with one solver."""

    num_columns: int  # multiplied by S, over all splits and step sizes
    num_bytes: int  # peak memory without the arguments
    is_practical: bool = True  # False: other work than products would dominate


class Evaluation(NamedTuple):
    """The metric of a run, and the rule by which a step is selected."""

    metric: MetricFn  # from ``runtime.tracing.as_static``
    selection: Selection

    def choose(
        self, val: Float[np.ndarray, "s t"], has_val: Bool[np.ndarray, " s"]
    ) -> Choice:
        """Return the choice of each split: the last step without validation nodes."""
        steps = np.arange(1, val.shape[1] + 1, dtype=val.dtype)
        return selection.choose(
            np.where(has_val[:, None], val, steps),
            rule=self.selection.rule,
            patience=self.selection.max_waits,
        )


class Solution(NamedTuple):
    """The result of a solver for one step size; curves start after the first step."""

    train_residual: Float[np.ndarray, "s t"]  # RMS of the residual before each step
    val: Float[np.ndarray, "s t"]
    test: Float[np.ndarray, "s t"]
    worst_column: Int[np.ndarray, " s"]  # of the largest residual once it has grown
    choice: Choice
    predictions: Float[Any, "s n c"]  # F at the selected step
    num_columns: int  # multiplied by S; closed forms share them among step sizes
    convergence: tuple[Convergence, ...] | None = None  # of each split, if computed
    error: float = 0.0  # estimated relative error of the predictions
    max_curvature: float = np.nan  # of the loss, to explain a divergence


@runtime_checkable
class Solver(Protocol):
    """A method to take the steps of RP; an immutable value, such as ``Iterate()``."""

    def unsupported(self, problem: Problem, similarity: LinearMap) -> str | None:
        """Return the reason why the solver does not support the problem, or None."""

    def cost(self, sizes: Sizes) -> Cost:
        """Return the number of products and the peak memory of a run."""
        ...

    def solve(
        self,
        problem: Problem,
        similarity: LinearMap,
        steps: Steps,
        evaluation: Evaluation,
        options: Options,
    ) -> list[Solution]:
        """Take the steps; return a solution for each step size.

        V vanishes outside the training nodes in every product S V; ``options.metadata``
        identifies the run in its checkpoints.
        """
        ...


def name_of(solver: Any) -> str:
    """Return the name of a solver in reports and messages, "exact" for ``Exact()``."""
    return type(solver).__name__.lower()


def identity_of(solver: Any, steps: Steps, evaluation: Evaluation) -> dict[str, Any]:
    """Return the settings by name that a checkpoint must agree with to be resumed."""
    settings: dict[str, Any] = {"solver": solver}
    if dataclasses.is_dataclass(solver):
        names = [field.name for field in dataclasses.fields(solver)]
        settings = {"solver": name_of(solver)}
        settings |= {name: getattr(solver, name) for name in names}
    return settings | {
        "step_sizes": steps.step_sizes,
        "num_steps": steps.num_steps,
        "metric": tracing.unwrap(evaluation.metric),
        "rule": evaluation.selection.rule,
        "patience": evaluation.selection.patience,
    }


def keeper(options: Options) -> checkpoints.Keeper:
    """Return the keeper of the checkpoints of a run."""
    seconds = options.checkpoint_seconds
    return checkpoints.Keeper(options.folder, dict(options.metadata), seconds)
