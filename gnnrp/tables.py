"""Records as text for a terminal."""

from pathlib import Path
from typing import Any

from gnnrp import datasets


def of_run(record: dict[str, Any]) -> str:
    """Return what a run found, beside its baselines and the published figure."""
    names = {
        "majority": "majority class",
        "lp": "label propagation",
        "rp": "RP",
    }
    unit = {"accuracy": "accuracy", "roc_auc": "ROC-AUC"}[record["metric"]]
    lines = [
        f"{record['dataset']}: {unit} in percent, {len(record['splits'])} split(s)",
        "",
    ]
    lines.append(f"{'':24}{'validation':>16}{'test':>16}")
    main_name = "RP with features" if record["settings"]["kernel"] else "RP"
    rows = [(names[k], v) for k, v in record["baselines"].items()]
    for name, row in [*rows, (main_name, record)]:
        cells = [
            _score(row[f"{part}_mean"], row[f"{part}_std"]) for part in ("val", "test")
        ]
        lines.append(f"{name:24}{cells[0]:>16}{cells[1]:>16}")
    published = record["published"]
    if published is not None:
        cells = [
            "-" if published["val"] is None else _score(published["val"], 0),
            _score(published["test"], published["std"] or 0),
        ]
        lines.append(f"{'  published':24}{cells[0]:>16}{cells[1]:>16}")
    s, seconds, report = record["settings"], record["seconds"], record["report"]
    kernel = f", {s['kernel']} kernel γ={s['gamma']:g}" if s["kernel"] else ""
    steps = ", ".join(str(split["best_step"]) for split in record["splits"])
    lines += [
        "",
        f"η={s['step_size']:g} K={s['power']} α={s['alpha']:g}{kernel}; "
        f"best step {steps} of {report['num_steps']} ({report['solver']})",
        f"load {seconds['load']:.1f} s, set-up {seconds['setup']:.1f} s, "
        f"run {seconds['run']:.1f} s on {record['device']}",
    ]
    return "\n".join(lines)


def warning(record: dict[str, Any]) -> str | None:
    """Return a sentence on the splits whose residual grew, or None."""
    report = record["report"]
    splits = [i for i, bad in enumerate(report["diverged"]) if bad]
    if not splits:
        return None
    told = report["convergence"]  # empty where steps were iterated
    why = told[splits[0]]["explanation"] if told else None
    detail = f" ({why})" if why else "; a smaller --step-size may help"
    where = f" in split(s) {splits}" if len(report["diverged"]) > 1 else ""
    return f"the residual grew{where}{detail}"


def of_datasets(rows: list[dict[str, Any]]) -> str:
    """Return the table of rows made by ``dataset_row``."""
    lines = [
        f"{'dataset':16}{'n':>10}{'e':>12}{'d':>7}{'c':>5}{'homophily':>11}  where"
    ]
    for row in rows:
        cells = [row[key] for key in ("n", "e", "d", "c")]
        n, e, d, c = ("-" if cell is None else f"{cell:,}" for cell in cells)
        level = row["homophily"]
        h = "-" if level is None else f"{level:.3f}"
        lines.append(
            f"{row['name']:16}{n:>10}{e:>12}{d:>7}{c:>5}{h:>11}  {row['where']}"
        )
    note = "n, e, d, c of absent sets as published; e counted as the paper does."
    return "\n".join([*lines, "", note])


def dataset_row(name: str, root: Path | None) -> dict[str, Any]:
    """Return where a data set is, and its statistics: read if here, else published."""
    folder = datasets.find(name, root)
    generated = name == "sbm"
    known = datasets.published(name)
    row = {
        "name": name,
        "present": generated or folder is not None,
        "where": "generated" if generated else str(folder or "absent"),
        "n": known.num_nodes,
        "e": known.num_edges,
        "d": known.num_features,
        "c": known.num_classes,
        "homophily": None,
    }
    if not row["present"]:
        return row
    try:
        found = datasets.statistics(datasets.load(name, root, download=False))
    except ValueError as error:
        return row | {"where": f"damaged: {error}"}
    return row | {
        "n": found.num_nodes,
        "e": found.num_edges,
        "d": found.num_features,
        "c": found.num_classes,
        "homophily": found.edge_homophily,
    }


def _score(mean: float | None, std: float) -> str:
    if mean is None:
        return "-"
    return f"{mean:.2f} ± {std:.2f}" if std else f"{mean:.2f}"
