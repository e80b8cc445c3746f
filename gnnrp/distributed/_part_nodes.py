"""Checks of the nodes in one part of a graph: ids, targets and masks."""

import numpy as np
import numpy.typing as npt
from jaxtyping import Int

from gnnrp.types import Split

PRIME = (1 << 31) - 1  # products of two residues fit int64


def check(known: dict[str, np.ndarray], num_nodes: int, metric: str) -> None:
    """Refuse node ids, masks and targets that no data set has.

    Args:
        known: "nodes" (-1: a blank row), "targets" and the masks of a part.
        num_nodes: of the whole graph.
        metric: of the data set.

    Raises:
        ValueError: one is found.
    """
    nodes, masks = known["nodes"], {name: known[name] for name in Split._fields}
    outside = (nodes < -1) | (nodes >= num_nodes)
    if outside.any():
        msg = f"node {nodes[_first(outside)]} is none of {num_nodes} nodes"
        raise ValueError(msg)
    ids, counts = np.unique(nodes[nodes >= 0], return_counts=True)
    if (counts > 1).any():
        msg = f"node {ids[_first(counts > 1)]} is in it twice"
        raise ValueError(msg)
    for name, mask in masks.items():
        if (bytes_of := mask.view(np.uint8)).size and bytes_of.max() > 1:
            msg = f"the {name} mask has a byte of {bytes_of.max()}, not 0 or 1"
            raise ValueError(msg)
        if (blank := mask.any(axis=0) & (nodes < 0)).any():
            msg = f"row {_first(blank)} is in the {name} mask but has no node"
            raise ValueError(msg)
    for name in ("val", "test"):
        both = np.any(masks["train"] & masks[name], axis=0)
        if both.any():
            msg = f"node {nodes[_first(both)]} is in both the train and the {name} mask"
            raise ValueError(msg)
    _check_targets(known["targets"], nodes, masks, metric)


def _check_targets(
    targets: np.ndarray, nodes: np.ndarray, masks: dict[str, np.ndarray], metric: str
) -> None:
    """Refuse targets other than 0, 1 and, of the ROC-AUC, NaN where unknown.

    Raises:
        ValueError: there is one.
    """
    unknown = np.isnan(targets) if metric == "roc_auc" else np.zeros_like(targets, bool)
    wrong = ~((targets == 0) | (targets == 1) | unknown)
    if wrong.any():
        row, column = (int(x) for x in np.argwhere(wrong)[0])
        also = " or nan" if metric == "roc_auc" else ""
        msg = (
            f"targets[{row}, {column}] must be 0 or 1{also}, got {targets[row, column]}"
        )
        raise ValueError(msg)
    if metric == "roc_auc":
        return
    classes = targets.sum(axis=1)
    known = masks["train"].any(axis=0) | masks["val"].any(axis=0)
    known |= masks["test"].any(axis=0)
    wrong = (classes > 1) | (known & (classes != 1)) | ((nodes < 0) & (classes > 0))
    if wrong.any():
        at = _first(wrong)
        msg = f"row {at} of targets has {classes[at]:g} classes, for node {nodes[at]}"
        raise ValueError(msg)


def sums(nodes: Int[np.ndarray, " r"]) -> list[int]:
    """Return sums of the ids, their squares and their cubes, modulo a prime.

    Up to three ids that are wrong, anywhere, change one of them.
    """
    ids = nodes[nodes >= 0] % PRIME
    found = []
    power = np.ones_like(ids)
    for _ in range(3):
        power = power * ids % PRIME
        found.append(int(power.sum()) % PRIME)
    return found


def all_sums(num_nodes: int) -> list[int]:
    """Return ``sums`` of all nodes, from closed forms."""
    n, half = num_nodes, num_nodes * (num_nodes - 1) // 2
    return [x % PRIME for x in (half, half * (2 * n - 1) // 3, half**2)]


def _first(flags: npt.ArrayLike) -> int:
    return int(np.argmax(flags))
