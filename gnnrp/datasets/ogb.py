"""Arxiv, Proteins, Products in OGB's raw layout: gzipped lines, no torch, no pickle.

OGB's folder ``processed`` is ignored; ogb itself reads it under torch 2.6 or newer with
TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1. Source: Hu et al. 2020.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from gnnrp.datasets import _validate, catalog, raw_files, splits, text_tables
from gnnrp.datasets._validate import require
from gnnrp.datasets.dataset import Dataset
from gnnrp.datasets.raw_files import File

FEATURES = "raw/node-feat.csv.gz"
EDGE_FEATURES = "raw/edge-feat.csv.gz"


def read(folder: Path, name: str, *, max_bytes: int | None = None) -> Dataset:
    """Read graph, labels, public split, and features if there are files of them."""
    feature_file = EDGE_FEATURES if name == "proteins" else FEATURES
    optional = [feature_file] if (folder / feature_file).exists() else []
    names = [*catalog.files(name, "ogb"), *optional]
    files = raw_files.stat_all(folder, names, max_bytes)
    edge_file, label_file, *count_files = list(files.values())[:4]
    num_nodes, num_edges = map(_count, count_files)
    with raw_files.format_errors(label_file.path, "OGB label"):
        labels, num_classes = _labels(label_file, name, num_nodes)
        _check_count("labels", len(labels), num_nodes)
    with raw_files.format_errors(edge_file.path, "OGB edge"):
        pairs = text_tables.table(edge_file, 2, max_rows=num_edges, copies=1)
        edges = _validate.edges(pairs, num_nodes)
        del pairs
        _check_count("edges", edges.shape[1], num_edges)
    features = None
    if feature_file in files:
        with raw_files.format_errors(folder / feature_file, "OGB feature"):
            if name == "proteins":
                features = _features(files[feature_file], num_edges)
                features = _mean_of_edges(features, edges, num_nodes)
            else:
                features = _features(files[feature_file], num_nodes)
    index = [_nodes(files[part], num_nodes) for part in names[4:7]]
    with raw_files.format_errors(folder / "split", "OGB split"):
        split = _validate.masks(splits.public(num_nodes, *index), labels)
    return Dataset(
        name=name,
        edges=edges,
        num_nodes=num_nodes,
        features=features,
        labels=labels,
        num_classes=num_classes,
        splits=split,
        metric="roc_auc" if name == "proteins" else "accuracy",
        edge_convention="lines" if name == "arxiv" else "once",
        files=raw_files.digests(files),
        folder=str(folder),
    )


def _count(file: File) -> int:
    with raw_files.format_errors(file.path, "OGB count"):
        # One graph: a line with one number.
        (count,) = text_tables.table(file, 1, max_rows=1).ravel().tolist()
    return count


def _nodes(file: File, num_nodes: int) -> Int[np.ndarray, " m"]:
    with raw_files.format_errors(file.path, "OGB split"):
        nodes = text_tables.table(file, 1, max_rows=num_nodes, copies=1)[:, 0]
        require(nodes.size, "it lists no node")  # as in an empty gzip file
    return nodes


def _labels(
    file: File, name: str, num_nodes: int
) -> tuple[Int[np.ndarray, " n"] | Float[np.ndarray, "n q"], int]:
    if name != "proteins":
        column = text_tables.table(file, 1, max_rows=num_nodes)[:, 0]
        return _validate.class_ids(column)
    tasks = text_tables.table(file, floats=True, max_rows=num_nodes, copies=1)
    binary = (np.isin(tasks, (0, 1)) | np.isnan(tasks)).all()
    require(binary, "a label of a binary task is neither 0, 1 nor nan")
    return tasks, 2


def _features(file: File, num_rows: int) -> Float[np.ndarray, "rows d"]:
    table = text_tables.table(file, floats=True, max_rows=num_rows, copies=1)
    features = _validate.features(table)
    _check_count("rows", len(features), num_rows)
    return features


def _mean_of_edges(
    features: Float[np.ndarray, "e d"], edges: Int[np.ndarray, "2 e"], num_nodes: int
) -> Float[np.ndarray, "n d"]:
    """Return the mean over the edges at each node, in both directions; 0 without."""
    ends = edges.ravel()
    degrees = np.maximum(np.bincount(ends, minlength=num_nodes), 1)
    columns = []
    for column in features.T:
        at_ends = np.tile(column.astype(np.float64), 2)
        columns.append(np.bincount(ends, at_ends, num_nodes) / degrees)
    return np.stack(columns, axis=1).astype(np.float32)


def _check_count(kind: str, count: int, stated: int) -> None:
    require(count == stated, f"it holds {count} {kind}, but {stated} are stated")
