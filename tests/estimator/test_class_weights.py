"""Class weights of the estimator: weighted residuals, and bad weights by name."""

import generators
import numpy as np
import pytest
import references

from gnnrp import ResidualPropagation
from gnnrp.datasets import sbm

N, C = generators.N, generators.C
FIXED = {"power": 3, "step_size": 0.5, "num_steps": 9}
EDGES = generators.edges(0)
CODES = generators.targets(0).argmax(axis=1)
TRAIN, _, _ = generators.split(2, sizes=(7, 4, 3))


def weighted_reference(model, weights, codes, initial=None):
    """Return F after dense steps F <- F + η S[:, X] (w R)."""
    A = references.adjacency(EDGES, N)
    S = np.linalg.matrix_power(A, model.power)
    F = np.zeros((N, C)) if initial is None else initial
    Y = np.eye(C)[codes]
    w = np.where(TRAIN, weights[codes], 0.0)[:, None]
    for _ in range(model.num_steps):
        F = F + model.step_size * S @ (w * (Y - F))
    return F


@pytest.mark.parametrize("with_initial", [False, True])
@pytest.mark.parametrize("method", ["iterate", "exact", "krylov"])
@pytest.mark.parametrize("given", ["balanced", "dict"])
def test_class_weights_weigh_the_residuals(given, method, with_initial):
    counts = np.bincount(CODES[TRAIN], minlength=C)
    weights = counts.min() / counts if given == "balanced" else np.array([0.2, 1, 0.6])
    class_weight = given
    if given == "dict":  # any scale; a missing class has weight one
        class_weight = {0: 1 / 3, 1: 5 / 3}
    model = ResidualPropagation(
        **FIXED, method=method, class_weight=class_weight, precision="float64"
    )
    initial = np.random.default_rng(0).uniform(size=(N, C)) if with_initial else None
    model.fit(EDGES, CODES, TRAIN, initial=initial)
    expected = weighted_reference(model, weights, CODES, initial)
    np.testing.assert_allclose(model.scores_, expected, rtol=1e-9, atol=1e-11)


def test_class_weights_of_one_are_none():
    plain = ResidualPropagation(**FIXED).fit(EDGES, CODES, TRAIN)
    ones = ResidualPropagation(**FIXED, class_weight={0: 2.0, 1: 2.0, 2: 2.0})
    ones.fit(EDGES, CODES, TRAIN)
    np.testing.assert_allclose(ones.scores_, plain.scores_, atol=1e-12)


def test_a_rare_class_is_found_more_often_with_balanced_weights():
    data = sbm.generate(3, homophilic_fraction=0.8)
    train = data.splits.train[0].copy()
    rare = np.flatnonzero(train & (data.labels == 0))
    train[rare[2:]] = False
    rest = ~train & (data.labels == 0)
    shares = [
        np.mean(
            ResidualPropagation(4, 1.0, 20, class_weight=weight)
            .fit(data.edges, data.labels, train)
            .predict(rest)
            == 0
        )
        for weight in (None, "balanced")
    ]
    assert shares[0] < shares[1]


def test_class_weights_in_a_list_are_refused():
    model = ResidualPropagation(**FIXED)
    model.class_weight = [1, 2]
    with pytest.raises(TypeError, match="must be 'balanced' or a dict"):
        model.fit(EDGES, CODES, TRAIN)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"class_weight": "even"}, "class_weight must be"),
        ({"class_weight": {9: 1.0}}, "class_weight has 9, which is no training class"),
        ({"class_weight": {0: -1.0}}, r"class_weight\[0\] must be positive"),
        ({"class_weight": "balanced", "loss": "softmax"}, "needs loss='squared'"),
        ({"class_weight": {0: 1e-8}}, "must not differ by more than 1e6"),
    ],
)
def test_bad_class_weights_are_refused(params, words):
    with pytest.raises(ValueError, match=words):
        ResidualPropagation(**FIXED, **params).fit(EDGES, CODES, TRAIN)
