"""Sets whose files are not everywhere run end to end on files of the same format."""

import jax
import pytest
from miniatures import heterophilous, ogb

from experiments import published
from experiments.paper import (
    figure2_rp_curve,
    table1_ogb,
    table3_datasets,
    table5_heterophilic,
)
from experiments.report import score_tables

OGB = ("arxiv", "proteins", "products")


@pytest.fixture(autouse=True)
def as_users_run_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture
def ogb_files(tmp_path):
    for name in OGB:
        ogb(tmp_path / f"ogbn_{name}", name, features=True)
    return tmp_path


@pytest.mark.slow
def test_table_1_runs_on_files_as_ogb_stores_them(ogb_files):
    config = table1_ogb.Config(data_dir=ogb_files, num_seeds=2, num_epochs=4, repeats=1)
    outcome = table1_ogb.run(config)
    record = {"result": outcome.result, "measured": outcome.measured}
    for name in OGB:
        panel = outcome.result["datasets"][name]
        models = {"MLP", "SGC", "GCN", "RP", "majority class"}
        models |= {"LP", "LP, labels held", "LP, column-normalized"}
        assert panel["found"].keys() == models
        assert panel["metric"] == ("roc_auc" if name == "proteins" else "accuracy")
        assert all(0 <= row["test_mean"] <= 100 for row in panel["found"].values())
        assert panel["found"]["GCN"]["num_seeds"] == 2
        measured = outcome.measured[name]
        assert measured["inputs"] == "as stored"
        assert measured["speedup of a step"] > 0
        reached = measured["time to accuracy"]
        assert (reached["ratio"] is None) == (reached["RP steps"] is None)
    *tables, speed = score_tables.ogb(record)
    assert [table.title.split(",")[0] for table in tables] == list(OGB)
    assert [table.title.split(", ")[1] for table in tables] == [
        "accuracy", "ROC-AUC", "accuracy"
    ]  # fmt: skip
    assert not any("not run" in table.note for table in tables)
    assert len(speed.rows) == 9
    assert outcome.files["proteins"].keys() >= {"raw/edge-feat.csv.gz"}


def test_without_features_only_what_needs_none_is_computed(tmp_path):
    ogb(tmp_path / "ogbn_arxiv", "arxiv")
    config = table1_ogb.Config(data_dir=tmp_path, repeats=1, models=("GCN",))
    outcome = table1_ogb.run(config)
    panel = outcome.result["datasets"]["arxiv"]["found"]
    assert panel["GCN"] == published.FEATURELESS
    assert isinstance(panel["RP"]["test_mean"], float)
    assert outcome.measured["arxiv"]["inputs"] == "drawn"
    assert outcome.measured["arxiv"]["time to accuracy"] == published.FEATURELESS
    for name in ("proteins", "products"):
        assert outcome.result["datasets"][name]["found"] == published.ABSENT
    record = {"result": outcome.result, "measured": outcome.measured}
    arxiv, proteins, _, speed = score_tables.ogb(record)
    cells = {row[0]: row[1:] for row in arxiv.rows}
    assert cells["GCN"][:3] == ["-", "-", "-"]
    assert cells["RP"][0] != "-"
    assert proteins.note == published.ABSENT
    assert all(row[1:4] == ["-", "-", "-"] for row in proteins.rows)
    assert ["proteins", "memory", "-", "x 0.363"] in speed.rows


@pytest.mark.slow
def test_figure_2_has_a_panel_for_each_of_ogbs_sets(ogb_files):
    config = figure2_rp_curve.Config(
        data_dir=ogb_files, step_sizes=(1.0, 0.1), num_steps=5
    )
    outcome = figure2_rp_curve.run(config)
    assert set(outcome.figures) == set(OGB)
    for panel in outcome.result.values():
        assert len(panel["found"]["test"]["0.1"]) == 5


@pytest.mark.slow
def test_the_heterophilic_table_runs_on_the_benchmarks_own_files(tmp_path):
    for name in table5_heterophilic.SETS:
        heterophilous(tmp_path / name.replace("-", "_"), name)
    config = table5_heterophilic.Config(data_dir=tmp_path, num_large=2, num_epochs=3)
    outcome = table5_heterophilic.run(config)
    for name, column in outcome.result["datasets"].items():
        assert column["found"].keys() >= {"MLP", "GCN", "RP", "LP"}
        assert column["found"]["RP"]["num_seeds"] == 10
        assert column["found"]["MLP"]["num_seeds"] == 2
        binary = name in {"minesweeper", "tolokers", "questions"}
        assert column["metric"] == ("roc_auc" if binary else "accuracy")
    settings = {"num_epochs": config.num_epochs}
    tables = score_tables.scores({"result": outcome.result, "settings": settings})
    assert not any("not run" in table.note for table in tables)
    statistics = table3_datasets.run(
        table3_datasets.Config(data_dir=tmp_path, datasets=table5_heterophilic.SETS)
    )
    for row in statistics.result["datasets"].values():
        assert row["edges"]["both"] == 2 * row["edges"]["once"] == 24
        assert "num_nodes" in row["differs"]
