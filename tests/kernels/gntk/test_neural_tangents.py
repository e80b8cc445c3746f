"""neural-tangents as a second route to the kernels, and jax left as it was."""

import itertools
import os
import subprocess
import sys

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from gnnrp.kernels import gntk
from gnnrp.kernels.gntk import activations, neural_tangents
from gnnrp.propagation import exact, regression

N, D = 6, 4


def propagation(kind):
    P = np.random.default_rng(1).normal(size=(N, N)) / np.sqrt(N)
    return jnp.asarray(P + P.T if kind == "symmetric" else P)


def node_features(seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(N, D)))


def ours(P, X, network):
    return gntk.gcn(lambda v: P @ v, gntk.gram(X), network)


def assert_close(found, expected, tolerance):
    for one, other in zip(found, expected, strict=True):
        scale = np.abs(other).max()
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)


def expectation(f, c, a, b):
    """Return E[f(u) f(v)] by quadrature."""
    x, weights = np.polynomial.hermite_e.hermegauss(80)
    U, V = np.meshgrid(x, x, indexing="ij")
    u, v = np.sqrt(a) * U, c / np.sqrt(a) * U + np.sqrt(b - c**2 / a) * V
    return weights @ (f(u) * f(v)) @ weights / weights.sum() ** 2


# Kernels of GCNs


@pytest.mark.long
@pytest.mark.usefixtures("nt")
@pytest.mark.parametrize("kind", ["symmetric", "directed"])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("bias", gntk.BIASES)
@pytest.mark.parametrize("name", ["relu", "leaky_relu", "erf"])
def test_both_routes_give_the_same_kernels(kind, depth, bias, name):
    P, X = propagation(kind), node_features()
    activation = activations.by_name(name)
    network = gntk.Network(depth, activation, bias=bias, bias_std=0.3)
    assert_close(neural_tangents.gcn(P, X, network), ours(P, X, network), 1e-10)


@pytest.mark.long
@pytest.mark.usefixtures("nt")
@pytest.mark.parametrize(
    ("name", "bias"),
    list(zip(activations.ACTIVATIONS, itertools.cycle(gntk.BIASES), strict=False)),
)
def test_another_scale_and_every_name(name, bias):
    P, X = propagation("directed"), node_features()
    network = gntk.Network(3, activations.by_name(name), 0.3, bias=bias, bias_std=0.4)
    assert_close(neural_tangents.gcn(P, X, network), ours(P, X, network), 1e-10)


@pytest.mark.long
@pytest.mark.usefixtures("nt")
def test_single_precision_stays_single():
    P, X = (jnp.asarray(x, jnp.float32) for x in (propagation("any"), node_features()))
    network = gntk.Network(2, bias="after")
    found = neural_tangents.gcn(P, X, network)
    assert {kernel.dtype for kernel in found} == {np.dtype(np.float32)}
    assert_close(found, ours(P, X, network), 1e-5)


@pytest.mark.long
@pytest.mark.usefixtures("nt")
@pytest.mark.parametrize("bias", gntk.BIASES)
def test_the_finite_network_is_the_one_described(bias):
    P, X, width, beta = propagation("directed"), node_features(), 5, 0.3
    network = gntk.Network(2, bias=bias, bias_std=beta)
    init_fn, apply_fn, _ = neural_tangents.stax_network(
        D, network, width=width, num_classes=2
    )
    with jax.numpy_dtype_promotion("standard"):
        _, params = init_fn(jax.random.key(0), (1, N, D))
        found = apply_fn(params, X[None], pattern=P.T[None])[0]
    (W_1, b_1), (W_2, b_2) = (layer for layer in params if layer)
    b_1, b_2 = (0.0 if bias == "none" else beta * b[0] for b in (b_1, b_2))
    c_W_2 = np.sqrt(2 / width) * W_2
    if bias == "before":
        expected = P @ (np.maximum(P @ (X @ W_1 + b_1), 0) @ c_W_2 + b_2)
    else:
        expected = P @ np.maximum(P @ X @ W_1 + b_1, 0) @ c_W_2 + b_2
    assert_close([found], [expected], 1e-13)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:size requires ndarray:DeprecationWarning")
@pytest.mark.parametrize("implementation", [1, 2])
def test_empirical_kernels_are_jacobian_products(nt, implementation):
    P, X, num_classes = propagation("directed"), node_features(), 2
    init_fn, apply_fn, _ = neural_tangents.stax_network(
        D, gntk.Network(2), width=3, num_classes=num_classes
    )
    kernel_fn = nt.empirical_ntk_fn(
        apply_fn, trace_axes=(), vmap_axes=None, implementation=implementation
    )
    pattern = P.T[None]
    with jax.numpy_dtype_promotion("standard"):
        _, params = init_fn(jax.random.key(0), (1, N, D))
        found = kernel_fn(X[None], None, params, pattern=(pattern, pattern))
        jacobian = jax.jacobian(apply_fn)(params, X[None], pattern=pattern)
    size = N * num_classes
    matrix = found[0, 0].transpose(0, 2, 1, 3).reshape(size, size)
    J = np.concatenate(
        [leaf.reshape(size, -1) for leaf in jax.tree.leaves(jacobian)], axis=1
    )
    assert_close([matrix], [J @ J.T], 1e-13)


@pytest.mark.usefixtures("nt")
@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"network": gntk.Network(1, trained=[False])}, "trained must be True for"),
        (
            {"network": gntk.Network(2, activations.leaky_relu(0.3))},
            "activation must be one of",
        ),
        ({"num_features": 0}, "num_features must be at least 1"),
    ],
)
def test_networks_that_stax_lacks_are_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        neural_tangents.stax_network(
            **{"num_features": D, "network": gntk.Network(2)} | settings
        )


# Activations


@pytest.mark.long
@pytest.mark.parametrize(
    ("layer", "arguments", "expected"),
    [
        ("Relu", (), activations.RELU),
        ("LeakyRelu", (0.2,), activations.leaky_relu(0.2)),
        ("Erf", (), activations.ERF),
        ("Identity", (), activations.IDENTITY),
    ],
)
def test_activations_that_both_have_agree(nt, layer, arguments, expected):
    found = neural_tangents.activation(getattr(nt.stax, layer)(*arguments))
    kernels = gntk.dense(gntk.initialize(gntk.gram(node_features())))
    assert_close(
        gntk.transform(kernels, found), gntk.transform(kernels, expected), 1e-12
    )
    np.testing.assert_allclose(found.scale, expected.scale, rtol=1e-14)


@pytest.mark.long
@pytest.mark.parametrize("layer", ["Gelu", "Sin", "Rbf"])
def test_others_make_the_network_that_neural_tangents_makes(nt, layer):
    P, X = propagation("directed"), node_features()
    nonlinearity = getattr(nt.stax, layer)()
    found = neural_tangents.activation(nonlinearity)
    network = gntk.Network(3, found, bias="after")
    expected = neural_tangents.gcn(P, X, network)
    assert found.stax_layer is nonlinearity
    assert_close(ours(P, X, network), expected, 1e-12)


@pytest.mark.long
def test_gelu_is_what_quadrature_says_under_jit_and_for_any_shape(nt):
    found = neural_tangents.activation(nt.stax.Gelu())

    def gelu(z):
        return z * scipy.special.ndtr(z)

    def slope(z):
        return scipy.special.ndtr(z) + z * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)

    c, a, b = np.array([-0.3, 0.0, 0.6]), 1.3, np.array([0.7, 0.2, 0.9])
    arguments = jnp.asarray(c), jnp.asarray(a), jnp.asarray(b)
    for compute, f in ((found.covariance, gelu), (found.derivative, slope)):
        expected = [expectation(f, *each) for each in zip(c, [a] * 3, b, strict=True)]
        np.testing.assert_allclose(jax.jit(compute)(*arguments), expected, rtol=1e-12)
    squared = expectation(gelu, 1.0, 1.0, 1.0)
    np.testing.assert_allclose(found.scale * squared, 1, rtol=1e-12)


# Training


@pytest.mark.long
def test_gradient_flow_is_the_exact_trajectory(nt):
    num_train, times, rate = 4, np.array([0.0, 0.5, 3.0, 40.0]), 0.7
    ntk = ours(propagation("directed"), node_features(), gntk.Network(3)).ntk
    Y = jnp.asarray(generators.targets(0, N))[:num_train]
    start = jnp.asarray(np.random.default_rng(2).normal(size=(N, Y.shape[1])))
    known, others = start[:num_train], start[num_train:]
    columns = ntk[:, :num_train]
    with jax.numpy_dtype_promotion("standard"):
        predict_fn = nt.predict.gradient_descent_mse(columns[:num_train], Y, rate)
        found = predict_fn(times, known, others, columns[num_train:])
        limit = predict_fn(None, known, others, columns[num_train:])
    factors = exact.factorize(np.asarray(columns), np.arange(num_train))
    # The loss there is the mean over entries, half of their squares.
    step_size, R = rate / Y.size, np.asarray(Y - known)
    change = exact.trajectory(factors, R, times, step_size=step_size, flow=True)
    assert_close([np.concatenate(found, axis=1)], [start + change], 1e-10)
    solved = columns[num_train:] @ np.linalg.solve(columns[:num_train], R)
    assert_close(limit, [Y, others + solved], 1e-10)


@pytest.mark.long
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_posterior_is_that_of_neural_tangents(nt, noise):
    num_train = 4
    nngp = ours(propagation("symmetric"), node_features(), gntk.Network(3)).nngp
    Y = jnp.asarray(generators.targets(0, N))[:num_train]
    train, cross, rest = (
        nngp[:num_train, :num_train],
        nngp[num_train:, :num_train],
        nngp[num_train:, num_train:],
    )
    with jax.numpy_dtype_promotion("standard"):
        predict_fn = nt.predict.gp_inference(
            train, Y, diag_reg=noise, diag_reg_absolute_scale=True
        )
        mean, covariance = predict_fn("nngp", cross, rest)
    factors = exact.factorize(np.asarray(nngp[:, :num_train]), np.arange(num_train))
    found = regression.posterior(factors, np.asarray(Y), np.diagonal(nngp), noise=noise)
    assert_close([found.mean[num_train:]], [mean], 1e-9)
    assert_close([found.variance[num_train:]], [np.diagonal(covariance)], 1e-9)


# The loan of names to jax

LOADING = """
import sys
import jax, jax.core, jax.numpy
from jax.interpreters import ad
from gnnrp.kernels.gntk import neural_tangents

assert not any(name.startswith("neural_tangents") for name in sys.modules)

def state():
    modules = (jax, jax.core, ad, jax.numpy)
    flags = dict(jax.config.values)
    names = [dict(vars(module)) for module in modules]
    values = [{k: id(v) for k, v in each.items() if type(v) is not type(sys)}
        for each in names]
    return flags, values, "jax.util" in sys.modules, list(map(len, names[1:]))

before = state()
sys.modules["frozendict"] = None
try:
    neural_tangents.load()
except ImportError as error:
    assert neural_tangents.INSTALL in str(error), error
else:
    raise AssertionError
assert state() == before
del sys.modules["frozendict"]

nt = neural_tangents.load()
assert nt is neural_tangents.load()
assert state() == before
for name in ("jax.util", "tensorflow", "tf2jax", "neural_tangents.experimental"):
    assert name not in sys.modules, name
assert not hasattr(nt, "experimental")
import neural_tangents
assert neural_tangents is nt
"""


@pytest.mark.long
@pytest.mark.usefixtures("nt")
def test_loading_leaves_jax_as_it_was_and_tensorflow_alone():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "error", "-c", LOADING]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_without_neural_tangents_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "neural_tangents", None)
    neural_tangents.load.cache_clear()
    line = r"not installed: pip install --no-deps neural-tangents==0\.6\.5 frozendict$"
    with pytest.raises(ImportError, match=line):
        neural_tangents.load()
