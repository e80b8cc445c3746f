"""The experiment on chosen similarities: its splits, its rows, one row exactly."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments import published, runner
from experiments.paper import beyond
from experiments.report import beyond_tables, results_table
from gnnrp import datasets

RECORD = Path(__file__).parents[2] / "experiments/results/beyond.json"


@pytest.mark.slow
@pytest.mark.data
def test_the_row_of_texas_is_that_of_the_record(data_dir):
    record = json.loads(RECORD.read_text())
    config = beyond.Config(**record["settings"] | {"datasets": ("texas",)})
    data = datasets.load("texas", data_dir, download=False)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        found = beyond.chosen(data, config, runner.silent)
    stated = record["result"]["datasets"]["texas"]["chosen"]["published"]
    for name in ("val_mean", "test_mean", "test_std", "splits"):
        assert found[name] == stated[name]
    names = [trial["name"] for trial in found["choice"]["trials"]]
    assert names == [trial["name"] for trial in stated["choice"]["trials"]]


def test_a_shorter_search_has_the_scores_that_the_page_states():
    page = (RECORD.parents[2] / "docs/similarity.md").read_text()
    page = " ".join(page.split())
    longer, shorter = (
        {
            (name, kind): part["test_mean"]
            for name, row in json.loads(path.read_text())["result"]["datasets"].items()
            for kind, part in row["chosen"].items()
        }
        for path in (RECORD, RECORD.with_name("beyond_short_search.json"))
    )
    changed = {key for key in longer if longer[key] != shorter[key]}
    names = ("pubmed", "pubmed", "minesweeper", "tolokers", "photo")
    assert sorted(name for name, _ in changed) == sorted(names)
    for key in changed:
        digits = 1 if key[0] == "pubmed" else 2
        assert f"{shorter[key]:.{digits}f} instead of {longer[key]:.{digits}f}" in page
    assert {name for name, _ in shorter.keys() - longer.keys()} == {"cs", "physics"}
    assert f"CS with {shorter['cs', 'random']:.2f}" in page
    assert f"Physics with {shorter['physics', 'random']:.2f}" in page


def test_random_splits_of_planetoid_have_the_sizes_of_the_public_one():
    labels = np.repeat(np.arange(-1, 7), 400)
    splits = beyond.planetoid_splits(labels, 3, seed=0)
    train, val, test = splits
    assert train.shape == (3, 3200)
    assert (train.sum(axis=1) == 140).all()
    for row in train:
        assert (np.bincount(labels[row]) == 20).all()
    assert (val.sum(axis=1) == 500).all()
    assert (test.sum(axis=1) == 1000).all()
    assert not (train & val | train & test | val & test).any()
    assert (labels[train.any(axis=0) | val.any(axis=0) | test.any(axis=0)] >= 0).all()
    again = beyond.planetoid_splits(labels, 3, seed=0)
    np.testing.assert_array_equal(again.test, test)
    assert (beyond.planetoid_splits(labels, 3, seed=1).test != test).any()


def test_the_best_published_network_is_that_of_the_paper():
    assert beyond.best_published("tolokers") == {
        "RP": published.HETEROPHILIC["RP"]["tolokers"],
        "best": ["FSGNN", 82.76, 0.61],
    }
    assert beyond.best_published("arxiv")["best"] == ["GNN", 71.74, 0.29]
    assert beyond.best_published("texas") == {"RP": None, "best": None}


def test_a_quick_run_has_a_row_in_both_tables():
    config = beyond.Config(quick=True, search_seconds=0.01)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        record = runner.record(config, beyond.run, "beyond")
    scores, ranks = beyond_tables.tables(json.loads(json.dumps(record)))
    (row,) = scores.rows
    assert len(row) == len(scores.header)
    assert row[0] == "sbm"
    assert row[-1] == "A (1)"
    assert ranks.rows[0][:3] == ["sbm", "generated", "1"]
    assert int(ranks.rows[0][3]) > 3  # skipped


def test_the_network_of_the_readme_is_chosen_by_validation():
    rows = {
        "GCN": {"val_mean": 3.0, "test_mean": 1.0, "test_std": 0.0, "num_seeds": 2},
        "SGC": {"val_mean": 2.0, "test_mean": 9.0, "test_std": 0.0, "num_seeds": 2},
    }
    assert results_table._best_network(rows) == "1.00 (GCN, 2 runs)"
    assert results_table._best_network({"GCN": published.FEATURELESS}) == "-"
