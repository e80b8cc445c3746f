"""Graphs from tables: ids, weights, labels and features as arrays, or one sentence."""

from pathlib import Path

import numpy as np
import pytest

from gnnrp.tables import example, graph_tables
from gnnrp.tables.files import Table
from gnnrp.tables.settings import TableSettings

EDGES = {"source": ["a", "b", "c", "c"], "target": ["b", "c", "c", "d"]}
LABELS = {"id": ["d", "a", "z", "b"], "label": ["red", "blue", "red", ""]}


def table(columns, name="t.csv", first_line=2):
    arrays = {key: np.array(values, object) for key, values in columns.items()}
    return Table(Path(name), arrays, first_line)


def make(edges=EDGES, labels=LABELS, features=None, **settings):
    return graph_tables.make(
        table(edges, "edges.csv"),
        table(labels, "labels.csv"),
        None if features is None else table(features, "features.csv"),
        TableSettings(**settings),
    )


def test_ids_are_nodes_in_the_order_of_occurrence():
    found = make()
    assert found.ids.tolist() == ["a", "b", "c", "d"]
    assert found.edges.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert found.weights is None
    assert found.classes.tolist() == ["blue", "red"]
    assert found.codes.tolist() == [0, -1, -1, 1]
    assert found.dropped == {
        "self-loops": 1,
        "repeated edges": 0,
        "labels of unknown ids": 1,
    }


def test_nodes_with_features_only_are_isolated_nodes():
    found = make(features={"id": ["e", "a"], "x": ["1", "3"]})
    assert found.ids.tolist() == ["a", "b", "c", "d", "e"]
    assert found.features.matrix.tolist() == [[1.0], [0], [0], [0], [-1]]
    assert found.dropped["nodes without features"] == 3


def test_numbers_are_standardized_and_categories_are_one_hot():
    ids = [f"n{i}" for i in range(10)]
    edges = {"source": ids[:-1], "target": ids[1:]}
    labels = {"id": ids[:2], "label": ["x", "y"]}
    ages = ["10", "20", "", "30", "nan", "40", "50", "60", "70", "80"]
    features = {
        "id": ids,
        "age": ages,
        "city": ["B", "A", "", "A", "B", "A", "A", "A", "A", "A"],
        "zip": ["1", "2"] * 5,
        "same": ["0.1"] * 10,
        "none": [""] * 10,
    }
    found = make(edges, labels, features, categorical=("zip",)).features
    assert found.names == ("age", "city=A", "city=B", "zip=1", "zip=2")
    assert found.dropped == ("same", "none")
    assert found.num_missing == 13
    known = np.array([float(x) for x in ages if x not in {"", "nan"}])
    expected = (known - known.mean()) / known.std()
    age = found.matrix[:, 0]
    np.testing.assert_allclose(age[[0, 1, 3, 5, 6, 7, 8, 9]], expected, rtol=1e-6)
    assert age[2] == age[4] == 0
    assert found.matrix[2, 1:3].tolist() == [0, 0]
    assert found.matrix[0, 1:].tolist() == [0, 1, 1, 0]


def test_weights_come_from_the_column_of_that_name_or_of_the_settings():
    edges = EDGES | {"weight": ["1", "2.5", "9", "0"]}
    assert make(edges).weights.tolist() == [1, 2.5, 0]
    edges = EDGES | {"calls": ["1", "2.5", "9", "3"]}
    assert make(edges).weights is None
    columns = ("source", "target", "calls")
    assert make(edges, edge_columns=columns).weights.tolist() == [1, 2.5, 3]
    assert make(edges, edge_columns=("0", "1", "2")).weights.tolist() == [1, 2.5, 3]


def test_a_column_of_weights_may_stand_between_source_and_target():
    edges = {"source": ["a", "b"], "weight": ["1", "2"], "target": ["b", "c"]}
    found = make(edges, {"id": ["a", "b"], "label": ["x", "y"]})
    assert found.edges.tolist() == [[0, 1], [1, 2]]
    assert found.weights.tolist() == [1, 2]


def test_missing_labels_are_recognized_in_any_case():
    labels = {"id": ["a", "b", "c", "d"], "label": ["x", "none", "NULL", "y"]}
    assert make(labels=labels).codes.tolist() == [0, -1, -1, 1]


def test_both_directions_of_equal_weight_are_accepted():
    edges = {"source": ["a", "b"], "target": ["b", "a"], "weight": ["2", "2"]}
    found = make(edges, {"id": ["a", "b"], "label": ["x", "y"]})
    assert found.weights.tolist() == [2, 2]
    assert found.dropped["repeated edges"] == 1


@pytest.mark.parametrize(
    ("pairs", "weights"),
    [("ab ba", "1 2"), ("ab ab", "1 1"), ("ab ba ab", "1 1 1"), ("ab cd ba", "1 1 2")],
)
def test_repeated_weights_need_a_rule(pairs, weights):
    edges = {
        "source": [pair[0] for pair in pairs.split()],
        "target": [pair[1] for pair in pairs.split()],
        "weight": weights.split(),
    }
    labels = {"id": ["a", "b"], "label": ["x", "y"]}
    with pytest.raises(ValueError, match=r"edges.csv, line \d: the edge is also at"):
        make(edges, labels)
    assert len(make(edges, labels, duplicates="sum").weights) == len(weights.split())


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"edges": EDGES | {"target": ["b", "", "c", "d"]}},
            "line 3: the id in column",
        ),
        ({"edges": {"source": ["a"]}}, "edges.csv needs two columns"),
        (
            {"edges": {"a": ["b", "a"], "b": ["c", "b"]}},
            "first line of edges.csv names no",
        ),
        ({"labels": {"a": ["b", "d"], "x": ["1", "2"]}}, "first line of labels.csv"),
        (
            {"features": {"b": ["a", "d"], "x": ["1", "2"]}},
            "first line of features.csv",
        ),
        ({"edges": {"source": ["a"], "target": ["a"]}}, "every edge .* a self-loop"),
        (
            {"edges": EDGES | {"weight": ["1", "x", "1", "1"]}},
            "line 3: the weight .*'x'",
        ),
        (
            {"edges": EDGES | {"weight": ["1", "-2", "1", "1"]}},
            r"'-2'; allow it by signed",
        ),
        ({"edges": EDGES | {"weight": ["1", "inf", "1", "1"]}}, "'inf'; correct it"),
        ({"labels": LABELS | {"id": ["q"] * 4}}, "no label of labels.csv belongs to"),
        ({"labels": LABELS | {"label": [""] * 4}}, "no label of labels.csv belongs to"),
        (
            {"labels": LABELS | {"id": ["a"] * 4}},
            "node 'a' has two labels: 'blue' at labels.csv, line 3, and",
        ),
        ({"labels": LABELS | {"label": ["red"] * 4}}, "all labels .* are 'red'"),
        ({"edges": EDGES | {"weight": ["1", "0,5", "1", "1"]}}, "with a decimal point"),
        ({"features": {"id": ["y", "z"], "x": ["1", "2"]}}, "no id in column 'id' of"),
        ({"features": {"id": ["a", "b"], "x": ["1", "1"]}}, "empty or constant; leave"),
        ({"features": {"id": ["a", "b"], "x": ["1,5", "2,5"]}}, "has a decimal comma"),
        (
            {"features": {"id": ["a", "b"], "x": ["1", "1e300"]}},
            "is too large; numbers",
        ),
        ({"feature_columns": ("id", "x")}, "feature_columns needs a table of features"),
        ({"label_columns": ("id", "0")}, "column 'id' of labels.csv is named twice"),
        ({"features": {"id": ["a", "a"], "x": ["1", "2"]}}, "two rows of features"),
        ({"features": {"id": ["a", "b"]}}, "a column of ids and one of features"),
        ({"categorical": ("x",)}, "categorical needs a table of features"),
        ({"edge_columns": ("source",)}, "edge_columns must name source, target"),
        ({"label_columns": ("id",)}, "label_columns must name id and label"),
        ({"duplicates": "mean"}, "duplicates must be"),
    ],
)
def test_bad_tables_are_one_sentence(changes, match):
    with pytest.raises(ValueError, match=match):
        make(**changes)


def test_text_among_numbers_is_an_error_and_much_text_is_a_category():
    ids = [f"n{i}" for i in range(40)]
    edges = {"source": ids[:-1], "target": ids[1:]}
    labels = {"id": ids[:2], "label": ["x", "y"]}
    numbers = [str(i) for i in range(40)]
    for bad in ("ten", "inf"):
        features = {"id": ids, "x": [*numbers[:-1], bad]}
        with pytest.raises(ValueError, match=f"line 41: '{bad}' in column 'x'"):
            make(edges, labels, features)
    many = {"id": ids, "x": ["a", "b"] * 10 + numbers[:20]}
    assert len(make(edges, labels, many).features.names) == 22


def test_too_many_categories_are_refused():
    ids = [f"n{i}" for i in range(1100)]
    edges = {"source": ids[:-1], "target": ids[1:]}
    labels = {"id": ids[:2], "label": ["x", "y"]}
    with pytest.raises(ValueError, match="has 1,100 different texts"):
        make(edges, labels, {"id": ids, "name": ids})


def test_the_example_tables_make_a_graph():
    tables = {
        name: table(dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True)), name)
        for name, rows in example.make().items()
    }
    found = graph_tables.make(**tables)
    assert found.edges.shape == (2, example.NUM_EDGES)
    assert (found.codes >= 0).sum() == example.NUM_LABELS
    assert found.classes.tolist() == sorted(example.SEGMENTS)
    assert found.features.names[-2:] == ("age", "spending")
