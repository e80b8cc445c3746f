"""Networks that train on one graph and predict on another."""

import functools
import json
from pathlib import Path

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from gnnrp import graph, sparse
from gnnrp.kernels import gntk
from gnnrp.kernels.gntk import inductive

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "inductive_pmlp.json").read_text()
)
A = scipy.sparse.csr_array(np.array(GOLDEN["A"], float))
X = np.array(GOLDEN["X"], float)
TRAIN = np.array(GOLDEN["train_idx"])
N = generators.N


def of_depth(depth, **more):
    return functools.partial(gntk.gcn, network=gntk.Network(depth, **more))


def assert_golden(found, expected):
    expected = np.asarray(expected, float)
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=1e-12 * np.abs(expected).max()
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "case", GOLDEN["cases"], ids=lambda c: f"{c['setting'][:4]}-{c['L']}"
)
def test_blocks_equal_forty_digits(case):
    kernel_fn, gram = of_depth(case["L"]), jnp.asarray(X @ X.T)
    if case["setting"] == "pmlp":
        found = inductive.between(
            kernel_fn, gram, TRAIN, train=inductive.identity, test=sparse.prepare(A)
        )
    else:
        found = inductive.inductive(kernel_fn, gram, A, TRAIN)
    assert_golden(found.train.ntk, case["theta_train_train"])
    assert_golden(found.cross.ntk, case["theta_all_train"])
    assert_golden(found.cross.nngp, case["nngp_all_train"])


@pytest.mark.long
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_same_graph_twice_is_the_transductive_kernel(depth):
    matrix = sparse.prepare(A)
    gram = jnp.asarray(X @ X.T)
    every = np.arange(len(X))
    found = inductive.between(
        of_depth(depth, bias="after"), gram, every, train=matrix, test=matrix
    )
    expected = gntk.gcn(matrix, gram, gntk.Network(depth, bias="after"))
    for block in found:
        np.testing.assert_allclose(block.ntk, expected.ntk, rtol=1e-8)


@pytest.mark.long
def test_training_without_the_graph_has_the_kernel_of_an_mlp():
    gram = jnp.asarray(X @ X.T)
    found = inductive.between(
        of_depth(3), gram, TRAIN, train=inductive.identity, test=sparse.prepare(A)
    )
    mlp = gntk.gcn(inductive.identity, gram, gntk.Network(3)).ntk
    np.testing.assert_allclose(found.train.ntk, mlp[TRAIN][:, TRAIN], rtol=1e-13)


def test_the_whole_kernel_is_psd_and_no_restriction_of_the_transductive_one():
    gram = jnp.asarray(X @ X.T)
    found = inductive.inductive(of_depth(2), gram, A, TRAIN)
    whole = np.block([
        [found.train.ntk, found.cross.ntk.T],
        [found.cross.ntk, found.all.ntk],
    ])
    assert np.linalg.eigvalsh(whole).min() > -1e-12
    transductive = gntk.gcn(sparse.prepare(A), gram, gntk.Network(2)).ntk
    np.testing.assert_allclose(found.all.ntk, transductive, rtol=1e-12)
    gap = np.linalg.norm(found.cross.ntk - transductive[:, TRAIN])
    assert gap > 0.05 * np.linalg.norm(found.cross.ntk)


def test_gradient_descent_on_a_linear_network_follows_the_blocks():
    """f = P X w: training through A_XX, testing through A, the same weights."""
    inside = A[TRAIN][:, TRAIN].toarray() @ X[TRAIN]
    outside = A.toarray() @ X
    targets = np.array([1.0, -1.0, 0.5])[: len(TRAIN)]
    found = inductive.inductive(of_depth(1), jnp.asarray(X @ X.T), A, TRAIN)
    weights, f_train = np.zeros(X.shape[1]), np.zeros(len(TRAIN))
    f_all = np.zeros(len(X))
    for _ in range(15):
        weights += 0.1 * inside.T @ (targets - inside @ weights)
        left = targets - f_train
        f_train = f_train + 0.1 * np.asarray(found.train.ntk) @ left
        f_all = f_all + 0.1 * np.asarray(found.cross.ntk) @ left
    np.testing.assert_allclose(f_train, inside @ weights, atol=1e-13)
    np.testing.assert_allclose(f_all, outside @ weights, atol=1e-13)


@pytest.mark.long
def test_a_submatrix_is_not_the_subgraph_normalized_anew():
    edges, index = generators.edges(0), np.arange(8)
    whole = graph.normalized_adjacency(edges, N)
    part = inductive.submatrix(whole, index)
    found = jax.jit(sparse.matmul)(part, jnp.eye(8))
    np.testing.assert_array_equal(found, sparse.to_scipy(whole).toarray()[:8, :8])
    inside = edges[:, (edges < 8).all(axis=0)]
    anew = sparse.to_scipy(graph.normalized_adjacency(inside, 8)).toarray()
    assert np.abs(found - anew).max() > 0.01


@pytest.mark.long
def test_training_nodes_out_of_range_are_refused():
    with pytest.raises(ValueError, match="index: node 9 is not one of 5"):
        inductive.between(
            of_depth(1),
            jnp.eye(5),
            np.array([0, 9]),
            train=inductive.identity,
            test=inductive.identity,
        )
