"""Tables of a record as aligned text for a terminal."""

import json
import textwrap
from typing import Any

from experiments.report.record_tables import TABLES
from experiments.report.score_tables import Table
from gnnrp.runtime import json_files

WIDTH = 88


def render(record: dict[str, Any]) -> str:
    """Return the title and the tables of a record, as in the report.

    A record that the report has no tables for is returned as JSON.
    """
    text = json_files.dumps(record)
    record = json.loads(text)  # tables are of records in files
    if record["experiment"] not in TABLES:
        return text
    title, tables = TABLES[record["experiment"]]
    parts = [title, *map(_format, tables(record))]
    return "\n\n".join([*parts, f"{record['seconds']:.0f} s on {record['device']}"])


def _format(table: Table) -> str:
    """Return a table with aligned columns, below its title and above its note."""
    rows = [table.header, *table.rows] if table.rows else []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [table.title]
    for row in rows:
        first, *others = (
            f"{cell:{'>' if number else '<'}{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *others]).rstrip())
    return "\n".join([*lines, *textwrap.wrap(table.note, WIDTH)])
