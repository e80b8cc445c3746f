"""Texas, Cornell, Wisconsin as published with Geom-GCN: text, and a file per split.

The paper's 325 edges of Texas are lines of this format. Source: Pei et al. 2020.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Bool

from gnnrp.datasets import _validate, npz, raw_files, text_tables
from gnnrp.datasets._validate import require
from gnnrp.datasets.dataset import Dataset
from gnnrp.types import Split

EDGES = "out1_graph_edges.txt"
NODES = "out1_node_feature_label.txt"
NUM_SPLITS = 10


def split_file(name: str, i: int) -> str:
    """Return the name of the file of split i."""
    return f"{name}_split_0.6_0.2_{i}.npz"


def read(folder: Path, name: str, *, max_bytes: int | None = None) -> Dataset:
    """Read directed edges, binary features, labels and the ten public splits."""
    split_files = [split_file(name, i) for i in range(NUM_SPLITS)]
    files = raw_files.stat_all(folder, [EDGES, NODES, *split_files], max_bytes)
    with raw_files.format_errors(folder / NODES, "Geom-GCN node"):
        # node id, TAB, features with commas between, TAB, label
        table = text_tables.table(files[NODES], separators=b"\t,", header=b"", copies=1)
        table = table[np.argsort(table[:, 0])]
        if not np.array_equal(table[:, 0], np.arange(len(table))):
            msg = f"the node ids are not 0 to {len(table) - 1}, each once"
            raise ValueError(msg)
        labels, num_classes = _validate.class_ids(table[:, -1])
        features = _validate.features(table[:, 1:-1])
    with raw_files.format_errors(folder / EDGES, "Geom-GCN edge"):
        pairs = text_tables.table(
            files[EDGES], 2, separators=b"\t", header=b"", copies=1
        )
        edges = _validate.edges(pairs, len(labels))
        require(edges.shape[1] > 0, "it lists no edge")
    parts = []
    for file in split_files:
        with raw_files.format_errors(folder / file, "Geom-GCN split"):
            parts.append(_validate.masks(_split(files[file]), labels))
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
