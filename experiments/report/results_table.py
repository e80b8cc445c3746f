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
from experiments.report.beyond_tables import on_networks_splits
from experiments.report.record_tables import TABLES
from experiments.report.score_tables import cell, score, verdict

RESULTS = Path(__file__).parents[1] / "results"
MODELS = ("majority class", "LP", "RP, graph alone", "RP", "GCN")
TITLES = (
    "majority class", "label propagation", "RP", "RP with features",
    "GCN, trained here (runs)", "RP with features, ten random splits",
)  # fmt: skip


BEYOND = [
    "dataset", "RP, published", "best network, published",
    "best of five models by validation, trained here",
    "RP, similarity chosen by validation", "RP on the models' splits",
]  # fmt: skip
WITHOUT_DATA = {"table2_convergence"}
"""Experiments that read no files."""


def section(folder: Path) -> str:
    """Return the tables as Markdown."""
    return f"{commands()}\n\n{scores(folder)}\n\n{beyond(folder)}"


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


def beyond(folder: Path) -> str:
    """Return the test scores of chosen similarities, beside the best networks."""
    record = json.loads((folder / "beyond.json").read_text())
    rows = []
    for name, found in record["result"]["datasets"].items():
        if isinstance(found, str):
            continue
        label = f"{name} (ROC-AUC)" if name in published.ROC_AUC else name
        kinds = list(found["chosen"])
        for kind in kinds:
            part = found["chosen"][kind]
            random = kind == "random"
            count = len(part["splits"])
            splits = f", {count} {'random ' if random else ''}splits" * (count > 1)
            here = "-" if kind != kinds[0] else _best_network(found["networks"])
            chosen = cell(part)
            cells = [*_stated(found["published"]), here, chosen]
            rows.append([label + splits, *cells, on_networks_splits(found, kind)])
    lines = [BEYOND, ["---"] * len(BEYOND), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _stated(stated: dict[str, Any]) -> list[str]:
    best = stated["best"]
    return [
        score(*stated["RP"]) if stated["RP"] else "-",
        f"{score(*best[1:])} ({best[0]})" if best else "-",
    ]


def _best_network(networks: dict[str, Any]) -> str:
    """Return the network with the best mean validation score."""
    some = {name: each for name, each in networks.items() if isinstance(each, dict)}
    if not some:
        return "-"
    best = max(some, key=lambda name: some[name]["val_mean"])
    return f"{cell(some[best])} ({best}, {some[best]['num_seeds']} runs)"


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
