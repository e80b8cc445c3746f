"""Lists of edges: checks, duplicates and missing directions."""

import math
from typing import NamedTuple

import numpy as np

from gnnrp.runtime import checks

COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}

_MAX_ROUNDINGS = 4  # between the weights of the two directions of an edge


class EdgeList(NamedTuple):
    """W[receivers, senders] = weights, or 1 if ``weights`` is None."""

    receivers: np.ndarray
    senders: np.ndarray
    weights: np.ndarray | None
    num_nodes: int
    undirected: bool = False  # each edge is listed once and has both directions
    tolerance: float = 0.0  # relative difference of weights that is rounding


def relative_rounding(dtype: np.dtype) -> float:
    """Return the relative difference of two weights that rounding explains.

    Half precision counts as single: a few of its steps are several percent.
    """
    if dtype.kind in "biu":
        return 0.0
    double = dtype.kind == "f" and dtype.itemsize >= 8
    return _MAX_ROUNDINGS * float(np.finfo(np.float64 if double else np.float32).eps)


def check(edges: EdgeList, *, signed: bool) -> None:
    """Refuse node ids and weights that make no adjacency."""
    num_nodes, weights = edges.num_nodes, edges.weights
    checks.at_least("num_nodes", num_nodes, 0)
    checks.int32_indexable(num_nodes, len(edges.senders))
    for ids in (edges.senders, edges.receivers):
        outside = (ids < 0) | (ids >= num_nodes)
        if outside.any():
            i = int(np.argmax(outside))
            larger = "pass a larger num_nodes, or " if ids[i] > 0 else ""
            msg = (
                f"edge {i} has node id {ids[i]}, but there are {num_nodes} nodes, 0 to "
                f"{num_nodes - 1}; {larger}use ids that start at 0"
            )
            raise ValueError(msg)
    if weights is None:
        return
    checks.shape("weights", weights, (len(edges.senders),))
    invalid = ~np.isfinite(weights) | ((weights < 0) & (not signed))
    if invalid.any():
        i = int(np.argmax(invalid))
        hint = "; pass signed=True" if math.isfinite(weights[i]) else ""
        msg = (
            f"weights must be finite and not negative, got {weights[i]} for edge {i} "
            f"({edges.senders[i]} -> {edges.receivers[i]}){hint}"
        )
        raise ValueError(msg)
    with np.errstate(over="ignore"):
        total = float(np.sum(np.abs(weights)))
    if not math.isfinite(4 * total):  # both directions, added to a self-loop
        msg = (
            "the sum of the weights must be finite, got a weight of "
            f"{float(np.max(np.abs(weights))):.4g}; scale the weights down"
        )
        raise ValueError(msg)


def unique(
    edges: EdgeList, *, directed: bool, duplicates: str | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return row, column and weight of each distinct edge.

    Unless ``directed``, an edge and its reverse are one edge, returned once with
    row <= column.
    """
    low, high = edges.receivers, edges.senders
    if not directed:
        low, high = np.minimum(low, high), np.maximum(low, high)
    # One int64 key per edge; ids are below 2^31, so it cannot overflow.
    keys = low * edges.num_nodes + high
    if edges.weights is None:
        # Sorting and comparing is 40 times faster than np.unique on large graphs.
        keys = np.sort(keys)
        keys = keys[np.diff(keys, prepend=-1) > 0]
        weights = np.ones(len(keys))
    else:
        keys, weights = _combine(keys, edges, edges.receivers == low, duplicates)
        keys, weights = keys[weights != 0], weights[weights != 0]  # a sum may cancel
    return *np.divmod(keys, edges.num_nodes), weights


def _combine(
    keys: np.ndarray, edges: EdgeList, forward: np.ndarray, duplicates: str | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct keys and one weight for each."""
    weights: np.ndarray = np.asarray(edges.weights)
    order = np.argsort(keys, kind="stable")
    keys, weights, forward = keys[order], weights[order], forward[order]
    distinct, starts = np.unique(keys, return_index=True)
    if len(distinct) == len(keys):
        return distinct, weights
    if duplicates is not None:
        return distinct, COMBINE[duplicates].reduceat(weights, starts)
    num_forward = np.add.reduceat(forward.astype(np.int64), starts)
    counts = np.diff(np.r_[starts, len(keys)])
    low = np.minimum.reduceat(weights, starts)
    high = np.maximum.reduceat(weights, starts)
    # Two directions may differ by rounding: 0.3 and 0.1 + 0.2.
    equal = high - low <= edges.tolerance * np.maximum(abs(low), abs(high))
    ambiguous = (num_forward > 1) | (counts - num_forward > 1) | ~equal
    if ambiguous.any():
        k = int(np.argmax(ambiguous))
        i, j = divmod(int(distinct[k]), edges.num_nodes)
        msg = (
            f"the edge between {i} and {j} is stored {counts[k]} times, with weights "
            f"from {low[k]} to {high[k]}; choose how to combine them: "
            'duplicates="sum", "max" or "min"'
        )
        raise ValueError(msg)
    return distinct, np.where(low == high, low, low / 2 + high / 2)
