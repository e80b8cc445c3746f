"""Page of ``partition_study``: its record as text and tables."""

from typing import Any

from experiments.partition import partitioners
from experiments.partition.halo_costs import ARRAYS

FIGURES = ("volume", "seconds", "papers100M")


def page(record: dict[str, Any]) -> str:
    """Return the record as Markdown with links to figures in the same folder."""
    graphs = {
        name: graph
        for name, graph in record["result"]["graphs"].items()
        if isinstance(graph, dict)
    }
    volume, seconds, large = (
        f"![{name}](partition_study_{name}.png)" for name in FIGURES
    )
    lines = [
        "# Communication and time of a hop on many hosts",
        "",
        "`python -m experiments.partition.study --output DIR` writes this page from "
        "its record, `partition_study.json`. `experiments/partition/halo_costs.py` "
        "defines the quantities.",
        "",
        *_summary(record, graphs),
        *_graphs(record, graphs),
        "## Rows moved by a hop",
        "",
        VOLUMES,
        "",
    ]
    for name, graph in graphs.items():
        times = record["measured"]["partition seconds"][name]
        lines += [f"### {name}", "", *_volumes(graph, times)]
    lines += [volume, "", "## Predicted seconds of a hop", "", *_time_model(record)]
    for name, graph in graphs.items():
        hops = record["measured"]["hops"][name]
        lines += [f"### {name}", "", *_hops(graph, hops)]
    lines += [seconds, "", "## Two processes", "", *_processes(record)]
    lines += ["## ogbn-papers100M", "", *_papers(record), large, ""]
    return "\n".join([*lines, _provenance(record), ""])


VOLUMES = """\
A part needs the rows of other parts that its entries refer to: its halo. There are two
exchanges:

- The halo exchange runs in rounds. In a round, each part sends to at most one other
  part, and every pair moves as many rows as the largest pair of the round.
- The gather sends all rows to each part.

The code chooses the exchange for which a part allocates fewer rows.

There are four partition methods. `natural` and `reordered` split a node order into
ranges with equal numbers of entries: the original order, and the order of
`partitioning.balance(reorder=True)`. `metis` and `kahip` minimize the number of cut
edges. They weight a node by its number of entries plus one, and balance the parts
within 3 percent.

Columns, for n nodes:

- `halo`: rows that parts lack, summed over all parts.
- `padded`: rows that the halo exchange moves, with padding, summed over all parts.
- `largest`: rows that the part with the largest halo lacks, times the number of parts.
- `received`: rows that each part allocates and waits for, times the number of parts.
- `gather`: rows that the gather moves, summed over all parts.
- `exchange`: the exchange that the code chooses.
- `messages`: consecutive messages of this exchange.
- `MB moved`: float32 data that this exchange moves, summed over all parts.
- `entries`, `rows`: maximum over all parts, divided by the mean."""


def _summary(record: dict[str, Any], graphs: dict[str, Any]) -> list[str]:
    """Summarize the tables."""
    measured, lines = record["measured"], ["## Summary", ""]
    parts = record["settings"]["parts"][-1]
    for name, graph in graphs.items():
        rows = graph["nodes"] / parts
        last = {method: rows[-1] for method, rows in graph["volumes"].items()}
        lines += [
            f"- `{name}` in {parts} parts, as multiples of n / {parts} rows: a part "
            f"lacks {_by_method(last, 'halo', rows * parts)} on average. The code "
            f"sends it {_by_method(last, 'moved', rows * parts)}, including padding. "
            f"Each part waits for {_by_method(last, 'received', rows)}. Without "
            "padding, the part with the largest halo would wait for "
            f"{_by_method(last, 'largest_halo', rows)}.",
            f"- Fastest predicted hop of `{name}`: "
            f"{_fastest(graph, measured['hops'][name])}.",
        ]
    cases = [case for rows in measured["processes"].values() for case in rows]
    ratios = [
        case["bytes"] / case["predicted bytes"] for case in cases if case["bytes"]
    ]
    error = max(case["relative difference"] for case in cases)
    if ratios:
        lines += [
            f"- Two processes move {min(ratios):.3f} to {max(ratios):.3f} times the "
            "predicted bytes. Their results differ from those of one process by at "
            f"most {error:.1e} (relative)."
        ]
    for name, rows in measured["papers100M"].items():
        hosts = [
            f"{row['gigabytes']['total']:.0f} GB per host on {row['hosts']} hosts "
            f"({', '.join(map(_seconds, row['hop'].values()))} s per hop)"
            for row in rows
        ]
        lines += [
            f"- ogbn-papers100M, extrapolated from `{name}`: {', '.join(hosts)}. The "
            f"times are for links of {', '.join(rows[0]['hop'])} Gbit/s."
        ]
    return [*lines, ""]


def _by_method(volumes: dict[str, Any], field: str, scale: float) -> str:
    """Return a scaled field of the volume of each method."""
    return ", ".join(f"{v[field] / scale:.2f} ({m})" for m, v in volumes.items())


def _fastest(graph: dict[str, Any], hops: dict[str, Any]) -> str:
    """Return the fastest hop for each link, and the time on one host."""
    fastest: dict[str, tuple[float, str]] = {}
    for method, volumes in graph["volumes"].items():
        for volume, row in zip(volumes, hops[method], strict=True):
            for link, times in row.items():
                hop = (times["total"], f"{volume['parts']} parts, {method}")
                fastest[link] = min(fastest.get(link, hop), hop)
    links = [f"{t:.3g} s at {x} Gbit/s ({how})" for x, (t, how) in fastest.items()]
    return f"{', '.join(links)}; {_seconds(hops['one host'])} s on one host"


def _graphs(record: dict[str, Any], graphs: dict[str, Any]) -> list[str]:
    settings = record["settings"]
    lines = ["## Graphs", ""]
    for name, graph in record["result"]["graphs"].items():
        if name not in graphs:
            lines += [f"- `{name}`: {graph}."]
            continue
        origin = (
            "A synthetic graph from `experiments/partition/communities.py`: "
            "communities of 300 to 30,000 nodes, power-law degrees, 65 percent of the "
            "edges inside a community, 30 percent to a nearby one and 5 percent to "
            "any node, nodes in random order. These shares are choices, not fitted to "
            "a real graph"
            if name == "generated"
            else "The adjacency matrix of the dataset, with a loop on each node"
        )
        lines += [
            f"- `{name}`: {graph['nodes']:,} nodes, {graph['entries']:,} entries, "
            f"{graph['columns']} columns. {origin}."
        ]
        share = graph["share of edges seen"]
        if share < 1:
            lines += [
                f"  METIS and KaHIP see a random {100 * share:.0f} percent of the "
                "edges, so that METIS fits in memory. Rows are counted on all edges."
            ]
    lines += [
        f"- Two processes share `{settings['dataset']}` and a generated graph of the "
        f"same kind with {settings['check_nodes']:,} nodes.",
        "",
    ]
    return lines


def _volumes(graph: dict[str, Any], times: dict[str, Any]) -> list[str]:
    header = [
        "method", "parts", "halo / n", "padded / n", "largest / n", "received / n",
        "gather / n", "exchange", "messages", "MB moved", "entries", "rows",
        "seconds to partition",
    ]  # fmt: skip
    n, row = graph["nodes"], 4 * graph["columns"]
    rows = [
        [
            method,
            str(v["parts"]),
            *(f"{v[field] / n:.3g}" for field in ("halo", "padded")),
            *(
                f"{v[field] * v['parts'] / n:.3g}"
                for field in ("largest_halo", "received")
            ),
            f"{v['gather'] / n:.3g}",
            v["exchange"],
            str(v["messages"]),
            f"{v['moved'] * row / 1e6:,.1f}",
            f"{v['entry_balance']:.2f}",
            f"{v['row_balance']:.2f}",
            f"{seconds:.1f}",
        ]
        for method, volumes in graph["volumes"].items()
        for v, seconds in zip(volumes, times[method], strict=True)
    ]
    return table(header, rows)


def _time_model(record: dict[str, Any]) -> list[str]:
    speeds = record["measured"]["entries x columns a second"]
    millions = ", ".join(f"{x / 1e6:,.0f} million ({n})" for n, x in speeds.items())
    return [
        "The predicted time of a hop is the sum of three terms: the entries of the "
        "largest part x columns / speed, the bits that a host receives / link speed, "
        f"and {1e6 * record['settings']['latency']:g} microseconds for each of the "
        "consecutive messages. Computation and communication do not overlap.",
        "",
        "The speed is the fastest product with the whole matrix on this machine, in "
        f"the natural node order. In entries x columns per second, it is {millions}. "
        "The speed of `generated` is measured on the smaller graph that the two "
        "processes share, and the speed of `papers100M` on the same graph with "
        f"{record['result']['papers100M']['columns']} columns. All methods use the "
        "same speed, and every host is assumed to be like this machine. If other "
        "programs used the machine during the measurement, the predicted times of "
        "products are too long; rows and bytes are not affected.",
        "",
        "Times in parentheses assume that each part receives only the rows it lacks.",
        "",
    ]


def _hops(graph: dict[str, Any], hops: dict[str, Any]) -> list[str]:
    rows = [["one host", "1", _seconds(hops["one host"])]]
    links: list[str] = []
    for method, volumes in graph["volumes"].items():
        for v, row in zip(volumes, hops[method], strict=True):
            links = list(row)
            cells = [
                f"{_seconds(hop['total'])} ({_seconds(hop['total without padding'])})"
                for hop in row.values()
            ]
            local = _seconds(row[links[0]]["local"])
            rows.append([method, str(v["parts"]), local, *cells])
    rows[0] += ["-"] * len(links)
    header = ["method", "parts", "product", *(f"{x} Gbit/s" for x in links)]
    return table(header, rows)


def _processes(record: dict[str, Any]) -> list[str]:
    header = [
        "graph", "exchange", "method", "MB predicted", "MB measured", "ratio",
        "difference", "product predicted, s", "product, s", "hop, s", "one process, s",
    ]  # fmt: skip
    rows = []
    for name, cases in record["measured"]["processes"].items():
        for case in cases:
            measured, predicted = case["bytes"], case["predicted bytes"]
            rows.append([
                f"{name}, {case['entries']:,} entries",
                case["exchange"],
                case["method"],
                f"{predicted / 1e6:.2f}",
                "-" if measured is None else f"{measured / 1e6:.2f}",
                "-" if measured is None else f"{measured / predicted:.4f}",
                f"{case['relative difference']:.1e}",
                *(_seconds(case[field]) for field in (
                    "predicted local seconds", "local seconds", "seconds", "one process"
                )),
            ])  # fmt: skip
    text = (
        "Two processes on this machine, with one core each, communicate with gloo over "
        "the loopback interface, whose receive counter gives the bytes of a hop. "
        "`difference` is the relative difference to the result of a single process on "
        "one core, in the Frobenius norm. The predicted time of a product is that of "
        "the single process times the larger part's share of the entries. Of "
        f"{record['settings']['hops']} hops, the table shows the fastest time and the "
        "median of the bytes. Products are timed after the hops. A product that takes "
        "longer than its hop was slowed down by other programs."
    )
    return [text, "", *table(header, rows)]


def _papers(record: dict[str, Any]) -> list[str]:
    graph, methods = record["result"]["papers100M"], record["settings"]["methods"]
    lines = [
        "These numbers are extrapolated, not measured. The graph has "
        f"{graph['nodes']:,} nodes, at most {graph['entries']:,} entries (each "
        "citation in both directions, and loops) and "
        f"{graph['columns']} columns. The extrapolation assumes that it partitions "
        f"like the measured graph (method: {partitioners.best(methods)}). With the "
        "same number of parts, the largest part lacks and each part receives the same "
        "multiple of n / hosts rows in the same number of messages, and rows and "
        "entries are equally unbalanced. Numbers of parts that were not measured "
        "(marked *) follow a power law, fitted from 8 parts on. ogbn-arxiv is a graph "
        "of the same kind but 650 times smaller, and the other graph is synthetic: the "
        "two results indicate a range, not bounds.",
        "",
        "The memory of a host holds a CSR matrix with 8 bytes per entry, "
        f"{len(ARRAYS)} float32 arrays ({', '.join(ARRAYS)}), its own rows followed by "
        "the received ones, and copies. The halo exchange copies the rows to send; the "
        "gather copies own and received rows once more. Each process must read only "
        "its own part, because a whole matrix of this size exceeds int32 indices.",
        "",
        "Times in parentheses assume that each part receives only the rows it lacks.",
        "",
    ]
    for name, rows in record["measured"]["papers100M"].items():
        links = list(rows[0]["hop"])
        header = [
            "hosts", "largest / n", "received / n", "rows", "GB per host", "matrix",
            "arrays", "received", "copies", "product, s",
            *(f"hop, {x} Gbit/s" for x in links),
        ]  # fmt: skip
        cells = [
            [
                f"{row['hosts']}{'*' if row['fitted'] else ''}",
                f"{row['lacked']:.3g}",
                f"{row['received']:.3g}",
                f"{row['rows']:.2f}",
                *(
                    f"{row['gigabytes'][kind]:.1f}"
                    for kind in ("total", "matrix", "arrays", "received", "copies")
                ),
                _seconds(row["local"]),
                *(
                    f"{_seconds(row['hop'][x])} "
                    f"({_seconds(row['hop without padding'][x])})"
                    for x in links
                ),
            ]
            for row in rows
        ]
        lines += [f"### Extrapolated from {name}", "", *table(header, cells)]
    return lines


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a Markdown table and a blank line."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    return [lines[0], "|---" * len(header) + "|", *lines[1:], ""]


def _seconds(value: float) -> str:
    return f"{value:.3g}"


def _provenance(record: dict[str, Any]) -> str:
    settings = ", ".join(f"{k} {v}" for k, v in record["settings"].items())
    versions = ", ".join(f"{k} {v}" for k, v in record["versions"].items())
    commit = (record["commit"] or "no checkout")[:10]
    return (
        f"Settings: {settings}; commit {commit}; {versions}; "
        f"{record['device']}; {record['seconds']:.0f} s, peak memory "
        f"{(record['peak_memory_bytes'] or 0) / 1e9:.1f} GB."
    )
