"""Figures from records and curves; the only module that imports matplotlib."""

import io
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from gnnrp.runtime import safe_text

_METRIC = {
    "accuracy": "accuracy (%)",
    "balanced_accuracy": "balanced accuracy (%)",
    "macro_f1": "macro F1 (%)",
    "roc_auc": "ROC-AUC (%)",
    "average_precision": "average precision (%)",
}
_LABELS = {
    "majority": "majority",
    "lp": "label propagation",
    "rp": "RP, graph alone",
    "generalized rp": "RP with features",
}
_SHADES = LinearSegmentedColormap.from_list(
    "shades", colormaps["cividis"](np.linspace(0.9, 0, 256))
)
"""Colors of ordered curves, from light to dark, all legible on white."""

CANDIDATES: tuple[tuple[str, str, Callable[[list[dict[str, Any]]], bool]], ...] = (
    ("power of A", "C0", lambda parts: len(parts) == 1 and not parts[0]["kernel"]),
    ("kernel", "C1", lambda parts: len(parts) == 1 and bool(parts[0]["kernel"])),
    ("sum", "C2", lambda parts: len(parts) > 1),
)
"""Kinds of similarities that a choice tries, with their colors."""


def learning_curve(
    record: dict[str, Any],
    val: Float[np.ndarray, "s t"],
    test: Float[np.ndarray, "s t"],
) -> Figure:
    """Draw validation and test scores after each step, with the baselines as lines.

    Means over the splits, with one standard deviation shaded; a circle marks the mean
    step chosen by validation.

    Args:
        record: of the run, see ``studies.records.from_trajectory``.
        val: validation curve of each split.
        test: test curve of each split.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    steps = np.arange(1, val.shape[1] + 1)
    for name, curves, color in (("validation", val, "C0"), ("test", test, "C1")):
        mean = 100 * curves.mean(axis=0)
        axes.plot(steps, mean, color=color, label=f"RP, {name}")
        if len(curves) > 1:
            std = 100 * curves.std(axis=0, ddof=1)
            shade = {"color": color, "alpha": 0.15, "linewidth": 0}
            axes.fill_between(steps, mean - std, mean + std, **shade)
    chosen = np.mean([split["best_step"] for split in record["splits"]])
    if record["test_mean"] is not None:
        label = "chosen by validation"
        axes.plot(chosen, record["test_mean"], "o", color="C1", label=label)
    _draw_baselines(axes, record, {"majority": ":", "lp": "--", "rp": "-."}, ", test")
    if len(steps) > 100:
        axes.set_xscale("log")
    title = f"Residual propagation on {record['dataset']}"
    axes.set(xlabel="step t", ylabel=_METRIC[record["metric"]], title=title)
    axes.legend(frameon=False, fontsize="small")
    return figure


def choice(record: dict[str, Any]) -> Figure:
    """Draw validation score against alignment for each similarity that was tried.

    Args:
        record: see ``studies.auto_rp.run``.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    trials = record["choice"]["trials"]
    trials = [trial for trial in trials if trial["alignment"] is not None]
    for label, color, belongs in CANDIDATES:
        some = [trial for trial in trials if belongs(trial["parts"])]
        if some:
            x, y = ([trial[key] for trial in some] for key in ("alignment", "val_mean"))
            axes.plot(x, y, "o", color=color, label=label)
    for trial in sorted(trials, key=lambda trial: -trial["val_mean"])[:1]:
        point = trial["alignment"], trial["val_mean"]
        axes.annotate(trial["name"], point, fontsize="x-small")
    axes.set(
        xlabel="alignment with the training labels",
        ylabel=f"validation {_METRIC[record['metric']]}",
        title=f"Similarities tried on {record['dataset']}",
    )
    if trials:
        axes.legend(frameon=False, fontsize="small")
    return figure


def own_graph(record: dict[str, Any]) -> Figure:
    """Draw the validation score after each step, and the held-out confusion matrix.

    Args:
        record: see ``estimator.tables.run``.
    """
    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    curve = 100 * np.array(record["val_curve"])
    left.plot(np.arange(1, len(curve) + 1), curve, color="C0")
    step = int(np.argmax(curve))
    left.plot(step + 1, curve[step], "o", color="C0")
    left.set(
        xlabel="step t",
        ylabel=f"validation {_METRIC[record['metric']]}",
        title=record["similarity"],
    )
    if len(curve) > 100:
        left.set_xscale("log")
    counts = np.array(record["heldout"]["confusion"])
    names = [safe_text.line(name, 20) for name in record["classes"]]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    right.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, j in itertools.product(range(len(names)), repeat=2):
        color = "white" if shares[i, j] > 1 / 2 else "black"
        right.text(j, i, counts[i, j], ha="center", va="center", color=color)
    right.set_xticks(range(len(names)), names, rotation=45, ha="right")
    right.set_yticks(range(len(names)), names)
    right.set(xlabel="prediction", ylabel="label", title="held-out labels")
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
    _draw_baselines(scores, record, {"lp": "--", "rp": "-.", "generalized rp": "-"})
    scores.set_ylabel(_METRIC[record["metric"]])
    for name, label in (("graph", "with $A^{2L}$"), ("labels", "with the labels")):
        if name in rows[0]["alignment"]:
            line = [row["alignment"][name] for row in rows]
            angles.plot(layers, line, "o-", label=label)
    angles.set_ylabel("centered alignment of Θ")
    for axes in (scores, angles):
        axes.set(xticks=layers, xlabel="layers L")
        if axes.lines:
            axes.legend(frameon=False, fontsize="small")
    angles.set_visible(bool(angles.lines))
    figure.suptitle(f"Infinitely wide GCNs on {record['dataset']}")
    return figure


def _draw_baselines(
    axes: Any, record: dict[str, Any], styles: dict[str, str], suffix: str = ""
) -> None:
    for name, style in styles.items():
        line = record["baselines"].get(name)
        if line is not None and line["test_mean"] is not None:
            label = f"{_LABELS[name]}{suffix}"
            axes.axhline(line["test_mean"], color="0.4", ls=style, label=label)


def evolution(record: dict[str, Any]) -> Figure:
    """Draw alignments and test accuracy in training, a line for each graph.

    The dashed line is A(A^{2L}, Θ*) of the first graph. Steps are on a logarithmic axis
    if most changes take place in the first tenth of them.

    Args:
        record: see ``studies.ntk.run``.
    """
    figure = Figure(figsize=(12.8, 3.4), layout="constrained")
    panels = figure.subplots(1, 4)
    steps = [row["step"] for row in record["rows"]]
    quantities = (
        ("kernel_graph", "A(Θ$_t$, A$^{2L}$)", 1),
        ("kernel_labels", "A(Θ$_t$, Θ*)", 1),
        ("test", "test accuracy (%)", 100),
    )
    drawn = []
    for axes, (name, label, unit) in zip(panels, quantities, strict=False):
        for number, g in enumerate(record["graphs"]):
            line = [unit * row["graphs"][number][name] for row in record["rows"]]
            axes.plot(steps, line, color=_SHADES(g["kept"]))
            drawn.append(line)
        axes.set(xlabel="step t", ylabel=label)
    if _starts_fast(steps, drawn):
        for axes in panels[:3]:
            _scale_steps(axes, steps)
    _draw_height(panels[1], record["target_labels"], "A(A$^{2L}$, Θ*)")
    share = share_label(record)
    for g in record["graphs"]:
        panels[3].plot(g["kept"], g["homophily"], "o", color=_SHADES(g["kept"]))
    panels[3].set(xlabel=share, ylabel="A(A, Θ*)")
    figure.colorbar(ScalarMappable(Normalize(0, 1), _SHADES), ax=panels, label=share)
    figure.suptitle(f"Tangent kernel of a GCN on {record['dataset']}")
    return figure


def share_label(record: dict[str, Any]) -> str:
    """Return the name of the shares of the graphs of a record, for an axis.

    A graph that keeps a share 1 - p of the directed edges has 1 - p² of the edges.
    """
    if record["synthetic"]:
        return "share of homophilic edges"
    kind = "directed " * (record["settings"]["manner"] == "directed")
    return f"share of {kind}edges kept"


def curves(
    values: dict[str, list[float]],
    lines: dict[str, float],
    *,
    title: str,
    label: str,
    steps: Sequence[int] | None = None,
    step_label: str = "step t",
) -> Figure:
    """Draw a curve over steps for each name, and horizontal lines.

    Args:
        values: name -> curve, drawn from light to dark.
        lines: name -> height.
        title: of the figure.
        label: of the values.
        steps: of the values of each curve; 1, 2, ... by default. They are on a
            logarithmic axis if most changes take place in the first tenth of them.
        step_label: of the steps.
    """
    figure = Figure(figsize=(7.6, 4.0), layout="constrained")
    axes = figure.add_subplot()
    colors = _SHADES(np.linspace(0, 1, len(values)))
    for (name, curve), color in zip(values.items(), colors, strict=True):
        at = np.arange(1, len(curve) + 1) if steps is None else steps
        axes.plot(at, curve, color=color, label=name)
    if steps is not None and _starts_fast(steps, list(values.values())):
        _scale_steps(axes, steps)
    styles = itertools.cycle([":", "-.", "--"])
    for (name, height), style in zip(lines.items(), styles, strict=False):
        axes.axhline(height, color="0.3", linestyle=style, label=name)
    axes.set(xlabel=step_label, ylabel=label, title=title)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    return figure


def _starts_fast(steps: Sequence[int], lines: Sequence[Sequence[float]]) -> bool:
    """Return whether most lines change more in the first tenth than after it."""
    is_early = np.asarray(steps[1:]) <= steps[-1] / 10
    changes = np.abs(np.diff(np.asarray(lines, float), axis=1))
    early = changes[:, is_early].sum(axis=1) > changes[:, ~is_early].sum(axis=1)
    return bool(is_early.any() and early.mean() > 1 / 2)


def _scale_steps(axes: Any, steps: Sequence[int]) -> None:
    """Make the axis of steps logarithmic, and linear from 0 to the first step."""
    first = min(step for step in steps if step > 0)
    axes.set_xscale("symlog", linthresh=first, linscale=0.5)
    axes.set_xlim(min(steps), max(steps))
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _draw_height(axes: Any, height: float, name: str) -> None:
    """Draw a dashed horizontal line with its name to the right of the axes."""
    axes.axhline(height, color="0.4", linestyle="--")
    axes.annotate(
        name, (1, height), (3, 0), xycoords=axes.get_yaxis_transform(),
        textcoords="offset points", ha="left", va="center", fontsize="small",
    )  # fmt: skip


def matrices(values: dict[str, Float[np.ndarray, "q q"]], title: str) -> Figure:
    """Draw matrices in a row, each with its own color scale, zero in the middle."""
    figure = Figure(figsize=(4.2 * len(values), 3.8), layout="constrained")
    panels = figure.subplots(1, len(values), squeeze=False)[0]
    for axes, (name, matrix) in zip(panels, values.items(), strict=True):
        limit = float(np.abs(matrix).max()) or 1.0
        image = axes.imshow(matrix, cmap="PuOr", vmin=-limit, vmax=limit)
        axes.set(xlabel="column", ylabel="row", title=name)
        figure.colorbar(image, ax=axes, shrink=0.8)
    figure.suptitle(title)
    return figure


def png(figure: Figure) -> bytes:
    """Return the bytes of a PNG file of the figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
