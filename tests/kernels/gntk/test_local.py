"""Blocks of the kernels by neighborhoods equal those of the whole."""

import generators
import numpy as np
import pytest
import scipy.sparse

from gnnrp import sparse
from gnnrp.kernels import gntk
from gnnrp.kernels.gntk import activations, local

pytestmark = pytest.mark.long
N, D = 40, 5
NETWORK = {"depth", "bias", "trained"}
ROWS, COLUMNS = np.array([7, 3, 39, 3, 0]), np.arange(0, N, 2)


def world(seed=0):
    """Return P, not symmetric, with a hub, a node without edges, and X with equals."""
    rng = np.random.default_rng(seed)
    P = np.where(rng.random((N, N)) < 0.06, rng.random((N, N)) - 0.2, 0)
    P += np.diag(rng.random(N))
    P[7] = rng.random(N)
    P[12] = 0
    X = rng.standard_normal((N, D))
    X[3] = X[2]
    return scipy.sparse.csr_array(P), X


def assert_blocks(found, P, X, rows, columns, network):
    whole = gntk.gcn(sparse.prepare(P), gntk.gram(X), network)
    for one, other in zip(found, whole, strict=True):
        assert isinstance(one, np.ndarray)
        scale = np.abs(other).max()
        expected = np.asarray(other)[np.ix_(rows, columns)]
        np.testing.assert_allclose(one, expected, rtol=0, atol=1e-12 * scale)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("bias", gntk.BIASES)
def test_blocks_are_those_of_the_recursion(depth, bias):
    P, X = world()
    network = gntk.Network(depth, bias=bias, bias_std=0.6)
    found = local.gcn(P, X, ROWS, COLUMNS, network)
    assert_blocks(found, P, X, ROWS, COLUMNS, network)


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("name", ["relu", "leaky_relu", "gelu", "rbf", "identity"])
def test_every_setting_is_that_of_the_recursion(depth, name):
    P, X = world(1)
    trained = (False, True, True)[:depth]
    network = gntk.Network(depth, activations.by_name(name), 1.2, trained=trained)
    found = local.gcn(P, X, ROWS, COLUMNS, network)
    assert_blocks(found, P, X, ROWS, COLUMNS, network)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("side", [4, 16])
def test_tiles_of_any_size_give_the_same(monkeypatch, depth, side):
    monkeypatch.setattr(local, "_SIDE", side)
    P, X = world(2)
    rows, columns = np.array([0, 7, 3]), np.arange(4)
    network = gntk.Network(depth, bias="before")
    found = local.gcn(P, X, rows, columns, network)
    assert_blocks(found, P, X, rows, columns, network)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("bias", ["none", "after"])
def test_sparse_features_give_the_same(depth, bias):
    P, X = world(3)
    X[np.abs(X) < 0.8] = 0
    network = gntk.Network(depth, bias=bias)
    found = local.gcn(P, scipy.sparse.csr_array(X), ROWS, COLUMNS, network)
    assert_blocks(found, P, X, ROWS, COLUMNS, network)


def test_single_precision_stays_single():
    P, X = world(4)
    P, X = P.astype(np.float32), X.astype(np.float32)
    found = local.gcn(P, X, ROWS, COLUMNS, gntk.Network(3))
    assert {kernel.dtype for kernel in found} == {np.dtype(np.float32)}
    whole = gntk.gcn(sparse.prepare(P), gntk.gram(X), gntk.Network(3))
    for one, other in zip(found, whole, strict=True):
        expected = np.asarray(other)[np.ix_(ROWS, COLUMNS)]
        np.testing.assert_allclose(one, expected, rtol=0, atol=1e-5 * expected.max())


def test_few_nodes_are_padded_to_a_small_batch(monkeypatch):
    P, X = world()
    sizes, sum_over_pairs = [], local._sum_over_pairs

    def record(parts, *args, **settings):
        sizes.append(len(parts[0]))
        return sum_over_pairs(parts, *args, **settings)

    monkeypatch.setattr(local, "_sum_over_pairs", record)
    found = local.gcn(P, X, ROWS, COLUMNS, gntk.Network(3))
    assert 0 < max(sizes) < 2 * N
    assert_blocks(found, P, X, ROWS, COLUMNS, gntk.Network(3))


def test_empty_sides_give_empty_blocks():
    P, X = world()
    found = local.gcn(P, X, [], COLUMNS, gntk.Network(2))
    assert [kernel.shape for kernel in found] == 2 * [(0, len(COLUMNS))]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": 4}, "depth must be at most 3, got 4"),
        ({"depth": 0}, "depth must be at least 1, got 0"),
        ({"rows": [0, N]}, "node 40 is not one of 40"),
        ({"columns": [-1]}, "node -1 is not one of 40"),
        ({"rows": np.ones(N, bool)}, "list of node ids, got bool"),
        ({"rows": [[1]]}, r"of shape \(1, 1\)"),
        (
            {"features": np.ones((3, 2))},
            r"features must have shape \(40, d\), d > 0, got",
        ),
        ({"bias": "both"}, "bias must be one of"),
        ({"trained": (True,)}, "one flag for each of 2 layers"),
        ({"features": np.ones((N, 0))}, r"d > 0, got \(40, 0\)"),
        ({"features": np.full((N, 2), np.nan)}, "features must be finite"),
        ({"max_bytes": 1000}, "nodes with up to 64 and"),
    ],
)
def test_what_makes_no_block_is_refused(change, message):
    P, X = world()
    given = {"features": X, "rows": [7], "columns": [0, 1, 2]} | change
    fields = {"depth": 2} | {k: given.pop(k) for k in NETWORK & given.keys()}
    with pytest.raises(ValueError, match=message):
        generators.unchecked(local.gcn, P, network=gntk.Network(**fields), **given)


def test_adjacencies_that_are_not_square_or_not_sparse_are_refused():
    P, X = world()
    with pytest.raises(
        ValueError, match=r"must be a square matrix, got shape \(30, 40\)"
    ):
        local.gcn(P[:30], X, [0], [1], gntk.Network(2))
    with pytest.raises(TypeError, match="scipy sparse matrix, got Matrix"):
        local.gcn(sparse.prepare(P), X, [0], [1], gntk.Network(2))


def test_tiles_are_cut_as_small_as_the_memory_allows():
    P, X = scipy.sparse.eye_array(64, format="csr"), np.ones((64, 2))
    every = np.arange(64)
    found = local.gcn(P, X, every, every, gntk.Network(2), max_bytes=6 * 8 * 16**2)
    assert_blocks(found, P, X, every, every, gntk.Network(2))


def test_a_stored_zero_is_no_neighbor_within_reach():
    n = 64
    zeros = scipy.sparse.eye_array(n, format="lil")
    zeros[0, :] = 2
    zeros = zeros.tocsr()
    zeros.data[zeros.data == 2] = 0
    X = np.random.default_rng(0).standard_normal((n, 3))
    alone = scipy.sparse.diags_array(np.r_[0.0, np.ones(n - 1)], format="csr")
    settings = {"network": gntk.Network(2), "max_bytes": 6 * 8 * 4}
    found = local.gcn(zeros, X, [0, 1], [1, 2], **settings)
    expected = local.gcn(alone, X, [0, 1], [1, 2], **settings)
    np.testing.assert_array_equal(found.ntk, expected.ntk)
