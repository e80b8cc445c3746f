"""Where vectors vanish, the first hop skips the columns, and nothing else changes."""

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from generators import N, every_similarity, unchecked

from gnnrp import metrics, sparse
from gnnrp.propagation import linear_maps, similarity, solvers
from gnnrp.types import Split

product = jax.jit(lambda S, v: S(v))
SUPPORT = np.arange(N) % 3 == 0


def supported(columns=4):
    v = np.random.default_rng(0).standard_normal((N, columns))
    return jnp.asarray(np.where(SUPPORT[:, None], v, 0))


@pytest.mark.parametrize("backend", sparse.BACKENDS)
@pytest.mark.parametrize("kind", ["symmetric", "nonsymmetric", "rectangular"])
def test_a_matrix_on_a_support_holds_its_columns_alone(backend, kind):
    rng = np.random.default_rng(1)
    dense = np.where(rng.random((N, N)) < 0.4, rng.standard_normal((N, N)), 0)
    dense = dense + dense.T if kind == "symmetric" else dense
    dense = dense[: N - 3] if kind == "rectangular" else dense
    matrix = sparse.prepare(scipy.sparse.csr_array(dense), backend=backend)
    part = sparse.select_columns(matrix, SUPPORT)
    expected = dense * SUPPORT
    # A few zeros more, so that like supports share a trace; none for BCOO.
    count = np.count_nonzero(expected)
    assert (
        part.data.size == count if backend == "bcoo" else part.data.size <= 1.2 * count
    )
    np.testing.assert_array_equal(
        np.sort(part.data[part.data != 0]), np.sort(expected[expected != 0])
    )
    np.testing.assert_allclose(product(part, jnp.eye(N)), expected, rtol=1e-14)
    np.testing.assert_array_equal(
        product(part, supported()), product(matrix, supported())
    )
    transposed = jax.linear_transpose(lambda v: part(v), jnp.ones((N, 2)))
    (found,) = jax.jit(transposed)(jnp.ones((len(dense), 2)))
    np.testing.assert_allclose(found[:, 0], expected.sum(axis=0), atol=1e-14)


def test_a_reordered_matrix_keeps_its_order():
    n = 400
    ring = np.arange(n)
    mixed = np.random.default_rng(0).permutation(n)
    edges = mixed[np.stack([ring, (ring + 1) % n])]
    csr = scipy.sparse.coo_array((np.ones(n), tuple(edges)), shape=(n, n)).tocsr()
    matrix = sparse.prepare(csr + csr.T, reorder=True)
    support = np.arange(n) < 100
    part = sparse.select_columns(matrix, support)
    np.testing.assert_array_equal(part.order, matrix.order)
    v = jnp.where(support[:, None], jnp.ones((n, 2)), 0)
    np.testing.assert_array_equal(product(part, v), product(matrix, v))


@pytest.mark.parametrize("length", [1, N - 1, N + 1])
def test_a_support_of_another_length_is_refused(length):
    matrix = sparse.prepare(scipy.sparse.eye_array(N, format="csr"))
    walk = similarity.LazyWalk(matrix, 2, 0.5)
    on_both_sides = similarity.Sandwich(walk, similarity.Dense(jnp.eye(N)))
    with pytest.raises(ValueError, match=rf"shape \({N},\), got \({length},\)"):
        sparse.select_columns(matrix, np.ones(length, bool))
    for each in (matrix, walk, on_both_sides):
        with pytest.raises(ValueError, match=rf"shape \({N},\), got \({length},\)"):
            linear_maps.restrict(each, np.ones(length, bool))


def test_the_support_of_a_map_that_does_not_tell_its_size_must_be_a_vector():
    with pytest.raises(ValueError, match="the support must have shape"):
        unchecked(linear_maps.restrict, lambda v: v, np.ones((N, 1), bool))


@pytest.fixture
def small_matrices_count(monkeypatch):
    monkeypatch.setattr(linear_maps, "_MIN_ENTRIES", 0)


@pytest.mark.usefixtures("small_matrices_count")
@every_similarity
def test_a_map_on_a_support_is_the_map(case):
    S = case.make(generators.world(0))
    restricted = linear_maps.as_pytree(linear_maps.restrict(S, SUPPORT))
    found = product(restricted, supported())
    expected = case.dense(generators.world(0)) @ supported()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@pytest.mark.usefixtures("small_matrices_count")
@pytest.mark.parametrize("power", [0, 1, 3])
@pytest.mark.parametrize("make", [similarity.Power, similarity.LazyWalk])
def test_only_the_first_hop_skips(make, power):
    rng = np.random.default_rng(2)
    dense = rng.standard_normal((N, N))
    matrix = sparse.prepare(scipy.sparse.csr_array(dense))
    S = make(matrix, power)
    part = linear_maps.restrict(S, SUPPORT)
    found = product(part, jnp.eye(N)[:, SUPPORT])
    expected = np.linalg.matrix_power(dense, power)[:, SUPPORT]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    if power:
        skipping = part.factors[-1].adjacency
        assert N * SUPPORT.sum() <= skipping.data.size < N**2
    else:
        assert part.factors == (S,)


def test_a_support_of_nearly_all_nodes_needs_no_second_matrix():
    S = similarity.Power(sparse.prepare(scipy.sparse.eye_array(N, format="csr")), 2)
    assert linear_maps.restrict(S, np.ones(N, bool)) is S


@pytest.mark.usefixtures("small_matrices_count")
def test_a_new_support_forgets_the_one_before():
    dense = np.random.default_rng(4).standard_normal((N, N))
    S = similarity.Power(sparse.prepare(scipy.sparse.csr_array(dense)), 2)
    walk = similarity.Sandwich(S, similarity.Dense(jnp.eye(N)))
    for each in (S, walk):
        part = linear_maps.restrict(each, SUPPORT)
        again = linear_maps.restrict(part, np.ones(N, bool))
        v = jnp.ones((N, 1))
        np.testing.assert_array_equal(product(again, v), product(each, v))
        back = product(linear_maps.full_map(part), v)
        np.testing.assert_array_equal(back, product(each, v))


@pytest.mark.long
def test_supports_of_the_same_size_share_one_trace():
    csr = scipy.sparse.random_array((300, 300), density=0.05, rng=0, format="csr")
    matrix, traces = sparse.prepare(csr), []

    @jax.jit
    def send(part, v):
        traces.append(1)
        return part(v)

    for seed in range(4):
        support = np.random.default_rng(seed).permutation(300) < 100
        send(sparse.select_columns(matrix, support), jnp.ones((300, 1)))
    assert len(traces) <= 2  # on two sides of a rounding, at most


@pytest.mark.long
@pytest.mark.parametrize("function", [sparse.select_columns, linear_maps.restrict])
def test_a_support_of_numbers_is_refused(function):
    matrix = sparse.prepare(scipy.sparse.eye_array(N, format="csr"))
    with pytest.raises(TypeError, match="must be boolean, got int64"):
        unchecked(function, matrix, SUPPORT.astype(int))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:all nodes are predicted to be of one")
@pytest.mark.usefixtures("small_matrices_count")
@pytest.mark.parametrize("method", solvers.NAMES[1:])
def test_runs_skip_what_no_split_trains_on(method, monkeypatch):
    seen, specialized = [], linear_maps.restrict

    def spy(S, support):
        seen.append(support)
        return specialized(S, support)

    rng = np.random.default_rng(3)
    dense = rng.random((N, N))
    S = similarity.Power(sparse.prepare(scipy.sparse.csr_array(dense + dense.T)), 2)
    train = np.stack([np.arange(N) % 3 == 0, np.arange(N) % 4 == 0])
    val = np.tile(np.arange(N) % 3 == 1, (2, 1)) & ~train
    split = Split(train, val, ~(train | val))
    settings = {
        "step_size": 0.5 / N**2,
        "num_steps": 5,
        "metric": metrics.accuracy,
        "method": method,
    }
    targets = np.eye(3)[np.arange(N) % 3]
    plain = generators.run(lambda v: S(v), targets, split, **settings)
    monkeypatch.setattr(linear_maps, "restrict", spy)
    found = generators.run(S, targets, split, **settings)
    np.testing.assert_allclose(found.predictions, plain.predictions, rtol=1e-9)
    np.testing.assert_array_equal(seen, [train.any(axis=0)])
