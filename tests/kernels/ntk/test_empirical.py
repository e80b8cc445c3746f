"""The tangent kernel of finite networks: both methods, all reductions, other routes."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from generators import C, N, adjacency, unchecked, world

from gnnrp.kernels import alignment
from gnnrp.kernels.ntk import empirical, stochastic, structured
from gnnrp.models import gnn

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/multioutput.json").read_text())
KEY = jax.random.key(1)


def golden_apply(params, x):
    W1, b1, W2, b2 = params
    A = jnp.array(GOLDEN["A"])
    return A @ jnp.maximum(A @ x @ W1 + b1, 0) @ W2 + b2


@pytest.fixture(scope="module")
def network():
    made = gnn.GCN(C, 5, 2)
    x = jnp.asarray(world(0).features)
    params = made.init(KEY, x, adjacency(0))
    return lambda params, x: made.apply(params, x, adjacency(0)), params, x


@pytest.fixture(scope="module")
def J(network):
    """Jacobian by autodiff alone."""
    apply_fn, params, x = network
    leaves = jax.tree.leaves(jax.jacrev(apply_fn)(params, x))
    return np.concatenate([np.reshape(leaf, (N, C, -1)) for leaf in leaves], axis=2)


def reduced(J, reduce):
    full = np.einsum("ikp,jlp->ikjl", J, J)
    return {
        "full": full,
        "trace": np.einsum("ikjk->ij", full) / J.shape[1],
        "sum": full.sum((1, 3)),
        "pseudo": full.sum((1, 3)) / J.shape[1],
    }[reduce]


@pytest.mark.parametrize("method", ["contraction", "products"])
@pytest.mark.parametrize("reduce", empirical.REDUCTIONS)
def test_golden_values(method, reduce):
    params = [jnp.array(GOLDEN[name], float) for name in ("W1", "b1", "W2", "b2")]
    x = jnp.array(GOLDEN["X"])
    np.testing.assert_allclose(golden_apply(params, x), GOLDEN["f"], rtol=1e-12)
    found = empirical.ntk(golden_apply, params, x, reduce=reduce, method=method)
    key = {
        "full": "full_nknk",
        "trace": "trace_average (nkp,mkp->nm)/c",
        "sum": "sum_of_logits (nkp,mlp->nm)",
        "pseudo": "pseudo_ntk (= sum/c)",
    }[reduce]
    np.testing.assert_allclose(found, GOLDEN[key], rtol=1e-12, atol=1e-14)


@pytest.mark.long
def test_neural_tangents_finds_the_same(nt, network, J):
    apply_fn, params, x = network
    settings = {"implementation": 1, "vmap_axes": None}
    # A node's output sees all inputs: only the kernel of the whole graph is asked for.
    trace = nt.empirical_ntk_fn(lambda p, x: apply_fn(p, x), **settings)
    np.testing.assert_allclose(
        trace(x, None, params), reduced(J, "trace"), rtol=1e-10, atol=1e-13
    )
    full = nt.empirical_ntk_fn(lambda p, x: apply_fn(p, x), trace_axes=(), **settings)(
        x, None, params
    )
    found = empirical.ntk(*network, reduce="full")
    np.testing.assert_allclose(
        np.transpose(full, (0, 2, 1, 3)), found, rtol=1e-10, atol=1e-13
    )


@pytest.mark.long
@pytest.mark.parametrize("method", ["contraction", "products"])
@pytest.mark.parametrize("reduce", ["full", "trace", "sum"])
def test_blocks_of_index_sets_are_those_of_the_whole(network, J, method, reduce):
    rows, columns = np.array([3, 0, 9, 3, 5]), np.array([1, 3])
    whole = reduced(J, reduce)
    at = (1, 2) if reduce != "full" else None
    expected = whole[rows][:, columns] if at else whole[rows][:, :, columns]
    found = empirical.ntk(
        *network, rows, columns, reduce=reduce, method=method, block_size=2
    )
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)
    found = empirical.ntk(*network, rows, reduce=reduce, method=method, block_size=3)
    expected = whole[rows][:, rows] if at else whole[rows][:, :, rows]
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize(
    ("limit", "method"), [(2**33, "contraction"), (8 * N * N, "products")]
)
def test_auto_contracts_while_jacobians_fit(network, J, monkeypatch, limit, method):
    other = {"contraction": "_row_fn", "products": "_contract"}[method]

    def refuse(*_):
        raise AssertionError(other)

    monkeypatch.setattr(empirical, other, refuse)
    found = empirical.ntk(*network, reduce="sum", max_bytes=limit)
    np.testing.assert_allclose(found, reduced(J, "sum"), rtol=1e-11, atol=1e-13)


@pytest.mark.long
def test_averages_over_nodes_and_classes(network, J):
    full = empirical.ntk(*network, reduce="full")
    np.testing.assert_allclose(empirical.over_nodes(full), full.mean((0, 2)))
    expected = reduced(J, "sum") / C**2
    np.testing.assert_allclose(empirical.over_classes(full), expected, rtol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("reduce", ["full", "trace", "sum"])
def test_products_need_no_kernel(network, J, reduce):
    theta = reduced(J, reduce)
    theta = theta.reshape(N * C, N * C) if reduce == "full" else theta
    v = np.random.default_rng(0).standard_normal((len(theta), 11))
    product = empirical.Product(*network, reduce)
    np.testing.assert_allclose(product(jnp.asarray(v)), theta @ v, rtol=1e-10)


@pytest.mark.slow
def test_alignment_with_labels_from_products_alone(network, J):
    labels = np.arange(N) % C
    ideal = alignment.label_kernel(labels, C)
    theta = reduced(J, "trace")
    product = empirical.Product(*network)
    for centered in (False, True):
        expected = alignment.alignment(jnp.asarray(theta), ideal, centered=centered)
        operator = alignment.Operator(product, N)
        found = alignment.alignment(operator, ideal, centered=centered)
        assert float(found) == pytest.approx(float(expected), rel=1e-10)
        guess = stochastic.alignment(
            product, ideal.phi, KEY, num_probes=200, centered=centered
        )
        assert abs(float(guess.value - expected)) < 4 * float(guess.error)
        assert float(guess.error) < 0.1 * abs(float(expected))


@pytest.mark.long
@pytest.mark.parametrize("name", ["trace", "squared_norm"])
def test_estimates_are_unbiased_and_know_their_error(name):
    K = jnp.asarray(world(2).kernel)
    exact = float({"trace": jnp.trace(K), "squared_norm": jnp.sum(K**2)}[name])
    estimate = getattr(stochastic, name)
    found = [
        estimate(lambda v: K @ v, N, key, num_probes=20)
        for key in jax.random.split(KEY, 200)
    ]
    scores = np.array([float((one.value - exact) / one.error) for one in found])
    assert abs(scores.mean()) < 0.4
    assert 0.8 < scores.std() < 1.3


@pytest.mark.slow
def test_width_makes_all_reductions_agree():
    x, matrix, gaps = jnp.asarray(world(0).features), adjacency(0), []
    for width in (16, 1024):
        made = gnn.GCN(C, width, 2, parameterization="ntk")

        @jax.jit
        def gap(key, made=made):
            layers = gnn.layers(made, made.init(key, x, matrix))
            trace, pseudo = (
                structured.gcn(layers, x, matrix, reduce=reduce)
                for reduce in ("trace", "pseudo")
            )
            return jnp.linalg.norm(pseudo - trace) / jnp.linalg.norm(trace)

        gaps.append(np.mean([gap(key) for key in jax.random.split(KEY, 20)]))
    assert 1 / 12 < gaps[1] / gaps[0] < 1 / 5  # as width^-1/2: 1 / 8


@pytest.mark.long
def test_kernels_can_be_traced_and_differentiated(network):
    apply_fn, params, x = network

    @jax.jit
    def energy(params, x):
        return jnp.sum(empirical.ntk(apply_fn, params, x, reduce="sum", block_size=5))

    slope = jax.grad(energy, argnums=1)(params, x)
    step = 1e-6 * jnp.ones_like(x)
    expected = (energy(params, x + step) - energy(params, x - step)) / 2e-6
    assert float(slope.sum()) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reduce": "mean"}, "reduce must be one of full, trace, sum, pseudo"),
        ({"method": "vjp"}, "method must be one of"),
        ({"block_size": 0}, "block_size must be at least 1, got 0"),
        ({"rows": [0, N]}, "rows: node 14 is not one of 14 nodes, 0 to 13"),
        ({"rows": [2**32]}, "rows: node 4294967296 is not one of 14 nodes"),
        ({"columns": [-1]}, "columns: node -1 is not one of 14 nodes, 0 to 13"),
        ({"rows": np.ones(N, bool)}, "rows must be a list of node ids, got bool"),
        ({"max_bytes": 100}, "takes 0.0 GB and max_bytes allows 0.0; take some rows"),
    ],
)
def test_what_cannot_be_computed_is_refused(network, arguments, message):
    with pytest.raises(ValueError, match=message):
        empirical.ntk(*network, **arguments)


@pytest.mark.long
def test_outputs_must_be_a_matrix_and_reductions_known(network):
    _, params, x = network
    with pytest.raises(ValueError, match=r"matrix \(n, c\), got shape \(14,\)"):
        empirical.ntk(lambda _, x: x[:, 0], params, x)
    product = empirical.Product(*network, "mean")
    with pytest.raises(ValueError, match="reduce must be one of"):
        unchecked(product, jnp.ones((N, 1)))
    product = empirical.Product(*network, block_size=0)
    with pytest.raises(ValueError, match="block_size must be at least 1, got 0"):
        unchecked(product, jnp.ones((N, 1)))
    with pytest.raises(ValueError, match=r"V must have shape \(14, k\), got \(3, 1\)"):
        empirical.Product(*network)(jnp.ones((3, 1)))
    zero = stochastic.alignment(lambda v: 0 * v, jnp.ones((3, 1)), KEY)
    assert (float(zero.value), float(zero.error)) == (0, 0)
    with pytest.raises(ValueError, match="num_probes must be at least 2, got 1"):
        stochastic.trace(lambda v: v, 3, KEY, num_probes=1)


@pytest.mark.long
def test_keys_and_counters_among_the_parameters_stay_as_they_are(network):
    apply_fn, params, x = network
    more = {"net": params, "key": jax.random.key(3), "count": jnp.arange(2)}
    found = empirical.ntk(lambda p, x: apply_fn(p["net"], x), more, x)
    np.testing.assert_allclose(found, empirical.ntk(apply_fn, params, x), rtol=1e-12)


@pytest.mark.parametrize(
    ("apply_fn", "params", "error", "sentence"),
    [
        (lambda p, x: (x * p, x), jnp.ones(()), TypeError, "one array .* got tuple"),
        (
            lambda p, x: jax.lax.complex(x * p, x),
            jnp.ones(()),
            TypeError,
            "real .* got complex128",
        ),
        (
            lambda p, x: x * p,
            jnp.ones((2, 1, 1)),
            ValueError,
            r"got shape \(2, 14, 4\)",
        ),
        (lambda _, x: x, {}, ValueError, "params must hold floating numbers, got {}"),
        (lambda _, x: x, {"key": KEY}, ValueError, "params must hold floating"),
    ],
)
def test_a_network_without_one_output_or_parameters_is_refused(
    apply_fn, params, error, sentence
):
    x = jnp.asarray(world(0).features)
    with pytest.raises(error, match=sentence):
        empirical.ntk(apply_fn, params, x)
