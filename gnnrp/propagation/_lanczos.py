"""Lanczos with full reorthogonalization, one start a column: a Krylov space that grows.

Its vectors and images stay on the device, in arrays with room for more.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from gnnrp.propagation._nodes import Indexed, InPlace
from gnnrp.runtime import tracing
from gnnrp.types import LinearMap

CAPACITIES = (32, 48, 64, 96, 128, 192, 256)  # few, since each is one compilation


class Growth(NamedTuple):
    """A space while it grows."""

    vectors: Float[Array, "s c m l"]
    images: Float[Array, "s c m r"]
    vector: Float[Array, "s c l"]  # the next one
    diagonal: Float[np.ndarray, "j s c"]
    off_diagonal: Float[np.ndarray, "j s c"]
    last_change: Float[np.ndarray, ""]
    error: Float[np.ndarray, ""]


def begun(start: Float[Array, "s c l"], num_rest: int, count: int) -> Growth:
    """Return a space from its first vector on, with room for so many."""
    numbers = (count, *start.shape[:2])
    return Growth(
        _zeros(start, count, start.shape[2]),
        _zeros(start, count, num_rest),
        start,
        np.zeros(numbers),
        np.zeros(numbers),
        np.array(np.inf),
        np.array(np.inf),
    )


def grown(
    state: Growth,
    similarity: LinearMap,
    places: Indexed | InPlace,
    more: int,
    limit: int,
    sent: Float[Array, "n s c"] | None,
    callback: Callable[[int, int], None] | None,
) -> Growth:
    """Return the space with more vectors; ``sent`` is S of the first one, if known."""
    diagonal, off_diagonal = list(state.diagonal), list(state.off_diagonal)
    capacity = _capacity(len(diagonal) + more, limit)
    vector = state.vector
    vectors = _with_room(state.vectors, capacity)
    images = _with_room(state.images, capacity)
    for _ in range(more):
        at = len(diagonal)
        vectors = _store(vectors, vector, at)
        is_known = at == 0 and sent is not None
        moved = sent if is_known else _send(similarity, places, vector)
        images = _store(images, _on_rest(places, moved), at)
        product = _on_train(places, moved)
        vector, alpha, beta = _orthogonalize(vectors, vector, product)
        diagonal.append(np.asarray(alpha, np.float64))
        off_diagonal.append(np.asarray(beta, np.float64))
        if callback:
            callback(at + 1, limit)
    return state._replace(
        vectors=vectors,
        images=images,
        vector=vector,
        diagonal=np.stack(diagonal),
        off_diagonal=np.stack(off_diagonal),
    )


def first(state: Growth, count: int) -> Growth:
    """Return the space with the numbers of its first vectors alone."""
    diagonal, off_diagonal = state.diagonal[:count], state.off_diagonal[:count]
    return state._replace(diagonal=diagonal, off_diagonal=off_diagonal)


def find_fault(
    state: Growth,
    start: Float[Array, "s c l"],
    similarity: LinearMap,
    places: Indexed | InPlace,
) -> str | None:
    """Return the fault of a restored space, or None.

    The vectors must be orthonormal and begin with the start, and one product must send
    a random combination of them where the images and T do: S V = V T + β v e_m^T. That
    reveals every change that is not small relative to the round-off of a product.
    """
    arrays = (state.vectors, state.images, state.vector)
    if not all(bool(jnp.isfinite(each).all()) for each in arrays):
        return "its vectors are not finite"
    if not np.isfinite(state.diagonal).all() or not (state.off_diagonal >= 0).all():
        return (
            "its tridiagonal matrices are not finite, or negative beside the diagonal"
        )
    count = len(state.diagonal)
    if not count:
        return None
    bound = 2e3 * float(jnp.finfo(start.dtype).eps)
    if not bool((jnp.abs(state.vectors[:, :, 0] - start) <= bound).all()):
        return "its first vectors are not those of the run"
    weights = np.random.default_rng(count).standard_normal((count, *start.shape[:2]))
    # T w, with the next vector as one more row.
    sent = np.zeros((count + 1, *start.shape[:2]))
    sent[:-1] = state.diagonal * weights
    sent[:-2] += state.off_diagonal[:-1] * weights[1:]
    sent[1:] += state.off_diagonal * weights
    scale = np.abs(sent).sum(axis=0)
    kind = start.dtype
    parts = (np.asarray(np.moveaxis(each, 0, 2), kind) for each in (weights, sent))
    skew, off, lost, size = map(
        np.asarray, _errors(state[:3], similarity, places, *parts)
    )
    if not skew <= bound:
        return "its vectors are not orthonormal"
    scale += 1e-3 * scale.max()
    size = size + 1e-3 * size.max() + scale
    if not ((off <= bound * scale).all() and (lost <= bound * size).all()):
        return "its vectors and images do not satisfy the recurrence"
    return None


@tracing.Jit
def _errors(arrays, similarity, places, weights, sent):
    """Return the errors of V^T V, of S V on the training nodes and on the others.

    The last number is the size of the images that take part.
    """
    vectors, images, vector = arrays
    one = functools.partial(jnp.einsum, precision="highest")
    every = jnp.concatenate([vectors, vector[:, :, None]], axis=2)
    gram = one("scil,scjl->scij", every, every)
    # A column whose space is complete goes on with zeros.
    is_zero = jnp.diagonal(gram, axis1=2, axis2=3) == 0
    eye = jnp.eye(gram.shape[2], dtype=gram.dtype)
    skew = jnp.abs(gram - jnp.where(is_zero[..., None], 0, eye)).max()
    moved = _send_impl(similarity, places, one("scm,scml->scl", weights, vectors))
    off = places.on_train(moved) - one("scm,scml->scl", sent, every)
    rest = one("scm,scmr->scr", weights, images)
    size = one("scm,scmr->scr", jnp.abs(weights), jnp.abs(images))
    lost = jnp.abs(places.on_rest(moved) - rest).max(axis=2, initial=0)
    return skew, jnp.abs(off).max(axis=2), lost, size.max(axis=2, initial=0)


def trimmed(state: Growth) -> Growth:
    """Return the space without room for more, which memory may not grant again."""
    count = len(state.diagonal)
    return state._replace(
        vectors=state.vectors[:, :, :count], images=state.images[:, :, :count]
    )


def _capacity(count: int, limit: int) -> int:
    return min(c for c in (*CAPACITIES, limit) if c >= count)


def _zeros(like: Float[Array, "s c l"], room: int, width: int) -> Array:
    """Return zeros (s, c, room, width), shared by the devices as the vectors are."""
    shape, sharding = (*like.shape[:2], room, width), None
    if isinstance(like.sharding, NamedSharding):
        *most, last = (*like.sharding.spec, None, None, None)[:3]
        sharding = NamedSharding(like.sharding.mesh, PartitionSpec(*most, None, last))
    return jnp.zeros(shape, like.dtype, device=sharding)


def _with_room(array: Array, capacity: int) -> Array:
    room = max(0, capacity - array.shape[2])
    return jnp.pad(array, [(0, 0), (0, 0), (0, room), (0, 0)]) if room else array


def _send_impl(similarity, places, vector):
    """Return S v of all nodes, (n, s, c)."""
    spread = places.spread(vector)
    return similarity(spread.reshape(len(spread), -1)).reshape(spread.shape)


def _orthogonalize_impl(vectors, vector, product):
    """Return the next vector, α and β; twice, since once is not enough in float32."""
    alpha = jnp.einsum("scl,scl->sc", vector, product)
    scale = jnp.linalg.norm(product, axis=-1)
    for _ in range(2):
        overlap = jnp.einsum("scml,scl->scm", vectors, product, precision="highest")
        product -= jnp.einsum("scml,scm->scl", vectors, overlap, precision="highest")
    beta = jnp.linalg.norm(product, axis=-1)
    # Below round-off of the product the space is complete: stop this column for good.
    alive = beta > 4 * jnp.finfo(product.dtype).eps * scale
    beta = jnp.where(alive, beta, 0)
    scaled = product / jnp.where(alive, beta, 1)[..., None]
    return jnp.where(alive[..., None], scaled, 0), alpha, beta


def _store_impl(array, row, at):
    return jax.lax.dynamic_update_index_in_dim(array, row, at, 2)


_send = tracing.Jit(_send_impl)
_on_train = jax.jit(lambda places, moved: places.on_train(moved))
_on_rest = jax.jit(lambda places, moved: places.on_rest(moved))
_orthogonalize = jax.jit(_orthogonalize_impl)
_store = jax.jit(_store_impl, donate_argnums=0)
