"""Figure 3: the tangent kernel of a GCN in training, its graph and its labels.

    python -m experiments.figure3_ntk_alignment --data-dir DIR --output reproduced
    python -m experiments.figure3_ntk_alignment --quick

Source: Section 6, App. D.2.
"""

import dataclasses
import functools
from typing import Any, ClassVar

from experiments import published, reproduction
from gnnrp import datasets, plotting
from gnnrp.datasets import sbm
from gnnrp.runtime.options import Options
from gnnrp.studies import ntk as ntk_study

QUICK = {"num_steps": 500, "every": 250, "num_graphs": 3}


@dataclasses.dataclass(frozen=True)
class Config(reproduction.Config):
    """Which panels."""

    datasets: tuple[str, ...] = ("sbm", "cora", "texas")
    """With the paper's settings, see ``studies.ntk.PAPER``."""

    SHORT: ClassVar[dict[str, Any]] = {"datasets": ("sbm",)}


def run(
    config: Config, progress: reproduction.Progress = reproduction.silent
) -> reproduction.Outcome:
    """Return the rows, the findings and a figure of each data set."""
    result: dict[str, Any] = {
        name: {"found": published.ABSENT} for name in config.datasets
    }
    figures, files = {}, {}
    compute = functools.partial(panel, config=config, progress=progress)
    for data, found in reproduction.each(config, "figure3_ntk_alignment", compute):
        result[data.name] = found
        figures[data.name] = plotting.evolution(found)
        files[data.name] = data.files
    return reproduction.Outcome(result, figures, files)


def panel(
    data: datasets.Dataset, config: Config, progress: reproduction.Progress
) -> dict[str, Any]:
    """Return what tracking a network on a data set finds, without times."""
    short = QUICK if config.quick else {}
    settings = dataclasses.replace(
        ntk_study.settings(data.name), seed=config.seed, **short
    )
    family = None
    if data.name == "sbm":
        family = lambda share: sbm.generate(config.seed, homophilic_fraction=share)  # noqa: E731
    found = ntk_study.run(
        data, settings, options=Options(progress=progress), family=family
    )
    names = ("dataset", "settings", "synthetic", "graphs", "rows", "claims", "diverged")
    return {name: found[name] for name in names}


if __name__ == "__main__":
    reproduction.main(Config, run, "figure3_ntk_alignment")
