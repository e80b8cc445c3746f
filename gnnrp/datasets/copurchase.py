"""Amazon Computers, Photo and Coauthor CS, Physics: one npz of CSR parts each."""

from pathlib import Path

import numpy as np
import scipy.sparse

from gnnrp.datasets import _validate, csr, raw_files, splits
from gnnrp.datasets.dataset import Dataset

FILES = {
    "computers": "amazon_electronics_computers.npz",
    "photo": "amazon_electronics_photo.npz",
    "cs": "ms_academic_cs.npz",
    "physics": "ms_academic_phy.npz",
}
# The names are left alone; those of the classes of two files are pickled.
MEMBERS = {
    f"{matrix}_{part}": (kinds, 1)
    for matrix in ("adj", "attr")
    for part, kinds in (
        ("data", "fiu"),
        ("indices", "iu"),
        ("indptr", "iu"),
        ("shape", "iu"),
    )
} | {"labels": ("iu", 1)}
NUM_SPLITS = 10
FRACTIONS = (0.8, 0.1, 0.1)  # the paper's, App. E.2; no split is published


def read(
    folder: Path, name: str, *, seed: int = 0, max_bytes: int | None = None
) -> Dataset:
    """Read the npz and draw ten 80/10/10 splits.

    The adjacency is stored without symmetry for the two Amazon sets.

    Args:
        folder: where the file is.
        name: computers, photo, cs or physics.
        seed: of the splits.
        max_bytes: limit of all that this process holds; see ``runtime.memory``.

    Raises:
        ValueError: the file is damaged or too large.

    Source: Shchur et al. 2018.
    """
    file = FILES[name]
    content = raw_files.contents(folder, [file], max_bytes)
    with raw_files.reading(folder / file, "co-purchase or co-author"):
        arrays = raw_files.members(content[file], MEMBERS)
        labels, num_classes = _validate.class_ids(arrays["labels"])
        num_nodes = len(labels)
        content[file].reserve(splits.num_bytes(num_nodes, NUM_SPLITS))
        adjacency = _matrix(arrays, "adj", num_nodes)
        features = _matrix(arrays, "attr", content[file].size)
        if adjacency.shape != (num_nodes, num_nodes) or len(features.indptr) != (
            num_nodes + 1
        ):
            msg = f"shapes {adjacency.shape}, {features.shape} for {num_nodes} labels"
            raise ValueError(msg)
        content[file].reserve(40 * adjacency.nnz)  # senders, pairs and edges
        senders = np.repeat(np.arange(num_nodes), np.diff(adjacency.indptr))
        pairs = np.stack([senders, adjacency.indices], axis=1)[adjacency.data != 0]
    return Dataset(
        name=name,
        edges=_validate.edges(pairs, num_nodes),
        num_nodes=num_nodes,
        features=features,
        labels=labels,
        num_classes=num_classes,
        splits=splits.random(labels, NUM_SPLITS, FRACTIONS, seed),
        metric="accuracy",
        edge_convention="both",
        files=raw_files.digests(content),
        folder=str(folder),
    )


def _matrix(
    arrays: dict[str, np.ndarray], name: str, max_columns: int
) -> scipy.sparse.csr_array:
    shape = arrays[f"{name}_shape"].tolist()
    if len(shape) != 2:
        msg = f"member {name}_shape holds {len(shape)} numbers, expected 2"
        raise ValueError(msg)
    return csr.checked(
        arrays[f"{name}_data"],
        arrays[f"{name}_indices"],
        arrays[f"{name}_indptr"],
        (shape[0], shape[1]),
        max_columns=max_columns,
    )
