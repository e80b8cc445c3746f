"""The metric of the estimator, in selection and in ``score``."""

import generators
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics as reference

from gnnrp import ResidualPropagation, metrics

FIXED = {"power": 4, "step_size": 0.1, "num_steps": 12}
N = generators.N
EDGES = generators.edges(0)
CODES = generators.targets(0).argmax(axis=1)
TRAIN, VAL, _ = generators.split(2, sizes=(7, 4, 3))
GROWS = pytest.mark.filterwarnings("ignore:the residual grows")
ONE_CLASS = pytest.mark.filterwarnings("ignore:all nodes are predicted to be of one")


def fit(data, *, val=True, **params):
    train, held, _ = (mask[0] for mask in data.splits)
    model = ResidualPropagation(**FIXED | params)
    return model.fit(data.edges, data.labels, train, val_mask=held if val else None)


def of_scores(metric, labels, scores):
    """Return the mean of a metric of scikit-learn over one-vs-rest tasks."""
    return np.mean([
        metric(labels == c, column)
        for c, column in enumerate(scores.T)
        if (labels == c).any()
    ])


REFERENCES = {
    "accuracy": lambda y, model, nodes: reference.accuracy_score(
        y, model.predict(nodes)
    ),
    "balanced_accuracy": lambda y, model, nodes: reference.balanced_accuracy_score(
        y, model.predict(nodes)
    ),
    "macro_f1": lambda y, model, nodes: reference.f1_score(
        y, model.predict(nodes), average="macro"
    ),
    "roc_auc": lambda y, model, nodes: of_scores(
        reference.roc_auc_score, y, model.scores_[nodes]
    ),
    "average_precision": lambda y, model, nodes: of_scores(
        reference.average_precision_score, y, model.scores_[nodes]
    ),
    "neg_log_loss": lambda y, model, nodes: (
        -reference.log_loss(y, model.predict_proba(nodes), labels=model.classes_)
    ),
}


def test_every_metric_has_a_reference():
    assert set(REFERENCES) == set(metrics.NAMES)


@GROWS  # no step size is known to be safe for the absolute loss
@pytest.mark.parametrize(
    ("name", "loss"),
    [
        *((name, "squared") for name in REFERENCES),
        *(("neg_log_loss", loss) for loss in metrics.LOSSES[1:]),
    ],
)
def test_the_score_is_that_of_scikit_learn(data, name, loss):
    model = fit(data, metric=name, loss=loss)
    val, test = data.splits.val[0], data.splits.test[0]
    for nodes, found in ((val, model.val_score_), (test, model.score(test))):
        expected = REFERENCES[name](data.labels[nodes], model, nodes)
        np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("name", REFERENCES)
def test_the_best_step_is_that_of_the_metric(data, name):
    model = fit(data, metric=name)
    first, best, last = (
        fit(data, metric=name, val=False, num_steps=t).score(data.splits.val[0])
        for t in (1, model.best_step_, 12)
    )
    assert best == pytest.approx(model.val_score_, rel=1e-10)
    assert max(first, last) <= best + 1e-10


def num_hits(scores, targets, mask):
    return jnp.sum((scores.argmax(axis=1) == targets.argmax(axis=1)) & mask)


def test_a_function_is_a_metric(data):
    def hits(scores, targets, mask):
        return num_hits(scores, targets, mask).astype(scores.dtype)

    model, expected = fit(data, metric=hits), fit(data)
    val, test = data.splits.val[0], data.splits.test[0]
    assert (model.best_step_, model.val_score_) == (
        expected.best_step_,
        expected.val_score_ * val.sum(),
    )
    assert model.score(test) == round(expected.score(test) * test.sum())
    model = fit(data, metric=hits, val=False, num_steps=None)
    assert model.best_step_ == fit(data, val=False, num_steps=None).best_step_


@GROWS
@ONE_CLASS
@pytest.mark.parametrize("name", ["roc_auc", "average_precision"])
def test_metrics_of_two_classes_take_the_scores_of_the_second(name):
    model = ResidualPropagation(**FIXED, metric=name).fit(EDGES, CODES > 0, TRAIN)
    score = getattr(reference, f"{name}_score")
    expected = score(CODES[~TRAIN] > 0, model.scores_[~TRAIN, 1])
    np.testing.assert_allclose(model.score(), expected, rtol=1e-12)
    with pytest.raises(ValueError, match=f"{name} needs nodes of two classes"):
        model.score([0])
    one = np.flatnonzero(~TRAIN & (CODES > 0))
    with pytest.raises(ValueError, match=f"{name} needs two classes in val_mask"):
        model.fit(EDGES, CODES > 0, TRAIN, val_mask=one)


@GROWS
@ONE_CLASS
def test_a_class_without_training_nodes_is_an_error_of_every_metric():
    labels = np.where(CODES == 2, "rare", np.array(["a", "b", ""])[CODES])
    nodes = np.flatnonzero(~TRAIN)
    for name in ("balanced_accuracy", "macro_f1", "neg_log_loss"):
        model = ResidualPropagation(**FIXED, metric=name)
        model.fit(EDGES, labels, TRAIN & (CODES < 2))
        found = model.score(nodes, labels[nodes])
        if name == "neg_log_loss":
            p = np.c_[model.predict_proba(nodes), np.zeros(len(nodes))]
            expected = -reference.log_loss(labels[nodes], p, labels=["a", "b", "rare"])
        else:
            expected = REFERENCES[name](labels[nodes], model, nodes)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_an_automatic_choice_takes_the_metric(data):
    train, val, test = (mask[0] for mask in data.splits)
    model = ResidualPropagation(similarity="auto", metric="neg_log_loss")
    model.fit(data.edges, data.labels, train, val_mask=val)
    best = max(trial["val_mean"] for trial in model.trials_)
    assert model.val_score_ == pytest.approx(best / 100, abs=1e-4)
    assert model.score(test) < 0


@pytest.mark.parametrize("metric", ["log_loss", "f1"])
def test_neither_a_name_nor_a_function_is_refused(metric):
    with pytest.raises(ValueError, match="metric must be one of accuracy, balanced"):
        ResidualPropagation().set_params(metric=metric).fit(EDGES, CODES, TRAIN)
