"""Krylov spaces: exact where they must be, and honest about their error elsewhere."""

import generators
import jax.numpy as jnp
import numpy as np
import pytest
import references

from gnnrp.kernels import features
from gnnrp.propagation import Steps, exact, krylov, similarity
from gnnrp.propagation.solvers import _node_positions
from gnnrp.runtime.options import Options

seeds = pytest.mark.parametrize("seed", range(3))
N, SIZES = 24, ((12, 5, 4), (9, 3, 3), (7, 8, 2))  # splits of unequal size


def split_of(seed, sizes=SIZES):
    return generators.splits(seed, sizes, N)


def build(S, targets, train, **settings):
    """Return the basis of each split for the targets as R_0, and where nodes stand."""
    rest = _node_positions.pad_index(~train)
    places = _node_positions.index_nodes(train, rest)
    start = np.where(train[:, :, None], targets, 0)
    padded = np.pad(start, [(0, 0), (0, 1), (0, 0)])
    rows = np.take_along_axis(padded, places.train[:, :, None], axis=1)
    residual = jnp.asarray(np.swapaxes(rows, 1, 2))
    if not callable(S):
        S = similarity.Dense(jnp.asarray(S))
    steps = Steps(settings.pop("step_size"), settings.pop("num_steps"))
    return krylov.build(S, places, residual, steps, **settings), places


def predictions(basis, places, targets, steps, *, step_size):
    """Return F_t of all nodes, (t, s, n, c)."""
    steps = np.asarray(steps)
    moved = krylov.coefficients(basis, step_size, steps)
    left = krylov.residual_coefficients(basis, step_size, steps)
    rest = np.einsum("scmr,tscm->tsrc", basis.images, moved)
    residual = np.einsum("scml,tscm->tslc", basis.vectors, left)
    num_splits, num_nodes = places.position.shape
    out = np.zeros((len(steps), num_splits, num_nodes + 1, targets.shape[1]))
    padded = np.pad(targets, [(0, 1), (0, 0)])
    for s in range(num_splits):
        out[:, s, places.rest[s]] = rest[:, s]
        train = places.train[s]
        out[:, s, train] = padded[train] - residual[:, s]
    return out[:, :, :num_nodes]


def iterate(S, targets, train, num_steps, *, step_size):
    """Return F_t of all splits, (t + 1, s, n, c)."""
    runs = [
        references.residual_propagation(S, targets, mask, step_size, num_steps)
        for mask in train
    ]
    return np.stack(runs, axis=1)


def assert_close(found, expected, tolerance=1e-11):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


def matrices(seed):
    """Return a positive definite, a singular and an indefinite similarity."""
    root = np.random.default_rng(seed).standard_normal((N, N)) / N
    return (
        generators.positive_definite(seed, N),
        generators.low_rank(seed, 15, N),
        root + root.T,
    )


# Where the padding and the nodes stand


def test_layout_finds_every_training_node_where_it_stands():
    train = split_of(0).train
    places = _node_positions.index_nodes(train, _node_positions.pad_index(~train))
    assert places.train.shape == (3, 12)
    assert places.rest.shape == (3, N - 7)
    for s, mask in enumerate(train):
        nodes = np.flatnonzero(mask)
        np.testing.assert_array_equal(places.train[s, : len(nodes)], nodes)
        np.testing.assert_array_equal(places.train[s, len(nodes) :], N)
        np.testing.assert_array_equal(places.train[s, places.position[s, nodes]], nodes)
        np.testing.assert_array_equal(places.position[s, ~mask], 12)


def test_index_of_nothing_is_all_padding():
    np.testing.assert_array_equal(
        _node_positions.pad_index(np.zeros((2, 5), bool)), [[5]] * 2
    )


# Exactness


@seeds
@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("num_steps", [1, 5])
def test_a_vector_more_than_steps_gives_every_step(seed, kind, num_steps):
    S, train = matrices(seed)[kind], split_of(seed).train
    targets = generators.targets(seed, N)
    settings = {"num_steps": num_steps, "tolerance": 0.0}
    basis, places = build(S, targets, train, step_size=0.4, **settings)
    assert basis.eigenvalues.shape[-1] == num_steps + 1
    assert basis.error == 0
    for step_size in (0.4, 0.9):  # the space serves every step size
        found = predictions(
            basis, places, targets, range(num_steps + 1), step_size=step_size
        )
        expected = iterate(S, targets, train, num_steps, step_size=step_size)
        assert_close(found, expected)


def test_space_of_m_vectors_does_not_give_many_more_steps():
    S, train = matrices(0)[0], split_of(0).train
    targets = generators.targets(0, N)
    basis, places = build(S, targets, train, step_size=0.4, num_steps=40, max_vectors=4)
    found = predictions(basis, places, targets, [40], step_size=0.4)
    expected = iterate(S, targets, train, 40, step_size=0.4)[-1:]
    assert np.abs(found - expected).max() > 1e-4
    assert basis.error > 1e-4


@pytest.mark.long
@seeds
def test_vectors_are_orthonormal_and_tridiagonalize_the_block(seed):
    S, train = matrices(seed)[0], split_of(seed).train
    targets = np.random.default_rng(seed).standard_normal((N, 2))
    basis, places = build(S, targets, train, step_size=0.4, num_steps=5, tolerance=0.0)
    for s, mask in enumerate(train):
        nodes, rest = np.flatnonzero(mask), np.flatnonzero(~mask)
        for c in range(targets.shape[1]):
            V = np.asarray(basis.vectors[s, c])[:, : len(nodes)]
            np.testing.assert_allclose(V @ V.T, np.eye(6), atol=1e-13)
            T = V @ S[np.ix_(nodes, nodes)] @ V.T
            assert np.abs(np.triu(T, 2)).max() < 1e-13
            values = basis.eigenvalues[s, c]
            np.testing.assert_allclose(values, np.linalg.eigvalsh(T), atol=1e-13)
            images = np.asarray(basis.images[s, c])[:, : len(rest)]
            np.testing.assert_allclose(
                images, (S[np.ix_(rest, nodes)] @ V.T).T, atol=1e-13
            )
    assert places.train.shape[1] == basis.vectors.shape[-1]


@pytest.mark.long
@seeds
def test_splits_and_columns_do_not_know_each_other(seed):
    S, train = matrices(seed)[0], split_of(seed).train
    targets = generators.targets(seed, N)
    settings = {"step_size": 0.4, "num_steps": 8, "tolerance": 0.0}
    steps = [1, 8, 50]
    together = predictions(
        *build(S, targets, train, **settings), targets, steps, step_size=0.4
    )
    for s, column in ((0, 2), (2, 0)):
        one = targets[:, column : column + 1]
        basis, places = build(S, one, train[s : s + 1], **settings)
        alone = predictions(basis, places, one, steps, step_size=0.4)
        assert_close(together[:, s, :, column], alone[:, 0, :, 0])


def test_several_splits_send_their_columns_through_one_product():
    widths = []
    S = jnp.asarray(matrices(0)[0])

    def counted(v):
        widths.append(v.shape)
        return S @ v

    targets = generators.targets(0, N)
    build(counted, targets, split_of(0).train, step_size=0.4, num_steps=8)
    assert widths == [(N, 3 * targets.shape[1])]


# Where the space is complete before its vectors are used up


@pytest.mark.long
@seeds
@pytest.mark.parametrize("rank", [1, 4])
def test_low_rank_kernel_ends_the_space_without_harm(seed, rank):
    S, train = generators.low_rank(seed, rank, N), split_of(seed).train
    targets = generators.targets(seed, N)
    settings = {"step_size": 0.4, "num_steps": 5000, "tolerance": 0.0}
    basis, places = build(S, targets, train, max_vectors=12, **settings)
    steps = [1, 7, 100, 5000]
    found = predictions(basis, places, targets, steps, step_size=0.4)
    expected = iterate(S, targets, train, 5000, step_size=0.4)[steps]
    assert_close(found, expected, 1e-10)
    assert basis.error < 1e-12


@pytest.mark.long
def test_fewer_distinct_rows_than_vectors_end_the_space():
    rows = np.random.default_rng(0).standard_normal((4, 3))
    X = rows[np.arange(N) % 4]
    kernel = features.build(X, gamma=0.3)
    train, targets = split_of(0).train, generators.targets(0, N)
    basis, places = build(
        kernel, targets, train, step_size=1.0, num_steps=2000, max_vectors=16
    )
    S = np.asarray(features.matrix(kernel))
    found = predictions(basis, places, targets, [2000], step_size=1.0)
    expected = iterate(S, targets, train, 2000, step_size=1.0)[-1:]
    assert_close(found, expected, 1e-10)


def test_space_ends_for_good_where_the_kernel_only_scales():
    train, targets = split_of(0).train, generators.targets(0, N)
    basis, places = build(
        0.5 * np.eye(N), targets, train, step_size=1.0, num_steps=60, tolerance=0.0
    )
    vectors = np.asarray(basis.vectors)
    assert vectors[:, :, 0].any()
    assert not vectors[:, :, 1:].any()
    assert basis.error == 0
    found = predictions(basis, places, targets, [1, 60], step_size=1.0)
    for mask, (F_1, F_60) in zip(train, np.moveaxis(found, 1, 0), strict=True):
        np.testing.assert_allclose(F_1[mask], 0.5 * targets[mask], rtol=1e-14)
        np.testing.assert_allclose(F_60[mask], targets[mask], rtol=1e-14)
        assert not F_60[~mask].any()


@seeds
def test_space_as_large_as_the_training_set_is_exact(seed):
    S, train = matrices(seed)[0], split_of(seed).train
    targets = generators.targets(seed, N)
    settings = {"step_size": 0.4, "num_steps": 400, "tolerance": 0.0}
    basis, places = build(S, targets, train, max_vectors=16, **settings)
    found = predictions(basis, places, targets, [400], step_size=0.4)
    expected = iterate(S, targets, train, 400, step_size=0.4)[-1:]
    assert_close(found, expected, 1e-10)


@pytest.mark.long
def test_columns_without_a_label_stay_zero():
    S, train = matrices(0)[0], split_of(0).train
    targets = np.c_[generators.targets(0, N), np.zeros(N)]
    basis, places = build(S, targets, train, step_size=0.4, num_steps=300)
    assert np.isfinite(basis.error)
    assert not np.asarray(basis.vectors)[:, -1].any()
    found = predictions(basis, places, targets, [0, 1, 300], step_size=0.4)
    assert not found[..., -1].any()
    expected = iterate(S, targets, train, 300, step_size=0.4)[[0, 1, 300]]
    assert_close(found, expected, 1e-3)
    nothing, places = build(S, 0 * targets, train, step_size=0.4, num_steps=300)
    assert np.isfinite(nothing.error)
    assert not predictions(nothing, places, 0 * targets, [300], step_size=0.4).any()


# How far off it is where it is not exact

LARGE = 160


def large_problem(seed):
    """Return a smooth kernel with a long tail of eigenvalues, targets and masks."""
    X = np.random.default_rng(seed).standard_normal((LARGE, 3))
    S = references.normalized_gaussian_kernel(X, 0.5)
    targets = generators.targets(seed, LARGE)
    sizes = ((90, 20, 20), (70, 30, 30))
    return S, targets, generators.splits(seed, sizes, LARGE).train


def true_error(basis, places, S, targets, train, *, step_size, num_steps):
    """Return the largest relative error of the predictions on the other nodes."""
    steps = np.unique(np.geomspace(1, num_steps, 20).astype(int))
    found = predictions(basis, places, targets, steps, step_size=step_size)
    worst = 0.0
    for s, mask in enumerate(train):
        nodes = np.flatnonzero(mask)
        F = exact.trajectory(
            exact.factorize(S[:, nodes], nodes),
            targets[nodes],
            steps,
            step_size=step_size,
        )
        gap = np.linalg.norm((found[:, s] - F)[:, ~mask], axis=(1, 2))
        worst = max(worst, np.max(gap / np.linalg.norm(F[:, ~mask], axis=(1, 2))))
    return worst


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_error_estimate_bounds_the_true_error_and_shrinks_with_it(seed):
    S, targets, train = large_problem(seed)
    problem = {"step_size": 1.9, "num_steps": 2000}
    estimates, errors = [], []
    for num_vectors in (8, 20, 32):
        basis, places = build(
            S, targets, train, tolerance=0.0, max_vectors=num_vectors, **problem
        )
        estimates.append(basis.error)
        errors.append(true_error(basis, places, S, targets, train, **problem))
    assert np.all(np.diff(errors) < 0)
    assert np.all(np.diff(estimates) < 0)
    assert errors[-1] < 0.1 * errors[0]
    assert errors[-1] < 10 * estimates[-1]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_growth_stops_at_the_tolerance_and_the_error_is_about_that(seed, tolerance):
    S, targets, train = large_problem(seed)
    problem = {"step_size": 1.9, "num_steps": 2000}
    calls = []
    basis, places = build(
        S,
        targets,
        train,
        tolerance=tolerance,
        options=Options(progress=lambda _, *counts: calls.append(counts)),
        **problem,
    )
    used = basis.eigenvalues.shape[-1]
    assert used < 150
    assert basis.error <= tolerance
    error = true_error(basis, places, S, targets, train, **problem)
    assert error < 10 * tolerance
    most = places.train.shape[1]  # no space is larger
    assert calls == [(i + 1, most) for i in range(used)]
    before, _ = build(S, targets, train, tolerance=0.0, max_vectors=used - 4, **problem)
    assert before.error > tolerance


@pytest.mark.long
def test_no_more_vectors_than_steps_or_memory_allow():
    S, train = matrices(0)[0], split_of(0).train
    targets = generators.targets(0, N)
    for limits, expected in (
        ({"num_steps": 3, "max_vectors": 9}, 4),
        ({"num_steps": 50, "max_vectors": 6}, 6),
        ({"num_steps": 50, "max_vectors": 0}, 1),
    ):
        basis, _ = build(S, targets, train, step_size=0.4, tolerance=0.0, **limits)
        assert basis.eigenvalues.shape[-1] == expected


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_single_precision_space_is_as_good_as_single_precision(seed):
    S, targets, train = large_problem(seed)
    problem = {"step_size": 1.9, "num_steps": 2000}
    basis, places = build(
        S.astype(np.float32), targets.astype(np.float32), train, **problem
    )
    assert basis.vectors.dtype == basis.images.dtype == jnp.float32
    assert basis.eigenvalues.dtype == np.float64
    error = true_error(basis, places, S, targets, train, **problem)
    assert error < 1e-3


@pytest.mark.long
def test_divergence_is_no_exception():
    S, train = matrices(0)[2], split_of(0).train
    targets = generators.targets(0, N)
    basis, places = build(
        S, targets, train, step_size=50.0, num_steps=2000, max_vectors=12
    )
    found = predictions(basis, places, targets, [1, 2000], step_size=50.0)
    assert np.isfinite(found[0]).all()
    assert not np.isfinite(found[1]).all()
