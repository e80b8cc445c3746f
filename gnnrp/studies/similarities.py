"""The similarity S that the settings of a run describe: A^K, a lazy walk, B Kn B."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float

from gnnrp import sparse
from gnnrp.kernels import features
from gnnrp.kernels.combination import ConstantKernelError
from gnnrp.kernels.features import low_rank
from gnnrp.propagation import linear_maps, similarity
from gnnrp.propagation.solvers import exact
from gnnrp.runtime import checks, memory, tracing
from gnnrp.studies.settings import RPSettings
from gnnrp.types import LinearMap

DENSE_BYTES = 6 * 2**30  # upper limit of a dense kernel
NUM_ITERATIONS = 20  # of the power method


class Built(NamedTuple):
    """A similarity, and the form of its kernel with the reason."""

    similarity: LinearMap  # S
    form: str | None  # None without a kernel


def build(
    matrix: sparse.Matrix,
    node_features: Any,
    settings: RPSettings,
    *,
    num_train: int,
    adjacency: Any = None,
    room: memory.Room | None = None,
) -> Built:
    """Return S: A^K or a lazy walk B, or B M B if the settings name a kernel.

    M is the normalized kernel Kn, or H K H / λ_max if the settings center it, of the
    features or of their hop features.

    If at most half of the feature rows are distinct and their kernel fits in memory,
    the kernel uses the distinct rows. Otherwise it is dense if it fits in 6 GiB and
    half of the memory and the run needs many products (another loss, or too many
    training nodes for the exact solver). If not, each product evaluates its row blocks.

    Args:
        matrix: A.
        node_features: X, dense or scipy sparse; None without a kernel.
        settings: of the run.
        num_train: number of training nodes of the largest split.
        adjacency: W from ``graph.raw_adjacency``, for hop features.
        room: free memory; that of the machine by default.

    Raises:
        ValueError: features that do not match or do not fit in memory, or a centered
            kernel that is constant.
        TypeError: a matrix that is not a linear map, or no W for hop features.
    """
    checks.linear_map("the matrix", matrix)
    room = memory.room() if room is None else room
    walk = similarity.walk(matrix, settings.power, settings.alpha)
    if settings.kernel is None:
        return Built(walk, None)
    x = features.validate(node_features)
    features.check_memory(x, settings.kernel, room)
    if x.shape[0] != matrix.shape[0]:
        msg = (
            f"there are {x.shape[0]} rows of features for {matrix.shape[0]} nodes; "
            "pass one for each, in training or not"
        )
        raise ValueError(msg)
    x = features.as_float(x, jnp.zeros(0).dtype)  # float64 in a float64 run
    if settings.row_normalize:
        x = features.normalize_rows(x)
    if settings.hops is not None:
        x = hop_features(x, adjacency, settings.hops, settings.scaling, room)
    kernel, form = _build_kernel(x, settings, num_train, room)
    return Built(similarity.Sandwich(walk, kernel), form)


def hop_features(
    x: Any, adjacency: Any, num_hops: int, scaling: str, room: memory.Room
) -> Any:
    """Return the hop features of X; their kernel must fit in memory."""
    hops = features.HopSettings(num_hops=num_hops, scaling=scaling)
    z = features.hop_features(x, adjacency, hops, max_bytes=room.limit)
    features.check_memory(z, "gaussian", room)
    return z


def _build_kernel(
    x: Any, settings: RPSettings, num_train: int, room: memory.Room
) -> tuple[LinearMap, str]:
    """Return M, and its form with the reason."""
    form, reason = _kernel_form(x, settings, num_train, room)
    name, gamma = settings.kernel, settings.gamma
    assert name is not None
    centered = settings.is_centered
    if form == "distinct":
        kernel = low_rank.distinct(x, name, gamma=gamma, normalized=not centered)
    elif form == "dense":
        blocks = features.build(x, name, gamma=gamma, normalized=False)
        if centered:
            gram = features.centered_matrix(blocks)
            kernel = similarity.Dense(gram, is_symmetric=True)
            return scale_to_one(kernel, x.shape[0]), reason
        kernel = similarity.Dense(features.normalized_matrix(blocks))
    else:
        kernel = features.build(x, name, gamma=gamma, normalized=not centered)
    if centered:
        kernel = scale_to_one(similarity.Centered(kernel), x.shape[0])
    return kernel, reason


def scale_to_one(kernel: LinearMap, num_nodes: int) -> similarity.Sum:
    """Return M / λ_max."""
    start = jnp.ones((num_nodes, 1), jnp.zeros(0).dtype)
    largest = largest_eigenvalues(kernel, start)
    check_varies(largest, num_nodes)
    return similarity.Sum((kernel,), 1 / largest)


def check_varies(largest: Float[Array, "1"], num_nodes: int) -> None:
    """Refuse a centered kernel whose λ_max is round-off.

    Raises:
        ConstantKernelError: it is.
    """
    round_off = num_nodes * float(jnp.finfo(jnp.float32).eps)
    if not float(largest[0]) > round_off:
        msg = "the kernel is the same for all pairs of nodes; take other features"
        raise ConstantKernelError(msg)


def gaussian(
    distances: Float[Array, "n n"], gamma: float, *, centered: bool
) -> LinearMap:
    """Return M of a Gaussian kernel from squared distances, as ``build`` has it."""
    num_nodes = len(distances)
    gram = _gaussian(distances, jnp.asarray(gamma, distances.dtype), centered=centered)
    if centered:
        start = jnp.ones((num_nodes, 1), gram.dtype)
        largest = largest_eigenvalues(similarity.Dense(gram), start)
        check_varies(largest, num_nodes)
        gram = _divide(gram, largest[0])
    return similarity.Dense(gram, is_symmetric=True)


@functools.partial(jax.jit, donate_argnums=0)
def _divide(gram, size):
    return gram / size


@functools.partial(jax.jit, static_argnames="centered")
def _gaussian(distances, gamma, *, centered):
    gram = jnp.exp(-gamma * distances)
    means = jnp.mean(gram, axis=1)
    if centered:
        return gram - means[:, None] - means[None, :] + jnp.mean(means)
    scale = 1 / jnp.sqrt(len(gram) * means)
    return scale[:, None] * gram * scale[None, :]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """V -> S_XX V, of one split per column."""

    similarity: LinearMap  # S
    train: Float[Array, "n s"]  # 1 for training nodes, else 0

    def __call__(self, v: Float[Array, "n s"]) -> Float[Array, "n s"]:
        """Return S_XX V."""
        return self.train * self.similarity(self.train * v)


def largest_eigenvalues(
    kernel: LinearMap, like: Float[Array, "n s"]
) -> Float[Array, " s"]:
    """Return the largest |λ| by the power method, from below, for each column."""
    start = np.random.default_rng(0).standard_normal(like.shape)
    start = jnp.asarray(start, like.dtype)
    return _power_method(tracing.as_argument(linear_maps.as_pytree(kernel)), start)


@tracing.Jit
def _power_method(kernel, start):
    def body(_, v):
        image = kernel(v)
        norm = jnp.linalg.norm(image, axis=0, keepdims=True)
        return image / jnp.where(norm > 0, norm, 1)

    v = jax.lax.fori_loop(0, NUM_ITERATIONS, body, body(0, start))
    return jnp.linalg.norm(kernel(v), axis=0)


def _kernel_form(
    x: Any, settings: RPSettings, num_train: int, room: memory.Room
) -> tuple[str, str]:
    """Return "distinct", "dense" or "blocks", and the reason."""
    (num_nodes, num_features), itemsize = x.shape, x.dtype.itemsize
    num_rows = _num_distinct_rows(x)
    lacking = ""
    if num_rows <= num_nodes / 2:
        needed = low_rank.distinct_bytes(
            num_nodes, num_features, num_rows, itemsize=itemsize
        )
        if needed <= room.left:
            return "distinct", f"of {num_rows:,} distinct rows"
        lacking = (
            f"; {memory.LACK} not distinct rows: it {memory.compare(needed, room)}"
        )
    many_products = settings.loss != "squared" or num_train > exact.MAX_TRAIN
    if many_products and num_nodes**2 * itemsize <= DENSE_BYTES:
        needed = features.matrix_bytes(num_nodes, itemsize=itemsize)
        if needed <= room.left / 2:  # the other half is for the run
            return "dense", "held densely, for many products"
        lacking = f"; {memory.LACK} not held densely: it {memory.compare(needed, room)}"
    return "blocks", f"in row blocks at each product{lacking}"


def _num_distinct_rows(x: Any) -> int:
    """Return the number of distinct rows; sparse rows all count."""
    if scipy.sparse.issparse(x) or 0 in x.shape:
        return x.shape[0]
    row = np.dtype((np.void, x.itemsize * x.shape[1]))
    return len(np.unique(np.ascontiguousarray(x).view(row)))
