"""Report of a reproduction: tables compared with the paper, figures and settings.

    python -m experiments.report.documents FOLDER

reads the records in a folder and writes report.md, report.tex (booktabs) and
report.html, a single page with embedded figures. An experiment without a record is
listed with its command.
"""

import base64
import html
import sys
from pathlib import Path
from typing import Any, NamedTuple

from experiments.report.record_tables import TABLES
from experiments.report.score_tables import Table
from gnnrp.runtime import atomic_files, checks, json_files

TITLE = "How Graph Neural Networks Learn: results of the paper reproduced by gnnrp"
VERDICTS = (
    "A difference of scores is within the spread if it does not exceed the larger of "
    "the two standard deviations over runs, or 0.05 where neither side has one. With "
    "three runs this says little: a large deviation here puts a large difference "
    "within. RP on the graph alone takes the number of hops up to 10 at which label "
    "propagation (LP) validates best, except on Arxiv (7, from the paper) and "
    "roman-empire (1); LP has 1 to 10, 20 or 50 iterations with α = 1, "
    "or infinitely many with α = 0.9, whichever validates best. 'Labels held' resets "
    "the training nodes to their labels after each iteration."
)
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: auto;
  padding: 0 1rem 4rem; }
h1 { font-size: 1.5rem; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #8886; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.2rem 0.7rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 1px solid; }
img { max-width: 100%; height: auto; background: white; }
figure { margin: 1.5rem 0; }
.note, .made, figcaption { font-size: 0.85rem; opacity: 0.8; }
.made, code { overflow-wrap: anywhere; }
"""


class Section(NamedTuple):
    """Tables and figures of an experiment; tables are None if it has not been run."""

    name: str
    title: str
    tables: list[Table] | None
    figures: list[Path]
    provenance: str  # settings, versions and device

    @property
    def command(self) -> str:
        """The command of the experiment."""
        return f"python -m experiments.paper.{self.name} --data-dir DIR --output DIR"

    def captions(self) -> list[tuple[Path, str]]:
        """Return each figure with its caption: the title, and the end of its name."""
        result = []
        for path in self.figures:
            words = path.stem.removeprefix(self.name).strip("_").split("_")
            result.append((path, f"{self.title}: {', '.join(words)}".rstrip(": ")))
        return result


def main() -> None:
    """Write the report of a folder next to its records."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m experiments.report.documents FOLDER")
    try:
        paths = write(Path(sys.argv[1]))
    except (ValueError, OSError) as error:
        sys.exit(f"report: {error}")
    for path in paths:
        print(path)


def write(folder: Path) -> list[Path]:
    """Write the report of a folder of records in all three formats; return the files.

    Raises:
        ValueError: no record, or a damaged record.
    """
    results = sections(folder)
    paths = []
    for name, render in (("md", markdown), ("tex", latex), ("html", page)):
        path = folder / f"report.{name}"
        atomic_files.write(path, render(results).encode())
        paths.append(path)
    return paths


def sections(folder: Path) -> list[Section]:
    """Return all experiments in the order of the paper, including those not run.

    Raises:
        ValueError: no record, or a damaged record.
    """
    results = [section(folder, name) for name in TABLES]
    if all(result.tables is None for result in results):
        msg = f"no record in {str(folder)!r}; create one with {results[0].command}"
        raise ValueError(msg)
    return results


def section(folder: Path, name: str) -> Section:
    """Return an experiment; its tables are None if there is no record.

    Raises:
        ValueError: the record is damaged or of another version.
    """
    title, tables = TABLES[name]
    path = folder / f"{name}.json"
    if not path.exists():
        return Section(name, title, None, [], "")
    try:
        record = json_files.load(path)
        figures = [folder / file for file in record.get("figures", [])]
        content, provenance = tables(record), _provenance(record)
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        RecursionError,
    ) as error:
        reason = checks.format_value(error)
        msg = f"{str(path)!r} is damaged or of another version ({reason}); delete it"
        raise ValueError(msg) from error
    return Section(name, title, content, [f for f in figures if f.exists()], provenance)


def _provenance(record: dict[str, Any]) -> str:
    settings = ", ".join(f"{k} {v}" for k, v in record["settings"].items())
    versions = ", ".join(f"{k} {v}" for k, v in record["versions"].items())
    commit = (record["commit"] or "no checkout")[:10]
    return (
        f"Settings: {settings}; commit {commit}; {versions}; {record['device']}; "
        f"{record['seconds']:.0f} s, of the last run if it was resumed"
    )


def markdown(results: list[Section]) -> str:
    """Return the report as Markdown with links to figures in the same folder."""
    lines = [f"# {TITLE}", "", VERDICTS, ""]
    for section in results:
        lines += [f"## {section.title}", "", f"`{section.command}`", ""]
        if section.tables is None:
            lines += ["Not run.", ""]
            continue
        for table in section.tables:
            lines += [f"### {table.title}", "", _row(table.header)]
            lines += ["|---" * len(table.header) + "|", *map(_row, table.rows), ""]
            lines += [table.note, ""] if table.note else []
        for path, caption in section.captions():
            lines += [f"![{caption}]({path.name})", "", f"*{caption}*", ""]
        lines += [f"{section.provenance}.", ""]
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def latex(results: list[Section]) -> str:
    """Return the tables as LaTeX, one environment each, for the booktabs package."""
    lines = [
        "% \\usepackage{booktabs}, and an engine that reads UTF-8 (LuaLaTeX, XeLaTeX)"
    ]
    for section in results:
        for table in section.tables or []:
            columns = "l" + "r" * (len(table.header) - 1)
            lines += [
                "\\begin{table}",
                f"\\caption{{{_tex(section.title)}: {_tex(table.title)}. "
                f"{_tex(table.note)}}}",
                f"\\begin{{tabular}}{{{columns}}}",
                "\\toprule",
                _tex_row(table.header),
                "\\midrule",
                *map(_tex_row, table.rows),
                "\\bottomrule",
                "\\end{tabular}",
                "\\end{table}",
                "",
            ]
    return "\n".join(lines)


def _tex_row(cells: list[str]) -> str:
    return " & ".join(map(_tex, cells)) + r" \\"


def _tex(text: str) -> str:
    special = {
        "\\": r"\textbackslash{}",
        "^": r"\^{}",
        "~": r"\~{}",
        "|": r"\textbar{}",
    }
    special |= {char: "\\" + char for char in "&%$#_{}"}
    return "".join(special.get(char, char) for char in text)


def page(results: list[Section]) -> str:
    """Return a self-contained HTML page."""
    links = "".join(
        f'<li><a href="#{s.name}">{html.escape(s.title)}</a></li>' for s in results
    )
    body = "".join(map(_section, results))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{html.escape(TITLE)}</title><style>{STYLE}</style></head>"
        f"<body><h1>{html.escape(TITLE)}</h1><p>{html.escape(VERDICTS)}</p>"
        f"<ul>{links}</ul>{body}</body></html>\n"
    )


def _section(section: Section) -> str:
    parts = [f'<h2 id="{section.name}">{html.escape(section.title)}</h2>']
    parts.append(f"<p><code>{html.escape(section.command)}</code></p>")
    if section.tables is None:
        return "".join([*parts, "<p>Not run.</p>"])
    for table in section.tables:
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.header)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in table.rows
        )
        parts.append(
            f'<h3>{html.escape(table.title)}</h3><div class="wide"><table><thead>'
            f"<tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        )
        if table.note:
            parts.append(f'<p class="note">{html.escape(table.note)}</p>')
    for path, caption in section.captions():
        data = base64.b64encode(path.read_bytes()).decode()
        words = html.escape(caption)
        image = f'<img alt="{words}" src="data:image/png;base64,{data}">'
        parts.append(f"<figure>{image}<figcaption>{words}</figcaption></figure>")
    parts.append(f'<p class="made">{html.escape(section.provenance)}.</p>')
    return "".join(parts)


if __name__ == "__main__":
    main()
