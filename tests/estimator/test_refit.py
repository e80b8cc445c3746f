"""Refits: the choice of fit on other nodes, edges and labels."""

import generators
import numpy as np
import pytest

from gnnrp import ResidualPropagation
from gnnrp.estimator.residual_propagation import NotFittedError

N = generators.N
EDGES = generators.edges(0)
CODES = generators.targets(0).argmax(axis=1)
TRAIN, VAL, _ = generators.split(2, sizes=(7, 4, 3))


# The graph is small, and the residual grows along odd powers of its A.
pytestmark = pytest.mark.filterwarnings("ignore:the residual grows")


def fitted(**params):
    model = ResidualPropagation(precision="float64", **params)
    return model.fit(EDGES, CODES, TRAIN, val_mask=VAL)


@pytest.mark.parametrize("params", [{}, {"similarity": "auto"}])
def test_a_refit_on_the_same_nodes_gives_the_same_scores(params):
    model = fitted(**params)
    scores, step = model.scores_, model.best_step_
    model.refit(EDGES, CODES, TRAIN)
    np.testing.assert_allclose(model.scores_, scores, rtol=1e-9, atol=1e-12)
    assert model.best_step_ == step
    assert model.val_curve_ is None


def test_a_refit_is_a_fit_with_the_chosen_parameters():
    model = fitted(class_weight="balanced")
    more = TRAIN | VAL
    other = ResidualPropagation(
        power=model.power_,
        step_size=model.step_size_,
        num_steps=model.best_step_,
        class_weight="balanced",
        precision="float64",
    ).fit(EDGES, CODES, more)
    model.refit(EDGES, CODES, more)
    np.testing.assert_allclose(model.scores_, other.scores_, rtol=1e-9, atol=1e-12)


def test_an_automatic_choice_keeps_its_time_on_more_labels():
    model = fitted(similarity="auto")
    name, time = model.similarity_, model.step_size_ * model.best_step_
    model.refit(EDGES, CODES, TRAIN | VAL)
    assert model.similarity_ == name
    assert abs(model.step_size_ * model.best_step_ - time) <= model.step_size_


def test_new_nodes_and_edges_are_predicted():
    model = fitted()
    edges = np.concatenate([EDGES, [[N, N], [0, 1]]], axis=1)
    labels = [*np.where(TRAIN, CODES, -1).tolist(), -1]
    model.refit(edges, labels)
    assert len(model.predict()) == N + 1
    assert model.reached_[N]


def test_node_ids_name_the_rows_of_a_refit_too():
    ids = np.array([f"n{i}" for i in range(N)])
    model = fitted()
    scores = model.refit(EDGES, CODES, TRAIN).scores_
    model.refit(ids[EDGES], CODES, TRAIN, node_ids=ids)
    np.testing.assert_array_equal(model.scores_, scores)


def test_later_parameters_do_not_change_a_refit():
    model = fitted()
    scores = model.scores_
    model.set_params(power=9, step_size=0.01, loss="softmax")
    model.refit(EDGES, CODES, TRAIN)
    np.testing.assert_allclose(model.scores_, scores, rtol=1e-9, atol=1e-12)


def test_a_refit_before_a_fit_is_refused():
    with pytest.raises(NotFittedError, match="not fitted; call fit"):
        ResidualPropagation().refit(EDGES, CODES)


def test_features_of_another_width_are_refused():
    x = np.random.default_rng(0).normal(size=(N, 3))
    model = ResidualPropagation(2, 0.1, 3, kernel="gaussian").fit(
        EDGES, CODES, TRAIN, x
    )
    with pytest.raises(ValueError, match="must have 3 columns, as in fit, got 2"):
        model.refit(EDGES, CODES, TRAIN, x[:, :2])
    assert model.n_features_in_ == 3
