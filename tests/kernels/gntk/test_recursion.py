"""The GNTK recursion: digits, a slow reference, and what every kernel must obey."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from gnnrp import sparse
from gnnrp.kernels import gntk
from gnnrp.kernels.gntk import activations

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "gntk.json").read_text())
ARCCOS = json.loads((Path(__file__).parents[2] / "golden" / "arccos.json").read_text())
POSITIONS = {None: "none", "after aggregation": "after", "before aggregation": "before"}
N, D = 12, 4
BOUNDED = sorted(activations.ACTIVATIONS.keys() - {"exp"})  # no overflow
compiled = jax.jit(gntk.gcn)


def name_of(case):
    return "-".join(
        str(case[key]) for key in ("propagation", "L", "bias_position", "trained")
    )


def assert_golden(found, expected):
    expected = np.asarray(expected, float)
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=1e-12 * np.abs(expected).max()
    )


@pytest.mark.long
@pytest.mark.parametrize("case", GOLDEN["cases"], ids=name_of)
def test_kernels_equal_forty_digits(case):
    P = sparse.prepare(scipy.sparse.csr_array(np.array(GOLDEN[case["propagation"]])))
    X = np.array(GOLDEN["X"])
    trained = () if case["trained"] == "all" else tuple(case["trained"])
    found = compiled(
        P,
        jnp.asarray(X @ X.T),
        gntk.Network(
            case["L"],
            bias=POSITIONS[case["bias_position"]],
            bias_std=np.sqrt(case["bias_var"]),
            trained=trained,
        ),
    )
    assert_golden(found.ntk, case["ntk"])
    if "nngp" in case:  # it does not depend on what is trained
        assert_golden(found.nngp, case["nngp"])


@pytest.mark.long
@pytest.mark.parametrize("case", ARCCOS["cases"])
def test_relu_expectations_equal_forty_digits(case):
    sides = [jnp.asarray(float(case[key])) for key in ("cov", "var_a", "var_b")]
    assert_golden(activations.RELU.covariance(*sides), case["T"])
    if case["T_dot"] is None:  # without variance; the product with N is zero
        return
    # Near ρ = 1 an ulp of ρ is worth more than twelve digits of arccos.
    near_one = 0 < 1 - float(case["corr"]) < 1e-3
    found = activations.RELU.derivative(*sides)
    np.testing.assert_allclose(found, case["T_dot"], atol=3e-12 if near_one else 1e-14)


@functools.cache
def world(seed=0, symmetric=True):
    rng = np.random.default_rng(seed)
    P = np.where(rng.random((N, N)) < 0.3, rng.random((N, N)), 0) + np.eye(N) / 2
    P = (P + P.T) / 2 if symmetric else P
    X = rng.standard_normal((N, D))
    X[3] = X[2]  # equal inputs
    return sparse.prepare(scipy.sparse.csr_array(P)), P, X


def gram(X):
    return jnp.asarray(X @ X.T)


def slow(P, X, depth, *, bias="none", beta=0.0, trained=None, c=2.0):
    """The recursion of App. B.3 entry by entry, with arccos of the correlation."""
    trained = trained or [True] * depth
    ones = np.ones((N, N))
    shift = {"none": 0 * ones, "after": beta**2 * ones}.get(bias)
    if shift is None:
        shift = beta**2 * P @ ones @ P.T
    K = P @ X @ X.T @ P.T + shift
    ntk = trained[0] * K
    for layer in range(1, depth):
        S, slope = np.zeros((N, N)), np.zeros((N, N))
        for i in range(N):
            for j in range(N):
                size = np.sqrt(K[i, i] * K[j, j])
                angle = np.arccos(np.clip(K[i, j] / size, -1, 1)) if i != j else 0
                part = np.sin(angle) + (np.pi - angle) * np.cos(angle)
                S[i, j] = c * size * part / (2 * np.pi)
                slope[i, j] = c * (np.pi - angle) / (2 * np.pi)
        tau = trained[layer]
        ntk = P @ (slope * ntk + tau * S) @ P.T + tau * shift
        K = P @ S @ P.T + shift
    return K, ntk


@pytest.mark.long
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bias", gntk.BIASES)
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_recursion_equals_loops_over_pairs(symmetric, bias, depth):
    matrix, P, X = world(1, symmetric)
    trained = (True, False, True, True)[:depth]
    found = compiled(
        matrix, gram(X), gntk.Network(depth, bias=bias, bias_std=0.7, trained=trained)
    )
    expected = slow(P, X, depth, bias=bias, beta=0.7, trained=trained)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-7 * abs(other).max())


@pytest.mark.long
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_training_all_layers_is_the_sum_of_training_each(depth):
    matrix, _, X = world(2)
    whole = compiled(matrix, gram(X), gntk.Network(depth, bias="after"))
    parts = [
        compiled(
            matrix,
            gram(X),
            gntk.Network(
                depth, bias="after", trained=tuple(i == layer for i in range(depth))
            ),
        ).ntk
        for layer in range(depth)
    ]
    np.testing.assert_allclose(sum(parts), whole.ntk, rtol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize("name", BOUNDED)
def test_both_kernels_are_symmetric_and_psd(name):
    matrix, _, X = world(3, symmetric=False)
    found = compiled(
        matrix,
        gram(X),
        gntk.Network(3, activation=activations.by_name(name), bias="after"),
    )
    for kernel in found:
        np.testing.assert_allclose(kernel, kernel.T, rtol=1e-12)
        assert np.linalg.eigvalsh(kernel).min() > -1e-10 * np.abs(kernel).max()


@pytest.mark.long
def test_nodes_may_come_in_any_order():
    _, P, X = world(4)
    order = np.random.default_rng(0).permutation(N)
    mixed = sparse.prepare(scipy.sparse.csr_array(P[order][:, order]))
    found = compiled(mixed, gram(X[order]), gntk.Network(3)).ntk
    expected = compiled(world(4)[0], gram(X), gntk.Network(3)).ntk[order][:, order]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.long
def test_relu_kernels_scale_with_the_square_of_the_features():
    matrix, _, X = world(5)
    large = compiled(matrix, gram(10 * X), gntk.Network(3))
    for found, expected in zip(
        large, compiled(matrix, gram(X), gntk.Network(3)), strict=True
    ):
        np.testing.assert_allclose(found, 100 * expected, rtol=1e-11)


@pytest.mark.long
def test_gradients_are_finite_with_equal_inputs_and_nodes_without_any():
    matrix, _, X = world(6)
    X = X.copy()
    X[5:] = 0

    def total(X):
        return jnp.sum(gntk.gcn(matrix, gntk.gram(X), gntk.Network(3)).ntk)

    gradient = jax.jit(jax.grad(total))(jnp.asarray(X))
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).max() > 0


@pytest.mark.long
def test_nodes_without_variance_have_no_kernel():
    lonely = scipy.sparse.csr_array(np.diag([1.0] * (N - 1) + [0.0]))
    found = compiled(sparse.prepare(lonely), gram(world(7)[2]), gntk.Network(3))
    for kernel in found:
        np.testing.assert_array_equal(kernel[-1], 0)
        assert np.isfinite(kernel).all()


@pytest.mark.long
def test_the_diagonal_keeps_its_digits_through_many_layers():
    identity = sparse.prepare(scipy.sparse.eye_array(N, format="csr"))
    x = gram(world(8)[2])
    found = compiled(identity, x, gntk.Network(8))  # c_σ = 2 keeps variances, Td is 1/2
    np.testing.assert_allclose(jnp.diagonal(found.nngp), jnp.diagonal(x), rtol=1e-14)
    np.testing.assert_allclose(jnp.diagonal(found.ntk), 8 * jnp.diagonal(x), rtol=1e-14)


def test_linear_networks_sum_the_same_kernel_at_each_layer():
    matrix, P, X = world(9)
    found = compiled(matrix, gram(X), gntk.Network(3, activation=activations.IDENTITY))
    far = np.linalg.matrix_power(P, 3)
    expected = far @ X @ X.T @ far.T
    np.testing.assert_allclose(found.nngp, expected, rtol=1e-12)
    np.testing.assert_allclose(found.ntk, 3 * expected, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("num_hops", [0, 2])
def test_decoupled_networks_propagate_the_kernel_of_an_mlp(num_hops):
    matrix, P, X = world(10, symmetric=False)
    found = gntk.decoupled(
        matrix,
        gram(X),
        gntk.Network(3, bias="before", bias_std=0.3, trained=[True, False, True]),
        num_hops=num_hops,
    )
    mlp = gntk.gcn(
        lambda v: v,
        gram(X),
        gntk.Network(3, bias="after", bias_std=0.3, trained=[True, False, True]),
    )
    far = np.linalg.matrix_power(P, num_hops)
    for one, other in zip(found, mlp, strict=True):
        np.testing.assert_allclose(one, far @ other @ far.T, rtol=1e-12)


@pytest.mark.long
def test_branches_join_as_sums_and_means():
    matrix, _, X = world(11)
    kernels = [gntk.gcn(matrix, gram(X), gntk.Network(depth)) for depth in (1, 2, 3)]
    for at in range(2):
        total = sum(each[at] for each in kernels)
        np.testing.assert_allclose(gntk.add(kernels)[at], total, rtol=1e-14)
        np.testing.assert_allclose(gntk.concatenate(kernels)[at], total / 3, rtol=1e-14)


def monte_carlo(build, width, seeds, inputs):
    """Mean tangent kernel of the first output over random finite networks."""

    def kernel(key):
        parameters, apply = build(key, width)
        jacobian = jax.jacobian(lambda p: apply(p, inputs))(parameters)
        rows = jnp.concatenate([j.reshape(N, -1) for j in jax.tree.leaves(jacobian)], 1)
        return rows @ rows.T

    keys = jax.random.split(jax.random.key(0), seeds)
    return np.mean([jax.jit(kernel)(key) for key in keys], axis=0)


def residual_network(P):
    def build(key, width):
        keys = jax.random.split(key, 3)
        sizes = [(D, width), (width, width), (width, 1)]
        parameters = [jax.random.normal(k, s) for k, s in zip(keys, sizes, strict=True)]

        def apply(parameters, x):
            first, inner, last = parameters
            z = P @ x @ first
            moved = jnp.sqrt(2 / width) * P @ jax.nn.relu(z) @ inner
            return (jnp.sqrt(2 / width) * jax.nn.relu(z + moved) @ last)[:, 0]

        return parameters, apply

    return build


def jumping_network(P):
    def build(key, width):
        keys = jax.random.split(key, 3)
        sizes = [(D, width), (width, width), (2 * width, 1)]
        parameters = [jax.random.normal(k, s) for k, s in zip(keys, sizes, strict=True)]

        def apply(parameters, x):
            first, inner, last = parameters
            near = jnp.sqrt(2.0) * jax.nn.relu(P @ x @ first)
            far = jnp.sqrt(2.0) * jax.nn.relu(P @ near @ inner / jnp.sqrt(width))
            joined = jnp.concatenate([near, far], axis=1)
            return (joined @ last / jnp.sqrt(2 * width))[:, 0]

        return parameters, apply

    return build


@pytest.mark.long
def test_residual_connections_add_as_in_wide_networks():
    matrix, P, X = world(12)
    first = gntk.dense(gntk.propagate(gntk.initialize(gram(X)), matrix))
    moved = gntk.dense(gntk.propagate(gntk.transform(first), matrix))
    expected = gntk.dense(gntk.transform(gntk.add([first, moved]))).ntk
    found = monte_carlo(residual_network(jnp.asarray(P)), 256, 30, jnp.asarray(X))
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error < 0.06


@pytest.mark.long
def test_jumping_knowledge_concatenates_as_in_wide_networks():
    matrix, P, X = world(13)
    first = gntk.dense(gntk.propagate(gntk.initialize(gram(X)), matrix))
    near = gntk.transform(first)
    far = gntk.transform(gntk.dense(gntk.propagate(near, matrix)))
    expected = gntk.dense(gntk.concatenate([near, far])).ntk
    found = monte_carlo(jumping_network(jnp.asarray(P)), 256, 30, jnp.asarray(X))
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error < 0.06


def test_gram_takes_sparse_and_dense_features():
    X = world(14)[2]
    from_rows = gntk.gram(scipy.sparse.csr_array(X))
    np.testing.assert_allclose(from_rows, X @ X.T, rtol=1e-14)
    np.testing.assert_allclose(gntk.gram(X), X @ X.T, rtol=1e-14)
    with pytest.raises(ValueError, match=r"shape \(n, d\), got \(12,\)"):
        gntk.gram(X[:, 0])


def test_settings_and_graphs_share_one_trace():
    traces = []

    @jax.jit
    def kernel(matrix, x, beta):
        traces.append(1)
        return gntk.gcn(matrix, x, gntk.Network(2, bias="after", bias_std=beta))

    for seed, beta in ((0, 0.1), (0, 0.2)):
        matrix, _, X = world(seed)
        kernel(matrix, gram(X), jnp.asarray(beta))
    assert len(traces) == 1


@pytest.mark.long
def test_networks_that_differ_in_numbers_share_one_trace():
    traces = []

    @jax.jit
    def kernel(matrix, x, network):
        traces.append(network.depth)
        return gntk.gcn(matrix, x, network)

    matrix, _, X = world(0)
    for beta in (0.1, 0.2):
        network = gntk.Network(2, scale=1 + beta, bias="after", bias_std=beta)
        found = kernel(matrix, gram(X), network)
        for one, other in zip(found, gntk.gcn(matrix, gram(X), network), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    assert traces == [2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": 0}, "depth must be at least 1, got 0"),
        ({"depth": 2, "bias": "later"}, "bias must be one of"),
        ({"depth": 2, "trained": [True]}, "one flag for each of 2 layers, got 1"),
    ],
)
def test_settings_that_make_no_network_are_refused(settings, message):
    matrix, _, X = world(0)
    with pytest.raises(ValueError, match=message):
        gntk.gcn(matrix, gram(X), gntk.Network(**settings))


def test_a_block_without_its_variances_is_refused():
    G = gram(world()[2])
    with pytest.raises(ValueError, match=r"a block of shape \(1, 12\) needs"):
        gntk.transform(gntk.initialize(G[:1]))


@pytest.mark.long
def test_hops_and_branches_that_make_no_network_are_refused():
    matrix, _, X = world(0)
    with pytest.raises(ValueError, match="num_hops must be at least 0, got -1"):
        gntk.decoupled(matrix, gram(X), gntk.Network(1), num_hops=-1)
    with pytest.raises(ValueError, match="at least one branch"):
        gntk.add([])


@pytest.mark.long
def test_the_gram_matrix_of_no_rows_is_empty():
    assert gntk.gram(np.zeros((0, 3))).shape == (0, 0)
