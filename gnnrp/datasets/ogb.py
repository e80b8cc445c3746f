"""Arxiv, Proteins, Products in OGB's raw layout: gzipped lines, no torch, no pickle.

OGB's folder ``processed`` is ignored. Source: Hu et al. 2020.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from gnnrp.datasets import _validate, raw_files, splits, text_tables
from gnnrp.datasets._validate import require
from gnnrp.datasets.dataset import Dataset
from gnnrp.datasets.raw_files import File

SPLITS = {"arxiv": "time", "proteins": "species", "products": "sales_ranking"}
FEATURES = "raw/node-feat.csv.gz"
EDGE_FEATURES = "raw/edge-feat.csv.gz"


def required_files(name: str) -> tuple[str, ...]:
    """Return the files without which the dataset cannot be read."""
    raw = ("edge", "node-label", "num-node-list", "num-edge-list")
    parts = ("train", "valid", "test")
    return (
        *(f"raw/{file}.csv.gz" for file in raw),
        *(f"split/{SPLITS[name]}/{part}.csv.gz" for part in parts),
    )


def read(folder: Path, name: str, *, max_bytes: int | None = None) -> Dataset:
    """Read graph, labels, public split, and features if there are files of them."""
    feature_file = EDGE_FEATURES if name == "proteins" else FEATURES
    names = [*required_files(name)]
    names += [feature_file] if (folder / feature_file).exists() else []
    files = raw_files.stat_all(folder, names, max_bytes)
    edge_file, label_file, *count_files = names[:4]
    counts = []
    for file in count_files:
        with raw_files.format_errors(folder / file, "OGB count"):
            # One graph: a line with one number.
            (count,) = text_tables.table(files[file], 1, max_rows=1).ravel().tolist()
            counts.append(count)
    with raw_files.format_errors(folder / label_file, "OGB label"):
        labels, num_classes = _labels(files[label_file], name, counts[0])
        _check_count("labels", len(labels), counts[0])
    with raw_files.format_errors(folder / edge_file, "OGB edge"):
        pairs = text_tables.table(files[edge_file], 2, max_rows=counts[1], copies=1)
        edges = _validate.edges(pairs, len(labels))
        del pairs
        _check_count("edges", edges.shape[1], counts[1])
    features = None
    if feature_file in files:
        with raw_files.format_errors(folder / feature_file, "OGB feature"):
            num_rows = counts[feature_file == EDGE_FEATURES]
            features = _features(files[feature_file], num_rows)
            if feature_file == EDGE_FEATURES:
                features = _mean_of_edges(features, edges, counts[0])
    index = []
    for file in names[4:7]:
        with raw_files.format_errors(folder / file, "OGB split"):
            nodes = text_tables.table(files[file], 1, max_rows=len(labels), copies=1)
            index.append(nodes[:, 0])
            if not nodes.size:  # an empty gzip file unpacks without an error
                msg = "it lists no node"
                raise ValueError(msg)
    with raw_files.format_errors(folder / "split", "OGB split"):
        split = _validate.masks(splits.public(len(labels), *index), labels)
    return Dataset(
        name=name,
        edges=edges,
        num_nodes=len(labels),
        features=features,
        labels=labels,
        num_classes=num_classes,
        splits=split,
        metric="roc_auc" if name == "proteins" else "accuracy",
        edge_convention="lines" if name == "arxiv" else "once",
        files=raw_files.digests(files),
        folder=str(folder),
    )


def _labels(
    file: File, name: str, num_nodes: int
) -> tuple[Int[np.ndarray, " n"] | Float[np.ndarray, "n q"], int]:
    if name != "proteins":
        column = text_tables.table(file, 1, max_rows=num_nodes)[:, 0]
        return _validate.class_ids(column)
    tasks = text_tables.table(file, floats=True, max_rows=num_nodes, copies=1)
    if not (np.isin(tasks, (0, 1)) | np.isnan(tasks)).all():
        msg = "a label of a binary task is neither 0, 1 nor nan"
        raise ValueError(msg)
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
