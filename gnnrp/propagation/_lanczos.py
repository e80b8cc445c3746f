"""Lanczos with full reorthogonalization, one start a column: a Krylov space that grows.

Its vectors and images stay on the device, in arrays with room for more.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from gnnrp import _tracing
from gnnrp.propagation._nodes import Indexed, InPlace
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


_send = _tracing.Jit(_send_impl)
_on_train = jax.jit(lambda places, moved: places.on_train(moved))
_on_rest = jax.jit(lambda places, moved: places.on_rest(moved))
_orthogonalize = jax.jit(_orthogonalize_impl)
_store = jax.jit(_store_impl, donate_argnums=0)
