"""Every similarity is the matrix it claims to be, and has the spectrum it claims."""

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from generators import N, every_similarity

from gnnrp import graph, sparse
from gnnrp.kernels import features
from gnnrp.propagation import linear_maps, similarity

seeds = pytest.mark.parametrize("seed", range(2))


product = jax.jit(lambda S, v: S(v))


def dense_of(S, num_nodes=N):
    return linear_maps.columns(S, np.arange(num_nodes), num_nodes)


def smallest_eigenvalue(matrix):
    return np.linalg.eigvalsh((matrix + matrix.T) / 2)[0]


@seeds
@every_similarity
def test_map_multiplies_by_its_dense_matrix(case, seed):
    world = generators.world(seed)
    v = np.random.default_rng(seed).standard_normal((N, 3))
    found = product(linear_maps.as_pytree(case.make(world)), jnp.asarray(v))
    np.testing.assert_allclose(found, case.dense(world) @ v, rtol=0, atol=1e-13)


@every_similarity
def test_map_is_linear(case):
    S = linear_maps.as_pytree(case.make(generators.world(0)))
    u, v = np.random.default_rng(0).standard_normal((2, N, 3))
    combined = 2.5 * product(S, u) - 0.5 * product(S, v)
    found = product(S, 2.5 * u - 0.5 * v)
    np.testing.assert_allclose(found, combined, rtol=0, atol=1e-13)


@every_similarity
def test_columns_are_those_of_the_dense_matrix(case):
    world = generators.world(1)
    index = np.array([5, 0, 11, 2])
    found = linear_maps.columns(case.make(world), index, N)
    expected = case.dense(world)[:, index]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@every_similarity
def test_map_is_symmetric_and_psd_where_claimed(case):
    matrix = dense_of(case.make(generators.world(2)))
    asymmetry = np.abs(matrix - matrix.T).max()
    assert (asymmetry < 1e-14) == case.symmetric
    if case.psd:
        assert smallest_eigenvalue(matrix) > -1e-14


@every_similarity
def test_map_is_an_argument_of_jit(case):
    S = linear_maps.as_pytree(case.make(generators.world(0)))
    v = jnp.asarray(np.random.default_rng(1).standard_normal((N, 3)))
    outside = S(v)
    np.testing.assert_allclose(product(S, v), outside, rtol=0, atol=1e-14)
    leaves, structure = jax.tree.flatten(S)
    again = jax.tree.unflatten(structure, leaves)
    assert jax.tree.structure(again) == structure
    np.testing.assert_array_equal(product(again, v), product(S, v))


def test_plain_function_becomes_static_and_a_map_stays_itself():
    def double(v):
        return 2 * v

    wrapped = linear_maps.as_pytree(double)
    assert not jax.tree.leaves(wrapped)
    assert jax.tree.structure(wrapped) == jax.tree.structure(
        linear_maps.as_pytree(double)
    )
    np.testing.assert_array_equal(wrapped(jnp.ones((2, 1))), [[2], [2]])
    walk = similarity.Power(generators.adjacency(0), 2)
    assert linear_maps.as_pytree(walk) is walk


def test_weights_share_a_trace_and_powers_do_not():
    A, v = generators.adjacency(0), jnp.ones((N, 1))
    traces = []

    @jax.jit
    def apply(S, v):
        traces.append(1)
        return S(v)

    for alpha in (0.2, 0.5, 0.8):
        apply(similarity.LazyWalk(A, 3, alpha), v)
        apply(similarity.Restart(A, 3, alpha), v)
    assert len(traces) == 2
    apply(similarity.LazyWalk(A, 4, 0.2), v)
    assert len(traces) == 3


@pytest.mark.parametrize("max_bytes", [1, 8 * N, 8 * N * 3, 2**20])
def test_columns_do_not_depend_on_the_memory_allowed(max_bytes):
    S = similarity.Power(generators.adjacency(0), 3)
    index = np.array([3, 1, 4, 0, 5, 9, 2])
    whole = linear_maps.columns(S, index, N)
    found = linear_maps.columns(S, index, N, max_bytes=max_bytes)
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-15)


def test_columns_have_the_type_asked_for_and_may_be_none():
    single = jnp.dtype("float32")
    matrix = jnp.asarray(generators.positive_definite(0), single)
    S = similarity.Dense(matrix)
    found = linear_maps.columns(S, np.array([2, 0]), N, dtype=single)
    assert found.dtype == single
    np.testing.assert_array_equal(found, matrix[:, [2, 0]])
    empty = linear_maps.columns(S, np.array([], int), N, dtype=single)
    assert empty.shape == (N, 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda A: similarity.LazyWalk(A, 2, 0.3),
        lambda A: similarity.Restart(A, 2, 0.3),
    ],
)
def test_weights_do_not_promote_single_precision(make):
    A = graph.normalized_adjacency(generators.edges(0), N)
    single = sparse.prepare(sparse.to_scipy(A).astype(np.float32))
    assert make(single)(jnp.ones((N, 1), jnp.float32)).dtype == jnp.float32


# What the paper says of the spectra of A^K (Theorem 3.2, App. B.2)


@seeds
@pytest.mark.parametrize("self_loops", [0.0, 1.0])
@pytest.mark.parametrize("power", range(1, 6))
def test_powers_have_eigenvalues_up_to_one_so_that_two_bounds_step_sizes(
    seed, power, self_loops
):
    A = graph.normalized_adjacency(generators.edges(seed), N, self_loops=self_loops)
    matrix = dense_of(similarity.Power(sparse.prepare(A), power))
    assert np.linalg.eigvalsh(matrix)[-1] == pytest.approx(1, abs=1e-13)
    train = generators.split(seed).train
    assert np.linalg.eigvalsh(matrix[np.ix_(train, train)])[-1] < 1


@seeds
@pytest.mark.parametrize("self_loops", [0.0, 1.0])
@pytest.mark.parametrize("power", [2, 4])
def test_even_powers_are_psd_and_odd_ones_need_not_be(seed, power, self_loops):
    A = graph.normalized_adjacency(generators.edges(seed), N, self_loops=self_loops)
    A = sparse.prepare(A)
    assert smallest_eigenvalue(dense_of(similarity.Power(A, power))) > -1e-14
    assert smallest_eigenvalue(dense_of(similarity.Power(A, power - 1))) < -1e-6


def cycle(num_nodes):
    edges = np.stack([np.arange(num_nodes), (np.arange(num_nodes) + 1) % num_nodes])
    return sparse.prepare(graph.normalized_adjacency(edges, self_loops=0))


@pytest.mark.parametrize("power", [1, 2, 3])
def test_lazy_walk_is_psd_for_alpha_up_to_half_not_from_half_on(power):
    def smallest(alpha):
        walk = similarity.LazyWalk(cycle(4), power, alpha)
        return smallest_eigenvalue(dense_of(walk, 4))

    assert smallest(0.5) > -1e-15
    assert smallest(0.3) == pytest.approx(0.4**power)
    if power == 1:  # "alpha >= 1/2", as the paper has it, is the wrong way round
        assert smallest(0.7) == pytest.approx(-0.4, abs=1e-15)


@seeds
def test_lazy_walk_is_psd_exactly_up_to_the_sharper_bound(seed):
    A = graph.normalized_adjacency(generators.edges(seed), N)
    bound = 1 / (1 - np.linalg.eigvalsh(np.asarray(A.todense()))[0])
    assert bound > 0.5
    for alpha, psd in ((bound - 1e-6, True), (bound + 1e-6, False)):
        walk = similarity.LazyWalk(sparse.prepare(A), 1, alpha)
        assert (smallest_eigenvalue(dense_of(walk)) > 0) == psd


def test_lazy_walk_that_never_rests_is_a_power():
    A, v = generators.adjacency(0), jax.random.normal(jax.random.key(0), (N, 2))
    walk, power = similarity.LazyWalk(A, 3), similarity.Power(A, 3)
    np.testing.assert_allclose(walk(v), power(v), rtol=0, atol=1e-15)


def test_lazy_walk_and_restart_differ_although_both_are_called_alpha():
    A, v = generators.adjacency(0), jax.random.normal(jax.random.key(0), (N, 2))
    walk, restart = similarity.LazyWalk(A, 2, 0.5), similarity.Restart(A, 2, 0.5)
    assert np.abs(walk(v) - restart(v)).max() > 0.01


@pytest.mark.long
def test_sandwich_may_stack_any_maps():
    world = generators.world(0)
    inner = features.build(world.features, "laplacian", gamma=0.5)
    kernel = np.asarray(features.matrix(inner))
    walk = similarity.LazyWalk(world.matrix, 1, 0.25)
    S = similarity.Sandwich(walk, similarity.Sandwich(world.matrix, inner))
    B = (0.25 * world.A + 0.75 * np.eye(N)) @ world.A
    np.testing.assert_allclose(dense_of(S), B @ kernel @ B.T, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "make",
    [
        lambda f: similarity.Power(f, 2),
        lambda f: similarity.LazyWalk(f, 2, 0.5),
        lambda f: similarity.Restart(f, 2, 0.5),
        lambda f: similarity.Sandwich(f, f),
        lambda f: similarity.Sandwich(similarity.Power(f, 2), f),
    ],
)
def test_plain_function_serves_inside_a_map_too(make):
    world = generators.world(0)
    A = jnp.asarray(world.A)
    found = dense_of(make(lambda v: A @ v))
    np.testing.assert_allclose(
        found, dense_of(make(similarity.Dense(A))), rtol=0, atol=1e-14
    )


@seeds
def test_probability_kernel_scales_rows_and_columns_by_the_slope(seed):
    world = generators.world(seed)
    p = np.random.default_rng(seed).uniform(size=(N, 1))
    S = similarity.Probability(world.matrix, jnp.asarray(p))
    D = np.diag((p * (1 - p))[:, 0])
    np.testing.assert_allclose(dense_of(S), D @ world.A @ D, rtol=0, atol=1e-15)


@pytest.mark.parametrize("weights", [[-0.1, 1], [np.nan, 1], [np.inf, 1]])
def test_weights_of_a_sum_that_make_no_sense_are_refused(weights):
    part = similarity.Dense(jnp.eye(3))
    outer = similarity.Sum((part, part), jnp.asarray(weights))
    for S in (outer, similarity.Sandwich(part, outer)):
        with pytest.raises(ValueError, match="finite and at least 0"):
            linear_maps.as_pytree(S)


def test_a_part_of_a_sum_keeps_the_shape():
    S = similarity.Sum((lambda v: v[:1],), jnp.ones(1))
    with pytest.raises(ValueError, match=r"parts\[0\] must keep shape"):
        S(jnp.ones((3, 2)))


def test_a_center_may_weight_the_nodes():
    M = generators.positive_definite(0)
    w = np.random.default_rng(0).uniform(size=(N, 1))
    w = w / w.sum()
    H = np.eye(N) - np.ones((N, 1)) @ w.T
    inner = similarity.Dense(jnp.asarray(M))
    found = dense_of(similarity.Centered(inner, jnp.asarray(w)))
    np.testing.assert_allclose(found, H @ M @ H.T, rtol=0, atol=1e-14)
    equal = dense_of(similarity.Centered(inner, jnp.full((N, 1), 1 / N)))
    expected = dense_of(similarity.Centered(inner))
    np.testing.assert_allclose(equal, expected, rtol=0, atol=1e-14)
