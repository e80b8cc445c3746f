"""Figures of the experiments alone; those of the commands are in ``gnnrp.plotting``."""

import itertools

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure


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


def convergence(
    widths: list[int], errors: dict[str, list[float]], slopes: dict[str, float | None]
) -> Figure:
    """Draw relative errors against the width of networks, and width^-1/2."""
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
