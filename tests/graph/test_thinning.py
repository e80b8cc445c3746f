"""Graphs with edges dropped, in both manners."""

import numpy as np
import pytest

from gnnrp import graph

N = 200


@pytest.fixture(scope="module")
def edges():
    rng = np.random.default_rng(0)
    return rng.integers(0, N, (2, 4000))


def pairs(W):
    return set(zip(*W.nonzero(), strict=True))


@pytest.mark.parametrize("manner", graph.MANNERS)
def test_nothing_dropped_is_the_graph_and_everything_none(edges, manner):
    whole = graph.raw_adjacency(edges, N)
    kept = graph.thinned(edges, N, drop=0.0, manner=manner)
    assert (kept != whole).nnz == 0
    assert graph.thinned(edges, N, drop=1.0, manner=manner).nnz == 0


@pytest.mark.parametrize(("manner", "share"), [("undirected", 0.4), ("directed", 0.64)])
def test_each_manner_keeps_its_share_of_edges_symmetrically(edges, manner, share):
    whole = graph.raw_adjacency(edges, N)
    kept = graph.thinned(edges, N, drop=0.6, seed=3, manner=manner)
    assert (kept != kept.T).nnz == 0
    assert pairs(kept) <= pairs(whole)
    deviation = np.sqrt(share * (1 - share) * whole.nnz / 2) * 2
    assert abs(kept.nnz - share * whole.nnz) < 4 * deviation


@pytest.mark.parametrize("manner", graph.MANNERS)
def test_a_larger_share_drops_what_a_smaller_one_drops(edges, manner):
    kept = [
        pairs(graph.thinned(edges, N, drop=drop, seed=1, manner=manner))
        for drop in (0.2, 0.5, 0.9)
    ]
    assert kept[0] > kept[1] > kept[2]
    other = graph.thinned(edges, N, drop=0.5, seed=2, manner=manner)
    assert pairs(other) != kept[1]


def test_weights_are_kept():
    W = graph.thinned(np.array([[0, 1], [1, 2]]), 3, drop=0.0)
    assert W.toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drop": 1.5}, r"drop must lie in \[0, 1\], got 1.5"),
        ({"drop": 0.5, "manner": "nodes"}, "manner must be one of directed, undirec"),
    ],
)
def test_what_cannot_be_dropped_is_refused(edges, change, message):
    with pytest.raises(ValueError, match=message):
        graph.thinned(edges, N, **change)
