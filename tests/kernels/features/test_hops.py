"""Hop features, held against loops over neighbors."""

import numpy as np
import pytest
import scipy.sparse
from generators import unchecked

from gnnrp import graph
from gnnrp.kernels import features
from gnnrp.kernels.features import HopSettings, hop_features

EDGES = np.array([[0, 0, 1, 2, 4], [1, 2, 2, 3, 5]])  # node 6 is isolated
NUM_NODES = 7
X = np.random.default_rng(0).normal(size=(NUM_NODES, 3))
W = graph.raw_adjacency(EDGES, NUM_NODES)


def slow(x, num_hops, *, symmetric=False, self_loop=0.0):
    """Return the list of P^l X, by loops over the neighbors of each node."""
    pairs = set(zip(*EDGES, strict=True))
    weight = np.zeros((NUM_NODES, NUM_NODES))
    for i, j in pairs:
        weight[i, j] = weight[j, i] = 1
    weight += self_loop * np.eye(NUM_NODES)
    degree = weight.sum(axis=1)
    hops = [x]
    for _ in range(num_hops):
        block = np.zeros_like(x)
        for i in range(NUM_NODES):
            for j in range(NUM_NODES):
                if weight[i, j]:
                    size = np.sqrt(degree[i] * degree[j]) if symmetric else degree[i]
                    block[i] += weight[i, j] / size * hops[-1][j]
        hops.append(block)
    return hops


@pytest.mark.parametrize("num_hops", [0, 1, 3])
@pytest.mark.parametrize("normalization", features.hops.NORMALIZATIONS)
@pytest.mark.parametrize("self_loops", [0.0, 2.0])
def test_hops_are_averages_over_neighbors(num_hops, normalization, self_loops):
    settings = HopSettings(num_hops, normalization, self_loops, "none", False)
    expected = slow(
        X, num_hops, symmetric=normalization == "symmetric", self_loop=self_loops
    )
    z = hop_features(X, W, settings)
    np.testing.assert_allclose(z, np.hstack(expected), rtol=0, atol=1e-14)
    assert not z[6, 3:].any() or self_loops  # an isolated node has no neighbors


def test_degrees_are_averaged_like_features():
    degree = np.log1p([2, 2, 3, 1, 1, 1, 0])[:, None]
    expected = np.hstack(slow(np.hstack([X, degree]), 2))
    z = hop_features(X, W, HopSettings(2, scaling="none"))
    np.testing.assert_allclose(z, expected, atol=1e-14)
    alone = hop_features(None, W, HopSettings(2, scaling="none"))
    np.testing.assert_allclose(alone, expected[:, 3::4], atol=1e-14)


def test_standard_columns_have_mean_zero_and_equal_deviation():
    z = hop_features(X, W, HopSettings(2))
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-15)
    np.testing.assert_allclose(z.std(axis=0), 1 / np.sqrt(12), rtol=1e-12)


def test_given_nodes_standardize_the_columns_of_all():
    some = np.array([0, 2, 3, 5])
    z = hop_features(X, W, HopSettings(2), reference=some)
    np.testing.assert_allclose(z[some].mean(axis=0), 0, atol=1e-15)
    np.testing.assert_allclose(z[some].std(axis=0), 1 / np.sqrt(12), rtol=1e-12)
    raw = hop_features(X, W, HopSettings(2, scaling="none"))
    expected = (raw - raw[some].mean(axis=0)) / raw[some].std(axis=0) / np.sqrt(12)
    np.testing.assert_allclose(z, expected, rtol=0, atol=1e-13)


def test_a_constant_column_stays_out_after_any_hop():
    ring = np.stack([np.arange(60), (np.arange(60) + 1) % 60])
    x = np.c_[np.full(60, 0.1), np.arange(60.0)]
    z = hop_features(x, graph.raw_adjacency(ring), HopSettings(8, "symmetric"))
    columns = z.reshape(60, 9, 3)
    assert not columns[:, :, [0, 2]].any()  # the constant and the degree
    np.testing.assert_allclose(columns[:, :, 1].std(axis=0), 1 / 3, rtol=1e-12)


def test_cosine_rows_have_length_one_over_all_hops():
    z = hop_features(X, W, HopSettings(2, scaling="cosine"))
    np.testing.assert_allclose(np.linalg.norm(z[:6], axis=1), 1, rtol=1e-14)
    first = np.sqrt(3) * z[:, :3]
    np.testing.assert_allclose(first, X / np.linalg.norm(X, axis=1)[:, None])
    assert not z[6, 3:].any()


@pytest.mark.parametrize("scaling", features.hops.SCALINGS)
def test_sparse_features_have_the_hops_of_dense_ones(scaling):
    x = np.where(np.random.default_rng(1).random((NUM_NODES, 5)) < 0.4, 1.0, 0.0)
    settings = HopSettings(2, scaling=scaling)
    dense = hop_features(x, W, settings)
    z = hop_features(scipy.sparse.csr_array(x), W, settings)
    assert scipy.sparse.issparse(z) == (scaling != "standard")
    z = z.toarray() if scipy.sparse.issparse(z) else z
    np.testing.assert_allclose(z, dense, rtol=0, atol=1e-15)


def test_features_keep_their_type():
    z = hop_features(X.astype(np.float32), W)
    assert z.dtype == np.float32
    assert hop_features(X, W).dtype == np.float64
    np.testing.assert_allclose(z, hop_features(X, W), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: HopSettings(-1), ["num_hops", "-1"]),
        (lambda: HopSettings(normalization="none"), ["normalization", "symmetric"]),
        (lambda: HopSettings(self_loops=-1.0), ["self_loops", "-1"]),
        (lambda: HopSettings(self_loops=np.nan), ["self_loops", "nan"]),
        (lambda: HopSettings(scaling="unit"), ["scaling", "cosine"]),
        (lambda: HopSettings(scaling="cosine", degree=True), ["degree", "cosine"]),
        (
            lambda: hop_features(None, W, HopSettings(degree=False)),
            ["a column of degrees"],
        ),
        (lambda: hop_features(X[:5], W), ["features", "5", "7"]),
        (lambda: hop_features(X * np.nan, W), ["finite"]),
        (lambda: hop_features(X, W, max_bytes=1), ["hop features", "fewer hops"]),
        (lambda: hop_features(X[:0], W[:0, :0]), ["a node", "(0, 0)"]),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, words):
    with pytest.raises(ValueError, match=words[0]) as error:
        call()
    message = str(error.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_a_normalized_bcoo_is_an_adjacency_too():
    bcoo = graph.normalized_adjacency(EDGES, NUM_NODES, self_loops=0)
    settings = HopSettings(1, degree=False)
    expected = hop_features(X, graph.normalize(W, self_loops=0), settings)
    found = hop_features(X, bcoo, settings)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("adjacency", ["cora", None, np.eye(NUM_NODES)])
def test_an_adjacency_that_is_not_sparse_is_refused(adjacency):
    with pytest.raises(TypeError, match="BCOO or a scipy sparse matrix"):
        unchecked(hop_features, X, adjacency)


def test_settings_of_another_type_are_refused():
    with pytest.raises(TypeError, match="settings must be a HopSettings"):
        unchecked(hop_features, X, W, 3)


@pytest.mark.parametrize("num_features", [3, 900])  # 900 come from products
@pytest.mark.parametrize("sparse_rows", [False, True])
@pytest.mark.parametrize("scaling", ["cosine", "standard", "none"])
@pytest.mark.parametrize("num_hops", [0, 1, 3])
def test_distances_are_those_of_hop_features(
    num_hops, scaling, sparse_rows, num_features
):
    rng = np.random.default_rng(1)
    x = rng.uniform(size=(NUM_NODES, num_features))
    x[x < 0.5] = 0
    x[3] = 0  # a row without a direction
    given = scipy.sparse.csr_array(x) if sparse_rows else x
    settings = HopSettings(num_hops, scaling=scaling)
    z = hop_features(x, W, settings)
    expected = ((z[:, None] - z[None]) ** 2).sum(axis=-1)
    found = features.hop_distances(given, W, settings)
    np.testing.assert_allclose(found, expected, atol=1e-12 * (1 + expected.max()))
    assert not found.diagonal().any()
    assert found.min() >= 0


def test_distances_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="distances between 7 nodes"):
        features.hop_distances(X, W, max_bytes=1)


@pytest.mark.parametrize("scaling", ["standard", "cosine"])
def test_features_too_large_to_scale_are_refused(scaling):
    with pytest.raises(ValueError, match="too large to scale"):
        hop_features(1e200 * X, W, HopSettings(1, scaling=scaling))
