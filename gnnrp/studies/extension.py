"""The similarity of a fit on a later graph, which contains the nodes of the fit.

Settings stay, and so do the nodes of all statistics: means, deviations, row sums and
λ_max are those of the nodes of the fit on the later graph. So a new node moves the
scores of other nodes only through its edges.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int

from gnnrp import sparse
from gnnrp.kernels import features
from gnnrp.kernels.features import blocks
from gnnrp.propagation import linear_maps, similarity
from gnnrp.runtime import memory, tracing
from gnnrp.studies import similarities
from gnnrp.studies.candidates import Candidate, couple
from gnnrp.studies.settings import RPSettings
from gnnrp.types import LinearMap


class LaterGraph(NamedTuple):
    """A graph with features, and the rows of the nodes of the fit."""

    adjacency: scipy.sparse.csr_array  # W
    matrix: sparse.Matrix  # A
    features: Any  # X, or None
    known: Int[np.ndarray, " m"]  # in the order of the fit
    directed: scipy.sparse.csr_array | None = None  # W with directions, if they count


def extend(candidate: Candidate, graph: LaterGraph) -> LinearMap:
    """Return the similarity of a candidate on a later graph.

    On the graph of the fit it is the similarity of ``similarities.build``. Powers of A
    are those of the later graph. A normalized kernel is Dk^-1/2 Kg Dk^-1/2 with the row
    sums over the nodes of the fit and the node itself; a centered one is
    H Kg H^T / λ_max, with the mean over the nodes of the fit in H and λ_max of their
    block.

    Args:
        candidate: settings of the fit.
        graph: the later graph.

    Raises:
        ValueError: features that do not match or do not fit in memory, or a row sum
            that is not positive.
    """
    parts = zip(candidate.parts, candidate.directed, strict=False)
    maps = [_part(part, graph, directed=directed) for part, directed in parts]
    if len(maps) == 1:
        return maps[0]
    weights = jnp.asarray(candidate.weights, jnp.zeros(0).dtype)
    return similarity.Sum(tuple(maps), weights)


def _part(part: RPSettings, graph: LaterGraph, *, directed: bool) -> LinearMap:
    if directed and part.kernel is None:
        assert graph.directed is not None
        return similarity.walk(couple(graph.directed), part.power, part.alpha)
    walk = similarity.walk(graph.matrix, part.power, part.alpha)
    if part.kernel is None:
        return walk
    z = _rows(part, graph, directed=directed)
    kernel = features.build(z, part.kernel, gamma=part.gamma, normalized=False)
    if part.is_centered:
        kernel = _center(kernel, _inverse_largest(z[graph.known], part), graph.known)
    else:
        kernel = _normalize(kernel, graph.known)
    return similarity.Sandwich(walk, kernel) if part.power else kernel


def _rows(part: RPSettings, graph: LaterGraph, *, directed: bool) -> Any:
    """Return the rows that the kernel compares: features or hop features."""
    x = features.as_float(features.validate(graph.features), jnp.zeros(0).dtype)
    if part.row_normalize:
        x = features.normalize_rows(x, reference=graph.known)
    if part.hops is None:
        return x
    hops = features.HopSettings(num_hops=part.hops, scaling=part.scaling)
    rows = functools.partial(features.hop_features, x, reference=graph.known)
    if not directed:
        return rows(graph.adjacency, hops)
    assert graph.directed is not None
    against = scipy.sparse.csr_array(graph.directed.T)
    both: Any = rows(graph.directed, hops), rows(against, hops)
    is_sparse = scipy.sparse.issparse(both[0])
    z: Any = scipy.sparse.hstack(both, "csr") if is_sparse else np.hstack(both)
    return z * z.dtype.type(np.sqrt(0.5))  # squared distances are the means of both


def _inverse_largest(z: Any, part: RPSettings) -> Float[Array, "1"]:
    """Return 1 / λ_max of the centered kernel of the nodes of the fit."""
    assert part.kernel is not None
    num_nodes = z.shape[0]
    kernel = features.build(z, part.kernel, gamma=part.gamma, normalized=False)
    needed = features.matrix_bytes(num_nodes, itemsize=z.dtype.itemsize)
    centered = similarity.Centered(kernel)
    if needed <= memory.room().left / 2:
        gram = features.centered_matrix(kernel)
        centered = similarity.Dense(gram, is_symmetric=True)
    return similarities.scale_to_one(centered, num_nodes).weights


def _center(
    kernel: features.FeatureKernel, weight: Any, known: Int[np.ndarray, " m"]
) -> LinearMap:
    """Return H Kg H^T times the weight."""
    mean = _indicator(kernel, known) / len(known)
    return similarity.Sum((similarity.Centered(kernel, mean),), weight)


def _normalize(
    kernel: features.FeatureKernel, known: Int[np.ndarray, " m"]
) -> features.FeatureKernel:
    """Return Dk^-1/2 Kg Dk^-1/2."""
    inside = _indicator(kernel, known)
    sums = linear_maps.product(tracing.as_argument(kernel), inside)
    # A new node counts itself too, as each node of the fit does.
    sums = (sums + (1 - inside) * features.diagonal(kernel)[:, None])[:, 0]
    scale = blocks.inverse_square_root(np.asarray(sums))
    return dataclasses.replace(kernel, scale=jnp.asarray(scale, sums.dtype))


def _indicator(
    kernel: features.FeatureKernel, known: Int[np.ndarray, " m"]
) -> Float[Array, "n 1"]:
    """Return 1 for the nodes of the fit, else 0."""
    ones = jnp.zeros((len(kernel.scale), 1), kernel.scale.dtype)
    return ones.at[known].set(1)
