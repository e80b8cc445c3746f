"""Edges as tables and node ids of any type, the same graphs as by position."""

import numpy as np
import pandas
import pytest

from gnnrp import ResidualPropagation, graph
from gnnrp.estimator import OnGraph

IDS = ["eve", "bob", "ann", "dan", "cat", "fay"]  # in the order of the labels
LABELS = [0, None, None, None, None, 1]
PATH = np.array([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
WEIGHTS = [1.0, 2.0, 0.5, 3.0, 1.0]


class Table:
    """The part of pandas' frames that is read."""

    def __init__(self, **columns):
        self.columns, self.values = list(columns), columns

    def __getitem__(self, name):
        return np.asarray(self.values[name])

    def to_numpy(self):
        return np.array([self[name] for name in self.columns], object).T


class Repeated(Table):
    """A frame with two columns of one name."""

    def __init__(self):
        self.columns = ["a", "a"]


def named(edges, ids=IDS):
    return np.array(ids, object)[edges]


def table(edges=PATH, **more):
    return Table(source=edges[0], target=edges[1], **more)


def fit(edges, labels=LABELS, **more):
    return ResidualPropagation(3, 0.5, 5).fit(edges, labels, **more)


EXPECTED = fit(PATH)
GIVEN = {
    "a table": (table(named(PATH)), IDS),
    "an array of objects": (named(PATH), IDS),
    "an array of strings": (named(PATH).astype(str), np.array(IDS)),
    "lists": (named(PATH).tolist(), tuple(IDS)),
    "numbers": (table(PATH * 10 + 7), np.arange(6) * 10 + 7),
    "strings and numbers": (
        [[7, "b", "c", 9, "e"], ["b", "c", 9, "e", 2]],
        [7, "b", "c", 9, "e", 2],
    ),
}


@pytest.mark.parametrize("name", GIVEN)
def test_edges_between_ids_are_those_between_their_positions(name):
    edges, node_ids = GIVEN[name]
    found = fit(edges, node_ids=node_ids)
    np.testing.assert_array_equal(found.scores_, EXPECTED.scores_)
    over_nodes = OnGraph(ResidualPropagation(3, 0.5, 5), edges, node_ids=node_ids)
    found = over_nodes.fit([0, 5], [0, 1]).model_
    np.testing.assert_array_equal(found.scores_, EXPECTED.scores_)


def test_ids_without_an_edge_are_isolated_nodes():
    with pytest.warns(UserWarning, match="no label reaches 1 of 7"):
        found = fit(table(named(PATH)), [*LABELS, None], node_ids=[*IDS, "gil"])
    np.testing.assert_array_equal(found.scores_[:6], EXPECTED.scores_)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint64])
def test_a_table_without_ids_holds_positions(dtype):
    edges = Table(source=PATH[0].astype(dtype), target=PATH[1])
    np.testing.assert_array_equal(fit(edges).scores_, EXPECTED.scores_)
    assert (graph.raw_adjacency(edges) != graph.raw_adjacency(PATH)).nnz == 0


def test_the_weights_of_a_table_are_used_unless_others_are_passed():
    edges = Table(weight=WEIGHTS, senders=PATH[0], receivers=PATH[1])
    expected = fit(PATH, weights=WEIGHTS)
    np.testing.assert_array_equal(fit(edges).scores_, expected.scores_)
    found = fit(table(named(PATH), weight=WEIGHTS), node_ids=IDS)
    np.testing.assert_array_equal(found.scores_, expected.scores_)
    found = fit(edges, weights=np.ones(5))
    np.testing.assert_array_equal(found.scores_, EXPECTED.scores_)
    w, plain = graph.raw_adjacency(edges), graph.raw_adjacency(PATH, weights=WEIGHTS)
    assert (w != plain).nnz == 0
    w = graph.raw_adjacency(edges, weights=np.ones(5))
    assert (w != graph.raw_adjacency(PATH)).nnz == 0


NAMED = table(named(PATH))
REFUSED = [
    (NAMED, IDS[:5], ValueError, "edge 4 has the node id 'fay', which is not in node_"),
    (PATH, [*"012345"], ValueError, "edge 0 has the node id 0, which is not in node_"),
    (NAMED, [*IDS, "bob"], ValueError, "distinct, got 'bob' in rows 1 and 6"),
    (NAMED, 3, ValueError, r"node_ids must have shape \(n,\).* got 3"),
    (
        NAMED,
        np.ma.array(IDS, mask=[1] + [0] * 5),
        ValueError,
        "node_ids must have no m",
    ),
    (NAMED, np.ones((6, 1)), ValueError, r"node_ids must .*of shape \(6, 1\)"),
    (NAMED, None, TypeError, "whole numbers from 0, got object and object; the fit"),
    (PATH.T, IDS, ValueError, r"array \(2, e\), got ndarray of shape \(5, 2\)"),
    (graph.raw_adjacency(PATH), IDS, ValueError, "leave node_ids out for other graphs"),
    (
        Table(a=[0], b=[1], c=[2]),
        None,
        ValueError,
        r"got the columns \['a', 'b', 'c'\]",
    ),
    (Table(a=[0], weight=[1]), None, ValueError, r"two columns of node ids and option"),
    (Repeated(), None, ValueError, r"got the columns \['a', 'a'\]"),
    (table(weight=[-1.0] * 5), None, ValueError, "weights must be finite and not neg"),
    (table(PATH + 1), None, ValueError, "edges have node id 6, but there are 6 labels"),
]


@pytest.mark.parametrize(("edges", "node_ids", "error", "sentence"), REFUSED)
def test_edges_and_ids_that_do_not_match_are_refused(edges, node_ids, error, sentence):
    with pytest.raises(error, match=sentence):
        fit(edges, node_ids=node_ids)


def test_a_table_without_rows_has_no_edges():
    assert graph.raw_adjacency(Table(a=[], b=[]), 3).nnz == 0


def test_there_is_an_id_for_each_label():
    with pytest.raises(ValueError, match="a label for each of 6 nodes, got 5"):
        fit(NAMED, LABELS[:5], node_ids=IDS)


def test_the_graph_functions_take_tables_of_positions_only():
    with pytest.raises(TypeError, match="a table of edges must hold positions"):
        graph.raw_adjacency(NAMED)


def test_a_frame_of_an_edge_index_is_the_index():
    here, there = (graph.raw_adjacency(x) for x in (pandas.DataFrame(PATH), PATH))
    assert (here != there).nnz == 0
