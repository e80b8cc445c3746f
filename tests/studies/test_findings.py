"""The paper's findings on kernels in training, on reduced runs of its three sets."""

import dataclasses

import jax
import numpy as np
import pytest

from gnnrp import datasets
from gnnrp.datasets import sbm
from gnnrp.studies import ntk as ntk_study


def reduced(data, num_steps, family=None, **change):
    settings = dataclasses.replace(
        ntk_study.settings(data.name),
        num_steps=num_steps,
        every=num_steps,
        num_graphs=5,
        **change,
    )
    # As users run it: the tests' float64 and strict promotion are not theirs.
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        return ntk_study.run(data, settings, family=family)


def column(record, name):
    return np.array([entry[name] for entry in record["rows"][-1]["graphs"]])


@pytest.mark.slow
def test_on_the_synthetic_graphs_alignment_and_accuracy_follow_homophily():
    record = reduced(
        datasets.load("sbm"),
        5000,
        lambda share: sbm.generate(homophilic_fraction=share),
    )
    assert record["claims"] == {
        "training raises kernel-target alignment": True,
        "kernel-graph alignment stays high while homophily falls": True,
        "kernel-target alignment falls with it": True,
        "test accuracy falls with it": True,
    }
    near = column(record, "kernel_graph")
    assert near.min() > 0.35
    assert near.max() < 0.65


@pytest.mark.slow
@pytest.mark.data
def test_on_cora_more_graph_is_better(data_dir):
    record = reduced(datasets.load("cora", data_dir, download=False), 1500)
    assert record["claims"] == {
        "training raises kernel-target alignment": True,
        "less graph, lower kernel-graph alignment": True,
        "more graph, better kernel-target alignment": True,
        "more graph, better test accuracy": True,
    }
    assert column(record, "test")[0] > 0.78
    assert column(record, "test")[-1] < 0.72


@pytest.mark.slow
@pytest.mark.data
def test_on_texas_more_graph_is_worse(data_dir):
    record = reduced(datasets.load("texas", data_dir, download=False), 20_000)
    assert record["claims"] == {
        "training raises kernel-target alignment": True,
        "less graph, lower kernel-graph alignment": True,
        "more graph, worse kernel-target alignment": True,
        "more graph, worse test accuracy": True,
    }
