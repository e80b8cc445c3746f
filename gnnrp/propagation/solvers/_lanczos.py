"""Lanczos with full reorthogonalization: a growing Krylov space for each column.

Vectors and images stay on the device, in arrays with spare capacity.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from gnnrp.propagation.solvers._node_positions import Positions
from gnnrp.propagation.solvers.base import STAGE
from gnnrp.runtime import tracing
from gnnrp.runtime.options import Options
from gnnrp.types import LinearMap

INTERVAL = 4  # vectors between two estimates of the error
_ENOUGH = 0.7  # share of its norm that a vector retains if one pass is enough
CAPACITIES = (32, 48, 64, 96, 128, 192, 256)  # few, since each is one compilation


class Space(NamedTuple):
    """A Krylov space, and the tridiagonal matrix T of S_XX in its basis."""

    vectors: Float[Array, "s c m l"]
    images: Float[Array, "s c m r"]
    vector: Float[Array, "s c l"]  # the next one
    diagonal: Float[np.ndarray, "j s c"]
    off_diagonal: Float[np.ndarray, "j s c"]
    sizes: Int[np.ndarray, "3"]  # before the last two extensions, and now


def init(start: Float[Array, "s c l"], num_rest: int, count: int) -> Space:
    """Return a space of ``count`` zero vectors, and its first vector R_0 / |R_0|."""
    vectors = _zeros(start, count, start.shape[2])
    images = _zeros(start, count, num_rest)
    diagonal, off_diagonal = np.zeros((2, count, *start.shape[:2]))
    sizes = np.zeros(3, np.int32)
    return Space(vectors, images, start, diagonal, off_diagonal, sizes)


def extend(
    state: Space,
    similarity: LinearMap,
    positions: Positions,
    count: int,
    max_vectors: int,
    options: Options,
) -> Space:
    """Return the space with ``count`` more vectors, of ``max_vectors`` in the end."""
    diagonal, off_diagonal = list(state.diagonal), list(state.off_diagonal)
    capacity = _capacity(len(diagonal) + count, max_vectors)
    vector = state.vector
    beta = jnp.zeros(vector.shape[:2], vector.dtype)
    if off_diagonal:
        beta = jnp.asarray(off_diagonal[-1], vector.dtype)
    vectors = _reserve(state.vectors, capacity)
    images = _reserve(state.images, capacity)
    for _ in range(count):
        at = len(diagonal)
        vectors = _store(vectors, vector, at)
        image = _multiply(similarity, positions, vector)
        images = _store(images, _take_rest(positions, image), at)
        product = _take_train(positions, image)
        vector, alpha, beta = _orthogonalize(vectors, vector, product, at, beta)
        diagonal.append(np.asarray(alpha, np.float64))
        off_diagonal.append(np.asarray(beta, np.float64))
        options.report(STAGE, at + 1, max_vectors)
    return state._replace(
        vectors=vectors,
        images=images,
        vector=vector,
        diagonal=np.stack(diagonal),
        off_diagonal=np.stack(off_diagonal),
        sizes=np.append(state.sizes[1:], np.int32(len(diagonal))),
    )


def eigen(
    state: Space, size: int
) -> tuple[Float[np.ndarray, "s c j"], Float[np.ndarray, "s c j j"]]:
    """Return the eigenvalues and eigenvectors of T of the first vectors."""
    numbers = (state.diagonal, state.off_diagonal)
    diagonal, off_diagonal = (np.moveaxis(each[:size], 0, -1) for each in numbers)
    T = np.zeros((*diagonal.shape, size))
    i = np.arange(size)
    T[..., i, i] = diagonal
    T[..., i[1:], i[:-1]] = T[..., i[:-1], i[1:]] = off_diagonal[..., :-1]
    values, vectors = np.linalg.eigh(T)
    return values, vectors


def find_fault(
    state: Space,
    start: Float[Array, "s c l"],
    similarity: LinearMap,
    positions: Positions,
) -> str | None:
    """Return the fault of a restored space, or None.

    The vectors must be orthonormal, begin with the start, and satisfy the recurrence
    S V = V T + β v e_m^T for one random combination, up to the round-off of a product.
    """
    arrays = (state.vectors, state.images, state.vector)
    if not all(bool(jnp.isfinite(each).all()) for each in arrays):
        return "its vectors are not finite"
    if not np.isfinite(state.diagonal).all() or not (state.off_diagonal >= 0).all():
        return "its tridiagonal matrices are not finite, or negative off the diagonal"
    count, (oldest, middle, newest) = len(state.diagonal), state.sizes.tolist()
    spans = middle - oldest, newest - middle
    if newest != count or oldest < 0 or not all(0 <= x <= INTERVAL for x in spans):
        return "its numbers of vectors do not fit"
    if not count:
        return None
    bound = 2e3 * float(jnp.finfo(start.dtype).eps)
    if not bool((jnp.abs(state.vectors[:, :, 0] - start) <= bound).all()):
        return "its first vectors are not those of the run"
    weights = np.random.default_rng(count).standard_normal((count, *start.shape[:2]))
    # T w, with the next vector as one more row.
    image = np.zeros((count + 1, *start.shape[:2]))
    image[:-1] = state.diagonal * weights
    image[:-2] += state.off_diagonal[:-1] * weights[1:]
    image[1:] += state.off_diagonal * weights
    scale = np.abs(image).sum(axis=0)
    dtype = start.dtype
    parts = (np.asarray(np.moveaxis(each, 0, 2), dtype) for each in (weights, image))
    skew, off, lost, size = map(
        np.asarray, _errors(state[:3], similarity, positions, *parts)
    )
    if not skew <= bound:
        return "its vectors are not orthonormal"
    scale += 1e-3 * scale.max()
    size = size + 1e-3 * size.max() + scale
    if not ((off <= bound * scale).all() and (lost <= bound * size).all()):
        return "its vectors and images do not satisfy the recurrence"
    return None


@tracing.Jit
def _errors(arrays, similarity, positions, weights, image):
    """Return the errors of V^T V, of S V on train and on rest, and the size of S V."""
    vectors, images, vector = arrays
    einsum = functools.partial(jnp.einsum, precision="highest")
    every = jnp.concatenate([vectors, vector[:, :, None]], axis=2)
    gram = einsum("scil,scjl->scij", every, every)
    # A column whose space is complete continues with zeros.
    is_zero = jnp.diagonal(gram, axis1=2, axis2=3) == 0
    eye = jnp.eye(gram.shape[2], dtype=gram.dtype)
    skew = jnp.abs(gram - jnp.where(is_zero[..., None], 0, eye)).max()
    combination = einsum("scm,scml->scl", weights, vectors)
    product = _multiply(similarity, positions, combination)
    off = positions.take_train(product) - einsum("scm,scml->scl", image, every)
    rest = einsum("scm,scmr->scr", weights, images)
    size = einsum("scm,scmr->scr", jnp.abs(weights), jnp.abs(images))
    lost = jnp.abs(positions.take_rest(product) - rest).max(axis=2, initial=0)
    return skew, jnp.abs(off).max(axis=2), lost, size.max(axis=2, initial=0)


def trim(state: Space) -> Space:
    """Return the space without spare capacity, for a checkpoint."""
    count = len(state.diagonal)
    return state._replace(
        vectors=state.vectors[:, :, :count], images=state.images[:, :, :count]
    )


def _capacity(count: int, max_vectors: int) -> int:
    return min(c for c in (*CAPACITIES, max_vectors) if c >= count)


def _zeros(like: Float[Array, "s c l"], count: int, width: int) -> Array:
    """Return zeros (s, c, count, width), sharded as the vectors are."""
    shape, sharding = (*like.shape[:2], count, width), None
    if isinstance(like.sharding, NamedSharding):
        *most, last = (*like.sharding.spec, None, None, None)[:3]
        sharding = NamedSharding(like.sharding.mesh, PartitionSpec(*most, None, last))
    return jnp.zeros(shape, like.dtype, device=sharding)


def _reserve(array: Array, capacity: int) -> Array:
    spare = max(0, capacity - array.shape[2])
    return jnp.pad(array, [(0, 0), (0, 0), (0, spare), (0, 0)]) if spare else array


@tracing.Jit
def _multiply(similarity, positions, vector):
    """Return S v of all nodes, (n, s, c)."""
    v = positions.scatter(vector)
    return similarity(v.reshape(len(v), -1)).reshape(v.shape)


@jax.jit
def _orthogonalize(vectors, vector, product, at, beta):
    """Return the next vector, α and β, from the β before.

    After the recurrence one pass over all vectors is enough, as long as it takes away
    little; else the rest is comparable to its round-off, and needs another one.
    """
    alpha = jnp.einsum("scl,scl->sc", vector, product)
    scale = jnp.linalg.norm(product, axis=-1)
    before = jax.lax.dynamic_index_in_dim(vectors, jnp.maximum(at - 1, 0), 2, False)
    product -= alpha[..., None] * vector + beta[..., None] * before
    size = jnp.linalg.norm(product, axis=-1)
    product = _project(vectors, product)
    shrank = (jnp.linalg.norm(product, axis=-1) < _ENOUGH * size).any()
    product = jax.lax.cond(shrank, lambda p: _project(vectors, p), lambda p: p, product)
    beta = jnp.linalg.norm(product, axis=-1)
    # Below round-off of the product the space is complete: stop this column for good.
    alive = beta > 4 * jnp.finfo(product.dtype).eps * scale
    beta = jnp.where(alive, beta, 0)
    scaled = product / jnp.where(alive, beta, 1)[..., None]
    return jnp.where(alive[..., None], scaled, 0), alpha, beta


def _project(vectors, product):
    """Return the part of a product that is orthogonal to all vectors."""
    overlap = jnp.einsum("scml,scl->scm", vectors, product, precision="highest")
    return product - jnp.einsum("scml,scm->scl", vectors, overlap, precision="highest")


@functools.partial(jax.jit, donate_argnums=0)
def _store(array, row, at):
    return jax.lax.dynamic_update_index_in_dim(array, row, at, 2)


_take_train = jax.jit(lambda positions, image: positions.take_train(image))
_take_rest = jax.jit(lambda positions, image: positions.take_rest(image))
