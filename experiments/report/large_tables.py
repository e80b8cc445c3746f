"""Tables of infinitely wide GCNs on large graphs, from their record."""

from typing import Any

from experiments import published
from experiments.report.score_tables import Table, cell, score


def tables(record: dict[str, Any]) -> list[Table]:
    """Return the scores and errors of each dataset, then the growth of the time."""
    rows = []
    for name, found in record["result"]["datasets"].items():
        if found == published.ABSENT:
            rows.append([name, *["-"] * (len(HEADER) - 2), published.ABSENT])
            continue
        times = record["measured"][name]["seconds"]
        for row, seconds in zip(found["rows"], times, strict=True):
            rows.append([name, *_row(found, row, seconds)])
        if found["GCN"]:
            runs = found["GCN"]["num_seeds"]
            gcn = f"{cell(found['GCN'])} ({runs} runs)"
            rows.append([name, "trained GCN", "2", "-", gcn, "-", "-", "-"])
    note = (
        "Test scores of networks of two or three layers in percent, at the step with "
        "the best validation score; mean and deviation over keys. Errors are |Ψ Ψ^T - "
        "Θ| / |Θ|, beside the exact kernel on 1,000 nodes (250 where the whole does "
        "not fit), and as estimated from the features alone, which is too small for "
        "three layers. Seconds: of the kernel, and of training and scoring; medians "
        "over keys. The exact kernel ran once, compilation included."
    )
    if "arxiv" in record["result"]["datasets"]:
        note += (
            " Arxiv ran once too. Its features are generated, so its score would say "
            "nothing."
        )
    growth = record["measured"]["growth"]
    grown = [
        [f"{int(nodes):,}", f"{int(edges):,}", f"{seconds:.1f}"]
        for nodes, edges, seconds in growth["rows"]
    ]
    return [
        Table("Random features beside the exact kernel", list(HEADER), rows, note),
        Table(
            "Time of random features on generated graphs",
            ["nodes", "edges", "seconds"],
            grown,
            f"Two layers, 128 inputs. The time grows like n^{growth['exponent']:.2f}.",
        ),
    ]


HEADER = (
    "dataset", "kernel", "layers", "m", "test", "error", "estimated error", "seconds",
)  # fmt: skip


def _row(found: dict[str, Any], row: dict[str, Any], seconds: list[float]) -> list[str]:
    times = f"{seconds[0]:.1f} + {seconds[1]:.1f}"
    test = "-"
    if not found["generated_features"]:
        test = score(row["test_mean"], row["test_std"])
    depth = str(row["depth"])
    if row["method"] == "exact":
        return ["exact", depth, "-", test, "-", "-", times]
    error = "-" if row["error"] is None else f"{row['error']:.2%}"
    stated = f"{row['stated_error']:.2%}"
    count = f"{row['num_features']:,}"
    return ["random features", depth, count, test, error, stated, times]
