"""Kernels over distinct rows and as ΦΦ^T, held against the dense ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from gnnrp.kernels import features
from gnnrp.kernels.features import low_rank

N, D, GAMMA = 40, 3, 0.4
KEY = jax.random.key(0)
normalizations = pytest.mark.parametrize("normalized", [True, False])


def spread(seed=0, n=N):
    return np.random.default_rng(seed).random((n, D))


def repeated(seed=0):
    """Six distinct rows, each several times, in no order."""
    rng = np.random.default_rng(seed)
    return spread(seed, 6)[rng.integers(0, 6, N)]


def dense(x, kernel="gaussian", *, normalized):
    built = features.build(x, kernel, gamma=GAMMA, normalized=normalized)
    return np.asarray(features.matrix(built))


def as_matrix(linear_map):
    return np.asarray(jax.jit(linear_map)(jnp.eye(N)))


@normalizations
@pytest.mark.parametrize("kernel", features.KERNELS)
@pytest.mark.parametrize("convert", [np.asarray, scipy.sparse.csr_array])
def test_distinct_rows_give_the_whole_kernel(kernel, normalized, convert):
    x = repeated()
    settings = {"gamma": GAMMA, "normalized": normalized}
    found = low_rank.distinct(convert(x), kernel, **settings)
    assert found.gram.shape == (6, 6)
    expected = dense(x, kernel, normalized=normalized)
    np.testing.assert_allclose(as_matrix(found), expected, rtol=1e-12)


def test_nodes_of_equal_features_get_equal_values():
    x = repeated()
    v = jnp.asarray(np.random.default_rng(1).normal(size=(N, 2)))
    out = np.asarray(low_rank.distinct(x, gamma=GAMMA)(v))
    _, group = np.unique(x, axis=0, return_inverse=True)
    for row in range(6):
        assert len(np.unique(out[group.ravel() == row], axis=0)) == 1


def test_all_rows_may_be_distinct():
    x = spread()
    expected = dense(x, normalized=True)
    found = as_matrix(low_rank.distinct(x, gamma=GAMMA))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("num_features", [64, 4096])
def test_fourier_features_have_the_stated_standard_error(num_features):
    x = 3 * spread()
    kernel = dense(x, normalized=False)
    draws = [
        as_matrix(
            low_rank.fourier(
                x, gamma=GAMMA, num_features=num_features, key=key, normalized=False
            )
        )
        for key in jax.random.split(KEY, 20)
    ]
    np.testing.assert_allclose(np.diagonal(draws[0]), 1, rtol=1e-13)
    stated = (1 - kernel**2) / np.sqrt(num_features)
    off = ~np.eye(N, dtype=bool)
    score = ((np.array(draws) - kernel) / np.where(off, stated, 1))[:, off]
    assert abs(score.mean()) < 0.1  # unbiased
    assert score.std() == pytest.approx(1, abs=0.1)


@pytest.mark.long
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear", "polynomial"])
@pytest.mark.parametrize("num_landmarks", [5, 15, N])
@normalizations
def test_nystrom_states_its_error(kernel, num_landmarks, normalized):
    x = spread()
    settings = {"gamma": GAMMA, "num_landmarks": num_landmarks, "key": KEY}
    plain = low_rank.nystrom(x, kernel, **settings, normalized=False)
    full = dense(x, kernel, normalized=False)
    gap = full - as_matrix(plain.map)
    assert np.linalg.eigvalsh(gap).min() > -1e-7 * np.linalg.norm(full)
    assert plain.error == pytest.approx(np.trace(gap) / np.trace(full), abs=1e-9)
    assert np.linalg.norm(gap, 2) <= plain.error * np.trace(full) + 1e-7
    if num_landmarks == N:
        assert plain.error < 1e-7
    scaled = low_rank.nystrom(x, kernel, **settings, normalized=normalized)
    assert scaled.error == plain.error
    if normalized:
        approximate = as_matrix(plain.map)
        sums = approximate.sum(axis=1)
        expected = approximate / np.sqrt(np.outer(sums, sums))
        np.testing.assert_allclose(as_matrix(scaled.map), expected, rtol=1e-9)


@pytest.mark.long
def test_nystrom_recovers_a_kernel_of_low_rank_exactly():
    found = low_rank.nystrom(
        spread(), "linear", num_landmarks=2 * D, key=KEY, normalized=False
    )
    assert found.error < 1e-12
    expected = dense(spread(), "linear", normalized=False)
    np.testing.assert_allclose(as_matrix(found.map), expected, rtol=1e-9)


@pytest.mark.long
def test_thin_features_stay_sparse_and_give_the_same_factor():
    rng = np.random.default_rng(0)
    x = np.zeros((N, 80))
    x[np.arange(N)[:, None], rng.integers(0, 80, (N, 2))] = 1
    settings = {"gamma": GAMMA, "num_landmarks": 10, "key": KEY}
    thin = low_rank.nystrom(scipy.sparse.csr_array(x), **settings)
    # A function without a name is evaluated on dense rows.
    full = low_rank.nystrom(x, lambda *rows: features.gaussian(*rows), **settings)
    assert thin.error == pytest.approx(full.error, abs=1e-12)
    np.testing.assert_allclose(as_matrix(thin.map), as_matrix(full.map), atol=1e-12)


@pytest.mark.parametrize("num_features", [0, 3])
def test_a_number_of_fourier_features_that_does_not_serve_is_refused(num_features):
    with pytest.raises(ValueError, match="num_features must be"):
        low_rank.fourier(spread(), gamma=1.0, num_features=num_features, key=KEY)


@pytest.mark.parametrize("num_landmarks", [0, N + 1])
def test_more_landmarks_than_nodes_are_refused(num_landmarks):
    with pytest.raises(ValueError, match="num_landmarks must be"):
        low_rank.nystrom(spread(), num_landmarks=num_landmarks, key=KEY)


@pytest.mark.long
def test_nystrom_refuses_a_kernel_that_is_not_psd():
    x = np.random.default_rng(0).normal(size=(N, D))

    def distance(a, b, _):
        return jnp.sum((a[:, None] - b) ** 2, axis=2)

    with pytest.raises(ValueError, match="positive semi-definite"):
        low_rank.nystrom(x, distance, num_landmarks=10, key=KEY)


@pytest.mark.long
def test_row_sums_that_are_not_positive_are_refused():
    x = np.array([[1.0], [-1.0], [-1.0]])
    with pytest.raises(ValueError, match=r"finite, got .* in row 0"):
        low_rank.nystrom(x, "linear", num_landmarks=3, key=KEY)
