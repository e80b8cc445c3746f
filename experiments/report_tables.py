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


def verdict(mean: float, std: float, stated: Any) -> str:
    """Return the difference to the paper, and whether it is within both spreads.

    Where neither states a spread, half a unit of the paper's last digit is one.
    """
    difference = mean - stated[0]
    within = abs(difference) <= max(stated[1], std, 0.05)
    return f"{difference:+.2f}, {'within' if within else 'beyond'}"


def absent(name: str, reason: str = published.ABSENT) -> Table:
    """Return the table of what could not be run: it says so, and holds no number."""
    return Table(name, ["set"], [[name]], reason)


def ogb(record: dict[str, Any]) -> list[Table]:
    """Return the scores of each set, then steps, time and memory beside a GCN's."""
    tables, speed = [], []
    for name, panel in record["result"]["datasets"].items():
        found = {} if panel["found"] == published.ABSENT else panel["found"]
        stated = {
            part: {OURS.get(model, model): cell for model, cell in cells.items()}
            for part, cells in panel["published"].items()
        }
        note = "" if found else published.ABSENT
        if published.FEATURELESS in found.values():
            note = f"MLP, SGC, GCN: {published.FEATURELESS}"
        rows = []
        for model in dict.fromkeys([*stated["test"], *found]):
            here = found.get(model)
            here = None if isinstance(here, str) else here
            rows.append([model, *_pairs(here, stated, model)])
        header = [
            "model", "val, here", "test, here", "runs", "val, paper", "test, paper",
            "test, difference",
        ]  # fmt: skip
        tables.append(Table(name, header, rows, note))
        speed += _speed(name, record["measured"].get(name), stated["speed"])
    header = ["set", "RP over full-batch GCN", "here", "paper"]
    note = (
        "Steps in turns on this device, medians; memory is that of the compiled steps, "
        "inputs included. The paper's are of a GPU."
    )
    return [*tables, Table("Steps, time and memory", header, speed, note)]


OURS = {"LinearGNN": "SGC", "GNN": "GCN"}
"""What Table 1 calls otherwise."""


def _pairs(here: Any, stated: dict[str, Any], model: Any) -> list[str]:
    cells = [
        score(here[f"{part}_mean"], here[f"{part}_std"]) if here else "-"
        for part in ("val", "test")
    ]
    paper = [stated[part].get(model) for part in ("val", "test")]
    told = [score(*cell) if cell else "-" for cell in paper]
    compared = here and paper[1]
    return [
        *cells,
        str(here["num_seeds"]) if here else "-",
        *told,
        verdict(here["test_mean"], here["test_std"] or 0.0, paper[1])
        if compared
        else "-",
    ]


def _speed(name: str, here: dict[str, Any] | None, stated: dict) -> list[list[str]]:
    if here is None:
        here = dict.fromkeys(("speedup of a step", "time to accuracy", "memory"))
    reached = here["time to accuracy"]
    if isinstance(reached, dict):
        ratio = reached["ratio"]
        reached = "not reached" if ratio is None else f"x {ratio:.4g}"
    cells: dict[str, str] = {
        "speedup of a step": _times(here["speedup of a step"]),
        "time to accuracy": str(reached or published.ABSENT),
        "memory": _times(here["memory"]),
    }
    return [
        [name, what, cell, _times(stated.get(what))] for what, cell in cells.items()
    ]


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"x {ratio:.4g}"


def convergence(record: dict[str, Any]) -> list[Table]:
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
    """Return the statistics of each set, the paper's where they differ."""
    rows = []
    for name, row in record["result"]["datasets"].items():
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


def scores(record: dict[str, Any]) -> list[Table]:
    """Return a table a data set: every model, here and in the paper."""
    tables = []
    for name, column in record["result"]["datasets"].items():
        stated, found = column["published"], column["found"]
        note, found = (found, {}) if isinstance(found, str) else ("", found)
        rows = []
        for model in dict.fromkeys([*stated, *found]):
            here, paper = found.get(model), stated.get(model)
            rows.append([
                model,
                score(here["test_mean"], here["test_std"]) if here else "-",
                str(here["num_seeds"]) if here else "-",
                score(*paper) if paper else "-",
                verdict(here["test_mean"], here["test_std"] or 0.0, paper)
                if here and paper
                else "-",
            ])
        header = ["model", "test, here", "runs", "test, paper", "difference"]
        tables.append(Table(name, header, rows, note))
    return tables


def curves(record: dict[str, Any]) -> list[Table]:
    """Return the step that validation chose for each step size."""
    tables = []
    for name, panel in record["result"].items():
        found, stated = panel["found"], panel["published"]
        if found == published.ABSENT:
            tables.append(absent(name))
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


def evolution(record: dict[str, Any]) -> list[Table]:
    """Return alignments before and after training, and which findings hold."""
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
        tables.append(Table(name, header, rows, note))
    return tables


def blocks(record: dict[str, Any]) -> list[Table]:
    """Return how far the classes' kernels are apart."""
    result = record["result"]
    if result.get("found") == published.ABSENT:
        return [absent(result["dataset"])]
    rows = [
        ["share of |Θ|² between classes", f"{result['off_class_share']:.3f}"],
        ["|pseudo (x) I - Θ| / |Θ|", f"{result['relative_difference']:.3f}"],
    ]
    return [Table("Kernel of several outputs", ["quantity", "here"], rows)]


def settings(record: dict[str, Any]) -> list[Table]:
    """Return what training through one graph and predicting through another gives."""
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
    """Return how near finite networks come to the infinite kernel."""
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
    "table1_ogb": ("Table 1: OGB (Sec. 3.2)", ogb),
    "figure2_rp_curve": ("Figure 2: learning curves of RP (Sec. 3.2)", curves),
    "figure3_ntk_alignment": ("Figure 3: the kernel in training (Sec. 6)", evolution),
    "table2_convergence": ("Convergence table (App. B.2)", convergence),
    "table3_datasets": ("Dataset table (App. D.1)", data_sets),
    "table4_homophilic": ("Homophilic table (App. E.2)", scores),
    "table5_heterophilic": ("Heterophilic table (App. E.3)", scores),
    "figure4_ntk_blocks": ("Several outputs: blocks of the kernel (App. C.3)", blocks),
    "inductive_pmlp": ("Inductive learning and PMLP (App. C.1)", settings),
    "analytic_vs_empirical": ("Finite beside infinite width (Sec. 4)", widths),
}
"""Experiment -> its title, and its record as tables; in the order of the paper."""
