"""Means over networks, slopes in the width, and what the panels show.

A finding is counted over all panels: of each graph, depth, parameterization and loss.
Slopes are fitted to all widths of a panel.
"""

from typing import Any

import numpy as np

ERRORS = ("kernel", "drift", "trajectory", "frozen")
"""Errors of a row: initial kernel, drift, predictions by Θ and by Θ_0."""
MARGIN = 0.1
"""Of a slope, around -1/2."""
RISE = 0.01
"""Least difference of alignments that counts, as in Figure 3."""


def summary(values: list[float]) -> dict[str, float]:
    """Return mean and standard deviation over networks, to four digits."""
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return {"mean": digits(float(np.mean(values))), "std": digits(float(deviation))}


def start_and_end(values: list[list[float]]) -> dict[str, dict[str, float]]:
    """Return the summaries of the first and of the last value of each network."""
    return {
        "start": summary([each[0] for each in values]),
        "end": summary([each[-1] for each in values]),
    }


def over_time(values: list[list[float]]) -> dict[str, list[float]]:
    """Return means and standard deviations over networks at each time."""
    each = [summary(list(at)) for at in zip(*values, strict=True)]
    return {kind: [at[kind] for at in each] for kind in ("mean", "std")}


def digits(value: float) -> float:
    """Return a number rounded to four significant digits."""
    return float(f"{value:.4g}")


def slope(rows: list[dict[str, Any]], *names: str) -> float | None:
    """Return b of a fit m^b to the means of an entry, None for a single width."""
    values = []
    for row in rows:
        entry = row
        for name in names:
            entry = entry[name]
        values.append(entry["mean"])
    widths = [row["width"] for row in rows]
    if len(widths) < 2:
        return None
    return round(float(np.polyfit(np.log(widths), np.log(values), 1)[0]), 3)


def slopes_of_reductions(
    rows: list[dict[str, Any]],
) -> dict[str, dict[str, float | None]]:
    """Return the slopes of the distances of pseudo-NTK and trace, before and after."""
    return {
        name: {time: slope(rows, name, time) for time in ("start", "end")}
        for name in ("pseudo", "trace")
    }


def crossover(rows: list[dict[str, Any]]) -> float | None:
    """Return the width above which drift is below the error of the initial kernel.

    Interpolated in logarithms between the last width at which drift is larger and the
    next one; None if it is not larger at any width, or larger at the last.
    """
    gaps = [np.log(row["drift"]["mean"] / row["kernel"]["mean"]) for row in rows]
    above = [number for number, gap in enumerate(gaps) if gap > 0]
    if not above or above[-1] == len(rows) - 1:
        return None
    one, two = above[-1], above[-1] + 1
    share = gaps[one] / (gaps[one] - gaps[two])
    low, high = np.log(rows[one]["width"]), np.log(rows[two]["width"])
    return round(float(np.exp(low + share * (high - low))))


def findings(results: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return, for each claim, in how many panels it holds and of how many.

    Args:
        results: of each graph.
    """
    panels = [panel for result in results for panel in result["panels"]]
    wide = [panel for panel in panels if panel["slope"]["kernel"] is not None]
    slopes = [panel["slope"] for panel in wide]
    rows = [row for panel in panels for row in panel["widths"]]
    trained = [result["outputs"]["slope"] for result in results]
    claims = {
        "the error of the initial kernel falls like m^-1/2": [
            _near_half(s["kernel"]) for s in slopes
        ],
        "the error of the trajectory falls like m^-1/2": [
            _near_half(s["trajectory"]) for s in slopes
        ],
        "the drift falls faster than the error of the initial kernel": [
            s["drift"] < s["kernel"] for s in slopes
        ],
        "the drift is smaller than the error of the initial kernel from m = 256 on": [
            row["drift"]["mean"] < row["kernel"]["mean"]
            for row in rows
            if row["width"] >= 256
        ],
        "the network's own Θ_0 predicts it better than Θ does": [
            row["frozen"]["mean"] < row["trajectory"]["mean"] for row in rows
        ],
        "the widest networks and Θ agree on 95 percent of the classes": [
            panel["widths"][-1]["agreement"]["mean"] >= 95 for panel in panels
        ],
        "the alignment of Θ_t with the labels rises by more than 0.01": [
            _rises(row["times"]["labels"]) for row in rows
        ],
        "the alignment of Θ_t with A^2L rises by more than 0.01": [
            _rises(row["times"]["graph"]) for row in rows
        ],
        "Eq. 109 in the width, at the start": [
            _as_stated(s["pseudo"]["start"]) for s in slopes
        ],
        "Eq. 109 in the width, at the end": [
            _as_stated(s["pseudo"]["end"]) for s in slopes
        ],
        "Eq. 109 in the width, training of our Figure 4, at the start": [
            _as_stated(s["pseudo"]["start"]) for s in trained
        ],
        "Eq. 109 in the width, training of our Figure 4, at the end": [
            _as_stated(s["pseudo"]["end"]) for s in trained
        ],
    }
    return {claim: [sum(held), len(held)] for claim, held in claims.items()}


def _rises(times: dict[str, list[float]]) -> bool:
    return times["mean"][-1] > times["mean"][0] + RISE


def _as_stated(slope: float | None) -> bool:
    return slope is not None and slope <= -0.5 + MARGIN


def _near_half(value: float) -> bool:
    return abs(value + 0.5) <= MARGIN
