"""Kernels without Jacobians are those by autodiff, whatever the network."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from generators import C, adjacency, targets, unchecked, world

from gnnrp import sparse
from gnnrp.kernels import alignment, gntk
from gnnrp.kernels.ntk import empirical, structured
from gnnrp.models import gnn
from gnnrp.propagation import similarity
from gnnrp.types import Layer

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/multioutput.json").read_text())
KEY = jax.random.key(2)


def close(found, expected):
    scale = float(jnp.max(jnp.abs(expected)))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13 * scale)


def by_autodiff(network, params, x, matrix, reduce):
    def apply_fn(params, x):
        return network.apply(params, x, matrix)

    return empirical.ntk(apply_fn, params, x, reduce=reduce)


@pytest.fixture(scope="module")
def x():
    return jnp.asarray(world(0).features)


@pytest.mark.long
@pytest.mark.parametrize("reduce", empirical.REDUCTIONS)
def test_golden_values(reduce):
    layers = [
        Layer(jnp.array(GOLDEN[f"W{i}"], float), jnp.array(GOLDEN[f"b{i}"], float))
        for i in (1, 2)
    ]
    matrix = sparse.prepare(scipy.sparse.csr_array(np.array(GOLDEN["A"])))
    found = structured.gcn(layers, jnp.array(GOLDEN["X"]), matrix, reduce=reduce)
    np.testing.assert_allclose(found, GOLDEN[_key(reduce)], rtol=1e-12, atol=1e-14)


def _key(reduce):
    return {
        "full": "full_nknk",
        "trace": "trace_average (nkp,mkp->nm)/c",
        "sum": "sum_of_logits (nkp,mlp->nm)",
        "pseudo": "pseudo_ntk (= sum/c)",
    }[reduce]


@pytest.mark.long
@pytest.mark.parametrize("reduce", empirical.REDUCTIONS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_gcns_of_one_to_three_layers(depth, reduce, x):
    network = gnn.GCN(C, 5, depth, activation_fn=jax.nn.softplus)
    matrix = world(0).by_rows
    params = network.init(KEY, x, matrix)
    found = structured.gcn(
        gnn.layers(network, params),
        x,
        matrix,
        reduce=reduce,
        activation_fn=jax.nn.softplus,
        block_size=5,
    )
    close(found, by_autodiff(network, params, x, matrix, reduce))


@pytest.mark.long
@pytest.mark.parametrize("reduce", ["full", "trace"])
def test_an_mlp_of_four_layers_with_or_without_propagation_after_it(reduce, x):
    for network, send in (
        (gnn.MLP(C, 5, 4), None),
        (gnn.Decoupled(C, 5, 4, power=3), similarity.Power(adjacency(0), 3)),
        (gnn.APPNP(C, 5, 4, alpha=0.3), similarity.Restart(adjacency(0), 10, 0.7)),
    ):
        params = network.init(KEY, x, adjacency(0))
        layers = gnn.layers(network, params)
        found = structured.mlp(layers, x, send, reduce=reduce, block_size=6)
        close(found, by_autodiff(network, params, x, adjacency(0), reduce))


@pytest.mark.long
def test_a_linear_gnn_is_a_gcn_of_one_layer(x):
    network = gnn.SGC(C, power=3)
    params = network.init(KEY, x, adjacency(0))
    power = similarity.Power(adjacency(0), 3)
    found = structured.gcn(gnn.layers(network, params), x, power)
    close(found, by_autodiff(network, params, x, adjacency(0), "trace"))


@pytest.mark.long
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("depth", [2, 3])
def test_the_ntk_parameterization_scales_gradients(depth, use_bias, x):
    network = gnn.GCN(
        C, 5, depth, use_bias=use_bias, parameterization="ntk", bias_std=0.3
    )
    params = network.init(KEY, x, adjacency(0))
    found = structured.gcn(gnn.layers(network, params), x, adjacency(0))
    close(found, by_autodiff(network, params, x, adjacency(0), "trace"))


@pytest.mark.long
@pytest.mark.parametrize("depth", [2, 3])
def test_wide_networks_have_the_infinite_kernel(depth, x):
    network = gnn.GCN(1, 4096 if depth == 2 else 256, depth, use_bias=False,
                      parameterization="ntk")  # fmt: skip
    infinite = gntk.gcn(adjacency(0), gntk.gram(x), gntk.Network(depth)).ntk
    kernel = jax.jit(
        lambda params: structured.gcn(gnn.layers(network, params), x, adjacency(0))
    )
    some = [
        kernel(network.init(key, x, adjacency(0))) for key in jax.random.split(KEY, 8)
    ]
    error = np.linalg.norm(sum(some) / 8 - infinite) / np.linalg.norm(infinite)
    assert error < (0.03 if depth == 2 else 0.15)


@pytest.mark.long
def test_sparse_inputs_and_a_gram_matrix_at_hand_give_the_same(x):
    network = gnn.GCN(C, 5, 2)
    params = network.init(KEY, x, adjacency(0))
    layers = gnn.layers(network, params)
    expected = structured.gcn(layers, x, adjacency(0), reduce="sum")
    thin = sparse.prepare(scipy.sparse.csr_array(np.asarray(x)), reorder=False)
    close(structured.gcn(layers, thin, adjacency(0), reduce="sum"), expected)
    held = structured.gram(thin, adjacency(0))
    close(held, structured.gram(x, adjacency(0)))
    close(structured.gcn(layers, thin, adjacency(0), reduce="sum", gram=held), expected)
    rows = structured.gram(x)
    close(
        structured.mlp(layers, x, reduce="sum", gram=rows),
        structured.mlp(layers, thin, reduce="sum"),
    )


@pytest.mark.long
@pytest.mark.parametrize("block_size", [1, 4, 14, 100])
def test_blocks_of_any_size_make_the_same_kernel(block_size, x):
    network = gnn.GCN(C, 5, 2)
    layers = gnn.layers(network, network.init(KEY, x, adjacency(0)))
    expected = structured.gcn(layers, x, adjacency(0))
    found = structured.gcn(layers, x, adjacency(0), block_size=block_size)
    close(found, expected)


@pytest.mark.long
def test_alignment_is_differentiable_in_graph_and_weights(x):
    network = gnn.GCN(C, 5, 2, activation_fn=jnp.tanh)
    params = network.init(KEY, x, adjacency(0))
    ideal = alignment.ideal_kernel(targets(0))

    @jax.jit
    def aligned(data, params):
        import dataclasses

        matrix = dataclasses.replace(world(0).by_rows, data=data)
        theta = structured.gcn(
            gnn.layers(network, params), x, matrix, activation_fn=jnp.tanh
        )
        return alignment.alignment(theta, ideal, centered=True)

    data = world(0).by_rows.data
    slopes = jax.grad(aligned, argnums=(0, 1))(data, params)
    step = 1e-6
    for place in (0, 5):
        bump = step * jnp.zeros_like(data).at[place].set(1)
        expected = (aligned(data + bump, params) - aligned(data - bump, params)) / 2e-6
        assert float(slopes[0][place]) == pytest.approx(float(expected), abs=1e-8)
    bump = jax.tree.map(lambda leaf: step * jnp.ones_like(leaf), params)
    ahead, behind = (
        aligned(data, jax.tree.map(op, params, bump)) for op in (jnp.add, jnp.subtract)
    )
    total = sum(float(leaf.sum()) for leaf in jax.tree.leaves(slopes[1]))
    assert total == pytest.approx(float((ahead - behind) / 2e-6), abs=1e-7)


@pytest.mark.long
def test_one_layer_object_may_stand_twice(x):
    W = jnp.asarray(np.random.default_rng(0).standard_normal((4, 4)))
    layer = Layer(W, jnp.ones(4))
    apart = [Layer(W, jnp.ones(4)) for _ in range(3)]
    close(structured.mlp([layer] * 3, x), structured.mlp(apart, x))


@pytest.mark.long
def test_what_has_no_structured_kernel_is_refused(x):
    network = gnn.GCN(C, 5, 4)
    layers = gnn.layers(network, network.init(KEY, x, adjacency(0)))
    with pytest.raises(
        ValueError, match="a GCN must have at most 3 layers for its structured"
    ):
        structured.gcn(layers, x, adjacency(0))
    with pytest.raises(ValueError, match="at least one layer"):
        structured.mlp([], x)
    with pytest.raises(ValueError, match="reduce must be one of"):
        structured.gcn(layers[:1], x, adjacency(0), reduce="mean")
    for gram in (jnp.ones((1, 1)), jnp.ones((14, 1))):
        with pytest.raises(ValueError, match="the Gram matrix must have shape"):
            unchecked(structured.gcn, layers[:2], x, adjacency(0), gram=gram)
    with pytest.raises(ValueError, match="block_size must be at least 1, got 0"):
        structured.mlp(layers, x, block_size=0)
