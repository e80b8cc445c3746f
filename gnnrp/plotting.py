"""Figures from records and curves; the only importer of matplotlib."""

import io
import itertools
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

_METRIC = {"accuracy": "accuracy", "roc_auc": "ROC-AUC"}
_LABELS = {"lp": "label propagation", "rp": "RP, graph alone", "majority": "majority"}


def learning_curve(
    record: dict[str, Any],
    val: Float[np.ndarray, "s t"],
    test: Float[np.ndarray, "s t"],
) -> Figure:
    """Draw validation and test scores after each step, with the baselines as lines.

    Means over the splits, with one standard deviation shaded; circles mark the step
    that validation chose, on average.

    Args:
        record: of the run, see ``studies.records.make``.
        val: curve of each split.
        test: curve of each split.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    steps = np.arange(1, val.shape[1] + 1)
    for name, curves, color in (("validation", val, "C0"), ("test", test, "C1")):
        mean = 100 * curves.mean(axis=0)
        axes.plot(steps, mean, color=color, label=f"RP, {name}")
        if len(curves) > 1:
            spread = 100 * curves.std(axis=0, ddof=1)
            shade = {"color": color, "alpha": 0.15, "linewidth": 0}
            axes.fill_between(steps, mean - spread, mean + spread, **shade)
    chosen = np.mean([split["best_step"] for split in record["splits"]])
    if record["test_mean"] is not None:
        label = "chosen by validation"
        axes.plot(chosen, record["test_mean"], "o", color="C1", label=label)
    for name, style in (("majority", ":"), ("lp", "--"), ("rp", "-.")):
        line = record["baselines"].get(name)
        if line is None or line["test_mean"] is None:
            continue
        label = f"{_LABELS[name]}, test"
        axes.axhline(line["test_mean"], color="0.4", linestyle=style, label=label)
    if len(steps) > 100:
        axes.set_xscale("log")
    axes.set_xlabel("step t")
    axes.set_ylabel(f"{_METRIC[record['metric']]} (%)")
    axes.set_title(f"Residual propagation on {record['dataset']}")
    axes.legend(frameon=False, fontsize="small")
    return figure


def depths(record: dict[str, Any]) -> Figure:
    """Draw scores and alignments of wide networks against their depth.

    Args:
        record: see ``studies.gntk.run``.
    """
    rows = record["depths"]
    layers = [row["depth"] for row in rows]
    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    scores, angles = figure.subplots(1, 2)
    tests = [row["test_mean"] for row in rows]
    scores.plot(layers, tests, "o-", color="C1", label="GNTK, test")
    if all(row["end"] for row in rows):
        ends = [row["end"]["test_mean"] for row in rows]
        scores.plot(layers, ends, "o--", color="C0", label="GNTK, test, at the end")
    styles = {"lp": "--", "rp": "-.", "generalized rp": "-"}
    for name, style in styles.items():
        line = record["baselines"].get(name)
        if line is not None and line["test_mean"] is not None:
            label = {**_LABELS, "generalized rp": "RP with features"}[name]
            scores.axhline(line["test_mean"], color="0.4", ls=style, label=label)
    scores.set_ylabel(f"{_METRIC[record['metric']]} (%)")
    for name, label in (("graph", "with $A^{2L}$"), ("labels", "with the labels")):
        if name in rows[0]["alignment"]:
            found = [row["alignment"][name] for row in rows]
            angles.plot(layers, found, "o-", label=label)
    angles.set_ylabel("centered alignment of Θ")
    for axes in (scores, angles):
        axes.set_xticks(layers)
        axes.set_xlabel("layers L")
        axes.legend(frameon=False, fontsize="small")
    figure.suptitle(f"Infinitely wide GCNs on {record['dataset']}")
    return figure


def evolution(record: dict[str, Any]) -> Figure:
    """Draw alignments and test accuracy in training, a line for each graph.

    Args:
        record: see ``studies.ntk.run``.
    """
    figure = Figure(figsize=(12.8, 3.4), layout="constrained")
    panels = figure.subplots(1, 4)
    steps = [row["step"] for row in record["rows"]]
    colors = colormaps["cividis"]
    drawn = (
        ("kernel_graph", "A(Θ$_t$, A$^{2L}$)", 1),
        ("kernel_labels", "A(Θ$_t$, Θ*)", 1),
        ("test", "test accuracy (%)", 100),
    )
    for number, g in enumerate(record["graphs"]):
        color = colors(1 - g["kept"])
        for axes, (name, _, unit) in zip(panels, drawn, strict=False):
            line = [unit * row["graphs"][number][name] for row in record["rows"]]
            axes.plot(steps, line, color=color)
        panels[3].plot(g["kept"], g["homophily"], "o", color=color)
    labels = [label for _, label, _ in drawn] + ["A(A, Θ*)"]
    for axes, label in zip(panels, labels, strict=True):
        axes.set_ylabel(label)
        axes.set_xlabel("step t")
    shades = ScalarMappable(Normalize(0, 1), colors.reversed())
    what = "homophilic edges" if record["synthetic"] else "edges kept"
    panels[3].set_xlabel(f"share of {what}")
    figure.colorbar(shades, ax=panels, label=f"share of {what}")
    figure.suptitle(f"Tangent kernel of a GCN on {record['dataset']}")
    return figure


def curves(
    values: dict[str, list[float]], lines: dict[str, float], *, title: str, label: str
) -> Figure:
    """Draw a curve over steps 1, 2, .. for each name, and horizontal lines.

    Args:
        values: in the order from light to dark.
        lines: dotted, at these heights.
        title: of the figure.
        label: of the scores.
    """
    figure = Figure(figsize=(7.6, 4.0), layout="constrained")
    axes = figure.add_subplot()
    shades = colormaps["cividis"].reversed()(np.linspace(0.1, 1, len(values)))
    for (name, curve), color in zip(values.items(), shades, strict=True):
        axes.plot(np.arange(1, len(curve) + 1), curve, color=color, label=name)
    styles = itertools.cycle([":", "-.", "--"])
    for (name, height), style in zip(lines.items(), styles, strict=False):
        axes.axhline(height, color="0.3", linestyle=style, label=name)
    axes.set_xlabel("step t")
    axes.set_ylabel(label)
    axes.set_title(title)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    return figure


def matrices(values: dict[str, Float[np.ndarray, "q q"]], title: str) -> Figure:
    """Draw matrices beside each other, each with its own scale, zero in the middle."""
    figure = Figure(figsize=(4.2 * len(values), 3.8), layout="constrained")
    panels = figure.subplots(1, len(values), squeeze=False)[0]
    for axes, (name, matrix) in zip(panels, values.items(), strict=True):
        most = float(np.abs(matrix).max()) or 1.0
        drawn = axes.imshow(matrix, cmap="PuOr", vmin=-most, vmax=most)
        axes.set_title(name)
        axes.set_xlabel("column")
        axes.set_ylabel("row")
        figure.colorbar(drawn, ax=axes, shrink=0.8)
    figure.suptitle(title)
    return figure


def bars_with_floor(
    values: dict[str, dict[str, float]], floors: dict[str, float], *, label: str
) -> Figure:
    """Draw a panel of bars for each group, with its floor as a line.

    Args:
        values: group -> contestant -> value.
        floors: group -> the least that is possible.
        label: of the values.
    """
    width = 3.2 * len(values)
    figure = Figure(figsize=(max(4.0, width), 3.6), layout="constrained")
    panels = figure.subplots(1, len(values), squeeze=False)[0]
    for axes, (group, bars) in zip(panels, values.items(), strict=True):
        axes.barh(list(bars), list(bars.values()), color="C0")
        axes.axvline(floors[group], color="C3", linestyle="--", label="floor")
        axes.invert_yaxis()
        axes.set_title(group)
        axes.set_xlabel(label)
        axes.legend(frameon=False, fontsize="small")
    return figure


def scaling(
    sizes: list[int],
    seconds: dict[str, list[float]],
    floor: list[float],
    *,
    exponent: float,
) -> Figure:
    """Draw seconds against sizes, both logarithmic, above their floor."""
    figure = Figure(figsize=(5.6, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for name, line in seconds.items():
        axes.loglog(sizes, line, "o-", label=f"{name}, entries^{exponent:.2f}")
    axes.loglog(sizes, floor, "--", color="C3", label="floor: each number moved once")
    axes.set_xlabel("entries of the adjacency")
    axes.set_ylabel("seconds")
    axes.legend(frameon=False, fontsize="small")
    return figure


def by_count(panels: dict[str, dict[str, dict[int, float]]], label: str) -> Figure:
    """Draw lines over numbers of something, both logarithmic, two panels a row.

    Lines differ in shade and in marker.

    Args:
        panels: title -> line -> number -> value; values that are not positive are left
            out.
        label: of the numbers.
    """
    down = -(-len(panels) // 2)
    figure = Figure(figsize=(9.6, 3.8 * down), layout="constrained")
    for number, (title, lines) in enumerate(panels.items()):
        axes = figure.add_subplot(down, 2, number + 1)
        shades = colormaps["cividis"](np.linspace(0, 0.9, len(lines)))
        markers = itertools.cycle("osD^v<>P")
        for (name, line), shade, marker in zip(
            lines.items(), shades, markers, strict=False
        ):
            drawn = {x: y for x, y in line.items() if y > 0}
            axes.plot(
                list(drawn), list(drawn.values()), f"{marker}-", color=shade, label=name
            )
        counts = sorted({x for line in lines.values() for x in line})
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(counts, [str(x) for x in counts])
        axes.set_xlabel(label)
        axes.set_title(title, fontsize="medium")
        axes.legend(frameon=False, fontsize="x-small")
    return figure


def convergence(
    widths: list[int], errors: dict[str, list[float]], slopes: dict[str, float | None]
) -> Figure:
    """Draw relative errors against the width of networks, beside width^-1/2."""
    figure = Figure(figsize=(5.6, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for name, line in errors.items():
        fit = "" if slopes[name] is None else f", width^{slopes[name]:.2f}"
        axes.loglog(widths, line, "o-", base=2, label=name + fit)
    first = max(line[0] for line in errors.values())
    guide = [1.5 * first * (width / widths[0]) ** -0.5 for width in widths]
    axes.loglog(widths, guide, "--", base=2, color="0.5", label="width^-0.50")
    axes.set_xlabel("width m")
    axes.set_ylabel("relative error")
    axes.legend(frameon=False, fontsize="small")
    return figure


def png(figure: Figure) -> bytes:
    """Return the figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
