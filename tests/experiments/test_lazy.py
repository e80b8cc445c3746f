"""The parts of the comparison of finite and infinite width are what they claim."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import published
from experiments.paper import (
    lazy_findings,
    lazy_outputs,
    lazy_predictions,
    lazy_training,
    lazy_worlds,
)
from experiments.report import width_tables
from gnnrp import datasets, graph, sparse
from gnnrp.kernels import gntk
from gnnrp.kernels.ntk import empirical
from gnnrp.models import training
from gnnrp.propagation import exact

SETUP = ("ntk", "squared")


RECORD = Path(__file__).parents[2] / "experiments/results/analytic_vs_empirical.json"


@pytest.fixture(scope="module")
def results():
    return json.loads(RECORD.read_text())["result"]["datasets"]


@pytest.fixture(autouse=True)
def as_users_run_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def world():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        return lazy_worlds.build(datasets.load("sbm"), 2, 0)


@pytest.fixture(scope="module")
def kernels(world):
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        return lazy_worlds.infinite(world, 2)


def plan(world, kernels, setup=SETUP, width=8):
    limits = {"tolerance": 0.1, "max_steps": 500}
    return lazy_predictions.plan(world, kernels, setup, width, 2, **limits)


def close(found, expected, rtol=1e-4):
    scale = float(np.abs(np.asarray(expected)).max())
    np.testing.assert_allclose(found, expected, atol=rtol * scale)


def test_outputs_of_the_infinite_network_have_variance_one(world):
    gram = gntk.gram(world.x)
    nngp = gntk.gcn(world.matrix, gram, gntk.Network(2)).nngp
    assert float(jnp.mean(jnp.diagonal(nngp))) == pytest.approx(1, rel=1e-5)


def test_both_routes_give_the_kernel_of_infinite_width(kernels):
    assert kernels.routes < 1e-5


def test_a_part_of_a_graph_keeps_the_outputs_of_its_training_nodes():
    data = datasets.load("sbm")._replace(name="another")
    part = lazy_worlds.build(data, 2, 0)
    assert len(part.train) == 15
    assert len(part.labels) < data.num_nodes
    masked = np.flatnonzero(data.splits.train[0])
    classes = data.labels[masked]
    nodes = np.sort(np.concatenate([masked[classes == k][:3] for k in range(5)]))
    np.testing.assert_array_equal(part.labels[part.train], data.labels[nodes])
    x = data.features / np.linalg.norm(data.features, axis=1, keepdims=True)
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    whole = gntk.gcn(matrix, gntk.gram(x), gntk.Network(2)).ntk[nodes][:, nodes]
    theta = lazy_worlds.infinite(part, 2).ntk[part.train][:, part.train]
    close(theta / jnp.trace(theta), whole / jnp.trace(whole))


def test_features_are_rotated_to_as_many_columns_as_nodes(world):
    features = lazy_worlds.synthetic(4, 0).features
    x = jnp.asarray(features / np.linalg.norm(features, axis=1, keepdims=True))
    assert (x.shape, world.x.shape) == ((60, 64), (60, 60))
    assert world.num_features == 64
    found, expected = gntk.gram(world.x), gntk.gram(x)
    close(found / jnp.trace(found), expected / jnp.trace(expected))


def test_networks_without_features_are_refused():
    data = datasets.load("sbm")._replace(features=None, name="arxiv")
    with pytest.raises(ValueError, match="those of arxiv are absent"):
        lazy_worlds.build(data, 2, 0)


def test_both_parameterizations_draw_the_same_function(world, kernels):
    outputs = []
    for name in lazy_worlds.PARAMETERIZATIONS:
        recipe = lazy_training.rule(world, plan(world, kernels, (name, "squared")))
        params, x = lazy_training.draw(world, recipe.network, jax.random.key(3))
        outputs.append(recipe.network.apply(params, x, world.matrix))
    close(*outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", lazy_worlds.PARAMETERIZATIONS)
def test_the_kernel_of_a_parameterization_is_the_mean_over_networks(
    world, kernels, name
):
    steps = plan(world, kernels, (name, "squared"), width=512)
    recipe, total = lazy_training.rule(world, steps), 0
    for number in range(20):
        start = lazy_training.draw(world, recipe.network, jax.random.key(number))
        full = lazy_training.full_rows(recipe.network, *start, world)
        total += jnp.einsum("ikjk->ij", full) / full.shape[1] / 20
    theta = lazy_worlds.kernel(kernels, world, name, 512)[world.train]
    assert lazy_worlds.distance(total, theta) < 0.03


def test_all_outputs_of_two_layers_have_the_kernel_of_their_jacobians(world, kernels):
    recipe = lazy_training.rule(world, plan(world, kernels))
    params, x = lazy_training.draw(world, recipe.network, jax.random.key(0))
    found = lazy_training.full_rows(recipe.network, params, x, world)

    def outputs(params, x):
        return recipe.network.apply(params, x, world.matrix)

    full = empirical.ntk(outputs, params, x, reduce="full")
    close(found, full[world.train])
    distances = lazy_training.reductions(full)
    assert distances["trace"] <= distances["pseudo"]  # the trace is the nearest kernel


def test_kernels_of_independent_outputs_have_no_distance():
    K = np.random.default_rng(0).standard_normal((4, 7)).astype(np.float32)
    full = jnp.einsum("ij,kl->ikjl", K, jnp.eye(3))
    assert max(lazy_training.reductions(full).values()) < 1e-5


def test_predictions_are_exact_trajectories(world, kernels):
    steps = plan(world, kernels)
    theta = np.asarray(kernels.ntk)
    start = jax.random.normal(jax.random.key(1), world.targets.shape)
    found = lazy_predictions.predict(world, kernels.ntk[world.train], start, steps)
    factors = exact.factorize(theta[:, world.train], world.train)
    residual = np.asarray(world.targets - start)[world.train]
    change = exact.trajectory(
        factors, residual, np.array(steps.times), step_size=steps.step_size
    )
    close(found, np.asarray(start) + change)


@pytest.mark.parametrize("loss", lazy_predictions.LOSSES)
def test_the_kernel_of_all_outputs_predicts_as_that_of_one(world, kernels, loss):
    steps = plan(world, kernels, ("ntk", loss))
    rows = kernels.ntk[world.train]
    every = jnp.einsum("ij,kl->ikjl", rows, jnp.eye(world.targets.shape[1]))
    start = jax.random.normal(jax.random.key(1), world.targets.shape)
    paths = [lazy_predictions.predict(world, K, start, steps) for K in (rows, every)]
    close(*paths)


@pytest.mark.parametrize("loss", lazy_predictions.LOSSES)
def test_training_ends_when_the_predicted_residual_is_small(world, kernels, loss):
    steps = plan(world, kernels, ("ntk", loss))
    last = steps.times[-1]
    zero, rows = jnp.zeros_like(world.targets), kernels.ntk[world.train]
    near = steps._replace(times=(0, last - 2, last))
    path = lazy_predictions.predict(world, rows, zero, near)
    sizes = [lazy_predictions.residual_size(world, steps, f) for f in path]
    assert sizes[0] == pytest.approx(1)
    assert sizes[2] <= 0.1 < sizes[1]


def test_snapshots_are_steps_of_gradient_descent(world, kernels):
    recipe = lazy_training.rule(world, plan(world, kernels))
    key = jax.random.key(0)
    mask = lazy_predictions.mask(world)[:, 0]
    data = training.Data(world.x, world.matrix, world.targets, mask)
    expected = training.run(recipe, data, key, num_steps=5).params
    params = training.init(recipe, data, key).params
    found = list(lazy_training.snapshots(world, recipe, (params, world.x), (0, 5)))
    jax.tree.map(close, found[-1], expected)


def test_a_wide_network_follows_both_predictions(world, kernels):
    steps = plan(world, kernels, width=2048)
    found, last = lazy_training.measure(world, kernels, steps, jax.random.key(0))
    assert found["drift"][0] == 0 < found["drift"][-1] < 0.02
    assert max(found["frozen"]) < max(found["trajectory"]) < 0.1
    assert found["kernel"][0] == pytest.approx(
        lazy_training.initial_error(world, kernels, steps, jax.random.key(0))
    )
    assert found["test"][-1] == lazy_predictions.accuracy(world, last)
    assert found["residual"][-1] < 0.2


def test_an_error_is_at_most_that_of_predicting_no_motion():
    path = np.arange(4.0).reshape(4, 1, 1) * np.ones((1, 3, 2))
    expected = path.copy()
    expected[1] += 0.3
    expected[2], expected[3] = np.inf, np.nan
    assert lazy_predictions.gaps(path, expected) == pytest.approx([0, 0.1, 1, 1])


def rows(kernel, drift, widths=(16, 64, 256)):
    return [
        {
            "width": m,
            "kernel": {"mean": kernel * m**-0.5},
            "drift": {"mean": drift / m},
        }
        for m in widths
    ]


def test_slopes_and_crossover_of_power_laws():
    found = rows(1, 10)
    assert lazy_findings.slope(found, "kernel") == -0.5
    assert lazy_findings.slope(found, "drift") == -1
    assert lazy_findings.slope(found[:1], "drift") is None
    assert lazy_findings.crossover(found) == 100  # 10 / m = m^-1/2
    assert lazy_findings.crossover(rows(1, 1)) is None
    assert lazy_findings.crossover(rows(1, 100)) is None


def test_the_pseudo_ntk_is_nearer_at_larger_width_and_not_for_more_nodes(world):
    key = jax.random.key(0)
    wide = lazy_outputs.over_nodes(world, 512, key)
    narrow = lazy_outputs.over_nodes(world, 8, key)
    assert wide.keys() == {"10", "30"}
    assert all(wide[count] < narrow[count] / 2 for count in wide)
    assert wide["30"] > 0.6 * wide["10"]  # 30^-1/2 would be 0.58


def test_an_absent_graph_has_a_table_without_numbers():
    result = {"datasets": {"cora": published.ABSENT}}
    claims, absent = width_tables.tables({"result": result})
    assert {tuple(row[1:]) for row in claims.rows} == {("0 of 0", "not measured")}
    assert (absent.title, absent.note) == ("cora", published.ABSENT)


def test_the_record_supports_the_exponents_of_the_page(results):
    panels = [panel for found in results.values() for panel in found["panels"]]
    assert len(panels) == 16
    for panel in panels:
        slopes = panel["slope"]
        assert -0.55 < slopes["kernel"] < -0.35
        assert -0.65 < slopes["trajectory"] < -0.3
        assert slopes["drift"] < slopes["kernel"]
        if panel["parameterization"] == "ntk":
            assert -1.1 < slopes["drift"] < -0.75
    assert max(max(found["routes"].values()) for found in results.values()) < 1e-5


def test_the_record_supports_what_the_page_states_of_alignments(results):
    for found in results.values():
        for panel in found["panels"]:
            narrow, wide = panel["widths"][0], panel["widths"][-1]
            ends = {
                kind: wide["times"][kind]["mean"][-1]
                for kind in wide["infinite"]
                if kind != "test"
            }
            if wide["width"] >= 1024 and panel["parameterization"] == "ntk":
                for kind, value in ends.items():
                    assert value == pytest.approx(wide["infinite"][kind], abs=0.015)
            if panel["loss"] == "cross-entropy":
                labels = narrow["times"]["labels"]["mean"]
                assert labels[-1] > labels[0] + 0.02


def test_the_record_supports_the_verdict_on_several_outputs(results):
    for found in results.values():
        for panel in found["panels"]:
            distances = panel["slope"]["pseudo"]
            assert max(distances["start"], distances["end"]) <= -0.4
        trained = found["outputs"]
        assert trained["steps"] == 2000
        assert trained["slope"]["pseudo"]["start"] <= -0.4
        narrow = [row for row in trained["widths"] if row["width"] <= 256]
        assert len(narrow) == 3
        for row in narrow:
            assert 0.5 < row["pseudo"]["end"]["mean"] < 0.7
            assert row["trace"]["end"]["mean"] < 0.75 * row["pseudo"]["end"]["mean"]
        by_nodes = list(found["outputs"]["nodes"]["pseudo"].values())
        assert min(by_nodes) > 0.7 * max(by_nodes)
