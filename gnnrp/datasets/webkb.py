"""Graphs published with Geom-GCN: text, and a file per split.

Texas, Cornell, Wisconsin, Chameleon and Squirrel list all binary features of a node,
Actor the places of the ones. The paper's 325 edges of Texas are lines of this format.

Source: Pei et al. 2020.
"""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from jaxtyping import Bool, Int

from gnnrp.datasets import _validate, catalog, npz, raw_files, text_tables
from gnnrp.datasets._validate import require
from gnnrp.datasets.dataset import Dataset
from gnnrp.types import Split

ACTOR_FEATURES = 932


def read(folder: Path, name: str, *, max_bytes: int | None = None) -> Dataset:
    """Read directed edges, binary features, labels and the ten public splits."""
    parse_fn = _sparse_nodes if name == "actor" else _dense_nodes
    files = raw_files.stat_all(folder, catalog.files(name, "webkb"), max_bytes)
    edge_file, node_file, *split_files = files.values()
    with raw_files.format_errors(node_file.path, "Geom-GCN node"):
        features, labels, num_classes = parse_fn(node_file)
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


def _dense_nodes(file: raw_files.File) -> tuple[Any, Int[np.ndarray, " n"], int]:
    """Read lines of node id, TAB, features with commas between, TAB, label."""
    table = text_tables.table(file, separators=b"\t,", header=b"", copies=1)
    table = table[_order(table[:, 0])]
    labels, num_classes = _validate.class_ids(table[:, -1])
    return _validate.features(table[:, 1:-1]), labels, num_classes


def _sparse_nodes(file: raw_files.File) -> tuple[Any, Int[np.ndarray, " n"], int]:
    """Read lines of node id, TAB, places of the ones, TAB, label."""
    rows = text_tables.ragged_lines(file, separators=b"\t,", header=b"")
    require(min(map(len, rows)) > 2, "a line has no feature")
    rows = [rows[i] for i in _order(np.array([row[0] for row in rows]))]
    labels, num_classes = _validate.class_ids(np.array([row[-1] for row in rows]))
    places = np.concatenate([row[1:-1] for row in rows])
    valid = 0 <= places.min() <= places.max() < ACTOR_FEATURES
    require(valid, f"a feature is not one of 0 to {ACTOR_FEATURES - 1}")
    lengths = [len(row) - 2 for row in rows]
    features = np.zeros((len(rows), ACTOR_FEATURES), np.float32)
    features[np.repeat(np.arange(len(rows)), lengths), places] = 1
    return scipy.sparse.csr_array(features), labels, num_classes


def _order(ids: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Return the order of the node ids, which must be 0 to n - 1."""
    order = np.argsort(ids)
    valid = np.array_equal(ids[order], np.arange(len(ids)))
    require(valid, f"the node ids are not 0 to {len(ids) - 1}, each once")
    return order


def _split(file: raw_files.File) -> Split:
    arrays = npz.read(file, {f"{part}_mask": ("bu", 1) for part in Split._fields})
    return Split(*(_mask(arrays[f"{part}_mask"]) for part in Split._fields))


def _mask(values: np.ndarray) -> Bool[np.ndarray, "1 n"]:
    require(np.isin(values, (0, 1)).all(), "a mask holds other numbers than 0 and 1")
    return values.astype(bool)[None]
