"""Symmetry of linear maps, entry by entry or node by node, not by a norm.

An entry is compared with its mirror image relative to the rows and columns of both, so
that a single asymmetric pair is detected whatever the number of nodes.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from gnnrp import sparse
from gnnrp.propagation import similarity as maps
from gnnrp.runtime import arrays, tracing
from gnnrp.types import LinearMap

_PROBES = 4
UNKNOWN = "JAX cannot transpose the similarity, so its symmetry is unknown"
ASYMMETRIC = "the similarity is not symmetric"


def find_asymmetry(
    similarity: LinearMap, num_nodes: int, dtype: jnp.dtype
) -> str | None:
    """Return the reason why S may not be symmetric; None if it is symmetric.

    Stored entries decide (``stored_symmetry``). Of other maps, S v and its transpose by
    JAX, S^T v, may differ at a node by 1,000 ε times the largest of its products with
    random v, |v_i| in [1, 2]. A pair (i, j) that differs by more than 1,000 ε times the
    norm of row or column i is detected with a probability that does not depend on n.
    """
    eps = float(jnp.finfo(dtype).eps)
    symmetric = stored_symmetry(similarity, eps)
    if symmetric is None:
        try:
            S = tracing.as_argument(similarity)
            symmetric = bool(_is_probably_symmetric(S, num_nodes, jnp.dtype(dtype)))
        except (AssertionError, NotImplementedError, TypeError, ValueError):
            # A callback, a loop of unknown length or, in jax 0.8, many a scan.
            return UNKNOWN
    return None if symmetric else ASYMMETRIC


def stored_symmetry(similarity: LinearMap, eps: float) -> bool | None:
    """Return whether the stored entries make S symmetric; None if there are none.

    Walks and restarts are as symmetric as their adjacency, centered and weighted maps
    as what is inside, sandwiches and sums as all of their parts. Other maps may state
    it in an attribute ``is_symmetric``.
    """
    if isinstance(similarity, sparse.Matrix):
        return _sparse_is_symmetric(sparse.to_csr(similarity), eps)
    if isinstance(similarity, maps.Dense):
        if similarity.is_symmetric is not None:
            return similarity.is_symmetric
        return arrays.asymmetric_pair(similarity.matrix, eps) is None
    if isinstance(similarity, maps.Power | maps.LazyWalk | maps.Restart):
        is_restart = isinstance(similarity, maps.Restart)
        num_hops = similarity.num_iterations if is_restart else similarity.power
        return num_hops == 0 or stored_symmetry(similarity.adjacency, eps)
    if isinstance(similarity, maps.Centered | maps.Weighted):
        return stored_symmetry(similarity.inner, eps)
    if isinstance(similarity, maps.Sandwich | maps.Sum):
        is_sum = isinstance(similarity, maps.Sum)
        of = similarity.parts if is_sum else (similarity.outer, similarity.inner)
        parts = [stored_symmetry(part, eps) for part in of]
        return False if False in parts else None if None in parts else True
    stated = getattr(similarity, "is_symmetric", None)
    return stated if isinstance(stated, bool) else None  # it may be a method


def _sparse_is_symmetric(csr: scipy.sparse.csr_array, eps: float) -> bool:
    """Return whether A = A^T, up to the round-off of ``arrays.asymmetric_pair``."""
    if csr.shape[0] != csr.shape[1]:
        return False
    if not csr.nnz or sparse.is_symmetric(csr):
        return True
    largest = abs(csr)
    scale = np.maximum(
        largest.max(axis=0).toarray().ravel(), largest.max(axis=1).toarray().ravel()
    )
    gap = scipy.sparse.coo_array(csr - csr.T)
    root = np.sqrt(scale.astype(np.float64))
    allowed = arrays.ROUND_OFF * eps * root[gap.row] * root[gap.col]
    return bool(np.all(np.abs(gap.data) <= allowed))


@functools.partial(tracing.Jit, static_argnames=("num_nodes", "dtype"))
def _is_probably_symmetric(similarity, num_nodes, dtype):
    like = jax.ShapeDtypeStruct((num_nodes, 1), dtype)
    transposed = jax.linear_transpose(similarity, like)
    image_dtype = jax.eval_shape(similarity, like).dtype

    def probe(number, errors):
        gap, scale = errors
        size, sign = jax.random.split(jax.random.fold_in(jax.random.key(0), number))
        v = jax.random.uniform(size, like.shape, dtype, 1, 2)
        v *= jax.random.rademacher(sign, like.shape, dtype)
        image = similarity(v).astype(dtype)
        (mirror,) = transposed(v.astype(image_dtype))
        scale = jnp.maximum(scale, jnp.maximum(jnp.abs(image), jnp.abs(mirror)))
        return jnp.maximum(gap, jnp.abs(image - mirror)), scale

    none = jnp.zeros(like.shape, dtype)
    gap, scale = jax.lax.fori_loop(0, _PROBES, probe, (none, none))
    return jnp.all(gap <= arrays.ROUND_OFF * jnp.finfo(dtype).eps * scale)
