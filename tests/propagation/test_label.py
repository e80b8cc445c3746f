"""Label propagation: its iteration, its limit, and what it must not do to scores."""

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references

from gnnrp import graph, sparse
from gnnrp.propagation import label, similarity

seeds = pytest.mark.parametrize("seed", range(3))
alphas = pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9, 1.0])


def problem(seed):
    """Return the adjacency, the same dense, and Z = [Y, 0]."""
    A = references.adjacency(generators.edges(seed), generators.N)
    train = generators.split(seed).train
    start = np.where(train[:, None], generators.targets(seed), 0)
    return generators.adjacency(seed), A, start


@seeds
def test_seeds_are_the_known_targets_and_zero_elsewhere(seed):
    targets, train = generators.targets(seed) + 2, generators.split(seed).train
    unknown = np.flatnonzero(train)[0], 1
    targets[unknown] = np.nan
    start = label.seeds(jnp.asarray(targets), jnp.asarray(train))
    expected = np.where(train[:, None], targets, 0)
    expected[unknown] = 0
    np.testing.assert_array_equal(start, expected)


@seeds
@alphas
@pytest.mark.parametrize("num_iterations", [0, 1, 2, 7])
def test_iterates_are_those_of_the_definition(seed, alpha, num_iterations):
    adjacency, A, start = problem(seed)
    found = label.propagate(
        adjacency, jnp.asarray(start), num_iterations=num_iterations, alpha=alpha
    )
    expected = references.label_propagation(A, start, num_iterations, alpha)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


@seeds
def test_without_restart_it_is_a_power_of_the_adjacency(seed):
    adjacency, A, start = problem(seed)
    found = label.propagate(adjacency, jnp.asarray(start), num_iterations=5)
    expected = np.linalg.matrix_power(A, 5) @ start
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


@seeds
@pytest.mark.parametrize("alpha", [0.3, 0.9, 0.99])
def test_limit_solves_the_linear_system(seed, alpha):
    adjacency, A, start = problem(seed)
    found = label.limit(adjacency, jnp.asarray(start), alpha=alpha, tolerance=1e-14)
    system = np.eye(generators.N) - alpha * A
    expected = (1 - alpha) * np.linalg.solve(system, start)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.long
@seeds
def test_iterates_approach_the_limit_as_alpha_to_the_k(seed):
    adjacency, _, start = problem(seed)
    start, alpha = jnp.asarray(start), 0.8
    limit = label.limit(adjacency, start, alpha=alpha, tolerance=1e-14)

    def gap(num_iterations):
        F = label.propagate(
            adjacency, start, num_iterations=num_iterations, alpha=alpha
        )
        return float(jnp.linalg.norm(F - limit))

    assert gap(10) <= alpha**10 * gap(0) * (1 + 1e-12)
    assert gap(100) <= alpha**100 * gap(0) + 1e-13


@pytest.mark.long
@seeds
def test_limit_minimizes_fit_to_all_seeds_plus_roughness(seed):
    adjacency, A, start = problem(seed)
    alpha = 0.7
    F = label.limit(adjacency, jnp.asarray(start), alpha=alpha, tolerance=1e-14)
    weight = alpha / (1 - alpha)

    def objective(F):
        return jnp.sum((F - start) ** 2) + weight * jnp.sum(F * (F - A @ F))

    np.testing.assert_allclose(jax.grad(objective)(F), 0, atol=1e-12)


@seeds
def test_limit_of_adjacencies_that_are_not_symmetric_is_reached_too(seed):
    world = generators.world(seed)
    _, _, start = problem(seed)
    found = label.limit(
        world.by_rows,
        jnp.asarray(start),
        alpha=0.8,
        tolerance=1e-13,
        symmetric=False,
    )
    system = np.eye(generators.N) - 0.8 * world.A_by_rows
    expected = 0.2 * np.linalg.solve(system, start)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_scores_are_not_clipped_so_that_evidence_adds_up():
    edges = np.array([[0] * 8, range(1, 9)])  # a hub, 6 leaves of class 0, 2 of 1
    adjacency = sparse.prepare(graph.normalized_adjacency(edges))
    start = np.zeros((9, 2))
    start[1:7, 0] = start[7:, 1] = 1
    found = label.propagate(adjacency, jnp.asarray(start), num_iterations=1)
    np.testing.assert_allclose(found[0], [6 / 18**0.5, 2 / 18**0.5], rtol=1e-14)
    np.testing.assert_allclose(found[0], [1.414, 0.471], atol=5e-4)


@pytest.mark.long
def test_nodes_that_nothing_reaches_score_exactly_zero():
    edges = np.array([[0, 2], [1, 3]])
    adjacency = sparse.prepare(graph.normalized_adjacency(edges, 5, self_loops=0))
    start = jnp.zeros((5, 2)).at[0, 1].set(1)
    found = label.propagate(adjacency, start, num_iterations=3, alpha=0.5)
    assert found[:2, 1].all()
    assert not found[2:].any()


@pytest.mark.long
def test_all_weights_of_the_restart_share_one_trace():
    adjacency, _, start = problem(0)
    traces = []

    @jax.jit
    def propagate(adjacency, start, alpha):
        traces.append(1)
        return label.propagate(adjacency, start, num_iterations=3, alpha=alpha)

    results = [
        propagate(adjacency, jnp.asarray(start), alpha) for alpha in (0.1, 0.5, 0.9)
    ]
    propagate(generators.adjacency(1), jnp.asarray(start), 0.1)  # another graph
    assert len(traces) == 1
    assert not np.allclose(results[0], results[2])


@pytest.mark.long
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_single_precision_starts_take_the_precision_of_the_adjacency(form, symmetric):
    matrix, A, start = problem(0)
    adjacency = similarity.Dense(jnp.asarray(A)) if form == "dense" else matrix
    single = jnp.asarray(start, jnp.float32)
    with jax.numpy_dtype_promotion("standard"):
        limit = label.limit(
            adjacency, single, alpha=0.8, symmetric=symmetric, tolerance=1e-14
        )
        hops = label.propagate(adjacency, single, num_iterations=2, alpha=0.8)
    assert limit.dtype == hops.dtype == jnp.float64
    expected = 0.2 * np.linalg.solve(np.eye(generators.N) - 0.8 * A, start)
    np.testing.assert_allclose(limit, expected, rtol=0, atol=1e-12)
