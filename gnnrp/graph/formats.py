"""Graphs of other libraries: edges, and the arrays that a graph holds.

Objects are recognized by their attributes, so that no library has to be installed;
``to_jraph`` alone imports one. Padding nodes of ``jraph.pad_with_graphs`` are isolated
nodes, labeled -1 or removed by ``jraph.unpad_with_graphs``.
"""

import sys
import warnings
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse

from gnnrp.graph import edge_lists, edge_tables
from gnnrp.graph.edge_lists import EdgeList
from gnnrp.runtime import checks
from gnnrp.sparse import to_scipy

if TYPE_CHECKING:
    import jraph


class GraphData(NamedTuple):
    """A graph and its arrays; None for arrays that it does not have."""

    edges: Any  # accepted by ``graph.raw_adjacency``
    num_nodes: int | None = None
    weights: Any = None
    features: Any = None
    labels: Any = None
    train_mask: Any = None
    val_mask: Any = None
    duplicates: str | None = None
    signed: bool = False
    node_ids: list[Any] | None = None  # of the rows; None: positions


def read(graph: Any, weights: Any = None, node_ids: Any = None) -> GraphData:
    """Return edges and arrays of PyG's ``Data``, OGB's dict or any other graph.

    Raises:
        TypeError: a graph of another type, or a table of other ids than positions
            without ``node_ids`` (n,), the id of each row of the labels.
    """
    if edge_tables.is_table(graph) or node_ids is not None:
        return _from_ids(graph, node_ids)
    if isinstance(graph, GraphData):
        return graph
    if hasattr(graph, "edges") and hasattr(graph, "splits"):
        msg = "the graph must not be a Dataset; pass data.edges and data.labels instead"
        raise TypeError(msg)
    if hasattr(graph, "node_types") and hasattr(graph, "edge_types"):
        msg = (
            f"the graph must have one type of nodes, got {type(graph).__name__}; "
            "convert it with its to_homogeneous()"
        )
        raise TypeError(msg)
    if isinstance(graph, Mapping) or hasattr(graph, "edge_index"):
        return _from_fields(graph, weights)
    if _is_jraph(graph):
        features = graph.nodes if np.ndim(graph.nodes) == 2 else None
        return GraphData(graph, int(np.sum(graph.n_node)), features=features)
    if scipy.sparse.issparse(graph):
        return GraphData(graph, graph.shape[0])
    if _is_networkx(graph):
        return GraphData(graph, len(graph))
    if isinstance(graph, tuple) and len(graph) == 2 and isinstance(graph[0], Mapping):
        return _from_fields(graph[0], weights)._replace(labels=graph[1])
    checks.no_masked_entries("the graph", graph)
    return GraphData(checks.as_array(graph) if hasattr(graph, "detach") else graph)


def _from_ids(graph: Any, node_ids: Any) -> GraphData:
    """Return the edges of a table, or between nodes of these ids."""
    if edge_tables.is_table(graph):
        ends, weights = edge_tables.columns(graph)
    else:
        ends, weights = edge_tables.rows(graph), None
    if node_ids is not None:
        index = edge_tables.positions(ends, node_ids)
        ids = edge_tables.id_list(node_ids)
        return GraphData(index, len(ids), weights, node_ids=ids)
    return GraphData(edge_tables.as_index(ends), weights=weights)


def _from_fields(graph: Any, weights: Any) -> GraphData:
    """Return the fields of OGB's dict or of PyG's ``Data``."""
    if isinstance(graph, Mapping):
        fields = ("edge_index", "num_nodes", "node_feat")
        edges, num_nodes, features = map(graph.get, fields)
        data = GraphData(edges, num_nodes, features=features)
        unused = {"edge_feat": graph.get("edge_feat")}
    else:
        fields = ("edge_index", "num_nodes", "edge_weight", "x", "y")
        masks = ("train_mask", "val_mask")
        arrays: Any = [getattr(graph, name, None) for name in (*fields, *masks)]
        data = GraphData(*arrays)
        names = ("edge_attr", "weight", "edge_weights")
        unused = {name: getattr(graph, name, None) for name in names}
    if data.edges is None:
        msg = f"the {type(graph).__name__} has no edge_index; pass the edges, (2, e)"
        raise ValueError(msg)
    checks.no_masked_entries("edge_index", data.edges)
    index = checks.as_array(data.edges)
    if weights is None and data.weights is None:
        _warn_unused(unused, index.shape[-1], "pass it as weights= to use it")
    return data._replace(edges=index)


def replace_arrays(data: GraphData, **arrays: Any) -> GraphData:
    """Return the graph with the arguments that are not None."""
    given = {name: array for name, array in arrays.items() if array is not None}
    return data._replace(**given)


def edge_list(edges: Any, num_nodes: int | None, weights: Any) -> EdgeList:
    """Return edges of any accepted type as one list."""
    if num_nodes is not None:  # too many are refused later, with a remedy
        num_nodes = checks.count("num_nodes", num_nodes, 0, sys.maxsize)
    if scipy.sparse.issparse(edges):
        return _from_scipy(edges, num_nodes, weights)
    if edge_tables.is_table(edges):
        ends, own = edge_tables.columns(edges)
        index = edge_tables.as_index(ends)
        return _from_index(index, num_nodes, own if weights is None else weights)
    if _is_jraph(edges):
        return _from_jraph(edges, num_nodes, weights)
    if _is_networkx(edges):
        return _from_networkx(edges, num_nodes, weights)
    return _from_index(edges, num_nodes, weights)


def max_node_id(edges: Any) -> int:
    """Return the largest node id of an edge index; -1 if it is not an edge index."""
    ends = [edges.senders, edges.receivers] if _is_jraph(edges) else edges
    index = checks.try_as_array(ends)
    valid = index.ndim == 2 and len(index) == 2 and index.dtype.kind in "iu"
    return int(index.max()) if valid and index.size else -1


def _is_jraph(graph: Any) -> bool:
    return hasattr(graph, "senders") and hasattr(graph, "receivers")


def _is_networkx(graph: Any) -> bool:
    return hasattr(graph, "adj") and hasattr(graph, "is_directed")


def _warn_unused(arrays: Mapping[str, Any], num_edges: int, remedy: str) -> None:
    """Warn of the first array that holds weights: numbers of shape (e,) or (e, 1)."""
    for name, values in arrays.items():
        if values is None or np.shape(values) not in {(num_edges,), (num_edges, 1)}:
            continue
        array = checks.as_array(values)
        if array.dtype.kind in "iufV" and not (array == 1).all():
            msg = f"{name} has a number per edge that is not used as a weight; {remedy}"
            warnings.warn(msg, UserWarning, stacklevel=5)  # of the public function
            return


def _from_index(edges: Any, num_nodes: int | None, weights: Any) -> EdgeList:
    if isinstance(edges, (list, tuple)) and edges and isinstance(edges[0], tuple):
        msg = (
            "edges must be an array of shape (2, e), senders first, got a list of "
            "pairs; pass np.array(edges).T"
        )
        raise TypeError(msg)
    checks.no_masked_entries("edges", edges)
    index = checks.try_as_array(edges)  # objects: rows of other lengths, or no array
    if index.dtype == object or (index.ndim == 0 and not hasattr(edges, "shape")):
        msg = (
            "edges must be an edge index of shape (2, e), a scipy sparse matrix, a "
            f"networkx graph or a jraph.GraphsTuple, got {type(edges).__name__}"
        )
        raise TypeError(msg)
    if index.size == 0:
        index = np.zeros((2, 0), np.int64)
    if index.ndim != 2 or index.shape[0] != 2:
        hint = "; pass edges.T" if index.ndim == 2 and index.shape[1] == 2 else ""
        msg = f"edges must have shape (2, e), senders first, got {index.shape}{hint}"
        raise ValueError(msg)
    if not np.issubdtype(index.dtype, np.integer):
        msg = f"edges must hold integer node ids, got {index.dtype}"
        raise TypeError(msg)
    index = index.astype(np.int64)  # of unsigned ones too, which the next line needs
    if num_nodes is None:
        num_nodes = int(index.max(initial=-1)) + 1
    values, tolerance = None, 0.0
    if weights is not None:
        values = checks.reals("weights", weights)
        tolerance = edge_lists.relative_rounding(values.dtype)
        values = values.astype(np.float64)
        values = values[:, 0] if values.shape == (index.shape[1], 1) else values
    return EdgeList(index[1], index[0], values, num_nodes, tolerance=tolerance)


def _from_scipy(matrix: Any, num_nodes: int | None, weights: Any) -> EdgeList:
    if matrix.shape != 2 * matrix.shape[:1] or num_nodes not in {None, matrix.shape[0]}:
        msg = f"the sparse matrix must be n x n, got {matrix.shape} for n = {num_nodes}"
        raise ValueError(msg)
    if weights is not None:
        msg = "a sparse matrix has its own weights; leave weights out"
        raise ValueError(msg)
    checks.reals("the sparse matrix", matrix.dtype.type())
    # Before row pointers of all nodes are allocated.
    checks.int32_indexable(matrix.shape[0], matrix.nnz)
    coo = to_scipy(matrix).tocoo()
    coo.eliminate_zeros()
    values = None if np.all(coo.data == 1) else coo.data
    index = np.stack([coo.col, coo.row]).astype(np.int64)
    return _from_index(index, coo.shape[0], values)


def _from_jraph(graph: Any, num_nodes: int | None, weights: Any) -> EdgeList:
    checks.no_masked_entries("senders", graph.senders)
    checks.no_masked_entries("receivers", graph.receivers)
    total, num_edges = int(np.sum(graph.n_node)), len(graph.senders)
    if int(np.sum(graph.n_edge)) != num_edges:
        msg = (
            f"n_edge of the GraphsTuple must sum to its {num_edges} senders, got "
            f"{np.sum(graph.n_edge)}; pad graphs with jraph.pad_with_graphs"
        )
        raise ValueError(msg)
    if isinstance(weights, str):
        checks.one_of("weights", weights, ("edges",))
        weights = graph.edges
    elif weights is None:
        unused = {"GraphsTuple.edges": graph.edges}
        _warn_unused(unused, num_edges, 'pass weights="edges" to use it')
    index = np.stack([checks.as_array(x) for x in (graph.senders, graph.receivers)])
    return _from_index(index, total if num_nodes is None else num_nodes, weights)


def _from_networkx(graph: Any, num_nodes: int | None, weights: Any) -> EdgeList:
    position = {node: i for i, node in enumerate(graph.nodes)}
    if num_nodes not in {None, len(position)}:
        msg = f"the graph has {len(position)} nodes, got num_nodes = {num_nodes}"
        raise ValueError(msg)
    if weights is not None and not isinstance(weights, str):
        msg = "weights of a networkx graph must be the name of an edge attribute"
        raise TypeError(msg)
    name = weights or "weight"
    triples, values = list(graph.edges(data=name)), None
    if any(value is not None for *_, value in triples):
        # An edge without the attribute weighs 1, as in networkx itself.
        filled = [1.0 if value is None else value for *_, value in triples]
        values = checks.reals(f"the edge attribute {name!r}", filled)
    elif triples:
        attributes = [data for *_, data in graph.edges(data=True)]
        own = sorted({str(key) for data in attributes for key in data})
        if weights is not None:
            msg = (
                f"weights must name an edge attribute, got {weights!r}; the edges have "
                f"{', '.join(own) or 'none'}"
            )
            raise ValueError(msg)
        columns = {key: [data.get(key) for data in attributes] for key in own}
        unused = {
            f"the edge attribute {key!r}": column
            for key, column in columns.items()
            if all(isinstance(value, Real) for value in column)
        }
        _warn_unused(unused, len(triples), "pass its name as weights= to use it")
    index = np.array([(position[u], position[v]) for u, v, _ in triples], np.int64)
    edges = _from_index(index.reshape(-1, 2).T, len(position), values)
    return edges._replace(undirected=not graph.is_directed())


def to_jraph(adjacency: Any, nodes: Any = None) -> "jraph.GraphsTuple":
    """Return an adjacency, BCOO or scipy, as one graph; edge values are its entries.

    Args:
        adjacency: A_ij, unless it is zero, becomes an edge from sender j to receiver i.
        nodes: node features, (n, d).

    Raises:
        ValueError: another number of rows of features.
        TypeError: an adjacency that is not sparse.
    """
    import jraph

    csr = to_scipy(adjacency)
    csr.eliminate_zeros()
    coo = csr.tocoo()
    if nodes is not None:
        checks.rows("nodes", nodes, coo.shape[0])
    return jraph.GraphsTuple(
        nodes=nodes,
        edges=jnp.asarray(coo.data),
        receivers=jnp.asarray(coo.row, dtype=jnp.int32),
        senders=jnp.asarray(coo.col, dtype=jnp.int32),
        n_node=jnp.array([coo.shape[0]]),
        n_edge=jnp.array([coo.nnz]),
        globals=None,
    )
