"""Graphs of any library to a cleaned, normalized adjacency, and back to jraph.

jraph is the exchange format: graphs are read from a ``jraph.GraphsTuple`` and written
to one by ``to_jraph``. Edge indices, scipy matrices and the graphs of networkx, PyG and
OGB are read as well; of these libraries, only scipy has to be installed.
"""

from gnnrp.graph.adjacency import (
    DROP_MODES,
    NORMALIZATIONS,
    EdgesLike,
    drop_edges,
    normalize,
    normalized_adjacency,
    peak_bytes,
    raw_adjacency,
    to_bcoo,
)
from gnnrp.graph.formats import to_jraph

__all__ = [
    "DROP_MODES",
    "NORMALIZATIONS",
    "EdgesLike",
    "drop_edges",
    "normalize",
    "normalized_adjacency",
    "peak_bytes",
    "raw_adjacency",
    "to_bcoo",
    "to_jraph",
]
