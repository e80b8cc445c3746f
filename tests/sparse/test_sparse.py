"""The sparse product and its rules, held against the dense product."""

import dataclasses
import functools
import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from generators import unchecked
from jax.experimental.sparse import BCOO

from gnnrp import sparse
from gnnrp.sparse import matrix as matrix_module
from gnnrp.sparse import ordering

N, K = 9, 3
KINDS = {"symmetric": (N, N), "nonsymmetric": (N, N), "rectangular": (N, 6)}
backends = pytest.mark.parametrize("backend", sparse.BACKENDS)
kinds = pytest.mark.parametrize("kind", KINDS)
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
FAST = "cpu_csr_sparse_dense"  # what XLA calls JAX's CSR kernel
needs_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="a CPU kernel")


@functools.cache
def entries(kind, dtype=np.float64):
    """About a third of the entries, one row and one column without any."""
    rng = np.random.default_rng(0)
    shape = KINDS[kind]
    dense = np.where(rng.random(shape) < 0.35, rng.normal(size=shape), 0)
    if kind == "symmetric":
        dense = np.tril(dense) + np.tril(dense, -1).T
    dense[4] = dense[:, 4] = 0
    return dense.astype(dtype)


def prepared(kind, backend, dtype=np.float64, **settings):
    dense = entries(kind, dtype)
    matrix = sparse.prepare(scipy.sparse.csr_array(dense), backend=backend, **settings)
    return dense, matrix


def right_side(rows, seed=1, dtype=np.float64, columns=K):
    return jnp.asarray(
        np.random.default_rng(seed).normal(size=(rows, columns)), dtype=dtype
    )


product = jax.jit(sparse.matmul)
batched_product = jax.jit(jax.vmap(sparse.matmul, in_axes=(None, 0)))


def product_of(data, matrix, v):
    return sparse.matmul(dataclasses.replace(matrix, data=data), v)


@jax.jit
def gradient(matrix, v):
    return jax.grad(lambda v: jnp.sum(jnp.sin(sparse.matmul(matrix, v))))(v)


@jax.jit
def entry_gradient(matrix, v):
    def loss(data):
        return jnp.sum(jnp.sin(product_of(data, matrix, v)))

    return jax.grad(loss)(matrix.data)


def lowered(fn, matrix, *args):
    """Lower with the leaves as arguments: nothing is a constant."""
    leaves, structure = jax.tree.flatten(matrix)

    def flat(leaves, *args):
        return fn(jax.tree.unflatten(structure, leaves), *args)

    return jax.jit(flat).lower(leaves, *args)


def adjacency_of(edges, n):
    i, j = np.array(edges).T
    half = scipy.sparse.coo_array((np.ones(len(i)), (i, j)), shape=(n, n))
    return scipy.sparse.csr_array(half + half.T)


def path(n):
    return list(itertools.pairwise(range(n)))


def grid(side):
    nodes = np.arange(side**2).reshape(side, side)
    right = np.stack([nodes[:, :-1].ravel(), nodes[:, 1:].ravel()], axis=1)
    down = np.stack([nodes[:-1].ravel(), nodes[1:].ravel()], axis=1)
    return np.concatenate([right, down]).tolist()


def shuffled(edges, n, seed=0):
    return np.random.default_rng(seed).permutation(n)[np.array(edges)]


# The product


@backends
@kinds
@dtypes
def test_product_equals_the_dense_one(backend, kind, dtype):
    dense, matrix = prepared(kind, backend, dtype)
    v = right_side(dense.shape[1], dtype=dtype)
    found = product(matrix, v)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, dense @ v, atol=20 * np.finfo(dtype).eps)


def test_a_matrix_is_a_linear_map():
    dense, matrix = prepared("rectangular", "auto")
    v = right_side(6)
    np.testing.assert_allclose(matrix(v), dense @ v, atol=1e-14)


@backends
@kinds
def test_a_vector_is_one_column(backend, kind):
    dense, matrix = prepared(kind, backend)
    v = right_side(dense.shape[1])
    found = product(matrix, v[:, 0])
    assert found.shape == (N,)
    np.testing.assert_allclose(found, dense @ v[:, 0], atol=1e-14)


@backends
def test_equal_indices_are_summed(backend):
    index = ([0, 1, 0, 2, 0], [1, 0, 1, 2, 1])
    coo = scipy.sparse.coo_array(([1.0, 2.0, 4.0, 5.0, 8.0], index), shape=(3, 3))
    matrix = sparse.prepare(coo, backend=backend)
    np.testing.assert_array_equal(matrix(jnp.eye(3)), coo.toarray())


@pytest.mark.long
def test_bcoo_and_every_scipy_format_are_laid_out_alike():
    dense = entries("nonsymmetric")
    expected = jax.tree.leaves(sparse.prepare(scipy.sparse.csr_array(dense)))
    kinds = [
        BCOO.fromdense(jnp.asarray(dense)),
        BCOO.fromdense(jnp.asarray(dense.T)).T,  # not sorted
        *(scipy.sparse.coo_array(dense).asformat(f) for f in ("csc", "lil", "bsr")),
        scipy.sparse.csr_matrix(dense),
    ]
    for adjacency in kinds:
        found = jax.tree.leaves(sparse.prepare(adjacency))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_input_is_left_as_it_was():
    csr = scipy.sparse.csr_array(
        (np.ones(4), np.array([2, 0, 1, 1]), np.array([0, 2, 3, 4])), shape=(3, 3)
    )
    sparse.prepare(csr, reorder=False)
    np.testing.assert_array_equal(csr.indices, [2, 0, 1, 1])


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("kind", ["symmetric", "nonsymmetric"])
@backends
def test_a_matrix_of_half_precision_is_prepared_in_it(backend, kind, dtype):
    dense = jnp.asarray(entries(kind), dtype)
    matrix = sparse.prepare(BCOO.fromdense(dense), backend=backend)
    assert matrix.data.dtype == dtype
    v = right_side(N, dtype=dtype)
    expected = dense.astype(jnp.float32) @ v.astype(jnp.float32)
    np.testing.assert_array_equal(product(matrix, v), expected.astype(dtype))


def test_sums_beyond_half_precision_are_refused_and_in_single_are_sums():
    index = jnp.array([[0, 1], [0, 1], [1, 0]])
    twice = BCOO((jnp.full(3, 4e4, jnp.float16), index), shape=(2, 2))
    assert sparse.to_scipy(twice).toarray()[0, 1] == 80_000
    with pytest.raises(ValueError, match="must be finite, and row 0 has one that is"):
        sparse.prepare(twice)


def test_entries_of_equal_indices_are_summed_without_wrapping_around():
    index = jnp.array([[0, 1], [0, 1], [1, 0]])
    small = BCOO((jnp.full(3, 100, jnp.int8), index), shape=(2, 2))
    np.testing.assert_array_equal(
        sparse.to_scipy(small).toarray(), [[0, 200], [100, 0]]
    )


@pytest.mark.parametrize("dtype", [bool, np.int32])
def test_entries_that_are_no_floats_become_floats(dtype):
    dense = (entries("symmetric") != 0).astype(dtype)
    matrix = sparse.prepare(scipy.sparse.csr_array(dense))
    assert matrix.data.dtype == np.float64
    np.testing.assert_array_equal(matrix(jnp.eye(N)), dense)


@backends
def test_a_matrix_without_entries_gives_zeros(backend):
    matrix = sparse.prepare(scipy.sparse.csr_array((4, 4)), backend=backend)
    np.testing.assert_array_equal(matrix(jnp.ones((4, 2))), np.zeros((4, 2)))


@backends
@pytest.mark.parametrize("sides", [("f4", "f8"), ("f8", "f4")])
def test_both_sides_are_promoted_to_the_wider_type(backend, sides):
    dense, matrix = prepared("nonsymmetric", backend, np.dtype(sides[0]).type)
    v = right_side(N, dtype=sides[1])
    with jax.numpy_dtype_promotion("standard"):
        found, bar = product(matrix, v), gradient(matrix, v)
    assert found.dtype == np.float64
    assert bar.dtype == v.dtype
    expected = dense.astype("f8") @ np.asarray(v, "f8")
    np.testing.assert_allclose(found, expected, atol=1e-14)


# Derivatives and batches


@backends
@kinds
@dtypes
def test_gradient_is_that_of_the_dense_product(backend, kind, dtype):
    dense, matrix = prepared(kind, backend, dtype)
    v = right_side(dense.shape[1], dtype=dtype)
    expected = dense.T @ np.cos(dense @ v)
    atol = 40 * np.finfo(dtype).eps
    np.testing.assert_allclose(gradient(matrix, v), expected, atol=atol)


@backends
@kinds
def test_gradient_of_a_vector_is_one_column(backend, kind):
    dense, matrix = prepared(kind, backend)
    v = right_side(dense.shape[1])[:, 0]
    expected = dense.T @ np.cos(dense @ v)
    np.testing.assert_allclose(gradient(matrix, v), expected, atol=1e-14)


@backends
@kinds
def test_gradient_of_the_gradient_is_that_of_the_dense_product(backend, kind):
    dense, matrix = prepared(kind, backend)
    v, direction = right_side(dense.shape[1]), right_side(dense.shape[1], 2)

    @jax.jit
    def second(matrix, v):
        return jax.grad(lambda v: jnp.sum(gradient(matrix, v) * direction))(v)

    expected = -dense.T @ (np.sin(dense @ v) * (dense @ direction))
    np.testing.assert_allclose(second(matrix, v), expected, atol=1e-13)


@backends
@kinds
def test_gradient_in_the_entries_is_the_dense_one_where_they_stand(backend, kind):
    dense, matrix = prepared(kind, backend)
    v = right_side(dense.shape[1])
    expected = (np.cos(dense @ v) @ v.T)[dense.nonzero()]
    np.testing.assert_allclose(entry_gradient(matrix, v), expected, atol=1e-13)


@backends
def test_gradient_in_the_entries_through_two_products(backend):
    dense, matrix = prepared("rectangular", backend)
    back = sparse.prepare(scipy.sparse.csr_array(dense.T), backend=backend)
    v = right_side(dense.shape[1])

    @jax.jit
    @jax.grad
    def found(data):
        return jnp.sum(sparse.matmul(back, product_of(data, matrix, v)))

    expected = dense @ np.ones((dense.shape[1], K)) @ v.T
    np.testing.assert_allclose(
        found(matrix.data), expected[dense.nonzero()], atol=1e-13
    )


@backends
@pytest.mark.parametrize(
    ("kind", "axis"), [("symmetric", 0), ("nonsymmetric", 1), ("rectangular", 2)]
)
def test_a_batch_of_right_sides_equals_a_loop(backend, kind, axis):
    dense, matrix = prepared(kind, backend)
    batch = np.stack([right_side(dense.shape[1], s) for s in range(4)], axis=axis)
    found = jax.vmap(product, in_axes=(None, axis))(matrix, jnp.asarray(batch))
    expected = [dense @ v for v in np.moveaxis(batch, axis, 0)]
    np.testing.assert_allclose(found, expected, atol=1e-14)


@backends
def test_batches_of_batches_and_of_vectors_equal_loops(backend):
    dense, matrix = prepared("nonsymmetric", backend)
    batch = jnp.stack([right_side(N, s) for s in range(4)])
    vectors = jax.vmap(jax.vmap(matrix, in_axes=1, out_axes=1))(batch)
    np.testing.assert_allclose(vectors, dense @ batch, atol=1e-14)
    twice = jax.vmap(jax.vmap(matrix))(batch.reshape(2, 2, N, K))
    np.testing.assert_allclose(twice.reshape(4, N, K), dense @ batch, atol=1e-14)


@backends
@pytest.mark.parametrize(
    ("kind", "both"), [("symmetric", True), ("nonsymmetric", False)]
)
def test_a_batch_of_entries_equals_a_loop(backend, kind, both):
    dense, matrix = prepared(kind, backend)
    v = jnp.stack([right_side(dense.shape[1], s) for s in range(3)])
    factors = np.array([1.0, -2.0, 0.5])[:, None, None]
    found = jax.jit(jax.vmap(product_of, in_axes=(0, None, 0 if both else None)))(
        factors[:, 0] * matrix.data, matrix, v if both else v[0]
    )
    expected = factors * (dense @ (v if both else v[0]))
    np.testing.assert_allclose(found, expected, atol=1e-14)


@pytest.mark.long
@backends
def test_gradients_of_a_batch_and_batches_of_gradients_agree(backend):
    dense, matrix = prepared("nonsymmetric", backend)
    batch = jnp.stack([right_side(N, s) for s in range(3)])

    def loss(data, v):
        return jnp.sum(jnp.sin(product_of(data, matrix, v)))

    def batch_loss(data, batch):
        return jnp.sum(jax.vmap(loss, in_axes=(None, 0))(data, batch))

    each = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1)), in_axes=(None, 0)))(
        matrix.data, batch
    )
    whole = jax.jit(jax.grad(batch_loss, argnums=(0, 1)))(matrix.data, batch)
    slopes = np.cos(dense @ batch)
    np.testing.assert_allclose(each[1], dense.T @ slopes, atol=1e-13)
    np.testing.assert_allclose(whole[1], dense.T @ slopes, atol=1e-13)
    outer = (slopes @ np.swapaxes(batch, 1, 2))[:, *dense.nonzero()]
    np.testing.assert_allclose(each[0], outer, atol=1e-13)
    np.testing.assert_allclose(whole[0], outer.sum(0), atol=1e-13)


# Under jit


@backends
def test_matrices_with_equally_many_entries_share_one_trace(backend):
    traces = []

    @jax.jit
    def traced(matrix, v):
        traces.append(1)
        return sparse.matmul(matrix, v)

    dense = entries("nonsymmetric")
    v = right_side(N)
    for other in (dense, dense[::-1], dense[:, ::-1] * 2):
        matrix = sparse.prepare(scipy.sparse.csr_array(other), backend=backend)
        np.testing.assert_allclose(traced(matrix, v), other @ v, atol=1e-13)
    assert len(traces) == 1


@needs_cpu
@pytest.mark.parametrize("kind", ["symmetric", "nonsymmetric"])
def test_product_batch_and_gradient_all_end_in_the_fast_cpu_kernel(kind):
    _, matrix = prepared(kind, "auto")
    v = right_side(N)
    batch = jnp.stack([v, v])

    batched_gradient = jax.vmap(gradient, in_axes=(None, 0))
    for fn, side, count in (
        (sparse.matmul, v, 1),
        (batched_product, batch, 1),
        (gradient, v, 2),
        (batched_gradient, batch, 2),
    ):
        text = lowered(fn, matrix, side).as_text()
        assert text.count(FAST) == count
        assert "scatter" not in text


def second_derivatives(matrix, v, direction):
    """Name -> derivative of sum(sin(A v)) along directions, by every nesting."""

    def loss(v):
        return jnp.sum(jnp.sin(sparse.matmul(matrix, v)))

    def along(fn):
        return jax.jvp(fn, (v,), (direction,))[1]

    return {
        "forward over reverse": along(jax.grad(loss)),
        "reverse over forward": jax.grad(
            lambda w: jax.jvp(loss, (w,), (direction,))[1]
        )(v),
        "linearized": jax.linearize(jax.grad(loss), v)[1](direction),
    }


@backends
@kinds
def test_forward_mode_is_the_product_of_the_tangent(backend, kind):
    dense, matrix = prepared(kind, backend)
    v, direction = right_side(dense.shape[1]), right_side(dense.shape[1], 2)
    out, tangent = jax.jvp(functools.partial(product, matrix), (v,), (direction,))
    np.testing.assert_allclose(out, dense @ v, atol=1e-14)
    np.testing.assert_allclose(tangent, dense @ direction, atol=1e-14)
    moved = 2 * matrix.data
    entry = jax.jvp(lambda d: product_of(d, matrix, v), (matrix.data,), (moved,))[1]
    np.testing.assert_allclose(entry, 2 * dense @ v, atol=1e-13)


@backends
@kinds
def test_derivatives_nest_in_every_order(backend, kind):
    dense, matrix = prepared(kind, backend)
    v, direction = right_side(dense.shape[1]), right_side(dense.shape[1], 2)
    expected = -dense.T @ (np.sin(dense @ v) * (dense @ direction))
    for name, found in jax.jit(second_derivatives)(matrix, v, direction).items():
        np.testing.assert_allclose(found, expected, atol=1e-13, err_msg=name)


@backends
@kinds
def test_linear_transpose_is_the_product_with_the_transpose(backend, kind):
    dense, matrix = prepared(kind, backend)
    v, cotangent = right_side(dense.shape[1]), right_side(N, 2)
    transpose = jax.linear_transpose(functools.partial(sparse.matmul, matrix), v)
    np.testing.assert_allclose(transpose(cotangent)[0], dense.T @ cotangent, atol=1e-14)


@backends
@pytest.mark.parametrize("kind", ["nonsymmetric", "rectangular"])
def test_second_derivatives_mix_entries_and_right_side(backend, kind):
    dense, matrix = prepared(kind, backend)
    v = right_side(dense.shape[1])
    rows, columns = dense.nonzero()

    def sparse_loss(data, v):
        return jnp.sum(jnp.sin(product_of(data, matrix, v)))

    def dense_loss(data, v):
        full = jnp.zeros(dense.shape).at[rows, columns].set(data)
        return jnp.sum(jnp.sin(full @ v))

    data = jnp.asarray(dense[rows, columns])
    tangents = jnp.cos(data), right_side(dense.shape[1], 3)

    @functools.partial(jax.jit, static_argnums=0)
    def second(loss, data, v):
        return jax.jvp(jax.grad(loss, argnums=(0, 1)), (data, v), tangents)[1]

    for found, expected in zip(
        second(sparse_loss, data, v), second(dense_loss, data, v), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-12)


@needs_cpu
@pytest.mark.parametrize("kind", ["symmetric", "nonsymmetric"])
def test_forward_mode_and_its_batches_end_in_the_fast_cpu_kernel(kind):
    _, matrix = prepared(kind, "auto")
    v = right_side(N)

    def tangent(matrix, v, direction):
        return jax.jvp(lambda v: sparse.matmul(matrix, v), (v,), (direction,))[1]

    def curvature(matrix, v, direction):
        return jax.jvp(lambda v: gradient(matrix, v), (v,), (direction,))[1]

    batches = jnp.stack([v, v])
    for fn, count in ((tangent, 1), (curvature, 3)):
        batched = jax.vmap(fn, in_axes=(None, 0, 0))
        for text in (
            lowered(fn, matrix, v, v).as_text(),
            lowered(batched, matrix, batches, batches).as_text(),
        ):
            assert text.count(FAST) <= count
            assert FAST in text
            assert "scatter" not in text


@backends
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_accumulates_in_single(backend, dtype):
    n = 4096  # ones added up in half precision would stop at 256 or 2048
    row = scipy.sparse.csr_array(np.ones((1, n), np.float32))
    matrix = sparse.prepare(row, backend=backend)
    matrix = dataclasses.replace(matrix, data=matrix.data.astype(dtype))
    out = product(matrix, jnp.ones((n, 2), dtype))
    assert out.dtype == dtype
    assert (out == n).all()


@backends
def test_a_dtype_without_a_kernel_is_refused(backend):
    _, matrix = prepared("symmetric", backend)
    with (
        jax.numpy_dtype_promotion("standard"),
        pytest.raises(TypeError, match="complex128"),
    ):
        sparse.matmul(matrix, jnp.ones((N, 1), complex))


@needs_cpu
def test_other_backends_do_without_the_cpu_kernel():
    for backend in ("bcoo", "segment_sum"):
        _, matrix = prepared("symmetric", backend)
        assert FAST not in lowered(sparse.matmul, matrix, right_side(N)).as_text()


def test_the_backend_is_chosen_by_platform(monkeypatch):
    for platform, backend in (
        ("cpu", "bcsr"),
        ("gpu", "segment_sum"),
        ("tpu", "segment_sum"),
    ):
        monkeypatch.setattr(jax, "default_backend", lambda platform=platform: platform)
        assert prepared("symmetric", "auto")[1].backend == backend
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(
        jax, "config", types.SimpleNamespace(jax_bcoo_cusparse_lowering=True)
    )
    assert matrix_module._default_backend() == "bcoo"


@needs_cpu
@pytest.mark.parametrize("reorder", [True, False])
def test_a_product_holds_less_than_thrice_its_output(reorder):  # field report 18
    rng = np.random.default_rng(0)
    n, columns = 4_000, 40
    half = scipy.sparse.coo_array(
        (np.ones(50_000), rng.integers(0, n, (2, 50_000))), shape=(n, n)
    )
    matrix = sparse.prepare(half + half.T, reorder=reorder)
    v = right_side(n, columns=columns)
    copied = matrix.data.size * columns * 8
    for fn, side, products in (
        (sparse.matmul, v, 1),
        (batched_product, jnp.stack([v, v]), 1),
        (gradient, v, 2),
    ):
        memory = lowered(fn, matrix, side).compile().memory_analysis()
        output = memory.output_size_in_bytes
        assert output == side.nbytes
        assert memory.temp_size_in_bytes < 3 * products * output < copied


# The order of the nodes


@pytest.mark.parametrize(
    ("values", "backend"),
    [
        ("symmetric", "bcsr"),
        *(("pattern only", backend) for backend in sparse.BACKENDS),
    ],
)
def test_a_reordered_matrix_answers_as_the_natural_one(backend, values):
    rng = np.random.default_rng(0)
    dense = adjacency_of(shuffled(path(20), 20), 20).toarray()
    dense[dense != 0] = rng.random(np.count_nonzero(dense))
    if values == "symmetric":
        dense = dense + dense.T
    csr = scipy.sparse.csr_array(dense)
    assert sparse.prepare(csr, backend=backend, reorder=False).order is None
    matrix = sparse.prepare(csr, backend=backend, reorder=True)
    assert np.any(np.diff(matrix.order[0]) != 1)
    v, batch = right_side(20), jnp.stack([right_side(20, s) for s in range(3)])
    np.testing.assert_allclose(product(matrix, v), dense @ v, atol=1e-14)
    np.testing.assert_allclose(
        batched_product(matrix, batch), dense @ batch, atol=1e-14
    )
    np.testing.assert_allclose(
        gradient(matrix, v), dense.T @ np.cos(dense @ v), atol=1e-13
    )


def test_reordering_brings_neighbors_closer():
    matrix = sparse.prepare(adjacency_of(shuffled(path(50), 50), 50), reorder=True)
    rows = np.repeat(np.arange(50), np.diff(matrix.pattern.rows))
    assert np.max(np.abs(rows - np.asarray(matrix.pattern.columns))) == 1


@pytest.mark.parametrize("kind", ["nonsymmetric", "rectangular"])
def test_reordering_needs_a_symmetric_pattern(kind):
    with pytest.raises(ValueError, match="reorder=True needs a symmetric pattern"):
        prepared(kind, "bcsr", reorder=True)
    assert prepared(kind, "bcsr")[1].order is None


@pytest.mark.parametrize(
    ("edges", "n"), [(path(200), 200), (grid(15), 225)], ids=["path", "grid"]
)
def test_nodes_are_reordered_only_where_it_pays(monkeypatch, edges, n):
    scattered = adjacency_of(shuffled(edges, n), n)
    assert sparse.prepare(scattered).order is None
    monkeypatch.setattr(ordering, "REORDER_FROM", n + 1)
    assert sparse.prepare(scattered).order is None
    monkeypatch.setattr(ordering, "REORDER_FROM", n)
    assert sparse.prepare(scattered).order is not None
    assert sparse.prepare(scattered, reorder=False).order is None
    assert sparse.prepare(adjacency_of(edges, n)).order is None  # already in order


def communities(backend):
    """Eighty dense groups of fifty nodes, loosely joined, and shuffled."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(80), 50)
    inside = 50 * group[:, None] + rng.integers(0, 50, (4000, 12))
    pairs = np.stack([np.repeat(np.arange(4000), 12), inside.ravel()], axis=1)
    bridges = rng.integers(0, 4000, (2000, 2))
    pairs = np.concatenate([pairs[pairs[:, 0] != pairs[:, 1]], bridges])
    csr = adjacency_of(shuffled(pairs.tolist(), 4000), 4000)
    return csr, lambda: sparse.prepare(csr, backend=backend, reorder=True)


@pytest.mark.long
@backends
def test_communities_stand_together(monkeypatch, backend):
    csr, prepare = communities(backend)
    plain = prepare()
    monkeypatch.setattr(ordering, "_CLUSTER_FROM", 1)
    monkeypatch.setattr(ordering, "_CLUSTER_SIZE", 50)
    clustered = prepare()
    near, far = (
        ordering._distance(csr, np.asarray(matrix.order[1]))
        for matrix in (clustered, plain)
    )
    assert near < far - 1  # half the distance and less
    v = right_side(4000)
    np.testing.assert_allclose(product(clustered, v), csr @ v, atol=1e-12)
    # A path has no communities: what is no better is not taken.
    path_like = adjacency_of(shuffled(path(300), 300), 300)
    matrix = sparse.prepare(path_like, backend=backend, reorder=True)
    rows = np.asarray(matrix.order[1])
    assert np.abs(np.diff(rows[np.array(shuffled(path(300), 300))])).max() == 1


def test_a_matrix_without_entries_needs_no_order(monkeypatch):
    monkeypatch.setattr(ordering, "REORDER_FROM", 1)
    matrix = sparse.prepare(scipy.sparse.csr_array((4, 4)))
    np.testing.assert_array_equal(matrix(jnp.ones((4, 2))), np.zeros((4, 2)))


# Repeated products

UPDATES = {
    "power": lambda new, *_: new,
    "restart": lambda new, _, start: 0.8 * new + 0.2 * start,
    "lazy": lambda new, old, _: 0.5 * new + 0.5 * old,
    "all three": lambda new, old, start: jnp.tanh(new) - 0.3 * old + start,
}
updates = pytest.mark.parametrize("update_fn", UPDATES.values(), ids=UPDATES)
steps = pytest.mark.parametrize("num_steps", [0, 1, 4])


def repeated(dense, update_fn, start, num_steps):
    v = start
    for _ in range(num_steps):
        v = update_fn(dense @ v, v, start)
    return v


@updates
@steps
def test_iterating_a_matrix_equals_repeated_products(update_fn, num_steps):
    dense, matrix = prepared("symmetric", "auto", reorder=True)
    start = right_side(N)
    found = sparse.propagate(matrix, update_fn, start, num_steps)
    expected = repeated(dense, update_fn, start, num_steps)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@updates
@steps
def test_iterating_any_linear_map_equals_repeated_products(update_fn, num_steps):
    dense, start = entries("nonsymmetric"), right_side(N)
    found = sparse.propagate(lambda v: dense @ v, update_fn, start, num_steps)
    expected = repeated(dense, update_fn, start, num_steps)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@backends
@pytest.mark.parametrize("kind", ["symmetric", "nonsymmetric"])
def test_iterating_a_vector_gives_a_vector(backend, kind):
    dense, matrix = prepared(kind, backend)
    start, update_fn = right_side(N)[:, 0], UPDATES["all three"]
    found = sparse.propagate(matrix, update_fn, start, 3)
    expected = repeated(dense, update_fn, start, 3)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@backends
def test_gradient_through_repeated_products_is_the_dense_one(backend):
    dense, matrix = prepared("symmetric", backend, reorder=True)

    @jax.jit
    @jax.grad
    def found(v):
        return jnp.sum(jnp.sin(sparse.propagate(matrix, UPDATES["restart"], v, 3)))

    v = right_side(N)
    walk, power = 0, np.eye(N)
    for _ in range(3):
        walk, power = walk + 0.2 * power, 0.8 * dense @ power
    walk = walk + power
    np.testing.assert_allclose(found(v), walk.T @ np.cos(walk @ v), atol=1e-12)


# What is refused


@backends
@pytest.mark.parametrize("shape", [(N,), (5, K), (7, K), (6, K, 1), ()])
def test_right_sides_that_do_not_fit_are_refused(backend, shape):
    _, matrix = prepared("rectangular", backend)
    with pytest.raises(ValueError, match=r"a 9 x 6 matrix .*\(6, k\) or \(6,\), got"):
        sparse.matmul(matrix, jnp.ones(shape))


@pytest.mark.long
def test_an_unknown_backend_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="got 'bcrs'; did you mean 'bcsr'"):
        prepared("symmetric", "bcrs")


@pytest.mark.parametrize(
    "adjacency",
    [
        scipy.sparse.coo_array((2**45, 2**45)),
        scipy.sparse.coo_array((3, 2**45)),
        BCOO((np.zeros(0), np.zeros((0, 2), np.int32)), shape=(2**45, 2**45)),
    ],
    ids=["square", "wide", "bcoo"],
)
def test_what_int32_cannot_address_is_refused_before_anything_is_allocated(
    adjacency,
):  # field report 22; row pointers of 256 TiB would fail another way
    with pytest.raises(ValueError, match=r"rows, more than int32 .*row blocks"):
        sparse.prepare(adjacency)


@pytest.mark.long
@pytest.mark.parametrize(
    ("rows", "num_steps", "message"),
    [
        (N - 1, 2, r"a 9 x 9 matrix multiplies arrays of shape \(9, k\) or \(9,\)"),
        (N, -1, "num_steps must be at least 0, got -1"),
        (N, 1.5, "num_steps must be a whole number, got 1.5"),
    ],
)
def test_repeated_products_are_checked_before_they_are_traced(rows, num_steps, message):
    _, matrix = prepared("symmetric", "bcsr")
    with pytest.raises((ValueError, TypeError), match=message):
        unchecked(
            sparse.propagate,
            matrix,
            lambda new, *_: new,
            jnp.ones((rows, 2)),
            num_steps,
        )


@pytest.mark.long
def test_repeated_products_need_a_square_matrix_and_a_map():
    _, wide = prepared("rectangular", "bcsr")
    with pytest.raises(ValueError, match=r"2 products need a square matrix"):
        sparse.propagate(wide, lambda new, *_: new, jnp.ones((6, 1)), 2)
    with pytest.raises(TypeError, match="must be a linear map, got ndarray"):
        unchecked(sparse.propagate, np.eye(3), lambda new, *_: new, jnp.ones((3, 1)), 2)
