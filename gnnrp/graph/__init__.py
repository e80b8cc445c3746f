"""Graphs of scipy, networkx, PyG, OGB and jraph to an adjacency, and back to jraph."""

from gnnrp.graph.adjacency import (
    DROP_MODES,
    NORMALIZATIONS,
    EdgesLike,
    drop_edges,
    normalize,
    normalized_adjacency,
    peak_bytes,
    raw_adjacency,
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
    "to_jraph",
]
