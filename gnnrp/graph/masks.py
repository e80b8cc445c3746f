"""Node masks, node ids and numbers of nodes, checked against a graph."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from gnnrp.graph import class_labels, formats
from gnnrp.graph.formats import GraphData
from gnnrp.runtime import checks


def num_nodes(data: GraphData, num_labels: int) -> int:
    """Return n, the number of labels."""
    if data.num_nodes is not None and num_labels != data.num_nodes:
        msg = (
            f"there must be a label for each of {data.num_nodes} nodes, "
            f"got {num_labels}; use -1 or None for nodes without a label"
        )
        raise ValueError(msg)
    largest = formats.max_node_id(data.edges)
    if largest >= num_labels:
        fix = (
            f"there are {num_labels} labels; pass one per node, -1 or None if unknown"
            if data.num_nodes is None
            else f"the graph has {num_labels} nodes; correct its num_nodes or its edges"
        )
        msg = f"the edges have node id {largest}, but {fix}"
        raise ValueError(msg)
    return num_labels


def indices(name: str, nodes: Any, num_nodes: int) -> Int[np.ndarray, " q"]:
    """Return node ids from a boolean mask or from node ids."""
    if nodes is None:
        return np.arange(num_nodes)
    checks.no_masked_entries(name, nodes)
    array = checks.as_array(nodes)
    if array.shape == (0,):
        array = array.astype(int)
    if array.dtype.kind not in "biu":
        got = checks.content(array) if array.ndim else array.dtype
        msg = f"{name} must be a boolean mask or node ids, got {got}"
        hint = "; use .astype(bool) for a mask" if array.shape == (num_nodes,) else ""
        if array.dtype.kind == "U":
            hint = "; ids are numbers from 0, in the order of the graph's nodes"
        raise TypeError(msg + hint)
    is_mask = array.dtype.kind == "b"
    if array.ndim != 1 or (is_mask and len(array) != num_nodes):
        msg = f"{name} must have shape ({num_nodes},), got {array.shape}"
        one = "[0]" if array.shape[1:] == (num_nodes,) else "[:, 0]"
        hint = f"; pass one split, such as {name}{one}" if array.ndim == 2 else ""
        raise ValueError(msg + hint)
    if is_mask:
        return np.flatnonzero(array)
    if len(array) == num_nodes > 2 and np.isin(array, (0, 1)).all():
        msg = f"{name} must be a boolean mask, got {array.dtype}; use .astype(bool)"
        raise ValueError(msg)
    return checks.node_ids(name, array, num_nodes)


def mask(name: str, nodes: Any, num_nodes: int) -> Bool[np.ndarray, " n"]:
    """Return the mask of the nodes from a boolean mask or from node ids."""
    result = np.zeros(num_nodes, bool)
    result[indices(name, nodes, num_nodes)] = True
    return result


def labeled_mask(
    nodes: Any,
    labels: Any,
    codes: Int[np.ndarray, " n"],
    *,
    classes: np.ndarray,
    used: Bool[np.ndarray, " n"],
) -> tuple[Int[np.ndarray, " q"], Int[np.ndarray, " q"]]:
    """Return the labeled nodes to score, by default unused ones, and their codes."""
    index = indices("nodes", nodes, len(codes))
    result = codes[index]
    if labels is not None:
        result = class_labels.encode(labels, classes)[1]
        by_id = nodes is not None and checks.as_array(nodes).dtype.kind != "b"
        expected = len(index) if by_id else len(codes)
        if len(result) != expected:
            hint = "; pass labels[nodes]" if by_id else ""
            msg = f"there must be {expected} labels, got {len(result)}{hint}"
            raise ValueError(msg)
        result = result if by_id else result[index]
        own = class_labels.encode(labels)[0].tolist()
        if own and isinstance(own[0], str) != isinstance(classes.tolist()[0], str):
            msg = (
                "labels must be of the type of the classes of the fit, such as "
                f"{classes.tolist()[0]!r}, got {own[0]!r}"
            )
            raise ValueError(msg)
    if nodes is None:
        left = (result >= 0) & ~used
        index, result = index[left], result[left]
    if len(index) == 0:
        msg = "there is no labeled node to score; pass nodes and their labels"
        raise ValueError(msg)
    if (result < 0).any():
        node = int(index[np.argmax(result < 0)])
        msg = f"node {node} has no label to score; pass labeled nodes"
        raise ValueError(msg)
    return index, result
