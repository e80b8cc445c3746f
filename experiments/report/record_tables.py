"""Tables of text from the records of the reproduction and the published numbers."""

from collections.abc import Callable
from typing import Any

from experiments import published
from experiments.report.score_tables import Table, absent, ogb, score, scores


def convergence(record: dict[str, Any]) -> list[Table]:
    """Return the five cases, as stated in the paper and as computed."""
    rows = [
        [
            case["case"],
            *(
                f"{told}; {seen}"
                for told, seen in zip(case["table"], case["found"], strict=True)
            ),
            f"{case['residual']:.1e}",
            f"{case['predictions']:.1e}",
            f"{case['growth']:.2g}",
        ]
        for case in record["result"]["cases"]
    ]
    header = [
        "case",
        "R: table; found",
        "F': table; found",
        "R off",
        "F' off",
        "growth",
    ]
    note = (
        "Distances, after all steps, to what the table says they converge to; growth "
        "is the way in the second half of the steps over that in the first."
    )
    return [Table("Convergence of residual propagation", header, rows, note)]


def data_sets(record: dict[str, Any]) -> list[Table]:
    """Return the statistics of each dataset and the published ones."""
    rows = []
    for name, row in record["result"]["datasets"].items():
        stated = row["published"]
        names = ("num_nodes", "num_edges", "num_features", "num_classes")
        told = "; ".join(
            "-" if stated[field] is None else f"{stated[field]:,}" for field in names
        )
        if row["found"] == published.ABSENT:
            rows.append([name, *[""] * 6, told, published.ABSENT])
            continue
        found, edges = row["found"], row["edges"]
        rows.append([
            name,
            f"{found['num_nodes']:,}",
            *(f"{edges[kind]:,}" for kind in ("both", "once", "lines")),
            f"{found['num_features']:,}",
            f"{found['num_classes']:,}",
            told,
            ", ".join(row["differs"]) or "none",
        ])
    header = [
        "set", "n", "e, both ways", "e, once", "e, lines", "d", "c",
        "paper: n; e; d; c", "differs in",
    ]  # fmt: skip
    note = (
        "The paper counts Planetoid, Amazon and Coauthor both ways, the heterophilous "
        "sets once, Texas and Arxiv by lines. Features that the files here lack are 0. "
        "The edges of sbm are drawn: the paper gives a range."
    )
    return [Table("Data sets", header, rows, note)]


def curves(record: dict[str, Any]) -> list[Table]:
    """Return the best step by validation for each step size."""
    tables = []
    for name, panel in record["result"].items():
        found, stated = panel["found"], panel["published"]
        if found == published.ABSENT:
            tables.append(absent(name))
            continue
        rows = [
            [f"η = {eta}", str(at["step"]), score(at["val"], 0), score(at["test"], 0)]
            for eta, at in found["chosen"].items()
        ]
        lp = found["lp"]
        rows.append(["LP, α = 1", "-", score(lp["val"], 0), score(lp["test"], 0)])
        rows += [
            [f"{model}, paper", "-", "-", score(*cell)]
            for model, cell in stated.items()
        ]
        header = ["model", "step", "validation", "test"]
        tables.append(Table(f"{name}, K = {found['power']}", header, rows))
    return tables


def evolution(record: dict[str, Any]) -> list[Table]:
    """Return alignments before and after training, and the confirmed findings."""
    tables = []
    for name, panel in record["result"].items():
        if panel.get("found") == published.ABSENT:
            tables.append(absent(name))
            continue
        first, last = panel["rows"][0]["graphs"], panel["rows"][-1]["graphs"]
        rows = [
            [
                f"{graph['kept']:.2f}",
                f"{graph['homophily']:.3f}",
                f"{before['kernel_graph']:.3f} to {after['kernel_graph']:.3f}",
                f"{before['kernel_labels']:.3f} to {after['kernel_labels']:.3f}",
                f"{100 * after['test']:.1f}",
            ]
            for graph, before, after in zip(panel["graphs"], first, last, strict=True)
        ]
        what = "homophilic share" if panel["synthetic"] else "edges kept"
        header = [what, "A(A, Θ*)", "A(Θ, A^2L)", "A(Θ, Θ*)", "test, %"]
        note = "; ".join(
            f"{claim}: {'holds' if holds else 'does NOT hold'}"
            for claim, holds in panel["claims"].items()
        )
        if panel["diverged"] is not None:
            note = f"Training diverged at step {panel['diverged']}."
        tables.append(Table(name, header, rows, note))
    return tables


def blocks(record: dict[str, Any]) -> list[Table]:
    """Return the distances between the kernels of the classes."""
    result = record["result"]
    if result.get("found") == published.ABSENT:
        return [absent(result["dataset"])]
    rows = [
        ["share of |Θ|² between classes", f"{result['off_class_share']:.3f}"],
        ["|pseudo (x) I - Θ| / |Θ|", f"{result['relative_difference']:.3f}"],
    ]
    return [Table("Kernel of several outputs", ["quantity", "here"], rows)]


def settings(record: dict[str, Any]) -> list[Table]:
    """Return the scores of training on one graph and predicting on another."""
    tables = []
    for name, panel in record["result"]["datasets"].items():
        if panel == published.ABSENT:
            tables.append(absent(name))
            continue
        rows = [
            [
                setting,
                f"{row['trained through']}, {row['predicts through']}",
                f"{row['infinite']['test_mean']:.2f}",
                f"{row['infinite']['test_at_end']:.2f}",
                score(row["finite"]["test_mean"], row["finite"]["test_std"]),
                str(row["finite"]["num_seeds"]),
                f"{row['restricted']:.2f}",
            ]
            for setting, row in panel.items()
        ]
        header = [
            "setting", "trained, predicts through", "infinite, best step",
            "at the end", "finite", "runs", "restricted off by",
        ]  # fmt: skip
        tables.append(Table(f"{name}, test scores", header, rows))
    note = (
        "The last column is the distance of the transductive kernel's block between "
        "training and other nodes to the right one, over its size."
    )
    return [*tables[:-1], tables[-1]._replace(note=tables[-1].note or note)]


def widths(record: dict[str, Any]) -> list[Table]:
    """Return the distances of finite networks to the infinite kernel."""
    result = record["result"]
    rows = [
        [
            str(row["width"]),
            *(
                f"{row[what]['mean']:.4f} ± {row[what]['std']:.4f}"
                for what in ("kernel", "trajectory")
            ),
        ]
        for row in result["widths"]
    ]
    slope = ", ".join(f"{what} {value}" for what, value in result["slope"].items())
    note = f"Slopes in width: {slope}; {result['expected_slope']} is expected."
    header = ["width", "kernel off by", "trajectory off by"]
    return [Table("Finite GCNs beside the infinite kernel", header, rows, note)]


TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], list[Table]]]] = {
    "table1_ogb": ("Table 1: OGB (Sec. 3.3)", ogb),
    "figure2_rp_curve": ("Figure 2: learning curves of RP (Sec. 3.3)", curves),
    "figure3_ntk_alignment": ("Figure 3: the kernel in training (Sec. 6)", evolution),
    "table2_convergence": ("Convergence table (App. B.2)", convergence),
    "table3_datasets": ("Dataset table (App. D.1)", data_sets),
    "table4_homophilic": ("Homophilic table (App. E.2)", scores),
    "table5_heterophilic": ("Heterophilic table (App. E.3)", scores),
    "figure4_ntk_blocks": ("Several outputs: blocks of the kernel (App. C.3)", blocks),
    "inductive_pmlp": ("Inductive learning and PMLP (App. C.1)", settings),
    "analytic_vs_empirical": ("Finite beside infinite width (Sec. 4)", widths),
}
"""Experiment -> title and function from record to tables, in the paper's order."""
