"""Wide GCNs on a dataset: scores, alignments, and what does not fit."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gnnrp import cli, datasets, graph, metrics, plotting, sparse
from gnnrp.datasets import sbm
from gnnrp.kernels import alignment, gntk
from gnnrp.kernels.gntk import local, neural_tangents, random_features
from gnnrp.propagation import linear_maps
from gnnrp.runtime import memory
from gnnrp.runtime.options import Options
from gnnrp.studies import gntk as gntk_study
from gnnrp.studies import gntk_kernels, tables
from gnnrp.studies.settings import MAX_LOCAL_DEPTH

SMALL = gntk_study.GNTKSettings(depths=(1, 2), num_steps=50)


@pytest.fixture(scope="module")
def data():
    return sbm.generate(
        0, num_blocks=3, block_size=40, intra_probability=0.1, num_val=20, num_test=30,
        train_per_class=8,
    )  # fmt: skip


@pytest.fixture(scope="module")
def record(data):
    with jax.numpy_dtype_promotion("standard"):
        return gntk_study.run(data, SMALL)


def theta_of(data, depth):
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    return np.asarray(
        gntk.gcn(matrix, gntk_kernels.inputs(data), gntk.Network(depth)).ntk
    )


@pytest.mark.parametrize("at", [0, 1])
def test_scores_are_those_of_gradient_descent_on_the_kernel(data, record, at):
    row = record["depths"][at]
    theta = theta_of(data, row["depth"])
    train, val, test = (mask[0] for mask in data.splits)
    targets = datasets.targets(data).astype(float)
    step = 1 / np.abs(theta[np.ix_(train, train)]).sum(axis=1).max()
    f, scores = np.zeros_like(targets), []
    for _ in range(SMALL.num_steps):
        f += step * theta[:, train] @ (targets - f)[train]
        scores.append([np.mean((f.argmax(1) == data.labels)[m]) for m in (val, test)])
    scores = 100 * np.array(scores)
    best = len(scores) - 1 - np.argmax(scores[::-1, 0])
    assert row["best_step"] == [best + 1]
    assert row["val_mean"] == pytest.approx(scores[best, 0], abs=1e-3)
    assert row["test_mean"] == pytest.approx(scores[best, 1], abs=1e-3)


@pytest.mark.parametrize("at", [0, 1])
def test_the_end_is_kernel_regression(data, record, at):
    row = record["depths"][at]
    theta = theta_of(data, row["depth"])
    train, _, test = (mask[0] for mask in data.splits)
    targets = datasets.targets(data).astype(float)
    inverse = np.linalg.pinv(theta[np.ix_(train, train)], rcond=1e-12)
    scores = jnp.asarray(theta[:, train] @ inverse @ targets[train])
    expected = metrics.accuracy(scores, jnp.asarray(targets), jnp.asarray(test))
    assert row["end"]["test_mean"] == pytest.approx(100 * float(expected), abs=1e-3)


def test_alignments_are_centered_with_the_graph_and_all_labels(data, record):
    row = record["depths"][1]
    theta = theta_of(data, 2)
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    A = np.asarray(sparse.matmul(matrix, jnp.eye(data.num_nodes)))
    same = (data.labels[:, None] == data.labels) * 1.0
    for name, other in (("graph", np.linalg.matrix_power(A, 4)), ("labels", same)):
        expected = alignment.alignment(theta, other, centered=True)
        assert row["alignment"][name] == pytest.approx(float(expected), abs=1e-5)


def test_the_record_names_the_best_depth_and_what_stands_beside(record):
    vals = [row["val_mean"] for row in record["depths"]]
    assert record["best_depth"] == 1 + int(np.argmax(vals))
    assert {"majority", "lp", "rp", "generalized rp"} == set(record["baselines"])
    text = tables.depth_table(record)
    assert "GNTK, 2 layer(s)" in text
    assert f"best by validation: {record['best_depth']} layer(s)" in text


def test_without_features_inputs_are_one_hot(data):
    bare = data._replace(features=None)
    np.testing.assert_array_equal(gntk_kernels.inputs(bare), np.eye(data.num_nodes))


def test_a_kernel_that_does_not_fit_is_refused_before_it_is_made(data):
    with pytest.raises(
        ValueError, match=r"of 120 nodes takes about .* 0.0 MB are left"
    ):
        gntk_study.run(data, SMALL, options=Options(max_bytes=1000))
    big = data._replace(num_nodes=10**6)
    with pytest.raises(ValueError, match="of 1,000,000 nodes takes about"):
        gntk_study.run(big, SMALL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depths": ()}, "depths must not be empty"),
        ({"depths": (2, 0)}, "depth must be at least 1, got 0"),
        ({"activation": "tanh"}, "activation must be one of"),
        ({"bias": "both"}, "bias must be one of"),
        ({"bias_std": -1.0}, "bias_std must be at least 0, got -1"),
        ({"num_steps": 0}, "num_steps must be at least 1, got 0"),
        ({"method": "fast"}, "method must be one of"),
        ({"num_features": 1}, "num_features must be at least 2"),
        ({"method": "exact", "num_features": 9}, "needs method 'features'"),
        ({"method": "exact", "seed": 9}, "seed needs method 'features'"),
        ({"method": "blocks"}, "takes up to 3 layers, got depth 4"),
        ({"method": "features", "route": "neural-tangents"}, "needs route='recursion'"),
        ({"route": "stax"}, "route must be one of recursion, neural-tangents"),
    ],
)
def test_settings_that_make_no_network_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        gntk_study.GNTKSettings(**change)


@pytest.mark.usefixtures("nt")
@pytest.mark.parametrize(("one_hot", "activation"), [(False, "gelu"), (True, "relu")])
def test_both_routes_give_the_same_record(data, one_hot, activation):
    data = data._replace(features=None) if one_hot else data
    networks = {"depths": (1, 3), "bias": "after", "bias_std": 0.3, "num_steps": 50}
    networks["activation"] = activation
    with jax.numpy_dtype_promotion("standard"):
        ours, theirs = (
            gntk_study.run(data, gntk_study.GNTKSettings(**networks, route=route))
            for route in gntk_study.ROUTES
        )
    assert theirs["settings"]["route"] == "neural-tangents"
    for one, other in zip(ours["depths"], theirs["depths"], strict=True):
        for name in ("val_mean", "test_mean", "best_step", "end"):
            assert one[name] == other[name]
        assert one["alignment"] == pytest.approx(other["alignment"], abs=1e-6)


def test_a_route_that_is_not_installed_or_does_not_fit_is_refused(data, monkeypatch):
    settings = dataclasses.replace(SMALL, route="neural-tangents")
    monkeypatch.setattr(gntk_kernels.neural_tangents, "load", lambda: None)
    room = Options(max_bytes=memory.process_bytes() + 3 * 10**9)
    big = data._replace(num_nodes=8000)
    with pytest.raises(
        ValueError,
        match=r"of 8,000 nodes by neural-tangents takes about .* route 'recursion'",
    ):
        gntk_study.run(big, settings, options=room)

    def missing():
        msg = f"not installed: {neural_tangents.INSTALL}"
        raise ImportError(msg)

    monkeypatch.setattr(gntk_kernels.neural_tangents, "load", missing)
    line = "'neural-tangents' is not available: not installed: pip install"
    with pytest.raises(ValueError, match=line):
        gntk_study.run(data, settings)


def test_the_command_prints_one_object_and_draws(tmp_path, monkeypatch, capsys, data):
    monkeypatch.setattr(datasets, "load", lambda *_, **__: data)
    plot = tmp_path / "depths.png"
    line = ["gntk", "--depths", "1", "2", "--num-steps", "50", "--json", "--quiet"]
    with jax.numpy_dtype_promotion("standard"):
        assert cli.main([*line, "--plot", str(plot)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["depth"] for row in shown["depths"]] == [1, 2]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert cli.main(["gntk", "--depths", "0"]) == 2
    assert capsys.readouterr().err == "gnnrp: depth must be at least 1, got 0\n"


def test_columns_of_the_training_nodes_give_the_record_of_the_whole_kernel(data):
    settings = gntk_study.GNTKSettings(depths=(1, 2, 3), num_steps=50, bias="after")
    with jax.numpy_dtype_promotion("standard"):
        whole, columns = (
            gntk_study.run(data, dataclasses.replace(settings, method=method))
            for method in ("exact", "blocks")
        )
    assert columns["kernel_method"] == "blocks"
    for one, other in zip(whole["depths"], columns["depths"], strict=True):
        for name in ("val_mean", "test_mean", "best_step", "end"):
            assert one[name] == other[name]
    assert "columns of the training nodes" in tables.depth_table(columns)


def test_random_features_predict_like_the_kernel_and_state_their_error(data):
    settings = gntk_study.GNTKSettings(
        depths=(1, 2), num_steps=50, method="features", num_features=3000
    )
    with jax.numpy_dtype_promotion("standard"):
        found = gntk_study.run(data, settings)
    first, second = found["depths"]
    assert first["relative_error"] == 0  # one layer is linear
    assert second["num_columns"] == data.features.shape[1] + 1 + 2 * 3000
    features = random_features.gcn(
        sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes)),
        jnp.asarray(data.features, float),
        gntk.Network(2),
        jax.random.key(0),
        num_features=3000,
    )
    theta = theta_of(data, 2)
    error = np.linalg.norm(random_features.kernels(features).ntk - theta)
    assert second["relative_error"] == pytest.approx(
        error / np.linalg.norm(theta), rel=0.3
    )
    exact = theta_of(data, 1)
    train, _, test = (mask[0] for mask in data.splits)
    targets = datasets.targets(data).astype(float)
    inverse = np.linalg.pinv(exact[np.ix_(train, train)], rcond=1e-12)
    scores = jnp.asarray(exact[:, train] @ inverse @ targets[train])
    expected = metrics.accuracy(scores, jnp.asarray(targets), jnp.asarray(test))
    assert first["end"]["test_mean"] == pytest.approx(100 * float(expected), abs=1e-3)
    assert "3,000 random features" in tables.depth_table(found)
    assert len(plotting.depths(found).axes) == 2


def test_a_kernel_that_is_zero_is_refused(data):
    empty = data._replace(features=np.zeros_like(data.features))
    for method in ("exact", "blocks", "features"):
        settings = gntk_study.GNTKSettings(depths=(2,), num_steps=5, method=method)
        matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
        kernels = gntk_kernels.build(empty, settings, matrix, method)
        with pytest.raises(ValueError, match="zero on all training nodes"):
            next(kernels)


def test_a_kernel_beyond_the_floating_type_is_refused(data):
    settings = gntk_study.GNTKSettings(depths=(3,), activation="exp", num_steps=5)
    large = data._replace(features=100 * data.features)
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    with pytest.raises(ValueError, match=r"exceeds float.*scale the features down"):
        list(gntk_kernels.build(large, settings, matrix, "exact"))


def test_blocks_of_one_hot_inputs_form_no_square_array(data):
    bare = data._replace(features=None)
    settings = gntk_study.GNTKSettings(depths=(2,), method="blocks")
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    ((_, kernel),) = gntk_kernels.build(bare, settings, matrix, "blocks")
    index = np.flatnonzero(data.splits.train[0])
    found = linear_maps.columns(kernel.similarity, index, data.num_nodes)
    np.testing.assert_allclose(found, theta_of(bare, 2)[:, index], atol=1e-12)


def test_the_deepest_network_in_blocks_is_that_of_the_module():
    assert MAX_LOCAL_DEPTH == local._MAX_DEPTH


def test_a_kernel_that_does_not_fit_becomes_random_features(data):
    settings = gntk_study.GNTKSettings(depths=(1, 2), num_features=10)
    assert gntk_kernels.method(data, settings, Options()) == "exact"
    needed = gntk_kernels.exact_bytes(data, 8)
    tight = Options(max_bytes=memory.process_bytes() + needed - 10**6)
    assert gntk_kernels.method(data, settings, tight) == "features"
    named = gntk_study.GNTKSettings(depths=(1, 2), method="blocks")
    assert gntk_kernels.method(data, named, tight) == "blocks"
    library = dataclasses.replace(settings, route="neural-tangents")
    assert gntk_kernels.method(data, library, tight) == "exact"
