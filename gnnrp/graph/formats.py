"""Graphs of other libraries, masks and node ids as arrays.

Objects are recognized by their attributes, so that no library has to be installed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from jaxtyping import Bool, Int

from gnnrp.graph import class_labels, edge_lists
from gnnrp.runtime import checks


class Given(NamedTuple):
    """A graph and the arrays that came with it; None where there are none."""

    edges: Any  # as ``graph.raw_adjacency`` takes them
    num_nodes: int | None = None
    weights: Any = None
    features: Any = None
    labels: Any = None
    train_mask: Any = None
    val_mask: Any = None
    duplicates: str | None = None
    signed: bool = False


def read(graph: Any, weights: Any = None) -> Given:
    """Return the edges of a graph and the arrays that it carries.

    Args:
        graph: what ``graph.raw_adjacency`` takes, with the ``nodes`` of a
            ``GraphsTuple`` as features; PyG's ``Data``, with x, y, edge_weight,
            train_mask and val_mask; OGB's dict, with node_feat; or OGB's pair of that
            and the labels.
        weights: of the edges, instead of those that the graph carries. If left out, a
            warning says if there is one number an edge under another name.

    Raises:
        ValueError: an object without its edges.
        TypeError: a ``Dataset`` of this package, or a graph of several node types.
    """
    if isinstance(graph, Given):
        return graph
    if hasattr(graph, "edges") and hasattr(graph, "splits"):
        msg = "pass the edges of the data set, data.edges, and its labels beside them"
        raise TypeError(msg)
    if hasattr(graph, "node_types") and hasattr(graph, "edge_types"):
        msg = (
            f"the graph must have one type of nodes, got {type(graph).__name__}; its "
            "to_homogeneous() makes one"
        )
        raise TypeError(msg)
    if isinstance(graph, Mapping):
        keys = ("edge_index", "num_nodes", "node_feat")
        edges, total, features = (graph.get(key) for key in keys)
        found = Given(edges, total, features=features)
        others = {"edge_feat": graph.get("edge_feat")}
    elif hasattr(graph, "edge_index"):
        names = ("edge_index", "num_nodes", "edge_weight", "x", "y")
        masks = ("train_mask", "val_mask")
        parts: Any = [getattr(graph, name, None) for name in (*names, *masks)]
        found = Given(*parts)
        others = {key: getattr(graph, key, None) for key in ("edge_attr", "weight")}
    elif hasattr(graph, "senders") and hasattr(graph, "receivers"):
        features = graph.nodes if np.ndim(graph.nodes) == 2 else None
        return Given(graph, int(np.sum(graph.n_node)), features=features)
    elif scipy.sparse.issparse(graph):
        return Given(graph, graph.shape[0])
    elif hasattr(graph, "adj") and hasattr(graph, "is_directed"):
        return Given(graph, len(graph))
    elif isinstance(graph, tuple) and len(graph) == 2 and isinstance(graph[0], Mapping):
        return read(graph[0], weights)._replace(labels=graph[1])
    else:
        checks.plain("the graph", graph)
        return Given(checks.as_array(graph) if hasattr(graph, "detach") else graph)
    if found.edges is None:
        msg = f"the {type(graph).__name__} has no edge_index; pass the edges, (2, e)"
        raise ValueError(msg)
    checks.plain("edge_index", found.edges)
    index = checks.as_array(found.edges)
    if weights is None and found.weights is None:
        for name, values in others.items():
            remedy = "pass it as weights= to use it"
            if edge_lists.warn_of_unused(name, values, index.shape[-1], remedy):
                break
    return found._replace(edges=index)


def completed(given: Given, **passed: Any) -> Given:
    """Return the graph with the arguments that are not None."""
    return given._replace(**{k: v for k, v in passed.items() if v is not None})


def num_nodes(given: Given, num_labels: int) -> int:
    """Return n: the graph's own, or, of edges alone, the number of labels.

    Raises:
        ValueError: not a label for each node, or an edge of a node that is not there.
    """
    if given.num_nodes is not None and num_labels != given.num_nodes:
        msg = (
            f"there must be a label for each of {given.num_nodes} nodes, "
            f"got {num_labels}; give -1 or None to nodes without one"
        )
        raise ValueError(msg)
    most = largest(given.edges)
    if most >= num_labels:
        there = (
            f"there are {num_labels} labels; give every node one, -1 or None where it "
            "is not known"
            if given.num_nodes is None
            else f"the graph has {num_labels} nodes; correct its number of nodes or "
            "its edges"
        )
        msg = f"the edges name node {most}, but {there}"
        raise ValueError(msg)
    return num_labels


def largest(edges: Any) -> int:
    """Return the largest node id of an edge index; -1 if it is not an edge index."""
    if hasattr(edges, "senders") and hasattr(edges, "receivers"):
        edges = [edges.senders, edges.receivers]
    try:
        index = checks.as_array(edges)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return -1  # rows of different lengths and unknown objects are refused later
    whole = index.ndim == 2 and len(index) == 2 and index.dtype.kind in "iu"
    return int(index.max()) if whole and index.size else -1


def indices(name: str, nodes: Any, num_nodes: int) -> Int[np.ndarray, " q"]:
    """Return the node ids of a boolean mask, or the ids themselves, checked.

    Args:
        name: for the sentence of an error.
        nodes: a mask (n,), or ids in any order; None: all.
        num_nodes: n.

    Raises:
        ValueError: a shape or an id that does not fit; a mask of zeros and ones; masked
            entries.
        TypeError: neither boolean nor whole.
    """
    if nodes is None:
        return np.arange(num_nodes)
    checks.plain(name, nodes)
    array = checks.as_array(nodes)
    if array.size == 0 and array.shape == (0,):
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
        msg = f"{name} is a mask of {array.dtype}; make it boolean: .astype(bool)"
        raise ValueError(msg)
    return checks.node_ids(name, array, num_nodes)


def mask(name: str, nodes: Any, num_nodes: int) -> Bool[np.ndarray, " n"]:
    """Return the mask of the nodes; see ``indices``, which also says what it raises."""
    result = np.zeros(num_nodes, bool)
    result[indices(name, nodes, num_nodes)] = True
    return result


def scored(
    nodes: Any,
    labels: Any,
    own: Int[np.ndarray, " n"],
    *,
    classes: np.ndarray,
    used: Bool[np.ndarray, " n"],
) -> tuple[Int[np.ndarray, " q"], Int[np.ndarray, " q"]]:
    """Return the nodes to score on, and the codes of their labels.

    Args:
        nodes: a mask (n,), or ids; None: all with a label but those used.
        labels: of all nodes, or, where nodes are ids, of these; None: ``own``.
        own: codes that the fit was given.
        classes: told apart.
        used: in the fit.

    Raises:
        ValueError: no node, or one without a label; another number of labels.
    """
    index = indices("nodes", nodes, len(own))
    found = own[index]
    if labels is not None:
        found = class_labels.codes(labels, classes)[1]
        of_ids = nodes is not None and checks.as_array(nodes).dtype.kind != "b"
        expected = len(index) if of_ids else len(own)
        if len(found) != expected:
            hint = "; pass labels[nodes]" if of_ids else ""
            msg = f"there must be {expected} labels, got {len(found)}{hint}"
            raise ValueError(msg)
        found = found if of_ids else found[index]
        theirs = class_labels.codes(labels)[0]
        if theirs.size and class_labels.is_text(theirs) != class_labels.is_text(
            classes
        ):
            here, there = theirs.tolist()[0], classes.tolist()[0]
            msg = f"labels such as {here!r} are of no class of the fit, as {there!r} is"
            raise ValueError(msg)
    if nodes is None:
        left = (found >= 0) & ~used
        index, found = index[left], found[left]
    if len(index) == 0:
        msg = "there is no labeled node to score on; pass nodes, and their labels"
        raise ValueError(msg)
    if (found < 0).any():
        node = int(index[np.argmax(found < 0)])
        msg = f"node {node} has no label to score by; pass nodes that have one"
        raise ValueError(msg)
    return index, found
