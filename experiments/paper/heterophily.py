"""Propagation designed for heterophily, and the effect of depth.

    python -m experiments.paper.heterophily --data-dir DIR --output reproduced
    python -m experiments.paper.heterophily --quick

The paper suggests to handle heterophily with a propagation matrix that aligns better
with the labels, such as one with negative weights (App. C.4). The first part compares
four of them on heterophilic graphs:

    A           the paper's, D^-1/2 (W + I) D^-1/2
    none        the identity: an MLP, and RP that leaves the other nodes alone
    negative    all edges get weight -1
    similarity  an edge gets the cosine of the centered features of its ends

Each is judged by its alignment with the labels, and by the test scores of RP, of the
infinitely wide GCN and of a trained GCN. The designed matrices use edges and features,
no labels.

The second part deepens the infinitely wide GCN, in float64. Where it over-smooths, its
kernel approaches a matrix of rank one: the share of the centered kernel's norm in the
largest eigenvalue approaches one.

Source: App. C.4; over-smoothing is not in the paper.
"""

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import numpy as np
import scipy.linalg
import scipy.sparse
from matplotlib.figure import Figure

from experiments import published, runner
from experiments.paper import generalization, trained
from gnnrp import datasets, graph, metrics, propagation, sparse
from gnnrp.datasets import sbm
from gnnrp.kernels import alignment, features
from gnnrp.propagation import Steps, similarity
from gnnrp.studies import presets, records

MATRICES = ("A", "none", "negative", "similarity")
METHODS = ("RP", "GNTK", "GCN")


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Graphs, networks and depths."""

    datasets: tuple[str, ...] = ("texas", "cornell", "wisconsin")
    """Real heterophilic graphs."""
    num_mixtures: int = 6
    """Graphs of the stochastic block model, half homophilic to heterophilic."""
    deepened: tuple[str, ...] = ("sbm", "cora")
    """Graphs of the depth sweep."""
    power: int = 3
    """K of RP; odd, so that A^K keeps the signs of edges."""
    depths: tuple[int, ...] = (1, 2, 3, 4, 8)
    """L of the infinitely wide GCN."""
    num_seeds: int = 5
    """Trained networks on a graph with a single split."""
    num_epochs: int = trained.EPOCHS
    """Maximum number of epochs."""

    SHORT: ClassVar[dict[str, Any]] = {
        "datasets": (), "num_mixtures": 2, "deepened": ("sbm",), "depths": (1, 2, 4),
        "num_seeds": 1, "num_epochs": 20
    }  # fmt: skip


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return alignment and scores of each matrix and depth, and two figures."""
    mixtures = []
    for number, share in enumerate(np.linspace(0.5, 0, config.num_mixtures)):
        progress("sbm", number, config.num_mixtures)
        data = sbm.generate(config.seed, homophilic_fraction=float(share))
        mixtures.append({"homophilic": round(float(share), 3)} | compare(data, config))
    real: dict[str, Any] = dict.fromkeys(config.datasets, published.ABSENT)
    depth: dict[str, Any] = dict.fromkeys(config.deepened, published.ABSENT)
    files = {}
    compute = functools.partial(compare, config=config)
    for data, found in runner.each(config, "heterophily", compute):
        real[data.name], files[data.name] = found, data.files
    deep = dataclasses.replace(config, datasets=config.deepened)
    sweep = functools.partial(deepen, depths=config.depths)
    for data, found in runner.each(deep, "heterophily_depth", sweep):
        depth[data.name], files[data.name] = found, data.files
    result = {"sbm": mixtures, "datasets": real, "depth": depth}
    figures = {"": compare_figure(mixtures), "depth": depth_figure(depth)}
    return runner.Outcome(result, figures, files)


def propagation_matrix(data: datasets.Dataset, name: str) -> sparse.Matrix:
    """Return one of ``MATRICES``.

    Raises:
        ValueError: "similarity" of a dataset without features.
    """
    W = graph.raw_adjacency(data.edges, data.num_nodes)
    if name == "none":
        W = scipy.sparse.csr_array(W.shape)
    elif name == "negative":
        W = -W
    elif name == "similarity":
        if data.features is None:
            msg = f"{data.name} has no features; choose a dataset with features"
            raise ValueError(msg)
        x = features.as_dense(data.features)
        x = x - x.mean(axis=0)
        lengths = np.linalg.norm(x, axis=1, keepdims=True)
        x = np.divide(x, lengths, out=np.zeros_like(x), where=lengths > 0)
        coo = W.tocoo()
        cosines = np.einsum("ij,ij->i", x[coo.row], x[coo.col])
        W = scipy.sparse.csr_array((cosines, (coo.row, coo.col)), shape=W.shape)
        W.eliminate_zeros()
    return sparse.prepare(graph.normalize(W))


def compare(data: datasets.Dataset, config: Config) -> dict[str, Any]:
    """Return alignment and test scores of each matrix, in percent."""
    ideal = alignment.label_kernel(data.labels, data.num_classes)
    num_networks = max(config.num_seeds, len(data.splits.train))
    learned = trained.subject(
        data, num_networks, row_normalize=presets.settings(data.name).row_normalize
    )
    found = {}
    for name in MATRICES:
        matrix = propagation_matrix(data, name)
        level = alignment.alignment(
            alignment.Operator(similarity.Power(matrix, 1), data.num_nodes),
            ideal,
            centered=True,
        )
        networks = trained.run(
            learned._replace(data=learned.data._replace(matrix=matrix)),
            trained.recipes(data, ("GCN",)),
            seed=config.seed,
            num_epochs=config.num_epochs,
        )
        scores = {
            "RP": propagated(data, matrix, config.power),
            "GNTK": generalization.infinitely_wide(data, matrix, depth=2),
            **networks,
        }
        found[name] = {"alignment": round(float(level), 4)} | {
            method: scores[method]["test_mean"] for method in METHODS
        }
    return found


def propagated(
    data: datasets.Dataset, matrix: sparse.Matrix, power: int
) -> dict[str, Any]:
    """Return the scores of RP with A^K, each split at its best validation step."""
    path = propagation.run(
        similarity.Power(matrix, power),
        datasets.targets(data),
        data.splits,
        Steps(1.0, 100),
        metric=metrics.by_name(data.metric),
    )
    return records.summary(path.best_val, path.best_test)


def deepen(data: datasets.Dataset, depths: tuple[int, ...]) -> dict[str, Any]:
    """Return alignment, rank-one share and test score of the GNTK for each depth.

    In float64: a kernel of 32 layers has no digits of the labels left in float32.
    """
    with jax.enable_x64(True):
        return {str(depth): _at_depth(data, depth) for depth in depths}


def _at_depth(data: datasets.Dataset, depth: int) -> dict[str, float]:
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    ideal = alignment.label_kernel(data.labels, data.num_classes)
    theta = generalization.kernel(data, matrix, depth)
    theta = (theta + theta.T) / 2  # equal up to rounding
    level = alignment.alignment(theta, ideal, centered=True)
    first = datasets.select_split(data, 0)
    return {
        "alignment": round(float(level), 4),
        "rank_one": round(rank_one_share(theta), 4),
        "test": generalization.kernel_scores(first, theta)["test_mean"],
    }


def rank_one_share(theta: np.ndarray) -> float:
    """Return λ_max / |Θ| of the centered kernel: 1 if it has rank one."""
    rows = theta.mean(axis=0)
    centered = theta - rows[None, :] - rows[:, None] + rows.mean()
    last = [len(theta) - 1] * 2
    largest = scipy.linalg.eigvalsh(centered, subset_by_index=last)
    return float(largest[0] / np.linalg.norm(centered))


def compare_figure(mixtures: list[dict[str, Any]]) -> Figure:
    """Draw the test scores of each method against the homophilic share of edges."""
    drawn = Figure(figsize=(9.6, 3.6), layout="constrained")
    panels = drawn.subplots(1, len(METHODS), sharey=True)
    for axes, method in zip(panels, METHODS, strict=True):
        for name in MATRICES:
            axes.plot(
                [row["homophilic"] for row in mixtures],
                [row[name][method] for row in mixtures],
                "o-",
                markersize=3,
                label=name,
            )
        axes.set_title(method, fontsize="medium")
        axes.set_xlabel("share of homophilic edges")
    panels[0].set_ylabel("test accuracy, %")
    panels[0].legend(frameon=False, fontsize="small")
    return drawn


def depth_figure(depth: dict[str, Any]) -> Figure:
    """Draw alignment, rank-one share and test score against the depth."""
    drawn = Figure(figsize=(9.6, 3.6), layout="constrained")
    labels = {
        "alignment": "A(Θ, Θ*)",
        "rank_one": "share of the largest eigenvalue",
        "test": "test accuracy, %",
    }
    panels = drawn.subplots(1, len(labels))
    for axes, (key, label) in zip(panels, labels.items(), strict=True):
        for name, rows in depth.items():
            if rows != published.ABSENT:
                values = [row[key] for row in rows.values()]
                axes.plot([int(x) for x in rows], values, "o-", label=name)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("depth L")
        axes.set_title(label, fontsize="medium")
    panels[0].legend(frameon=False, fontsize="small")
    return drawn


if __name__ == "__main__":
    runner.main(Config, run, "heterophily")
