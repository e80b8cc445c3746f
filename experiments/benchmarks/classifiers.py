"""Compare node classifiers: scores and times of a whole fit, from arrays to labels.

    python -m experiments.benchmarks.classifiers
    python -m experiments.benchmarks.classifiers --data-dir DIR --output bench

Logistic regression (scikit-learn), label propagation, Correct and Smooth on logistic
regression, RP, and RP with the similarity that validation chooses. The propagations
have 50 iterations and α = 0.8, and also run in PyG if it is installed. The graphs are
the customers of ``tables.example``, 3 percent of them labeled, and datasets with their
first split. Training nodes train, validation nodes choose for RP, and test nodes are
scored. Times are those of the second of two rounds over all classifiers.
"""

import dataclasses
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Bool, Int
from sklearn.linear_model import LogisticRegression

from experiments.benchmarks import harness
from gnnrp import ResidualPropagation, datasets, graph, sparse
from gnnrp.kernels import features
from gnnrp.propagation import correct_and_smooth, label
from gnnrp.tables import example, files, graph_tables

ITERATIONS, ALPHA = 50, 0.8
LABELED = 0.03  # share of the customers
Predict = Callable[[], Int[np.ndarray, " n"]]


@dataclasses.dataclass(frozen=True)
class Config:
    """Graphs and the time of the automatic choice."""

    data_dir: Path | None = None
    """Folder of the datasets."""
    datasets: tuple[str, ...] = ("sbm",)
    """Datasets with features, beside the customers."""
    customers: int = 20_000
    """Number of customers; six edges each."""
    search_seconds: float = 60.0
    """Time after which no other similarity is tried."""
    output: Path | None = None
    """Folder for benchmark_classifiers.json."""


class Problem(NamedTuple):
    """A graph with features, labels and one split."""

    edges: Int[np.ndarray, "2 e"]
    weights: Any
    features: Any
    labels: Int[np.ndarray, " n"]
    train: Bool[np.ndarray, " n"]
    val: Bool[np.ndarray, " n"]
    test: Bool[np.ndarray, " n"]


def main(config: Config) -> dict[str, Any]:
    """Measure, print and return the results."""
    harness.check_sizes(config)
    found = {"customers": compare(customers(config.customers), config)}
    for name in config.datasets:
        found[name] = compare(load(name, config), config)
    return harness.finish(found, "benchmark_classifiers", config.output)


def customers(count: int) -> Problem:
    """Return the customers of the example tables, most of them without a label."""
    tables = {
        name: files.Table(
            Path(name),
            dict(zip(rows[0], np.array(rows[1:], object).T, strict=True)),
            first_line=2,
        )
        for name, rows in example.make(count, 6 * count, count).items()
    }
    made = graph_tables.make(tables["edges"], tables["labels"], tables["features"])
    assert made.features is not None
    rng = np.random.default_rng(0)
    order = rng.permutation(len(made.ids))
    labeled = max(10, round(LABELED * len(order)))
    train, val, test = np.zeros((3, len(order)), bool)
    train[order[: 4 * labeled // 5]] = True
    val[order[4 * labeled // 5 : labeled]] = True
    test[order[labeled:]] = True
    return Problem(
        made.edges, made.weights, made.features.matrix, made.codes, train, val, test
    )


def load(name: str, config: Config) -> Problem:
    """Return a dataset with its first split.

    Raises:
        ValueError: the dataset has no features.
    """
    data = datasets.load(name, config.data_dir)
    if data.features is None:
        msg = f"{name} has no features; choose other datasets"
        raise ValueError(msg)
    masks = (np.atleast_2d(mask)[0] for mask in data.splits)
    return Problem(data.edges, None, data.features, data.labels, *masks)


def compare(problem: Problem, config: Config) -> dict[str, Any]:
    """Return test accuracy and seconds of each classifier."""
    notes: list[str] = []
    contestants = ours(problem, config) | in_pyg(problem, notes)
    rows = {}
    for _ in range(2):
        for name, predict in contestants.items():
            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "no label reaches")
                labels = predict()
            elapsed = time.perf_counter() - began
            hits = (labels == problem.labels)[problem.test]
            rows[name] = {
                "test": round(100 * float(hits.mean()), 2),
                "seconds": round(elapsed, 3),
            }
    return {"nodes": len(problem.labels), "classifiers": rows, "notes": notes}


def ours(problem: Problem, config: Config) -> dict[str, Predict]:
    """Return the classifiers of this package, and logistic regression."""
    known = problem.edges, problem.labels, problem.train
    inputs = {"val_mask": problem.val, "weights": problem.weights}

    def rp() -> Int[np.ndarray, " n"]:
        return ResidualPropagation().fit(*known, **inputs).predict()

    def chosen() -> Int[np.ndarray, " n"]:
        model = ResidualPropagation(
            similarity="auto", search_seconds=config.search_seconds
        )
        return model.fit(*known, problem.features, **inputs).predict()

    return {
        "logistic regression": lambda: logistic(problem).argmax(axis=1),
        "label propagation": lambda: spread(problem),
        "C&S on logistic regression": lambda: corrected(problem),
        "RP": rp,
        "RP, chosen similarity": chosen,
    }


def logistic(problem: Problem) -> np.ndarray:
    """Return the probabilities of logistic regression."""
    x = features.as_float(features.validate(problem.features), np.dtype(np.float64))
    model = LogisticRegression(max_iter=1000)
    model.fit(x[problem.train], problem.labels[problem.train])
    return model.predict_proba(x)


def normalized(problem: Problem) -> Any:
    """Return D^-1/2 W D^-1/2."""
    W = graph.raw_adjacency(problem.edges, len(problem.labels), weights=problem.weights)
    return graph.normalize(W, self_loops=0)


def targets(problem: Problem) -> jax.Array:
    """Return one-hot labels."""
    return jax.nn.one_hot(problem.labels, int(problem.labels.max()) + 1)


def spread(problem: Problem) -> Int[np.ndarray, " n"]:
    """Return the classes of label propagation."""
    start = label.seeds(targets(problem), jnp.asarray(problem.train))
    settings = {"num_iterations": ITERATIONS, "alpha": ALPHA}
    scores = label.propagate(sparse.prepare(normalized(problem)), start, **settings)
    return np.asarray(scores.argmax(axis=1))


def corrected(problem: Problem) -> Int[np.ndarray, " n"]:
    """Return the classes of Correct and Smooth on logistic regression."""
    probabilities = jnp.asarray(logistic(problem), jnp.float32)
    known = targets(problem), jnp.asarray(problem.train)
    A = sparse.prepare(normalized(problem))
    settings: Any = {"num_iterations": ITERATIONS, "alpha": ALPHA}
    first = correct_and_smooth.correct(A, probabilities, *known, **settings)
    second = correct_and_smooth.smooth(A, first, *known, **settings)
    return np.asarray(second.argmax(axis=1))


def in_pyg(problem: Problem, notes: list[str]) -> dict[str, Predict]:
    """Return the two propagations of PyG, or none if it is not installed."""
    nn, torch = harness.pyg_or_none(notes), harness.torch_or_none(notes)
    if nn is None or torch is None:
        return {}
    # PyG normalizes no weights that it is given.
    A: Any = normalized(problem).tocoo()
    edges = torch.from_numpy(np.stack([A.col, A.row]).astype(np.int64))
    values = torch.from_numpy(A.data.astype(np.float32))
    y = torch.from_numpy(problem.labels.astype(np.int64))
    mask = torch.from_numpy(problem.train)

    def propagate() -> Int[np.ndarray, " n"]:
        model = nn.LabelPropagation(ITERATIONS, ALPHA)
        return model(y, edges, mask, edge_weight=values).argmax(dim=1).numpy()

    def correct() -> Int[np.ndarray, " n"]:
        model = nn.CorrectAndSmooth(ITERATIONS, ALPHA, ITERATIONS, ALPHA)
        soft = torch.from_numpy(logistic(problem).astype(np.float32))
        first = model.correct(soft, y[mask], mask, edges, values)
        return model.smooth(first, y[mask], mask, edges, values).argmax(dim=1).numpy()

    return {
        "label propagation, PyG": propagate,
        "C&S on logistic regression, PyG": correct,
    }


if __name__ == "__main__":
    main(tyro.cli(Config))
