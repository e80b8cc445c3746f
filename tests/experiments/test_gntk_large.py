"""The experiment on large wide networks: its rows, table and figure."""

import json

import jax
import pytest

from experiments import runner
from experiments.paper import gntk_large
from experiments.report import large_tables


@pytest.mark.long
def test_a_quick_run_compares_estimates_with_the_exact_kernel():
    config = gntk_large.Config(quick=True, small_features=(64, 1024), depths=(2,))
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        record = runner.record(config, gntk_large.run, "gntk_large")
    record = json.loads(json.dumps(record))
    exact, few, many = record["result"]["datasets"]["sbm"]["rows"]
    assert exact["method"] == "exact"
    assert many["error"] < few["error"] / 2.5  # a fourth, but for noise
    assert many["stated_error"] == pytest.approx(many["error"], rel=0.3)
    assert few["num_keys"] == 2
    scores, growth = large_tables.tables(record)
    assert all(len(row) == len(scores.header) for row in scores.rows)
    assert [row[1] for row in scores.rows] == [
        "exact",
        "random features",
        "random features",
        "trained GCN",
    ]
    assert len(growth.rows) == 2
    assert record["figures"] == ["gntk_large.png"]
