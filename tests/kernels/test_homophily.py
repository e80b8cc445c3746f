"""Homophily counted three ways, on graphs small enough to count by hand."""

import generators
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.experimental.sparse import BCOO

from gnnrp import datasets, graph
from gnnrp.kernels import alignment, homophily

EDGES = np.array([[0, 0, 1, 3], [1, 2, 2, 4]])
LABELS = np.array([0, 0, 1, 1, -1, 1])


def adjacency(edges=EDGES, n=6, **settings):
    return graph.normalized_adjacency(edges, n, **settings)


def test_edges_and_nodes_are_counted_without_loops_and_unknown_labels():
    assert homophily.by_edges(adjacency(), LABELS) == 1 / 3
    assert homophily.by_nodes(adjacency(), LABELS) == pytest.approx((1 / 2 + 1 / 2) / 3)


def test_each_direction_counts_for_itself():
    A = scipy.sparse.csr_array((np.ones(3), ([0, 0, 1], [1, 2, 3])), shape=(4, 4))
    labels = np.array([0, 0, 1, 0])
    assert homophily.by_edges(A, labels) == 2 / 3
    assert homophily.by_nodes(A, labels) == 3 / 4


ZERO = ([0.0, 1, 0, 1], ([0, 1, 1, 2], [1, 2, 0, 1]))


@pytest.mark.parametrize("form", ["coo", "csr", "bcoo", "repeated"])
def test_a_stored_zero_is_no_edge(form):
    entries, labels = ZERO, np.array([0, 0, 1])
    if form == "repeated":  # 2 - 2 on (0, 1), 1 + 1 on (1, 2)
        entries = ([2.0, -2, 1, 1], ([0, 0, 1, 1], [1, 1, 2, 2]))
    A = scipy.sparse.coo_array(entries, (3, 3))
    if form == "csr":
        A = A.tocsr()
    if form == "bcoo":
        A = BCOO((jnp.asarray(entries[0]), jnp.asarray(entries[1]).T), shape=(3, 3))
    assert homophily.by_edges(A, labels) == 0
    assert homophily.by_nodes(A, labels) == 0


def test_an_edge_that_is_stored_twice_counts_once():
    entries = (np.ones(3), np.array([1, 1, 2]), np.array([0, 2, 3, 3]))
    A = scipy.sparse.csr_array(entries, (3, 3))  # 0 - 1 twice, 1 - 2
    assert homophily.by_edges(A, np.array([0, 0, 1])) == 1 / 2


def test_without_an_edge_there_is_no_share():
    empty = scipy.sparse.csr_array((3, 3))
    labels = np.zeros(3, int)
    assert np.isnan(homophily.by_edges(empty, labels))
    assert np.isnan(homophily.by_nodes(empty, labels))
    with pytest.warns(RuntimeWarning, match="the first kernel is zero"):
        assert np.isnan(homophily.level(empty, labels))


def test_edges_are_counted_as_in_the_table_of_data_sets():
    data = datasets.load("sbm")
    expected = datasets.statistics(data).edge_homophily
    A = adjacency(data.edges, data.num_nodes)
    assert homophily.by_edges(A, data.labels) == pytest.approx(expected, rel=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("centered", [False, True])
def test_the_level_is_the_alignment_with_equal_labels(centered):
    A = adjacency(generators.edges(0), generators.N)
    labels = generators.targets(0).argmax(axis=1)
    same = (labels[:, None] == labels) * 1.0
    expected = alignment.alignment(A, same, centered=centered)
    found = homophily.level(A, labels, centered=centered)
    assert found == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize(
    "count", [homophily.level, homophily.by_edges, homophily.by_nodes]
)
def test_labels_of_other_nodes_are_refused(count):
    with pytest.raises(ValueError, match=r"labels must have shape \(6,\), got \(5,\)"):
        count(adjacency(), LABELS[:5])
