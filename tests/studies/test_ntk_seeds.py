"""Many seeds in one scan: the networks, their kernels, and A 1."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gnnrp import graph
from gnnrp.datasets import sbm
from gnnrp.kernels import alignment
from gnnrp.kernels.ntk import empirical
from gnnrp.models import gnn, objectives
from gnnrp.studies import _seed_measures, ntk_seeds
from gnnrp.studies import ntk as ntk_study

SETTINGS = ntk_study.NTKSettings(
    learning_rate=0.05, num_steps=30, every=20, num_graphs=2, features="normalized"
)


def member(share):
    return sbm.generate(
        num_blocks=3, block_size=20, intra_probability=0.15, inter_probability=0.05,
        homophilic_fraction=share, num_val=10, num_test=10, train_per_class=5,
        num_features=90,
    )  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return member(1.0)


@pytest.fixture(scope="module")
def tracks(data):
    return ntk_seeds.run(data, SETTINGS, 2)


@pytest.mark.parametrize("family", [None, member])
def test_each_seed_is_the_network_of_a_single_run(data, family, tracks):
    if family is not None:
        tracks = ntk_seeds.run(data, SETTINGS, 2, family=family)
    assert tracks.steps == [0, 20, 30]
    for seed in (0, 1):
        settings = dataclasses.replace(SETTINGS, seed=seed)
        alone = ntk_study.run(data, settings, family=family)
        assert tracks.graphs == alone["graphs"]
        assert tracks.target_labels == alone["target_labels"]
        for name in ("kernel_graph", "kernel_labels", "test"):
            values = [[one[name] for one in row["graphs"]] for row in alone["rows"]]
            np.testing.assert_allclose(tracks.values[name][seed], values, atol=2e-6)


def test_synthetic_kernels_are_also_compared_with_the_first_graph(data):
    values = ntk_seeds.run(data, SETTINGS, 1, family=member).values
    one, first = values["kernel_graph"][0], values["kernel_first"][0]
    np.testing.assert_allclose(one[:, 0], first[:, 0], rtol=1e-12)
    assert np.abs(one[:, 1] - first[:, 1]).min() > 0.01


def trained(data, num_steps, *, first_bias, A):
    """Return W and b of seed 0 by plain gradient descent on all nodes."""
    x = ntk_study.inputs(data, row_normalize=True)
    y = jax.nn.one_hot(data.labels, 3, dtype=float)
    mask = jnp.asarray(data.splits.train[0])
    network = gnn.GCN(3, 16, 2)
    params = network.init(jax.random.split(jax.random.key(0))[0], x)["params"]
    if not first_bias:
        del params["layers_0"]["bias"]
    optimizer = objectives.sgd(0.05, momentum=0.9, weight_decay=5e-4)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state):
        def loss(params):
            return objectives.cross_entropy(outputs(params, x, A), y, mask)

        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(num_steps):
        params, state = step(params, state)
    return params, x


def outputs(params, x, A):
    first, last = params["layers_0"], params["layers_1"]
    z = A @ (x @ first["weights"]) + first.get("bias", 0.0)
    return A @ (jax.nn.relu(z) @ last["weights"]) + last["bias"]


@pytest.mark.parametrize(
    ("first_bias", "normalization"), [(False, "symmetric"), (True, "row")]
)
def test_variants_are_plain_gradient_descent(data, first_bias, normalization):
    W = graph.raw_adjacency(data.edges, data.num_nodes)
    A = jnp.asarray(graph.normalize(W, normalization=normalization).toarray())
    plain = graph.normalize(W).toarray()
    params, x = trained(data, 30, first_bias=first_bias, A=A)
    theta = empirical.ntk(lambda p, x: outputs(p, x, A), params, x, reduce="sum")
    found = ntk_seeds.run(
        data, SETTINGS, 1, first_bias=first_bias, normalization=normalization
    )
    target = np.linalg.matrix_power(plain, 4)
    ideal = alignment.label_kernel(data.labels, 3)
    for name, other in (("kernel_graph", target), ("kernel_labels", ideal)):
        expected = alignment.alignment(theta, other, centered=True)
        assert found.values[name][0, -1, 0] == pytest.approx(float(expected), rel=1e-6)
    bias = jnp.abs(params["layers_0"].get("bias", jnp.zeros(1))).max()
    assert found.largest_bias[0, -1] == pytest.approx(float(bias), rel=1e-6)


def test_a_row_stochastic_matrix_has_no_direction_a_1(data):
    values = ntk_seeds.run(data, SETTINGS, 1, normalization="row").values
    np.testing.assert_array_equal(values["share"], 0)
    np.testing.assert_allclose(values["rest_graph"], values["kernel_graph"], rtol=1e-9)
    np.testing.assert_allclose(
        values["rest_labels"], values["kernel_labels"], rtol=1e-9
    )


def test_what_remains_without_a_1_is_that_of_projected_kernels(data, tracks):
    A = graph.normalized_adjacency(data.edges, data.num_nodes).todense()
    n, A = data.num_nodes, np.asarray(A)
    params, x = trained(data, 30, first_bias=True, A=jnp.asarray(A))
    theta = np.asarray(
        empirical.ntk(lambda p, x: outputs(p, x, A), params, x, reduce="sum")
    )
    H = np.eye(n) - 1 / n
    u = H @ A.sum(1)
    P = H - np.outer(u, u) / (u @ u)
    Y = np.eye(3)[data.labels]
    rest = P @ theta @ P
    expected = {
        "share": 1 - np.sum(rest**2) / np.sum((H @ theta @ H) ** 2),
        "rest_graph": cosine(rest, P @ np.linalg.matrix_power(A, 4) @ P),
        "rest_labels": cosine(rest, P @ Y @ Y.T @ P),
    }
    for name, value in expected.items():
        assert tracks.values[name][0, -1, 0] == pytest.approx(value, rel=1e-6)
    # Without edges, A 1 is constant.
    np.testing.assert_array_equal(tracks.values["share"][:, :, -1], 0)


def cosine(one, other):
    return np.sum(one * other) / np.linalg.norm(one) / np.linalg.norm(other)


def test_a_constant_hidden_unit_makes_the_kernel_one_along_a_1():
    u = jnp.asarray([0.6, -0.8, 0.2, 0.0])
    u = (u - u.mean()) / jnp.linalg.norm(u - u.mean())
    kernel = _seed_measures.center(3 * jnp.outer(u, u) + 5.0)
    whole = _seed_measures._along(kernel, u)
    assert float(whole.square) == pytest.approx(9.0)
    alone = _seed_measures._without(whole, whole, whole.square, u)
    assert float(alone) == pytest.approx(0, abs=1e-9)


def test_other_depths_and_several_tasks_are_refused(data):
    deep = dataclasses.replace(SETTINGS, depth=3)
    with pytest.raises(ValueError, match="depth must be 2 for several seeds, got 3"):
        ntk_seeds.run(data, deep, 2)
    with pytest.raises(ValueError, match="num_seeds must be at least 1, got 0"):
        ntk_seeds.run(data, SETTINGS, 0)
    several = data._replace(labels=np.zeros((60, 2)))
    with pytest.raises(ValueError, match="has several tasks a node"):
        ntk_seeds.run(several, SETTINGS, 2)
