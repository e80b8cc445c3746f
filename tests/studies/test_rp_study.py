"""Dataset and settings to record: presets, choices, and what a record must hold."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gnnrp import datasets, graph, metrics, sparse
from gnnrp.datasets import sbm
from gnnrp.kernels import features
from gnnrp.propagation import similarity
from gnnrp.runtime import json_files
from gnnrp.studies import baselines, presets, records, similarities, tables
from gnnrp.studies import rp as rp_study


@pytest.fixture(scope="module")
def data():
    return sbm.generate(1, block_size=40, train_per_class=5, num_val=50, num_test=80)


def test_every_data_set_has_settings_and_every_published_figure_a_set():
    assert set(presets.SETTINGS) == set(datasets.names())
    assert set(presets.PUBLISHED) <= set(presets.SETTINGS)


def test_sets_without_features_fall_to_the_graph_alone():
    assert presets.settings("roman-empire", has_features=False).kernel is None
    assert presets.settings("arxiv", has_features=False) == presets.settings("arxiv")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"step_size": 0.0}, "step_size"),
        ({"power": -1}, "power"),
        ({"alpha": 1.5}, "alpha"),
        ({"num_steps": 0}, "num_steps"),
        ({"gamma": float("nan")}, "gamma"),
        ({"kernel": "gausian"}, "did you mean 'gaussian'"),
        ({"loss": "square"}, "did you mean 'squared'"),
        ({"select": "best"}, "select"),
        ({"method": "iterated"}, "did you mean 'iterate'"),
        ({"precision": "float16"}, "precision"),
        ({"patience": 0}, "patience"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(change, named):
    with pytest.raises(ValueError, match=named):
        dataclasses.replace(presets.RPSettings(), **change)


def test_a_kernel_without_features_is_refused(data):
    bare = data._replace(features=None)
    with pytest.raises(ValueError, match="no features here"):
        rp_study.run(bare, presets.settings("sbm"))


def test_dense_and_blocked_kernels_are_one_similarity(data):
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    settings = presets.settings("sbm")
    x = data.features.astype(np.float64)
    few = similarities.build(matrix, x, settings, num_train=10).similarity
    many = similarities.build(matrix, x, settings, num_train=10**6).similarity
    assert isinstance(few.inner, features.FeatureKernel)
    assert isinstance(many.inner, similarity.Dense)
    v = np.random.default_rng(0).standard_normal((data.num_nodes, 3))
    v = jnp.asarray(v)
    np.testing.assert_allclose(few(v), many(v), rtol=1e-12)


def test_lazy_settings_make_a_lazy_walk(data):
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    settings = presets.RPSettings(alpha=0.5, power=2)
    walk = similarities.build(matrix, None, settings, num_train=10).similarity
    assert isinstance(walk, similarity.LazyWalk)


def test_float64_is_asked_for_and_left_behind(data):
    settings = dataclasses.replace(presets.settings("sbm"), precision="float64")
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        record = rp_study.run(data, settings).record
        assert not jax.config.jax_enable_x64
    assert record["dtype"] == "float64"


def test_first_step_of_rp_scores_like_label_propagation(data):  # Prop. 3.1
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    lines = baselines.run(
        matrix,
        datasets.targets(data),
        data.splits,
        metric=metrics.accuracy,
        with_plain=False,
    )
    settings = presets.RPSettings(power=3, num_steps=1, precision="float32")
    with jax.numpy_dtype_promotion("standard"):
        record = rp_study.run(data, settings).record
    assert record["test_mean"] == records.percent(lines["lp"].grid["3"])


def test_column_normalized_label_propagation_is_the_dense_iteration(data):
    splits = data.splits._replace(**{
        part: np.concatenate([mask, np.roll(mask, 1, axis=1)])
        for part, mask in data.splits._asdict().items()
    })
    targets = datasets.targets(data).astype(np.float64)
    found = baselines.column_lp(data.edges, targets, splits, metric=metrics.accuracy)
    assert found.settings == {"num_iterations": 50, "alpha": 0.9}
    W = np.zeros((data.num_nodes, data.num_nodes))
    W[tuple(data.edges)] = 1
    W = np.maximum(W, W.T)
    np.fill_diagonal(W, 0)
    A = W / np.maximum(W.sum(axis=0), 1)
    clipped = False
    for s, (train, val, test) in enumerate(zip(*splits, strict=True)):
        F = Z = targets * train[:, None]
        for _ in range(50):
            free = 0.9 * A @ F + 0.1 * Z
            F = np.clip(free, 0, 1)
            clipped |= (free != F).any()
        hits = F.argmax(axis=1) == data.labels
        assert found.val[s] == pytest.approx(hits[val].mean(), abs=1e-12)
        assert found.test[s] == pytest.approx(hits[test].mean(), abs=1e-12)
    assert clipped


def test_the_published_score_is_not_that_of_random_splits(data):
    settings = presets.settings("photo")
    photo = data._replace(name="photo", split_kind="published")
    drawn = photo._replace(split_kind="random")
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        one, other = (rp_study.run(x, settings).record for x in (photo, drawn))
    assert one["published"]["test"] == 95.55
    assert other["published"] is None
    assert (one["split_kind"], other["split_kind"]) == ("published", "random")


@pytest.mark.parametrize(
    ("metric", "words"),
    [("macro_f1", "macro F1"), ("average_precision", "average precision")],
)
def test_a_dataset_may_have_any_metric_of_scores(data, metric, words):
    settings = dataclasses.replace(presets.settings("sbm"), kernel=None, num_steps=3)
    found = rp_study.run(data._replace(metric=metric), settings)
    assert f"sbm: {words} in percent" in tables.run_table(found.record)
    (split,) = found.record["splits"]
    assert split["test"] == records.percent(found.trajectory.best_test[0])


def test_a_dataset_cannot_have_a_metric_of_probabilities(data):
    with pytest.raises(ValueError, match="neg_log_loss needs the loss of the run"):
        rp_study.run(data._replace(metric="neg_log_loss"), presets.settings("sbm"))


def test_records_are_plain_json_without_nan():
    text = json_files.dumps({
        "a": np.float32(0.5),
        "b": [np.nan, np.int64(3)],
        "c": np.inf,
    })
    assert json.loads(text) == {"a": 0.5, "b": [None, 3], "c": None}


def test_summary_takes_ddof_one_over_splits_and_zero_for_one():
    many = records.summary(np.array([0.5, 0.7]), np.array([0.1, 0.2]))
    assert many["val_mean"] == 60.0
    assert many["test_std"] == pytest.approx(100 * 0.1 / 2**0.5, abs=1e-4)
    assert records.summary(np.array([0.5]), np.array([0.1]))["test_std"] == 0.0
