"""Correct and Smooth: both steps against a dense loop, in any order of the nodes."""

import functools

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references

from gnnrp import graph, sparse
from gnnrp.propagation import correct_and_smooth

seeds = pytest.mark.parametrize("seed", range(3))


def problem(seed):
    """Return edges, dense A, P, Y and the training mask."""
    edges = generators.edges(seed)
    A = references.adjacency(edges, generators.N)
    raw = np.random.default_rng(seed).uniform(size=(generators.N, generators.C))
    P = raw / raw.sum(axis=1, keepdims=True)
    return edges, A, P, generators.targets(seed), generators.split(seed).train


def as_arrays(seed):
    return tuple(jnp.asarray(each) for each in problem(seed))


def reference(A, P, Y, train, alpha, k, scale):
    errors = np.where(train[:, None], Y - P, 0)
    E = errors
    for _ in range(k):
        E = alpha * (A @ E) + (1 - alpha) * errors
        E = np.clip(E, -1, 1) if scale is None else np.where(train[:, None], errors, E)
    if scale is not None:
        return P + scale * E
    typical = np.abs(errors).sum() / train.sum()
    with np.errstate(divide="ignore"):
        factors = typical / np.abs(E).sum(axis=1, keepdims=True)
    factors[np.isinf(factors) | (factors > 1000)] = 1
    return P + factors * E


@seeds
@pytest.mark.parametrize("reorder", [False, True])
@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
@pytest.mark.parametrize(("alpha", "k"), [(0.8, 0), (0.8, 1), (0.5, 7), (1.0, 3)])
def test_corrected_predictions_are_those_of_a_dense_loop(
    seed, reorder, scale, alpha, k
):
    edges, A, P, Y, train = problem(seed)
    matrix = sparse.prepare(
        graph.normalized_adjacency(edges, generators.N), reorder=reorder
    )
    found = jax.jit(
        lambda matrix, P: correct_and_smooth.correct(
            matrix,
            P,
            jnp.asarray(Y),
            jnp.asarray(train),
            alpha=alpha,
            num_iterations=k,
            scale=scale,
        )
    )(matrix, jnp.asarray(P))
    expected = reference(A, P, Y, train, alpha, k, scale)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@seeds
@pytest.mark.parametrize(("alpha", "k"), [(0.8, 0), (0.8, 1), (0.5, 7), (1.0, 3)])
def test_smoothed_predictions_are_those_of_a_dense_loop(seed, alpha, k):
    edges, A, P, Y, train = problem(seed)
    matrix = sparse.prepare(graph.normalized_adjacency(edges, generators.N))
    start = np.where(train[:, None], Y, 1.5 * P)
    F = start
    for _ in range(k):
        F = np.clip(alpha * (A @ F) + (1 - alpha) * start, 0, 1)
    found = correct_and_smooth.smooth(
        matrix,
        jnp.asarray(1.5 * P),
        jnp.asarray(Y),
        jnp.asarray(train),
        alpha=alpha,
        num_iterations=k,
    )
    np.testing.assert_allclose(found, F, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("scale", [None, 0.5])
def test_a_model_without_errors_is_not_corrected(scale):
    _, A, _, Y, train = as_arrays(0)
    found = correct_and_smooth.correct(lambda v: A @ v, Y, Y, train, scale=scale)
    np.testing.assert_array_equal(found, Y)


def test_targets_of_other_nodes_do_not_count():
    _, A, P, Y, train = as_arrays(1)
    other = jnp.where(train[:, None], Y, np.nan)
    for function in (correct_and_smooth.correct, correct_and_smooth.smooth):
        found = [function(lambda v: A @ v, P, some, train) for some in (Y, other)]
        np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "function", [correct_and_smooth.correct, correct_and_smooth.smooth]
)
def test_bad_input_is_refused_in_one_sentence(function):
    _, A, P, Y, train = as_arrays(0)
    function = functools.partial(generators.unchecked, function)
    flow = lambda v: A @ v  # noqa: E731
    with pytest.raises(ValueError, match="must have one shape"):
        function(flow, P[:, :1], Y, train)
    with pytest.raises(ValueError, match="alpha"):
        function(flow, P, Y, train, alpha=1.5)
    with pytest.raises(ValueError, match="num_iterations"):
        function(flow, P, Y, train, num_iterations=-1)
    with pytest.raises(ValueError, match="train_mask"):
        function(flow, P, Y, train[:-1])


def test_a_scale_is_positive():
    _, A, P, Y, train = as_arrays(0)
    with pytest.raises(ValueError, match="scale must be positive"):
        correct_and_smooth.correct(lambda v: A @ v, P, Y, train, scale=-1.0)


@pytest.mark.parametrize("scale", [None, 1.0])
def test_a_training_node_without_targets_has_no_error(scale):
    _, A, P, Y, train = as_arrays(0)
    node = int(jnp.argmax(train))
    missing, fewer = Y.at[node].set(jnp.nan), train.at[node].set(False)
    flow = lambda v: A @ v  # noqa: E731
    found = [
        correct_and_smooth.correct(flow, P, *known, scale=scale)
        for known in ((missing, train), (Y, fewer))
    ]
    np.testing.assert_array_equal(*found)
    found = [
        correct_and_smooth.smooth(flow, P, *known)
        for known in ((missing, train), (Y, fewer))
    ]
    np.testing.assert_array_equal(*found)
