"""What stands beside RP in the tables of scores is trained and counted as stated."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from experiments import published
from experiments.paper import (
    table1_ogb,
    table4_homophilic,
    table5_heterophilic,
    trained,
)
from gnnrp import datasets, graph, sparse, types


@pytest.fixture(autouse=True)
def as_users_run_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def test_large_sets_and_random_splits_have_fewer_networks():
    class Data(NamedTuple):
        splits: Any
        num_nodes: int

    def count(num_splits, num_nodes, module=table4_homophilic):
        data = Data(types.Split(*[np.ones((num_splits, 1))] * 3), num_nodes)
        return table4_homophilic.num_networks(data, module.Config())

    assert count(1, 2_708) == 20  # Cora
    assert count(1, 19_717) == 3  # Pubmed
    assert count(1, 3_327) == 20  # Citeseer
    assert count(1, 7_650) == count(10, 7_650) == 3  # Photo
    assert count(10, 11_758, table5_heterophilic) == 10  # tolokers


def test_weights_decay_only_where_labels_are_few():
    data = datasets.load("sbm")
    few = trained.recipes(data, ("GCN", "SGC"))
    assert few["GCN"].weight_decay == 5e-4
    everything = data.splits._replace(train=np.ones_like(data.splits.train))
    many = trained.recipes(data._replace(splits=everything), ("GCN", "SGC"))
    assert {recipe.weight_decay for recipe in many.values()} == {0}
    assert many["SGC"].learning_rate == few["SGC"].learning_rate == 0.1


def test_label_propagation_that_holds_labels_is_the_dense_iteration():
    data = datasets.load("sbm")
    adjacency = graph.normalized_adjacency(data.edges, data.num_nodes)
    found = table1_ogb.labels_held(data, sparse.prepare(adjacency))
    A = sparse.to_scipy(adjacency).toarray().astype(float)
    train, val, test = (mask[0] for mask in data.splits)
    known = datasets.targets(data) * train[:, None]
    F = known
    for _ in range(50):
        F = np.where(train[:, None], known, A @ F)
    right = F.argmax(axis=1) == data.labels
    assert found["test_mean"] == pytest.approx(100 * right[test].mean(), abs=0.2)
    assert found["val_mean"] == pytest.approx(100 * right[val].mean(), abs=0.4)


def test_time_to_accuracy_counts_steps_until_the_goal():
    class Path(NamedTuple):
        val: np.ndarray

    class Run(NamedTuple):
        trajectory: Path

    rp = Run(Path(np.array([[0.5, 0.6, 0.7, 0.6]])))  # after steps 1, 2, 3, 4
    seconds = {"RP": 2.0, "GCN": 10.0}
    network = {"val_mean": 65.0, "best_epochs": [10, 30, 50]}
    found = table1_ogb.to_accuracy(rp, network, seconds)
    assert (found["RP steps"], found["GCN epochs"]) == (3, 30)
    assert found["ratio"] == pytest.approx(3 * 2 / (30 * 10))
    never = table1_ogb.to_accuracy(rp, network | {"val_mean": 71.0}, seconds)
    assert (never["RP steps"], never["ratio"]) == (None, None)
    absent = table1_ogb.to_accuracy(rp, published.FEATURELESS, seconds)
    assert absent == published.FEATURELESS
