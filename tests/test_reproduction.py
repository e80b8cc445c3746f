"""The paper's tables and figures run at toy size, write records, and can fail."""

import json

import jax
import numpy as np
import pytest

from experiments import (
    analytic_vs_empirical,
    figure3_ntk_alignment,
    figure4_ntk_blocks,
    published,
    reproduction,
    table2_convergence,
    table3_datasets,
    table4_homophilic,
    table5_heterophilic,
)
from gnnrp import datasets
from gnnrp.kernels import empirical


@pytest.fixture(autouse=True)
def as_users_run_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def quick(module, tmp_path, **change):
    config = module.Config(quick=True, output=tmp_path, **change)
    name = module.__name__.split(".")[-1]
    made = reproduction.record(config, module.run, name)
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


def test_two_runs_give_the_same_record_but_for_times(tmp_path):
    one, other = (quick(table2_convergence, tmp_path) for _ in "ab")
    for changes in reproduction.CHANGES:
        del one[changes], other[changes]
    assert one == other


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
    with pytest.raises(ValueError, match=r"must be at least 1, got"):
        analytic_vs_empirical.run(config)


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
    assert found.keys() == {*module.Config().models, "RP"}
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
