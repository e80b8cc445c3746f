"""Kernels of parallel inputs, and of inputs of any size, to the last digits.

The exact values are those of one input: between x and s x, s > 0, the NTK of a ReLU
network of depth L without a graph is L s |x|^2.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from gnnrp import sparse
from gnnrp.kernels import gntk
from gnnrp.kernels.gntk import activations, blocked, closed_forms, inductive, local

x = np.array([1.0, 2.0, 3.0])
X = np.stack([x, 2 / 7 * x])
EXACT = 14 * np.array([[1, 2 / 7], [2 / 7, 4 / 49]])  # X X^T
# Two inputs at 60 degrees, and their NTK at depth 2.
SIXTY = np.array([[1.0, 2.0, 3.0], [3.0, -1.0, 2.0]])
OF_SIXTY = 7 * np.sqrt(3) / np.pi + 28 / 3


def identity(v):
    return v


@functools.partial(jax.jit, static_argnames="depth")
def ntk(gram, depth):
    return gntk.gcn(identity, gram, gntk.Network(depth)).ntk


@pytest.mark.long
@pytest.mark.parametrize("depth", [2, 3, 10])
def test_parallel_inputs_have_the_kernel_of_one_input(depth):
    found = ntk(gntk.gram(X), depth)
    np.testing.assert_allclose(found, depth * EXACT, rtol=1e-14 * depth)
    opposite = ntk(gntk.gram(np.stack([x, -2 / 7 * x])), 2)
    np.testing.assert_array_equal(opposite[0, 1], 0)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("num_features", [3, 300, 3000])
@pytest.mark.parametrize("sign", [abs, np.asarray])
def test_parallel_rows_of_many_features_are_parallel(dtype, num_features, sign):
    rng = np.random.default_rng(num_features)
    one = sign(rng.standard_normal(num_features))
    rows = ((rng.random((20, 1)) + 0.01) * one).astype(dtype)
    exact = 3 * rows.astype(float) @ rows.T.astype(float)
    few_ulps = 20 * np.finfo(dtype).eps
    for given in (rows, scipy.sparse.csr_array(rows)):
        found = ntk(gntk.gram(given), 3)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, exact, rtol=few_ulps)


@pytest.mark.long
def test_blocks_and_tiles_see_parallel_inputs():
    P = scipy.sparse.diags_array([0.3, 0.7]).tocsr()
    exact = 2 * np.outer([0.3, 0.7], [0.3, 0.7]) ** 2 * EXACT
    every = {
        "whole": gntk.gcn(sparse.prepare(P), gntk.gram(X), gntk.Network(2)).ntk,
        "blocked": blocked.gcn(sparse.prepare(P), gntk.gram(X), gntk.Network(2)).ntk,
        "local": local.gcn(P, X, [0, 1], [0, 1], gntk.Network(2)).ntk,
        "sparse": local.gcn(
            P, scipy.sparse.csr_array(X), [0, 1], [0, 1], gntk.Network(2)
        ).ntk,
    }
    for name, found in every.items():
        np.testing.assert_allclose(found, exact, rtol=1e-13, err_msg=name)
    mlp = gntk.decoupled(
        sparse.prepare(P), gntk.gram(X), gntk.Network(2), num_hops=2
    ).ntk
    np.testing.assert_allclose(mlp, exact, rtol=1e-13)
    first = closed_forms.two_layer(sparse.prepare(P), gntk.gram(X), scale=2.0)
    np.testing.assert_allclose(first, exact / 2, rtol=1e-13)


@pytest.mark.long
def test_a_node_seen_through_two_graphs_is_parallel_to_itself():
    """Node 0 has no neighbor in training, and others of its kind at test time."""
    A = np.array([[0.3, 0.4, 0.0], [0.4, 0.1, 0.2], [0.0, 0.2, 0.7]])
    rows = np.stack([x, 2 / 7 * x, 3 * x])
    kernel_fn = functools.partial(gntk.gcn, network=gntk.Network(3))
    adjacency = scipy.sparse.csr_array(A)
    found = inductive.inductive(kernel_fn, gntk.gram(rows), adjacency, np.array([0, 2]))
    sizes = np.array([1, 2 / 7, 3])
    train = A[[0, 2]][:, [0, 2]]
    far_train = train @ train @ train @ sizes[[0, 2]]
    exact = 3 * 14 * np.outer(A @ A @ A @ sizes, far_train)
    np.testing.assert_allclose(found.cross.ntk, exact, rtol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize("scale", [1.0, 1e-10, 3e-10, 1e10, 1e-18, 1e18])
def test_the_kernel_scales_with_inputs_of_any_size(scale):
    rows = (scale * SIXTY).astype(np.float32)
    found = np.asarray(ntk(gntk.gram(rows), 2), np.float64)
    assert found[0, 1] / float(np.float32(scale)) ** 2 == pytest.approx(
        OF_SIXTY, rel=1e-6
    )
    wide = np.asarray(ntk(gntk.gram(scale**8 * SIXTY), 2))  # up to 1e144
    assert wide[0, 1] / scale**16 == pytest.approx(OF_SIXTY, rel=1e-12)


@pytest.mark.long
def test_parallel_inputs_have_a_finite_gradient():
    def total(rows):
        return jnp.sum(gntk.gcn(identity, gntk.gram(rows), gntk.Network(3)).ntk)

    gradient = jax.jit(jax.grad(total))(jnp.asarray(X))
    # All pairs are parallel: the sum is 3 |(1 + 2/7) x|^2, and a shift of one row turns
    # it, to which the angle adds nothing along x.
    assert np.isfinite(gradient).all()
    along = np.asarray(gradient) @ x / 14
    np.testing.assert_allclose(along, 2 * 3 * (9 / 7), rtol=1e-12)


@pytest.mark.long
def test_angles_larger_than_the_rounding_stay():
    angle = 1e-6
    rows = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
    found = ntk(gntk.gram(rows), 2)[0, 1]
    assert 2 - found == pytest.approx(angle / np.pi, rel=1e-3)


@pytest.mark.parametrize("size", [1.0, 1e6, 1e20])
def test_erf_has_its_digits_for_large_variances(size):
    dtype = np.float32
    a = jnp.asarray(size, dtype)
    size = float(a)
    angle = np.pi / 2 - np.arcsin(np.sqrt(1 + 4 * size) / (1 + 2 * size))
    found = activations.ERF.covariance(a, a, a), activations.ERF.derivative(a, a, a)
    exact = 2 / np.pi * angle, 4 / np.pi / np.sqrt(1 + 4 * size)
    np.testing.assert_allclose(found, exact, rtol=1e-6)
    slope = jax.grad(activations.ERF.covariance)(a, a, a)
    assert slope == pytest.approx(exact[1], rel=1e-6)


@pytest.mark.parametrize("convert", [np.asarray, scipy.sparse.csr_array, jnp.asarray])
def test_inputs_with_squares_beyond_the_type_are_refused(convert):
    rows = np.array([[1.0, 0.0], [0.0, 1e30]], np.float32)
    with pytest.raises(ValueError, match="square of features row 1 exceeds float32"):
        gntk.gram(convert(rows))
