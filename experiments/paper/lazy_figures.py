"""Figures of finite networks beside the infinite kernel, from the record alone."""

from typing import Any

from matplotlib.figure import Figure

from experiments import plots
from experiments.paper.lazy_findings import ERRORS

NAMES = {
    "kernel": "initial kernel",
    "drift": "drift",
    "trajectory": "predictions by Θ",
    "frozen": "predictions by Θ$_0$",
}


def draw(name: str, result: dict[str, Any]) -> dict[str, Figure]:
    """Return the figures of a graph by suffix: errors, drift, alignments, outputs.

    Args:
        name: of the graph.
        result: see ``analytic_vs_empirical.study``.
    """
    figures = {
        "errors": _errors(result["panels"]),
        "drift": _drift(result["panels"]),
        "alignments": _alignments(result["panels"]),
        "outputs": _outputs(result),
    }
    for kind, figure in figures.items():
        figure.suptitle(f"{name}, part: {kind}" if name != "sbm" else f"{name}: {kind}")
    return figures


def _errors(panels: list[dict[str, Any]]) -> Figure:
    drawn = {
        _title(panel): {
            NAMES[kind]: _line(
                panel["widths"] + panel["untrained"] * (kind == "kernel"), kind
            )
            for kind in ERRORS
        }
        for panel in panels
    }
    return plots.with_bars(
        drawn, x_label="width m", y_label="relative error", columns=4, guide=-0.5
    )


def _drift(panels: list[dict[str, Any]]) -> Figure:
    drawn = {
        _title(panel): {
            f"m = {row['width']}": _over_time(row, "drift", first=1)
            for row in panel["widths"]
        }
        for panel in panels
    }
    label = "share of the steps"
    return plots.with_bars(
        drawn, x_label=label, y_label="drift of Θ$_t$", columns=4, x_scale="share"
    )


def _alignments(panels: list[dict[str, Any]]) -> Figure:
    """Draw both alignments of the narrowest, a middle and the widest network."""
    drawn = {}
    for kind, label in (("graph", "A(Θ$_t$, A$^{2L}$)"), ("labels", "A(Θ$_t$, Θ*)")):
        for panel in panels:
            rows = panel["widths"]
            lines = {
                f"m = {row['width']}": _over_time(row, kind)
                for row in (rows[0], rows[len(rows) // 2], rows[-1])
            }
            height = rows[-1]["infinite"][kind]
            lines["m = ∞"] = plots.Line([0, 1], [height, height])
            drawn[f"{label}\n{_title(panel)}"] = lines
    return plots.with_bars(
        drawn,
        x_label="share of the steps",
        y_label="centered alignment",
        columns=4,
        x_scale="share",
        y_scale="linear",
    )


def _outputs(result: dict[str, Any]) -> Figure:
    shallow = {
        _title(panel): panel["widths"]
        for panel in result["panels"]
        if panel["depth"] == min(panel["depth"] for panel in result["panels"])
    }
    shallow["training of Figure 4"] = result["outputs"]["widths"]
    drawn = {
        title: {
            f"{kind}, {time}": _line(rows, kind, time)
            for kind in ("pseudo", "trace")
            for time in ("start", "end")
        }
        for title, rows in shallow.items()
    }
    label = "|K ⊗ I - Θ| / |Θ|"
    return plots.with_bars(
        drawn, x_label="width m", y_label=label, columns=5, guide=-0.5
    )


def _title(panel: dict[str, Any]) -> str:
    return f"L = {panel['depth']}, {panel['parameterization']}, {panel['loss']}"


def _line(rows: list[dict[str, Any]], *names: str) -> plots.Line:
    entries = rows
    for name in names:
        entries = [entry[name] for entry in entries]
    widths = [row["width"] for row in rows]
    return plots.Line(
        widths,
        [entry["mean"] for entry in entries],
        [entry["std"] for entry in entries],
    )


def _over_time(row: dict[str, Any], kind: str, first: int = 0) -> plots.Line:
    steps, entry = row["times"]["steps"][first:], row["times"][kind]
    shares = [step / row["steps"] for step in steps]
    return plots.Line(shares, entry["mean"][first:], entry["std"][first:])
