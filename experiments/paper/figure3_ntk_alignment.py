"""Figure 3: alignment of a GCN's tangent kernel with graph and labels in training.

    python -m experiments.paper.figure3_ntk_alignment --data-dir DIR --output reproduced
    python -m experiments.paper.figure3_ntk_alignment --quick

Source: Section 6, App. D.2.
"""

import dataclasses
import functools
from typing import Any, ClassVar

from experiments import published, runner
from gnnrp import datasets, plotting
from gnnrp.datasets import sbm
from gnnrp.runtime.options import Options
from gnnrp.studies import ntk as ntk_study

QUICK = {"num_steps": 500, "every": 250, "num_graphs": 3}


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Panels."""

    datasets: tuple[str, ...] = ("sbm", "cora", "texas")
    """Datasets, with the paper's settings in ``studies.ntk.PAPER``."""

    SHORT: ClassVar[dict[str, Any]] = {"datasets": ("sbm",)}


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return rows, findings and a figure for each dataset."""
    result: dict[str, Any] = {
        name: {"found": published.ABSENT} for name in config.datasets
    }
    figures, files = {}, {}
    compute = functools.partial(panel, config=config, progress=progress)
    for data, found in runner.each(config, "figure3_ntk_alignment", compute):
        result[data.name] = found
        figures[data.name] = plotting.evolution(found)
        files[data.name] = data.files
    return runner.Outcome(result, figures, files)


def panel(
    data: datasets.Dataset, config: Config, progress: runner.Progress
) -> dict[str, Any]:
    """Track a network on a dataset; return the record without times."""
    short = QUICK if config.quick else {}
    settings = dataclasses.replace(
        ntk_study.settings(data.name), seed=config.seed, **short
    )
    family = None
    if data.name == "sbm":
        family = lambda share: sbm.generate(config.seed, homophilic_fraction=share)  # noqa: E731
    found = ntk_study.run(
        data, settings, family=family, options=Options(progress=progress)
    )
    names = ("dataset", "settings", "synthetic", "graphs", "rows", "claims", "diverged")
    return {name: found[name] for name in names}


if __name__ == "__main__":
    runner.main(Config, run, "figure3_ntk_alignment")
