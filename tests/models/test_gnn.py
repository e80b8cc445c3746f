"""What finite networks compute, on which graph, and how they are drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from generators import C, N, adjacency, unchecked, world

from gnnrp import graph, sparse
from gnnrp.kernels import gntk
from gnnrp.models import _layers, gnn
from gnnrp.propagation import similarity

KEY = jax.random.key(0)
NETWORKS = {
    "MLP": gnn.MLP(C, 5, 3),
    "GCN": gnn.GCN(C, 5, 3),
    "PMLP": gnn.PMLP(C, 5, 3),
    "SGC": gnn.SGC(C, power=3),
    "Decoupled": gnn.Decoupled(C, 5, 2, power=3),
    "APPNP": gnn.APPNP(C, 5, 2, power=4, alpha=0.2),
    "JKNet": gnn.JKNet(C, 5, 3),
    "JKNet, max": gnn.JKNet(C, 5, 3, jump="max"),
}
every_network = pytest.mark.parametrize("name", NETWORKS)


def dense(name, weights, A, x):
    """Return the logits, in numpy, as the field writes each network down."""

    def chain(z, send):
        for i, (W, b) in enumerate(weights):
            z = send @ (z @ W) + b
            z = np.maximum(z, 0) if i < len(weights) - 1 else z
        return z

    eye = np.eye(len(x))
    if name in {"GCN", "PMLP"}:
        return chain(x, A)
    if name == "MLP":
        return chain(x, eye)
    if name == "SGC":
        return chain(x, np.linalg.matrix_power(A, 3))
    if name == "Decoupled":
        return np.linalg.matrix_power(A, 3) @ chain(x, eye)
    if name == "APPNP":
        h = z = chain(x, eye)
        for _ in range(4):
            z = 0.8 * A @ z + 0.2 * h
        return z
    hidden, z = [], x
    for W, b in weights[:-1]:
        z = np.maximum(A @ z @ W + b, 0)
        hidden.append(z)
    W, b = weights[-1]
    joined = np.max(hidden, axis=0) if "max" in name else np.hstack(hidden)
    return joined @ W + b


@pytest.fixture(scope="module")
def inputs():
    return jnp.asarray(world(0).features)


def drawn(name, x, matrix):
    network = NETWORKS[name]
    params = network.init(KEY, x, matrix)
    return network, params, [(w.weights, w.bias) for w in gnn.layers(network, params)]


@every_network
def test_networks_are_what_the_field_calls_them(name, inputs):
    network, params, weights = drawn(name, inputs, adjacency(0))
    found = network.apply(params, inputs, adjacency(0))
    expected = dense(name, weights, world(0).A, np.asarray(inputs))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@every_network
def test_the_same_weights_serve_another_graph_and_none(name, inputs):
    network, params, weights = drawn(name, inputs, adjacency(0))
    other = world(0).by_rows
    found = network.apply(params, inputs, other)
    expected = dense(name, weights, world(0).A_by_rows, np.asarray(inputs))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    alone = network.apply(params, inputs)
    expected = dense(name, weights, np.eye(N), np.asarray(inputs))
    np.testing.assert_allclose(alone, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.long
@every_network
def test_sparse_inputs_and_graphs_tuples_give_the_same(name, inputs):
    network, params, _ = drawn(name, inputs, adjacency(0))
    expected = network.apply(params, inputs, adjacency(0))
    rows = sparse.prepare(scipy.sparse.csr_array(np.asarray(inputs)), reorder=False)
    close = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(
        network.apply(params, rows, adjacency(0)), expected, **close
    )
    tuples = graph.to_jraph(scipy.sparse.csr_array(world(0).A), inputs)
    np.testing.assert_allclose(network.apply(params, tuples), expected, **close)
    jitted = jax.jit(network.apply)
    np.testing.assert_allclose(jitted(params, tuples), expected, **close)


def test_a_graphs_tuple_without_edge_values_sums_over_senders(inputs):
    network, params, weights = drawn("GCN", inputs, adjacency(0))
    W = (world(0).A_by_rows > 0) * 1.0
    tuples = graph.to_jraph(scipy.sparse.csr_array(W), inputs)._replace(edges=None)
    expected = dense("GCN", weights, W, np.asarray(inputs))
    np.testing.assert_allclose(network.apply(params, tuples), expected, rtol=1e-12)


def test_a_pmlp_is_trained_without_the_graph(inputs):
    network, params, weights = drawn("PMLP", inputs, adjacency(0))
    found = network.apply(params, inputs, adjacency(0), train=True)
    expected = dense("MLP", weights, world(0).A, np.asarray(inputs))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_appnp_is_a_restarted_walk_of_an_mlp(inputs):
    network, params, _ = drawn("APPNP", inputs, adjacency(0))
    walk = similarity.Restart(adjacency(0), 4, 0.8)
    expected = walk(network.apply(params, inputs))
    found = network.apply(params, inputs, adjacency(0))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.long
@pytest.mark.parametrize("sparse_inputs", [False, True])
def test_dropout_keeps_the_mean_and_is_off_outside_training(inputs, sparse_inputs):
    network = gnn.SGC(C, power=2, dropout=0.5)
    x = (
        sparse.prepare(scipy.sparse.csr_array(np.asarray(inputs)))
        if sparse_inputs
        else inputs
    )
    params = network.init(KEY, x, adjacency(0))
    full = network.apply(params, x, adjacency(0))

    @jax.jit
    def sample(key):
        return network.apply(params, x, adjacency(0), train=True, rngs={"dropout": key})

    samples = jnp.stack([sample(key) for key in jax.random.split(KEY, 400)])
    error = jnp.std(samples, axis=0) / 20
    assert jnp.std(samples) > 0
    assert jnp.max(jnp.abs(jnp.mean(samples, axis=0) - full) / error) < 5


@pytest.mark.long
@pytest.mark.parametrize("share", [0.5, 0.75, 0.3, 0.9, 1 / 3, 1 - 2.0**-24, 1.0])
def test_dropout_keeps_each_input_with_its_probability_on_its_own(share):
    num_bits = 40_000 * 32
    bits = np.asarray(_layers.sample_mask(KEY, share, (num_bits,)))
    lanes = bits.reshape(-1, 32).astype(float)
    assert abs(bits.mean() - share) <= 5 * (share * (1 - share) / num_bits) ** 0.5
    spread = (share * (1 - share) / len(lanes)) ** 0.5
    assert np.abs(lanes.mean(axis=0) - share).max() <= 5 * spread + 1e-6
    if 0.2 < share < 0.8:  # of neither the other bits of a word, nor the next word
        together = np.corrcoef(lanes[:-1].T, lanes[1:].T) - np.eye(64)
        assert np.abs(together).max() < 5 / len(lanes) ** 0.5


@pytest.mark.long
def test_dropout_draws_any_shape():
    assert _layers.sample_mask(KEY, 0.5, (3, 11)).shape == (3, 11)
    assert _layers.sample_mask(KEY, 0.5, (0, 4)).shape == (0, 4)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["bcsr", "segment_sum"])
def test_gradients_through_dropout_of_symmetric_sparse_inputs_are_right(backend):
    x = sparse.prepare(scipy.sparse.csr_array(world(0).A), backend=backend)
    network = gnn.MLP(C, 5, 2, dropout=0.5)
    params = network.init(KEY, x)

    def total(params):
        logits = network.apply(params, x, train=True, rngs={"dropout": KEY})
        return jnp.sum(jnp.sin(logits))

    slope = jax.jit(jax.grad(total))(params)
    _, expected = jax.jvp(total, (params,), (jax.tree.map(jnp.ones_like, params),))
    found = sum(float(leaf.sum()) for leaf in jax.tree.leaves(slope))
    assert found == pytest.approx(float(expected), rel=1e-10)


@pytest.mark.long
def test_uniform_weights_and_biases_have_the_usual_bound():
    x = jnp.ones((3, 400))
    params = gnn.MLP(7, 900, 2).init(KEY, x)["params"]
    for number, fan_in in ((0, 400), (1, 900)):
        for part in ("weights", "bias"):
            values = np.abs(params[f"layers_{number}"][part])
            assert values.max() <= fan_in**-0.5
        assert values.max() > 0.8 * fan_in**-0.5


@pytest.mark.long
@pytest.mark.parametrize(("kind", "spread"), [("glorot", 2 / 1300), ("he", 2 / 400)])
def test_other_initializations_have_their_variance_and_no_bias(kind, spread):
    params = gnn.MLP(3, 900, 2, initialization=kind).init(KEY, jnp.ones((3, 400)))
    first = params["params"]["layers_0"]
    assert np.var(first["weights"]) == pytest.approx(spread, rel=0.02)
    assert not first["bias"].any()


@pytest.mark.slow
def test_the_ntk_parameterization_has_the_covariance_of_the_infinite_network(inputs):
    network = gnn.GCN(4000, 300, 2, parameterization="ntk", bias_std=0.5)
    x, matrix = inputs, world(0).by_rows
    infinite = gntk.gcn(
        matrix, gntk.gram(x), gntk.Network(2, bias="after", bias_std=0.5)
    ).nngp
    total = 0
    for key in jax.random.split(KEY, 10):
        f = network.apply(network.init(key, x, matrix), x, matrix)
        total += f @ f.T / 40_000
    assert np.linalg.norm(total - infinite) < 0.05 * np.linalg.norm(infinite)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (gnn.MLP(0), "num_classes must be at least 1, got 0"),
        (gnn.MLP(2, 0), "width must be at least 1, got 0"),
        (gnn.GCN(2, depth=0), "depth must be at least 1, got 0"),
        (gnn.GCN(2, dropout=1.0), r"dropout must lie in \[0, 1\), got 1.0"),
        (gnn.GCN(2, parameterization="mup"), "parameterization must be one of"),
        (gnn.GCN(2, initialization="gloro"), "did you mean 'glorot'"),
        (gnn.SGC(2, depth=2), "SGC has one layer, got depth 2; see Decoupled"),
        (gnn.JKNet(2, depth=1), "depth 2 or more, got 1"),
        (gnn.JKNet(2, jump="lstm"), "jump must be one of"),
        (gnn.APPNP(2, alpha=1.5), r"alpha must lie in \[0, 1\], got 1.5"),
        (gnn.Decoupled(2, power=-1), "power must be at least 0, got -1"),
    ],
)
def test_networks_that_cannot_be_are_refused(network, message, inputs):
    with pytest.raises(ValueError, match=message):
        network.init(KEY, inputs, adjacency(0))


@pytest.mark.long
def test_one_trace_serves_other_weights_and_graphs(inputs):
    network, params, _ = drawn("GCN", inputs, adjacency(0))
    traces = []

    @jax.jit
    def logits(params, matrix):
        traces.append(1)
        return network.apply(params, inputs, matrix)

    for seed in (0, 1, 2):
        logits(jax.tree.map(lambda leaf: leaf + seed, params), adjacency(seed))  # noqa: B023
    assert len(traces) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("x", "matrix", "message"),
    [
        (np.ones((N, 4)), world(0).A, "linear map, got ndarray; sparse.prepare makes"),
        (scipy.sparse.eye_array(N), None, "or from sparse.prepare, got dia_array"),
        (np.ones(N), None, r"a dense \(n, d\) array .* got shape \(14,\)"),
        (np.ones((N, 4), int), None, r"inputs must be floats .* int64 of shape"),
        (np.ones((N, 0)), None, "at least one node and one feature"),
        ([[1.0]], None, "or from sparse.prepare, got list"),
    ],
)
def test_inputs_that_are_no_features_are_refused_in_a_sentence(x, matrix, message):
    with pytest.raises(TypeError, match=message):
        unchecked(_layers.parse_inputs, x, matrix)


@pytest.mark.long
def test_edge_values_are_numbers_and_parameters_of_the_network(inputs):
    tuples = graph.to_jraph(scipy.sparse.csr_array(world(0).A), inputs)
    network, params, _ = drawn("GCN", inputs, adjacency(0))
    column = tuples._replace(edges=tuples.edges[:, None])
    np.testing.assert_array_equal(
        network.apply(params, column), network.apply(params, tuples)
    )
    wide = tuples._replace(edges=jnp.ones((len(tuples.edges), 2)))
    with pytest.raises(ValueError, match="edge values must be one number an edge"):
        network.apply(params, wide)
    with pytest.raises(ValueError, match="are not of GCN with depth 3 and use_bias=F"):
        gnn.layers(gnn.GCN(C, 5, 3, use_bias=False), params)
    with pytest.raises(ValueError, match="are not of GCN with depth 2"):
        gnn.layers(gnn.GCN(C, 5, 2), params)
