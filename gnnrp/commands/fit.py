"""`gnnrp fit`: classify the nodes of a graph in tables or arrays."""

import csv
import dataclasses
import io
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gnnrp.commands._shared import ResultFlags, check_device, flags_of
from gnnrp.commands._shared import values_from_flags as values
from gnnrp.runtime import atomic_files, checks, streams
from gnnrp.tables.settings import TableSettings

if TYPE_CHECKING:
    from gnnrp.estimator.tables import Result
    from gnnrp.tables.graph_tables import GraphTables

_REQUIRED = ("edges", "labels")
_OF_TABLES = (*_REQUIRED, "features", "header", "encoding")
Metric = Literal[
    "accuracy",
    "balanced_accuracy",
    "macro_f1",
    "roc_auc",
    "average_precision",
    "neg_log_loss",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit(ResultFlags, flags_of(TableSettings, optional=False)):
    """Classify the nodes of your own graph.

    Reads tables of edges, labels and perhaps features: CSV or TSV (also gzipped),
    Parquet or GraphML; or an npz file of arrays. Chooses a similarity by validation,
    scores a held-out share of the labels, and predicts the class of each node with all
    labels.
    """

    edges: Path | None = None
    """Table of edges: source, target, and a column named weight if there is one."""
    labels: Path | None = None
    """Table of labels: node and label. Unlabeled nodes may be left out."""
    features: Path | None = None
    """Table of features: node, and numbers or categories."""
    graph: Path | None = None
    """File of arrays (npz) instead of tables: edges, labels, features, node_ids."""
    out: Path = Path("predictions.csv")
    """File of the predictions, one line for each node."""
    example: Path | None = None
    """Write example tables to this folder, and stop."""
    header: bool = True
    """Whether the first line of a CSV or TSV file names the columns."""
    encoding: str = "utf-8"
    """Encoding of CSV and TSV files."""
    holdout: float = 0.2
    """Share of the labels of each class that is held out to test the predictions."""
    search_seconds: float = 30.0
    """Time after which no other similarity is tried."""
    metric: Metric = "accuracy"
    """Metric of the choice."""
    seed: int = 0
    """Seed of the held-out labels."""

    def run(self) -> None:
        """Read the tables, fit, write the predictions, and print a report."""
        if self.example is not None:
            self._write_example(self.example)
            return
        checks.at_least("seed", self.seed, 0)
        checks.positive("search_seconds", self.search_seconds)
        target = self.figure_path()
        self._check_out(target)
        check_device()
        tables = self._read()
        from gnnrp import plotting
        from gnnrp.estimator import tables as own_tables
        from gnnrp.studies import records

        result = own_tables.run(
            tables,
            search_seconds=self.search_seconds,
            metric=self.metric,
            holdout=self.holdout,
            seed=self.seed,
            verbose=not self.quiet,
            max_bytes=self.max_bytes(),
        )
        record = result.record | {"out": str(self.out), "command": records.command()}
        atomic_files.write(self.out, _csv(result))

        def text(record: dict[str, Any]) -> str:
            return f"{own_tables.report(record)}\nPredictions: {self.out}"

        self.show(record, text, target, lambda: plotting.own_graph(record))

    def _check_out(self, figure: Path | None) -> None:
        """Refuse a file of predictions that cannot be written, or that is another."""
        out, others = self.out.resolve(), {"figure": figure}
        names = (*_REQUIRED, "features", "graph")
        others |= {name: getattr(self, name) for name in names}
        for name, path in others.items():
            if path is not None and path.resolve() == out:
                msg = f"--out {self.out} is the file of the {name}; choose another file"
                raise ValueError(msg)
        reason = None
        if out.suffix != ".csv":
            reason = "its name must end in .csv"
        elif out.is_dir():
            reason = "it is a folder"
        elif not out.parent.is_dir():
            reason = "its folder does not exist"
        elif error := atomic_files.obstacle(out.parent):
            reason = f"its folder cannot be written ({error.strerror})"
        if reason:
            msg = f"the predictions cannot go to {str(self.out)!r}: {reason}; set --out"
            raise ValueError(msg)

    def _read(self) -> "GraphTables":
        if self.graph is None:
            return self._read_tables()
        from gnnrp.tables import graph_files

        fields = (field.name for field in dataclasses.fields(TableSettings))
        for name in (*_OF_TABLES, *fields):
            is_set = getattr(self, name) != getattr(Fit, name)
            if is_set and name != "directed":
                flag = _flag("no_header" if name == "header" else name)
                msg = (
                    f"{flag} does not apply to --graph, a file of arrays; leave it out"
                )
                raise ValueError(msg)
        if self.graph.suffix != ".npz":
            msg = (
                f"--graph must be a file of arrays (.npz), got {str(self.graph)!r}; "
                "pass other files as --edges and --labels"
            )
            raise ValueError(msg)
        settings = TableSettings(directed=self.directed)
        return graph_files.read(
            self.graph, settings=settings, max_bytes=self.max_bytes()
        )

    def _read_tables(self) -> "GraphTables":
        from gnnrp.tables import files, graph_tables

        paths = {name: getattr(self, name) for name in (*_REQUIRED, "features")}
        for name in _REQUIRED:
            if paths[name] is None:
                msg = (
                    f"--{name} is missing: pass the table of {name}, or write example "
                    "tables by --example FOLDER"
                )
                raise ValueError(msg)
            if paths[name].suffix == ".npz":
                msg = f"--{name} {paths[name]} is a file of arrays; pass it as --graph"
                raise ValueError(msg)
        try:
            tables = {
                name: files.read(
                    path,
                    "edges" if name == "edges" else "nodes",
                    header=self.header,
                    encoding=self.encoding,
                    max_bytes=self.max_bytes(),
                )
                for name, path in paths.items()
                if path is not None
            }
        except files.MissingPackageError as error:
            raise ValueError(str(error)) from error
        settings = TableSettings(**values(self, TableSettings))
        return graph_tables.make(
            **tables, settings=settings, max_bytes=self.max_bytes()
        )

    def _write_example(self, folder: Path) -> None:
        from gnnrp.tables import example

        atomic_files.try_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tables = example.make()
        paths = {name: folder / f"{name}.csv" for name in tables}
        for path in paths.values():
            if path.exists():
                msg = f"{path} exists; choose another folder for the example"
                raise ValueError(msg)
        for name, path in paths.items():
            atomic_files.write(path, _lines(tables[name]))
        flags = [f"--{name} {shlex.quote(str(path))}" for name, path in paths.items()]
        streams.show(f"gnnrp fit {' '.join(flags)}")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _csv(result: "Result") -> bytes:
    """Return the predictions as CSV, probabilities with four digits."""
    columns = [
        [f"{value:.4f}" for value in values] if values.dtype.kind == "f" else values
        for values in result.predictions.values()
    ]
    return _lines([tuple(result.predictions), *zip(*columns, strict=True)])


def _lines(rows: Iterable[Sequence[Any]]) -> bytes:
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue().encode()
