"""What bounds a mean over random splits is told of the graph that was given."""

import json

import jax
import miniatures
import numpy as np
import pytest

from experiments.paper import random_splits
from gnnrp import datasets


@pytest.fixture(autouse=True)
def as_users_run_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def with_edges(edges, labels):
    data = datasets.load("sbm")
    n = len(labels)
    return data._replace(
        edges=np.array(edges).T,
        num_nodes=n,
        labels=np.array(labels),
        features=np.arange(n)[:, None],
        splits=data.splits._replace(**{
            part: np.eye(3, n, dtype=bool)[i : i + 1]
            for i, part in enumerate(data.splits._fields)
        }),
    )


def test_nodes_with_a_loop_alone_have_no_neighbor():
    data = with_edges([(0, 1), (2, 2)], [0, 1, 0, 1])
    np.testing.assert_array_equal(
        random_splits.without_neighbor(data), [False, False, True, True]
    )


def test_the_largest_component_keeps_what_belongs_to_its_nodes():
    data = with_edges([(0, 0), (3, 1), (1, 4), (2, 2)], [5, 6, 7, 8, 9])
    part = random_splits.largest_component(data)
    np.testing.assert_array_equal(part.edges, [[1, 0], [0, 2]])
    np.testing.assert_array_equal(part.labels, [6, 8, 9])
    np.testing.assert_array_equal(part.features, [[1], [3], [4]])
    np.testing.assert_array_equal(part.splits.val, [[True, False, False]])
    assert part.num_nodes == 3
    assert not part.splits.train.any()


def test_summaries_leave_out_splits_without_such_nodes():
    found = random_splits.summary(np.array([0.5, np.nan, 0.7]))
    assert found == {"mean": 60.0, "std": 14.14, "min": 50.0, "max": 70.0}
    assert random_splits.summary(np.array([np.nan]))["mean"] is None


@pytest.mark.filterwarnings("ignore:all nodes are predicted to be of one")
@pytest.mark.filterwarnings("ignore:all nodes are predicted")  # random labels
def test_a_record_is_made_of_a_miniature(tmp_path):
    miniatures.copurchase(tmp_path)
    found = random_splits.main(
        random_splits.Config(data_dir=tmp_path, num_splits=3, output=tmp_path)
    )
    written = json.loads((tmp_path / "random_splits_photo.json").read_text())
    assert written == found
    assert found["published"] == 95.55
    assert 0 <= found["splits that reach it"] <= found["splits"] == 3
    assert found["step chosen on the test nodes"]["mean"] >= found["test"]["mean"]


def test_another_metric_is_refused(tmp_path):
    miniatures.heterophilous(tmp_path)
    config = random_splits.Config(dataset="tolokers", data_dir=tmp_path)
    with pytest.raises(ValueError, match="scored by roc_auc"):
        random_splits.main(config)
