"""Tables of your own: CSV, TSV, Parquet and GraphML files as columns of text.

Every value is text, so that ids such as 007 stay as they are. A CSV or TSV file may be
gzipped. Its separator is the most frequent one of comma, semicolon and tab in the first
line. GraphML gives a table of edges or a table of nodes.
"""

import codecs
import contextlib
import gzip
import importlib
import io
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool

from gnnrp.datasets import raw_files
from gnnrp.runtime import memory, safe_text

SEPARATORS = (",", ";", "\t")
PARQUET, GRAPHML = (".parquet", ".pq"), (".graphml",)
MISSING = ("", "na", "n/a", "nan", "null", "none", "<na>")
"""Texts of a missing label or feature, in any case; an id is missing if it is empty."""
_NO_TEXT = {
    b"PK\x03\x04": "a zip archive or a workbook",
    b"PAR1": "a Parquet file, whose name must end in .parquet",
    b"\xff\xfe": "text in UTF-16",
}
_UNNAMED = re.compile(r"Unnamed: \d+")  # pandas' name of a column without one
TEXT_FACTOR = 12  # bytes in memory per byte of text, measured


def is_missing(texts: np.ndarray) -> Bool[np.ndarray, " r"]:
    """Return the mask of missing labels or features."""
    return np.array([text.casefold() in MISSING for text in texts], bool)


class MissingPackageError(ModuleNotFoundError):
    """A package of the extra "tables" that is not installed."""


class Table(NamedTuple):
    """Columns of text, and where each row stands in the file."""

    path: Path
    columns: dict[str, np.ndarray]  # name -> (r,) text, "" for missing values
    first_line: int  # of row 0; 0: rows have no lines

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def place(self, row: int) -> str:
        """Return the file and the line of a row, for messages."""
        if self.first_line:
            return f"{self.path}, line {self.first_line + row}"
        return f"{self.path}, row {row + 1}"

    def name(self, column: str) -> str:
        """Return the name of a column, given by its name or its position from 0."""
        names = list(self.columns)
        if column in self.columns:
            return column
        if re.fullmatch("[0-9]{1,9}", column) and int(column) < len(names):
            return names[int(column)]
        msg = (
            f"{self.path} has no column {safe_text.line(column, 40)!r}; it has "
            f"{_join(names)}, or use positions 0 to {len(names) - 1}"
        )
        raise ValueError(msg)


def read(
    path: Path,
    kind: Literal["edges", "nodes"],
    *,
    header: bool = True,
    encoding: str = "utf-8",
    max_bytes: int | None = None,
) -> Table:
    """Read a table of edges or of nodes.

    Args:
        path: the suffix gives the format: .parquet or .pq, .graphml, otherwise text.
        kind: which table of a GraphML file: edges have the columns source, target and
            their attributes, nodes the column id and theirs.
        header: whether the first line of a text file has the names of the columns,
            which are their positions otherwise.
        encoding: of a text file.
        max_bytes: memory limit; that of the machine by default.

    Raises:
        ValueError: a damaged or empty file, or one that does not fit in memory.
        OSError: a file that cannot be read.
        MissingPackageError: a package that reads the format is not installed.
    """
    pandas, path = _import("pandas"), Path(path)
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        msg = f"encoding must be one of Python's, such as latin-1, got {encoding!r}"
        raise ValueError(msg) from error
    file = _open(path, max_bytes)
    suffix = path.suffix.lower()
    is_text = suffix not in PARQUET + GRAPHML
    with _parse_errors(path, encoding):
        if is_text:
            frame = _text(pandas, file, header=header, encoding=encoding)
        else:
            file.reserve(TEXT_FACTOR * file.size)
            frame = (
                _parquet(pandas, path)
                if suffix in PARQUET
                else _graphml(pandas, path, kind)
            )
    _check_names(path, [str(name) for name in frame.columns])
    columns = {str(name): _as_text(frame[name]) for name in frame.columns}
    table = Table(path, columns, (1 + header) if is_text else 0)
    if not table.num_rows:
        msg = f"{path} has no rows; it needs one for each of the {kind}"
        raise ValueError(msg)
    return table


def _open(path: Path, max_bytes: int | None) -> raw_files.File:
    """Return the file, which can be read."""
    try:
        path.open("rb").close()
    except OSError as error:
        msg = f"{path} cannot be read ({error.strerror or error}); check the path"
        raise type(error)(msg) from error
    return raw_files.stat(path, memory.room_on_host(max_bytes))


@contextlib.contextmanager
def _parse_errors(path: Path, encoding: str) -> Iterator[None]:
    """Turn any exception of a parser into one sentence that starts with the file."""
    try:
        yield
    except (raw_files.TooLargeError, MissingPackageError):
        raise
    except UnicodeError as error:
        reason = safe_text.line(str(error), 120)
        msg = (
            f"{path} is not in the encoding {encoding!r} ({reason}); save it as UTF-8, "
            "or set another encoding, such as latin-1 (--encoding latin-1)"
        )
        raise ValueError(msg) from error
    except Exception as error:
        reason = safe_text.line(str(error).strip() or type(error).__name__, 160)
        msg = f"{path} cannot be read as a table ({reason}); correct the file"
        raise ValueError(msg) from error


def _check_names(path: Path, names: list[str]) -> None:
    """Refuse columns without a name, or with the same one."""
    if "" in names:
        msg = (
            f"{path}: column {names.index('')} has no name, like an index that pandas "
            "wrote; name it in the first line, or remove the column"
        )
        raise ValueError(msg)
    if len(set(names)) < len(names):
        name = max(names, key=names.count)
        msg = f"{path} has several columns named {name!r}; rename all but one"
        raise ValueError(msg)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        msg = f"reading tables needs {name}; run pip install 'gnnrp[tables]'"
        raise MissingPackageError(msg) from error


def _text(pandas: Any, file: raw_files.File, *, header: bool, encoding: str) -> Any:
    """Return the rows of a CSV or TSV file; a blank last line is no row."""
    limit = file.max_unpacked_bytes()
    with file.open() as raw:
        packed = raw.peek(2)[:2] == b"\x1f\x8b"
        with gzip.open(raw) if packed else raw as stream:
            content = stream.read(limit + 1)
    if len(content) > limit:
        msg = f"it unpacks to more than {limit:,} bytes"
        raise ValueError(msg)
    for start, kind in _NO_TEXT.items():
        if content.startswith(start):
            msg = f"it is {kind}, not text of the encoding {encoding!r}"
            raise ValueError(msg)
    if not content.strip():
        return pandas.DataFrame()
    file.reserve(TEXT_FACTOR * len(content))
    text = content.decode("utf-8-sig" if encoding == "utf-8" else encoding).rstrip()
    first = text.partition("\n")[0]
    separator = max(SEPARATORS, key=first.count)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        frame = pandas.read_csv(
            io.StringIO(text),
            sep=separator,
            header=0 if header else None,
            dtype=str,
            keep_default_na=False,
            index_col=False,
            skip_blank_lines=False,
            skipinitialspace=True,
        )
    names = [str(name).strip() for name in frame.columns]
    names = ["" if header and _UNNAMED.fullmatch(name) else name for name in names]
    return frame.set_axis(names, axis=1)


def _parquet(pandas: Any, path: Path) -> Any:
    _import("pyarrow")
    frame = pandas.read_parquet(path)
    has_index = any(name is not None for name in frame.index.names)
    return frame.reset_index() if has_index else frame


def _graphml(pandas: Any, path: Path, kind: str) -> Any:
    """Return the edges or the nodes of a GraphML file, with their attributes."""
    graph = _import("networkx").read_graphml(path)
    if kind == "edges":
        rows = [
            {**attributes, "source": source, "target": target}
            for source, target, attributes in graph.edges(data=True)
        ]
        return _first(pandas.DataFrame(rows, dtype=object), ["source", "target"])
    rows = [{**attributes, "id": node} for node, attributes in graph.nodes(data=True)]
    return _first(pandas.DataFrame(rows, dtype=object), ["id"])


def _first(frame: Any, names: list[str]) -> Any:
    """Return a frame with these columns first."""
    return frame[[*names, *(name for name in frame.columns if name not in names)]]


def _as_text(column: Any) -> np.ndarray:
    """Return a column as text; whole numbers without a decimal point."""
    values = column.astype(object).where(column.notna(), "").to_numpy(object)
    return np.array([_format(value) for value in values], object)


def _format(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float) and value.is_integer():  # integers beside a missing one
        return str(int(value))
    return str(value)


def _join(names: Iterable[str], most: int = 8) -> str:
    names = [repr(safe_text.line(name, 40)) for name in names]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
