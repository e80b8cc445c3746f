"""Tables of generalization, heterophily and depth: Section 5 against test errors."""

from typing import Any

from experiments import published
from experiments.report.score_tables import Table, empty_table

SBM = "Half of the edges of sbm are homophilic; its features are Gaussian."


def generalization(record: dict[str, Any]) -> list[Table]:
    """Return alignment, bound and errors of each graph, and their rank correlations."""
    result = record["result"]
    methods = list(result["sbm"][0]["errors"])
    rows = {f"sbm, {row['homophilic']:.0%} homophilic": row for row in result["sbm"]}
    table = [_errors(name, row) for name, row in (rows | result["datasets"]).items()]
    header = ["graph", "A(A^K, Θ*)", "bound", *(f"{m}, error %" for m in methods)]
    tables = [Table("Alignment, bound and test error", header, table)]
    lines = []
    for graphs, terms in result["correlations"].items():
        for term, each in terms.items():
            cells = [_relation(each[method]) for method in methods]
            lines.append([f"{graphs}, {term}", *cells])
    note = (
        "The bound is its main term (y^T Θ^-1 y tr Θ)^1/2 / l for one class against "
        "the others, averaged over classes and splits. Θ^-1 is I - α A^K between "
        "training nodes, with α = 0.9 / λ_max of A^K there; the paper has α < 1. "
        "Spearman's rank correlation with the errors, and its p-value. In theory it is "
        "negative for the alignment and positive for the bound; 'holds' asks for this "
        "sign and a p-value of at most 0.05. The MLP reads no graph, so on the block "
        "model its error is constant. With fewer than eight graphs, the p-value counts "
        "all orders; with five, only a perfect ranking has one below 0.05. RP reaches "
        "nodes up to K hops from a training node, 62 % of the test nodes of Cora and "
        "31 % on Citeseer; the others count as the first class."
    )
    return [*tables, Table("Rank correlations", ["graphs", *methods], lines, note)]


def _errors(name: str, row: Any) -> list[str]:
    if row == published.ABSENT:
        return [name, published.ABSENT]
    errors = [f"{value:.2f}" for value in row["errors"].values()]
    return [name, f"{row['alignment']:.3f}", f"{row['bound']:.3f}", *errors]


def _relation(found: dict[str, Any]) -> str:
    if found["rank_correlation"] is None:
        return "-"
    holds = "holds" if found["holds"] else "not shown"
    p = f"p {found['p_value']:.3f}" if found["p_value"] >= 0.001 else "p < 0.001"
    return f"{found['rank_correlation']:+.2f} ({p}), {holds}"


def heterophily(record: dict[str, Any]) -> list[Table]:
    """Return alignment and scores of each propagation matrix, and of each depth."""
    result = record["result"]
    rows = {f"sbm, {row['homophilic']:.0%} homophilic": row for row in result["sbm"]}
    lines = []
    for name, row in (rows | result["datasets"]).items():
        if row == published.ABSENT:
            lines.append([name, published.ABSENT])
            continue
        matrices = {key: each for key, each in row.items() if key != "homophilic"}
        lines += [
            [name, matrix, f"{each['alignment']:+.3f}", *_scores(each)]
            for matrix, each in matrices.items()
        ]
    header = [
        "graph",
        "matrix",
        "A(A, Θ*)",
        "RP, test %",
        "GNTK, test %",
        "GCN, test %",
    ]
    note = (
        "The diagonal of a matrix aligns with the labels too, and the identity "
        "('none') has nothing else: compare matrices with similar diagonals only. "
        "RP takes A^K, the GNTK two layers. RP with the identity predicts the first "
        "class for all nodes that are not in training. On Texas, the GCN with A is "
        "no better than the majority class."
    )
    tables = [Table("Propagation designed for heterophily", header, lines, note)]
    for name, depths in result["depth"].items():
        if depths == published.ABSENT:
            tables.append(empty_table(name))
            continue
        cells = [
            [
                depth,
                f"{each['alignment']:.3f}",
                f"{each['rank_one']:.3f}",
                f"{each['test']:.2f}",
            ]
            for depth, each in depths.items()
        ]
        header = ["depth", "A(Θ, Θ*)", "share of the largest eigenvalue", "test, %"]
        note = SBM if name == "sbm" else ""
        title = f"Depth of the infinitely wide GCN, {name}"
        tables.append(Table(title, header, cells, note))
    return tables


def _scores(row: dict[str, float]) -> list[str]:
    return [f"{row[method]:.2f}" for method in ("RP", "GNTK", "GCN")]
