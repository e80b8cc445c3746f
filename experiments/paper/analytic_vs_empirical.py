r"""Measure when a finite GCN follows the kernel of the infinitely wide one.

    python -m experiments.paper.analytic_vs_empirical --data-dir DIR --output reproduced
    python -m experiments.paper.analytic_vs_empirical --datasets sbm --widths 64 256

Networks of several widths, of two and three layers and several outputs, in the NTK and
the standard parameterization, are trained by gradient descent with the squared loss and
the cross-entropy until they converge. For each width it measures

    kernel      |Θ_0 - Θ| / |Θ|, the error of the kernel at the start,
    drift       |Θ_T - Θ_0| / |Θ_0| at the end,
    trajectory  the largest error of the predictions from the infinite kernel Θ,
    frozen      the largest error of the predictions from the network's own Θ_0,

alignments with A^{2L} and the labels at all times, accuracies beside those of the
infinite network, and how well one kernel of nodes stands for the kernel of all outputs.
The infinite kernel is computed by our recursion and by neural-tangents.

Source: Def. 4.1, Sec. 3.1, Sec. 6 and App. C.3 (Eq. 107-109).
"""

import dataclasses
import itertools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from experiments import published, runner
from experiments.paper import (
    lazy_figures,
    lazy_findings,
    lazy_outputs,
    lazy_predictions,
    lazy_training,
    lazy_worlds,
)
from experiments.paper.lazy_findings import summary
from gnnrp import datasets
from gnnrp.kernels import alignment

SETUPS = tuple(
    itertools.product(lazy_worlds.PARAMETERIZATIONS, lazy_predictions.LOSSES)
)
"""Parameterization and loss; the first is that of the theory."""
TOLERANCES = {"squared": 0.02, "cross-entropy": 0.05}
"""Predicted residuals at the end, relative to the first: those of the cross-entropy
fall like 1 / t."""


TIMED = (*lazy_findings.ERRORS, "residual", "graph", "labels")
"""Quantities stored for all times of measurement."""


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Networks, graphs and training."""

    datasets: tuple[str, ...] = ("sbm", "cora")
    """Graphs, of which a part of at most some hundred nodes is used."""
    widths: tuple[int, ...] = (16, 64, 256, 1024, 4096, 8192)
    """m, widths of the hidden layers."""
    depths: tuple[int, ...] = (2, 3)
    """L, numbers of weight matrices."""
    num_networks: int = 4
    """Largest number of networks per width."""
    budget: float = 0.65
    """10^12 operations for the networks of a width, four times that for the setting of
    the theory; networks of a width that cannot have two of them are not trained."""
    max_steps: int = 5000
    """Limit of the steps of training."""
    num_steps: int = 2000
    """Steps of the training of the paper's figures."""

    SHORT: ClassVar[dict[str, Any]] = {
        "datasets": ("sbm",), "widths": (16, 64, 256), "num_networks": 4,
        "num_steps": 300,
    }  # fmt: skip


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Train and measure networks; return errors and slopes.

    Raises:
        ValueError: a depth that is not 2 or 3, a dataset without features, or a budget
            for less than two networks.
    """
    if not set(config.depths) <= {2, 3}:
        msg = f"depths must be 2 or 3, got {config.depths}"
        raise ValueError(msg)
    results: dict[str, Any] = dict.fromkeys(config.datasets, published.ABSENT)
    figures, files = {}, {}

    def compute(data: datasets.Dataset) -> dict[str, Any]:
        return study(data, config, progress)

    for data, found in runner.each(config, "analytic_vs_empirical", compute):
        results[data.name], files[data.name] = found, data.files
        for name, figure in lazy_figures.draw(data.name, found).items():
            figures[f"{data.name}_{name}"] = figure
    outcome = {"datasets": results, "expected_slope": -0.5}
    return runner.Outcome(outcome, figures, files)


def study(
    data: datasets.Dataset, config: Config, progress: runner.Progress
) -> dict[str, Any]:
    """Return a panel for each depth, parameterization and loss, and the outputs."""
    panels, routes = [], {}
    total = len(config.depths) * len(SETUPS)
    for depth in config.depths:
        world = lazy_worlds.build(data, depth, config.seed)
        kernels = lazy_worlds.infinite(world, depth)
        routes[str(depth)] = kernels.routes
        for setup in SETUPS:
            what = f"{data.name}, {depth} layers, {', '.join(setup)}"
            progress(what, len(panels), total)
            panels.append(panel(world, kernels, setup, depth, config))
        jax.clear_caches()  # compiled programs of hundreds of megabytes
    world = lazy_worlds.build(data, 2, config.seed)
    return {
        "num_nodes": len(world.labels),
        "num_train": len(world.train),
        "routes": routes,
        "panels": panels,
        "outputs": lazy_outputs.study(
            world,
            config.widths,
            num_steps=config.num_steps,
            num_networks=config.num_networks,
            budget=config.budget,
            seed=config.seed,
        ),
    }


def panel(
    world: lazy_worlds.World,
    kernels: lazy_worlds.Infinite,
    setup: tuple[str, str],
    depth: int,
    config: Config,
) -> dict[str, Any]:
    """Return the rows of all widths that the budget allows, and their slopes.

    Raises:
        ValueError: the budget allows no width.
    """
    rows, untrained = [], []
    for width in config.widths:
        plan = lazy_predictions.plan(
            world,
            kernels,
            setup,
            width,
            depth,
            tolerance=TOLERANCES[setup[1]],
            max_steps=config.max_steps,
        )
        limit = config.budget * (4 if setup == SETUPS[0] else 1)
        allowed = int(limit * 1e12 / lazy_training.operations(world, plan))
        if allowed >= 2:
            keys = draws(config.seed, min(allowed, config.num_networks))
            rows.append(measure(world, kernels, plan, keys))
        else:
            errors = [
                lazy_training.initial_error(world, kernels, plan, key)
                for key in draws(config.seed, 2)
            ]
            row = {"width": width, "networks": len(errors), "kernel": summary(errors)}
            untrained.append(row)
    if not rows:
        msg = f"budget must allow two networks of some width, got {config.budget}"
        raise ValueError(msg)
    slopes = {name: lazy_findings.slope(rows, name) for name in lazy_findings.ERRORS}
    slopes["kernel"] = lazy_findings.slope([*rows, *untrained], "kernel")
    return {
        "depth": depth,
        "parameterization": setup[0],
        "loss": setup[1],
        "widths": rows,
        "untrained": untrained,
        "slope": slopes | lazy_findings.slopes_of_reductions(rows),
        "crossover": lazy_findings.crossover(rows),
    }


def draws(seed: int, count: int) -> list[jax.Array]:
    """Return the keys of networks; those of all panels are equal."""
    return [jax.random.fold_in(jax.random.key(seed), number) for number in range(count)]


def measure(
    world: lazy_worlds.World,
    kernels: lazy_worlds.Infinite,
    plan: lazy_predictions.Plan,
    keys: list[jax.Array],
) -> dict[str, Any]:
    """Return means and deviations over the networks of a plan."""
    found, ends = zip(
        *(lazy_training.measure(world, kernels, plan, key) for key in keys),
        strict=True,
    )
    theta = lazy_worlds.kernel(kernels, world, plan.parameterization, plan.width)
    zero = jnp.zeros_like(world.targets)
    wide = lazy_predictions.predict(world, theta[world.train], zero, plan)[-1]
    times = {name: lazy_findings.over_time([f[name] for f in found]) for name in TIMED}
    row: dict[str, Any] = {
        "width": plan.width,
        "networks": len(keys),
        "steps": plan.times[-1],
        "kernel": summary([f["kernel"][0] for f in found]),
        "drift": summary([f["drift"][-1] for f in found]),
    }
    for name in ("trajectory", "frozen"):
        row[name] = summary([max(f[name]) for f in found])
    for name in ("test", "agreement"):
        row[name] = summary([f[name][-1] for f in found])
    for name in lazy_training.REDUCTIONS:
        row[name] = lazy_findings.start_and_end([f[name] for f in found])
    return row | {
        "ensemble": round(lazy_predictions.accuracy(world, np.mean(ends, axis=0)), 3),
        "infinite": {
            "test": round(lazy_predictions.accuracy(world, wide), 3),
            "graph": _aligned(theta, kernels.hops),
            "labels": _aligned(theta, kernels.ideal),
        },
        "times": {"steps": list(plan.times)} | times,
    }


def _aligned(theta: jax.Array, target: Any) -> float:
    return round(float(alignment.alignment(theta, target, centered=True)), 6)


if __name__ == "__main__":
    runner.main(Config, run, "analytic_vs_empirical")
