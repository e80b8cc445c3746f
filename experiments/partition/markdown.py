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
        "# What a hop moves and takes on many hosts",
        "",
        "Made by `python -m experiments.partition.study --output DIR` of its record, "
        "`partition_study.json`; the definitions stand in "
        "`experiments/partition/halo_costs.py`.",
        "",
        *_findings(record, graphs),
        *_graphs(record, graphs),
        "## Rows that a hop moves",
        "",
        VOLUMES,
        "",
    ]
    for name, graph in graphs.items():
        times = record["measured"]["partition seconds"][name]
        lines += [f"### {name}", "", *_volumes(graph, times)]
    lines += [volume, "", "## Predicted seconds of a hop", "", *_assumed(record)]
    for name, graph in graphs.items():
        hops = record["measured"]["hops"][name]
        lines += [f"### {name}", "", *_hops(graph, hops)]
    lines += [seconds, "", "## Two processes", "", *_processes(record)]
    lines += ["## ogbn-papers100M", "", *_papers(record), large, "", _made(record), ""]
    return "\n".join(lines)


VOLUMES = """\
A part lacks the rows that its entries name and others hold (`halo`, of all parts
together; `largest` is the one of the part that lacks most, times the parts). They are
exchanged in rounds, in each of which a part sends to one other at most, and every pair
as many rows as the largest of the round (`padded`; `received` is that for which a part
makes room and waits, times the parts); or each part receives all rows (`gather`). The
code takes that of which a part makes room for less (`by`), and that is what is moved,
in float32 columns, by all parts together. `entries` and `rows` are the most of a part
over the mean. `natural` and `reordered` are ranges of as many entries,
in the nodes' own order or in the one of `layouts.balanced(reorder=True)`; METIS and
KaHIP cut few edges, and weigh a node by its entries and one, within 3 percent."""


def _findings(record: dict[str, Any], graphs: dict[str, Any]) -> list[str]:
    """Summarize the tables."""
    measured, lines = record["measured"], ["## In short", ""]
    for name, graph in graphs.items():
        n, last = graph["nodes"], {m: v[-1] for m, v in graph["volumes"].items()}
        parts = record["settings"]["parts"][-1]

        def each(what: str, last: dict[str, Any] = last, n: float = n) -> str:
            return ", ".join(f"{v[what] / n:.2f} ({m})" for m, v in last.items())

        lines += [
            f"- `{name}` in {parts} parts: for each of n / {parts} rows, a part lacks "
            f"{each('halo')} in the mean, and the code sends it {each('moved')}, "
            f"padding included. A part waits for {each('received', n=n / parts)}; "
            f"could parts differ, the largest would for "
            f"{each('largest_halo', n=n / parts)}.",
            f"- `{name}`, fastest hop: {_fastest(graph, measured['hops'][name])}.",
        ]
    cases = [one for some in measured["processes"].values() for one in some]
    told = [one["bytes"] / one["predicted bytes"] for one in cases if one["bytes"]]
    apart = max(one["relative difference"] for one in cases)
    if told:
        lines += [
            f"- Two processes move {min(told):.3f} to {max(told):.3f} times the bytes "
            f"predicted; their result is one process's within {apart:.1e}."
        ]
    for name, rows in measured["papers100M"].items():
        some = [
            f"{row['hosts']} hosts hold {row['gigabytes']['total']:.0f} GB each "
            f"(a hop: {', '.join(map(_seconds, row['hop'].values()))} s)"
            for row in rows
        ]
        lines += [
            f"- ogbn-papers100M, if as `{name}`: {', '.join(some)}; seconds for links "
            f"of {', '.join(rows[0]['hop'])} Gbit/s."
        ]
    return [*lines, ""]


def _fastest(graph: dict[str, Any], hops: dict[str, Any]) -> str:
    """Return the fastest hop for each link, and the time on one host."""
    found: dict[str, tuple[float, str]] = {}
    for method, volumes in graph["volumes"].items():
        for v, row in zip(volumes, hops[method], strict=True):
            for link, one in row.items():
                told = (one["total"], f"{v['parts']} parts by {method}")
                found[link] = min(found.get(link, told), told)
    links = [f"{t:.3g} s at {x} Gbit/s ({how})" for x, (t, how) in found.items()]
    return f"{', '.join(links)}; {_seconds(hops['one host'])} s on one host"


def _graphs(record: dict[str, Any], graphs: dict[str, Any]) -> list[str]:
    settings = record["settings"]
    lines = ["## Graphs", ""]
    for name, graph in record["result"]["graphs"].items():
        if name not in graphs:
            lines += [f"- `{name}`: {graph}."]
            continue
        what = (
            "generated by `experiments/partition/communities.py`, and no real graph: "
            "communities of 300 to 30,000 nodes, degrees that follow a power law, 65 "
            "percent of the edges drawn inside a community, 30 percent to one nearby, "
            "5 percent to anywhere, nodes numbered at random. The shares are choices"
            if name == "generated"
            else "the data set, its adjacency with a loop on each node"
        )
        lines += [
            f"- `{name}`: {graph['nodes']:,} nodes, {graph['entries']:,} entries, "
            f"{graph['columns']} columns; {what}."
        ]
        share = graph["share of edges seen"]
        if share < 1:
            lines += [
                f"  For METIS to fit in memory, it and KaHIP were given "
                f"{100 * share:.0f} percent of the edges, drawn at random; rows are "
                "counted on all."
            ]
    lines += [
        f"- two processes share `{settings['dataset']}` and a generated graph of the "
        f"same kind with {settings['check_nodes']:,} nodes.",
        "",
    ]
    return lines


def _volumes(graph: dict[str, Any], times: dict[str, Any]) -> list[str]:
    header = [
        "method", "parts", "halo / n", "padded / n", "largest / n", "received / n",
        "gather / n", "by", "messages", "MB moved", "entries", "rows",
        "seconds to part",
    ]  # fmt: skip
    n, row = graph["nodes"], 4 * graph["columns"]
    rows = [
        [
            method,
            str(v["parts"]),
            *(f"{v[what] / n:.3g}" for what in ("halo", "padded")),
            *(
                f"{v[what] * v['parts'] / n:.3g}"
                for what in ("largest_halo", "received")
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


def _assumed(record: dict[str, Any]) -> list[str]:
    speeds = record["measured"]["entries x columns a second"]
    told = ", ".join(f"{x / 1e6:,.0f} million on {n}" for n, x in speeds.items())
    return [
        "Entries of the largest part x columns / speed, then what a host receives / "
        f"link, and {1e6 * record['settings']['latency']:g} microseconds for each "
        "message after another; nothing overlaps. The speed is the best of a whole "
        "hop on this "
        f"machine in the natural order of the nodes ({told}; entries x columns a "
        "second, for `generated` on the graph of the two processes, for `papers100M` "
        "on the same with 172 columns), whatever the method; hosts are as this "
        "machine. If others used it meanwhile, products are predicted too slow; rows "
        "and bytes do not depend on it. In brackets: could each part receive just "
        "what it lacks.",
        "",
    ]


def _hops(graph: dict[str, Any], hops: dict[str, Any]) -> list[str]:
    rows = [["one host", "1", _seconds(hops["one host"])]]
    links: list[str] = []
    for method, volumes in graph["volumes"].items():
        for v, row in zip(volumes, hops[method], strict=True):
            links = list(row)
            cells = [
                f"{_seconds(one['total'])} ({_seconds(one['total without padding'])})"
                for one in row.values()
            ]
            local = _seconds(row[links[0]]["local"])
            rows.append([method, str(v["parts"]), local, *cells])
    rows[0] += ["-"] * len(links)
    header = ["method", "parts", "product", *(f"{x} Gbit/s" for x in links)]
    return table(header, rows)


def _processes(record: dict[str, Any]) -> list[str]:
    header = [
        "graph", "exchange", "parts by", "MB predicted", "MB measured", "ratio",
        "difference", "product predicted, s", "product, s", "hop, s", "one process, s",
    ]  # fmt: skip
    rows = []
    for name, cases in record["measured"]["processes"].items():
        for one in cases:
            moved, told = one["bytes"], one["predicted bytes"]
            rows.append([
                f"{name}, {one['entries']:,} entries",
                one["exchange"],
                one["method"],
                f"{told / 1e6:.2f}",
                "-" if moved is None else f"{moved / 1e6:.2f}",
                "-" if moved is None else f"{moved / told:.4f}",
                f"{one['relative difference']:.1e}",
                *(_seconds(one[what]) for what in (
                    "predicted local seconds", "local seconds", "seconds", "one process"
                )),
            ])  # fmt: skip
    said = (
        "Two processes of this machine, a core each, with gloo over the loopback, "
        "whose receive counter tells the bytes of a hop. `difference` is that of the "
        "result to the one of a single process on one core, in the Frobenius norm, "
        "relative. The predicted product is the single one's seconds times the share "
        "of the entries in the larger part. "
        f"Of {record['settings']['hops']} hops, the fastest, and the median of bytes. "
        "Products are timed after the hops: where one takes longer, others used the "
        "machine."
    )
    return [said, "", *table(header, rows)]


def _papers(record: dict[str, Any]) -> list[str]:
    graph, methods = record["result"]["papers100M"], record["settings"]["methods"]
    lines = [
        f"Not measured: {graph['nodes']:,} nodes, at most {graph['entries']:,} entries "
        f"(each citation both ways, and loops), {graph['columns']} columns. Assumed is "
        "that at the same number of parts the largest part lacks, and each receives, "
        "as many rows for each of n / hosts as in the measured graph that is named, in "
        "as many messages, and that rows and "
        f"entries are as uneven (parts by {partitioners.best(methods)}); numbers of "
        "parts that were not measured (marked *) follow a power of the number, fitted "
        "from 8 parts on. ogbn-arxiv is of the same kind but 650 times smaller, the "
        "other is generated: take both as a range, not as a bound. Memory: a CSR of 8 "
        f"bytes an entry, {len(ARRAYS)} float32 arrays ({', '.join(ARRAYS)}), the "
        "received rows behind the own ones, and copies: of the rows to be sent, or, "
        "where all are, once more of these. Each process must then read its own part "
        "only: a whole matrix of this size is beyond int32 indices. "
        "In brackets: could each part receive just what it lacks.",
        "",
    ]
    for name, rows in record["measured"]["papers100M"].items():
        links = list(rows[0]["hop"])
        header = [
            "hosts", "largest / n", "received / n", "rows", "GB a host", "matrix",
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
                    f"{row['gigabytes'][what]:.1f}"
                    for what in ("total", "matrix", "arrays", "received", "copies")
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
        lines += [f"### if as {name}", "", *table(header, cells)]
    return lines


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a Markdown table and a blank line."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    return [lines[0], "|---" * len(header) + "|", *lines[1:], ""]


def _seconds(value: float) -> str:
    return f"{value:.3g}"


def _made(record: dict[str, Any]) -> str:
    settings = ", ".join(f"{k} {v}" for k, v in record["settings"].items())
    versions = ", ".join(f"{k} {v}" for k, v in record["versions"].items())
    commit = (record["commit"] or "no checkout")[:10]
    return (
        f"Made with settings: {settings}; commit {commit}; {versions}; "
        f"{record['device']}; {record['seconds']:.0f} s, "
        f"{(record['peak_memory_bytes'] or 0) / 1e9:.1f} GB at most."
    )
