"""Masked arrays: masked labels are unknown, other masked entries are refused."""

import types

import jax
import numpy as np
import pytest
from path_graph import (  # noqa: F401
    ENDS,
    FULL,
    LABELS,
    PATH,
    SPLIT,
    TUPLE,
    A,
    M,
    X,
    Y,
    fit,
    run,
    without_type_checks,
)

from gnnrp import ResidualPropagation, datasets, graph, metrics, sparse
from gnnrp.datasets import sbm, splits
from gnnrp.distributed import partitioning, shards
from gnnrp.distributed import sharded_matrix as sharded
from gnnrp.estimator import OnGraph
from gnnrp.kernels import alignment, features, gntk, homophily
from gnnrp.kernels.features import low_rank
from gnnrp.kernels.gntk import inductive, local
from gnnrp.models import gnn, objectives, training
from gnnrp.propagation import exact, label
from gnnrp.types import Split

NET = gnn.MLP(2, depth=1)
DATA = training.Data(X, M, Y, ENDS)
SBM = sbm.generate(num_blocks=2, block_size=4, train_per_class=1, num_val=2, num_test=2)
LAYOUT = partitioning.balance(A, 1)
MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("nodes",))


def masked(array):
    """Return the array with its first entry masked."""
    hidden = np.ma.array(array, copy=True)
    hidden[(0,) * hidden.ndim] = np.ma.masked
    return hidden


def trained(**more):
    rule = training.Rule(NET, objectives.sgd(0.1))
    return training.run(rule, DATA._replace(**more), jax.random.key(0), num_steps=1)


def test_masked_labels_are_unknown():
    labels = np.ma.array([0, 7, 7, 7, 7, 1], mask=[0, 1, 1, 1, 1, 0])
    expected = fit()
    for given in (labels, labels[:, None], labels.astype(float), list(labels)):
        model = fit(labels=given)
        assert model.classes_.tolist() == [0, 1]
        np.testing.assert_array_equal(model.scores_, expected.scores_)


def test_masked_labels_of_strings_may_hide_what_numpy_writes_for_missing_ones():
    labels = np.ma.array(["a", "nan", "nan", "-1", "None", "b"], mask=[*~ENDS])
    assert fit(labels=labels).classes_.tolist() == ["a", "b"]


def test_masked_labels_are_not_scored():
    model = fit(labels=FULL, train_mask=ENDS)
    labels = np.ma.array(FULL, mask=[0, 0, 0, 1, 1, 0])
    assert model.score(labels=labels) == model.score([1, 2], FULL[[1, 2]])
    with pytest.raises(ValueError, match="node 3 has no label to score; pass"):
        model.score([1, 2, 3], labels[[1, 2, 3]])


def test_a_masked_array_in_which_nothing_is_masked_is_an_array():
    given = (np.ma.array(part) for part in (PATH, FULL, ENDS, X))
    np.testing.assert_array_equal(
        fit(*given, kernel="gaussian").scores_,
        fit(PATH, FULL, ENDS, X, kernel="gaussian").scores_,
    )
    np.testing.assert_array_equal(
        run(np.ma.array(Y), Split(*map(np.ma.array, SPLIT))).predictions,
        run().predictions,
    )


MASKED = {
    "graph of fit": lambda: fit(masked(PATH)),
    "edge_index of fit": lambda: fit({"edge_index": masked(PATH), "num_nodes": 6}),
    "weights of fit": lambda: fit(weights=masked(np.ones(5))),
    "weights of a graph": lambda: fit(
        types.SimpleNamespace(edge_index=PATH, edge_weight=masked(np.ones(5)))
    ),
    "training nodes": lambda: fit(PATH, FULL, masked(ENDS)),
    "training ids": lambda: fit(PATH, FULL, masked(np.array([0, 5]))),
    "validation nodes": lambda: fit(PATH, FULL, ENDS, val_mask=masked(~ENDS)),
    "features of fit": lambda: fit(features=masked(X), kernel="gaussian"),
    "features in rows": lambda: fit(features=list(masked(X)), kernel="gaussian"),
    "initial of fit": lambda: fit(initial=masked(Y)),
    "nodes to predict": lambda: fit().predict(masked(ENDS)),
    "nodes to predict for": lambda: fit().predict_proba(masked(np.array([0, 1]))),
    "nodes to score": lambda: fit().score(masked(ENDS), FULL),
    "nodes of a fold": lambda: OnGraph(ResidualPropagation(1, 0.5, 1), PATH).fit(
        masked(np.array([0, 5])), [0, 1]
    ),
    "labels of a fold": lambda: OnGraph(ResidualPropagation(1, 0.5, 1), PATH).fit(
        [0, 5], masked(np.array([0, 1]))
    ),
    "edges": lambda: graph.raw_adjacency(masked(PATH)),
    "edges in rows": lambda: graph.raw_adjacency(list(masked(PATH))),
    "weights": lambda: graph.normalized_adjacency(PATH, weights=masked(np.ones(5))),
    "senders": lambda: graph.raw_adjacency(TUPLE._replace(senders=masked(PATH[0]))),
    "targets": lambda: run(masked(Y)),
    "training mask": lambda: run(split=SPLIT._replace(train=masked(ENDS))),
    "test mask": lambda: run(split=SPLIT._replace(test=masked(~ENDS))),
    "start": lambda: run(initial=masked(Y)),
    "seeds": lambda: label.seeds(masked(Y), ENDS),
    "mask of seeds": lambda: label.seeds(Y, masked(ENDS)),
    "scores of a metric": lambda: metrics.accuracy(masked(Y), Y, ENDS),
    "targets of a metric": lambda: metrics.accuracy(Y, masked(Y), ENDS),
    "mask of a metric": lambda: metrics.roc_auc(Y, Y, masked(ENDS)),
    "targets of a loss": lambda: objectives.squared(Y, masked(Y), ENDS),
    "mask of a loss": lambda: objectives.squared(Y, Y, masked(ENDS)),
    "x of training": lambda: trained(x=masked(X)),
    "targets of training": lambda: trained(targets=masked(Y)),
    "mask of training": lambda: trained(train=masked(ENDS)),
    "features": lambda: features.build(masked(X)),
    "features of a Gram matrix": lambda: gntk.gram(masked(X)),
    "features of blocks": lambda: local.gcn(A, masked(X), [0], [1], gntk.Network(1)),
    "features of landmarks": lambda: low_rank.nystrom(
        masked(X), num_landmarks=2, key=jax.random.key(0)
    ),
    "labels": lambda: homophily.by_edges(A, masked(FULL)),
    "labels of a level": lambda: homophily.level(A, masked(FULL)),
    "labels of a kernel": lambda: alignment.label_kernel(masked(FULL), 2),
    "targets of a kernel": lambda: alignment.ideal_kernel(masked(Y)),
    "labels of splits": lambda: splits.random(masked(FULL), 1),
    "labels of a dataset": lambda: datasets.targets(
        SBM._replace(labels=masked(SBM.labels))
    ),
    "labels of statistics": lambda: datasets.statistics(
        SBM._replace(labels=masked(SBM.labels))
    ),
    "edges of statistics": lambda: datasets.statistics(
        SBM._replace(edges=masked(np.array([[0, 1], [1, 2]])))
    ),
    "features of a dataset": lambda: features.normalize_rows(masked(X)),
    "parts": lambda: partitioning.from_parts(masked(FULL), 2),
    "parts of shards": lambda: shards.write(
        "nowhere", SBM, 2, part=masked(np.arange(8) % 2)
    ),
    "shared rows": lambda: sharded.spread(LAYOUT, masked(X), MESH),
    "right side": lambda: sparse.matmul(M, masked(X)),
    "support": lambda: sparse.select_columns(M, masked(ENDS)),
    "seen nodes": lambda: inductive.submatrix(A, masked(np.array([0, 1]))),
    "rows of a kernel": lambda: exact.factorize(masked(np.eye(6)), np.arange(6)),
}


@pytest.mark.parametrize("name", MASKED)
def test_masked_entries_are_refused_in_one_sentence(name):
    with pytest.raises(
        ValueError, match=r"^.* must have no masked entries, got \d; drop"
    ):
        MASKED[name]()
