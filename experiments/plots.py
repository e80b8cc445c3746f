"""Figures of the experiments alone; those of the commands are in ``gnnrp.plotting``."""

import itertools
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from gnnrp import plotting


class Line(NamedTuple):
    """A curve with standard deviations; None: without bars, dashed."""

    x: list[float]
    mean: list[float]
    std: list[float] | None = None


def bars_with_floor(
    values: dict[str, dict[str, float]], floors: dict[str, float], *, label: str
) -> Figure:
    """Draw a panel of bars for each group, with its floor as a line.

    Args:
        values: group -> name -> value.
        floors: group -> smallest possible value.
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


def over_counts(panels: dict[str, dict[str, dict[int, float]]], label: str) -> Figure:
    """Draw lines over counts, both logarithmic, two panels per row.

    Args:
        panels: title -> line -> count -> value; only positive values are drawn.
        label: of the counts.
    """
    num_rows = -(-len(panels) // 2)
    figure = Figure(figsize=(9.6, 3.8 * num_rows), layout="constrained")
    for number, (title, lines) in enumerate(panels.items()):
        axes = figure.add_subplot(num_rows, 2, number + 1)
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


def with_bars(
    panels: dict[str, dict[str, Line]],
    *,
    x_label: str,
    y_label: str,
    columns: int,
    x_scale: str = "log",
    y_scale: str = "log",
    guide: float | None = None,
) -> Figure:
    """Draw lines with error bars in several panels.

    Args:
        panels: title -> name of a line -> the line.
        x_label: of the numbers below.
        y_label: of the values.
        columns: panels per row.
        x_scale: "log" (base 2), or "share" of [0, 1], linear up to 1/64.
        y_scale: "log" or "linear".
        guide: exponent of a dashed line x^guide.
    """
    num_rows = -(-len(panels) // columns)
    size = 3.6 * columns, 3.1 * num_rows
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(num_rows, columns, squeeze=False, sharey=True)
    for axes, (title, lines) in zip(grid.ravel(), panels.items(), strict=False):
        for number, (name, line) in enumerate(lines.items()):
            style = "--" if line.std is None else "o-"
            axes.errorbar(
                line.x, line.mean, line.std, fmt=style, color=f"C{number}",
                markersize=3, capsize=2, linewidth=1, label=name,
            )  # fmt: skip
        if x_scale == "log":
            axes.set_xscale("log", base=2)
        else:
            axes.set_xscale("symlog", linthresh=1 / 64)
            axes.set_xticks(
                [0, 1 / 64, 1 / 16, 1 / 4, 1], ["0", "1/64", "1/16", "1/4", "1"]
            )
        axes.set_yscale(y_scale)
        if guide is not None and lines:
            first = next(iter(lines.values()))
            x = np.asarray(first.x, float)
            height = 1.5 * first.mean[0] * (x / x[0]) ** guide
            axes.plot(x, height, ":", color="0.5", label=f"width^{guide}")
        axes.set_title(title, fontsize="small")
    for axes in grid.ravel()[len(panels) :]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel(x_label)
    for axes in grid[:, 0]:
        axes.set_ylabel(y_label)
    grid[0, 0].legend(frameon=False, fontsize="x-small")
    return figure


def evolution_over_seeds(record: dict[str, Any]) -> Figure:
    """Draw alignments and test accuracy in training, over seeds.

    Medians over seeds are thick, a color for each graph; on the first and the last
    graph, quartiles are dotted and every seed is a thin line. Crosses are published
    values. The dashed line is A(A^4, Θ*).

    Args:
        record: of a dataset of figure 3.
    """
    curves = {"kernel_graph": "A(Θ$_t$, A$^4$)"}
    if record["synthetic"]:
        curves["kernel_first"] = "A(Θ$_t$, A$^4$ of the homophilic edges)"
    curves |= {"kernel_labels": "A(Θ$_t$, Θ*)", "test": "test accuracy"}
    figure = Figure(figsize=(4.2 * len(curves), 3.6), layout="constrained")
    panels = figure.subplots(1, len(curves))
    shades = colormaps["cividis"]
    for axes, (name, label) in zip(panels, curves.items(), strict=True):
        steps, curve = record["steps"], record["curves"][name]
        for graph, median in zip(record["graphs"], curve["median"], strict=True):
            color = shades(1 - graph["kept"])
            axes.plot(steps, median, color=color, linewidth=2.5)
        for end, color in (("first", shades(0.0)), ("last", shades(1.0))):
            seeds(axes, steps, np.array(curve[end]), color)
        for each in record["published"].values():
            points = each.get(name, {})
            at = [int(step) for step in points]  # strings in a record read from a file
            axes.plot(at, list(points.values()), "x", color="C3", ms=8)
        if name == "kernel_labels":
            axes.axhline(record["target_labels"], color="0.3", linestyle="--")
        axes.set_ylabel(label)
        axes.set_xlabel("step t")
    share = plotting.share_label(record)
    scale = ScalarMappable(Normalize(0, 1), shades.reversed())
    figure.colorbar(scale, ax=panels, label=share)
    title = f"Tangent kernel of a GCN on {record['dataset']}"
    figure.suptitle(f"{title}, {record['num_seeds']} seeds")
    return figure


def seeds(axes: Axes, steps: list[int], lines: np.ndarray, color: Any) -> None:
    """Draw lines (seed, step), thin, and their quartiles, dotted."""
    axes.plot(steps, lines.T, color=color, linewidth=0.5, alpha=0.7)
    quartiles = np.nanquantile(lines, (0.25, 0.75), axis=0)
    axes.plot(steps, quartiles.T, ":", color=color, linewidth=2)


def regimes(record: dict[str, Any]) -> Figure:
    """Draw the cause of the two outcomes on the whole graph, and what removes it.

    The upper row shows the network of the paper: the largest first bias, the share of
    the kernel along A 1, and the alignment with A^4 without A 1. The lower row shows
    the alignment with A^4 of each variant. The color of a seed is the share at the end.

    Args:
        record: of a dataset of figure 3 with variants.
    """
    figure = Figure(figsize=(12.6, 6.8), layout="constrained")
    upper, lower = figure.subplots(2, 3)
    values = {
        name: np.array(curve["first"]) for name, curve in record["curves"].items()
    }
    panels = {
        "largest first bias, max |b$_1$|": np.array(record["largest_bias"]),
        "share of |HΘH|² along A 1": values["share"],
        "A(Θ$_t$, A$^4$) without A 1": values["rest_graph"],
    }
    colors = colormaps["viridis"](values["share"][:, -1])
    for axes, (label, lines) in zip(upper, panels.items(), strict=True):
        for line, color in zip(lines, colors, strict=True):
            axes.plot(record["steps"], line, color=color, linewidth=1)
        axes.set_title(label, fontsize="medium")
    for axes, (name, variant) in zip(lower, record["variants"].items(), strict=True):
        lines = np.array(variant["curves"]["kernel_graph"]["first"])
        seeds(axes, variant["steps"], lines, "C0")
        axes.plot(variant["steps"], np.median(lines, axis=0), "C0", linewidth=2.5)
        axes.set_title(f"A(Θ$_t$, A$^4$), {name}", fontsize="medium")
        axes.set_xlabel("step t")
    scale = ScalarMappable(Normalize(0, 1), colormaps["viridis"])
    figure.colorbar(scale, ax=upper, label="share along A 1 at the end")
    figure.suptitle(f"Two outcomes on {record['dataset']}, whole graph")
    return figure
