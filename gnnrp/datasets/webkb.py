"""Texas, Cornell, Wisconsin as published with Geom-GCN: text, and a file per split.

The paper's 325 edges of Texas are lines of this format. Source: Pei et al. 2020.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Bool

from gnnrp.datasets import _validate, catalog, npz, raw_files, text_tables
from gnnrp.datasets._validate import require
from gnnrp.datasets.dataset import Dataset
from gnnrp.types import Split


def read(folder: Path, name: str, *, max_bytes: int | None = None) -> Dataset:
    """Read directed edges, binary features, labels and the ten public splits."""
    files = raw_files.stat_all(folder, catalog.files(name, "webkb"), max_bytes)
    edge_file, node_file, *split_files = files.values()
    with raw_files.format_errors(node_file.path, "Geom-GCN node"):
        # node id, TAB, features with commas between, TAB, label
        table = text_tables.table(node_file, separators=b"\t,", header=b"", copies=1)
        table = table[np.argsort(table[:, 0])]
        valid = np.array_equal(table[:, 0], np.arange(len(table)))
        require(valid, f"the node ids are not 0 to {len(table) - 1}, each once")
        labels, num_classes = _validate.class_ids(table[:, -1])
        features = _validate.features(table[:, 1:-1])
    with raw_files.format_errors(edge_file.path, "Geom-GCN edge"):
        pairs = text_tables.table(edge_file, 2, separators=b"\t", header=b"", copies=1)
        edges = _validate.edges(pairs, len(labels))
        require(edges.shape[1] > 0, "it lists no edge")
    parts = []
    for file in split_files:
        with raw_files.format_errors(file.path, "Geom-GCN split"):
            parts.append(_validate.masks(_split(file), labels))
    return Dataset(
        name=name,
        edges=edges,
        num_nodes=len(labels),
        features=features,
        labels=labels,
        num_classes=num_classes,
        splits=Split(*(np.concatenate(masks) for masks in zip(*parts, strict=True))),
        metric="accuracy",
        edge_convention="lines",
        files=raw_files.digests(files),
        folder=str(folder),
    )


def _split(file: raw_files.File) -> Split:
    arrays = npz.read(file, {f"{part}_mask": ("bu", 1) for part in Split._fields})
    return Split(*(_mask(arrays[f"{part}_mask"]) for part in Split._fields))


def _mask(values: np.ndarray) -> Bool[np.ndarray, "1 n"]:
    require(np.isin(values, (0, 1)).all(), "a mask holds other numbers than 0 and 1")
    return values.astype(bool)[None]
