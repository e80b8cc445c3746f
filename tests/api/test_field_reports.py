"""What went wrong for people who do this job: a small input each, and its right answer.

The kinds come from public reports about label propagation, datasets, tangent kernels
and sparse products. ``ELSEWHERE`` names the tests of most; the others follow it.
"""

import ast
import pickle
import sys
import tracemalloc
from pathlib import Path

import generators
import jax
import jax.numpy as jnp
import miniatures
import numpy as np
import pytest

from gnnrp import graph, metrics, sparse
from gnnrp.datasets import ogb
from gnnrp.kernels import alignment, gntk
from gnnrp.kernels.gntk import local
from gnnrp.propagation import label, similarity
from gnnrp.runtime import memory
from gnnrp.types import Split

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "2 self-loops counted twice": (
        "graph: the_self_loops_of_the_input_are_not_counted_twice"
    ),
    "3 repeated or reciprocal edges weigh double": (
        "graph: repeated_and_reciprocal_edges_count_once, "
        "weighted_duplicates_combine_by_name, "
        "weighted_duplicates_without_a_rule_are_refused_with_the_edge"
    ),
    "4 edges stored once are not symmetrized": (
        "graph: an_edge_stored_once_counts_for_both_directions, "
        "directions_are_kept_on_request"
    ),
    "5 weights ignored or not normalized": (
        "graph: weights_count_and_so_do_the_degrees_made_of_them"
    ),
    "6 a negative weight gives NaN": (
        "graph: a_weight_that_no_degree_bears_is_refused_with_its_edge, "
        "signed_degrees_are_sums_of_absolute_weights"
    ),
    "9 a download asks on the terminal, or dies without one": (
        "datasets: without_the_ogb_package_its_sets_name_it_and_the_archive, "
        "missing_files_are_named_with_places_and_remedy"
    ),
    "11 missing ids of test nodes shift all others": (
        "datasets: missing_test_ids_keep_their_place_without_label_and_features"
    ),
    "12 ROC-AUC of a task of one class": (
        "metrics: tasks_of_one_class_are_left_out_of_the_mean, "
        "roc_auc_without_any_task_of_both_classes_is_nan; "
        "residual: a_metric_that_says_nothing_of_the_validation_nodes_is_told; "
        "estimator: what_cannot_be_scored_is_refused"
    ),
    "14 a tangent kernel runs out of memory": (
        "empirical: blocks_of_index_sets_are_those_of_the_whole, "
        "what_cannot_be_computed_is_refused"
    ),
    "16 a nearly singular kernel gives NaN": (
        "exact: nearly_singular_kernel_gives_the_pseudo_inverse_limit, "
        "nearly_singular_kernel_gives_the_pseudo_inverse_limit_in_a_run"
    ),
    "18 a sparse product copies entries times columns": (
        "sparse: a_product_holds_less_than_thrice_its_output"
    ),
    "20 oscillation and silent divergence": (
        "exact: odd_powers_on_a_bipartite_graph_diverge_for_every_step_size, "
        "even_power_on_a_bipartite_graph_converges, "
        "a_run_says_diverged_with_the_spectrum_and_does_not_raise"
    ),
    "21 each step size or split compiles again": (
        "residual: step_sizes_masks_and_graphs_of_equal_size_share_one_trace; "
        "features: all_gammas_share_one_trace"
    ),
    "22 int32 indices overflow": (
        "checks: rows_or_entries_beyond_int32_are_refused; "
        "graph: more_nodes_than_int32_counts_are_refused_before_anything_is_allocated; "
        "sparse: what_int32_cannot_address_is_refused_before_anything_is_allocated"
    ),
}


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_the_tests_of_this_kind_exist(kind):
    for part in ELSEWHERE[kind].split("; "):
        file, names = part.split(": ")
        (path,) = (ROOT / "tests").rglob(f"test_{file}.py")
        tree = ast.parse(path.read_text())
        found = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
        assert {f"test_{name}" for name in names.split(", ")} <= found


def test_every_kind_has_a_test():  # 1 to 22
    numbers = {int(kind.split()[0]) for kind in ELSEWHERE}
    here = {name for name in globals() if name.startswith("test_kind_")}
    assert numbers | {int(name.split("_")[2]) for name in here} == set(range(1, 23))


def test_kind_1_equal_inputs_have_a_finite_gradient_through_a_relu_kernel():
    def total(X):
        return jnp.sum(gntk.gcn(lambda v: v, gntk.gram(X), gntk.Network(2)).ntk)

    gradient = jax.grad(total)(jnp.array([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]]))
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).min() > 0


def test_kind_7_evidence_adds_up_and_is_not_clipped():
    star = np.stack([np.zeros(8, int), np.arange(1, 9)])  # 6 leaves of class 0, 2 of 1
    targets = np.eye(2)[[0, *[0] * 6, *[1] * 2]]
    train = np.arange(9) > 0
    matrix = sparse.prepare(graph.normalized_adjacency(star))
    seeds = label.seeds(jnp.asarray(targets), jnp.asarray(train))
    by_labels = label.propagate(matrix, seeds, num_iterations=1)
    nobody = np.zeros(9, bool)
    by_residuals = generators.run(
        similarity.Power(matrix, 1),
        targets,
        Split(train, nobody, nobody),
        step_size=1.0,
        num_steps=1,
        metric=metrics.accuracy,
    ).predictions
    for scores in (by_labels, by_residuals):
        np.testing.assert_allclose(scores[0], [1.414, 0.471], atol=5e-4)


@pytest.mark.parametrize("method", ["exact", "krylov", "iterate"])
def test_kind_8_labels_of_other_nodes_do_not_leak_into_the_run(method):
    rng = np.random.default_rng(0)
    node = np.arange(12)
    train, nobody = node < 4, np.zeros(12, bool)
    matrix = sparse.prepare(
        graph.normalized_adjacency(np.stack([node, (node + 1) % 12]))
    )
    targets = np.eye(2)[node % 2]
    other = targets.copy()
    other[~train] = targets[4:][rng.permutation(8)]
    assert (other != targets).any()
    one, two = (
        generators.run(
            similarity.Power(matrix, 2),
            each,
            Split(train, nobody, node >= 4),
            step_size=0.5,
            num_steps=5,
            metric=metrics.accuracy,
            method=method,
        )
        for each in (targets, other)
    )
    assert one.predictions.tobytes() == two.predictions.tobytes()
    assert one.train_residual.tobytes() == two.train_residual.tobytes()


def test_kind_10_raw_files_of_ogb_are_read_without_torch_and_pickle(
    tmp_path, monkeypatch
):
    miniatures.ogb(tmp_path, "arxiv")
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, lambda *_: pytest.fail("unpickled"))
    for name in ("torch", "ogb"):
        monkeypatch.setitem(sys.modules, name, None)
    assert ogb.read(tmp_path, "arxiv").num_nodes == 12


def test_kind_13_no_private_name_of_jax_is_imported():
    for path in (ROOT / "gnnrp").rglob("*.py"):
        for each in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(each, ast.Import):
                names = [alias.name for alias in each.names]
            elif isinstance(each, ast.ImportFrom):
                names = [f"{each.module}.{alias.name}" for alias in each.names]
            private = [x for x in names if x.startswith(("jax.", "jaxlib."))]
            assert not any("._" in name for name in private), path


def test_kind_15_blocks_of_the_kernel_of_a_large_graph_need_no_square_array():
    n, rng = 50_000, np.random.default_rng(0)
    adjacency = graph.normalized_adjacency(rng.integers(0, n, (2, 100_000)), n)
    X = rng.standard_normal((n, 3))
    held = memory.peak()
    tracemalloc.start()  # which counts what numpy asks for and never touches
    try:
        found = local.gcn(
            adjacency, X, [0, 7], [7, 9, n - 1], gntk.Network(2), max_bytes=2**26
        )
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.ntk.shape == (2, 3)
    assert found.ntk[1, 0] > 0
    assert most < 2**27  # n x n in float64 is 20 GB
    assert held is None or memory.peak() - held < 2**31  # and what XLA asks for


def test_kind_17_the_centered_alignment_of_one_class_is_nan_with_a_warning():
    labels = alignment.label_kernel(np.zeros(6, int), 1)
    kernel = np.eye(6)
    with pytest.warns(RuntimeWarning, match="the second kernel is zero when centered"):
        assert jnp.isnan(alignment.alignment(kernel, labels, centered=True))
    in_jit = jax.jit(lambda phi: alignment.alignment(kernel, phi, centered=True))
    assert jnp.isnan(in_jit(labels))
    assert alignment.alignment(kernel, labels) > 0


@pytest.mark.parametrize(("backend", "atomic"), [("segment_sum", True), ("bcsr", None)])
def test_kind_19_which_back_end_repeats_its_bits_is_documented(backend, atomic):
    edges = np.random.default_rng(0).integers(0, 300, (2, 3000))
    adjacency = graph.normalized_adjacency(edges, 300)
    matrix = sparse.prepare(adjacency, backend=backend)
    v = jnp.asarray(np.random.default_rng(1).standard_normal((300, 5)))
    product = jax.jit(sparse.matmul)
    assert np.asarray(product(matrix, v)).tobytes() == (
        np.asarray(product(matrix, v)).tobytes()
    )
    assert "xla_gpu_deterministic_ops" in sparse.prepare.__doc__
    if atomic:  # what the default back end of GPUs is compiled from
        traced = jax.jit(lambda v: sparse.matmul(matrix, v)).trace(v)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
        assert "stablehlo.scatter" in text
        assert "unique_indices = false" in text
