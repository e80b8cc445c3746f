"""Kernels of features, held against loops over pairs and the dense matrix."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from gnnrp.kernels import features

N, D, GAMMA = 11, 3, 0.4
GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "generalized_rp.json").read_text()
)
PAIRS = {
    "linear": lambda x, y: x @ y,
    "gaussian": lambda x, y: np.exp(-GAMMA * np.sum((x - y) ** 2)),
    "laplacian": lambda x, y: np.exp(-GAMMA * np.sum(np.abs(x - y))),
    "polynomial": lambda x, y: (GAMMA * (x @ y) + 1) ** 3,
    "sigmoid": lambda x, y: np.tanh(GAMMA * (x @ y)),
}
kernels = pytest.mark.parametrize("kernel", PAIRS)
blocks = pytest.mark.parametrize("block_size", [1, 4, N])


def positive_features(seed=0, n=N):
    """All kernels have positive row sums on features without negative entries."""
    return np.random.default_rng(seed).random((n, D))


def block_bytes(rows, n=N, itemsize=8):
    return rows * n * itemsize


def slow(kernel, x, *, normalized):
    gram = np.array([[PAIRS[kernel](a, b) for b in x] for a in x])
    if not normalized:
        return gram
    scale = 1 / np.sqrt(gram.sum(axis=1))
    return scale[:, None] * gram * scale


def spectrum(x, kernel, normalized):
    built = features.build(x, kernel, gamma=GAMMA, normalized=normalized)
    return np.linalg.eigvalsh(np.asarray(features.matrix(built)))


def test_every_kernel_by_name_has_a_reference_here():
    assert set(PAIRS) == set(features.KERNELS)


@pytest.mark.long
@kernels
@pytest.mark.parametrize(
    ("block_size", "normalized"), [(1, True), (4, True), (N, True), (4, False)]
)
def test_products_and_matrix_equal_loops_over_pairs(kernel, block_size, normalized):
    x = positive_features()
    built = features.build(
        x,
        kernel,
        gamma=GAMMA,
        normalized=normalized,
        block_bytes=block_bytes(block_size),
    )
    assert built.block_size == block_size
    expected = slow(kernel, x, normalized=normalized)
    np.testing.assert_allclose(features.matrix(built), expected, rtol=1e-12)
    np.testing.assert_allclose(
        jax.jit(lambda kernel, v: kernel(v))(built, jnp.eye(N)), expected, rtol=1e-12
    )


@pytest.mark.long
def test_gaussian_kernels_equal_the_golden_ones():
    x = np.array(GOLDEN["X"])
    for normalized, name in ((False, "K_gauss"), (True, "K_sym_normalised")):
        built = features.build(x, gamma=GOLDEN["gamma"], normalized=normalized)
        np.testing.assert_allclose(features.matrix(built), GOLDEN[name], rtol=1e-12)
        np.testing.assert_allclose(
            built(jnp.eye(len(x))), GOLDEN[name], rtol=1e-12, atol=0
        )


def test_gamma_is_one_over_twice_the_squared_bandwidth():
    found = features.gamma_from_bandwidth(GOLDEN["sigma"])
    assert found == pytest.approx(GOLDEN["gamma"], rel=1e-15)
    assert features.gamma_from_bandwidth(0.5) == 2


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, np.inf, np.nan])
def test_a_bandwidth_that_is_not_positive_is_refused(bandwidth):
    with pytest.raises(ValueError, match="bandwidth must be positive"):
        features.gamma_from_bandwidth(bandwidth)


@pytest.mark.long
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_gaussian_and_laplacian_kernels_are_psd(kernel, normalized, seed):
    x = np.random.default_rng(seed).normal(size=(N, D))
    x[-1] = x[0]  # equal rows make it singular
    found = spectrum(x, kernel, normalized)
    assert found[0] > -1e-13
    assert found[0] < 1e-13


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear", "polynomial"])
def test_normalization_brings_the_largest_eigenvalue_to_one(kernel):
    assert spectrum(positive_features(), kernel, True)[-1] == pytest.approx(1)
    assert spectrum(positive_features(), kernel, False)[-1] > 1.1


def test_normalization_counts_all_rows_whatever_the_blocks():
    x = positive_features()
    whole = features.build(x, gamma=GAMMA)
    parts = features.build(x, gamma=GAMMA, block_bytes=block_bytes(4))
    np.testing.assert_allclose(parts.scale, whole.scale, rtol=1e-14)


@blocks
def test_a_kernel_may_be_a_function(block_size):
    def triangle(x, y, gamma):
        return jnp.maximum(1 - gamma * jnp.abs(x[:, None] - y).sum(-1), 0)

    x = positive_features()
    built = features.build(
        x, triangle, gamma=0.7, normalized=False, block_bytes=block_bytes(block_size)
    )
    expected = np.maximum(1 - 0.7 * np.abs(x[:, None] - x).sum(-1), 0)
    np.testing.assert_allclose(features.matrix(built), expected, rtol=1e-12)
    np.testing.assert_allclose(built(jnp.eye(N)), expected, rtol=1e-12)


@pytest.mark.parametrize("normalized", [True, False])
def test_blocks_bring_in_no_row_that_the_features_lack(normalized):
    def cosine(x, y, _):
        x, y = (z / jnp.linalg.norm(z, axis=1, keepdims=True) for z in (x, y))
        return x @ y.T

    x = positive_features()
    built = features.build(x, cosine, normalized=normalized, block_bytes=block_bytes(4))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    expected = slow("linear", unit, normalized=normalized)
    np.testing.assert_allclose(built(jnp.eye(N)), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "convert",
    [
        scipy.sparse.csr_array,
        scipy.sparse.coo_array,
        scipy.sparse.csr_matrix,
        jnp.asarray,
    ],
)
def test_sparse_and_device_features_equal_dense_ones(convert):
    x = np.where(positive_features() < 0.5, 0, positive_features())
    expected = features.matrix(features.build(x))
    np.testing.assert_array_equal(features.matrix(features.build(convert(x))), expected)


@pytest.mark.parametrize("dtype", [bool, np.int64, np.uint8])
def test_features_that_are_no_floats_become_float32(dtype):
    x = np.array([[0, 1], [1, 1], [0, 0]], dtype)
    built = features.build(x)
    assert built.features.dtype == np.float32
    np.testing.assert_array_equal(built.features, x.astype(np.float32))


@pytest.mark.long
def test_float32_features_keep_their_precision_beside_a_float64_gamma():
    x = positive_features().astype(np.float32)
    built = features.build(x, gamma=jnp.asarray(GAMMA))
    product = built(jnp.eye(N, dtype=jnp.float32))
    assert product.dtype == np.float32
    expected = slow("gaussian", x.astype(np.float64), normalized=True)
    np.testing.assert_allclose(product, expected, rtol=1e-5)


@pytest.mark.long
def test_equal_rows_are_at_distance_zero_in_float32():
    x = np.full((6, 40), 1e3 + 0.1, np.float32)
    gram = features.matrix(features.build(x, gamma=1.0, normalized=False))
    np.testing.assert_array_equal(gram, 1)


def test_row_normalization_shifts_by_the_minimum_and_never_scales_up():
    x = np.array([[2.0, 4.0, 2.0], [1.0, 1.0, 1.5], [1.0, 1.0, 1.0]])
    expected = [[0.2, 0.6, 0.2], [0, 0, 0.5], [0, 0, 0]]
    np.testing.assert_allclose(features.normalize_rows(x), expected, rtol=1e-15)
    assert x[0, 0] == 2.0  # untouched
    np.testing.assert_array_equal(
        features.as_dense(features.normalize_rows(scipy.sparse.csr_array(x))),
        features.normalize_rows(x),
    )


def test_given_rows_set_the_minimum_of_a_row_normalization():
    x = np.array([[2.0, 4.0, 2.0], [1.0, 1.0, 1.5], [0.0, 3.0, 1.0]])
    expected = [[0.2, 0.6, 0.2], [0, 0, 0.5], [-1, 2, 0]]
    for given in (x, scipy.sparse.csr_array(x)):
        found = features.normalize_rows(given, reference=np.array([0, 1]))
        np.testing.assert_allclose(features.as_dense(found), expected, rtol=1e-15)


def test_row_normalization_keeps_nonnegative_sparse_features_sparse():
    x = scipy.sparse.csr_array([[0.0, 3.0, 1.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.0]])
    found = features.normalize_rows(x)
    assert scipy.sparse.issparse(found)
    np.testing.assert_array_equal(
        features.as_dense(found), features.normalize_rows(x.toarray())
    )


def thin_features(n=150, d=90, seed=0):
    """Two entries a row of 90, one row without any, and two rows that are equal."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n, d))
    x[np.arange(n)[:, None], rng.integers(0, d, (n, 2))] = rng.random((n, 2)) + 0.1
    x[5] = 0
    x[7] = x[6]
    return x


@pytest.mark.long
@pytest.mark.parametrize("kernel", features.KERNELS)
@pytest.mark.parametrize("convert", [np.asarray, scipy.sparse.csc_array])
def test_thin_features_give_the_kernel_of_dense_ones(kernel, convert):
    x = thin_features()
    plain = {"gamma": 0.7, "normalized": False}
    built = features.build(convert(x), kernel, **plain)
    # A function that has no name here is evaluated on dense rows.
    gram_fn = features.KERNELS[kernel]
    dense = features.build(x, lambda *rows: gram_fn(*rows), **plain)
    assert isinstance(dense.features, jax.Array)
    assert not isinstance(built.features, jax.Array)
    np.testing.assert_allclose(
        features.matrix(built), features.matrix(dense), rtol=1e-13, atol=1e-14
    )
    v = jnp.asarray(np.random.default_rng(1).normal(size=(len(x), 3)))
    np.testing.assert_allclose(jax.jit(built)(v), dense(v), rtol=1e-12, atol=1e-13)
    if kernel in {"gaussian", "laplacian"}:
        assert features.matrix(built)[6, 7] == 1


@pytest.mark.long
def test_thin_features_normalize_over_all_rows():
    x = thin_features()
    gram = np.exp(-np.sum((x[:, None] - x) ** 2, axis=2))
    expected = gram / np.sqrt(gram.sum(axis=1)[:, None] * gram.sum(axis=1))
    np.testing.assert_allclose(features.matrix(features.build(x)), expected, rtol=1e-12)
    half = features.build(x, normalized=False)
    np.testing.assert_allclose(features.normalized_matrix(half), expected, rtol=1e-12)


def test_row_normalization_of_nothing_is_nothing():
    assert features.normalize_rows(np.zeros((0, 4))).shape == (0, 4)


def test_no_rows_make_an_empty_map():
    built = features.build(np.zeros((0, 2)))
    assert built(jnp.ones((0, 3))).shape == (0, 3)


def test_an_unknown_kernel_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="got 'gausian'; did you mean 'gaussian'"):
        features.build(positive_features(), "gausian")


@kernels
@pytest.mark.parametrize("gamma", [0.0, -0.5, np.inf, np.nan])
def test_a_gamma_that_is_not_positive_is_refused(kernel, gamma):
    with pytest.raises(ValueError, match=f"gamma must be positive .* got {gamma}"):
        features.build(positive_features(), kernel, gamma=gamma)


@pytest.mark.parametrize("convert", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_refused_by_row(convert, value):
    x = positive_features()
    x[7, 1] = value
    with pytest.raises(ValueError, match="must be finite, and row 7 is not"):
        features.build(convert(x))


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4)])
def test_features_that_are_no_matrix_are_refused(shape):
    with pytest.raises(ValueError, match=r"must have shape \(n, d\), got"):
        features.build(np.ones(shape))


def test_row_sums_that_no_square_root_scales_are_refused_by_row():
    x = positive_features()
    x[5] = 0
    with pytest.raises(ValueError, match=r"got 0.* in row 5.*normalized=False"):
        features.build(x, "linear")
    assert not features.build(x, "linear", normalized=False)(jnp.ones((N, 1)))[5, 0]
    x[:, 0] = 1
    x[9] = [-50, 0, 0]
    with pytest.raises(ValueError, match="finite, got -"):
        features.build(x, "linear")


def test_row_sums_that_overflow_are_refused():
    x = np.full((4, 2), 1e15, np.float32)  # cubed, it leaves float32
    with pytest.raises(ValueError, match="finite, got inf"):
        features.build(x, "polynomial")


@kernels
def test_all_gammas_share_one_trace(kernel):  # field report 21
    traces = []

    @jax.jit
    def product(built, v):
        traces.append(1)
        return built(v)

    x, v = positive_features(), jnp.ones((N, 2))
    for gamma in (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0):
        built = features.build(x, kernel, gamma=gamma, normalized=False)
        product(built, v)
        expected = np.asarray(features.matrix(built)).sum(axis=1)
        np.testing.assert_allclose(product(built, v)[:, 0], expected, rtol=1e-12)
    assert len(traces) == 1


@pytest.mark.long
def test_gamma_may_be_differentiated():
    built = features.build(positive_features(), normalized=False)

    @jax.jit
    def total(gamma):
        return jnp.sum(dataclasses.replace(built, gamma=gamma)(jnp.ones((N, 1))))

    step = 1e-5
    difference = (total(GAMMA + step) - total(GAMMA - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(total)(GAMMA), difference, rtol=1e-8)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
def test_a_blocked_product_never_holds_n_by_n(kernel):
    n, rows = 3000, 50
    x = jnp.asarray(positive_features(n=n))
    built = features.build(
        x, kernel, normalized=False, block_bytes=block_bytes(rows, n)
    )
    assert built.block_size == rows
    leaves, structure = jax.tree.flatten(built)

    def product(leaves, v):
        return jax.tree.unflatten(structure, leaves)(v)

    compiled = jax.jit(product).lower(leaves, jnp.ones((n, 2))).compile()
    held = compiled.memory_analysis().temp_size_in_bytes
    assert held < 5 * block_bytes(rows, n) < 8 * n**2 / 10


@pytest.mark.long
def test_a_product_takes_the_wider_of_both_types_and_a_vector_as_one_column():
    x = positive_features().astype(np.float32)
    built = features.build(x, gamma=GAMMA, block_bytes=block_bytes(4))
    v = np.random.default_rng(0).standard_normal((N, 2))
    with jax.numpy_dtype_promotion("standard"):
        found = built(jnp.asarray(v))
        one = built(jnp.asarray(v[:, 0]))
    assert found.dtype == jnp.float64
    np.testing.assert_allclose(
        found, slow("gaussian", x, normalized=True) @ v, rtol=1e-5
    )
    np.testing.assert_allclose(one, found[:, 0], rtol=1e-12)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
@pytest.mark.parametrize("offset", [1e3, 2024.0, 1e6])
def test_features_far_from_zero_have_the_kernel_of_those_near_it(offset, kernel):
    X = np.random.default_rng(0).standard_normal((20, 3))
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        near, far = (
            features.matrix(features.build(x, kernel, gamma=0.3, normalized=False))
            for x in (X, X + offset)
        )
    np.testing.assert_allclose(far, near, atol=1e-6)
    np.testing.assert_allclose(np.diagonal(far), 1, atol=1e-6)
