"""The paper's findings on the kernel in training, over all graphs and evaluations.

A finding is a statement about pairs: of graphs at the same step, or of steps on the
same graph. Differences within a margin decide nothing. It holds in a run if at least a
quarter of all pairs agree, and three times as many as disagree.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

MARGIN = 0.01  # least difference of alignments
HIGH = 0.2  # least alignment that counts as high
LEAST_SHARE = 1 / 4  # of agreeing pairs
LEAST_RATIO = 3  # of agreeing to disagreeing pairs
MOST = 0.9  # share of the seeds


class Finding(NamedTuple):
    """Number of pairs that agree with a statement, disagree, and all pairs."""

    agree: int
    against: int
    pairs: int

    @property
    def holds(self) -> bool:
        """Whether the pairs support the statement."""
        enough = self.agree >= max(1, LEAST_SHARE * self.pairs)
        return enough and self.agree >= LEAST_RATIO * self.against

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers and the verdict for a record."""
        return self._asdict() | {"holds": self.holds}


def judge(
    values: Mapping[str, Float[Any, "t g"]],
    levels: Sequence[float],
    *,
    synthetic: bool,
    num_test: int,
) -> dict[str, Finding]:
    """Return the findings of a run.

    Pairs of graphs are compared after the start of training. Accuracies must differ by
    (2 n)^-1/2, the largest standard error of a difference on n test nodes each. A graph
    is homophilic if A(A, Θ*) is positive, heterophilic if it is negative.

    Args:
        values: ``kernel_graph``, ``kernel_labels`` and ``test`` at each evaluation, on
            graphs with fewer and fewer (homophilic) edges; for synthetic graphs perhaps
            ``kernel_first``, the alignment with A^{2L} of the first graph.
        levels: A(A, Θ*) of each graph.
        synthetic: choose the findings on synthetic graphs.
        num_test: n.

    Source: Section 6, "Synthetic Dataset", "Real-World Datasets" and what follows.
    """
    near, labels, test = (
        np.asarray(values[name], float)
        for name in ("kernel_graph", "kernel_labels", "test")
    )
    error = (2 * max(1, num_test)) ** -0.5
    result = {"training raises kernel-target alignment": _in_time(labels, 1)}
    if synthetic:
        signs = np.sign(levels)
        high = {"of each graph": near}
        if "kernel_first" in values:
            high["of the homophilic edges"] = np.asarray(values["kernel_first"], float)
        for whose, each in high.items():
            name = f"kernel-graph alignment (A^2L {whose}) stays high: above {HIGH} "
            name += "and half of the largest"
            result[name] = _stays_high(each)
        return result | {
            "less homophily, lower kernel-target alignment": _over_graphs(labels, 1),
            "less homophily, lower test accuracy": _over_graphs(test, 1, error),
            "training raises kernel-graph alignment on homophilic graphs and lowers "
            "it on heterophilic ones": _in_time(near, signs),
        }
    sign = 1 if levels[0] > levels[-1] else -1
    word, trend = ("better", "raises") if sign > 0 else ("worse", "lowers")
    return result | {
        "less graph, lower kernel-graph alignment": _over_graphs(near, 1),
        f"more graph, {word} kernel-target alignment": _over_graphs(labels, sign),
        f"more graph, {word} test accuracy": _over_graphs(test, sign, error),
        # The last graph has no edges.
        f"training {trend} kernel-graph alignment": _in_time(near[:, :-1], sign),
    }


def over_seeds(runs: Sequence[Mapping[str, Finding]]) -> dict[str, dict[str, Any]]:
    """Return for each finding the number of runs in which it holds, and a verdict."""
    result = {}
    for name in runs[0]:
        holds = sum(run[name].holds for run in runs)
        result[name] = {
            "holds": holds,
            "seeds": len(runs),
            "verdict": verdict(holds, len(runs)),
        }
    return result


def verdict(holds: int, seeds: int) -> str:
    """Return "holds", "not reproduced", or "holds for some seeds", in between."""
    if holds >= MOST * seeds:
        return "holds"
    return "holds for some seeds" if holds > 0 else "not reproduced"


def _over_graphs(values: np.ndarray, sign: int, margin: float = MARGIN) -> Finding:
    """Compare graphs with more edges to those with fewer, at each later evaluation."""
    more, less = np.triu_indices(values.shape[1], 1)
    after = values[1:]
    return _count(sign * (after[:, more] - after[:, less]), margin)


def _in_time(values: np.ndarray, signs: Any) -> Finding:
    """Compare later evaluations to earlier ones, on each graph."""
    early, late = np.triu_indices(len(values), 1)
    return _count(signs * (values[late] - values[early]), MARGIN)


def _stays_high(values: np.ndarray) -> Finding:
    """Compare each alignment to half of the highest one, and to ``HIGH``."""
    after = values[1:]
    floor = np.maximum(HIGH, after.max(axis=1, keepdims=True) / 2)
    high = int((after >= floor).sum())
    return Finding(high, after.size - high, after.size)


def _count(differences: np.ndarray, margin: float) -> Finding:
    agree, against = (
        int((x > margin).sum()) for x in (differences, -np.asarray(differences))
    )
    return Finding(agree, against, differences.size)
