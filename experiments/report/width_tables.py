"""Tables of finite networks beside the infinite kernel, from their record."""

from typing import Any

from experiments import published
from experiments.paper import lazy_findings
from experiments.paper.lazy_findings import ERRORS
from experiments.report.score_tables import Table, empty_table


def tables(record: dict[str, Any]) -> list[Table]:
    """Return findings, then errors, slopes, alignments and outputs of each graph."""
    results = record["result"]["datasets"]
    present = [found for found in results.values() if found != published.ABSENT]
    made = [_findings(lazy_findings.findings(present))]
    for name, found in results.items():
        if found == published.ABSENT:
            made.append(empty_table(name))
            continue
        title = f"{name}, {found['num_nodes']} nodes, {found['num_train']} labeled"
        depths = sorted({panel["depth"] for panel in found["panels"]})
        for depth in depths:
            panels = [p for p in found["panels"] if p["depth"] == depth]
            made.append(_errors(f"{title}, {depth} layers", panels))
        made += [
            _slopes(f"{title}: slopes in the width", found),
            _alignments(f"{title}: alignments", found["panels"]),
            _outputs(f"{title}: several outputs", found),
        ]
    return made


def _findings(findings: dict[str, list[int]]) -> Table:
    rows = [
        [claim, f"{held} of {count}", _verdict(held, count)]
        for claim, (held, count) in findings.items()
    ]
    note = (
        "Counted over all graphs, depths, parameterizations and losses, or over these "
        "and all widths. A slope is -1/2 if it lies within 0.1 of it; Eq. 109 holds if "
        "the distance of the pseudo-NTK falls like m^-0.4 or faster, in one fit over "
        "all widths. The initial kernel does not depend on the loss, so claims about "
        "it count each kernel twice; at width 64 on the synthetic graph, both "
        "parameterizations are the same networks. Alignments are compared between "
        "start and end of training, which ends when the residual that Θ predicts from "
        "F_0 = 0 is 2 percent of the first one (5 with cross-entropy). Narrow networks "
        "on Cora have not converged by then. The widest networks are the widest "
        "trained ones, of width 256 to 8,192, by the cost of a setting."
    )
    title = "Finite GCNs and the infinite-width kernel"
    return Table(title, ["claim", "holds in", "verdict"], rows, note)


def _verdict(held: int, count: int) -> str:
    if count == 0:
        return "not measured"
    if held == count:
        return "holds"
    return "holds for some" if held else "does not hold"


def _errors(title: str, panels: list[dict[str, Any]]) -> Table:
    rows = []
    for panel in panels:
        rows += [[_setup(panel), *_error_cells(row)] for row in panel["widths"]]
        rows += [[_setup(panel), *_untrained_cells(row)] for row in panel["untrained"]]
    header = [
        "network", "m", "runs", "steps", "initial kernel", "drift", "predictions by Θ",
        "by Θ_0", "test, %", "of the mean", "of Θ", "agreement, %",
    ]  # fmt: skip
    note = (
        "Relative errors, mean and standard deviation over networks. Predictions start "
        'from each network\'s own f_0; "of the mean" is the accuracy of the mean '
        'prediction of the networks, "of Θ" that of the infinite kernel from zero. '
        "Agreement is that of the classes of network and infinite kernel from f_0."
    )
    return Table(title, header, rows, note)


def _untrained_cells(row: dict[str, Any]) -> list[str]:
    counts = [str(row["width"]), str(row["networks"]), "0"]
    return [*counts, _pm(row["kernel"]), *["-"] * 7]


def _error_cells(row: dict[str, Any]) -> list[str]:
    return [
        *(str(row[count]) for count in ("width", "networks", "steps")),
        *(_pm(row[kind]) for kind in ERRORS),
        f"{row['test']['mean']:.1f}",
        f"{row['ensemble']:.1f}",
        f"{row['infinite']['test']:.1f}",
        f"{row['agreement']['mean']:.1f}",
    ]


def _slopes(title: str, found: dict[str, Any]) -> Table:
    rows = []
    for panel in found["panels"]:
        slopes = panel["slope"]
        errors = [slopes[kind] for kind in ERRORS]
        times = [slopes[k][t] for k in ("pseudo", "trace") for t in ("start", "end")]
        rows.append([
            f"L = {panel['depth']}, {_setup(panel)}",
            *("-" if value is None else f"{value:.2f}" for value in errors + times),
            _crossover(panel),
        ])
    header = [
        "network", "initial kernel", "drift", "predictions by Θ", "by Θ_0",
        "pseudo, start", "pseudo, end", "trace, start", "trace, end",
        "drift = initial error at m",
    ]  # fmt: skip
    return Table(title, header, rows, _routes(found["routes"]))


def _crossover(panel: dict[str, Any]) -> str:
    """Return the width above which drift is smaller, or on which side it always is."""
    if panel["crossover"] is not None:
        return f"{panel['crossover']:.0f}"
    last = panel["widths"][-1]
    is_larger = last["drift"]["mean"] > last["kernel"]["mean"]
    return "larger at the last m" if is_larger else "smaller at all m"


def _routes(routes: dict[str, float | None]) -> str:
    stated = [
        f"{depth} layers {'not installed' if gap is None else f'{gap:.0e}'}"
        for depth, gap in routes.items()
    ]
    return f"Our recursion and neural-tangents differ by: {', '.join(stated)}."


def _alignments(title: str, panels: list[dict[str, Any]]) -> Table:
    rows = []
    for panel in panels:
        for row in (panel["widths"][0], panel["widths"][-1]):
            cells = [f"L = {panel['depth']}, {_setup(panel)}", str(row["width"])]
            for kind in ("graph", "labels"):
                times, aligned = row["times"][kind], row["infinite"][kind]
                first, last = (
                    {name: times[name][at] for name in times} for at in (0, -1)
                )
                cells += [_pm(first), _pm(last), f"{aligned:.3f}"]
            rows.append(cells)
    header = ["network", "m"]
    for target in ("A^2L", "Θ*"):
        header += [f"A(Θ_0, {target})", f"A(Θ_T, {target})", f"A(Θ, {target})"]
    return Table(title, header, rows, "Centered; narrowest and widest networks.")


def _outputs(title: str, found: dict[str, Any]) -> Table:
    parts = [
        (f"L = {panel['depth']}, {_setup(panel)}", row)
        for panel in found["panels"]
        for row in (panel["widths"][0], panel["widths"][-1])
    ]
    parts += [("training of Figure 4", row) for row in found["outputs"]["widths"]]
    rows = [
        [
            name,
            str(row["width"]),
            _pm(row["drift"]),
            *(_pm(row[k][t]) for k in ("pseudo", "trace") for t in ("start", "end")),
            f"{row['between classes']['end']['mean']:.1g}",
        ]
        for name, row in parts
    ]
    header = [
        "network", "m", "drift", "pseudo, start", "pseudo, end", "trace, start",
        "trace, end", "share between classes, end",
    ]  # fmt: skip
    nodes = found["outputs"]["nodes"]
    rate = ", ".join(f"{count}: {gap:.3f}" for count, gap in nodes["pseudo"].items())
    note = (
        "Distances |K ⊗ I - Θ| / |Θ| of the pseudo-NTK and of the trace, from training "
        f"nodes to all nodes. By number of nodes, m = {nodes['width']}, pseudo, start: "
        f"{rate}."
    )
    return Table(title, header, rows, note)


def _setup(panel: dict[str, Any]) -> str:
    return f"{panel['parameterization']}, {panel['loss']}"


def _pm(value: dict[str, float]) -> str:
    return f"{value['mean']:.3g} ± {value['std']:.2g}"
