"""Graphs with edges dropped, in both modes."""

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


@pytest.mark.parametrize("mode", graph.DROP_MODES)
def test_nothing_dropped_is_the_graph_and_everything_none(edges, mode):
    whole = graph.raw_adjacency(edges, N)
    kept = graph.drop_edges(edges, N, drop=0.0, mode=mode)
    assert (kept != whole).nnz == 0
    assert graph.drop_edges(edges, N, drop=1.0, mode=mode).nnz == 0


@pytest.mark.parametrize(("mode", "share"), [("undirected", 0.4), ("directed", 0.64)])
def test_each_mode_keeps_its_share_of_edges_symmetrically(edges, mode, share):
    whole = graph.raw_adjacency(edges, N)
    kept = graph.drop_edges(edges, N, drop=0.6, seed=3, mode=mode)
    assert (kept != kept.T).nnz == 0
    assert pairs(kept) <= pairs(whole)
    deviation = np.sqrt(share * (1 - share) * whole.nnz / 2) * 2
    assert abs(kept.nnz - share * whole.nnz) < 4 * deviation


@pytest.mark.parametrize("mode", graph.DROP_MODES)
def test_a_larger_share_drops_what_a_smaller_one_drops(edges, mode):
    kept = [
        pairs(graph.drop_edges(edges, N, drop=drop, seed=1, mode=mode))
        for drop in (0.2, 0.5, 0.9)
    ]
    assert kept[0] > kept[1] > kept[2]
    other = graph.drop_edges(edges, N, drop=0.5, seed=2, mode=mode)
    assert pairs(other) != kept[1]


def test_weights_are_kept():
    W = graph.drop_edges(np.array([[0, 1], [1, 2]]), 3, drop=0.0)
    assert W.toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drop": 1.5}, r"drop must lie in \[0, 1\], got 1.5"),
        ({"drop": 0.5, "mode": "nodes"}, "mode must be one of directed, undirec"),
    ],
)
def test_what_cannot_be_dropped_is_refused(edges, change, message):
    with pytest.raises(ValueError, match=message):
        graph.drop_edges(edges, N, **change)
