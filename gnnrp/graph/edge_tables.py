"""Edges as rows of a table, and node ids of any type as positions.

Tables are recognized by their attributes, so that pandas does not have to be installed.
"""

from typing import Any

import numpy as np
from jaxtyping import Int

from gnnrp.runtime import checks

WEIGHT = "weight"  # name of the column


def is_table(edges: Any) -> bool:
    """Return whether edges are a table of pandas, or another one with columns.

    A frame made of an array (2, e), with columns 0 to e - 1, is an edge index.
    """
    if not (hasattr(edges, "columns") and hasattr(edges, "to_numpy")):
        return False
    names = list(edges.columns)
    is_numbered = len(names) != 2 and names == list(range(len(names)))
    return not (is_numbered and len(edges) == 2)


def columns(table: Any) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Return the two columns of node ids, senders first, and the weights or None."""
    names = list(table.columns)
    ends = [name for name in names if name != WEIGHT]
    if len(set(ends)) != 2 or len(names) != len(set(names)):
        msg = (
            "a table of edges must have two columns of node ids and optionally "
            f"'weight', got the columns {checks.format_value(names)}"
        )
        raise ValueError(msg)
    senders, receivers = (checks.as_array(table[name]) for name in ends)
    weights = checks.as_array(table[WEIGHT]) if WEIGHT in names else None
    return [senders, receivers], weights


def as_index(ends: Any) -> Int[np.ndarray, "2 e"]:
    """Return the edge index of columns of positions.

    Raises:
        TypeError: columns of other types than integers.
    """
    if any(column.dtype.kind not in "iu" for column in ends if len(column)):
        msg = (
            "a table of edges must hold positions, whole numbers from 0, got "
            f"{ends[0].dtype} and {ends[1].dtype}; the fit of an estimator takes other "
            "ids as node_ids"
        )
        raise TypeError(msg)
    return np.stack([column.astype(np.int64) for column in ends])


def rows(edges: Any) -> np.ndarray:
    """Return an edge index of node ids of any type, (2, e)."""
    checks.no_masked_entries("edges", edges)
    is_list = isinstance(edges, list | tuple)  # NumPy would convert all to strings
    index = np.array(edges, object) if is_list else checks.try_as_array(edges)
    if index.ndim != 2 or len(index) != 2:
        msg = (
            "node_ids need edges as a table with two columns or as an array (2, e), "
            f"got {checks.format_value(edges)}; leave node_ids out for other graphs"
        )
        raise ValueError(msg)
    return index


def positions(ends: Any, node_ids: Any) -> Int[np.ndarray, "2 e"]:
    """Return the edge index of senders and receivers in the order of the node ids.

    Raises:
        ValueError: node ids that are not a list or not distinct, or an end of an edge
            that is not among them.
    """
    position = _position(node_ids)
    index = np.array(
        [[position.get(node, -1) for node in column.tolist()] for column in ends],
        np.int64,
    )
    if (index < 0).any():
        end, edge = np.argwhere(index < 0)[0]
        node = checks.format_value(ends[end].tolist()[edge])
        msg = (
            f"edge {edge} has the node id {node}, which is not in node_ids; add the "
            "node or remove the edge"
        )
        raise ValueError(msg)
    return index


def id_list(node_ids: Any) -> list[Any]:
    """Return node ids as a list of Python objects.

    Raises:
        ValueError: masked entries, or another shape than (n,).
    """
    checks.no_masked_entries("node_ids", node_ids)
    is_list = isinstance(node_ids, list | tuple)
    ids = list(node_ids) if is_list else checks.as_array(node_ids).tolist()
    if not isinstance(ids, list) or any(isinstance(each, list) for each in ids):
        msg = (
            "node_ids must have shape (n,), one for each row of the labels, got "
            f"{checks.format_value(node_ids)}"
        )
        raise ValueError(msg)
    return ids


def _position(node_ids: Any) -> dict[Any, int]:
    """Return the position of each node id."""
    position = {}
    for place, node in enumerate(id_list(node_ids)):
        if position.setdefault(node, place) != place:
            msg = (
                f"node_ids must be distinct, got {node!r} in rows {position[node]} and "
                f"{place}"
            )
            raise ValueError(msg)
    return position
