"""Figures: the steps of curves, their axes, and the names of lines."""

import numpy as np
import pytest

from gnnrp import plotting

STEPS = [0, 10, 100, 1000, 10_000]
FAST, SLOW = [0.0, 0.5, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.1, 1.0]


def draw(curve, **more):
    figure = plotting.curves(
        {"kernel": curve}, {"labels": 0.3}, title="title", label="alignment", **more
    )
    return figure.axes[0]


def record(curve):
    names = ("kernel_graph", "kernel_labels", "test")
    rows = [
        {"step": step, "graphs": [dict.fromkeys(names, value)]}
        for step, value in zip(STEPS, curve, strict=True)
    ]
    return {
        "dataset": "cora",
        "synthetic": False,
        "settings": {"manner": "directed"},
        "rows": rows,
        "graphs": [{"kept": 1.0, "homophily": 0.1}],
        "target_labels": 0.4,
    }


def test_curves_are_drawn_at_their_steps_and_their_axes_are_named():
    axes = draw(SLOW, steps=STEPS, step_label="epoch")
    np.testing.assert_array_equal(axes.get_lines()[0].get_xdata(), STEPS)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "alignment")
    assert axes.get_xscale() == "linear"


def test_curves_start_at_step_one_by_default():
    axes = draw(FAST)
    np.testing.assert_array_equal(axes.get_lines()[0].get_xdata(), [1, 2, 3, 4, 5])
    assert (axes.get_xlabel(), axes.get_xscale()) == ("step t", "linear")


def test_steps_of_fast_curves_are_logarithmic_and_show_step_zero():
    axes = draw(FAST, steps=STEPS)
    assert axes.get_xscale() == "symlog"
    assert axes.get_xlim() == (0, 10_000)


@pytest.mark.parametrize(("curve", "scale"), [(FAST, "symlog"), (SLOW, "linear")])
def test_an_evolution_is_logarithmic_where_training_starts_fast(curve, scale):
    panels = plotting.evolution(record(curve)).axes
    assert [axes.get_xscale() for axes in panels[:4]] == [scale] * 3 + ["linear"]


def test_the_dashed_line_of_an_evolution_has_its_name_beside_it():
    labels = plotting.evolution(record(FAST)).axes[1]
    assert [text.xy for text in labels.texts] == [(1, 0.4)]
    assert "Θ*" in labels.texts[0].get_text()


@pytest.mark.parametrize(
    ("synthetic", "manner", "label"),
    [
        (False, "directed", "share of directed edges kept"),
        (False, "undirected", "share of edges kept"),
        (True, "directed", "share of homophilic edges"),
    ],
)
def test_shares_of_directed_edges_are_called_so(synthetic, manner, label):
    changed = {"synthetic": synthetic, "settings": {"manner": manner}}
    drawn = record(FAST) | changed
    assert plotting.share_label(drawn) == label
    assert plotting.evolution(drawn).axes[3].get_xlabel() == label
