"""Series of smooth activations: closed forms, quadrature, and refusals."""

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gnnrp.kernels import gntk
from gnnrp.kernels.gntk import activations, hermite_series, random_features

X = jnp.asarray(np.random.default_rng(0).normal(size=(generators.N, 3))) / 2


@pytest.mark.long
@pytest.mark.parametrize("name", ["gelu", "sigmoid_like", "rbf", "cube"])
def test_the_series_of_a_named_activation_equals_its_closed_form(name):
    closed = activations.by_name(name)
    found = hermite_series.activation(closed.pointwise.function)
    assert found.scale == pytest.approx(closed.scale, rel=1e-10)
    kernels = gntk.dense(gntk.initialize(gntk.gram(X)))
    for one, other in zip(
        gntk.transform(kernels, found), gntk.transform(kernels, closed), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9 * abs(other).max())


@pytest.mark.long
def test_tanh_and_silu_equal_gaussian_quadrature():
    points, weights = np.polynomial.hermite_e.hermegauss(150)
    weights = weights / weights.sum()
    c, a, b = 0.3, 0.8, 0.6
    u = np.sqrt(a) * points[:, None] + 0 * points
    v = c / a * u + np.sqrt(b - c**2 / a) * points[None, :]
    for function, tolerance in ((jnp.tanh, 1e-9), (jax.nn.silu, 1e-12)):
        found = hermite_series.activation(function)
        slope = jnp.vectorize(jax.grad(function))
        for compute, phi in ((found.covariance, function), (found.derivative, slope)):
            expected = weights @ np.asarray(phi(u) * phi(v)) @ weights
            computed = compute(*map(jnp.asarray, (c, a, b)))
            assert computed == pytest.approx(expected, rel=tolerance)


@pytest.mark.long
def test_kernels_of_a_tanh_network_are_psd_and_have_unbiased_random_features():
    matrix = generators.adjacency(0)
    network = gntk.Network(2, hermite_series.activation(jnp.tanh), bias="after")
    kernels = gntk.gcn(matrix, gntk.gram(X), network)
    for kernel in kernels:
        assert np.linalg.eigvalsh(kernel).min() > -1e-10
    features = random_features.gcn(
        matrix, X, network, jax.random.key(0), num_features=4000
    )
    gap = random_features.kernels(features).ntk - kernels.ntk
    assert jnp.abs(gap / random_features.standard_errors(features).ntk).max() < 6


@pytest.mark.long
def test_nodes_without_variance_have_finite_values_and_gradients():
    found = hermite_series.activation(jnp.tanh)
    zero, one = jnp.asarray(0.0), jnp.asarray(1.0)
    for compute in found[:2]:
        for sides in ((zero, zero, zero), (zero, zero, one)):
            assert np.isfinite(compute(*sides))
            assert np.isfinite(jax.grad(compute, argnums=(0, 1, 2))(*sides)).all()


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "settings", "match"),
    [
        (jax.nn.relu, {}, "must be smooth, but 64 terms miss .* larger num_terms"),
        (jnp.log, {}, "must be finite and not zero"),
        (jnp.zeros_like, {}, "must be finite and not zero"),
        (jnp.tanh, {"num_terms": 0}, "num_terms must be"),
    ],
)
def test_kinks_and_empty_series_are_refused(function, settings, match):
    with pytest.raises(ValueError, match=match):
        hermite_series.activation(function, **settings)


def test_names_are_refused_where_a_function_is_needed():
    with pytest.raises(TypeError, match=r"such as jnp\.tanh"):
        generators.unchecked(hermite_series.activation, "tanh")
