"""Figures of ``partition_study``: rows moved, seconds of a hop, ogbn-papers100M."""

from typing import Any

from matplotlib.figure import Figure

from experiments import plots
from experiments.partition import partitioners


def figures(graphs: dict[str, Any], measured: dict[str, Any]) -> dict[str, Figure]:
    """Return the figures by name.

    Args:
        graphs: the partitioned graphs of the result.
        measured: measured values of the record.
    """
    moved, times = {}, {}
    for name, graph in graphs.items():
        for what, title in (("halo", "lacked"), ("moved", "moved")):
            moved[f"{name}: rows {title} / n"] = {
                method: {row["parts"]: row[what] / graph["nodes"] for row in rows}
                for method, rows in graph["volumes"].items()
            }
        method = partitioners.best(tuple(graph["volumes"]))
        parts = [row["parts"] for row in graph["volumes"][method]]
        times |= _seconds(name, method, parts, measured["hops"][name])
    return {
        "volume": plots.over_counts(moved, "parts"),
        "seconds": plots.over_counts(times, "hosts"),
        "papers100M": plots.over_counts(_papers(measured["papers100M"]), "hosts"),
    }


def _seconds(
    name: str, method: str, parts: list[int], predicted: dict[str, Any]
) -> dict[str, Any]:
    """Return two panels for a graph, each with one line per link."""
    return {
        f"{name}, {method}: seconds of a hop{title}": {
            f"{gigabits} Gbit/s": {1: predicted["one host"]}
            | {
                p: row[gigabits][what]
                for p, row in zip(parts, predicted[method], strict=True)
            }
            for gigabits in predicted[method][0]
        }
        for what, title in (
            ("total", ""),
            ("total without padding", ", without padding"),
        )
    }


def _papers(found: dict[str, Any]) -> dict[str, Any]:
    panels: dict[str, Any] = {
        "gigabytes of a host": {
            f"if as {name}": {row["hosts"]: row["gigabytes"]["total"] for row in rows}
            for name, rows in found.items()
        }
    }
    for what in ("hop", "hop without padding"):
        panels[f"seconds of a {what}"] = {
            f"if as {name}, {gigabits} Gbit/s": {
                row["hosts"]: row[what][gigabits] for row in rows
            }
            for name, rows in found.items()
            for gigabits in rows[0][what]
        }
    return panels
