"""Figure 2: test scores of RP after each step, for decreasing step sizes.

    python -m experiments.paper.figure2_rp_curve --data-dir DIR --output reproduced
    python -m experiments.paper.figure2_rp_curve --quick

Label propagation (α = 1, the same number of hops) is the first step of RP and is drawn
for comparison. The scores of the linear GNN and the GNN are the published ones, drawn
as dotted lines and labeled "as published".

Source: Figure 2, Eq. 6; Proposition 3.1.
"""

import dataclasses
import functools
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from experiments import published, runner
from gnnrp import datasets, graph, metrics, plotting, propagation, sparse
from gnnrp.propagation import Steps, label, similarity
from gnnrp.runtime.options import Options
from gnnrp.studies import presets


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Panels and curves."""

    datasets: tuple[str, ...] = ("arxiv", "proteins", "products")
    step_sizes: tuple[float, ...] = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
    num_steps: int = 100

    SHORT: ClassVar[dict[str, Any]] = {"datasets": ("sbm",), "num_steps": 10}


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Compute and draw the curves of each available dataset."""
    result: dict[str, Any] = {
        name: {"found": published.ABSENT, "published": published.OGB_TEST.get(name, {})}
        for name in config.datasets
    }
    figures, files = {}, {}
    compute = functools.partial(curves, config=config, progress=progress)
    for data, found in runner.each(config, "figure2_rp_curve", compute):
        name = data.name
        result[name]["found"] = found
        lines = {
            f"{model}, as published": cell.mean
            for model, cell in result[name]["published"].items()
            if model in {"LinearGNN", "GNN"}
        }
        figures[name] = plotting.curves(
            {f"η = {eta}": curve for eta, curve in found["test"].items()},
            lines | {"LP, α = 1": found["lp"]["test"]},
            title=f"RP with K = {found['power']} on {name}",
            label=f"test {data.metric.replace('_', ' ')} (%)",
        )
        files[name] = data.files
    return runner.Outcome(result, figures, files)


def curves(
    data: datasets.Dataset, config: Config, progress: runner.Progress
) -> dict[str, Any]:
    """Return scores of RP after each step and of LP, in percent."""
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    power = presets.settings(data.name, has_features=False).power
    metric, targets = metrics.by_name(data.metric), datasets.targets(data)
    split = datasets.select_split(data, 0).splits
    found = propagation.run(
        similarity.Power(matrix, power),
        targets,
        split,
        Steps(list(config.step_sizes), config.num_steps),
        metric=metric,
        options=Options(
            progress=lambda _, done, total: progress(data.name, done, total)
        ),
    )
    y = jnp.asarray(targets)
    start = label.seeds(y, jnp.asarray(split.train[0]))
    scores = label.propagate(matrix, start, num_iterations=power)
    lp = {
        part: round(
            100 * float(metric(scores, y, jnp.asarray(getattr(split, part)[0]))), 4
        )
        for part in ("val", "test")
    }
    pairs = list(zip(config.step_sizes, found, strict=True))
    return {
        "power": power,
        "method": found[0].report.solver,
        "val": {str(eta): in_percent(one.val[0]) for eta, one in pairs},
        "test": {str(eta): in_percent(one.test[0]) for eta, one in pairs},
        "chosen": {
            str(eta): {
                "step": int(one.best_step[0]),
                "val": round(100 * float(one.best_val[0]), 4),
                "test": round(100 * float(one.best_test[0]), 4),
            }
            for eta, one in pairs
        },
        "lp": lp,
    }


def in_percent(curve: np.ndarray) -> list[float]:
    """Convert the scores of a curve to percent."""
    return [round(100 * float(value), 4) for value in curve]


if __name__ == "__main__":
    runner.main(Config, run, "figure2_rp_curve")
