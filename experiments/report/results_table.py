"""Tables of the paper's results in README.md, from the committed records.

    python -m experiments.report.results_table

prints this section of the README: the command of each table and figure of the paper,
and the test scores with the published ones. It reads the records that ``make
reproduce`` wrote and that are committed in ``experiments/results``.
"""

import json
from pathlib import Path
from typing import Any

from experiments import published
from experiments.report.record_tables import TABLES
from experiments.report.score_tables import cell, score, verdict

RESULTS = Path(__file__).parents[1] / "results"
MODELS = ("majority class", "LP", "RP, graph alone", "RP", "GCN")
TITLES = (
    "majority class", "label propagation", "RP", "RP with features",
    "GCN, trained here (runs)", "RP with features, ten random splits",
)  # fmt: skip


WITHOUT_DATA = {"table2_convergence"}
"""Experiments that read no files."""


def section(folder: Path) -> str:
    """Return both tables as Markdown."""
    return f"{commands()}\n\n{scores(folder)}"


def commands() -> str:
    """Return the command of each table and figure of the paper."""
    rows = [
        f"| {title} | `python -m experiments.paper.{name}{_data(name)}` |"
        for name, (title, _) in TABLES.items()
    ]
    return "\n".join(["| table or figure | command |", "|---|---|", *rows])


def _data(name: str) -> str:
    return "" if name in WITHOUT_DATA else " --data-dir DIR"


def scores(folder: Path) -> str:
    """Return the test scores of each dataset in the records, and the published ones."""
    rows = []
    for table in ("table4_homophilic", "table5_heterophilic", "table1_ogb"):
        panels = json.loads((folder / f"{table}.json").read_text())["result"][
            "datasets"
        ]
        rows += [
            row(name, panel, graph_alone=table == "table1_ogb")
            for name, panel in panels.items()
        ]
    header = ["dataset", *TITLES, "RP, published", "difference"]
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def row(name: str, panel: dict[str, Any], *, graph_alone: bool) -> list[str]:
    """Return the scores of a dataset; published RP uses features except on OGB."""
    stated, computed = panel["published"], panel["found"]
    stated = (stated["test"] if graph_alone else stated)["RP"]
    label = f"{name} (ROC-AUC)" if name in published.ROC_AUC else name
    if isinstance(computed, str):
        return [label, *["-"] * len(TITLES), score(*stated), computed]
    compared = computed["RP"]
    if graph_alone:
        computed = computed | {"RP, graph alone": compared, "RP": None}
    cells = [cell(computed.get(model)) for model in MODELS]
    network = computed.get("GCN")
    if isinstance(network, dict):
        cells[-1] += f" ({network['num_seeds']})"
    cells.append(cell(panel.get("random splits", {}).get("RP")))
    runs = computed["LP"]["num_seeds"]
    if runs > 1:
        label += f", {runs} splits"
    last = compared if isinstance(compared, str) else verdict(compared, stated)
    return [label, *cells, score(*stated), last]


if __name__ == "__main__":
    print(section(RESULTS))
