"""Roman-empire as two CSV files, without features and the public splits."""

from pathlib import Path

from gnnrp.datasets import _validate, catalog, raw_files, splits, text_tables
from gnnrp.datasets.dataset import Dataset

NUM_SPLITS = 10
FRACTIONS = (0.5, 0.25, 0.25)  # of the public splits


def read(
    folder: Path, name: str, *, seed: int = 0, max_bytes: int | None = None
) -> Dataset:
    """Read ``edges.csv`` and ``labels.csv``, and draw ten 50/25/25 splits."""
    files = raw_files.stat_all(folder, catalog.files(name, "csv_tables"), max_bytes)
    edge_file, label_file = files.values()
    with raw_files.format_errors(label_file.path, "label"):
        column = text_tables.table(label_file, 1, header=b"label")[:, 0]
        labels, num_classes = _validate.class_ids(column)
        label_file.reserve(splits.num_bytes(len(labels), NUM_SPLITS))
    with raw_files.format_errors(edge_file.path, "edge"):
        pairs = text_tables.table(edge_file, 2, header=b"source,target", copies=1)
        edges = _validate.edges(pairs, len(labels))
        del pairs
    return Dataset(
        name=name,
        edges=edges,
        num_nodes=len(labels),
        features=None,
        labels=labels,
        num_classes=num_classes,
        splits=splits.random(labels, NUM_SPLITS, FRACTIONS, seed),
        metric="accuracy",
        edge_convention="once",
        files=raw_files.digests(files),
        folder=str(folder),
        split_kind="random",
    )
