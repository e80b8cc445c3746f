"""Alignment of graph and labels against the errors of RP and of GNNs.

    python -m experiments.paper.generalization --data-dir DIR --output reproduced
    python -m experiments.paper.generalization --quick

The paper derives that a graph helps as far as it aligns with the labels: its bound on
the risk falls with the alignment of A and Θ* (Eq. 16), and A is the kernel of the best
predictor where it is proportional to the covariance of the labels (Theorem 5.2). This
experiment compares both with test errors: of RP with A^K, of infinitely wide GCNs, and
of trained GCNs and MLPs, on the stochastic block model from homophilic to heterophilic
and on real graphs. Spearman's rank correlation measures how well they order the errors.

The bound is that of A^K between the training nodes, with labels of one class against
the others, averaged over the classes; α is 0.9 / λ_max. RP with A^K reaches nodes up to
K hops from a training node; all others count as the first class.

Source: Section 5.
"""

import dataclasses
import functools
import itertools
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.stats
from matplotlib.figure import Figure

from experiments import published, runner
from experiments.paper import inductive_pmlp, trained
from gnnrp import datasets, graph, sparse
from gnnrp.datasets import sbm
from gnnrp.kernels import alignment, generalization, gntk
from gnnrp.propagation import linear_maps, similarity
from gnnrp.studies import gntk_kernels, presets, records
from gnnrp.studies import rp as rp_study

NETWORKS = ("GCN", "MLP")
METHODS = ("RP", "GNTK", *NETWORKS)
EXACT = 8
"""Number of graphs below which the p-value counts all orders; above, Student's t."""
LEVEL = 0.05
"""Largest p-value of a rank correlation that counts as a relation."""


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Graphs and networks."""

    datasets: tuple[str, ...] = ("cora", "citeseer", "texas", "cornell", "wisconsin")
    """Real graphs."""
    num_mixtures: int = 11
    """Graphs of the stochastic block model, from homophilic to heterophilic."""
    power: int = 2
    """K of A^K in the alignment, in the bound and in RP."""
    depth: int = 2
    """Layers of the infinitely wide GCN."""
    num_seeds: int = 5
    """Trained networks on a graph with a single split."""
    num_epochs: int = trained.EPOCHS
    """Maximum number of epochs."""

    SHORT: ClassVar[dict[str, Any]] = {
        "datasets": (), "num_mixtures": 4, "num_seeds": 1, "num_epochs": 20
    }  # fmt: skip


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return a row for each graph, the rank correlations and a figure."""
    mixtures = []
    for number, share in enumerate(np.linspace(1, 0, config.num_mixtures)):
        progress("sbm", number, config.num_mixtures)
        data = sbm.generate(config.seed, homophilic_fraction=float(share))
        mixtures.append({"homophilic": round(float(share), 3)} | row(data, config))
    real: dict[str, Any] = dict.fromkeys(config.datasets, published.ABSENT)
    files = {}
    compute = functools.partial(row, config=config)
    for data, found in runner.each(config, "generalization", compute):
        real[data.name], files[data.name] = found, data.files
    present = [found for found in real.values() if found != published.ABSENT]
    result = {
        "sbm": mixtures,
        "datasets": real,
        "correlations": {
            "sbm": correlations(mixtures),
            "datasets": correlations(present),
        },
    }
    return runner.Outcome(result, {"": figure(mixtures, real)}, files)


def row(data: datasets.Dataset, config: Config) -> dict[str, Any]:
    """Return alignment, bound and errors in percent of one graph, over its splits."""
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    walk = similarity.Power(matrix, config.power)
    level = alignment.alignment(
        alignment.Operator(walk, data.num_nodes),
        alignment.label_kernel(data.labels, data.num_classes),
        centered=True,
    )
    scores = {
        "RP": rp_study.run(
            data, presets.RPSettings(1.0, config.power, num_steps=1000)
        ).record
    }
    scores["GNTK"] = infinitely_wide(data, matrix, config.depth)
    num_networks = max(config.num_seeds, len(data.splits.train))
    learned = trained.subject(
        data, num_networks, row_normalize=presets.settings(data.name).row_normalize
    )
    scores |= trained.run(
        learned,
        trained.recipes(data, NETWORKS),
        seed=config.seed,
        num_epochs=config.num_epochs,
    )
    return {
        "alignment": round(float(level), 4),
        "bound": round(float(np.mean(main_terms(data, walk))), 4),
        "errors": {name: round(100 - scores[name]["test_mean"], 4) for name in METHODS},
    }


def infinitely_wide(
    data: datasets.Dataset, matrix: sparse.Matrix, depth: int
) -> dict[str, Any]:
    """Return the scores of the infinitely wide GCN over the splits."""
    return kernel_scores(data, kernel(data, matrix, depth))


def kernel(data: datasets.Dataset, matrix: sparse.Matrix, depth: int) -> np.ndarray:
    """Return the GNTK of a dataset."""
    gram = gntk_kernels.inputs(data)
    return np.asarray(gntk.gcn(matrix, gram, gntk.Network(depth)).ntk)


def kernel_scores(data: datasets.Dataset, theta: np.ndarray) -> dict[str, Any]:
    """Return the scores of a kernel, each split at its best validation step."""
    each = []
    for number in range(len(data.splits.train)):
        part = datasets.select_split(data, number)
        columns = theta[:, np.flatnonzero(part.splits.train[0])]
        found = inductive_pmlp.infinite(part, columns)
        each.append((found["val_mean"] / 100, found["test_mean"] / 100))
    return records.summary(*np.transpose(each))


def main_terms(data: datasets.Dataset, walk: similarity.Power) -> list[float]:
    """Return the main term of the bound, of each split and class against the others."""
    found = []
    for mask in data.splits.train:
        index = np.flatnonzero(mask)
        block = linear_maps.columns(walk, index, data.num_nodes)[index]
        block = (block + block.T) / 2  # equal up to rounding
        alpha = 0.9 / float(scipy.linalg.eigvalsh(block)[-1])
        labels = data.labels[index]
        found += [
            generalization.bound(
                block,
                np.where(labels == label, 1.0, -1.0),
                np.ones(len(index), bool),
                alpha=alpha,
            ).main
            for label in np.unique(labels)
        ]
    return found


def correlations(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how alignment and bound order the errors of each method.

    A relation holds if the rank correlation has the sign of the theory, negative for
    the alignment and positive for the bound, with a p-value of at most ``LEVEL``.
    """
    if len(rows) < 3:
        return {}
    signs = {"alignment": -1, "bound": 1}
    return {
        term: {method: relation(rows, term, method, sign) for method in METHODS}
        for term, sign in signs.items()
    }


def relation(
    rows: list[dict[str, Any]], term: str, method: str, sign: int
) -> dict[str, Any]:
    """Return the rank correlation of a term with the errors of a method."""
    errors = [row["errors"][method] for row in rows]
    if len(set(errors)) == 1:  # the MLP on one set of features
        return {"rank_correlation": None, "p_value": None, "holds": False}
    terms = [row[term] for row in rows]
    correlation, p_value = map(float, scipy.stats.spearmanr(terms, errors))
    if len(rows) < EXACT:
        p_value = exact_p_value(terms, errors)
    return {
        "rank_correlation": round(correlation, 3),
        "p_value": round(p_value, 4),
        "holds": sign * correlation > 0 and p_value <= LEVEL,
    }


def exact_p_value(terms: list[float], errors: list[float]) -> float:
    """Return the share of all orders with at least this rank correlation, two-sided."""
    ranks = scipy.stats.rankdata(terms)
    orders = itertools.permutations(scipy.stats.rankdata(errors))
    values = [abs(np.corrcoef(ranks, order)[0, 1]) for order in orders]
    return float(np.mean(np.array(values) >= values[0] - 1e-9))


def figure(mixtures: list[dict[str, Any]], real: dict[str, Any]) -> Figure:
    """Draw the errors against alignment and bound, a line for each method."""
    drawn = Figure(figsize=(9.6, 4.0), layout="constrained")
    panels = drawn.subplots(1, 2, sharey=True)
    labels = {"alignment": "A(A^K, Θ*)", "bound": "main term of the bound"}
    for axes, (term, label) in zip(panels, labels.items(), strict=True):
        order = sorted(mixtures, key=lambda row: row[term])
        for number, method in enumerate(METHODS):
            axes.plot(
                [row[term] for row in order],
                [row["errors"][method] for row in order],
                "o-",
                color=f"C{number}",
                markersize=3,
                label=f"{method}, SBM",
            )
            for name, row in real.items():
                if row != published.ABSENT:
                    point = row[term], row["errors"][method]
                    axes.plot(*point, "D", color=f"C{number}", markersize=5)
                    if method == "RP":
                        axes.annotate(name, point, fontsize="x-small")
        axes.set_xlabel(label)
    panels[0].set_ylabel("test error, %")
    panels[0].legend(frameon=False, fontsize="small")
    return drawn


if __name__ == "__main__":
    runner.main(Config, run, "generalization")
