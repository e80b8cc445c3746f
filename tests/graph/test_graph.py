"""Edges of every kind become the matrix that the paper means, or are refused."""

import itertools
import json
from pathlib import Path

import hypothesis
import jax
import jax.numpy as jnp
import jraph
import networkx as nx
import numpy as np
import pytest
import scipy.sparse
from hypothesis import strategies
from jax.experimental.sparse import BCOO

from gnnrp import ResidualPropagation, graph, sparse
from gnnrp.graph import normalize, normalized_adjacency, raw_adjacency

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "propagation.json").read_text()
)
PATH = np.array([[0, 1], [1, 2]])  # 0 - 1 - 2
DIRECTED = np.array([[0, 1, 2, 0, 3], [1, 2, 0, 3, 3]])  # with a loop at 3
WEIGHTS = [2.0, 0.5, 3.0, 1.5, 7.0]
LARGE = 2**45  # row pointers of so many nodes, 256 TiB, can nowhere be allocated


def dense(edges, *args, **settings):
    return normalized_adjacency(edges, *args, **settings).todense()


def raw(edges, *args, **settings):
    return raw_adjacency(edges, *args, **settings).toarray()


def reference(w, normalization="symmetric", self_loops=1.0):
    """Entry by entry, as the definitions have it."""
    n = len(w)
    w = w + self_loops * np.eye(n)
    row = [sum(abs(w[i, j]) for j in range(n)) for i in range(n)]
    column = [sum(abs(w[i, j]) for i in range(n)) for j in range(n)]
    normalized = np.zeros((n, n))
    for i, j in itertools.product(range(n), repeat=2):
        degree = {
            "symmetric": np.sqrt(row[i] * column[j]),
            "row": row[i],
            "column": column[j],
            "none": 1.0,
        }[normalization]
        if w[i, j]:
            normalized[i, j] = w[i, j] / degree
    return normalized


def built(edges, n, weights=None, *, directed=False):
    """W of edges that are stored once, without loops, by a loop over them."""
    w = np.zeros((n, n))
    for k, (j, i) in enumerate(edges.T):
        if i != j:
            w[i, j] = 1 if weights is None else weights[k]
            if not directed:
                w[j, i] = w[i, j]
    return w


def graphs_tuple(edges, n, values=None):
    return jraph.GraphsTuple(
        nodes=None,
        edges=None if values is None else jnp.asarray(values),
        senders=jnp.asarray(edges[0]),
        receivers=jnp.asarray(edges[1]),
        n_node=jnp.array([n]),
        n_edge=jnp.array([edges.shape[1]]),
        globals=None,
    )


# What the paper means by A


@pytest.mark.parametrize(
    ("name", "self_loops"), [("A_norm_with_self_loops", 1), ("A_norm_no_self_loops", 0)]
)
def test_adjacency_equals_the_golden_one(name, self_loops):
    edges = np.array(GOLDEN["W"]).nonzero()
    found = dense(np.array(edges), self_loops=self_loops)
    np.testing.assert_allclose(found, GOLDEN[name], rtol=1e-12)


def test_the_self_loops_of_the_input_are_not_counted_twice():  # field report 2
    edges = np.array([[0, 0], [1, 0]])
    np.testing.assert_allclose(dense(edges, 2), np.full((2, 2), 0.5), rtol=1e-15)


@pytest.mark.parametrize("form", ["once", "reversed", "both", "thrice"])
def test_repeated_and_reciprocal_edges_count_once(form):  # field report 3
    pairs = {
        "once": [(0, 1)],
        "reversed": [(1, 0)],
        "both": [(0, 1), (1, 0)],
        "thrice": [(0, 1), (1, 0), (0, 1)],
    }[form]
    np.testing.assert_allclose(dense(np.array(pairs).T), 0.5, rtol=1e-15)


def test_an_edge_stored_once_counts_for_both_directions():  # field report 4
    found = dense(PATH[:, :1])
    np.testing.assert_array_equal(found, found.T)
    both = np.c_[PATH, PATH[::-1]]
    np.testing.assert_array_equal(dense(PATH), dense(both))


def test_weights_count_and_so_do_the_degrees_made_of_them():  # field report 5
    found = dense(PATH, weights=[4.0, 1.0])
    assert found[0, 1] == pytest.approx(0.7303, abs=5e-5)
    assert found[1, 2] == pytest.approx(0.2887, abs=5e-5)
    expected = reference(built(PATH, 3, [4.0, 1.0]))
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_the_entry_of_an_edge_stands_in_the_row_of_its_receiver():
    found = raw(np.array([[0], [1]]), directed=True)  # 0 -> 1
    np.testing.assert_array_equal(found, [[0, 0], [1, 0]])
    signal = np.array([5.0, 0.0])
    np.testing.assert_array_equal(found @ signal, [0, 5])


@pytest.mark.parametrize("seed", range(6))
def test_weighted_adjacency_is_symmetric_to_the_last_bit(seed):
    star = np.stack([np.zeros(6, int), np.arange(1, 7)])
    weights = 10 * np.random.default_rng(seed).random(6)
    # Here sums over a row and over its column may be rounded differently.
    found = dense(star, weights=weights, self_loops=0.3)
    np.testing.assert_array_equal(found, found.T)


def test_entries_are_sorted_and_unique():
    shuffle = np.array([3, 0, 4, 1, 2])
    found = normalized_adjacency(DIRECTED[:, shuffle])
    assert found.indices_sorted
    assert found.unique_indices
    keys = found.indices[:, 0] * 4 + found.indices[:, 1]
    assert np.all(np.diff(keys) > 0)
    assert found.indices.dtype == np.int32


def test_precision_follows_jax():
    assert normalized_adjacency(PATH).dtype == np.float64
    with jax.enable_x64(False):
        assert normalized_adjacency(PATH).dtype == np.float32


# Nodes without edges


def test_an_isolated_node_keeps_itself_through_its_loop():
    found = dense(PATH, 5)
    assert found.shape == (5, 5)
    np.testing.assert_array_equal(found[3:], np.eye(5)[3:])


@pytest.mark.parametrize("normalization", graph.NORMALIZATIONS)
def test_without_loops_the_row_of_an_isolated_node_is_zero(normalization):
    found = dense(PATH, 5, normalization=normalization, self_loops=0)
    assert np.all(np.isfinite(found))
    np.testing.assert_array_equal(found[3:], np.zeros((2, 5)))
    np.testing.assert_array_equal(found[:, 3:], np.zeros((5, 2)))


@pytest.mark.long
@pytest.mark.parametrize(
    "edges", [np.zeros((2, 0), int), np.array([]), [], [[], []], np.zeros((0, 2))]
)
def test_no_edges_leave_the_loops(edges):
    np.testing.assert_array_equal(dense(edges, 3), np.eye(3))
    np.testing.assert_array_equal(dense(edges, 3, self_loops=0), np.zeros((3, 3)))


def test_no_nodes_make_an_empty_matrix():
    assert normalized_adjacency(np.zeros((2, 0), int)).shape == (0, 0)


# Normalizations


@pytest.mark.parametrize("normalization", graph.NORMALIZATIONS)
@pytest.mark.parametrize("self_loops", [0, 1, 0.25])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_every_normalization_equals_its_definition(
    normalization, self_loops, directed, weighted
):
    weights = WEIGHTS if weighted else None
    settings = {"normalization": normalization, "self_loops": self_loops}
    w = built(DIRECTED, 5, weights, directed=directed)
    found = dense(DIRECTED, 5, weights=weights, directed=directed, **settings)
    np.testing.assert_allclose(found, reference(w, **settings), rtol=1e-14)


def test_normalizing_leaves_its_input_as_it_was():
    w = raw_adjacency(PATH)
    before = w.toarray()
    normalize(w)
    normalize(w, self_loops=0)
    np.testing.assert_array_equal(w.toarray(), before)


def test_normalizing_adds_to_the_loops_that_were_kept():
    w = raw_adjacency(np.array([[0, 0], [0, 1]]), keep_loops=True)
    expected = reference(np.array([[1.0, 1], [1, 0]]))
    np.testing.assert_allclose(normalize(w).toarray(), expected, rtol=1e-14)


def test_an_unknown_normalization_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="got 'symetric'; did you mean 'symmetric'"):
        dense(PATH, normalization="symetric")


@pytest.mark.parametrize("self_loops", [-1.0, np.inf, np.nan])
def test_loops_of_no_finite_weight_are_refused(self_loops):
    with pytest.raises(ValueError, match=f"self_loops must lie in .* got {self_loops}"):
        dense(PATH, self_loops=self_loops)


# Loops, directions, weights


def test_loops_are_dropped_unless_kept():
    edges = np.array([[0, 1, 1], [1, 1, 1]])
    np.testing.assert_array_equal(raw(edges), [[0, 1], [1, 0]])
    np.testing.assert_array_equal(raw(edges, keep_loops=True), [[0, 1], [1, 1]])


def test_a_kept_loop_weighs_what_it_weighed():
    edges, weights = np.array([[0, 1], [1, 1]]), [2.0, 3.0]
    expected = [[0, 2], [2, 3]]
    found = raw(edges, weights=weights, keep_loops=True)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_directions_are_kept_on_request(weights):
    found = raw(DIRECTED, weights=weights, directed=True)
    np.testing.assert_array_equal(found, built(DIRECTED, 4, weights, directed=True))


@pytest.mark.long
def test_opposite_directions_may_weigh_differently_where_they_are_kept():
    edges = np.array([[0, 1], [1, 0]])
    found = raw(edges, weights=[2.0, 3.0], directed=True)
    np.testing.assert_array_equal(found, [[0, 3], [2, 0]])


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_weights_may_be_a_column_or_on_the_device(shape):
    weights = jnp.array([4.0, 1.0]).reshape(shape)
    np.testing.assert_array_equal(
        raw(PATH, weights=weights), built(PATH, 3, [4.0, 1.0])
    )


def test_edges_of_weight_zero_are_left_out():
    found = raw_adjacency(PATH, weights=[0.0, 2.0])
    assert found.nnz == 2
    np.testing.assert_array_equal(found.toarray(), built(PATH, 3, [0, 2.0]))


def test_weights_that_cancel_leave_no_edge():
    edges = np.array([[0, 0, 1], [1, 1, 2]])
    found = raw_adjacency(
        edges, weights=[1.0, -1.0, 1.0], signed=True, duplicates="sum"
    )
    assert found.nnz == 2


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (
            [1.0, -1.0],
            r"not negative, got -1.0 for edge 1 \(1 -> 2\); pass signed=True",
        ),
        ([np.nan, 1.0], r"not negative, got nan for edge 0 \(0 -> 1\)$"),
        ([1.0, np.inf], r"not negative, got inf for edge 1 \(1 -> 2\)$"),
    ],
)
def test_a_weight_that_no_degree_bears_is_refused_with_its_edge(weights, match):
    with pytest.raises(ValueError, match=match):  # field report 6
        dense(PATH, weights=weights)


@pytest.mark.parametrize("normalization", graph.NORMALIZATIONS)
def test_signed_degrees_are_sums_of_absolute_weights(normalization):  # field report 6
    weights = [-1.0, 2.0]
    found = dense(PATH, weights=weights, signed=True, normalization=normalization)
    expected = reference(built(PATH, 3, weights), normalization)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    if normalization == "symmetric":
        assert found[0, 1] == pytest.approx(-1 / np.sqrt(2 * 4))


@pytest.mark.parametrize("make", [graph.raw_adjacency, graph.normalized_adjacency])
def test_weights_whose_sum_overflows_are_refused(make):
    edges = np.array([[0, 0], [1, 2]])
    with pytest.raises(ValueError, match=r"got a weight of 1.7e\+308; scale"):
        make(edges, 3, weights=[1.7e308, 1.7e308])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_signed_weights_must_be_finite_too(value):
    with pytest.raises(ValueError, match=r"edge 0 \(0 -> 1\)"):
        raw(PATH, weights=[value, 1.0], signed=True)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 2.0, 3.0], [[1.0, 2.0]], 1.0])
def test_weights_of_another_number_than_the_edges_are_refused(weights):
    with pytest.raises(ValueError, match=r"weights must have shape \(2,\), got"):
        raw(PATH, weights=weights)


# Duplicates

TWICE = np.array([[0, 0, 1, 1], [1, 1, 0, 2]])  # 0 -> 1 twice, 1 -> 0, 1 -> 2


@pytest.mark.parametrize(("rule", "weight"), [("sum", 9.0), ("max", 5.0), ("min", 1.0)])
def test_weighted_duplicates_combine_by_name(rule, weight):  # field report 3
    found = raw(TWICE, weights=[1.0, 5.0, 3.0, 7.0], duplicates=rule)
    expected = built(PATH, 3, [weight, 7.0])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("rule", "weight"), [("sum", 6.0), ("max", 5.0), ("min", 1.0)])
def test_directed_duplicates_combine_each_direction_apart(rule, weight):
    found = raw(TWICE, weights=[1.0, 5.0, 3.0, 7.0], duplicates=rule, directed=True)
    np.testing.assert_array_equal(found, [[0, 3, 0], [weight, 0, 0], [0, 7, 0]])


@pytest.mark.parametrize(
    ("edges", "weights", "directed"),
    [
        ([[0, 3, 3], [1, 2, 2]], [1.0, 2.0, 5.0], False),  # unequal
        ([[0, 3, 3], [1, 2, 2]], [1.0, 2.0, 2.0], False),  # equal, but a sum doubles
        ([[0, 3, 2], [1, 2, 3]], [1.0, 2.0, 5.0], False),  # unequal directions
        ([[0, 2, 2], [1, 3, 3]], [1.0, 2.0, 2.0], False),
        ([[0, 2, 2], [1, 3, 3]], [1.0, 2.0, 2.0], True),
    ],
)
def test_weighted_duplicates_without_a_rule_are_refused_with_the_edge(
    edges, weights, directed
):  # field report 3
    with pytest.raises(
        ValueError, match=r'between [23] and [23] is stored 2 times.*"sum", "max"'
    ):
        raw(np.array(edges), weights=weights, directed=directed)


def test_a_loop_that_is_kept_may_not_be_stored_twice_with_weights():
    edges = np.array([[1, 1], [1, 1]])
    with pytest.raises(ValueError, match="between 1 and 1 is stored 2 times"):
        raw(edges, weights=[1.0, 1.0], keep_loops=True)
    assert raw(edges, weights=[1.0, 1.0]).sum() == 0


def test_both_directions_may_be_stored_with_equal_weights():
    edges = np.c_[PATH, PATH[::-1]]
    found = raw(edges, weights=[4.0, 1.0, 4.0, 1.0])
    np.testing.assert_array_equal(found, built(PATH, 3, [4.0, 1.0]))


def test_an_unknown_rule_for_duplicates_is_refused():
    with pytest.raises(ValueError, match="duplicates must be one of sum, max, min"):
        raw(PATH, duplicates="mean")


# Kinds of edges


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray, np.ndarray.tolist, tuple])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_an_edge_index_may_be_any_pair_of_rows(convert, dtype):
    found = raw(convert(PATH.astype(dtype)))
    np.testing.assert_array_equal(found, built(PATH, 3))


SPARSE = [
    scipy.sparse.coo_array,
    scipy.sparse.csr_array,
    scipy.sparse.csc_array,
    scipy.sparse.csr_matrix,
]


@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.parametrize("dtype", [bool, np.int8, np.float64])
def test_a_binary_sparse_matrix_is_w_itself(kind, dtype):
    w = built(DIRECTED, 5, directed=True)
    matrix = kind(w.astype(dtype))
    np.testing.assert_array_equal(raw(matrix), np.maximum(w, w.T))
    np.testing.assert_array_equal(raw(matrix, directed=True), w)
    np.testing.assert_array_equal(raw(matrix, 5, directed=True), w)


@pytest.mark.parametrize("kind", SPARSE)
def test_the_values_of_a_sparse_matrix_are_its_weights(kind):
    w = built(DIRECTED, 5, WEIGHTS, directed=True)
    np.testing.assert_array_equal(raw(kind(w)), w + w.T)
    np.testing.assert_array_equal(raw(kind(w + w.T)), w + w.T)
    np.testing.assert_array_equal(raw(kind(w), directed=True), w)


@pytest.mark.parametrize("dtype", [bool, np.float64])
def test_a_stored_zero_of_a_sparse_matrix_is_no_edge(dtype):
    entries = (np.array([1, 0], dtype), ([0, 1], [1, 2]))
    found = raw(scipy.sparse.coo_array(entries, shape=(3, 3)))
    np.testing.assert_array_equal(found, built(PATH[:, :1], 3))


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("values", [[1, 1, 1], [1, 1, 5], [1, -1, 5]])
@pytest.mark.parametrize("dtype", [bool, np.int8, np.float32, np.float64])
def test_repeated_entries_of_a_sparse_matrix_are_summed_in_every_format(
    values, dtype, directed
):
    entries = (np.array(values).astype(dtype), ([0, 0, 1], [1, 1, 2]))
    coo = scipy.sparse.coo_array(entries, (3, 3))
    repeated = scipy.sparse.csr_array(
        (coo.data, coo.col, np.array([0, 2, 3, 3])), (3, 3)
    )
    expected = coo.toarray().astype(float)
    expected = expected if directed else expected + expected.T
    for form in (coo, coo.tocsr(), coo.tocsc(), repeated, scipy.sparse.coo_matrix(coo)):
        np.testing.assert_array_equal(raw(form, directed=directed), expected)
    assert coo.nnz == repeated.nnz == 3  # the caller's stay as they are


def test_a_sum_of_small_integers_does_not_wrap_around():
    entries = (np.full(3, 100, np.int8), ([0, 0, 1], [1, 1, 2]))
    coo = scipy.sparse.coo_array(entries, (3, 3))
    np.testing.assert_array_equal(raw(coo), built(PATH, 3, [200.0, 100.0]))
    found = sparse.to_scipy(coo).toarray()
    np.testing.assert_array_equal(found, [[0, 200, 0], [0, 0, 100], [0, 0, 0]])


ULP = 0.1 + 0.2  # the float after 0.3


def test_directions_that_differ_by_rounding_are_averaged():
    w = scipy.sparse.csr_array(np.array([[0, 0.3, 0], [ULP, 0, 2], [0, 2, 0]]))
    edges, weights = np.array([[0, 1, 1, 2], [1, 0, 2, 1]]), [ULP, 0.3, 2, 2]
    for found in (raw(w), raw(edges, weights=weights), raw(-w, signed=True) * -1):
        np.testing.assert_array_equal(found, found.T)
        np.testing.assert_allclose(found, built(PATH, 3, [0.3, 2.0]), rtol=2e-16)
    np.testing.assert_array_equal(raw(w, directed=True), w.toarray())


@pytest.mark.parametrize(
    ("dtype", "other", "same"),
    [
        (np.float64, 1 + 2e-16, True),
        (np.float64, 1 + 4e-15, False),
        (np.float32, 1 + 1.2e-7, True),
        (np.float32, 1 + 1e-6, False),
        (np.float16, 1 + 1e-3, False),
        (jnp.bfloat16, 1 + 8e-3, False),
    ],
)
def test_rounding_is_that_of_the_precision_of_the_weights(dtype, other, same):
    weights = np.array([1, other]).astype(dtype)
    assert weights[0] != weights[1]
    edges = np.array([[0, 1], [1, 0]])
    if same:
        assert raw(edges, weights=weights)[0, 1] == pytest.approx(1, rel=2e-7)
    else:
        with pytest.raises(ValueError, match="between 0 and 1 is stored 2 times"):
            raw(edges, weights=weights)


def test_a_stored_zero_is_no_edge_of_what_is_made_of_a_matrix():
    entries = ([0.0, 1, 0, 1], ([0, 1, 1, 2], [1, 2, 0, 1]))
    w = scipy.sparse.coo_array(entries, (3, 3)).tocsr()
    assert w.nnz == 4
    assert normalize(w, self_loops=0).nnz == 2
    assert int(graph.to_jraph(w).n_edge[0]) == 2
    assert graph.drop_edges(w, drop=0).nnz == 2


def test_a_sparse_matrix_with_both_directions_unequal_is_refused():
    w = scipy.sparse.csr_array(np.array([[0.0, 1], [2, 0]]))
    with pytest.raises(ValueError, match=r"between 0 and 1 .* from 1.0 to 2.0"):
        raw(w)
    np.testing.assert_array_equal(raw(w, duplicates="max"), [[0, 2], [2, 0]])


def test_a_sparse_matrix_that_is_not_square_or_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"must be n x n, got \(2, 3\)"):
        raw(scipy.sparse.csr_array((2, 3)))
    with pytest.raises(ValueError, match=r"got \(3, 3\) for n = 4"):
        raw(scipy.sparse.csr_array((3, 3)), 4)


def test_a_sparse_matrix_takes_no_other_weights():
    with pytest.raises(ValueError, match="has its own weights"):
        raw(scipy.sparse.csr_array((3, 3)), weights=[1.0])


def test_a_networkx_graph_is_read_in_the_order_of_its_nodes():
    found = nx.Graph([("b", "a"), ("a", "c")])
    found.add_node("d")
    expected = built(np.array([[0, 1], [1, 2]]), 4)
    np.testing.assert_array_equal(raw(found), expected)
    np.testing.assert_array_equal(raw(found, 4), expected)


def test_a_networkx_digraph_keeps_its_directions_on_request():
    digraph = nx.DiGraph([(0, 1), (1, 2), (1, 0)])
    both = nx.to_numpy_array(digraph.to_undirected())
    np.testing.assert_array_equal(raw(digraph), both)
    # networkx has W_ij of the edge from i to j.
    expected = nx.to_numpy_array(digraph).T
    np.testing.assert_array_equal(raw(digraph, directed=True), expected)


def test_an_undirected_networkx_graph_has_both_directions_even_where_they_are_kept():
    undirected = nx.path_graph(3)
    found = raw(undirected, directed=True)
    np.testing.assert_array_equal(found, nx.to_numpy_array(undirected))


def test_a_networkx_multigraph_without_weights_counts_each_edge_once():
    np.testing.assert_array_equal(
        raw(nx.MultiGraph([(0, 1), (0, 1)])), [[0, 1], [1, 0]]
    )


@pytest.mark.parametrize("directed", [True, False])
def test_networkx_edges_are_combined_before_they_count_both_ways(directed):
    several = nx.MultiGraph()
    several.add_weighted_edges_from([
        (0, 1, 1.0),
        (1, 0, 2.0),
        (1, 2, 3.0),
        (2, 2, 4.0),
    ])
    found = raw(several, duplicates="sum", directed=directed, keep_loops=True)
    np.testing.assert_array_equal(found, nx.to_numpy_array(several))
    np.testing.assert_array_equal(found, [[0, 3, 0], [3, 0, 3], [0, 3, 4]])
    for rule, weight in (("max", 2.0), ("min", 1.0)):
        found = raw(several, duplicates=rule, directed=directed)
        np.testing.assert_array_equal(found, built(PATH, 3, [weight, 3.0]))
    with pytest.raises(ValueError, match="between 0 and 1 is stored 2 times, with"):
        raw(several, directed=directed)


@pytest.mark.parametrize("rule", [None, "sum", "max", "min"])
def test_a_networkx_graph_without_repeated_edges_needs_no_rule(rule):
    weighted = nx.Graph()
    weighted.add_weighted_edges_from([(0, 1, 4.0), (2, 1, 1.0)])
    expected = built(PATH, 3, [4.0, 1.0])
    np.testing.assert_array_equal(raw(weighted, duplicates=rule), expected)
    found = raw(nx.DiGraph(weighted), duplicates=rule or "max")
    scale = 2 if rule == "sum" else 1  # a DiGraph stores each direction
    np.testing.assert_array_equal(found, scale * expected)


def test_networkx_weights_are_named_by_their_attribute():
    weighted = nx.Graph()
    weighted.add_edge(0, 1, weight=4.0, length=3.0)
    weighted.add_edge(1, 2)
    np.testing.assert_array_equal(raw(weighted), built(PATH, 3, [4.0, 1.0]))
    found = raw(weighted, weights="length")
    np.testing.assert_array_equal(found, built(PATH, 3, [3.0, 1.0]))


def test_an_attribute_that_no_edge_has_is_refused():
    weighted = nx.Graph([(0, 1, {"length": 4.0, "cost": 1}), (1, 2)])
    with pytest.raises(ValueError, match="got 'lenght'; the edges have cost, length"):
        raw(weighted, weights="lenght")
    with pytest.raises(ValueError, match="got 'weight'; the edges have none"):
        raw(nx.path_graph(3), weights="weight")
    assert raw(nx.empty_graph(3), weights="weight").sum() == 0


def test_networkx_weights_are_not_given_as_numbers():
    with pytest.raises(TypeError, match="name of an edge attribute"):
        raw(nx.path_graph(3), weights=[4.0, 1.0])


def test_a_networkx_graph_of_another_size_is_refused():
    with pytest.raises(ValueError, match="graph has 3 nodes, got num_nodes = 4"):
        raw(nx.path_graph(3), 4)


def test_an_empty_networkx_graph_has_no_edges():
    assert raw(nx.empty_graph(3)).sum() == 0


@pytest.mark.parametrize("directed", [True, False])
def test_a_graphs_tuple_gives_edges_nodes_and_on_request_weights(directed):
    given = graphs_tuple(DIRECTED, 6, WEIGHTS)
    with pytest.warns(
        UserWarning, match='edges has a number per edge .* pass weights="edges"'
    ):
        found = raw(given, directed=directed)
    np.testing.assert_array_equal(found, built(DIRECTED, 6, directed=directed))
    found = raw(given, weights="edges", directed=directed)
    expected = built(DIRECTED, 6, WEIGHTS, directed=directed)
    np.testing.assert_array_equal(found, expected)
    found = raw(given, weights=WEIGHTS, directed=directed)
    np.testing.assert_array_equal(found, expected)


def test_a_batch_of_graphs_tuples_is_one_graph_of_several_parts():
    parts = jraph.batch([graphs_tuple(PATH, 4), graphs_tuple(PATH[:, :1], 2)])
    expected = scipy.linalg.block_diag(built(PATH, 4), built(PATH[:, :1], 2))
    np.testing.assert_array_equal(raw(parts), expected)


def test_padding_nodes_of_jraph_are_isolated_and_padding_edges_are_left_out():
    given = graphs_tuple(DIRECTED, 4, WEIGHTS)
    padded = jraph.pad_with_graphs(given, n_node=7, n_edge=9, n_graph=3)
    for settings in ({"weights": "edges"}, {"weights": "edges", "directed": True}):
        expected = scipy.linalg.block_diag(raw(given, **settings), np.zeros((3, 3)))
        np.testing.assert_array_equal(raw(padded, **settings), expected)
        found = raw(jraph.unpad_with_graphs(padded), **settings)
        np.testing.assert_array_equal(found, raw(given, **settings))


@pytest.mark.long
def test_a_padded_graphs_tuple_fits_with_a_missing_label_for_each_padding_node():
    padded = jraph.pad_with_graphs(graphs_tuple(PATH, 3), n_node=5, n_edge=8)
    labels, model = [0, None, 1], ResidualPropagation(2, 0.5, 4)
    expected = model.fit(graphs_tuple(PATH, 3), labels).scores_
    with pytest.warns(UserWarning, match="no label reaches 2 of 5 nodes"):
        found = model.fit(padded, [*labels, -1, -1]).scores_
    np.testing.assert_array_equal(found[:3], expected)
    with pytest.raises(ValueError, match="each of 5 nodes, got 3; use -1 or None for"):
        model.fit(padded, labels)


@pytest.mark.parametrize("change", [{"n_edge": jnp.array([1])}, {"n_node": [2]}])
def test_a_graphs_tuple_whose_counts_do_not_fit_is_refused(change):
    given = graphs_tuple(PATH, 3)._replace(**change)
    with pytest.raises(ValueError, match=r"n_edge .* 2 senders, got 1|but there are 2"):
        raw(given)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("as_bcoo", [True, False])
def test_jraph_and_back_is_the_same_matrix(directed, as_bcoo):
    w = normalize(raw_adjacency(DIRECTED, 6, weights=WEIGHTS, directed=directed))
    nodes = jnp.ones((6, 2))
    there = graph.to_jraph(BCOO.from_scipy_sparse(w) if as_bcoo else w, nodes)
    assert there.nodes is nodes
    assert int(there.n_node[0]) == 6
    assert int(there.n_edge[0]) == w.nnz
    back = raw(there, weights="edges", directed=directed, keep_loops=True)
    np.testing.assert_array_equal(back, w.toarray())


def test_jraph_sums_over_the_senders_what_the_matrix_multiplies():
    w = normalize(raw_adjacency(DIRECTED, weights=WEIGHTS, directed=True))
    tuples, v = graph.to_jraph(w), np.arange(8.0).reshape(4, 2)
    messages = tuples.edges[:, None] * v[tuples.senders]
    found = jraph.segment_sum(messages, tuples.receivers, 4)
    np.testing.assert_allclose(found, w @ v, rtol=1e-14)


# What is refused


def test_a_list_of_pairs_is_refused_with_the_remedy():
    for pairs in ([(0, 1), (1, 2)], ((0, 1), (1, 2)), [(0, 1), (1, 2), (2, 3)]):
        with pytest.raises(TypeError, match=r"list of pairs.*np.array\(edges\).T"):
            raw(pairs)


def test_edges_in_rows_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"got \(5, 2\); pass edges.T"):
        raw(DIRECTED.T)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (1, 4), (2, 3, 1), ()])
def test_an_edge_index_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"shape \(2, e\), senders first, got .*\)$"):
        raw(np.zeros(shape, int))


@pytest.mark.parametrize("dtype", [float, bool, complex, str])
def test_node_ids_that_are_no_integers_are_refused(dtype):
    with pytest.raises(TypeError, match="must hold integer node ids"):
        raw(PATH.astype(dtype))


@pytest.mark.parametrize("edges", [None, "cora", {0: [1]}, 3.5, object()])
def test_edges_of_an_unknown_kind_are_refused(edges):
    with pytest.raises(TypeError, match="edges"):
        raw(edges)


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize(("node", "n"), [(3, 3), (-1, 3), (7, 4)])
def test_node_ids_out_of_range_are_refused_with_their_edge(end, node, n):
    edges = PATH.copy()
    edges[end, 1] = node
    with pytest.raises(
        ValueError, match=f"edge 1 has node id {node}, but there are {n}"
    ):
        raw(edges, n)


def test_a_negative_number_of_nodes_is_refused():
    with pytest.raises(ValueError, match="num_nodes must be at least 0, got -1"):
        raw(np.zeros((2, 0), int), -1)


@pytest.mark.long
@pytest.mark.parametrize(
    "given",
    [
        (np.zeros((2, 0), int), LARGE),
        (np.array([[0], [LARGE]]),),
        (scipy.sparse.coo_array((LARGE, LARGE)),),
        (graphs_tuple(np.array([[0], [1]]), LARGE),),
    ],
    ids=["num_nodes", "node id", "sparse", "jraph"],
)
def test_more_nodes_than_int32_counts_are_refused_before_anything_is_allocated(given):
    with pytest.raises(ValueError, match=r"rows, more than int32 .*row blocks"):
        raw_adjacency(*given)  # field report 22


# Properties


def holds_for(*examples):
    """Try the same examples each time, however busy the machine."""
    settings = hypothesis.settings(deadline=None, max_examples=60, derandomize=True)
    return lambda test: settings(hypothesis.given(*examples)(test))


@strategies.composite
def problems(draw, *, weighted=None):
    """Edges without repetition in either direction, some of them loops; weights."""
    n = draw(strategies.integers(1, 8))
    pairs = list(itertools.combinations_with_replacement(range(n), 2))
    chosen = draw(strategies.lists(strategies.sampled_from(pairs), unique=True))
    edges = np.array(chosen, int).reshape(-1, 2).T
    if weighted is None:
        weighted = draw(strategies.booleans())
    weights = None
    if weighted:
        weight = strategies.floats(1e-3, 1e3)
        size = len(chosen)
        weights = np.array(draw(strategies.lists(weight, min_size=size, max_size=size)))
    return edges, n, weights, np.random.default_rng(draw(strategies.integers(0, 999)))


def adjacency(edges, n, weights, **settings):
    names = ("normalization", "self_loops")
    scaling = {name: settings.pop(name) for name in names if name in settings}
    w = raw_adjacency(edges, n, weights=weights, **settings)
    return normalize(w, **scaling).toarray()


@pytest.mark.long
@holds_for(problems())
def test_adjacency_is_the_one_of_the_definition(problem):
    edges, n, weights, _ = problem
    expected = reference(built(edges, n, weights))
    np.testing.assert_allclose(adjacency(edges, n, weights), expected, rtol=1e-13)


@pytest.mark.long
@holds_for(problems(), strategies.sampled_from([0, 1, 0.3]))
def test_adjacency_is_symmetric_with_spectrum_within_one(problem, self_loops):
    found = adjacency(*problem[:3], self_loops=self_loops)
    np.testing.assert_array_equal(found, found.T)
    values = np.linalg.eigvalsh(found)
    assert np.all(np.abs(values) < 1 + 1e-13)
    if self_loops:
        assert values[-1] == pytest.approx(1)


@pytest.mark.long
@holds_for(problems(), strategies.booleans())
def test_rows_of_row_and_columns_of_column_normalization_sum_to_one(problem, directed):
    edges, n, weights, _ = problem
    rows = adjacency(edges, n, weights, directed=directed, normalization="row")
    np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-13)
    columns = adjacency(edges, n, weights, directed=directed, normalization="column")
    np.testing.assert_allclose(columns.sum(axis=0), 1, rtol=1e-13)


@pytest.mark.long
@holds_for(problems())
def test_the_order_and_direction_of_edges_do_not_matter(problem):
    edges, n, weights, rng = problem
    order = rng.permutation(edges.shape[1])
    flipped = np.where(rng.random(edges.shape[1]) < 0.5, edges, edges[::-1])[:, order]
    found = adjacency(flipped, n, None if weights is None else weights[order])
    np.testing.assert_array_equal(found, adjacency(edges, n, weights))


@pytest.mark.long
@holds_for(problems(weighted=False))
def test_unweighted_duplicates_do_not_matter(problem):
    edges, n, _, rng = problem
    again = edges[:, rng.random(edges.shape[1]) < 0.5]
    repeated = np.c_[edges, again, edges[::-1]]
    np.testing.assert_array_equal(
        adjacency(repeated, n, None), adjacency(edges, n, None)
    )


@pytest.mark.long
@holds_for(problems(weighted=True), strategies.sampled_from(["max", "min"]))
def test_the_largest_or_smallest_of_equal_duplicates_is_the_edge(problem, rule):
    edges, n, weights, _ = problem
    found = adjacency(np.c_[edges, edges], n, np.r_[weights, weights], duplicates=rule)
    np.testing.assert_array_equal(found, adjacency(edges, n, weights))


@pytest.mark.long
@holds_for(problems(), strategies.booleans())
def test_renaming_nodes_renames_rows_and_columns(problem, directed):
    edges, n, weights, rng = problem
    names = rng.permutation(n)
    found = adjacency(names[edges], n, weights, directed=directed)
    expected = adjacency(edges, n, weights, directed=directed)
    np.testing.assert_allclose(found[np.ix_(names, names)], expected, rtol=1e-13)


@pytest.mark.long
@holds_for(problems(weighted=True), strategies.floats(0.01, 100))
def test_without_loops_the_unit_of_the_weights_does_not_matter(problem, unit):
    edges, n, weights, _ = problem
    found = adjacency(edges, n, unit * weights, self_loops=0)
    expected = adjacency(edges, n, weights, self_loops=0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.long
@holds_for(problems(), strategies.booleans())
def test_a_sparse_matrix_and_its_edges_give_the_same(problem, directed):
    edges, n, weights, _ = problem
    w = scipy.sparse.coo_array(built(edges, n, weights, directed=directed))
    np.testing.assert_array_equal(
        adjacency(w, n, None, directed=directed),
        adjacency(edges, n, weights, directed=directed),
    )


@strategies.composite
def entries(draw):
    """Entries of a weighted W, some repeated and some zero; its size."""
    n = draw(strategies.integers(1, 5))
    node, weight = strategies.integers(0, n - 1), strategies.integers(0, 4)
    triples = draw(strategies.lists(strategies.tuples(node, node, weight), max_size=12))
    rows, columns, values = np.array(triples, int).reshape(-1, 3).T
    return rows, columns, values.astype(float), n


@pytest.mark.long
@holds_for(entries())
def test_repeated_entries_make_one_graph_in_every_form(problem):
    rows, columns, values, n = problem
    expected = np.zeros((n, n))
    np.add.at(expected, (rows, columns), values)
    settings = {"directed": True, "keep_loops": True}
    coo = scipy.sparse.coo_array((values, (rows, columns)), (n, n))
    order = np.argsort(rows, kind="stable")
    starts = np.searchsorted(rows[order], np.arange(n + 1))
    csr = scipy.sparse.csr_array((values[order], columns[order], starts), (n, n))
    digraph = nx.MultiDiGraph()
    digraph.add_nodes_from(range(n))
    digraph.add_weighted_edges_from(zip(columns, rows, values, strict=True))
    index = np.stack([columns, rows])
    for edges, more in (
        (coo, {}),
        (csr, {}),
        (coo.tocsc(), {}),
        (digraph, {"duplicates": "sum"}),
        (index, {"num_nodes": n, "weights": values, "duplicates": "sum"}),
    ):
        np.testing.assert_array_equal(raw(edges, **settings, **more), expected)


@pytest.mark.long
@holds_for(entries(), strategies.sampled_from(["sum", "max", "min"]))
def test_an_undirected_multigraph_and_its_edges_combine_alike(problem, rule):
    rows, columns, values, n = problem
    multigraph = nx.MultiGraph()
    multigraph.add_nodes_from(range(n))
    multigraph.add_weighted_edges_from(zip(columns, rows, values, strict=True))
    index = np.stack([columns, rows])
    expected = raw(index, n, weights=values, duplicates=rule)
    for directed in (True, False):
        found = raw(multigraph, duplicates=rule, directed=directed)
        np.testing.assert_array_equal(found, expected)
