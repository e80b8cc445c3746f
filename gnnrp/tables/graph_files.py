"""A graph from an npz file of arrays, in the form of one from tables."""

from pathlib import Path

import numpy as np

from gnnrp.datasets import own_graphs
from gnnrp.tables.feature_columns import Features
from gnnrp.tables.graph_tables import GraphTables, drop_edges
from gnnrp.tables.settings import TableSettings

DEFAULTS = TableSettings()


def read(
    path: Path, *, settings: TableSettings = DEFAULTS, max_bytes: int | None = None
) -> GraphTables:
    """Read a graph from an npz file, see ``datasets.own_graphs.read_graph``.

    Features stay as they are. Masks are ignored.

    Args:
        path: of the file.
        settings: rules for edges.
        max_bytes: memory limit; that of the machine by default.

    Raises:
        ValueError: a damaged file, arrays that do not match, no edge between two nodes,
            or labels of a single class.
        TypeError: arrays of another type.
        OSError: a file that cannot be read.
    """
    graph = own_graphs.read_graph(Path(path), max_bytes=max_bytes)
    pairs, _, dropped = drop_edges(graph.edges, directed=settings.directed)
    if not pairs.shape[1]:
        msg = (
            f"{path} has no edge between two nodes, got {graph.edges.shape[1]} "
            "self-loops; add edges"
        )
        raise ValueError(msg)
    known = np.unique(graph.labels[graph.labels >= 0])
    if len(known) < 2:
        msg = f"all labels of {path} are {known[0]}; label nodes of another class"
        raise ValueError(msg)
    codes = np.where(graph.labels < 0, -1, np.searchsorted(known, graph.labels))
    features = None
    if graph.features is not None:
        names = tuple(str(column) for column in range(graph.features.shape[1]))
        features = Features(graph.features, names, 0, ())
    classes = known.astype(str).astype(object)
    return GraphTables(
        ids=graph.node_ids,
        edges=pairs,
        weights=None,
        codes=codes,
        classes=classes,
        features=features,
        dropped=dropped,
        settings=settings,
    )
