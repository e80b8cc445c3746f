"""The expectations of two Gaussians, against quadrature and against each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from gnnrp.kernels.gntk import activations

every = pytest.mark.parametrize("name", activations.ACTIVATIONS)
ROOT, FLAT = np.sqrt(2), 1 / 2.4020563531719796


def bell(z):
    return np.exp(-(z**2))


FUNCTIONS = {  # and their derivatives
    "relu": (lambda z: np.maximum(z, 0), lambda z: (z > 0) * 1.0),
    "leaky_relu": (
        lambda z: np.where(z > 0, z, 0.01 * z),
        lambda z: np.where(z > 0, 1, 0.01),
    ),
    "abs": (np.abs, np.sign),
    "gelu": (
        lambda z: z * scipy.special.ndtr(z),
        lambda z: scipy.special.ndtr(z) + z * bell(z / ROOT) / np.sqrt(2 * np.pi),
    ),
    "erf": (
        scipy.special.erf,
        lambda z: 2 / np.sqrt(np.pi) * bell(z),
    ),
    "sigmoid_like": (
        lambda z: (1 + scipy.special.erf(FLAT * z)) / 2,
        lambda z: FLAT / np.sqrt(np.pi) * bell(FLAT * z),
    ),
    "sin": (np.sin, np.cos),
    "cos": (np.cos, lambda z: -np.sin(z)),
    "rbf": (
        lambda z: ROOT * np.sin(ROOT * z + np.pi / 4),
        lambda z: 2 * np.cos(ROOT * z + np.pi / 4),
    ),
    "gaussian": (bell, lambda z: -2 * z * bell(z)),
    "gabor": (
        lambda z: bell(z) * np.sin(z),
        lambda z: bell(z) * (np.cos(z) - 2 * z * np.sin(z)),
    ),
    "exp": (np.exp, np.exp),
    "square": (lambda z: z**2, lambda z: 2 * z),
    "cube": (lambda z: z**3, lambda z: 3 * z**2),
    "hermite_2": (lambda z: (z**2 - 1) / ROOT, lambda z: ROOT * z),
    "hermite_3": (
        lambda z: (z**3 - 3 * z) / np.sqrt(6),
        lambda z: (z**2 - 1) * 3 / np.sqrt(6),
    ),
    "identity": (lambda z: z, np.ones_like),
}
KINKED = {"relu", "leaky_relu", "abs"}
smooth = pytest.mark.parametrize("name", [x for x in FUNCTIONS if x not in KINKED])
COVARIANCES = [(0.3, 1.0, 2.0), (-0.8, 0.7, 1.5), (0.0, 1.0, 1.0), (0.5, 0.6, 0.5)]


def by_quadrature(function, c, a, b, num=4000):
    """E[f(u) f(v)], v what u gives of it plus the rest, on a fine grid of both."""
    grid = np.linspace(-9, 9, num + 1) + 1e-9  # kinks fall between two points
    weight = np.exp(-(grid**2) / 2)
    weight /= weight.sum()
    u = np.sqrt(a) * grid[:, None]
    v = c / a * u + np.sqrt(b - c**2 / a) * grid[None, :]
    return weight @ (function(u) * function(v)) @ weight


def test_every_name_has_a_function_here():
    assert FUNCTIONS.keys() == activations.ACTIVATIONS.keys()


def by_gauss(function, c, a, b, num=90):
    """E[f(u) f(v)] of a smooth function by a product of Gauss quadratures."""
    points, weights = np.polynomial.hermite_e.hermegauss(num)
    weights = weights / weights.sum()
    u = np.sqrt(a) * points[:, None]
    v = c / a * u + np.sqrt(b - c**2 / a) * points[None, :]
    return weights @ (function(u) * function(v)) @ weights


@pytest.mark.long
@every
@pytest.mark.parametrize("sides", COVARIANCES)
def test_expectations_are_integrals(name, sides):
    activation = activations.by_name(name)
    function, derivative = FUNCTIONS[name]
    arrays = [jnp.asarray(x) for x in sides]
    found = activation.covariance(*arrays), activation.derivative(*arrays)
    expected = by_quadrature(function, *sides), by_quadrature(derivative, *sides)
    np.testing.assert_allclose(found, expected, atol=2e-3)


@smooth
@pytest.mark.parametrize("sides", COVARIANCES)
def test_expectations_of_smooth_functions_equal_gaussian_quadrature(name, sides):
    activation = activations.by_name(name)
    for compute, function in zip(activation[:2], FUNCTIONS[name], strict=True):
        found = compute(*map(jnp.asarray, sides))
        expected = by_gauss(function, *sides)
        assert found == pytest.approx(expected, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("name", [x for x in FUNCTIONS if x != "exp"])
def test_pointwise_parts_are_the_function_its_slope_and_their_means(name):
    parts, sigma = activations.by_name(name).pointwise, 1.3
    if name in KINKED:
        points = np.linspace(-9, 9, 40_000)  # without the kink
        weights, tolerance = np.exp(-(points**2) / 2), 1e-6
    else:
        points, weights = np.polynomial.hermite_e.hermegauss(90)
        tolerance = 1e-11
    z, weights = sigma * points, weights / weights.sum()
    both = zip(parts[:2], parts[2:4], FUNCTIONS[name], strict=True)
    for compute, mean, function in both:
        found, expected = compute(jnp.asarray(z)), function(z)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
        found = mean(jnp.asarray(sigma))
        assert found == pytest.approx(weights @ expected, rel=tolerance, abs=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_angles_are_exact_to_some_ulp_everywhere(dtype):
    near = 1 - np.geomspace(1e-15, 1, 1000)
    x = np.unique(np.concatenate([near, -near, np.linspace(-1, 1, 1001)]).astype(dtype))
    found = jax.jit(lambda x: activations.RELU.derivative(x, x * 0 + 1, x * 0 + 1))(x)
    expected = 0.5 - np.arccos(x.astype(np.longdouble)) / (2 * np.longdouble(np.pi))
    ulp = np.finfo(dtype).eps
    np.testing.assert_allclose(found, expected.astype(dtype), rtol=0, atol=4 * ulp)
    assert found.dtype == dtype


@every
def test_the_scale_makes_unit_variance_stay(name):
    activation = activations.by_name(name)
    one = jnp.asarray(1.0)
    kept = activation.scale * activation.covariance(one, one, one)
    assert kept == pytest.approx(1, rel=1e-14)


@pytest.mark.long
@every
def test_derivative_is_the_derivative_of_covariance_in_c(name):
    activation = activations.by_name(name)
    for c, a, b in COVARIANCES:
        slope = jax.grad(activation.covariance)(*map(jnp.asarray, (c, a, b)))
        expected = activation.derivative(*map(jnp.asarray, (c, a, b)))
        np.testing.assert_allclose(slope, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
@pytest.mark.parametrize("rho", [1.0, -1.0])
def test_gradients_at_correlation_one_are_finite(name, rho):
    activation = activations.by_name(name)
    for function in activation[:2]:
        grads = jax.grad(function, argnums=(0, 1, 2))(
            jnp.asarray(2.0 * rho), jnp.asarray(2.0), jnp.asarray(2.0)
        )
        assert np.isfinite(grads).all()
    slope = jax.grad(activation.covariance)(*map(jnp.asarray, (2.0 * rho, 2.0, 2.0)))
    expected = activation.derivative(*map(jnp.asarray, (2.0 * rho, 2.0, 2.0)))
    np.testing.assert_allclose(slope, expected, rtol=1e-14)


def test_round_off_beyond_correlation_one_is_one():
    sides = [jnp.asarray(x) for x in (2.0 * (1 + 1e-15), 2.0, 2.0)]
    np.testing.assert_allclose(activations.RELU.covariance(*sides), 1, rtol=1e-14)
    assert activations.RELU.derivative(*sides) == 0.5
    assert jax.grad(activations.RELU.covariance)(*sides) == 0.5


@every
def test_no_variance_gives_finite_values_and_gradients(name):
    activation = activations.by_name(name)
    zero, one = jnp.asarray(0.0), jnp.asarray(1.0)
    for function in activation[:2]:
        for sides in ((zero, zero, zero), (zero, zero, one), (zero, one, zero)):
            assert np.isfinite(function(*sides))
            assert np.isfinite(jax.grad(function, argnums=(0, 1, 2))(*sides)).all()


@pytest.mark.long
def test_the_diagonal_is_exact():
    a = jnp.asarray(np.random.default_rng(0).random(1000) * 1e3 + 1e-3)
    np.testing.assert_allclose(activations.RELU.covariance(a, a, a), a / 2, rtol=1e-15)
    np.testing.assert_array_equal(activations.RELU.derivative(a, a, a), 0.5)


@pytest.mark.long
def test_a_leaky_relu_of_slope_one_is_the_identity_and_of_zero_a_relu():
    sides = [jnp.asarray(x) for x in (0.3, 1.0, 2.0)]
    one, zero = activations.leaky_relu(1), activations.leaky_relu(0)
    np.testing.assert_allclose(one.covariance(*sides), 0.3, rtol=1e-14)
    np.testing.assert_allclose(one.derivative(*sides), 1, rtol=1e-14)
    np.testing.assert_allclose(one.scale, 1)
    for found, expected in zip(zero[:2], activations.RELU[:2], strict=True):
        np.testing.assert_allclose(found(*sides), expected(*sides), rtol=1e-14)


@pytest.mark.long
@pytest.mark.parametrize("name", ["gelu", "erf", "gaussian", "gabor"])
def test_digits_remain_at_large_variances_and_in_single_precision(name):
    activation = activations.by_name(name)
    sides = 0.4e6, 1e6, 2e6
    for compute in activation[:2]:
        found = compute(*(jnp.asarray(x, jnp.float32) for x in sides))
        expected = compute(*map(jnp.asarray, sides))
        assert found.dtype == jnp.float32
        assert found == pytest.approx(float(expected), rel=1e-5)


def test_a_polynomial_of_a_hermite_polynomial_is_a_power_at_unit_variance():
    c, one = jnp.asarray([-1.0, -0.4, 0.0, 0.7, 1.0]), jnp.ones(5)
    for degree in (1, 4, 9):
        activation = activations.hermite(degree)
        np.testing.assert_allclose(
            activation.covariance(c, one, one), c**degree, rtol=0, atol=1e-10
        )
        slope = degree * c ** (degree - 1)
        np.testing.assert_allclose(
            activation.derivative(c, one, one), slope, rtol=0, atol=1e-9
        )
        np.testing.assert_allclose(activation.scale, 1, rtol=1e-10)


def test_a_polynomial_of_degree_one_is_linear_with_a_constant():
    sides = [jnp.asarray(x) for x in (0.3, 1.0, 2.0)]
    line = activations.polynomial([0.5, 2.0])
    np.testing.assert_allclose(line.covariance(*sides), 0.25 + 4 * 0.3, rtol=1e-14)
    np.testing.assert_allclose(line.derivative(*sides), 4, rtol=1e-14)
    assert activations.polynomial([0, 3]).pointwise.is_linear
    assert not line.pointwise.is_linear


def test_names_and_numbers_without_an_activation_are_refused():
    with pytest.raises(ValueError, match="did you mean 'relu'"):
        activations.by_name("relus")
    with pytest.raises(
        ValueError, match=r"one of relu, .*, gelu, .*identity, got .tanh"
    ):
        activations.by_name("tanh")
    with pytest.raises(ValueError, match="slope must be finite, got nan"):
        activations.leaky_relu(float("nan"))
    for wrong in ([0, 0], [1, float("inf")]):
        with pytest.raises(ValueError, match="finite and not all zero, got"):
            activations.polynomial(wrong)
    with pytest.raises(ValueError, match="coefficients must not be empty"):
        activations.polynomial([])
    with pytest.raises(ValueError, match="degree must be"):
        activations.hermite(0)
