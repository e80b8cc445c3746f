"""Temperature scaling: against scikit-learn's, on nodes that the run has not seen."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import sklearn.metrics
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from gnnrp import ResidualPropagation, datasets, metrics
from gnnrp.estimator import _calibration, _selection

FIXED = {"power": 4, "step_size": 0.1, "num_steps": 12}


def fit(data, *, val=True, **params):
    train, held, _ = (mask[0] for mask in data.splits)
    model = ResidualPropagation(**FIXED | params)
    model.fit(data.edges, data.labels, train, data.features, held if val else None)
    return model


class Logits(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose samples are its logits."""

    classes_ = np.arange(5)

    def __sklearn_is_fitted__(self):
        return True

    def fit(self, *_):
        return self

    def predict(self, z):
        return z.argmax(axis=1)

    def decision_function(self, z):
        return z


def logits(model):
    """Return the logits that the temperature divides."""
    if model.loss in {"softmax", "sigmoid"}:
        return model.scores_
    return np.array(metrics.probabilities(model.scores_, model.loss))


def reference(z, labels, nodes):
    """Return the temperature of the least log loss."""

    def loss(log_temperature):
        p = scipy.special.softmax(z[nodes] / np.exp(log_temperature), axis=1)
        return sklearn.metrics.log_loss(labels[nodes], p, labels=range(z.shape[1]))

    found = scipy.optimize.minimize_scalar(
        loss, bounds=(-9, 9), options={"xatol": 1e-9}
    )
    return np.exp(found.x)


@pytest.mark.filterwarnings("ignore:the residual grows")
@pytest.mark.parametrize("loss", metrics.LOSSES)
def test_temperature_scaling_is_that_of_scikit_learn(data, loss):
    model = fit(data, calibrate=True, loss=loss)
    # Shifted, since scikit-learn takes logarithms of rows that sum to one.
    z, val = logits(model) - 1, data.splits.val[0]
    found = CalibratedClassifierCV(FrozenEstimator(Logits()), method="temperature")
    found.fit(z[val], data.labels[val])
    p = found.predict_proba(z)
    np.testing.assert_allclose(model.predict_proba(), p, rtol=1e-5, atol=1e-8)
    expected = reference(z, data.labels, val)
    np.testing.assert_allclose(model.temperature_, expected, rtol=1e-5)


@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_calibration_changes_probabilities_alone(data, loss):
    plain, model = fit(data, loss=loss), fit(data, loss=loss, calibrate=True)
    np.testing.assert_array_equal(model.scores_, plain.scores_)
    np.testing.assert_array_equal(model.predict(), plain.predict())
    best = model.classes_[model.predict_proba().argmax(axis=1)]
    np.testing.assert_array_equal(best, model.predict())
    assert plain.temperature_ is None


def test_calibration_lowers_log_loss_and_calibration_error_on_test_nodes(data):
    test = data.splits.test[0]
    given = np.eye(5)[data.labels[test]], np.ones(test.sum(), bool)
    plain, model = (
        fit(data, calibrate=calibrate, metric="neg_log_loss")
        for calibrate in (False, True)
    )
    assert model.score(test) > plain.score(test) + 0.1
    errors = [
        metrics.expected_calibration_error(each.predict_proba(test), *given)
        for each in (plain, model)
    ]
    assert errors[1] < errors[0] / 2


def held_out_run(data, model):
    """Return the run without the nodes that the model holds out, and these nodes."""
    train = data.splits.train[0]
    out = _selection.held_out(data.labels, train, fraction=0.2, seed=0)
    other = ResidualPropagation(model.power_, model.step_size_, model.best_step_)
    return other.fit(data.edges, data.labels, train & ~out), out


@pytest.mark.parametrize("given", [{}, {"num_steps": None}])
def test_without_a_mask_the_temperature_is_that_of_held_out_nodes(data, given):
    model = fit(data, val=False, calibrate=True, **given)
    other, out = held_out_run(data, model)
    expected = reference(logits(other), data.labels, out)
    np.testing.assert_allclose(model.temperature_, expected, rtol=1e-5)
    plain = fit(data, val=False, **given)
    np.testing.assert_array_equal(model.scores_, plain.scores_)


@pytest.mark.filterwarnings("ignore:no label reaches")
@pytest.mark.parametrize("val", [True, False])
def test_an_automatic_choice_is_calibrated_too(data, val):
    train, held, _ = (mask[0] for mask in data.splits)
    model = ResidualPropagation(similarity="auto", calibrate=True)
    model.fit(data.edges, data.labels, train, val_mask=held if val else None)
    if not val:
        assert model.temperature_ > 0
        return
    expected = reference(logits(model), data.labels, held)
    np.testing.assert_allclose(model.temperature_, expected, rtol=1e-5)


def test_class_weights_are_taken_out_of_the_scores_that_calibrate(data):
    model = fit(data, calibrate=True, class_weight="balanced")
    expected = reference(logits(model), data.labels, data.splits.val[0])
    np.testing.assert_allclose(model.temperature_, expected, rtol=1e-5)


def test_unreached_nodes_keep_the_class_prior():
    path, labels = [[0, 1, 2, 3], [1, 2, 3, 4]], ["b", "b", "a", "a", "b", None]
    model = ResidualPropagation(1, 0.5, 5, calibrate=True)
    with (
        pytest.warns(UserWarning, match="validation nodes are predicted right"),
        pytest.warns(UserWarning, match="no label reaches 1 of 6"),
    ):
        model.fit(path, labels, [0, 3, 4], val_mask=[1, 2])
    with pytest.warns(UserWarning, match="no label reaches 1 of 1"):
        np.testing.assert_allclose(model.predict_proba([5]), [[1 / 3, 2 / 3]])


@pytest.mark.parametrize(
    ("codes", "words"),
    [([0, 1], "predicted right, so .* nearly 0 and 1"), ([1, 0], "no better than")],
)
def test_a_temperature_without_an_optimum_is_a_warning(codes, words):
    z = np.array([[0.0, -1.0], [-2.0, 0.0]])
    with pytest.warns(UserWarning, match=words):
        found = _calibration.fit(z, np.array(codes), "softmax")
    p = _calibration.probabilities(z, "softmax", found)
    expected = np.eye(2) if codes == [0, 1] else np.full((2, 2), 0.5)
    np.testing.assert_allclose(p, expected, atol=1e-4)


@pytest.mark.parametrize("scores", [np.zeros((3, 2)), np.array([[0.0, np.inf]] * 3)])
def test_scores_without_a_temperature_are_refused(scores):
    with pytest.raises(ValueError, match="calibration needs scores that differ"):
        _calibration.fit(scores, np.array([0, 1, 1]), "softmax")


def test_calibration_without_a_node_to_hold_out_is_refused():
    model = ResidualPropagation(1, 0.5, 5, calibrate=True)
    with pytest.raises(ValueError, match=r"held-out nodes needs 1 class.* do not cali"):
        model.fit([[0, 1], [1, 2]], ["a", None, "b"])


def losses_and_errors(data, power, step_size):
    """Return log loss and calibration error without, by scores and by shares."""
    train, val, test = (mask[0] for mask in data.splits)
    plain, model = (
        ResidualPropagation(power, step_size, 100, calibrate=calibrate).fit(
            data.edges, data.labels, train, val_mask=val
        )
        for calibrate in (False, True)
    )
    nodes = test & model.reached_
    temperature = reference(model.scores_, data.labels, val)
    of_scores = scipy.special.softmax(model.scores_[nodes] / temperature, axis=1)
    every = (plain.predict_proba(nodes), of_scores, model.predict_proba(nodes))
    targets = np.eye(data.num_classes)[data.labels[nodes]]
    given = targets, np.ones(nodes.sum(), bool)
    loss = [-metrics.neg_log_loss(p, *given) for p in every]
    return loss, [metrics.expected_calibration_error(p, *given) for p in every]


@pytest.mark.data
@pytest.mark.filterwarnings("ignore:no label reaches")
def test_on_cora_shares_calibrate_better_than_scores(data_dir):
    cora = datasets.load("cora", root=data_dir, download=False)
    loss, error = losses_and_errors(cora, 7, 0.5)
    assert loss[2] < 0.9 * loss[1] < loss[1] < loss[0]
    assert error[2] < 0.5 * error[1]


def test_on_the_synthetic_graph_scores_calibrate_a_little_better_than_shares():
    loss, error = losses_and_errors(datasets.load("sbm"), 8, 1.0)
    assert loss[2] - 0.05 < loss[1] < loss[2] < loss[0] - 0.05
    assert error[2] - 0.02 < error[1] < error[2] < error[0] / 2
