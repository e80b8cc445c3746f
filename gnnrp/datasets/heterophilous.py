"""The heterophilous benchmarks: one npz file each.

Source: Platonov et al. 2023; Texas, Cornell, Wisconsin: Pei et al. 2020.
"""

from pathlib import Path

from gnnrp.datasets import _validate, catalog, npz, raw_files
from gnnrp.datasets._validate import require
from gnnrp.datasets.dataset import Dataset
from gnnrp.types import Split

ROC_AUC = ("minesweeper", "tolokers", "questions")
MEMBERS = {
    "node_features": ("fiu", 2),
    "node_labels": ("iu", 1),
    "edges": ("iu", 2),
    **{f"{part}_masks": ("b", 2) for part in Split._fields},
}


def read(folder: Path, name: str, *, max_bytes: int | None = None) -> Dataset:
    """Read ``NAME.npz`` with its ten public splits; each edge is stored once."""
    files = raw_files.stat_all(folder, catalog.files(name, "heterophilous"), max_bytes)
    (file,) = files.values()
    with raw_files.format_errors(file.path, "heterophilous graph"):
        arrays = npz.read(file, MEMBERS)
        labels, num_classes = _validate.class_ids(arrays["node_labels"])
        features = _validate.features(arrays["node_features"])
        num_rows, num_nodes = len(features), len(labels)
        valid = num_rows == num_nodes
        require(valid, f"{num_rows} rows of features for {num_nodes} labels")
        valid = name not in ROC_AUC or num_classes <= 2
        require(valid, f"{num_classes} classes, expected two")
        edges = _validate.edges(arrays["edges"], num_nodes)
        split = Split(*(arrays[f"{part}_masks"] for part in Split._fields))
        _validate.masks(split, labels)
    return Dataset(
        name=name,
        edges=edges,
        num_nodes=num_nodes,
        features=features,
        labels=labels,
        num_classes=num_classes,
        splits=split,
        metric="roc_auc" if name in ROC_AUC else "accuracy",
        edge_convention="once",
        files=raw_files.digests(files),
        folder=str(folder),
    )
