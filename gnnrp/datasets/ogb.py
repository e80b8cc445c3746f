"""Arxiv, Proteins, Products in OGB's raw layout: gzipped lines, no torch, no pickle."""

from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from gnnrp.datasets import _validate, raw_files, splits, text_tables
from gnnrp.datasets.dataset import Dataset
from gnnrp.datasets.raw_files import File

SPLITS = {"arxiv": "time", "proteins": "species", "products": "sales_ranking"}
FEATURES = "raw/node-feat.csv.gz"
EDGE_FEATURES = "raw/edge-feat.csv.gz"


def required(name: str) -> tuple[str, ...]:
    """Return the files that must be there."""
    raw = ("edge", "node-label", "num-node-list", "num-edge-list")
    parts = ("train", "valid", "test")
    return (
        *(f"raw/{file}.csv.gz" for file in raw),
        *(f"split/{SPLITS[name]}/{part}.csv.gz" for part in parts),
    )


def read(folder: Path, name: str, *, max_bytes: int | None = None) -> Dataset:
    """Read graph, labels, public split, and features where the files hold some.

    What OGB leaves in ``processed`` is not looked at. Its own second load, under torch
    2.6 or newer, needs TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 in the environment, or
    ``processed/data_processed`` removed.

    Args:
        folder: what OGB calls the dataset's folder, with ``raw`` and ``split`` in it.
        name: arxiv (directed citations), proteins (112 binary tasks; each node has the
            mean of its edges' features) or products.
        max_bytes: limit of all that this process holds; see ``runtime.memory``.

    Raises:
        ValueError: a file is damaged, too large, or does not fit the others.

    Source: Hu et al. 2020.
    """
    stored = EDGE_FEATURES if name == "proteins" else FEATURES
    names = [*required(name), *([stored] if (folder / stored).exists() else [])]
    content = raw_files.contents(folder, names, max_bytes)
    edge_file, label_file, *count_files = names[:4]
    counts = []
    for file in count_files:
        with raw_files.reading(folder / file, "OGB count"):
            # Of one graph: a line with one number.
            (found,) = text_tables.table(content[file], 1, max_rows=1).ravel().tolist()
            counts.append(found)
    with raw_files.reading(folder / label_file, "OGB label"):
        labels, num_classes = _labels(content[label_file], name, counts[0])
        _expect("labels", len(labels), counts[0])
    with raw_files.reading(folder / edge_file, "OGB edge"):
        pairs = text_tables.table(content[edge_file], 2, max_rows=counts[1], copies=1)
        edges = _validate.edges(pairs, len(labels))
        del pairs
        _expect("edges", edges.shape[1], counts[1])
    features = None
    if stored in content:
        with raw_files.reading(folder / stored, "OGB feature"):
            features = _features(content[stored], stored, edges, counts)
    index = []
    for file in names[4:7]:
        with raw_files.reading(folder / file, "OGB split"):
            found = text_tables.table(content[file], 1, max_rows=len(labels), copies=1)
            index.append(found[:, 0])
            if not index[-1].size:  # an empty gzip file unpacks without complaint
                msg = "it lists no node"
                raise ValueError(msg)
    with raw_files.reading(folder / "split", "OGB split"):
        split = splits.public(len(labels), *index)
        _validate.masks(split, labels)
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
        files=raw_files.digests(content),
        folder=str(folder),
    )


def _labels(
    content: File, name: str, num_nodes: int
) -> tuple[Int[np.ndarray, " n"] | Float[np.ndarray, "n q"], int]:
    if name != "proteins":
        return _validate.class_ids(
            text_tables.table(content, 1, max_rows=num_nodes)[:, 0]
        )
    tasks = text_tables.table(content, floats=True, max_rows=num_nodes, copies=1)
    if not (np.isin(tasks, (0, 1)) | np.isnan(tasks)).all():
        msg = "a label of a binary task is neither 0, 1 nor nan"
        raise ValueError(msg)
    return tasks, 2


def _features(
    content: File, file: str, edges: Int[np.ndarray, "2 e"], counts: list[int]
) -> Float[np.ndarray, "n d"]:
    num_rows = counts[file == EDGE_FEATURES]
    found = text_tables.table(content, floats=True, max_rows=num_rows, copies=1)
    found = _validate.features(found)
    _expect("rows", len(found), num_rows)
    return _mean_of_edges(found, edges, counts[0]) if file == EDGE_FEATURES else found


def _mean_of_edges(
    features: Float[np.ndarray, "e d"], edges: Int[np.ndarray, "2 e"], num_nodes: int
) -> Float[np.ndarray, "n d"]:
    """Return the mean over the edges at each node, whose ends count alike; else 0."""
    ends = edges.ravel()
    degrees = np.maximum(np.bincount(ends, minlength=num_nodes), 1)
    columns = []
    for column in features.T:
        at_ends = np.tile(column.astype(np.float64), 2)
        columns.append(np.bincount(ends, at_ends, num_nodes) / degrees)
    return np.stack(columns, axis=1).astype(np.float32)


def _expect(what: str, found: int, stated: int) -> None:
    if stated != found:
        msg = f"it holds {found} {what}, but {stated} are stated"
        raise ValueError(msg)
