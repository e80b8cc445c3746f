"""Orders of the nodes with neighbors close in memory.

Reverse Cuthill-McKee keeps rows of the dense side in the cache; in graphs with
communities, clusters of a spectral embedding, each in that order, are better.
"""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.csgraph
from jaxtyping import Float, Int
from scipy.cluster.vq import vq

from gnnrp.sparse.primitive import KERNELS, as_pattern

# Nodes; with fewer, a column block of the dense side stays in the cache.
REORDER_FROM = 2**15
# Entries: the range in which clusters pay for their cost.
_CLUSTER_FROM, _CLUSTER_TO = 2**20, 2**24
_HOPS, _DIMENSIONS, _CLUSTER_SIZE, _MAX_CLUSTERS = 20, 16, 512, 512


def locality_order(
    csr: scipy.sparse.csr_array, reorder: bool | None, backend: str
) -> Int[np.ndarray, "2 n"] | None:
    """Return an order and its inverse, or None to keep the nodes as they are."""
    num_nodes = csr.shape[0]
    small = reorder is None and num_nodes < REORDER_FROM
    if csr.nnz == 0 or reorder is False or small:
        return None
    graph = scipy.sparse.csr_matrix(csr)
    nodes = scipy.sparse.csgraph.reverse_cuthill_mckee(graph, symmetric_mode=True)
    best = _append_inverse(nodes)
    distance, identity = _distance(csr, best[1]), np.arange(num_nodes)
    if reorder is None and distance > _distance(csr, identity) - 0.5:
        return None
    if _CLUSTER_FROM <= csr.nnz <= _CLUSTER_TO:
        other = _order_by_cluster(csr, best, backend)
        if _distance(csr, other[1]) < distance:
            best = other
    return best


def _append_inverse(order: Int[np.ndarray, " n"]) -> Int[np.ndarray, "2 n"]:
    rows = np.empty_like(order)
    rows[order] = np.arange(len(order), dtype=order.dtype)
    return np.stack([order, rows])


def _distance(csr: scipy.sparse.csr_array, rows: Int[np.ndarray, " n"]) -> float:
    """Return the mean distance of neighbors in memory, in powers of two."""
    own = np.repeat(rows, np.diff(csr.indptr))
    return float(np.log2(1.0 + np.abs(own - rows[csr.indices])).mean())


def _order_by_cluster(
    csr: scipy.sparse.csr_array, order: Int[np.ndarray, "2 n"], backend: str
) -> Int[np.ndarray, "2 n"]:
    """Return the order by cluster, similar clusters adjacent, then by ``order``."""
    num_clusters = min(_MAX_CLUSTERS, max(2, csr.shape[0] // _CLUSTER_SIZE))
    label = _clusters(_embedding(csr, backend), num_clusters)
    own, other = np.repeat(label, np.diff(csr.indptr)), label[csr.indices]
    between = np.bincount(own * num_clusters + other, minlength=num_clusters**2)
    between = between.reshape(num_clusters, num_clusters).astype(float)
    scale = 1 / np.sqrt(np.maximum(between.sum(axis=1), 1))
    # The Fiedler vector of the graph of clusters sorts them by similarity.
    _, vectors = scipy.linalg.eigh(-scale[:, None] * between * scale)
    place = np.argsort(np.argsort(vectors[:, 1] * scale))
    return _append_inverse(np.lexsort((order[1], place[label])).astype(order.dtype))


def _embedding(csr: scipy.sparse.csr_array, backend: str) -> Float[np.ndarray, "n d"]:
    """Return unit rows spanned by random vectors after many normalized hops."""
    degree = np.maximum(np.diff(csr.indptr), 1)
    rows = np.repeat(np.arange(csr.shape[0], dtype=np.int32), np.diff(csr.indptr))
    scale = (1 / np.sqrt(degree)).astype(np.float32)
    pattern = as_pattern(csr.indptr, csr.indices, None, backend)
    data = jnp.asarray(scale[rows] * scale[csr.indices])
    shape = (csr.shape[0], csr.shape[0])
    draw = np.random.default_rng(0).standard_normal((csr.shape[0], _DIMENSIONS))

    @jax.jit
    def smooth(data, pattern, v):
        def hop(_, v):
            return KERNELS[backend](shape, data, pattern, v)

        return jax.lax.fori_loop(0, _HOPS, hop, v)

    v = np.asarray(smooth(data, pattern, jnp.asarray(draw, jnp.float32)))
    basis = scipy.linalg.qr(v, mode="economic", check_finite=False)[0]
    return basis / np.maximum(np.linalg.norm(basis, axis=1, keepdims=True), 1e-30)


def _clusters(
    points: Float[np.ndarray, "n d"], num_clusters: int
) -> Int[np.ndarray, " n"]:
    """Return the nearest of k means, fitted to a sample of the points."""
    rng = np.random.default_rng(0)
    index = rng.choice(len(points), min(len(points), 40 * num_clusters), replace=False)
    sample = points[index]
    means = sample[rng.choice(len(index), num_clusters, replace=False)]
    for _ in range(5):
        means = _update_means(means, sample)
    half = np.sum(means**2, axis=1) / 2
    label = np.empty(len(points), np.int64)
    for start in range(0, len(points), 2**14):
        block = slice(start, start + 2**14)
        label[block] = np.argmax(points[block] @ means.T - half, axis=1)
    return label


def _update_means(
    means: Float[np.ndarray, "k d"], points: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, "k d"]:
    """Return the means after a step of k-means; an empty cluster keeps its mean."""
    # SciPy's kmeans2 warns of empty clusters, by filters that all threads share.
    nearest = vq(points, means)[0]
    pattern = (np.ones(len(points), points.dtype), (nearest, np.arange(len(points))))
    sums = scipy.sparse.csr_array(pattern, shape=(len(means), len(points))) @ points
    counts = np.bincount(nearest, minlength=len(means))[:, None]
    return np.where(counts > 0, sums / np.maximum(counts, 1), means).astype(means.dtype)
