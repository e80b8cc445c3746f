"""Figure 3: alignment of a GCN's tangent kernel with graph and labels in training.

    python -m experiments.paper.figure3_ntk_alignment --data-dir DIR --output reproduced
    python -m experiments.paper.figure3_ntk_alignment --quick

Networks of many seeds are trained in one scan, and the paper's findings are judged over
seeds, graphs and evaluations. The features are those of the authors' code: rows
normalized on Cora, as stored on Texas, scikit-learn's ``make_classification`` on the
synthetic graphs. Where features are normalized, variants of the network show what the
outcome depends on.

Cost on Cora: a step of 20 networks is 0.4 GFLOP or 2 ms of a core, a kernel with its
measures 60 ms. 50,000 steps and 20 x 6 x 21 kernels take 4 to 5 minutes of a core, the
variants 3, the other sets 2.

Source: Section 6, App. D.2.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from experiments import plots, published, runner
from gnnrp import datasets
from gnnrp.datasets import sbm
from gnnrp.runtime.options import Options
from gnnrp.studies import findings, ntk_seeds
from gnnrp.studies import ntk as ntk_study
from gnnrp.studies.ntk_seeds import Tracks
from gnnrp.studies.settings import NTKSettings

QUICK = {"num_steps": 500, "every": 250}
DRAWS = 5  # of the synthetic graph and its features, each with its share of the seeds
EVERY = {"cora": 2500, "sbm": 2000, "texas": 2000}
"""Steps between two evaluations; the published curve of Cora is lowest near 2,500."""
MEASURES = {name: name for name in ("kernel_graph", "kernel_labels", "test")}
WITHOUT = {
    "kernel_graph": "rest_graph",
    "kernel_labels": "rest_labels",
    "test": "test",
}
"""Names in ``findings.judge`` -> in ``ntk_seeds.run``: all, and those without A 1."""


class Variant(NamedTuple):
    """Features and network of a variant."""

    features: str = "normalized"
    first_bias: bool = True
    normalization: str = "symmetric"  # of A


VARIANTS = {
    "raw features": Variant(features="raw"),
    "no bias in the first layer": Variant(first_bias=False),
    "row-stochastic A": Variant(normalization="row"),
}


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Panels."""

    datasets: tuple[str, ...] = ("sbm", "cora", "texas")
    """Datasets, with the paper's settings in ``studies.ntk.PAPER``."""
    num_seeds: int = 20
    """Networks per dataset and variant."""
    num_graphs: int = 6
    """Graphs from all (homophilic) edges to none."""
    variant_steps: int = 20_000
    """Training steps of the variants."""

    SHORT: ClassVar[dict[str, Any]] = {
        "datasets": ("sbm",),
        "num_seeds": 3,
        "num_graphs": 3,
        "variant_steps": 500,
    }


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return measures, findings and figures for each dataset."""
    result: dict[str, Any] = {
        name: {"found": published.ABSENT} for name in config.datasets
    }
    figures, files = {}, {}
    compute = functools.partial(panel, config=config, progress=progress)
    for data, found in runner.each(config, "figure3_ntk_alignment", compute):
        result[data.name] = found
        figures[data.name] = plots.evolution_over_seeds(found)
        if found["variants"]:
            figures[f"{data.name}_regimes"] = plots.regimes(found)
        files[data.name] = data.files
    return runner.Outcome(result, figures, files)


def panel(
    data: datasets.Dataset, config: Config, progress: runner.Progress
) -> dict[str, Any]:
    """Track the networks of a dataset; return the record without times."""
    every = {"every": EVERY[data.name]} if data.name in EVERY else {}
    settings = dataclasses.replace(
        ntk_study.settings(data.name),
        seed=config.seed,
        num_graphs=config.num_graphs,
        **(QUICK if config.quick else every),
    )
    generated = data.name == "sbm"
    track = functools.partial(ntk_seeds.run, options=Options(progress=progress))
    measures, more = MEASURES, ("share", "rest_graph", "rest_labels")
    if generated:
        tracks = track_draws(track, settings, config.num_seeds)
        measures, more = MEASURES | {"kernel_first": "kernel_first"}, ()
    else:
        tracks = track(data, settings, config.num_seeds)
    decide = functools.partial(
        judge,
        tracks,
        synthetic=generated,
        num_test=int(np.atleast_2d(data.splits.test)[0].sum()),
    )
    return {
        "dataset": data.name,
        "settings": dataclasses.asdict(settings),
        "synthetic": generated,
        "num_seeds": config.num_seeds,
        **summarize(tracks, (*measures, *more)),
        "findings": decide(measures),
        "findings_two_ends": decide(measures, graphs=(0, -1)),
        "findings_without": {} if generated else decide(WITHOUT),
        "published": published.FIGURE3.get(data.name, {}),
        "variants": variants(track, data, settings, config),
    }


def variants(
    track: Callable[..., Tracks],
    data: datasets.Dataset,
    settings: NTKSettings,
    config: Config,
) -> dict[str, Any]:
    """Return the record of each variant; none without normalized features."""
    if settings.features != "normalized":
        return {}
    result = {}
    for name, (features, *changes) in VARIANTS.items():
        short = dataclasses.replace(
            settings, num_steps=config.variant_steps, num_graphs=2, features=features
        )
        first_bias, normalization = changes
        tracks = track(
            data,
            short,
            config.num_seeds,
            first_bias=first_bias,
            normalization=normalization,
        )
        result[name] = summarize(tracks, ("share", *MEASURES))
    return result


def track_draws(
    track: Callable[..., Tracks], settings: NTKSettings, num_seeds: int
) -> Tracks:
    """Return the tracks on several draws of the synthetic graph, with means of levels.

    Args:
        track: ``ntk_seeds.run`` with options.
        settings: with the seed of the first draw and the first network.
        num_seeds: networks of all draws.
    """
    runs: list[Tracks] = []
    for draw, numbers in enumerate(np.array_split(np.arange(num_seeds), DRAWS)):
        if len(numbers) > 0:
            data, family = synthetic(settings.seed + draw)
            first = settings.seed + int(numbers[0])
            each = dataclasses.replace(settings, seed=first)
            runs.append(track(data, each, len(numbers), family=family))
    levels = np.mean([[one["homophily"] for one in run.graphs] for run in runs], axis=0)
    graphs = [
        one | {"homophily": round(float(level), 6)}
        for one, level in zip(runs[0].graphs, levels, strict=True)
    ]
    return Tracks(
        runs[0].steps,
        graphs,
        round(float(np.mean([run.target_labels for run in runs])), 6),
        {
            name: np.concatenate([run.values[name] for run in runs])
            for name in ntk_seeds.MEASURES
        },
        np.concatenate([run.largest_bias for run in runs]),
    )


def synthetic(
    seed: int, **sizes: Any
) -> tuple[datasets.Dataset, Callable[[float], datasets.Dataset]]:
    """Return the homophilic synthetic graph, and the family from share to graph.

    All have the same features, those of ``make_classification`` with rows in the order
    of the classes, as in the authors' code.

    Args:
        seed: of the graphs and the features.
        sizes: other sizes of ``sbm.generate``.
    """
    from sklearn.datasets import make_classification  # installed for tests

    first = sbm.generate(seed, **sizes)
    x, labels = make_classification(
        n_samples=first.num_nodes,
        n_features=100,
        n_informative=4,
        n_classes=first.num_classes,
        random_state=seed,
    )
    features = x[np.argsort(labels, kind="stable")].astype(np.float32)

    def member(share: float) -> datasets.Dataset:
        graph = sbm.generate(seed, homophilic_fraction=share, **sizes)
        return graph._replace(features=features)

    return first._replace(features=features), member


def summarize(tracks: Tracks, measures: Iterable[str]) -> dict[str, Any]:
    """Return the record of a run.

    Each curve has all seeds on the first and the last graph, [seed][step], and the
    median, the smallest and the largest value over seeds on each graph, [graph][step].
    """
    curves = {}
    for name in measures:
        values = tracks.values[name]
        parts = {
            "first": values[:, :, 0],
            "last": values[:, :, -1],
            "median": np.median(values, axis=0).T,
            "smallest": values.min(axis=0).T,
            "largest": values.max(axis=0).T,
        }
        curves[name] = {part: each.round(4).tolist() for part, each in parts.items()}
    return {
        "steps": tracks.steps,
        "graphs": tracks.graphs,
        "target_labels": tracks.target_labels,
        "curves": curves,
        "largest_bias": tracks.largest_bias.round(4).tolist(),
    }


def judge(
    tracks: Tracks,
    measures: Mapping[str, str],
    *,
    synthetic: bool,
    num_test: int,
    graphs: Sequence[int] | None = None,
) -> dict[str, dict[str, Any]]:
    """Return each finding of the paper with the number of seeds in which it holds.

    Args:
        tracks: of the networks.
        measures: names in ``findings.judge`` -> names in ``tracks``.
        synthetic: choose the findings on synthetic graphs.
        num_test: number of test nodes.
        graphs: to compare; all by default.
    """
    index = list(range(len(tracks.graphs)) if graphs is None else graphs)
    runs = [
        findings.judge(
            {
                name: tracks.values[each][seed][:, index]
                for name, each in measures.items()
            },
            [tracks.graphs[number]["homophily"] for number in index],
            synthetic=synthetic,
            num_test=num_test,
        )
        for seed in range(len(tracks.largest_bias))
    ]
    return findings.over_seeds(runs)


if __name__ == "__main__":
    runner.main(Config, run, "figure3_ntk_alignment")
