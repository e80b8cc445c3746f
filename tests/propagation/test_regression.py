"""Kernel regression with a ridge, and what a Gaussian process knows."""

import generators
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from sklearn.kernel_ridge import KernelRidge

from gnnrp.propagation import exact, regression

L, M, C = 6, 10, 3
rng = np.random.default_rng(0)
X = rng.standard_normal((M, 2))
K = np.exp(-((X[:, None] - X) ** 2).sum(-1) / 2)
Y = rng.standard_normal((L, C))


def factors(kernel=K):
    return exact.factorize(kernel[:, :L], np.arange(L))


@pytest.mark.parametrize("ridge", [1e-3, 0.5, 30.0])
def test_a_ridge_gives_kernel_ridge_regression(ridge):
    expected = KernelRidge(alpha=ridge, kernel="precomputed").fit(K[:L, :L], Y)
    found = exact.limit(factors(), Y, ridge=ridge)
    np.testing.assert_allclose(found, expected.predict(K[:, :L]), rtol=0, atol=1e-11)


def test_a_vanishing_ridge_is_none():
    found = exact.limit(factors(), Y, ridge=1e-11)
    np.testing.assert_allclose(found, exact.limit(factors(), Y), rtol=0, atol=1e-6)


@pytest.mark.parametrize("noise", [1e-4, 0.2])
def test_the_posterior_is_that_of_a_gaussian_process(noise):
    process = GaussianProcessRegressor(sk.RBF(1.0), alpha=noise, optimizer=None)
    mean, deviation = process.fit(X[:L], Y).predict(X, return_std=True)
    found = regression.posterior(factors(), Y, np.diag(K), noise=noise)
    np.testing.assert_allclose(found.mean, mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.variance, deviation[:, 0] ** 2, rtol=0, atol=1e-9)


def test_without_noise_the_labels_are_known_and_no_variance_is_negative():
    found = regression.posterior(factors(), Y, np.diag(K))
    np.testing.assert_allclose(found.mean[:L], Y, rtol=0, atol=1e-9)
    assert found.variance.min() >= 0
    np.testing.assert_allclose(found.variance[:L], 0, atol=1e-12)


def test_nodes_that_see_no_label_keep_their_variance():
    kernel = np.eye(M) * 2
    found = regression.posterior(factors(kernel), Y, np.diag(kernel), noise=0.1)
    np.testing.assert_array_equal(found.variance[L:], 2)
    np.testing.assert_array_equal(found.mean[L:], 0)


@pytest.mark.parametrize(
    ("ridge", "message"),
    [(-0.1, "ridge must be at least 0, got -0.1"), (0.5, "ridge must exceed 1, got")],
)
def test_ridges_that_leave_nothing_definite_are_refused(ridge, message):
    with pytest.raises(ValueError, match=message):
        exact.limit(factors(np.diag([-1.0] + (M - 1) * [1.0])), Y, ridge=ridge)


def test_a_small_ridge_of_a_low_rank_kernel_needs_to_know_that_it_is_psd():
    W = rng.standard_normal((M, 2)).astype(np.float32)
    columns = (W @ W.T)[:, :L] - 1e-6 * np.eye(M, dtype=np.float32)[:, :L]
    with pytest.raises(ValueError, match="psd=True"):
        exact.limit(exact.factorize(columns, np.arange(L)), Y, ridge=1e-9)
    known = exact.factorize(columns, np.arange(L), psd=True)
    found = exact.limit(known, Y, ridge=1e-2)
    np.testing.assert_allclose(found, exact.limit(known, Y), rtol=0, atol=0.05)


def test_variances_of_other_nodes_are_refused():
    with pytest.raises(ValueError, match=r"variance must have shape \(10,\), got"):
        regression.posterior(factors(), Y, np.ones(L))


@pytest.mark.parametrize("num_features", [3, 40])
def test_the_posterior_of_features_is_that_of_their_kernel(num_features):
    rng = np.random.default_rng(0)
    phi, train = rng.normal(size=(20, num_features)), np.array([7, 2, 11, 5, 0])
    targets, noise = rng.normal(size=(5, 2)), 0.3
    found = regression.posterior_of_features(phi, train, targets, noise=noise)
    K = phi @ phi.T
    inverse = np.linalg.inv(K[np.ix_(train, train)] + noise * np.eye(5))
    weights = K[:, train] @ inverse
    np.testing.assert_allclose(found.mean, weights @ targets, rtol=1e-9, atol=1e-11)
    variance = np.diag(K) - np.sum(weights * K[:, train], axis=1)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-8, atol=1e-10)


def test_a_posterior_of_features_needs_noise_and_matching_targets():
    phi, train = np.ones((4, 2)), np.array([0, 2])
    with pytest.raises(ValueError, match="noise must be positive"):
        regression.posterior_of_features(phi, train, np.ones((2, 1)), noise=0.0)
    with pytest.raises(ValueError, match="targets"):
        generators.unchecked(
            regression.posterior_of_features, phi, train, np.ones((3, 1)), noise=0.1
        )
