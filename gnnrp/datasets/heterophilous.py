"""The heterophilous benchmarks: one npz each; Roman-empire also as CSV."""

from pathlib import Path

from gnnrp.datasets import _validate, raw_files, splits, text_tables
from gnnrp.datasets.dataset import Dataset
from gnnrp.types import Split

ROC_AUC = ("minesweeper", "tolokers", "questions")
MEMBERS = {
    "node_features": ("fiu", 2),
    "node_labels": ("iu", 1),
    "edges": ("iu", 2),
    "train_masks": ("b", 2),
    "val_masks": ("b", 2),
    "test_masks": ("b", 2),
}
NUM_SPLITS = 10
FRACTIONS = (0.5, 0.25, 0.25)  # of the public splits


def read(folder: Path, name: str, *, max_bytes: int | None = None) -> Dataset:
    """Read ``NAME.npz`` with its ten public splits; each edge is stored once.

    Args:
        folder: where the file is.
        name: of the dataset; the file's has an underscore for a hyphen.
        max_bytes: limit of all that this process holds; see ``runtime.memory``.

    Raises:
        ValueError: the file is damaged or too large.

    Source: Platonov et al. 2023; Texas, Cornell, Wisconsin: Pei et al. 2020.
    """
    file = f"{name.replace('-', '_')}.npz"
    content = raw_files.contents(folder, [file], max_bytes)
    with raw_files.reading(folder / file, "heterophilous graph"):
        arrays = raw_files.members(content[file], MEMBERS)
        labels, num_classes = _validate.class_ids(arrays["node_labels"])
        features = _validate.features(arrays["node_features"])
        if len(features) != len(labels):
            msg = f"{len(features)} rows of features for {len(labels)} labels"
            raise ValueError(msg)
        if name in ROC_AUC and num_classes > 2:
            msg = f"{num_classes} classes where two are expected"
            raise ValueError(msg)
        edges = _validate.edges(arrays["edges"], len(labels))
        split = Split(*(arrays[f"{part}_masks"] for part in Split._fields))
        _validate.masks(split, labels)
    return Dataset(
        name=name,
        edges=edges,
        num_nodes=len(labels),
        features=features,
        labels=labels,
        num_classes=num_classes,
        splits=split,
        metric="roc_auc" if name in ROC_AUC else "accuracy",
        edge_convention="once",
        files=raw_files.digests(content),
        folder=str(folder),
    )


def read_csv(
    folder: Path, name: str, *, seed: int = 0, max_bytes: int | None = None
) -> Dataset:
    """Read ``edges.csv`` and ``labels.csv``: no features, no public splits.

    Ten 50/25/25 splits are drawn instead, so results are no reproduction of published
    ones.

    Args:
        folder: where the files are.
        name: of the dataset they belong to; they do not say it.
        seed: of the splits.
        max_bytes: limit of all that this process holds; see ``runtime.memory``.

    Raises:
        ValueError: a file is damaged or too large.
    """
    content = raw_files.contents(folder, ["edges.csv", "labels.csv"], max_bytes)
    edge_file, label_file = content.values()
    with raw_files.reading(folder / "labels.csv", "label"):
        found = text_tables.table(label_file, 1, header=b"label")[:, 0]
        labels, num_classes = _validate.class_ids(found)
        label_file.reserve(splits.num_bytes(len(labels), NUM_SPLITS))
    with raw_files.reading(folder / "edges.csv", "edge"):
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
        files=raw_files.digests(content),
        folder=str(folder),
    )
