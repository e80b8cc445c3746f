"""Records as text for a terminal."""

import statistics
from pathlib import Path
from typing import Any

from gnnrp import datasets
from gnnrp.runtime import memory, safe_text
from gnnrp.studies import presets

_NAMES = {
    "majority": "majority class",
    "lp": "label propagation",
    "rp": "RP",
    "generalized rp": "RP with features",
}
_UNITS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "roc_auc": "ROC-AUC",
    "average_precision": "average precision",
}


def run_table(record: dict[str, Any]) -> str:
    """Return the scores of RP, its baselines and the published run."""
    num_splits = len(record["splits"])
    kind = "random " if record["split_kind"] == "random" else ""
    name = _NAMES["generalized rp" if record["settings"]["kernel"] else "rp"]
    lines = [
        f"{record['dataset']}: {_UNITS[record['metric']]} in percent, "
        f"{num_splits} {kind}split(s)",
        "",
        f"{'':24}{'validation':>16}{'test':>16}",
        *_baseline_rows(record),
        _row(name, *_scores(record)),
    ]
    published = record["published"]
    if published is not None:
        test = _score(published["test"], published["std"] or 0)
        lines.append(_row("  published", _score(published["val"], 0), test))
    s, seconds, report = record["settings"], record["seconds"], record["report"]
    kernel = f", {s['kernel']} kernel γ={s['gamma']:g}" if s["kernel"] else ""
    if s.get("hops") is not None:
        kernel += f" of {s['hops']} hops, {s['scaling']}"
    lines.append("")
    if plain := record["baselines"].get("rp", {}).get("settings"):
        lines.append(
            f"RP: η={plain['step_size']:g} K={plain['power']}, the best hops of label "
            "propagation; with features:"
        )
    steps = _span([split["best_step"] for split in record["splits"]])
    parts = f", {record['parts']} parts" if "parts" in record else ""
    lines += [
        f"η={s['step_size']:g} K={s['power']} α={s['alpha']:g}{kernel}; "
        f"best step {steps} of {report['num_steps']} ({report['solver']})",
        f"load {seconds['load']:.1f} s, set-up {seconds['setup']:.1f} s, "
        f"run {seconds['run']:.1f} s on {record['device']}{parts}",
    ]
    return "\n".join(lines)


def choice_table(record: dict[str, Any]) -> str:
    """Return the scores of the chosen similarities, and all that were tried."""
    num_splits = len(record["splits"])
    lines = [
        f"{record['dataset']}: {_UNITS[record['metric']]} in percent, "
        f"{num_splits} split(s)",
        "",
        f"{'':24}{'validation':>16}{'test':>16}",
        *_baseline_rows(record),
        _row("RP, chosen similarity", *_scores(record)),
        "",
        f"{'similarity tried':48}{'validation':>12}{'alignment':>11}{'chosen in':>11}",
    ]
    found = record["choice"]
    for trial in found["trials"]:
        aligned = trial["alignment"]
        cell = "-" if aligned is None else f"{aligned:.3f}"
        lines.append(
            f"{trial['name']:48}{trial['val_mean']:>12.2f}{cell:>11}"
            f"{trial['chosen_in']:>11}"
        )
    lines += [f"{name:48}skipped: {why}" for name, why in found["skipped"].items()]
    if (ranks := found["rank_correlation"]) is not None:
        lines += ["", f"rank correlation of alignment and validation: {ranks:.2f}"]
    seconds = record["seconds"]
    lines.append(
        f"load {seconds['load']:.1f} s, set-up {seconds['setup']:.1f} s, "
        f"run {seconds['run']:.1f} s on {record['device']}"
    )
    return "\n".join(lines)


def depth_table(record: dict[str, Any]) -> str:
    """Return the scores of wide networks of each depth, RP and its baselines."""
    unit = _UNITS[record["metric"]]
    lines = [
        f"{record['dataset']}: {unit} in percent; alignment centered",
        "",
        f"{'':24}{'validation':>16}{'test':>16}{'test, at end':>16}"
        f"{'with A^2L':>11}{'with labels':>13}",
    ]
    for row in record["depths"]:
        end, align = row["end"], row["alignment"]
        at_end = _score(end["test_mean"], end["test_std"]) if end else "-"
        near, labels = (
            f"{align[name]:.3f}" if name in align else "-"
            for name in ("graph", "labels")
        )
        scores = _row(f"GNTK, {row['depth']} layer(s)", *_scores(row), at_end)
        lines.append(f"{scores}{near:>11}{labels:>13}")
    lines += [
        *_baseline_rows(record),
        "",
        *_method_rows(record),
        f"best by validation: {record['best_depth']} layer(s); "
        f"{record['seconds']['run']:.1f} s on {record['device']}",
    ]
    return "\n".join(lines)


def _method_rows(record: dict[str, Any]) -> list[str]:
    """Return a line on how the kernel was computed, unless it is exact."""
    if record["kernel_method"] == "blocks":
        return ["kernel at the columns of the training nodes, exact"]
    if record["kernel_method"] != "features":
        return []
    errors = ", ".join(f"{row['relative_error']:.2%}" for row in record["depths"])
    count = record["settings"]["num_features"]
    return [f"kernel of {count:,} random features, estimated errors {errors}"]


def tracking_table(record: dict[str, Any]) -> str:
    """Return the kernel before and after training, and the paper's findings."""
    from gnnrp import plotting  # which imports matplotlib

    rows, settings = record["rows"], record["settings"]
    lines = [
        f"{record['dataset']}: GCN of {settings['depth']} layers and width "
        f"{settings['width']}, {rows[-1]['step']:,} steps of "
        f"η={settings['learning_rate']:g}",
        "",
        plotting.share_label(record),
        f"{'':10}{'A(A, Θ*)':>10}{'A(Θ, A^2L)':>22}{'A(Θ, Θ*)':>22}{'test, %':>18}",
    ]
    for number, graph in enumerate(record["graphs"]):
        before, after = (row["graphs"][number] for row in (rows[0], rows[-1]))
        cells = [
            f"{before[name]:.3f} -> {after[name]:.3f}"
            for name in ("kernel_graph", "kernel_labels")
        ]
        cells.append(f"{100 * before['test']:.1f} -> {100 * after['test']:.1f}")
        lines.append(
            f"{graph['kept']:<10.2f}{graph['homophily']:>10.3f}"
            f"{cells[0]:>22}{cells[1]:>22}{cells[2]:>18}"
        )
    if record["findings"]:
        title = "Findings of the paper, in this run (agreeing, disagreeing, all pairs):"
        lines += ["", title]
    for name, found in record["findings"].items():
        holds = "holds" if found["holds"] else "does NOT hold"
        counts = f"{found['agree']}, {found['against']}, {found['pairs']}"
        lines.append(f"  {holds:15}{name} ({counts})")
    if record["diverged"] is not None:
        last = [row for row in rows if row["step"] <= record["diverged"]][-1]
        largest = last["graphs"][0]["eigenvalues"][:1]
        kernel = (
            f", the kernel's largest eigenvalue {largest[0]:.3g}" if largest else ""
        )
        lines.append(
            f"\nthe loss was not finite at step {record['diverged']}, steps too large "
            f"(at step {last['step']}{kernel}); take a smaller --learning-rate"
        )
    seconds = f"{record['seconds']['run']:.1f} s on {record['device']}"
    return "\n".join([*lines, "", f"alignments centered; {seconds}"])


def warnings(record: dict[str, Any], dataset: datasets.Dataset) -> list[str]:
    """Return warnings on missing features, memory limits and growing residuals."""
    result = []
    preset = presets.SETTINGS.get(dataset.name)
    if preset is not None and preset.kernel is not None and dataset.features is None:
        result.append(
            f"{dataset.name} has no features here: the graph alone, not the published "
            "settings"
        )
    report = record["report"]
    for part, reason in (("steps", report["reason"]), ("the kernel", report["kernel"])):
        if reason is not None and memory.LACK in reason:
            result.append(f"{part}: {reason}")
    growing = growth(report)
    return [*result, growing] if growing else result


def growth(report: dict[str, Any]) -> str | None:
    """Return a warning on the splits whose residual grew, or None."""
    splits = [i for i, diverged in enumerate(report["diverged"]) if diverged]
    if not splits:
        return None
    first = report["divergences"][splits[0]]
    where = f" in split(s) {splits}" if len(report["diverged"]) > 1 else ""
    safe = first["safe_step_size"]
    advice = f"; --step-size below {safe:.4g} is safe" if safe and safe > 0 else ""
    return (
        f"the residual grew{where}, from step {first['step']} on, most in column "
        f"{first['column']} ({first['explanation']}){advice}"
    )


def dataset_table(rows: list[dict[str, Any]]) -> str:
    """Return the table of rows from ``dataset_row``."""
    lines = [
        f"{'dataset':16}{'n':>10}{'e':>12}{'d':>7}{'c':>5}{'homophily':>11}  where"
    ]
    for row in rows:
        counts = [row[key] for key in ("n", "e", "d", "c")]
        n, e, d, c = ("-" if count is None else f"{count:,}" for count in counts)
        level = row["homophily"]
        h = "-" if level is None else f"{level:.3f}"
        lines.append(
            f"{row['name']:16}{n:>10}{e:>12}{d:>7}{c:>5}{h:>11}  {row['where']}"
        )
    note = "n, e, d, c of absent sets as published; e counted as the paper does."
    return "\n".join([*lines, "", note])


def dataset_row(name: str, root: Path | None) -> dict[str, Any]:
    """Return place and statistics of a dataset, published ones if it is absent."""
    generated = name == "sbm"
    row = {
        "name": name,
        "present": generated,
        "where": "generated" if generated else "absent",
        **_counts(datasets.published(name)),
        "homophily": None,
    }
    try:
        if not generated:
            folder = datasets.find(name, root)
            if folder is None:
                return row
            row |= {"present": True, "where": str(folder)}
        found = datasets.statistics(datasets.load(name, root, download=False))
    except (ValueError, OSError) as error:
        return row | {"where": safe_text.line(f"not readable: {error}")}
    return row | _counts(found) | {"homophily": found.edge_homophily}


def _counts(found: Any) -> dict[str, int | None]:
    names = {"n": "nodes", "e": "edges", "d": "features", "c": "classes"}
    return {key: getattr(found, f"num_{name}") for key, name in names.items()}


def _baseline_rows(record: dict[str, Any]) -> list[str]:
    rows = record["baselines"].items()
    return [_row(_NAMES[name], *_scores(row)) for name, row in rows]


def _row(name: str, *cells: str) -> str:
    return f"{name:24}" + "".join(f"{cell:>16}" for cell in cells)


def _scores(row: dict[str, Any]) -> list[str]:
    return [_score(row[f"{part}_mean"], row[f"{part}_std"]) for part in ("val", "test")]


def _score(mean: float | None, std: float) -> str:
    if mean is None:
        return "-"
    return f"{mean:.2f} ± {std:.2f}" if std else f"{mean:.2f}"


def _span(steps: list[int]) -> str:
    low, middle, high = min(steps), int(statistics.median(steps)), max(steps)
    return str(low) if low == high else f"{middle} ({low} to {high})"
