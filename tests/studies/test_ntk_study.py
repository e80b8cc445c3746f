"""The kernel in training: rows, what they mean, resume, and the paper's findings."""

import dataclasses
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from gnnrp import cli, datasets, graph, plotting, sparse
from gnnrp.commands import ntk
from gnnrp.datasets import sbm
from gnnrp.kernels import alignment
from gnnrp.kernels.ntk import empirical, structured
from gnnrp.models import gnn
from gnnrp.runtime import memory
from gnnrp.runtime.options import Options
from gnnrp.studies import _graphs, _tracking_rows, tables
from gnnrp.studies import ntk as ntk_study

SMALL = ntk_study.NTKSettings(
    learning_rate=0.05, num_steps=30, every=10, num_graphs=3, features="raw"
)


EMPTY = np.zeros((2, 0), np.int64)


def member(share, seed=0):
    return sbm.generate(
        seed, num_blocks=3, block_size=40, intra_probability=0.1,
        inter_probability=0.05, homophilic_fraction=share, num_val=20, num_test=30,
        train_per_class=8,
    )  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return member(1.0)


@pytest.fixture(scope="module")
def record(data):
    return ntk_study.run(data, SMALL)


def test_a_row_holds_what_its_names_say(data, record):
    assert [row["step"] for row in record["rows"]] == [0, 10, 20, 30]
    x = jnp.asarray(data.features, float)
    network = gnn.GCN(3, 16, 2)
    key, _ = jax.random.split(jax.random.key(0))
    params = network.init(key, x)
    whole = graph.normalize(graph.raw_adjacency(data.edges, data.num_nodes))
    target = np.linalg.matrix_power(whole.toarray(), 4)
    ideal = alignment.label_kernel(data.labels, 3)
    for number, drop in enumerate((0.0, 0.5, 1.0)):
        W = graph.drop_edges(data.edges, data.num_nodes, drop=drop, mode="directed")
        A = jnp.asarray(graph.normalize(W).toarray())
        theta = empirical.ntk(
            lambda p, x, A=A: network.apply(p, x, lambda v: A @ v),
            params, x, reduce="sum",
        )  # fmt: skip
        entry = record["rows"][0]["graphs"][number]
        for name, other in (("kernel_graph", target), ("kernel_labels", ideal)):
            expected = alignment.alignment(theta, other, centered=True)
            assert entry[name] == pytest.approx(float(expected), abs=1e-6)
        values = np.linalg.eigvalsh(theta)[::-1][: _tracking_rows.NUM_EIGENVALUES]
        np.testing.assert_allclose(entry["eigenvalues"], values, rtol=1e-4)
        logits = np.asarray(network.apply(params, x, lambda v, A=A: A @ v))
        right = logits.argmax(1) == data.labels
        for name in ("train", "val", "test"):
            mask = getattr(data.splits, name)[0]
            assert entry[name] == pytest.approx(right[mask].mean(), abs=1e-6)
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        train = data.splits.train[0]
        loss = -np.log(p[np.arange(len(p)), data.labels])[train].mean()
        assert entry["loss"] == pytest.approx(loss, abs=1e-5)
        level = alignment.alignment(A, ideal, centered=True)
        assert record["graphs"][number]["homophily"] == pytest.approx(
            float(level), abs=1e-6
        )


def test_early_evaluations_change_neither_the_others_nor_the_findings(
    data, record, tmp_path
):
    early = dataclasses.replace(SMALL, early=2)
    found = ntk_study.run(data, early)
    assert [row["step"] for row in found["rows"]] == [0, 2, 5, 10, 20, 30]
    assert [row for row in found["rows"] if row["step"] % 10 == 0] == record["rows"]
    assert found["findings"] == record["findings"]
    options = Options(folder=tmp_path)
    short = ntk_study.run(
        data, dataclasses.replace(early, num_steps=5), options=options
    )
    assert [row["step"] for row in short["rows"]] == [0, 2, 5]
    assert ntk_study.run(data, early, options=options)["rows"] == found["rows"]


def test_early_steps_are_round_and_below_the_first_regular_one():
    paper = dataclasses.replace(SMALL, num_steps=5000, every=2000, early=7)
    assert paper.early_steps() == [10, 20, 50, 100, 200, 500, 1000]
    regular = [0, 2000, 4000, 5000]
    assert paper.evaluations(5000) == sorted([*paper.early_steps(), *regular])
    assert paper.evaluations(30) == [0, 10, 20, 30]
    assert dataclasses.replace(paper, every=2).early_steps() == [1]
    assert dataclasses.replace(paper, every=1).early_steps() == []
    assert ntk_study.settings("cora").early_steps() == []


def test_training_is_on_the_whole_graph_and_lowers_its_loss(record):
    losses = [row["graphs"][0]["loss"] for row in record["rows"]]
    assert losses == sorted(losses, reverse=True)
    assert record["diverged"] is None


@pytest.mark.slow
def test_a_synthetic_family_is_trained_without_a_graph(data):
    found = ntk_study.run(data, SMALL, family=member)
    assert found["synthetic"]
    levels = [g["homophily"] for g in found["graphs"]]
    assert levels == sorted(levels, reverse=True)
    # Trained without a graph, on the data alone: whatever graphs it is looked at on.
    alone = ntk_study.run(data._replace(edges=EMPTY), SMALL)
    assert (
        alone["rows"][-1]["graphs"][0]["train"] > alone["rows"][0]["graphs"][0]["train"]
    )
    same = [
        graph["test"] == other["test"]
        for graph, other in zip(
            ntk_study.run(data, SMALL, family=lambda _: data._replace(edges=EMPTY))[
                "rows"
            ][-1]["graphs"],
            alone["rows"][-1]["graphs"],
            strict=True,
        )
    ]
    assert all(same)
    assert {
        "less homophily, lower kernel-target alignment",
        "less homophily, lower test accuracy",
    } <= found["findings"].keys()


def test_graphs_share_one_pattern_and_one_trace(data):
    raw = _graphs.raw_graphs(
        data, [1.0, 0.5, 0.0], family=member, seed=0, manner="directed"
    )
    normalized = [graph.normalize(w) for w in raw]
    matrices = _graphs._with_shared_pattern(normalized)
    traces = []

    @jax.jit
    def dense(matrix):
        traces.append(1)
        return matrix(jnp.eye(120))

    for matrix, expected in zip(matrices, normalized, strict=True):
        np.testing.assert_array_equal(dense(matrix), expected.toarray())
    assert len(traces) == 1


def test_an_interrupted_run_goes_on_to_the_same_record(data, record, tmp_path):
    def stop(what, *_):
        if what == "kernels at step 20":
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    options = Options(folder=folder, checkpoint_seconds=0, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        ntk_study.run(data, SMALL, options=options)
    lines = (folder / "tracking.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 10]
    seen = []
    options = Options(folder=folder, progress=lambda *what: seen.append(what))
    found = ntk_study.run(data, SMALL, options=options)
    assert found["rows"] == record["rows"]
    looked = {what for what, *_ in seen if what.startswith("kernels")}
    assert looked == {"kernels at step 20", "kernels at step 30"}
    other = dataclasses.replace(SMALL, width=8)
    with pytest.raises(ValueError, match="another run: width was 16, is 8"):
        ntk_study.run(data, other, options=Options(folder=folder))
    longer = dataclasses.replace(SMALL, num_steps=40)
    found = ntk_study.run(data, longer, options=Options(folder=folder))
    assert found["rows"][-1]["step"] == 40


@pytest.mark.slow
def test_a_run_goes_on_in_another_process(tmp_path):
    line = ["ntk", "--every", "2", "--num-graphs", "2", "--json", "--quiet"]
    line += ["--folder", str(tmp_path / "run")]

    def run(*more):
        command = [sys.executable, "-m", "gnnrp.cli", *line, "--num-steps", *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    first, both = run("2"), run("4", "--resume")
    assert [row["step"] for row in both["rows"]] == [0, 1, 2, 4]
    assert both["rows"][:3] == first["rows"]


def test_divergence_is_reported(data):
    found = ntk_study.run(data, dataclasses.replace(SMALL, learning_rate=1e200))
    assert found["diverged"] < 10
    assert found["findings"] == {}
    told = tables.tracking_table(found)
    assert f"the loss was not finite at step {found['diverged']}, steps too" in told
    assert "the kernel's largest eigenvalue" in told
    assert told.count("take a smaller --learning-rate") == 1


def test_sparse_and_missing_features_serve(data, record):
    thin = data._replace(features=scipy.sparse.csr_array(data.features))
    found = ntk_study.run(thin, SMALL)
    for one, other in zip(found["rows"], record["rows"], strict=True):
        for a, b in zip(one["graphs"], other["graphs"], strict=True):
            assert a["kernel_labels"] == pytest.approx(b["kernel_labels"], abs=1e-5)
    bare = ntk_study.inputs(data._replace(features=None), row_normalize=True)
    np.testing.assert_array_equal(bare(jnp.eye(120)), np.eye(120))


def test_gram_matrices_are_dropped_where_they_do_not_fit(data, record, monkeypatch):
    monkeypatch.setattr(memory, "process_bytes", lambda: 0)
    needed = structured.peak_bytes(
        120, data.features.shape[1], SMALL.depth, 1, 0, itemsize=8
    )
    found = ntk_study.run(data, SMALL, options=Options(max_bytes=needed))
    for one, other in zip(found["rows"], record["rows"], strict=True):
        assert one["graphs"][1]["kernel_graph"] == pytest.approx(
            other["graphs"][1]["kernel_graph"], abs=1e-6
        )
    with pytest.raises(ValueError, match="kernel of 120 nodes on 3 graphs takes about"):
        ntk_study.run(data, SMALL, options=Options(max_bytes=needed - 1))


def test_several_tasks_are_refused(data):
    several = data._replace(labels=np.zeros((120, 2)))
    with pytest.raises(ValueError, match="has several tasks a node"):
        ntk_study.run(several, SMALL)


def test_an_untrained_network_supports_no_finding_on_training(data):
    untrained = dataclasses.replace(SMALL, num_steps=1, every=1, learning_rate=1e-9)
    found = ntk_study.run(data, untrained)["findings"]
    assert not found["training raises kernel-target alignment"]["holds"]
    assert not found["training raises kernel-graph alignment"]["holds"]


def test_a_set_scored_by_roc_auc_is_trained_on_its_labels_all_the_same(data, record):
    binary = data._replace(
        metric="roc_auc", labels=np.minimum(data.labels, 1), num_classes=2
    )
    plain = ntk_study.run(binary._replace(metric="accuracy"), SMALL)
    assert ntk_study.run(binary, SMALL)["rows"] == plain["rows"]
    assert plain["rows"] != record["rows"]


def test_a_folder_in_the_place_of_the_rows_is_refused_before_the_run(data, tmp_path):
    (tmp_path / "run" / "tracking.jsonl").mkdir(parents=True)
    seen = []
    options = Options(folder=tmp_path / "run", progress=lambda *x: seen.append(x))
    with pytest.raises(IsADirectoryError, match="is a folder, and rows"):
        ntk_study.run(data, SMALL, options=options)
    assert seen == []


def test_a_folder_of_other_data_or_fewer_steps_is_refused(data, tmp_path):
    folder = tmp_path / "run"
    options = Options(folder=folder)
    ntk_study.run(data, SMALL, options=options)
    other = data._replace(splits=type(data.splits)(*data.splits[:2], data.splits[1]))
    with pytest.raises(ValueError, match="another run: graphs and splits was"):
        ntk_study.run(other, SMALL, options=options)
    fewer = dataclasses.replace(SMALL, num_steps=20)
    with pytest.raises(ValueError, match="is at step 30, beyond num_steps=20"):
        ntk_study.run(data, fewer, options=options)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(
        OSError, match=r"cannot be written \(.*\); choose another place"
    ):
        ntk_study.run(data, SMALL, options=Options(folder=file))


def test_looks_are_lines_of_json_even_where_the_loss_is_not_finite(data, tmp_path):
    wild = dataclasses.replace(SMALL, learning_rate=1e200)
    ntk_study.run(data, wild, options=Options(folder=tmp_path))
    lines = (tmp_path / "tracking.jsonl").read_text().splitlines()

    def refuse(word):
        raise AssertionError(word)

    rows = [json.loads(line, parse_constant=refuse) for line in lines]
    assert rows[-1]["graphs"][0]["loss"] is None


def test_a_zero_kernel_has_zero_eigenvalues():
    assert _tracking_rows.largest_eigenvalues(np.zeros((50, 50))) == [0, 0, 0]
    assert _tracking_rows.largest_eigenvalues(np.diag([3.0, 1.0])) == [3.0, 1.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be positive and finite, got 0.0"),
        ({"num_steps": 0}, "num_steps must be at least 1, got 0"),
        ({"depth": 4}, "depth must be at most 3, got 4"),
        ({"momentum": 1.5}, r"momentum must lie in \[0, 1\], got 1.5"),
        ({"num_graphs": 1}, "num_graphs must be at least 2, got 1"),
        ({"manner": "both"}, "manner must be one of directed, undirected"),
        ({"reduce": "full"}, "reduce must be one of trace, sum, pseudo"),
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"early": -1}, "early must be at least 0, got -1"),
        ({"features": "row"}, "features must be one of raw, normalized"),
        ({"weight_decay": -1.0}, r"weight_decay must lie in \[0, 1\], got -1.0"),
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_settings_that_no_run_can_use_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)


def test_the_paper_has_settings_for_its_three_sets():
    found = [ntk_study.settings(name) for name in ("cora", "texas", "sbm", "wisconsin")]
    assert [s.learning_rate for s in found] == [1e-2, 3e-4, 5e-5, 3e-4]
    assert [s.num_steps for s in found] == [50_000, 20_000, 20_000, 20_000]
    assert [s.features for s in found] == ["normalized", "raw", "raw", "raw"]
    others = [ntk_study.settings(name) for name in ("physics", "photo", "tolokers")]
    assert [s.features for s in others] == ["normalized", "raw", "raw"]
    assert {s.learning_rate for s in others} == {1e-2}


def test_the_command_prints_one_object_and_draws(tmp_path, monkeypatch, capsys, data):
    monkeypatch.setattr(datasets, "load", lambda *_, **__: data._replace(name="cora"))
    plot = tmp_path / "evolution.png"
    line = ["ntk", "--num-steps", "20", "--every", "10", "--num-graphs", "3"]
    line += ["--early", "1"]
    assert cli.main([*line, "--json", "--quiet", "--plot", str(plot)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["step"] for row in shown["rows"]] == [0, 5, 10, 20]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert cli.main([*line, "--quiet", "--plot", str(plot)]) == 0
    text = capsys.readouterr().out
    assert "Findings of the paper, in this run (agreeing, disagreeing" in text
    assert shown["settings"]["features"] == "raw"
    assert cli.main([*line, "--json", "--quiet", "--features", "normalized"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert other["settings"]["features"] == "normalized"
    assert other["rows"][0] != shown["rows"][0]
    assert cli.main(["ntk", "--width", "0"]) == 2
    assert capsys.readouterr().err == "gnnrp: width must be at least 1, got 0\n"
    assert cli.main(["ntk", "--features", "row"]) == 2
    error = capsys.readouterr().err
    assert "features must be one of raw, normalized, got 'row'" in error


def test_the_figure_has_the_alignment_of_graph_and_labels_as_a_dashed_line(
    data, record
):
    A = graph.normalize(graph.raw_adjacency(data.edges, data.num_nodes)).toarray()
    ideal = alignment.label_kernel(data.labels, 3)
    expected = alignment.alignment(np.linalg.matrix_power(A, 4), ideal, centered=True)
    assert record["target_labels"] == pytest.approx(float(expected), abs=1e-6)
    labels = plotting.evolution(record).axes[1]
    dashed = [line for line in labels.get_lines() if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in dashed] == [record["target_labels"]]


@pytest.mark.parametrize("name", ["sbm", "cora"])
def test_a_quick_run_trains_as_long_by_larger_steps(name):
    published = ntk_study.settings(name)
    values = ntk.quick_values(published)
    quick = dataclasses.replace(published, **values)
    time = quick.learning_rate * quick.num_steps
    assert time == pytest.approx(published.learning_rate * published.num_steps)
    assert len(dataclasses.replace(quick, early=0).evaluations(quick.num_steps)) == 5


@pytest.mark.slow
def test_a_quick_run_shows_the_findings_of_the_whole_run(tmp_path, capsys):
    plot = str(tmp_path / "ntk.png")
    assert cli.main(["ntk", "--quick", "--early", "0", "--quiet", "--plot", plot]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    verdicts = [line for line in lines if line.startswith(("holds", "does NOT hold"))]
    assert len(verdicts) == 5
    failed = [line for line in verdicts if line.startswith("does NOT hold")]
    assert len(failed) == 1  # as over 20 seeds, see docs/finite.md
    assert "and lowers it on heterophilic ones" in failed[0]


def test_inputs_are_sparse_only_where_they_are_thin():
    thin, thick = (
        scipy.sparse.random_array((50, 40), density=d, rng=0, format="csr")
        for d in (0.1, 0.3)
    )
    data = sbm.generate(0)._replace(num_nodes=50)
    found = [
        ntk_study.inputs(data._replace(features=x), row_normalize=False)
        for x in (thin, thick)
    ]
    assert isinstance(found[0], sparse.Matrix)
    assert isinstance(found[1], jax.Array)
    np.testing.assert_array_equal(found[1], thick.toarray())
