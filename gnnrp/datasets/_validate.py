"""Checks of all readers; a wrong id would otherwise look like a fault of the model."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int, Num

from gnnrp.datasets import splits
from gnnrp.types import Split

CHUNK = 1 << 20  # values checked at once


def require(condition: Any, message: str) -> None:
    """Refuse a file."""
    if not condition:
        raise ValueError(message)


def edges(
    pairs: Num[np.ndarray, "e columns"], num_nodes: int
) -> Int[np.ndarray, "2 e"]:
    """Return lines of (sender, receiver) as int64 (2, e)."""
    require(pairs.shape[1:] == (2,), f"edges have shape {pairs.shape}, expected (e, 2)")
    pairs = pairs.astype(np.int64, copy=False)
    if pairs.size and not 0 <= pairs.min() <= pairs.max() < num_nodes:
        outside = ((pairs < 0) | (pairs >= num_nodes)).any(axis=1)
        first = int(np.flatnonzero(outside)[0])
        msg = f"edge {tuple(pairs[first].tolist())} leaves the {num_nodes} nodes"
        raise ValueError(msg)
    return np.ascontiguousarray(pairs.T)


def class_ids(labels: Num[np.ndarray, " n"]) -> tuple[Int[np.ndarray, " n"], int]:
    """Return labels as int64 and the number of classes, the largest id plus one."""
    labels = labels.astype(np.int64, copy=False)
    # More classes than nodes are a damaged file, and one-hot targets would be huge.
    valid = labels.size and 0 <= labels.min() <= labels.max() < labels.size
    require(valid, f"the labels are not {labels.size} class ids below that number")
    return labels, int(labels.max()) + 1


def features(values: Num[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return values as float32."""
    require(values.shape[1:] != (0,), "the features have no column")
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.ascontiguousarray(values, np.float32)
    flat = values.reshape(-1)
    chunks = (flat[i : i + CHUNK] for i in range(0, flat.size, CHUNK))
    finite = all(np.isfinite(chunk).all() for chunk in chunks)
    require(finite, "a feature is not finite")
    return values


def masks(
    split: Split, labels: Int[np.ndarray, " n"] | Float[np.ndarray, "n q"]
) -> Split:
    """Check splits, and return them unchanged."""
    labeled = splits.labeled_mask(labels)
    shapes, expected = [m.shape for m in split], (len(split.train), len(labels))
    valid = all(shape == expected for shape in shapes)
    require(valid, f"masks of shape {shapes} for {len(labels)} nodes")
    require(len(split.train), "no split")
    for number, train in enumerate(split.train):
        require(train.any(), f"split {number} has no training node")
    for train, val, test in zip(*split, strict=True):  # one at a time, to save memory
        repeated = (train & val) | (train & test) | (val & test)
        node = np.argmax(repeated)
        require(not repeated[node], f"node {node} is in two parts of a split")
        unlabeled = (train | val | test) & ~labeled
        node = np.argmax(unlabeled)
        require(not unlabeled[node], f"node {node} is in a split but has no label")
    return split
