"""The paper's findings: pairs, verdicts, and that each of them can fail."""

import numpy as np
import pytest

from gnnrp.studies import findings

FALLING, RISING = (0.9, 0.5, 0.1), (0.1, 0.5, 0.9)
LEVELS = (0.3, 0.2, 0.1)


def judge(
    graph, labels, test, *, levels=LEVELS, synthetic=False, num_test=1000, **more
):
    """Judge rows (evaluation, graph), the same at each evaluation if there is one."""
    values = {"kernel_graph": graph, "kernel_labels": labels, "test": test, **more}
    values = {
        name: np.broadcast_to(np.atleast_2d(each), (3, 3))
        for name, each in values.items()
    }
    found = findings.judge(values, levels, synthetic=synthetic, num_test=num_test)
    return {name: each.holds for name, each in found.items()}


def test_findings_on_a_real_graph_compare_graphs_and_steps():
    at = np.array([[0.1], [0.3], [0.5]])
    assert judge(at + 0.1 * np.array(FALLING), at * np.array(FALLING), FALLING) == {
        "training raises kernel-target alignment": True,
        "less graph, lower kernel-graph alignment": True,
        "more graph, better kernel-target alignment": True,
        "more graph, better test accuracy": True,
        "training raises kernel-graph alignment": True,
    }
    assert judge(RISING, RISING, RISING) == {
        "training raises kernel-target alignment": False,
        "less graph, lower kernel-graph alignment": False,
        "more graph, better kernel-target alignment": False,
        "more graph, better test accuracy": False,
        "training raises kernel-graph alignment": False,
    }


def test_a_heterophilic_graph_turns_the_findings_around():
    down = np.array([[0.5], [0.3], [0.1]]) + 0.1 * np.array(FALLING)
    found = judge(down, RISING, RISING, levels=LEVELS[::-1])
    assert found["more graph, worse kernel-target alignment"]
    assert found["more graph, worse test accuracy"]
    assert found["training lowers kernel-graph alignment"]
    found = judge(-down, FALLING, FALLING, levels=LEVELS[::-1])
    assert sum(found.values()) == 0


def test_synthetic_findings_follow_homophily():
    near = (0.6, 0.5, 0.4)
    trend = np.array([[0, 0, 0], [0.05, 0, -0.05], [0.1, 0, -0.1]])
    found = judge(
        near + trend,
        FALLING,
        FALLING,
        levels=(0.1, 0, -0.1),
        synthetic=True,
        kernel_first=FALLING,
    )
    high = "stays high: above 0.2 and half of the largest"
    both = (
        "training raises kernel-graph alignment on homophilic graphs and lowers it on "
        "heterophilic ones"
    )
    assert found == {
        "training raises kernel-target alignment": False,
        f"kernel-graph alignment (A^2L of each graph) {high}": True,
        f"kernel-graph alignment (A^2L of the homophilic edges) {high}": False,
        "less homophily, lower kernel-target alignment": True,
        "less homophily, lower test accuracy": True,
        both: True,
    }
    mixed = judge(near + trend, FALLING, FALLING, levels=LEVELS, synthetic=True)
    assert not mixed[both]  # all three are homophilic: their levels are positive
    low = tuple(x / 10 for x in near)  # above half of the largest, but not high
    found = judge(low - trend, RISING, RISING, synthetic=True)
    assert sum(found.values()) == 0


def test_the_ends_do_not_decide():
    graph = [FALLING, RISING, FALLING]  # at the last evaluation as the paper says
    found = judge(graph, graph, (0.6, 0.1, 0.5))  # so on the first and last graph
    assert not found["less graph, lower kernel-graph alignment"]
    assert not found["more graph, better test accuracy"]


def test_differences_within_the_margin_decide_nothing():
    near = (0.509, 0.505, 0.5)
    assert sum(judge(near, near, near).values()) == 0
    wide = (0.54, 0.52, 0.5)
    assert judge(wide, wide, wide, num_test=1000)["more graph, better test accuracy"]
    assert not judge(wide, wide, wide, num_test=30)["more graph, better test accuracy"]


def test_a_run_that_is_not_finite_supports_nothing():
    nan = (np.nan,) * 3
    assert sum(judge(nan, nan, nan).values()) == 0


@pytest.mark.parametrize(
    ("agree", "against", "pairs", "holds"),
    [(6, 2, 10, True), (5, 2, 10, False), (2, 0, 10, False), (3, 0, 10, True)],
)
def test_a_finding_needs_a_quarter_of_the_pairs_and_three_to_one(
    agree, against, pairs, holds
):
    assert findings.Finding(agree, against, pairs).holds == holds
    assert not findings.Finding(0, 0, 0).holds


def test_seeds_are_counted():
    yes, no = findings.Finding(9, 0, 10), findings.Finding(0, 9, 10)
    assert findings.over_seeds([{"x": yes}, {"x": no}, {"x": yes}]) == {
        "x": {"holds": 2, "seeds": 3, "verdict": "holds for some seeds"}
    }
    words = [findings.verdict(holds, 20) for holds in (0, 1, 17, 18, 20)]
    some = "holds for some seeds"
    assert words == ["not reproduced", some, some, "holds", "holds"]
