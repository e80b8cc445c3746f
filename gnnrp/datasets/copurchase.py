"""Amazon Computers, Photo and Coauthor CS, Physics: one npz file of CSR parts each."""

from pathlib import Path

import numpy as np
import scipy.sparse

from gnnrp.datasets import _validate, catalog, csr, npz, raw_files, splits
from gnnrp.datasets._validate import require
from gnnrp.datasets.dataset import Dataset

# Names are not read; those of the classes of two files are pickled.
PARTS = ("data", "indices", "indptr", "shape")
MEMBERS = {f"{m}_{part}": ("iu", 1) for m in ("adj", "attr") for part in PARTS}
MEMBERS |= {"adj_data": ("fiu", 1), "attr_data": ("fiu", 1), "labels": ("iu", 1)}
NUM_SPLITS = 10
FRACTIONS = (0.8, 0.1, 0.1)  # the paper's, App. E.2


def read(
    folder: Path,
    name: str,
    *,
    split_kind: str = "published",
    seed: int = 0,
    max_bytes: int | None = None,
) -> Dataset:
    """Read the npz file (Shchur et al. 2018), with the paper's split or ten others.

    Positive features become 1, as in PyG's reader, which the authors use; those of the
    Coauthor sets are stored as counts.
    """
    files = raw_files.stat_all(folder, catalog.files(name, "copurchase"), max_bytes)
    (file,) = files.values()
    with raw_files.format_errors(file.path, "co-purchase or co-author"):
        arrays = npz.read(file, MEMBERS)
        labels, num_classes = _validate.class_ids(arrays["labels"])
        num_nodes = len(labels)
        is_random = split_kind == "random"
        file.reserve(
            splits.num_bytes(num_nodes, NUM_SPLITS)
            if is_random
            else splits.published_num_bytes(num_nodes)
        )
        adjacency = _matrix(arrays, "adj", num_nodes)
        features = _matrix(arrays, "attr", file.size)
        shapes = adjacency.shape, features.shape
        valid = shapes[0] == (num_nodes, num_nodes) and shapes[1][0] == num_nodes
        require(valid, f"shapes {shapes[0]}, {shapes[1]} for {num_nodes} labels")
        file.reserve(features.nnz)  # a mask
        features.data[features.data > 0] = 1
        file.reserve(40 * adjacency.nnz)  # senders, pairs and edges
        senders = np.repeat(np.arange(num_nodes), np.diff(adjacency.indptr))
        pairs = np.stack([senders, adjacency.indices], axis=1)[adjacency.data != 0]
    return Dataset(
        name=name,
        edges=_validate.edges(pairs, num_nodes),
        num_nodes=num_nodes,
        features=features,
        labels=labels,
        num_classes=num_classes,
        splits=splits.random(labels, NUM_SPLITS, FRACTIONS, seed)
        if is_random
        else splits.published(num_nodes),
        metric="accuracy",
        edge_convention="both",
        files=raw_files.digests(files),
        folder=str(folder),
        split_kind=split_kind,
    )


def _matrix(
    arrays: dict[str, np.ndarray], name: str, max_columns: int
) -> scipy.sparse.csr_array:
    data, indices, indptr, shape = (arrays[f"{name}_{part}"] for part in PARTS)
    valid = shape.size == 2
    require(valid, f"member {name}_shape holds {shape.size} numbers, expected 2")
    rows, columns = shape.tolist()
    return csr.build(data, indices, indptr, (rows, columns), max_columns=max_columns)
