"""Kernels of distances that cancel, from far away rows to sparse ones."""

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from gnnrp import ResidualPropagation, sparse
from gnnrp.datasets import sbm
from gnnrp.kernels import features, gntk
from gnnrp.kernels.features import low_rank, pairwise
from gnnrp.kernels.gntk import local
from gnnrp.propagation.problem import make_problem
from gnnrp.runtime import memory
from gnnrp.studies import gntk as gntk_study
from gnnrp.types import Split

TERMS = {"gaussian": np.square, "laplacian": np.abs}
names = pytest.mark.parametrize("name", TERMS)


def slow(x, gamma, name="gaussian"):
    """The kernel in float64, from the differences of the rows in their own type."""
    x = x.astype(np.float64)
    distances = TERMS[name](x[:, None] - x).sum(axis=2)
    with np.errstate(over="ignore"):
        return np.exp(-np.float64(np.float32(gamma)) * distances)


def found(x, gamma, name="gaussian"):
    built = features.build(x, name, gamma=gamma, normalized=False)
    result = features.matrix(built)
    assert result.dtype == np.float32
    some = jnp.array([len(result) - 1, 0])
    np.testing.assert_allclose(features.rows(built, some), result[some], atol=1e-6)
    np.testing.assert_allclose(features.diagonal(built), np.diag(result), atol=1e-6)
    return np.asarray(result)


def draw(n=150, d=30, seed=0):
    """Normal rows; of many, two are equal and two close together."""
    x = np.random.default_rng(seed).standard_normal((n, d))
    if n > 10:
        x[7], x[9] = x[8], x[10] * (1 + 1e-3)
    return x


CASES = {
    "pairs far from zero": (np.array([[2000], [2000.5], [-2000], [-1999.5]]), 1.0),
    "large features": (30 * draw(), 1.0),
    "a bandwidth of nothing": (draw(), 1e30),
    "two distant groups": (draw() + 1e3 * np.sign(draw(150, 1)), 0.05),
    "an offset of most of a row": (draw() * 1e-3 + 1, 20.0),
    "one row far away": (np.vstack([draw(), np.full((1, 30), 1e6)]), 0.1),
    "squares beyond float32": (1e20 * draw(), 1.0),
    "many features": (draw(60, 2000), 1e-3),
    "whole numbers": (np.round(10 * draw()), 0.01),
    "one column": (draw(40, 1) + 1e4, 2.0),
    "one row": (1e4 * draw(12)[:1], 2.0),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_float32_gaussian_kernel_has_the_digits_of_its_features(case):
    x, gamma = CASES[case]
    x = x.astype(np.float32)
    gram = found(x, gamma)
    np.testing.assert_allclose(gram, slow(x, gamma), rtol=0, atol=2e-6)


@pytest.mark.long
@names
@pytest.mark.parametrize(("scale", "gamma"), [(1, 0.5), (30, 1.0), (1, 1e30)])
def test_sparse_rows_have_the_digits_of_their_features(name, scale, gamma):
    x = scale * draw(150, 400)
    x[np.random.default_rng(1).random(x.shape) > 0.02] = 0
    x[7], x[9], x[11] = x[8], x[10] * (1 + 1e-3), 0
    x = x.astype(np.float32)
    gram = found(scipy.sparse.csr_array(x), gamma, name)
    np.testing.assert_allclose(gram, slow(x, gamma, name), rtol=0, atol=2e-6)
    assert gram[7, 8] == 1


@pytest.mark.long
@names
def test_sparse_rows_without_an_entry_are_equal(name):
    nothing = scipy.sparse.csr_array((5, 40), dtype=np.float32)
    np.testing.assert_array_equal(found(nothing, 1.0, name), 1)


@pytest.mark.long
def test_float64_has_its_own_digits():
    x = np.array([[2e8], [2e8 + 0.5], [-2e8], [-2e8 + 0.5]])
    gram = features.matrix(features.build(x, gamma=1.0, normalized=False))
    near = np.exp(-0.25)
    exact = [[1, near, 0, 0], [near, 1, 0, 0], [0, 0, 1, near], [0, 0, near, 1]]
    np.testing.assert_allclose(gram, exact, rtol=1e-14)


@pytest.mark.long
def test_low_rank_kernels_have_the_digits_of_their_features():
    x = np.array([[2000], [2000.5], [-2000], [-1999.5]], np.float32)
    expected = slow(x, 1.0)
    own = {"gamma": 1.0, "normalized": False}
    distinct = low_rank.distinct(np.repeat(x, 2, axis=0), **own)
    np.testing.assert_allclose(distinct.gram, expected, atol=1e-6)
    key = jax.random.key(0)
    nystrom = low_rank.nystrom(x, num_landmarks=4, key=key, **own)
    factor = np.asarray(nystrom.map.factor)
    np.testing.assert_allclose(factor @ factor.T, expected, atol=1e-5)
    far = x.astype(np.float64) + 1e7  # so far that float32 has no digits of the angle
    fourier = low_rank.fourier(far, num_features=2**14, key=key, **own)
    factor = np.asarray(fourier.factor)
    np.testing.assert_allclose(factor @ factor.T, expected, atol=0.05)
    low = x.astype(np.float64) * 1e4
    fourier = low_rank.fourier(
        low.astype(np.float32), num_features=2**14, key=key, **own
    )
    factor = np.asarray(fourier.factor)
    np.testing.assert_allclose(factor @ factor.T, np.eye(4), atol=0.05)


@pytest.mark.long
def test_few_pairs_are_evaluated_again():
    """Rows of one chunk at most: without this bound, all pairs would be."""
    x = jnp.asarray(30 * draw(400), jnp.float32)
    evaluated = []

    def from_differences(rows, columns):
        jax.debug.callback(lambda size: evaluated.append(int(size)), columns.size)
        return jnp.sum((x[rows][:, None] - x[columns]) ** 2, axis=2)

    squares = jnp.sum(x**2, axis=1)
    plain = squares[:, None] + squares - 2 * x @ x.T
    sides = (squares, squares), jnp.float32(1)
    jax.block_until_ready(pairwise.refine(plain, *sides, from_differences, length=30))
    jax.effects_barrier()
    assert 0 < sum(evaluated) < 0.1 * plain.size
    evaluated.clear()
    sides = (squares, squares), jnp.float32(1e-6)
    same = pairwise.refine(plain, *sides, from_differences, length=30)
    jax.effects_barrier()
    assert not evaluated
    np.testing.assert_array_equal(same, plain)


@pytest.mark.long
def test_the_gaussian_kernel_may_be_differentiated_in_its_rows():
    """The pairs that are evaluated again have their gradient too."""
    x, v = 300 * draw(6, 2), np.arange(6.0)

    def total(x):
        gram = features.gaussian(x, x, 0.3)
        return v @ gram @ v

    def plain(x):
        square = jnp.sum((x[:, None] - x) ** 2, axis=2)
        return v @ jnp.exp(-0.3 * square) @ v

    x[1:] = x[0] + draw(5, 2, seed=3)
    x = jnp.asarray(x)
    np.testing.assert_allclose(jax.grad(total)(x), jax.grad(plain)(x), rtol=1e-8)


def wide_features(num_entries=40_000, n=400, d=3_000_000):
    rng = np.random.default_rng(0)
    place = rng.integers(n, size=num_entries), rng.integers(d, size=num_entries)
    values = rng.random(num_entries, np.float32)
    return scipy.sparse.csr_array(scipy.sparse.coo_array((values, place), (n, d)))


@pytest.mark.long
@pytest.mark.parametrize("name", features.KERNELS)
def test_wide_sparse_rows_need_no_dense_columns(name):
    built = features.build(wide_features(), name, gamma=0.01, normalized=False)
    assert built.features.shape[1] <= 40_000
    leaves, structure = jax.tree.flatten(built)
    product = jax.jit(lambda leaves, v: jax.tree.unflatten(structure, leaves)(v))
    compiled = product.lower(leaves, jnp.ones((400, 2), jnp.float32)).compile()
    analysis = compiled.memory_analysis()
    assert analysis is not None
    held = analysis.temp_size_in_bytes
    assert held < 3e8


def test_a_kernel_that_is_no_name_is_refused_before_sparse_rows_become_dense():
    x = wide_features(1000)
    tracemalloc.start()
    with pytest.raises(ValueError, match="keeps sparse rows, by its name: linear"):
        features.build(
            x, lambda x, y, _: x @ y.T, max_bytes=memory.process_bytes() + 600 * 10**6
        )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


def test_features_without_a_column_are_refused():
    for empty in (np.zeros((3, 0)), scipy.sparse.csr_array((3, 0))):
        with pytest.raises(ValueError, match=r"shape \(n, d\), d > 0, got \(3, 0\)"):
            features.build(empty)


@pytest.mark.parametrize("convert", [np.asarray, scipy.sparse.csr_array])
def test_features_beyond_float32_are_refused_as_too_large(convert):
    x = np.eye(30)
    x[3, 4] = -1e300
    with jax.enable_x64(False):
        for kernel in features.KERNELS:
            with pytest.raises(ValueError, match=r"fit float32, got 1e\+300; scale"):
                features.build(convert(x), kernel)
        with pytest.raises(ValueError, match=r"fit float32, got 1e\+308; choose"):
            features.build(np.eye(3), gamma=1e308)


def test_products_of_long_rows_keep_their_digits():
    x = np.full((2, 10_001), 0.1, np.float32)
    exact = x.astype(np.float64) @ x.T.astype(np.float64)
    x = jnp.asarray(x)
    np.testing.assert_allclose(pairwise.inner(x, x), exact, rtol=2e-6)


HUGE = 1e308
GRAM = jnp.eye(3, dtype=jnp.float32)
KEY = jax.random.key(0)
SPLIT = Split(*(np.arange(3) == node for node in range(3)))
P = scipy.sparse.csr_array(np.eye(3))
TOO_LARGE = [
    (lambda: low_rank.distinct(HUGE * np.eye(3)), "features"),
    (lambda: low_rank.fourier(GRAM, gamma=HUGE, num_features=2, key=KEY), "gamma"),
    (lambda: features.normalize_rows(np.array([[3e38, 3e38, 0]], np.float32)), "row 0"),
    (lambda: gntk.gram(HUGE * np.eye(3)), "features"),
    (lambda: gntk.gcn(identity, GRAM, gntk.Network(2, scale=HUGE)), "scale"),
    (lambda: gntk.dense(gntk.initialize(GRAM), bias_std=1e200), "bias_std"),
    (lambda: gntk.dense(gntk.initialize(GRAM), bias_std=1e20), "bias_std"),
    (lambda: local.gcn(P, HUGE * np.eye(3), [0], [0], gntk.Network(2)), "features"),
    (lambda: local.gcn(P, 1e20 * np.eye(3), [0], [0], gntk.Network(2)), "row 0"),
    (lambda: sparse.prepare(HUGE * P), "the entries"),
    (lambda: make_problem(HUGE * np.eye(3), SPLIT), "targets"),
    (lambda: make_problem(np.eye(3), SPLIT, HUGE * np.eye(3)), "initial"),
    (lambda: fit(initial=np.full((3, 2), HUGE)), "initial"),
    (lambda: fit(step_size=HUGE), "step_size"),
    (lambda: fit(kernel="gaussian", gamma=HUGE, features=np.eye(3)), "gamma"),
    (lambda: fit(kernel="linear", features=HUGE * np.eye(3)), "features"),
    (
        lambda: gntk_study.run(sbm_data(), gntk_study.GNTKSettings(bias_std=1e200)),
        "bias_std",
    ),
]


def identity(v):
    return v


def fit(*, features=None, initial=None, **more):
    settings = {"power": 1, "step_size": 0.1, "num_steps": 3} | more
    path = np.array([[0, 1], [1, 2]])
    known = {"features": features, "initial": initial}
    return ResidualPropagation(**settings).fit(path, [0, -1, 1], **known)


def sbm_data():
    few = {"train_per_class": 2, "num_val": 5, "num_test": 5}
    return sbm.generate(0, block_size=5, **few)


@pytest.mark.parametrize(("make", "name"), TOO_LARGE, ids=lambda x: str(x)[:20])
def test_finite_numbers_beyond_float32_are_too_large_not_infinite(make, name):
    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match=f"{name}.*(fit|exceeds) float32"),
    ):
        make()


@pytest.mark.long
def test_features_whose_squares_vanish_are_refused():
    for convert in (np.asarray, scipy.sparse.csr_array):
        with pytest.raises(ValueError, match="zero in float32; scale them up"):
            gntk.gram(convert(np.full((3, 2), 1e-30, np.float32)))
    np.testing.assert_array_equal(gntk.gram(np.zeros((3, 2))), 0)


@pytest.mark.long
@pytest.mark.parametrize("convert", [np.asarray, scipy.sparse.csr_array])
def test_distances_promote_no_ranks(convert):
    x = np.where(np.arange(400) % 40 == 0, 30 * draw(20, 400), 0)
    built = features.build(convert(x), gamma=1.0, normalized=False)
    expected = features.rows(built, jnp.arange(3))
    with jax.numpy_rank_promotion("raise"):
        found = jax.jit(lambda built: features.rows(built, jnp.arange(3)))(built)
    np.testing.assert_allclose(found, expected, atol=1e-15)
