"""Kernels in blocks, on one device and on several, and how much they hold."""

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from gnnrp import sparse
from gnnrp.kernels import gntk
from gnnrp.kernels.gntk import activations, blocked

N, D = 23, 4
RELU = gntk.Network(2)
compiled = jax.jit(blocked.gcn, static_argnames=("width", "mesh"))


def world(seed=0, n=N):
    rng = np.random.default_rng(seed)
    P = np.where(rng.random((n, n)) < 0.3, rng.random((n, n)), 0) + np.eye(n) / 2
    P[5] = 0  # a node without variance
    X = rng.standard_normal((n, D))
    X[3] = X[2]
    return sparse.prepare(scipy.sparse.csr_array(P)), jnp.asarray(X @ X.T)


def assert_equal(found, expected, tolerance=1e-13):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.long
@pytest.mark.parametrize("width", [1, 5, 23, 100])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_blocks_of_any_width_give_the_recursion(depth, width):
    P, G = world()
    expected = gntk.gcn(P, G, gntk.Network(depth))
    found = compiled(P, G, gntk.Network(depth), width=width)
    for one, other in zip(found, expected, strict=True):
        assert_equal(one, other)


@pytest.mark.long
@pytest.mark.parametrize("bias", gntk.BIASES)
@pytest.mark.parametrize("name", ["relu", "leaky_relu", "gelu", "rbf", "identity"])
@pytest.mark.parametrize("trained", [(True, False, True), (False, True, False)])
def test_every_setting_is_that_of_the_recursion(bias, name, trained):
    P, G = world(1)
    network = gntk.Network(3, activations.by_name(name), 1.3, bias, 0.7, trained)
    expected = gntk.gcn(P, G, network).ntk
    # Correlations near 1 enlarge round-off.
    assert_equal(compiled(P, G, network, width=6).ntk, expected, 1e-11)


@pytest.mark.long
@pytest.mark.parametrize("bias", gntk.BIASES)
def test_layers_one_by_one_give_both_kernels_of_every_depth(bias):
    P, G = world(2)
    kernels = gntk.initialize(G)
    for depth in (1, 2, 3):
        network = gntk.Network(depth, bias=bias, bias_std=0.4)
        kernels = blocked.layer(kernels, P, network, first=depth == 1, width=7)
        expected = gntk.gcn(P, G, network)
        for found, other in zip(kernels, expected, strict=True):
            assert_equal(found, other)


@pytest.mark.long
def test_a_layer_holds_its_kernels_and_some_blocks():
    n, width = 400, 8
    P, G = world(3, n)

    def layer(nngp, ntk):
        return blocked.layer(gntk.Kernels(nngp, ntk), P, RELU, width=width)

    lowered = jax.jit(layer, donate_argnums=(0, 1)).lower(G, jnp.zeros_like(G))
    memory = lowered.compile().memory_analysis()
    assert memory.alias_size_in_bytes == 2 * G.nbytes  # written over what came in
    assert memory.temp_size_in_bytes < G.nbytes / 4

    def all_at_once(nngp, ntk):
        kernels = gntk.transform(gntk.Kernels(nngp, ntk))
        return gntk.propagate(gntk.dense(kernels), P)

    plain = jax.jit(all_at_once).lower(G, G).compile().memory_analysis()
    assert plain.temp_size_in_bytes > G.nbytes


@pytest.mark.long
def test_a_layer_of_the_ntk_alone_skips_the_products_of_the_covariance():
    G = world(4)[1]

    def operations(ntk_only):
        def layer(kernels, P):
            return blocked.layer(
                kernels, lambda v: P @ v, RELU, width=N, ntk_only=ntk_only
            )

        compiled = jax.jit(layer).lower(gntk.initialize(G), G).compile()
        return compiled.cost_analysis()["flops"]

    assert operations(ntk_only=True) < 0.8 * operations(ntk_only=False)


@pytest.mark.long
def test_settings_share_one_trace():
    P, _ = world(5)
    count = 0

    @jax.jit
    def traced(P, G, bias_std, scale):
        nonlocal count
        count += 1
        return blocked.gcn(
            P, G, gntk.Network(2, bias="after", bias_std=bias_std, scale=scale), width=9
        )

    for seed in (5, 6):
        _, other = world(seed)
        traced(P, other, jnp.asarray(0.1 * seed), jnp.asarray(2.0))
    assert count == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": 0}, "depth must be at least 1, got 0"),
        ({"depth": 2, "width": 0}, "width must be at least 1, got 0"),
        ({"depth": 2, "bias": "both"}, "bias must be one of"),
        ({"depth": 2, "trained": (True,)}, "one flag for each of 2 layers, got 1"),
    ],
)
def test_settings_that_make_no_network_are_refused(settings, message):
    P, G = world()
    width = settings.pop("width", 8)
    with pytest.raises(ValueError, match=message):
        blocked.gcn(P, G, gntk.Network(**settings), width=width)


@pytest.mark.long
def test_types_are_promoted_as_by_the_recursion():
    P, G = world(7)
    for gram in (G.astype(jnp.float32), jnp.eye(N, dtype=jnp.int32)):
        with jax.numpy_dtype_promotion("standard"):
            found = generators.unchecked(blocked.gcn, P, gram, RELU)
            expected = generators.unchecked(gntk.gcn, P, gram.astype(float), RELU)
        assert found.ntk.dtype == np.float64
        np.testing.assert_allclose(found.ntk, expected.ntk, rtol=1e-5)


def test_a_gram_matrix_that_is_not_square_is_refused():
    P, G = world()
    with pytest.raises(ValueError, match=r"gram must be a square matrix"):
        generators.unchecked(blocked.gcn, P, G[:, :4], RELU)


def test_a_mesh_of_several_axes_is_refused():
    P, G = world()
    mesh = jax.make_mesh((1, 1), ("a", "b"))
    with pytest.raises(ValueError, match="the mesh must have one axis"):
        blocked.gcn(P, G, gntk.Network(2), mesh=mesh)


@pytest.mark.long
def test_a_mesh_of_one_device_gives_the_same():
    P, G = world(6)
    mesh = jax.make_mesh((1,), ("nodes",))
    assert_equal(
        compiled(P, G, gntk.Network(3), mesh=mesh).ntk,
        gntk.gcn(P, G, gntk.Network(3)).ntk,
    )


SHARDED = """
import jax, numpy as np, scipy.sparse, jax.numpy as jnp
from gnnrp import sparse
from gnnrp.kernels import gntk
from gnnrp.kernels.gntk import blocked
rng = np.random.default_rng(0)
P = sparse.prepare(scipy.sparse.random_array((23, 23), density=0.3, rng=rng).tocsr())
X = rng.standard_normal((23, 4))
G = jnp.asarray(X @ X.T)
mesh = jax.make_mesh((4,), ("nodes",))
gcn = jax.jit(blocked.gcn, static_argnames=("width", "mesh"))
for bias in gntk.BIASES:
    network = gntk.Network(3, bias=bias, bias_std=0.5)
    for found, expected in zip(
        gcn(P, G, network, width=4, mesh=mesh), gntk.gcn(P, G, network)
    ):
        error = np.abs(found - expected).max() / np.abs(expected).max()
        assert error < 1e-13, (bias, error)
    text = gcn.lower(P, G, network, width=4, mesh=mesh).compile().as_text()
    assert "all-to-all" in text
print(len(jax.devices()))
"""


@pytest.mark.long
def test_four_devices_share_the_columns():
    assert generators.on_four_devices(SHARDED) == "4\n"
