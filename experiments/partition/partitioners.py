"""Partitioners of a graph: ranges of a node order, METIS, KaHIP.

The weight of a node is its number of entries plus one, as in ``balanced``.
"""

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse

from gnnrp.distributed import partitioning
from gnnrp.distributed.partitioning import Layout
from gnnrp.runtime import checks

Partition = Callable[[int], Layout]
"""Number of parts -> layout."""

IMBALANCE = 0.03  # limit for METIS and KaHIP; the default of METIS


def require(methods: tuple[str, ...]) -> None:
    """Check that methods exist and their packages are installed.

    Raises:
        ValueError: a method is unknown or not installed.
    """
    for name in methods:
        checks.one_of("methods", name, METHODS)
        if name in PACKAGES:
            _package(PACKAGES[name])


def natural(csr: Any, most_entries: int, seed: int) -> Partition:  # noqa: ARG001
    """Partition the original node order into ranges."""
    return lambda parts: partitioning.balance(csr, parts, reorder=False)


def reordered(csr: Any, most_entries: int, seed: int) -> Partition:  # noqa: ARG001
    """Partition the order of ``balanced``: reverse Cuthill-McKee or clusters."""
    return lambda parts: partitioning.balance(csr, parts, reorder=True)


def metis(csr: Any, most_entries: int, seed: int) -> Partition:
    """Partition with k-way METIS, which minimizes the cut edges."""
    pymetis = _package("pymetis")
    index = pymetis.zero_copy_dtype()
    weights = (np.diff(csr.indptr) + 1).astype(index)
    sample = sample_edges(csr, most_entries, seed)
    graph = pymetis.CSRAdjacency(
        sample.indptr.astype(index), sample.indices.astype(index)
    )
    del sample
    options = pymetis.Options(seed=seed, ufactor=round(1000 * IMBALANCE))

    def partition(parts: int) -> Layout:
        if parts == 1:  # METIS fails
            return partitioning.from_parts(np.zeros(len(weights), int), 1)
        _, part = pymetis.part_graph(
            parts, graph, vweights=weights, recursive=False, options=options
        )
        part = np.asarray(part).astype(np.int64)  # numpy has another name for its type
        return partitioning.from_parts(part, parts)

    return partition


def kahip(csr: Any, most_entries: int, seed: int) -> Partition:
    """Partition with KaHIP in its fast mode for social networks."""
    module = _package("kahip")
    weights = np.diff(csr.indptr) + 1
    sample = sample_edges(csr, most_entries, seed)
    ones = np.ones(sample.nnz, np.int32)  # edge weights

    def partition(parts: int) -> Layout:
        lists = (weights, sample.indptr, ones, sample.indices)
        mode = module.FASTSOCIAL
        _, part = module.kaffpa(*lists, parts, IMBALANCE, True, seed, mode)
        return partitioning.from_parts(np.asarray(part), parts)

    return partition


METHODS: dict[str, Callable[[Any, int, int], Partition]] = {
    "natural": natural,
    "reordered": reordered,
    "metis": metis,
    "kahip": kahip,
}
PACKAGES = {"metis": "pymetis", "kahip": "kahip"}


def best(methods: tuple[str, ...]) -> str:
    """Return the method of the figures and extrapolations."""
    return "metis" if "metis" in methods else methods[-1]


def sample_edges(csr: Any, most_entries: int, seed: int) -> scipy.sparse.csr_array:
    """Return a pattern without loops; sample its edges if there are too many.

    Args:
        csr: symmetric pattern.
        most_entries: approximate limit, twice the number of edges.
        seed: of the sample.
    """
    upper = scipy.sparse.triu(csr, 1, format="coo")
    row, col = upper.coords
    if 2 * upper.nnz > most_entries:
        draw = np.random.default_rng(seed).random(upper.nnz, np.float32)
        keep = draw < most_entries / (2 * upper.nnz)
        row, col = row[keep], col[keep]
    half = (np.ones(len(row), np.int8), (row, col))
    half = scipy.sparse.coo_array(half, shape=csr.shape).tocsr()
    both = scipy.sparse.csr_array(half + half.T)
    both.sort_indices()
    return both


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        msg = f"this needs {name}, which is not installed: pip install {name}"
        raise ValueError(msg) from error
