"""Tables of text from the records of the reproduction and the published numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from experiments import published
from experiments.report import (
    beyond_tables,
    large_tables,
    section5_tables,
    width_tables,
)
from experiments.report.score_tables import Table, empty_table, ogb, score, scores


def convergence(record: dict[str, Any]) -> list[Table]:
    """Return the five cases, as stated in the paper and as computed."""
    rows = [
        [
            case["case"],
            *(
                f"{stated}; {computed}"
                for stated, computed in zip(case["table"], case["found"], strict=True)
            ),
            f"{case['residual']:.1e}",
            f"{case['predictions']:.1e}",
            f"{case['growth']:.2g}",
        ]
        for case in record["result"]["cases"]
    ]
    header = [
        "case",
        "R: paper; here",
        "F': paper; here",
        "error of R",
        "error of F'",
        "growth",
    ]
    note = (
        "Errors are relative distances after the last step to Y - S_XX S_XX^+ Y for R "
        "and to S_X'X S_XX^+ Y for F', the limits in the paper where it states one. A "
        "run ends early once |F| exceeds 10^150. Growth is the distance that "
        "predictions move in the second half of the steps, divided by that of the "
        "first half."
    )
    return [Table("Convergence of residual propagation", header, rows, note)]


def data_sets(record: dict[str, Any]) -> list[Table]:
    """Return the statistics of each dataset and the published ones."""
    rows = []
    for name, row in record["result"]["datasets"].items():
        stated = row["published"]
        names = ("num_nodes", "num_edges", "num_features", "num_classes")
        paper = "; ".join(
            "-" if stated[field] is None else f"{stated[field]:,}" for field in names
        )
        if row["found"] == published.ABSENT:
            rows.append([name, *[""] * 6, paper, published.ABSENT])
            continue
        computed, edges = row["found"], row["edges"]
        rows.append([
            name,
            f"{computed['num_nodes']:,}",
            *(f"{edges[kind]:,}" for kind in ("both", "once", "lines")),
            f"{computed['num_features']:,}",
            f"{computed['num_classes']:,}",
            paper,
            ", ".join(row["differs"]) or "none",
        ])
    header = [
        "dataset", "n", "e, both directions", "e, once", "e, lines", "d", "c",
        "paper: n; e; d; c", "differences",
    ]  # fmt: skip
    note = (
        "The paper counts the edges of Planetoid, Amazon and Coauthor in both "
        "directions, those of the heterophilous datasets once, and those of Texas and "
        "Arxiv by lines of the file. d is 0 if the files here have no features. The "
        "edges of sbm are random: the paper states 8,023 to 8,028, and another number "
        "here is not counted as a difference."
    )
    return [Table("Datasets", header, rows, note)]


def curves(record: dict[str, Any]) -> list[Table]:
    """Return the best step by validation for each step size."""
    tables = []
    for name, panel in record["result"].items():
        computed, stated = panel["found"], panel["published"]
        if computed == published.ABSENT:
            tables.append(empty_table(name))
            continue
        rows = [
            [f"η = {eta}", str(at["step"]), score(at["val"], 0), score(at["test"], 0)]
            for eta, at in computed["chosen"].items()
        ]
        lp = computed["lp"]
        rows.append(["LP, α = 1", "-", score(lp["val"], 0), score(lp["test"], 0)])
        rows += [
            [f"{model}, paper", "-", "-", score(*cell)]
            for model, cell in stated.items()
        ]
        header = ["model", "step", "validation", "test"]
        tables.append(Table(f"{name}, K = {computed['power']}", header, rows))
    return tables


def evolution(record: dict[str, Any]) -> list[Table]:
    """Return for each dataset the kernels of all seeds, findings and variants."""
    tables = []
    for name, panel in record["result"].items():
        if panel.get("found") == published.ABSENT:
            tables.append(empty_table(name))
            continue
        tables += [_kernels(name, panel), _findings(name, panel)]
        if panel["published"]:
            tables.append(_published_curves(name, panel))
        if panel["variants"]:
            tables.append(_variants(name, panel))
    return tables


_MEASURES = {
    "kernel_graph": "A(Θ, A^4)",
    "kernel_first": "A(Θ, A^4 of the homophilic edges)",
    "kernel_labels": "A(Θ, Θ*)",
    "test": "test",
}


def _kernels(name: str, panel: dict[str, Any]) -> Table:
    """Return alignments and accuracy on each graph, before and after training."""
    measures = dict(_MEASURES)
    if not panel["synthetic"]:
        del measures["kernel_first"]
    rows = []
    for number, graph in enumerate(panel["graphs"]):
        cells = []
        for measure in measures:
            curve = panel["curves"][measure]
            median, low, high = (
                np.array(curve[part][number], float)
                for part in ("median", "smallest", "largest")
            )
            before, after = f"{median[0]:.3f}", f"{median[-1]:.3f}"
            cells.append(f"{before} to {after} ({low[-1]:.3f}, {high[-1]:.3f})")
        rows.append([f"{graph['kept']:.2f}", f"{graph['homophily']:.3f}", *cells])
    share = "homophilic share" if panel["synthetic"] else "1 - p"
    note = (
        f"{panel['num_seeds']} seeds: median before training to median after "
        f"{panel['steps'][-1]:,} steps (smallest, largest). A(A^4, Θ*) = "
        f"{panel['target_labels']:.3f}. Features: {panel['settings']['features']}."
    )
    if panel["synthetic"]:
        note += " The seeds are spread over five draws of graphs and features."
    elif panel["settings"]["manner"] == "directed":
        note += (
            " Each direction of an edge is dropped with probability p on its own, as "
            "in the authors' code, so that 1 - p² of the edges remain."
        )
    else:
        note += " Each edge is dropped with probability p."
    return Table(name, [share, "A(A, Θ*)", *measures.values()], rows, note)


def _findings(name: str, panel: dict[str, Any]) -> Table:
    """Return the number of seeds in which each finding of the paper holds."""
    rows = [
        [
            finding,
            *_verdict(found),
            *_verdict(panel["findings_two_ends"][finding]),
            *_verdict(panel["findings_without"].get(finding)),
        ]
        for finding, found in panel["findings"].items()
    ]
    note = (
        "A finding compares graphs at the same step, except before training, or steps "
        "on the same graph. It holds in a seed if at least a quarter of all pairs "
        "agree, and three times as many as disagree. The verdict is 'holds' if it "
        "holds in 90 percent of the seeds, 'not reproduced' if in none, and else "
        "'holds for some seeds', even for one. Alignments must differ by 0.01, "
        "accuracies by (2 n)^-1/2 for n test nodes, one standard error of a difference "
        "of two independent accuracies of 50 percent, which is 12 points on Texas. A "
        "synthetic graph is homophilic if A(A, Θ*) is positive, a real one if A(A, Θ*) "
        "falls as edges are removed. On real graphs, all kernels are compared with A^4 "
        "of the whole graph, and the last finding leaves out the graph without edges. "
        "'Two ends' compares the whole graph with the one without (homophilic) edges "
        "only, as the paper does first for the real graphs. The last columns are about "
        "kernels without A 1. A value that stays high is no pair: a seed counts if "
        "three quarters of the values after the start are high, compared with the "
        "largest of all graphs at that step."
    )
    title = f"{name}, findings of the paper"
    header = [
        "finding", "seeds", "verdict", "seeds, two ends", "verdict",
        "seeds, without A 1", "verdict",
    ]  # fmt: skip
    return Table(title, header, rows, note)


def _verdict(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["-", "-"]
    return [f"{found['holds']} of {found['seeds']}", found["verdict"]]


def _published_curves(name: str, panel: dict[str, Any]) -> Table:
    """Return the published values and the nearest values of the seeds."""
    rows, steps = [], np.array(panel["steps"])
    for graph, measures in panel["published"].items():
        end = "first" if graph == "whole graph" else "last"
        for measure, points in measures.items():
            values = np.array(panel["curves"][measure][end], float)
            for step, value in points.items():
                at = int(np.abs(steps - int(step)).argmin())
                cells = [f"{steps[at]:,}", f"{value:.3f}", _spread(values[:, at])]
                rows.append([f"{graph}, {_MEASURES[measure]}", *cells])
    header = ["curve", "step", "paper", "here: median (smallest, largest)"]
    note = (
        "Published values are read off the figure. The graph thinned by 0.99 is "
        "compared with the graph without edges."
    )
    return Table(f"{name}, published curves", header, rows, note)


def _variants(name: str, panel: dict[str, Any]) -> Table:
    """Return the share of A 1 and the alignments of variants on the whole graph."""
    whole = _on_the_whole_graph(panel)
    without = {
        "kernel_graph": whole["rest_graph"],
        "kernel_labels": whole["rest_labels"],
        "test": whole["test"],
    }
    listed = {
        "network of the paper": (panel, whole),
        "the same, kernel without A 1": (panel, without),
    }
    for title, variant in panel["variants"].items():
        listed[title] = (variant, _on_the_whole_graph(variant))
    step = min(variant["steps"][-1] for variant in panel["variants"].values())
    rows = []
    for title, (run, values) in listed.items():
        at = int(np.searchsorted(run["steps"], step))
        cells = [
            _spread(values[measure][:, at]) if measure in values else "-"
            for measure in ("share", "kernel_graph", "kernel_labels", "test")
        ]
        bias = _spread(np.array(run["largest_bias"])[:, at])
        rows.append([title, bias, *cells])
    header = [
        "network", "max |b_1|", "share of A 1", "A(Θ, A^4)", "A(Θ, Θ*)", "test",
    ]  # fmt: skip
    note = (
        f"Whole graph, step {step:,}: median (smallest, largest) over seeds. The share "
        "of A 1 is the part of |HΘH|^2 that is lost if A 1 is projected out."
    )
    return Table(f"{name}, variants", header, rows, note)


def _on_the_whole_graph(run: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return each measure (seed, step)."""
    return {
        name: np.array(curve["first"], float) for name, curve in run["curves"].items()
    }


def _spread(values: np.ndarray) -> str:
    """Return the median with the smallest and the largest value."""
    return f"{np.median(values):.3f} ({values.min():.3f}, {values.max():.3f})"


def blocks(record: dict[str, Any]) -> list[Table]:
    """Return the distances between the kernels of the classes."""
    result = record["result"]
    if result.get("found") == published.ABSENT:
        return [empty_table(result["dataset"])]
    rows = [
        ["share of |Θ|² between classes", f"{result['off_class_share']:.3f}"],
        ["|pseudo-NTK ⊗ I - Θ| / |Θ|", f"{result['relative_difference']:.3f}"],
    ]
    return [Table("Kernel of several outputs", ["quantity", "here"], rows)]


def settings(record: dict[str, Any]) -> list[Table]:
    """Return the scores of training on one graph and predicting on another."""
    tables = []
    for name, panel in record["result"]["datasets"].items():
        if panel == published.ABSENT:
            tables.append(empty_table(name))
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
            "setting", "graphs of training, prediction", "infinite, best step",
            "infinite, limit", "finite", "runs", "error of transductive block",
        ]  # fmt: skip
        about = section5_tables.SBM if name == "sbm" else ""
        tables.append(Table(f"{name}, test scores", header, rows, about))
    note = (
        "The limit is that of t → ∞, by the pseudo-inverse. The last column is the "
        "relative error of using the transductive kernel's block between training and "
        "other nodes."
    )
    if not any(table.rows for table in tables):
        return tables
    return [*tables[:-1], tables[-1]._replace(note=f"{tables[-1].note} {note}".strip())]


TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], list[Table]]]] = {
    "table1_ogb": ("Table 1: OGB (Sec. 3.3)", ogb),
    "figure2_rp_curve": ("Figure 2: learning curves of RP (Sec. 3.3)", curves),
    "figure3_ntk_alignment": (
        "Figure 3: the kernel during training (Sec. 6)",
        evolution,
    ),
    "table2_convergence": ("Convergence table (App. B.2)", convergence),
    "table3_datasets": ("Dataset table (App. D.1)", data_sets),
    "table4_homophilic": ("Homophilic table (App. E.2)", scores),
    "table5_heterophilic": ("Heterophilic table (App. E.3)", scores),
    "figure4_ntk_blocks": ("Figure 4: blocks of the kernel (App. C.3)", blocks),
    "inductive_pmlp": ("Inductive learning and PMLP (App. C.1)", settings),
    "analytic_vs_empirical": (
        "Finite and infinite width (Sec. 4 and 6, App. C.3)",
        width_tables.tables,
    ),
    "generalization": (
        "Alignment and generalization (Sec. 5)",
        section5_tables.generalization,
    ),
    "heterophily": ("Heterophily and depth (App. C.4)", section5_tables.heterophily),
    "beyond": (
        "Beyond the paper: similarities chosen by validation",
        beyond_tables.tables,
    ),
    "gntk_large": (
        "Beyond the paper: infinitely wide GCNs on large graphs",
        large_tables.tables,
    ),
}
"""Experiment -> title and function from record to tables, in the paper's order."""
