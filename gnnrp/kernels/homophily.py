"""Homophily: shares of equal labels by edges and by nodes, and as an alignment."""

from typing import Any

import numpy as np
from jaxtyping import Int

from gnnrp import sparse
from gnnrp.kernels import alignment
from gnnrp.runtime import checks
from gnnrp.types import Scalar


def level(
    adjacency: Any, labels: Int[np.ndarray, " n"], *, centered: bool = False
) -> Scalar:
    """Return the homophily level A(A, Θ*), Θ* = Y Y^T of one-hot labels.

    Args:
        adjacency: A, symmetric, BCOO or scipy sparse, normalized or not.
        labels: of all nodes; -1 if unknown, which differs from every other.
        centered: see ``alignment.alignment``.

    Raises:
        ValueError: not one label per node.
        TypeError: not sparse, or labels that are not integers.

    Source: Sec. 5.1, "homophily level".
    """
    adjacency, labels = _validate(adjacency, labels)
    ideal = alignment.label_kernel(labels, int(labels.max(initial=0)) + 1)
    return alignment.alignment(adjacency, ideal, centered=centered)


def by_edges(adjacency: Any, labels: Int[np.ndarray, " n"]) -> float:
    """Return the share of edges whose ends have the same label.

    The nonzero entries are the edges, so each entry of a directed graph counts. Loops
    and edges with an unknown label (-1) are left out. NaN without any edge. Arguments
    and errors are those of ``level``.

    Source: Zhu et al. 2020, "edge homophily ratio".
    """
    rows, same = _pairs(adjacency, labels)
    return float(same.mean()) if rows.size else np.nan


def by_nodes(adjacency: Any, labels: Int[np.ndarray, " n"]) -> float:
    """Return the share of neighbors with a node's label, averaged over nodes.

    The neighbors of node i are the entries of row i, as in ``by_edges``; nodes without
    any are left out. NaN if all are. Arguments and errors are those of ``level``.

    Source: Pei et al. 2020, "node homophily".
    """
    rows, same = _pairs(adjacency, labels)
    degrees = np.bincount(rows)
    connected = degrees > 0
    shares = np.bincount(rows, weights=same)[connected] / degrees[connected]
    return float(shares.mean()) if shares.size else np.nan


def _pairs(adjacency: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of each edge, and whether its labels are equal."""
    adjacency, labels = _validate(adjacency, labels)
    coo = adjacency.tocoo()
    ends = labels[np.stack(coo.coords)]
    counts = (coo.coords[0] != coo.coords[1]) & (ends >= 0).all(axis=0)
    return coo.coords[0][counts], (ends[0] == ends[1])[counts]


def _validate(adjacency: Any, labels: Any) -> tuple[Any, np.ndarray]:
    """Return CSR without stored zeros, and the labels, one per node."""
    csr: Any = sparse.to_scipy(adjacency)
    csr.eliminate_zeros()
    checks.square("the adjacency", csr)
    return csr, checks.labels("labels", labels, csr.shape[0])
