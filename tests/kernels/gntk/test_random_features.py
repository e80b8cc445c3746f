"""Random features: unbiased, with the stated error, and those of the exact kernel."""

import functools

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gnnrp.kernels import gntk
from gnnrp.kernels.gntk import activations, random_features
from gnnrp.kernels.gntk.network import Network

N = generators.N
X = jnp.asarray(np.random.default_rng(0).normal(size=(N, 5)))
ACTIVATIONS = {
    "relu": activations.RELU,
    "leaky_relu": activations.leaky_relu(0.3),
    "erf": activations.ERF,
    "gelu": activations.GELU,
    "rbf": activations.RBF,  # neither even nor odd
}
every_activation = pytest.mark.parametrize("name", ACTIVATIONS)
every_bias = pytest.mark.parametrize("bias", gntk.BIASES)


def exact(matrix, network):
    return gntk.gcn(matrix, gntk.gram(X), network)


@functools.partial(jax.jit, static_argnames="num_features")
def sample(matrix, network, key, num_features):
    features = random_features.gcn(matrix, X, network, key, num_features=num_features)
    found = random_features.kernels(features)
    return found, random_features.standard_errors(features)


@every_bias
@every_activation
def test_kernels_of_two_layers_are_unbiased_and_their_errors_are_the_stated_ones(
    name, bias
):
    matrix = generators.adjacency(0)
    network = Network(2, ACTIVATIONS[name], bias=bias, bias_std=0.7)
    num_keys = 400
    keys = jax.random.split(jax.random.key(1), num_keys)
    found, errors = jax.lax.map(lambda key: sample(matrix, network, key, 20), keys)
    for estimate, error, truth in zip(
        found, errors, exact(matrix, network), strict=True
    ):
        spread = jnp.std(estimate, axis=0)
        # The mean over keys lies within five of its own standard errors.
        assert jnp.all(
            jnp.abs(estimate.mean(axis=0) - truth)
            <= 5 * spread / num_keys**0.5 + 1e-12 * jnp.abs(truth).max()
        )
        stated = jnp.sqrt(jnp.mean(error**2))
        assert float(stated / jnp.sqrt(jnp.mean(spread**2))) == pytest.approx(
            1, abs=0.15
        )


@pytest.mark.parametrize("trained", [(True, True), (False, True), (True, False)])
def test_layers_that_are_not_trained_do_not_count(trained):
    matrix = generators.adjacency(1)
    network = Network(2, trained=trained)
    keys = jax.random.split(jax.random.key(2), 300)
    found, _ = jax.lax.map(lambda key: sample(matrix, network, key, 20), keys)
    truth = exact(matrix, network).ntk
    spread = jnp.std(found.ntk, axis=0)
    gap = jnp.abs(found.ntk.mean(axis=0) - truth)
    assert jnp.all(gap <= 5 * spread / 300**0.5 + 1e-12)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "erf"])
@pytest.mark.parametrize("depth", [2, 3])
def test_the_error_falls_like_the_root_of_the_number_of_features(name, depth):
    matrix = generators.adjacency(2)
    network = Network(depth, ACTIVATIONS[name], bias="after", bias_std=0.5)
    truth = exact(matrix, network).ntk
    errors = []
    for num_features in (100, 1600):
        keys = jax.random.split(jax.random.key(3), 10)
        squares = [
            jnp.mean((sample(matrix, network, key, num_features)[0].ntk - truth) ** 2)
            for key in keys
        ]
        errors.append(float(jnp.sqrt(jnp.mean(jnp.stack(squares)))))
    slope = np.log(errors[1] / errors[0]) / np.log(16)
    assert slope == pytest.approx(-0.5, abs=0.15)


@every_bias
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_without_an_activation_they_are_exact(depth, bias):
    matrix = generators.adjacency(0)
    network = Network(depth, activations.IDENTITY, bias=bias, bias_std=0.4)
    features = random_features.gcn(
        matrix, X, network, jax.random.key(0), num_features=7
    )
    for found, truth in zip(
        random_features.kernels(features), exact(matrix, network), strict=True
    ):
        np.testing.assert_allclose(found, truth, rtol=1e-10, atol=1e-12)


def test_exact_parts_make_the_error_several_times_smaller():
    rng = np.random.default_rng(1)
    x = jnp.asarray(rng.normal(size=(N, 300)))  # almost orthogonal nodes
    matrix = generators.adjacency(0)
    network = Network(2)
    truth = gntk.gcn(matrix, gntk.gram(x), network).ntk
    ours, plain = [], []
    for seed in range(5):
        features = random_features.gcn(
            matrix, x, network, jax.random.key(seed), num_features=500
        )
        ours.append(random_features.kernels(features).ntk - truth)
        w, g = rng.normal(size=(2, 300, 500))
        z = np.asarray(matrix(x))
        h = z @ w
        parts = [np.maximum(h, 0), (h > 0) * (z @ g)]
        phi, psi = (np.asarray(matrix(jnp.asarray(part))) for part in parts)
        plain.append((phi @ phi.T + psi @ psi.T) * 2 / 500 - truth)
    errors = [np.sqrt(np.mean(np.square(each))) for each in (ours, plain)]
    assert 2.5 * errors[0] < errors[1]


def test_chunks_change_the_samples_but_not_the_kernel(monkeypatch):
    matrix = generators.adjacency(0)
    monkeypatch.setattr(random_features, "CHUNK", 64)
    features = random_features.gcn(
        matrix, X, Network(2), jax.random.key(0), num_features=4033
    )
    assert features.num_columns == 5 + 1 + 2 * 4033
    widths = [block.columns.shape[1] for block in features.blocks if block.sampled]
    assert set(widths) == {63, 64}  # 4033 = 64 * 63 + 1: no chunk of one column
    truth = exact(matrix, Network(2)).ntk
    error = random_features.standard_errors(features).ntk
    gap = random_features.kernels(features).ntk - truth
    assert jnp.abs(gap / error).max() < 6


def test_a_block_is_that_of_all_nodes():
    matrix = generators.adjacency(0)
    features = random_features.gcn(
        matrix, X, Network(3, bias="before"), jax.random.key(0), num_features=30
    )
    rows, columns = jnp.array([3, 1]), jnp.array([0, 5, 9])
    for fn in (random_features.kernels, random_features.standard_errors):
        whole, part = fn(features), fn(features, rows, columns)
        for all_nodes, some in zip(whole, part, strict=True):
            np.testing.assert_allclose(some, all_nodes[rows][:, columns], rtol=1e-12)


@pytest.mark.parametrize("num_hops", [0, 3])
def test_decoupled_networks_have_features_too(num_hops):
    matrix = generators.adjacency(1)
    network = Network(2, bias="after", bias_std=0.3)
    truth = gntk.decoupled(matrix, gntk.gram(X), network, num_hops=num_hops).ntk
    features = random_features.decoupled(
        matrix, X, network, jax.random.key(0), num_hops=num_hops, num_features=4000
    )
    error = random_features.standard_errors(features).ntk
    gap = random_features.kernels(features).ntk - truth
    assert jnp.abs(gap / error).max() < 6


def test_bad_input_is_refused_in_one_sentence():
    key, matrix = jax.random.key(0), generators.adjacency(0)
    with pytest.raises(ValueError, match="num_features"):
        random_features.gcn(matrix, X, Network(2), key, num_features=1)
    bare = activations.RELU._replace(pointwise=None)
    with pytest.raises(ValueError, match="pointwise parts"):
        random_features.gcn(matrix, X, Network(2, bare), key, num_features=3)
    with pytest.raises(ValueError, match="must have shape"):
        generators.unchecked(random_features.initialize, X[0])
