"""What the boundary refuses, in one sentence, before anything is computed."""

import dataclasses

import generators
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import scipy.sparse
from generators import unchecked

from gnnrp import datasets, graph, metrics, sparse
from gnnrp.kernels import features
from gnnrp.propagation import exact, label, linear_maps, similarity
from gnnrp.runtime import json_files
from gnnrp.studies import presets, similarities, tables
from gnnrp.studies import rp as rp_study
from gnnrp.types import Split

N, C = 12, 3


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    A = rng.random((N, N))
    A = (A + A.T) / N
    targets = np.eye(C)[rng.integers(0, C, N)]
    node = np.arange(N)
    return A, targets, Split(node < 4, (node >= 4) & (node < 8), node >= 8)


def run(S, targets, split, **settings):
    settings = {"step_size": 0.1, "num_steps": 3, "metric": metrics.accuracy} | settings
    return generators.run(S, targets, split, **settings)


@pytest.mark.parametrize("wrong", ["array", "scipy", None])
def test_a_similarity_that_is_no_map_is_named_with_the_remedy(world, wrong):
    A = world[0]
    S = {"array": A, "scipy": scipy.sparse.csr_array(A), None: None}[wrong]
    with pytest.raises(TypeError, match=r"map V -> S V.*similarity\.Dense"):
        unchecked(linear_maps.as_pytree, S)


@pytest.mark.parametrize("name", ["metric", "residual_fn"])
def test_a_name_where_a_function_belongs_is_named(world, name, monkeypatch):
    A, targets, split = world
    settings = {"step_sizes": [0.1], "num_steps": 3, "metric": metrics.accuracy}
    settings[name] = "accuracy"
    settings["method"] = "iterate"
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users have it
    S = similarity.Dense(jnp.asarray(A))
    with pytest.raises(TypeError, match=f"{name} must be a function"):
        generators.run(S, targets, split, **settings)


def test_training_nodes_without_any_known_target_are_refused(world):
    A, targets, split = world
    unknown = np.where(split.train[:, None], np.nan, targets)
    with pytest.raises(ValueError, match="no training node with a known target"):
        run(similarity.Dense(jnp.asarray(A)), unknown, split)


def test_no_split_is_refused(world):
    A, targets, split = world
    none = Split(*(np.zeros((0, N), bool) for _ in split))
    with pytest.raises(ValueError, match="a split and a class, got 0 and 3"):
        run(similarity.Dense(jnp.asarray(A)), targets, none)


@pytest.mark.parametrize("index", [[-1], [0, N]])
def test_columns_that_do_not_exist_are_refused(world, index):
    S = similarity.Dense(jnp.asarray(world[0]))
    with pytest.raises(ValueError, match=f"index: node {index[-1]} is not one of {N}"):
        linear_maps.columns(S, np.array(index), N)


@pytest.mark.parametrize("step_size", [-1.0, 0.0, np.nan, np.inf])
def test_convergence_of_no_step_size_is_refused(world, step_size):
    factors = exact.factorize(world[0][:, :4], np.arange(4))
    start, steps = np.ones((4, 1)), np.arange(3)
    with pytest.raises(ValueError, match="step_size must be positive"):
        exact.convergence(factors, start, step_size=step_size)
    with pytest.raises(ValueError, match="step_size must be positive"):
        exact.residual_norms(factors, start, steps, step_size=step_size)


def test_no_training_node_is_refused_by_the_factorization():
    with pytest.raises(ValueError, match="S_XX is empty"):
        exact.factorize(np.zeros((4, 0)), np.zeros(0, int))


@pytest.mark.parametrize("alpha", [-0.1, 1.0, 1.5, np.nan])
def test_label_limits_need_alpha_below_one(world, alpha):
    S = similarity.Dense(jnp.asarray(world[0]))
    with pytest.raises(ValueError, match="alpha must lie in"):
        label.limit(S, jnp.ones((N, 1)), alpha=alpha)


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_limit_that_was_not_reached_is_nan(world, symmetric):
    S = similarity.Dense(jnp.asarray(world[0]))
    start = jnp.asarray(np.random.default_rng(1).random((N, 2)))
    settings = {"alpha": 0.9, "symmetric": symmetric}
    assert jnp.isnan(label.limit(S, start, **settings, max_iterations=1)).all()
    assert jnp.isfinite(label.limit(S, start, **settings)).all()


@pytest.mark.parametrize(
    ("settings", "named"), [({"alpha": 2.0}, "alpha"), ({}, "num")]
)
def test_label_propagation_checks_its_numbers(world, settings, named):
    S = similarity.Dense(jnp.asarray(world[0]))
    k = 1 if settings else -1
    with pytest.raises(ValueError, match=named):
        label.propagate(S, jnp.ones((N, 1)), num_iterations=k, **settings)


def test_a_kernel_is_not_normalized_twice():
    kernel = features.build(np.random.default_rng(0).random((N, 2)))
    with pytest.raises(ValueError, match="normalized already"):
        features.normalized_matrix(kernel)


def test_a_dense_matrix_is_no_adjacency():
    with pytest.raises(TypeError, match="ndarray"):
        unchecked(sparse.prepare, np.eye(3))
    with pytest.raises(TypeError, match="must be real"):
        sparse.prepare(scipy.sparse.csr_array(np.eye(3) * 1j))


def test_numpy_doubles_enter_a_product_in_single_precision_without_a_warning():
    with jax.enable_x64(False):
        matrix = sparse.prepare(scipy.sparse.csr_array(np.eye(3, dtype=np.float32)))
        out = unchecked(sparse.matmul, matrix, np.ones((3, 1)))
        start = unchecked(label.propagate, matrix, np.ones((3, 1)), num_iterations=1)
    assert (out.dtype, start.dtype) == (np.float32, np.float32)


def test_features_must_fit_the_graph():
    data = datasets.load("sbm")
    shorter = data._replace(features=data.features[:-1])
    with pytest.raises(ValueError, match="1999 rows of features for 2000 nodes"):
        rp_study.run(shorter, presets.settings("sbm"))


def test_the_published_figure_stands_only_beside_the_published_settings():
    data = datasets.load("sbm")._replace(name="minesweeper")
    settings = dataclasses.replace(presets.settings("minesweeper"), num_steps=2)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        record = rp_study.run(data, settings).record
    assert record["published"] is None
    assert not tables.warnings(record, data)
    told = tables.warnings(record, data._replace(features=None))
    assert "has no features here" in told[0]
    assert json_files.dumps(record)


def test_equal_feature_rows_make_a_kernel_of_those():
    data = datasets.load("sbm")
    rows = np.asarray(data.features)[:3][np.arange(2000) % 3]
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    settings = dataclasses.replace(presets.settings("sbm"), gamma=0.1)
    found = similarities.build(matrix, rows, settings, num_train=10).similarity
    assert found.inner.gram.shape == (3, 3)
