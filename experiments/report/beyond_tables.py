"""Tables of the similarities that validation chooses, beside networks."""

from typing import Any

import numpy as np

from experiments import published
from experiments.report.score_tables import Table, best_epochs, cell, score

HEADER = (
    "dataset", "splits", "RP, published", "best network, published", "GCN here",
    "SGC here", "APPNP here", "SIGN here", "C&S here", "RP, chosen similarity",
    "RP on the networks' splits", "chosen most often",
)  # fmt: skip
NETWORKS = ("GCN", "SGC", "APPNP", "SIGN", "C&S")


def tables(record: dict[str, Any]) -> list[Table]:
    """Return the scores, then how alignment and validation rank the candidates."""
    found = record["result"]["datasets"]
    rows, ranks = [], []
    for name, row in found.items():
        if row == published.ABSENT:
            rows.append([name, published.ABSENT, *["-"] * (len(HEADER) - 2)])
            continue
        rows += [_scores(name, row, kind) for kind in row["chosen"]]
        ranks += [_ranks(name, kind, part) for kind, part in row["chosen"].items()]
    cut = [
        _cut_off(name, row, record["settings"]["num_epochs"])
        for name, row in found.items()
    ]
    note = (
        "Test scores in percent. In rows with random splits, the published scores are "
        "of other splits. Networks have common settings, not tuned, except for both "
        "weights α of C&S, which each run chooses on validation nodes. They run on the "
        "first splits where there are fewer runs (in parentheses) than splits; another "
        "column has RP on these. Each split chooses by its validation nodes, and its "
        "test nodes are scored once. The menu follows the mean validation score of "
        "several splits, whose validation nodes may be test nodes of another split. It "
        "was drawn up with an eye on test scores of tolokers, minesweeper, Photo, "
        "Cora, Citeseer and Texas, and the limits for many splits with an eye on those "
        "of Computers. So the table does not show that RP is better than tuned "
        f"networks. {' '.join(filter(None, cut))}"
    )
    header = ["dataset", "splits", "tried", "skipped", "rank correlation", "seconds"]
    return [
        Table("Test scores", list(HEADER), rows, note),
        Table(
            "Alignment and validation score of the similarities tried",
            header,
            [[*cells, _seconds(record, cells)] for cells in ranks],
            "Spearman's rank correlation, over the candidates of a dataset, of the "
            "alignment with the training labels (first split, up to 300 nodes) and the "
            "mean validation score, with the four A^K. Skipped candidates did not fit "
            "in memory or in the time.",
        ),
    ]


def _scores(name: str, row: dict[str, Any], kind: str) -> list[str]:
    part = row["chosen"][kind]
    stated, best = row["published"]["RP"], row["published"]["best"]
    networks = [""] * len(NETWORKS)
    if kind == next(iter(row["chosen"])):
        networks = [_network(row["networks"].get(model)) for model in NETWORKS]
    trials = part["choice"]["trials"]
    favorite = max(trials, key=lambda trial: trial["chosen_in"])
    label = f"{name} (ROC-AUC)" if name in published.ROC_AUC else name
    count = len(part["splits"])
    return [
        label,
        f"{count} {kind}" if kind == "random" else str(count),
        score(*stated) if stated else "-",
        f"{score(*best[1:])} ({best[0]})" if best else "-",
        *networks,
        score(part["test_mean"], part["test_std"]),
        on_networks_splits(row, kind),
        f"{favorite['name']} ({favorite['chosen_in']})",
    ]


def on_networks_splits(row: dict[str, Any], kind: str) -> str:
    """Return the score of RP on the splits of the networks, if these are fewer."""
    networks = [each for each in row["networks"].values() if isinstance(each, dict)]
    scores = [split["test"] for split in row["chosen"][kind]["splits"]]
    count = max((each["num_seeds"] for each in networks), default=0)
    if kind != next(iter(row["chosen"])) or not 1 < count < len(scores):
        return "-"
    some = np.asarray(scores[:count])
    return f"{score(float(some.mean()), float(some.std(ddof=1)))} ({count})"


def _cut_off(name: str, row: Any, num_epochs: int) -> str:
    if row == published.ABSENT:
        return ""
    text = best_epochs(row["networks"], num_epochs)
    return text and f"On {name}, {text}"


def _network(found: Any) -> str:
    text = cell(found)
    return f"{text} ({found['num_seeds']})" if isinstance(found, dict) else text


def _ranks(name: str, kind: str, part: dict[str, Any]) -> list[str]:
    choice = part["choice"]
    ranks = choice["rank_correlation"]
    cells = [name, kind, str(len(choice["trials"])), str(len(choice["skipped"]))]
    return [*cells, "-" if ranks is None else f"{ranks:+.2f}"]


def _seconds(record: dict[str, Any], cells: list[str]) -> str:
    return f"{record['measured']['seconds'][cells[0]][cells[1]]:.0f}"
