"""The paper's tables and figures run at toy size, write records, and can fail."""

import dataclasses
import importlib
import json

import jax
import miniatures
import numpy as np
import pytest

from experiments import plots, published, runner
from experiments.paper import (
    analytic_vs_empirical,
    figure2_rp_curve,
    figure3_ntk_alignment,
    figure4_ntk_blocks,
    generalization,
    heterophily,
    inductive_pmlp,
    settings_scan,
    table1_ogb,
    table2_convergence,
    table3_datasets,
    table4_homophilic,
    table5_heterophilic,
)
from experiments.report import record_tables
from gnnrp import datasets
from gnnrp.datasets import sbm
from gnnrp.kernels.ntk import empirical
from gnnrp.studies import presets
from gnnrp.studies import rp as rp_study


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
def test_figure_2_starts_at_label_propagation_and_is_read_at_its_best_step(tmp_path):
    found = quick(figure2_rp_curve, tmp_path)["result"]["sbm"]["found"]
    lp = found["lp"]
    for eta, at in found["chosen"].items():
        val, test = found["val"][eta], found["test"][eta]
        assert len(val) == len(test) == 10
        assert at["step"] == 1 + int(np.argmax(val))
        assert (at["val"], at["test"]) == (max(val), test[at["step"] - 1])
        # The first step is label propagation times η, which ranks classes equally.
        assert (val[0], test[0]) == (lp["val"], lp["test"])
    assert max(found["val"]["1.0"]) > lp["val"]
    assert (tmp_path / "figure2_rp_curve_sbm.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "stated"),
    [
        (table4_homophilic, published.HOMOPHILIC),
        (table5_heterophilic, published.HETEROPHILIC),
    ],
)
def test_the_tables_of_scores_hold_rp_with_the_published_settings(module, stated):
    config = runner.shortened(module.Config(quick=True, models=()))
    found = module.run(config).result["datasets"]["sbm"]["found"]["RP"]
    record = rp_study.run(datasets.load("sbm"), presets.settings("sbm")).record
    assert (found["val_mean"], found["test_mean"]) == (
        record["val_mean"],
        record["test_mean"],
    )
    for name in module.Config().datasets:
        cell, figure = stated["RP"][name], presets.PUBLISHED[name]
        assert cell == (figure.test, figure.std or 0)


@pytest.mark.slow
def test_figure_3_draws_every_seed_and_judges_findings_over_seeds(tmp_path):
    found = quick(figure3_ntk_alignment, tmp_path)["result"]["sbm"]
    assert found["steps"] == [0, 250, 500]
    assert np.shape(found["curves"]["kernel_graph"]["first"]) == (3, 3)
    assert np.shape(found["curves"]["kernel_graph"]["median"]) == (3, 3)
    assert {each["seeds"] for each in found["findings"].values()} == {3}
    for kind, magic in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        file = tmp_path / f"figure3_ntk_alignment_sbm.{kind}"
        assert file.read_bytes().startswith(magic)


@pytest.fixture(scope="module")
def normalized():
    """Return the record of a small graph whose features are normalized."""
    sizes = {"num_blocks": 3, "block_size": 20, "train_per_class": 5}
    data = sbm.generate(num_val=10, num_test=10, **sizes)
    config = figure3_ntk_alignment.Config(
        quick=True, num_seeds=2, num_graphs=2, variant_steps=20
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure3_ntk_alignment, "QUICK", {"num_steps": 40, "every": 20})
        with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
            return figure3_ntk_alignment.panel(
                data._replace(name="cora"), config, runner.silent
            )


def test_figure_3_shows_what_the_outcome_on_normalized_features_depends_on(normalized):
    assert normalized["settings"]["features"] == "normalized"
    assert normalized["variants"].keys() == figure3_ntk_alignment.VARIANTS.keys()
    assert normalized["findings"].keys() == normalized["findings_without"].keys()
    whole = normalized["curves"]["share"]
    assert np.min(whole["first"]) > 0
    assert np.max(whole["last"]) == 0
    variants = normalized["variants"]
    assert np.max(variants["row-stochastic A"]["curves"]["share"]["first"]) == 0
    assert np.max(variants["no bias in the first layer"]["largest_bias"]) == 0
    figure = plots.regimes(normalized)
    assert len(figure.axes) == 7
    titles = [axes.get_title() for axes in figure.axes]
    assert sum(name in title for name in variants for title in titles) == 3


def test_figure_3_shows_published_values_and_the_dashed_line(normalized):
    stored = json.loads(json.dumps(normalized))  # as an interrupted run reads it
    first, labels, test = plots.evolution_over_seeds(stored).axes[:3]
    dashed = [line for line in labels.get_lines() if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in dashed] == [normalized["target_labels"]]
    crosses = [line for line in first.get_lines() if line.get_marker() == "x"]
    stated = published.FIGURE3["cora"]["whole graph"]["kernel_graph"]
    assert list(crosses[0].get_xdata()) == list(stated)
    assert list(crosses[0].get_ydata()) == list(stated.values())
    thin = [line for line in test.get_lines() if line.get_linewidth() == 0.5]
    assert len(thin) == 4  # two seeds on the first and the last graph


def test_the_report_compares_each_published_point_with_the_seeds(normalized):
    tables = record_tables.evolution({"result": {"cora": normalized}})
    titles = [table.title.removeprefix("cora") for table in tables]
    assert titles == ["", ", findings of the paper", ", published curves", ", variants"]
    assert len(tables[1].rows) == 5
    assert len(tables[2].rows) == 7
    assert len(tables[3].rows) == 5
    assert all(len(row) == len(table.header) for table in tables for row in table.rows)


def test_synthetic_features_are_in_the_order_of_the_blocks():
    data, family = figure3_ntk_alignment.synthetic(0)
    np.testing.assert_array_equal(data.features, family(0.3).features)
    centers = [data.features[data.labels == k].mean(axis=0) for k in range(5)]
    gaps = np.linalg.norm(np.array(centers)[:, None] - centers, axis=2)
    assert gaps[~np.eye(5, dtype=bool)].min() > 0.5
    other, _ = figure3_ntk_alignment.synthetic(1)
    assert np.abs(other.features - data.features).max() > 1


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
    result = quick(analytic_vs_empirical, tmp_path)["result"]
    found = result["datasets"]["sbm"]
    assert len(found["panels"]) == 2 * len(analytic_vs_empirical.SETUPS)
    for panel in found["panels"]:
        slopes, (narrow, *_, wide) = panel["slope"], panel["widths"]
        assert -0.8 < slopes["kernel"] < -0.25
        assert -0.9 < slopes["trajectory"] < -0.25
        # The drift falls like 1 / m, so that the own kernel predicts best.
        assert slopes["drift"] < slopes["kernel"] - 0.1
        assert wide["drift"]["mean"] < narrow["drift"]["mean"] / 5
        assert wide["frozen"]["mean"] < wide["trajectory"]["mean"] < 0.25
        assert wide["agreement"]["mean"] > 80
        residuals = wide["times"]["residual"]["mean"]
        assert residuals[-1] < 0.1 < residuals[0]
    assert max(found["routes"].values()) < 1e-5
    for kind in ("errors", "drift", "alignments", "outputs"):
        assert (tmp_path / f"analytic_vs_empirical_sbm_{kind}.png").exists()


@pytest.mark.slow
def test_the_pseudo_ntk_departs_in_the_training_of_the_figures(tmp_path):
    config = {"depths": (2,), "widths": (16, 256), "num_networks": 2, "num_steps": 1000}
    result = quick(analytic_vs_empirical, tmp_path, **config)["result"]
    outputs = result["datasets"]["sbm"]["outputs"]
    assert outputs["slope"]["pseudo"]["start"] < -0.3
    assert outputs["slope"]["pseudo"]["end"] > -0.2
    for row in outputs["widths"]:
        assert row["pseudo"]["start"]["mean"] < 0.15
        assert row["pseudo"]["end"]["mean"] > row["trace"]["end"]["mean"] > 0.15


def test_a_budget_for_no_network_is_refused():
    config = analytic_vs_empirical.Config(datasets=("sbm",), budget=1e-9)
    with pytest.raises(ValueError, match="two networks of some width, got 1e-09"):
        analytic_vs_empirical.run(config)


def test_other_depths_are_refused():
    config = analytic_vs_empirical.Config(depths=(2, 4))
    with pytest.raises(ValueError, match=r"depths must be 2 or 3, got \(2, 4\)"):
        analytic_vs_empirical.run(config)


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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:all nodes are predicted")  # random labels
def test_photo_has_the_published_split_ten_random_ones_and_the_values_of_the_script(
    tmp_path,
):
    miniatures.copurchase(tmp_path / "files")
    config = table4_homophilic.Config(
        datasets=("photo",),
        models=("GCN",),
        num_epochs=2,
        data_dir=tmp_path / "files",
        output=tmp_path,
    )
    made = runner.record(config, table4_homophilic.run, "table4_homophilic")
    column = made["result"]["datasets"]["photo"]
    lines = {"RP", table4_homophilic.SCRIPT, *table4_homophilic.LINES}
    assert column["found"].keys() == {"GCN", *lines}
    assert column["random splits"].keys() == lines
    for rows, num_splits in ((column["found"], 1), (column["random splits"], 10)):
        assert {rows[name]["num_seeds"] for name in lines} == {num_splits}
        powers = [
            rows[x]["settings"]["power"] for x in ("RP", table4_homophilic.SCRIPT)
        ]
        assert powers == [1, 3]


@pytest.mark.filterwarnings("ignore:all nodes are predicted")  # random labels
def test_a_scan_reports_each_setting_and_those_that_match(tmp_path):
    miniatures.copurchase(tmp_path)
    config = settings_scan.Config(
        data_dir=tmp_path, powers=(1, 2), num_steps=(3, 9), output=tmp_path
    )
    found = settings_scan.main(config)
    assert json.loads((tmp_path / "settings_scan_photo.json").read_text()) == found
    assert len(found["cells"]) == 2 * 5 * 2 * 2
    best = found["best by validation"]["val"]
    assert best == max(cell["val"] for cell in found["cells"])
    assert all(cell["best_step"] <= cell["num_steps"] for cell in found["cells"])
    data = datasets.load("photo", tmp_path)
    settings = dataclasses.replace(
        presets.settings("photo"), power=2, gamma=20.0, row_normalize=True, num_steps=9
    )
    run = rp_study.run(data, settings).record
    last = found["cells"][-1]
    assert (last["val"], last["test"]) == (run["val_mean"], run["test_mean"])
    assert last["best_step"] == run["splits"][0]["best_step"]
    for match in found["matches"]:
        assert round(match["test"], 2) == 95.55


def test_sets_without_one_published_split_are_not_scanned(tmp_path):
    miniatures.heterophilous(tmp_path)
    config = settings_scan.Config(dataset="tolokers", data_dir=tmp_path)
    with pytest.raises(ValueError, match="tolokers cannot be scanned"):
        settings_scan.main(config)


def test_absent_sets_show_published_figures_and_no_other(monkeypatch):
    monkeypatch.setattr(datasets, "find", lambda *_: None)
    config = table4_homophilic.Config(datasets=("cs",))
    found = table4_homophilic.run(config).result["datasets"]["cs"]
    assert found["found"] == published.ABSENT
    assert found["published"]["RP"] == (94.6, 0.0)


@pytest.mark.slow
def test_errors_of_graph_methods_fall_with_alignment_on_the_block_model(tmp_path):
    found = quick(generalization, tmp_path)["result"]
    first, last = found["sbm"][0], found["sbm"][-1]
    for method in ("RP", "GNTK"):
        assert first["errors"][method] < last["errors"][method]
        assert (
            found["correlations"]["sbm"]["alignment"][method]["rank_correlation"]
            <= -0.8
        )
    assert first["alignment"] > last["alignment"]
    assert first["bound"] < last["bound"]


def test_a_relation_needs_the_sign_of_the_theory_and_a_small_p_value():
    rows = [
        {"alignment": -i, "errors": {"RP": 2.0 * i, "MLP": 3.0, "GCN": (-1) ** i * i}}
        for i in range(6)
    ]
    for method, holds in (("RP", True), ("MLP", False), ("GCN", False)):
        found = generalization.relation(rows, "alignment", method, -1)
        assert found["holds"] is holds
    assert not generalization.relation(rows, "alignment", "RP", 1)["holds"]


def test_p_values_of_few_graphs_count_all_orders():
    for size, expected in ((3, 2 / 6), (4, 2 / 24), (5, 2 / 120)):
        line = [float(i) for i in range(size)]
        assert generalization.exact_p_value(line, line) == pytest.approx(expected)
        rows = [{"bound": x, "errors": {"RP": x}} for x in line]
        found = generalization.relation(rows, "bound", "RP", 1)
        assert found["holds"] == (size == 5)


@pytest.mark.slow
def test_negative_edges_help_where_all_edges_are_heterophilic(tmp_path):
    found = quick(heterophily, tmp_path)["result"]
    last = found["sbm"][-1]
    assert last["homophilic"] == 0
    for value in ("alignment", "RP", "GNTK"):
        assert last["negative"][value] > last["A"][value]


@pytest.mark.parametrize("name", heterophily.MATRICES)
def test_propagation_matrices_are_those_of_their_definition(name):
    data = heterophily.sbm.generate(
        0,
        block_size=8,
        num_blocks=3,
        train_per_class=2,
        intra_probability=0.3,
        inter_probability=0.3,
        num_val=3,
        num_test=3,
    )
    W = np.zeros((24, 24))
    x = data.features - data.features.mean(axis=0)
    for i, j in data.edges.T:
        cosine = x[i] @ x[j] / np.linalg.norm(x[i]) / np.linalg.norm(x[j])
        weight = {"A": 1, "none": 0, "negative": -1, "similarity": cosine}[name]
        W[i, j] = W[j, i] = weight
    W += np.eye(24)
    root = np.sqrt(np.abs(W).sum(axis=1))
    expected = W / root[:, None] / root
    found = np.asarray(heterophily.propagation_matrix(data, name)(jax.numpy.eye(24)))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_largest_eigenvalue_of_a_rank_one_kernel_has_all_of_its_norm():
    u = np.linspace(-1, 1, 9)
    assert heterophily.rank_one_share(np.outer(u, u)) == pytest.approx(1)
    assert heterophily.rank_one_share(np.eye(9)) == pytest.approx(8**-0.5)
