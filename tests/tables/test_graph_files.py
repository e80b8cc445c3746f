"""Graphs in npz files: classes and ids as text, and edges that count."""

import numpy as np
import pytest

from gnnrp.tables import graph_files

EDGES = np.array([[0, 1, 1, 2, 3, 4], [1, 0, 2, 3, 3, 0]])
LABELS = np.array([0, 0, -1, 4, 4])


def read(tmp_path, **arrays):
    path = tmp_path / "graph.npz"
    np.savez(path, **({"edges": EDGES, "labels": LABELS} | arrays))
    return graph_files.read(path)


def test_a_file_is_a_graph_of_ids_classes_and_features_as_they_are(tmp_path):
    x = np.arange(10.0).reshape(5, 2)
    found = read(tmp_path, features=x, node_ids=np.array(list("abcde")))
    assert found.ids.tolist() == list("abcde")
    np.testing.assert_array_equal(found.edges, [[0, 1, 1, 2, 4], [1, 0, 2, 3, 0]])
    assert found.codes.tolist() == [0, 0, -1, 1, 1]
    assert found.classes.tolist() == ["0", "4"]
    np.testing.assert_array_equal(found.features.matrix, x)
    assert found.features.names == ("0", "1")
    assert found.dropped == {"self-loops": 1, "repeated edges": 1}


def test_without_ids_nodes_are_row_numbers(tmp_path):
    found = read(tmp_path)
    assert found.ids.tolist() == list("01234")
    assert found.features is None


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"edges": np.array([[1, 2], [1, 2]])}, "no edge between two nodes, got 2 sel"),
        ({"edges": np.zeros((2, 0), int)}, "no edge between two nodes, got 0 self"),
        ({"labels": np.array([1, 1, -1, -1, 1])}, "all labels of .* are 1; label node"),
        ({"labels": np.full(5, -1)}, "must have a class id at least once"),
        ({"labels": np.array([0, 1, 2, 3, 99])}, "99 for 5 nodes"),
        ({"edges": EDGES + 1}, "node ids from 0 to 4, .* got 5"),
        ({"edges": EDGES.T}, r"edges must have shape \(2, e\).*pass edges.T"),
        ({"features": np.full((5, 1), np.nan)}, "features must be finite"),
        ({"features": np.ones((4, 1))}, r"features must have shape \(5, d\)"),
        ({"features": np.ones((5, 1), object)}, "pickled.*; save arrays of numbers"),
    ],
)
def test_files_that_are_no_graph_are_refused_in_one_sentence(arrays, match, tmp_path):
    with pytest.raises(ValueError, match=match) as caught:
        read(tmp_path, **arrays)
    assert "graph.npz" in str(caught.value)
    assert "\n" not in str(caught.value)
