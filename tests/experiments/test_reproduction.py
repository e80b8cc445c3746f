"""The paper's tables and figures run at toy size, write records, and can fail."""

import dataclasses
import importlib
import json

import jax
import numpy as np
import pytest

from experiments import published, runner
from experiments.paper import (
    analytic_vs_empirical,
    figure2_rp_curve,
    figure3_ntk_alignment,
    figure4_ntk_blocks,
    inductive_pmlp,
    table1_ogb,
    table2_convergence,
    table3_datasets,
    table4_homophilic,
    table5_heterophilic,
)
from experiments.report import record_tables
from gnnrp import datasets
from gnnrp.kernels.ntk import empirical


@pytest.fixture(autouse=True)
def as_users_run_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def quick(module, tmp_path, **change):
    config = module.Config(quick=True, output=tmp_path, **change)
    name = module.__name__.split(".")[-1]
    made = runner.record(config, module.run, name)
    written = json.loads((tmp_path / f"{name}.json").read_text())
    assert written["settings"]["quick"]
    assert written["result"].keys() == made["result"].keys()
    return made


def test_each_case_of_the_convergence_table_is_as_stated(tmp_path):
    found = quick(table2_convergence, tmp_path)["result"]
    assert len(found["cases"]) == 5
    assert found["all_as_stated"]
    growth = [case["growth"] for case in found["cases"]]
    assert max(growth[:3]) < 1e-6
    assert growth[3] == pytest.approx(1, rel=1e-2)
    assert growth[4] > 1e6


def test_a_table_that_were_wrong_would_be_found_so():
    build, _ = table2_convergence.CASES["S_XX PSD, S not PSD"]
    S = build(np.random.default_rng(0), 14)
    targets = np.eye(2)[np.arange(6) % 2]
    row = table2_convergence.measure("x", S, ("converges", "converges"), targets, 100)
    assert not row["as_stated"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        table1_ogb,
        table2_convergence,
        figure2_rp_curve,
        figure4_ntk_blocks,
        inductive_pmlp,
    ],
)
def test_two_runs_give_the_same_record_and_pictures_but_for_times(module, tmp_path):
    one, other = (quick(module, tmp_path / name) for name in "ab")
    for changes in runner.CHANGES:
        del one[changes], other[changes]
    assert one == other
    for name in one["figures"]:
        assert (tmp_path / "a" / name).read_bytes() == (
            tmp_path / "b" / name
        ).read_bytes()


def test_the_dataset_table_counts_in_three_ways_and_names_what_is_absent(
    tmp_path, monkeypatch
):
    found = quick(table3_datasets, tmp_path)["result"]["datasets"]["sbm"]
    assert found["differs"] == []
    assert found["edges"]["both"] == 2 * found["edges"]["once"]
    monkeypatch.setattr(datasets, "find", lambda *_: None)
    config = table3_datasets.Config(datasets=("cora",))
    absent = table3_datasets.run(config).result["datasets"]["cora"]
    assert absent["found"] == published.ABSENT


@pytest.mark.slow
def test_figure_3_draws_every_set_and_tells_its_findings(tmp_path):
    found = quick(figure3_ntk_alignment, tmp_path)["result"]["sbm"]
    assert len(found["claims"]) == 4
    for kind, magic in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        file = tmp_path / f"figure3_ntk_alignment_sbm.{kind}"
        assert file.read_bytes().startswith(magic)


@pytest.mark.slow
def test_figure_4_measures_how_far_classes_are_apart(tmp_path):
    found = quick(figure4_ntk_blocks, tmp_path)["result"]
    assert len(found["nodes"]) == 20
    assert sorted(found["labels"]) == found["labels"]
    assert 0 < found["off_class_share"] < 1
    assert 0 < found["relative_difference"] < 2
    assert np.shape(found["c x c"]) == (5, 5)


@pytest.mark.slow
def test_wide_networks_come_near_the_infinite_kernel_and_its_trajectory(tmp_path):
    found = quick(analytic_vs_empirical, tmp_path)["result"]
    for what in ("kernel", "trajectory"):
        assert -0.7 < found["slope"][what] < -0.3
        errors = [row[what]["mean"] for row in found["widths"]]
        assert errors[-1] < 0.1
    assert (tmp_path / "analytic_vs_empirical.png").exists()


def test_a_width_below_one_is_refused():
    config = analytic_vs_empirical.Config(widths=(64, 0))
    with pytest.raises(ValueError, match=r"widths must be at least 1, got 0"):
        runner.checked(config)


def test_the_defaults_of_every_experiment_are_allowed():
    for name in record_tables.TABLES:
        module = importlib.import_module(f"experiments.paper.{name}")
        assert runner.checked(module.Config()) == module.Config()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (table4_homophilic.Config(datasets=("cora", "corra")), "cora"),
        (table4_homophilic.Config(models=("GNC",)), "GCN"),
        (table1_ogb.Config(models=("APPNP",)), "models"),
        (table4_homophilic.Config(num_seeds=0), "num_seeds must be at least 1, got 0"),
        (table1_ogb.Config(repeats=-1), "repeats must be at least 1, got -1"),
        (table2_convergence.Config(seed=-1), "seed must be at least 0, got -1"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_computed(config, message):
    with pytest.raises(ValueError, match=message):
        runner.record(config, lambda *_: pytest.fail("computed"), "x")


@pytest.mark.parametrize(
    ("module", "change", "message"),
    [
        (table2_convergence, {"num_nodes": 6}, "num_nodes must be at least 7, got 6"),
        (figure4_ntk_blocks, {"num_nodes": 2001}, "at most 2000, got 2001"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(module, change, message):
    config = runner.shortened(module.Config(quick=True, **change))
    with pytest.raises(ValueError, match=message):
        module.run(config)


def test_binary_tasks_are_refused_where_classes_are_needed(monkeypatch):
    binary = datasets.load("sbm")._replace(metric="roc_auc", name="minesweeper")
    monkeypatch.setattr(runner, "load", lambda *_: binary)
    with pytest.raises(ValueError, match="minesweeper has binary tasks"):
        inductive_pmlp.run(inductive_pmlp.Config(datasets=("minesweeper",)))


def test_a_short_version_keeps_what_is_asked_for():
    config = table4_homophilic.Config(quick=True, num_seeds=7)
    short = runner.shortened(config)
    assert (short.num_seeds, short.num_epochs) == (7, 5)
    assert runner.shortened(table4_homophilic.Config()).num_epochs == 300


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    config = table2_convergence.Config(output=tmp_path / "file" / "folder")
    with pytest.raises(OSError, match="cannot be written"):
        runner.record(config, lambda *_: pytest.fail("computed"), "x")


def test_what_an_interrupted_run_left_is_not_computed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(runner.records, "commit", lambda: "c" * 40)
    config = table4_homophilic.Config(output=tmp_path, datasets=("sbm",))
    calls, sbm = [], datasets.load("sbm")
    here = {"sbm": sbm, "cora": None}
    monkeypatch.setattr(runner, "load", lambda name, _: here[name])

    def compute(data):
        calls.append(data.name)
        return {"x": 1.5}

    def once(**change):
        changed = dataclasses.replace(config, **change)
        ((data, found),) = runner.each(changed, "table", compute)
        assert data.name == "sbm"
        return found

    assert once() == once() == once(datasets=("cora", "sbm")) == {"x": 1.5}
    assert len(calls) == 1
    once(seed=1)
    once(num_epochs=2)
    assert len(calls) == 3
    here["sbm"] = sbm._replace(files={"edges.csv": "another digest"})
    once(num_epochs=2)
    assert len(calls) == 4
    monkeypatch.setattr(runner.records, "commit", lambda: "c" * 40 + "-dirty")
    once()
    once()
    assert len(calls) == 6


@pytest.mark.slow
def test_training_without_the_graph_and_testing_with_it_lies_between(tmp_path):
    found = quick(inductive_pmlp, tmp_path, num_epochs=200)["result"]["datasets"]["sbm"]
    best = {name: row["infinite"]["test_mean"] for name, row in found.items()}
    assert best["MLP"] + 5 < best["PMLP"] < best["transductive"] - 5
    finite = {name: row["finite"]["test_mean"] for name, row in found.items()}
    assert finite["MLP"] < finite["PMLP"] < finite["transductive"]
    assert found["transductive"]["restricted"] == 0
    assert found["PMLP"]["restricted"] > 0.1


def test_independent_outputs_have_no_share_between_classes():
    K = np.random.default_rng(0).standard_normal((4, 4))
    full = jax.numpy.asarray(np.einsum("ij,kl->ikjl", K @ K.T, np.eye(3)), "float32")
    assert figure4_ntk_blocks.off_class_share(full) == pytest.approx(0, abs=1e-6)
    assert figure4_ntk_blocks.to_pseudo(full) == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(empirical.over_classes(full), K @ K.T / 3, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("module", [table4_homophilic, table5_heterophilic])
def test_tables_of_scores_train_networks_beside_rp(tmp_path, module):
    found = quick(module, tmp_path)["result"]["datasets"]["sbm"]["found"]
    lines = {"RP", *table4_homophilic.LINES}
    assert found.keys() == {*module.Config().models, *lines}
    assert found["RP"]["test_mean"] > 60
    for name in module.Config().models:
        assert found[name]["epochs_run"] == 5
        assert 0 <= found[name]["test_mean"] <= 100
        assert len(found[name]["best_epochs"]) == found[name]["num_seeds"]


def test_absent_sets_show_published_figures_and_no_other(monkeypatch):
    monkeypatch.setattr(datasets, "find", lambda *_: None)
    config = table4_homophilic.Config(datasets=("cs",))
    found = table4_homophilic.run(config).result["datasets"]["cs"]
    assert found["found"] == published.ABSENT
    assert found["published"]["RP"] == (94.6, 0.0)
