"""Graphs of any library to a cleaned, normalized adjacency."""

from gnnrp.graph.adjacency import (
    MANNERS,
    NORMALIZATIONS,
    EdgesLike,
    normalize,
    normalized_adjacency,
    raw_adjacency,
    thinned,
    to_bcoo,
    to_jraph,
)

__all__ = [
    "MANNERS",
    "NORMALIZATIONS",
    "EdgesLike",
    "normalize",
    "normalized_adjacency",
    "raw_adjacency",
    "thinned",
    "to_bcoo",
    "to_jraph",
]
