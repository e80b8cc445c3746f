"""The summary for OGB's leaderboards is of real runs, and says what it stands on."""

import json
import statistics
import sys

import jax
import miniatures
import numpy as np
import pytest

from experiments import runner
from experiments.paper import ogb_submission
from gnnrp import datasets
from gnnrp.runtime import interrupts
from gnnrp.studies import presets
from gnnrp.studies import rp as rp_study


@pytest.fixture(autouse=True)
def as_users_run_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb", None)  # as if it were not installed
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def made(page=ogb_submission.page, **settings):
    config = ogb_submission.Config(**settings)
    return runner.record(config, ogb_submission.run, "ogb_submission", page=page)


def rows_of(page):
    lines = [line.strip("| ").split(" | ") for line in page.splitlines()[4:]]
    return {key: value for key, value in lines}


def noise(monkeypatch):
    """Make each run another, as a method with random numbers would be."""
    rng, plain = np.random.default_rng(0), ogb_submission.propagate

    def propagate(*args):
        predictions, step = plain(*args)
        return predictions + rng.normal(size=predictions.shape).astype("float32"), step

    monkeypatch.setattr(ogb_submission, "propagate", propagate)


@pytest.mark.parametrize("name", ogb_submission.SETS)
def test_each_set_is_summed_up_from_files_as_ogb_stores_them(name, tmp_path):
    miniatures.ogb(tmp_path / f"ogbn_{name}", name)
    record = made(dataset=name, data_dir=tmp_path, output=tmp_path, runs=2)
    assert json.loads((tmp_path / "ogb_submission.json").read_text()) == record
    written = (tmp_path / "ogb_submission.md").read_text()
    assert written == ogb_submission.page(record)
    data = datasets.load(name, tmp_path)
    plain = rp_study.run(data, presets.settings(name, has_features=False)).record
    result = record["result"]
    for part in ("val", "test"):
        percent = pytest.approx(plain[f"{part}_mean"], abs=1e-4)
        assert 100 * result[part]["mean"] == percent
    assert result["judge"] == f"gnnrp.metrics.{data.metric}"
    assert record["files"] == {name: data.files}
    rows = rows_of(written)
    kind = "ROC-AUC" if name == "proteins" else "accuracy"
    assert rows[f"test {kind}"] == f"{result['test']['mean']:.4f} ± 0.0000"
    assert rows["parameters"] == "0"
    assert f"K = {presets.SETTINGS[name].power}," in rows["method"]


def test_runs_are_made_and_their_spread_is_found_not_assumed(monkeypatch):
    record = made(quick=True, runs=4, seed=5)
    result = record["result"]
    assert [row["run"] for row in result["runs"]] == [1, 2, 3, 4]
    assert result["test"]["std"] == 0
    told = "4; RP is deterministic, and all predictions are bit-identical"
    assert rows_of(ogb_submission.page(record))["runs"] == told
    noise(monkeypatch)
    record = made(quick=True, runs=4)
    result = record["result"]
    for part in ("val", "test"):
        scores = [row[part] for row in result["runs"]]
        assert result[part]["mean"] == pytest.approx(np.mean(scores))
        assert result[part]["std"] == pytest.approx(np.std(scores, ddof=1))
        assert result[part]["std"] > 0
    rows = rows_of(ogb_submission.page(record))
    assert rows["runs"] == (
        "4; RP is deterministic, and 4 predictions differ by rounding errors"
    )
    scores = [row["test"] for row in result["runs"]]
    told = f"{statistics.mean(scores):.4f} ± {statistics.stdev(scores):.4f}"
    assert rows["test accuracy"] == told


def test_of_one_run_no_deviation_is_told():
    record = made(quick=True, runs=1)
    rows = rows_of(ogb_submission.page(record))
    assert rows["test accuracy"] == f"{record['result']['test']['mean']:.4f}"
    assert rows["runs"] == ("1; RP is deterministic, and a single run has no deviation")


def test_two_summaries_are_the_same_but_for_times():
    one, other = (made(quick=True) for _ in range(2))
    for changes in runner.CHANGES:
        del one[changes], other[changes]
    assert one == other


def test_what_no_leaderboard_takes_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="arxiv, proteins, products, got 'cora'"):
        made(dataset="cora")
    with pytest.raises(ValueError, match="runs must be at least 1, got 0"):
        made(quick=True, runs=0)

    def diverged(*_):
        return np.full((2000, 5), np.nan), 7

    monkeypatch.setattr(ogb_submission, "propagate", diverged)
    with pytest.raises(ValueError, match="not finite at step 7"):
        made(quick=True)


def test_the_command_prints_the_page_and_nothing_else(monkeypatch, capsys):
    flags = ["ogb_submission", "--quick", "--runs", "2"]
    monkeypatch.setattr(sys, "argv", flags)
    monkeypatch.setattr(interrupts, "install", lambda: None)  # keep those of pytest
    arguments = (ogb_submission.Config, ogb_submission.run, "ogb_submission")
    runner.main(*arguments, ogb_submission.page)
    printed = capsys.readouterr().out
    assert printed.startswith("# RP on sbm\n")
    command = "`python -m experiments.paper.ogb_submission --quick --runs 2`"
    assert rows_of(printed.rstrip("\n"))["command"] == command
