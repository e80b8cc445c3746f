"""Symmetry of similarities: decided locally, whatever the number of nodes."""

import dataclasses
import functools

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from generators import every_similarity

from gnnrp import graph, metrics, sparse
from gnnrp.kernels import features, generalization
from gnnrp.kernels.features import low_rank
from gnnrp.kernels.gntk import closed_forms
from gnnrp.propagation import exact, label, linear_maps, similarity, symmetry
from gnnrp.types import Split

FLOAT64 = jnp.dtype("float64")
EPS = np.finfo(np.float64).eps
MANY = 400_000


def ring_adjacency(size, one_way):
    """A ring, perhaps with one more edge from node 10 to the other side."""
    nodes = np.arange(size)
    edges = np.stack([nodes, (nodes + 1) % size])
    edges = np.concatenate([edges, edges[::-1]], axis=1)
    if one_way:
        edges = np.concatenate([edges, [[10], [size // 2]]], axis=1)
    return graph.normalized_adjacency(edges, size, directed=True)


@functools.cache
def ring(one_way):
    with jax.enable_x64(False):
        return similarity.Power(sparse.prepare(ring_adjacency(MANY, one_way)), 3)


def ring_problem(size):
    there = size // 2
    train, targets = np.zeros(size, bool), np.zeros((size, 2), np.float32)
    train[[5, 9, 12, there - 1, there + 2]] = True
    targets[[5, 9, 12], 0] = targets[[there - 1, there + 2], 1] = 1
    none = np.zeros(size, bool)
    return targets, Split(train, none, none)


def stepped(size, num_steps):
    """RP on a ring with the one-way edge, in numpy."""
    A = ring_adjacency(size, one_way=True).todense()
    S = np.linalg.matrix_power(np.asarray(A, np.float64), 3)
    targets, split = ring_problem(size)
    F = np.zeros(targets.shape)
    for _ in range(num_steps):
        F += 0.5 * S @ np.where(split.train[:, None], targets - F, 0)
    return F


@pytest.mark.long
@pytest.mark.parametrize("form", ["entries", "function"])
def test_one_one_way_edge_among_many_nodes_makes_auto_iterate(form):
    S = ring(one_way=True)
    with jax.enable_x64(False):
        found = generators.run(
            S if form == "entries" else lambda v: S(v),
            *ring_problem(MANY),
            step_size=0.5,
            num_steps=20,
            metric=metrics.accuracy,
        )
    assert found.report.solver == "iterate"
    assert found.report.reason.endswith(symmetry.ASYMMETRIC)
    expected = stepped(400, 20)  # nothing comes round the ring in 60 hops
    for here, there in ((10, 10), (MANY // 2, 200)):
        np.testing.assert_allclose(found.predictions[here], expected[there], atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("method", ["exact", "krylov"])
def test_closed_forms_refuse_one_one_way_edge_among_many_nodes(method):
    run = functools.partial(
        generators.run,
        ring(one_way=True),
        *ring_problem(MANY),
        step_size=0.5,
        num_steps=20,
        metric=metrics.accuracy,
    )
    with jax.enable_x64(False), pytest.raises(ValueError, match="is not symmetric"):
        run(method=method)


@pytest.mark.long
@pytest.mark.parametrize("form", ["entries", "function"])
def test_a_long_ring_is_symmetric(form):
    S = ring(one_way=False)
    with jax.enable_x64(False):
        S = S if form == "entries" else linear_maps.as_pytree(lambda v, S=S: S(v))
        assert symmetry.find_asymmetry(S, MANY, jnp.dtype("float32")) is None


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_round_off_of_a_hub_is_no_asymmetry(dtype):
    edges = np.stack([np.zeros(MANY - 1, int), np.arange(1, MANY)])
    adjacency = graph.normalized_adjacency(edges, MANY).astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        A = sparse.prepare(adjacency)
        S = linear_maps.as_pytree(lambda v: A(A(A(v))))
        assert symmetry.find_asymmetry(S, MANY, jnp.dtype(dtype)) is None


@pytest.mark.long
@every_similarity
@pytest.mark.parametrize("form", ["map", "function"])
def test_every_similarity_is_as_symmetric_as_its_matrix(case, form):
    S = case.make(generators.world(0))
    S = linear_maps.as_pytree(S if form == "map" else lambda v, S=S: S(v))
    found = symmetry.find_asymmetry(S, generators.N, FLOAT64)
    assert found == (None if case.symmetric else symmetry.ASYMMETRIC)


def test_maps_of_symmetric_parts_need_no_product():
    world = generators.world(0)
    kernel = features.build(world.features)
    factored = low_rank.Factored(jnp.asarray(world.features))
    distinct = low_rank.distinct(world.features)
    for inner in (kernel, factored, distinct, similarity.Dense(jnp.eye(generators.N))):
        S = similarity.Sandwich(similarity.Restart(world.matrix, 2, 0.5), inner)
        assert symmetry.stored_symmetry(S, EPS) is True
    by_rows = similarity.Sandwich(world.by_rows, kernel)
    assert symmetry.stored_symmetry(by_rows, EPS) is False
    assert symmetry.stored_symmetry(similarity.Power(world.by_rows, 0), EPS) is True
    assert symmetry.stored_symmetry(lambda v: v, EPS) is None


@pytest.mark.long
def test_a_kernel_function_that_is_not_symmetric_is_found():
    x = np.random.default_rng(0).random((generators.N, 3))
    one_sided = features.build(
        x, lambda x, y, _: jnp.exp(x[:, :1] + 2 * y[:, 0]), normalized=False
    )
    assert symmetry.find_asymmetry(one_sided, len(x), FLOAT64) == symmetry.ASYMMETRIC


def lopsided(size):
    """Symmetric but for one pair, where all entries are 1e-9 of those elsewhere."""
    M = generators.positive_definite(0, size)
    M[:3, 3:] = M[3:, :3] = 0
    M[:3, :3] *= 1e-9
    M[0, 1] *= 1.5
    return M


@pytest.mark.parametrize(
    "make",
    [
        lambda M: similarity.Dense(jnp.asarray(M, jnp.float32)),
        lambda M: sparse.prepare(scipy.sparse.csr_array(M)),
        lambda M: linear_maps.as_pytree(lambda v: jnp.asarray(M, v.dtype) @ v),
    ],
    ids=["dense", "sparse", "function"],
)
def test_large_entries_elsewhere_hide_no_asymmetry(make):
    S = make(lopsided(8))
    assert symmetry.find_asymmetry(S, 8, jnp.dtype("float32")) == symmetry.ASYMMETRIC


def test_factorize_refuses_an_asymmetric_pair_beside_large_entries():
    S = lopsided(8).astype(np.float32)
    with pytest.raises(ValueError, match=r"entry \(0, 1\) of S_XX"):
        exact.factorize(S, np.arange(8))


def test_round_off_of_a_sparse_matrix_is_no_asymmetry():
    M = generators.positive_definite(0, 8)
    M[0, 1] *= 1 + 4 * EPS
    S = sparse.prepare(scipy.sparse.csr_array(M))
    assert symmetry.stored_symmetry(S, EPS) is True
    M[0, 1] *= 1 + 1e5 * EPS
    S = sparse.prepare(scipy.sparse.csr_array(M))
    assert symmetry.stored_symmetry(S, EPS) is False


def callback(v):
    same = jax.ShapeDtypeStruct(v.shape, v.dtype)
    return jax.pure_callback(lambda x: np.asarray(x), same, v)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cumulative:
    def __call__(self, v):
        return jnp.cumsum(v, axis=0)

    def is_symmetric(self):
        return True


@pytest.mark.long
def test_a_method_named_is_symmetric_is_no_statement():
    found = symmetry.find_asymmetry(Cumulative(), 10, FLOAT64)
    assert found == symmetry.ASYMMETRIC


@pytest.mark.long
def test_a_map_that_jax_cannot_transpose_is_iterated():
    targets, split = generators.targets(0), generators.split(0)
    run = functools.partial(
        generators.run,
        callback,
        targets,
        split,
        step_size=0.5,
        num_steps=5,
        metric=metrics.accuracy,
    )
    report = run().report
    assert report.solver == "iterate"
    assert report.reason.endswith(symmetry.UNKNOWN)
    with pytest.raises(ValueError, match="cannot transpose the similarity"):
        run(method="krylov")


def one_easy_column(size):
    """A ring, and columns of which the first, large and constant, is an eigenvector."""
    A = ring_adjacency(size, one_way=False)
    start = np.zeros((size, 2))
    start[:, 0], start[0, 1] = 1e12, 1
    return A, start


def second_column(scores, targets, mask):
    del targets
    return jnp.sum(jnp.where(mask, scores[:, 1], 0))


@pytest.mark.long
def test_krylov_is_as_accurate_in_columns_of_small_targets():
    A, targets = one_easy_column(300)
    val = np.arange(300) % 30 == 1
    found = [
        generators.run(
            similarity.Power(sparse.prepare(A), 2),
            targets,
            Split(~val, val, val),
            step_size=0.5,
            num_steps=100,
            metric=second_column,
            method=method,
        )
        for method in ("krylov", "iterate")
    ]
    curves, predictions = (
        [getattr(x, name) for x in found] for name in ("val", "predictions")
    )
    np.testing.assert_allclose(*curves, atol=1e-9)
    np.testing.assert_allclose(*(F[:, 1] for F in predictions), atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_limit_is_as_accurate_in_columns_of_small_seeds(symmetric):
    A, start = one_easy_column(300)
    limit = label.limit(
        sparse.prepare(A), jnp.asarray(start), alpha=0.9, symmetric=symmetric
    )
    system = np.eye(len(start)) - 0.9 * A.todense()
    expected = 0.1 * np.linalg.solve(system, start[:, 1])
    np.testing.assert_allclose(limit[:, 1], expected, atol=1e-6)


@pytest.mark.long
def test_adjacencies_of_small_entries_must_be_symmetric_too():
    A = 1e-9 * lopsided(8)[:3, :3]
    with pytest.raises(ValueError, match="symmetric"):
        closed_forms.spectral_gram(A)
    with pytest.raises(ValueError, match="symmetric"):
        generalization.bound(A, np.ones(3), np.ones(3, bool), alpha=0.1)
