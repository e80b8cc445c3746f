"""Each closed form is the general recursion in disguise."""

import json
from pathlib import Path

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from gnnrp import metrics, sparse
from gnnrp.kernels import gntk
from gnnrp.kernels.gntk import closed_forms
from gnnrp.propagation import similarity
from gnnrp.types import Split

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "closed_forms.json").read_text()
)
N = generators.N
seeds = pytest.mark.parametrize("seed", range(3))


def prepared(matrix):
    return sparse.prepare(scipy.sparse.csr_array(np.array(matrix)))


def dense_of(matrix):
    return np.asarray(jax.jit(sparse.matmul)(matrix, jnp.eye(N)))


def assert_golden(found, expected):
    expected = np.asarray(expected, float)
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=1e-12 * np.abs(expected).max()
    )


@pytest.mark.long
def test_two_layers_with_one_hot_inputs_equal_forty_digits():
    A = prepared(GOLDEN["A"])
    found = jax.jit(closed_forms.two_layer)(A, jnp.eye(5))
    assert_golden(found, GOLDEN["two_layer_identity"])


def test_two_layers_with_spectral_inputs_equal_forty_digits():
    A = np.array(GOLDEN["A_psd (= (A+I)/2)"])
    inputs = jnp.asarray(closed_forms.spectral_gram(A))
    np.testing.assert_allclose(inputs, A, atol=1e-14)  # PSD: nothing is clipped
    found = jax.jit(closed_forms.two_layer)(prepared(A), inputs)
    assert_golden(found, GOLDEN["two_layer_spectral"])


@pytest.mark.parametrize("case", GOLDEN["decoupled_constants"])
def test_constants_equal_forty_digits(case):
    found = closed_forms.constants(case["L"])
    assert found.diagonal == pytest.approx(case["c_prime"], rel=1e-12)
    assert found.shared == pytest.approx(case["c"], rel=1e-12)


@pytest.mark.long
def test_decoupled_and_linear_kernels_equal_forty_digits():
    A, eye = prepared(GOLDEN["A"]), jnp.eye(5)
    example = GOLDEN["decoupled_example"]
    S = closed_forms.decoupled(
        A, 5, num_hops=example["ell"], depth=example["mlp_depth_L"]
    )
    assert_golden(jax.jit(lambda S, v: S(v))(S, eye), example["theta"])
    case = GOLDEN["linear_gnn_identity"]
    assert_golden(closed_forms.linear(A, eye, num_hops=case["ell"]), case["theta"])
    case = GOLDEN["linear_gnn_spectral (A_psd)"]
    A_psd = np.array(GOLDEN["A_psd (= (A+I)/2)"])
    found = closed_forms.linear(
        prepared(A_psd),
        jnp.asarray(closed_forms.spectral_gram(A_psd)),
        num_hops=case["ell"],
    )
    assert_golden(found, case["theta"])


@seeds
@pytest.mark.parametrize("spectral", [True, False])
def test_two_layers_are_the_recursion_with_the_first_layer_trained(seed, spectral):
    A = generators.adjacency(seed)
    inputs = closed_forms.spectral_gram(dense_of(A)) if spectral else np.eye(N)
    inputs = jnp.asarray(inputs)
    for scale in (1.0, 2.0):
        general = gntk.gcn(
            A, inputs, gntk.Network(2, scale=scale, trained=[True, False])
        )
        found = closed_forms.two_layer(A, inputs, scale=scale)
        np.testing.assert_allclose(found, general.ntk, atol=1e-14)


@pytest.mark.long
@seeds
@pytest.mark.parametrize("depth", [1, 2, 3, 6])
@pytest.mark.parametrize("num_hops", [0, 1, 2])
def test_decoupled_networks_are_the_recursion(seed, depth, num_hops):
    A = generators.adjacency(seed)
    general = gntk.decoupled(A, jnp.eye(N), gntk.Network(depth), num_hops=num_hops)
    S = closed_forms.decoupled(A, N, num_hops=num_hops, depth=depth)
    np.testing.assert_allclose(S(jnp.eye(N)), general.ntk, atol=1e-13)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_the_scale_changes_the_first_constant_alone(scale):
    A = generators.adjacency(0)
    general = gntk.decoupled(A, jnp.eye(N), gntk.Network(3, scale=scale), num_hops=1)
    S = closed_forms.decoupled(A, N, num_hops=1, depth=3)
    found, usual = closed_forms.constants(3, scale=scale), closed_forms.constants(3)
    assert found.shared == usual.shared
    ratio = found.diagonal / usual.diagonal
    np.testing.assert_allclose(ratio * S(jnp.eye(N)), general.ntk, atol=1e-13)


def test_the_shared_part_is_largest_at_depth_twelve_and_tends_to_a_third():
    shared = [closed_forms.constants(depth).shared for depth in range(1, 40)]
    assert shared[0] == 0
    assert np.argmax(shared) + 1 == 12
    assert max(shared) == pytest.approx(0.46292384, abs=1e-8)
    assert closed_forms.constants(100_000).shared == pytest.approx(1 / 3, abs=1e-3)


@seeds
@pytest.mark.parametrize("num_hops", [0, 1, 2])
def test_linear_networks_are_powers_of_the_adjacency(seed, num_hops):
    A = generators.adjacency(seed)
    found = closed_forms.linear(A, jnp.eye(N), num_hops=num_hops)
    general = gntk.decoupled(A, jnp.eye(N), gntk.Network(1), num_hops=num_hops).ntk
    power = similarity.Power(A, 2 * num_hops)(jnp.eye(N))
    np.testing.assert_allclose(found, power, atol=1e-14)
    np.testing.assert_allclose(found, general, atol=1e-14)


@seeds
def test_spectral_inputs_give_an_odd_power_only_if_the_adjacency_is_psd(seed):
    A = dense_of(generators.adjacency(seed))
    assert np.linalg.eigvalsh(A).min() < -1e-3
    lazy = (A + np.eye(N)) / 2
    for matrix, is_power in ((A, False), (lazy, True)):
        inputs = jnp.asarray(closed_forms.spectral_gram(matrix))
        found = closed_forms.linear(prepared(matrix), inputs, num_hops=1)
        gap = np.abs(found - np.linalg.matrix_power(matrix, 3)).max()
        assert (gap < 1e-13) == is_power


@seeds
def test_spectral_inputs_are_the_nearest_psd_matrix(seed):
    A = dense_of(generators.adjacency(seed))
    nearest = closed_forms.spectral_gram(A)
    assert np.linalg.eigvalsh(nearest).min() > -1e-14
    values = np.linalg.eigvalsh(A)
    missed = np.linalg.norm(A - nearest)
    assert missed == pytest.approx(np.linalg.norm(values[values < 0]), rel=1e-12)


@pytest.mark.long
@seeds
def test_gradient_descent_on_a_linear_network_is_residual_propagation(seed):
    A, targets = generators.adjacency(seed), generators.targets(seed)
    split = generators.split(seed)
    far = np.linalg.matrix_power(dense_of(A), 2)
    weights = np.zeros((N, targets.shape[1]))
    for _ in range(20):
        left = np.where(split.train[:, None], targets - far @ weights, 0)
        weights += 0.7 * far.T @ left
    found = generators.run(
        lambda v: closed_forms.linear(A, jnp.eye(N), num_hops=2) @ v,
        targets,
        Split(split.train, np.zeros(N, bool), split.test),
        step_size=0.7,
        num_steps=20,
        metric=metrics.accuracy,
        method="iterate",
    )
    np.testing.assert_allclose(found.predictions, far @ weights, atol=1e-13)


@pytest.mark.long
def test_a_decoupled_kernel_is_a_similarity_for_runs():
    A, targets = generators.adjacency(0), generators.targets(0)
    S = closed_forms.decoupled(A, N, num_hops=1, depth=3)
    settings = {"step_size": 0.3, "num_steps": 40, "metric": metrics.accuracy}
    found = generators.run(S, targets, generators.split(0), **settings)
    dense = similarity.Dense(S(jnp.eye(N)))
    expected = generators.run(dense, targets, generators.split(0), **settings)
    assert found.report.solver == "exact"
    np.testing.assert_allclose(found.predictions, expected.predictions, atol=1e-12)


@pytest.mark.long
def test_matrices_and_settings_that_do_not_serve_are_refused():
    with pytest.raises(ValueError, match="symmetric"):
        closed_forms.spectral_gram(np.triu(np.ones((3, 3))))
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        closed_forms.constants(0)
    with pytest.raises(ValueError, match="scale must be positive"):
        closed_forms.constants(2, scale=0.0)
    with pytest.raises(ValueError, match="num_hops must be at least 0, got -1"):
        closed_forms.decoupled(generators.adjacency(0), N, num_hops=-1, depth=1)
    with pytest.raises(ValueError, match="num_hops must be at least 0, got -1"):
        closed_forms.linear(generators.adjacency(0), jnp.eye(N), num_hops=-1)
