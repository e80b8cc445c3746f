"""The heterophilous benchmarks: one npz file each.

Source: Platonov et al. 2023; Texas, Cornell, Wisconsin: Pei et al. 2020.
"""

from pathlib import Path

from gnnrp.datasets import _validate, npz, raw_files
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


def read(folder: Path, name: str, *, max_bytes: int | None = None) -> Dataset:
    """Read ``NAME.npz`` with its ten public splits; each edge is stored once."""
    file = f"{name.replace('-', '_')}.npz"
    files = raw_files.stat_all(folder, [file], max_bytes)
    with raw_files.format_errors(folder / file, "heterophilous graph"):
        arrays = npz.read(files[file], MEMBERS)
        labels, num_classes = _validate.class_ids(arrays["node_labels"])
        features = _validate.features(arrays["node_features"])
        if len(features) != len(labels):
            msg = f"{len(features)} rows of features for {len(labels)} labels"
            raise ValueError(msg)
        if name in ROC_AUC and num_classes > 2:
            msg = f"{num_classes} classes, expected two"
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
        files=raw_files.digests(files),
        folder=str(folder),
    )
