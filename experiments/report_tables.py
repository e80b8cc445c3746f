"""Records of the reproduction as tables of text, beside the paper's figures."""

from collections.abc import Callable
from typing import Any, NamedTuple

from experiments import published


class Table(NamedTuple):
    """Cells of text, with what they are."""

    title: str
    header: list[str]
    rows: list[list[str]]
    note: str = ""


def score(mean: float | None, std: float | None) -> str:
    """Return a mean with its spread, where there is one."""
    if mean is None:
        return "-"
    return f"{mean:.2f} ± {std:.2f}" if std else f"{mean:.2f}"


def verdict(found: dict[str, Any], stated: Any) -> str:
    """Return the difference to the paper, and whether it is within both spreads.

    Where neither states a spread, half a unit of the paper's last digit is one.
    """
    mean, std = stated
    difference = found["test_mean"] - mean
    spread = max(std, found["test_std"] or 0.0, 0.05)
    within = "within" if abs(difference) <= spread else "beyond"
    return f"{difference:+.2f}, {within}"


def convergence(result: dict[str, Any]) -> list[Table]:
    """Return the five cases: what the table says, and what was found."""
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
        for case in result["cases"]
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


def data_sets(result: dict[str, Any]) -> list[Table]:
    """Return the statistics of each set, the paper's where they differ."""
    rows = []
    for name, row in result["datasets"].items():
        if row["found"] == published.ABSENT:
            rows.append([name, published.ABSENT, "", "", "", "", ""])
            continue
        found, edges = row["found"], row["edges"]
        rows.append([
            name,
            f"{found['num_nodes']:,}",
            *(f"{edges[kind]:,}" for kind in ("both", "once", "lines")),
            f"{found['num_features']:,}",
            ", ".join(row["differs"]) or "none",
        ])
    header = ["set", "n", "e, both ways", "e, once", "e, lines", "d", "differs in"]
    note = (
        "The paper counts Planetoid, Amazon and Coauthor both ways, the heterophilous "
        "sets once, Texas and Arxiv by lines. Features that the files here lack are 0."
    )
    return [Table("Data sets", header, rows, note)]


def scores(result: dict[str, Any]) -> list[Table]:
    """Return a table a data set: every model, here and in the paper."""
    tables = []
    for name, column in result["datasets"].items():
        stated, found = column["published"], column["found"]
        if found == published.ABSENT:
            found = {}
        rows = []
        for model in dict.fromkeys([*stated, *found]):
            here, paper = found.get(model), stated.get(model)
            rows.append([
                model,
                score(here["test_mean"], here["test_std"]) if here else "-",
                str(here["num_seeds"]) if here else "-",
                score(*paper) if paper else "-",
                verdict(here, paper) if here and paper else "-",
            ])
        note = "" if found else published.ABSENT
        header = ["model", "test, here", "runs", "test, paper", "difference"]
        tables.append(Table(name, header, rows, note))
    return tables


def curves(result: dict[str, Any]) -> list[Table]:
    """Return the step that validation chose for each step size."""
    tables = []
    for name, panel in result.items():
        found, stated = panel["found"], panel["published"]
        if found == published.ABSENT:
            tables.append(Table(name, ["set"], [[name]], published.ABSENT))
            continue
        rows = [
            [f"η = {eta}", str(at["step"]), f"{at['val']:.2f}", f"{at['test']:.2f}"]
            for eta, at in found["chosen"].items()
        ]
        lp = found["lp"]
        rows.append(["LP, α = 1", "-", f"{lp['val']:.2f}", f"{lp['test']:.2f}"])
        rows += [
            [f"{model}, paper", "-", "-", score(*cell)]
            for model, cell in stated.items()
        ]
        header = ["model", "step", "validation", "test"]
        tables.append(Table(f"{name}, K = {found['power']}", header, rows))
    return tables


def evolution(result: dict[str, Any]) -> list[Table]:
    """Return alignments before and after training, and which findings hold."""
    tables = []
    for name, panel in result.items():
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
        tables.append(Table(name, header, rows, note))
    return tables


def blocks(result: dict[str, Any]) -> list[Table]:
    """Return how far the classes' kernels are apart."""
    rows = [
        ["share of |Θ|² between classes", f"{result['off_class_share']:.3f}"],
        ["|pseudo (x) I - Θ| / |Θ|", f"{result['relative_difference']:.3f}"],
    ]
    return [Table("Kernel of several outputs", ["quantity", "here"], rows)]


TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], list[Table]]]] = {
    "table2_convergence": ("Convergence table (App. B.2)", convergence),
    "table3_datasets": ("Dataset table (App. D.1)", data_sets),
    "table4_homophilic": ("Homophilic table (App. E.2)", scores),
    "table5_heterophilic": ("Heterophilic table (App. E.3)", scores),
    "figure2_rp_curve": ("Figure 2: learning curves of RP", curves),
    "figure3_ntk_alignment": ("Figure 3: the kernel in training", evolution),
    "figure4_ntk_blocks": ("Figure 4: blocks of the kernel", blocks),
}
"""Experiment -> its title, and its record as tables."""
