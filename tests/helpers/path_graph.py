"""A path of six nodes whose ends are labeled, and fits and runs on it."""

import generators
import jaxtyping
import numpy as np
import pytest

from gnnrp import ResidualPropagation, graph, metrics, sparse
from gnnrp.propagation import similarity
from gnnrp.types import Split

PATH = np.array([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
LABELS = [0, None, None, None, None, 1]
FULL = np.array([0, 0, 1, 1, 0, 1])
ENDS = np.array([True, False, False, False, False, True])
X = np.arange(12.0).reshape(6, 2)
Y = np.eye(2)[FULL]
A = graph.normalized_adjacency(PATH)
M = sparse.prepare(A)
S = similarity.Power(M, 2)
SPLIT = Split(ENDS, ~ENDS, ~ENDS)
TUPLE = graph.to_jraph(A)


@pytest.fixture(autouse=True)
def without_type_checks(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def fit(graph=PATH, labels=LABELS, *more, kernel=None, **others):
    model = ResidualPropagation(3, 0.5, 20, kernel=kernel)
    return model.fit(graph, labels, *more, **others)


def run(targets=Y, split=SPLIT, **more):
    return generators.run(
        S, targets, split, step_size=0.5, num_steps=2, metric=metrics.accuracy, **more
    )
