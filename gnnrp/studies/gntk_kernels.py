"""Kernels of infinitely wide GCNs of each depth, exact or estimated, for a dataset.

"exact" forms Θ, n x n. "blocks" forms its columns of the training nodes only, for up to
three layers. "features" takes Θ ~ Ψ Ψ^T from random features, n x m.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int

from gnnrp import datasets, graph, sparse
from gnnrp.datasets import Dataset
from gnnrp.kernels import features, gntk
from gnnrp.kernels.features import low_rank
from gnnrp.kernels.gntk import (
    activations,
    blocked,
    local,
    neural_tangents,
    random_features,
)
from gnnrp.propagation import exact, linear_maps, similarity
from gnnrp.runtime import memory
from gnnrp.runtime.options import Options
from gnnrp.studies import presets
from gnnrp.studies import similarities as study_similarities
from gnnrp.studies.settings import GNTKSettings
from gnnrp.types import LinearMap

NUM_ESTIMATED = 300  # nodes of the estimated error


class WideKernel(NamedTuple):
    """Θ as a linear map, with a step size for which training converges."""

    similarity: LinearMap  # V -> Θ V
    step_size: float
    matrix: Float[Array, "n n"] | None = None  # Θ, if it is formed
    facts: dict[str, Any] | None = None  # of the estimate, for a record


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class SomeColumns:
    """V -> Θ V for V that is zero outside of some nodes, from their columns of Θ."""

    columns: Float[Array, "n l"]  # Θ[:, X]
    index: Int[Array, " l"]  # X
    is_symmetric = True  # Θ is

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return Θ[:, X] V[X]."""
        return jnp.matmul(
            self.columns, v[self.index], precision=jax.lax.Precision.HIGHEST
        )


def method(dataset: Dataset, settings: GNTKSettings, options: Options) -> str:
    """Return the method of the settings; "auto" is exact if that fits in memory."""
    if settings.method != "auto":
        return settings.method
    if settings.route != "recursion":
        return "exact"
    needed = exact_bytes(dataset, jnp.zeros(0).dtype.itemsize)
    return "exact" if needed <= memory.room(options.max_bytes).left else "features"


def check_memory(
    dataset: Dataset, settings: GNTKSettings, chosen: str, options: Options
) -> None:
    """Check that the kernels of a method fit.

    Raises:
        ValueError: they do not, or too many training nodes for the columns.
    """
    itemsize, num_nodes = jnp.zeros(0).dtype.itemsize, dataset.num_nodes
    room = memory.room(options.max_bytes)
    narrow = "float32, " if itemsize > 4 else ""
    how = {"exact": "", "blocks": " in blocks", "features": " by random features"}
    what = f"the GNTK{how[chosen]} of {num_nodes:,} nodes"
    sampled = feature_bytes(dataset, settings, itemsize)
    estimate = "method 'features', " if sampled <= room.left else ""
    other = f"{narrow}a smaller graph, {estimate}or RP (gnnrp rp)"
    if chosen == "exact":
        needed = exact_bytes(dataset, itemsize)
    elif chosen == "blocks":
        needed = column_bytes(dataset, itemsize)
    else:
        needed = sampled
        other = f"{narrow}a smaller num_features, or a smaller graph"
    memory.check(what, needed, room, f"take {other}")
    if chosen == "exact" and settings.route == "neural-tangents":
        _check_neural_tangents(dataset, room)


def _check_neural_tangents(dataset: Dataset, room: memory.Room) -> None:
    """Check that neural-tangents is installed, and that its kernels fit."""
    try:
        neural_tangents.load()
    except ImportError as error:
        msg = f"route 'neural-tangents' is not available: {error}"
        raise ValueError(msg) from error
    n, x = dataset.num_nodes, dataset.features
    num_features = n if x is None else x.shape[1]
    itemsize = jnp.zeros(0).dtype.itemsize
    memory.check(
        f"the GNTK of {n:,} nodes by neural-tangents",
        neural_tangents.peak_bytes(n, num_features, itemsize=itemsize),
        room,
        "take route 'recursion', which takes half of it, or a smaller graph",
    )


def exact_bytes(dataset: Dataset, itemsize: int) -> int:
    """Return the peak of method "exact"."""
    num_train = int(np.atleast_2d(dataset.splits.train).sum(axis=1).max())
    num_targets = datasets.num_targets(dataset)
    return peak_bytes(dataset.num_nodes, num_train, num_targets, itemsize=itemsize)


def peak_bytes(
    num_nodes: int, num_train: int, num_targets: int = 1, *, itemsize: int
) -> int:
    """Return the peak of the GNTK of a GCN of any depth and of its evaluation."""
    kernels = 2 * num_nodes**2 * itemsize  # K, N; later a centered N with a product
    factors = _factor_bytes(num_nodes, num_train, itemsize)
    scores = _score_bytes(num_nodes, num_targets, itemsize)
    return kernels + max(kernels, factors) + scores + memory.RUNTIME


def _factor_bytes(num_nodes: int, num_train: int, itemsize: int) -> int:
    """Return the peak of kernel regression, without the kernel."""
    num_train = min(num_train, exact.MAX_TRAIN)  # beyond, nothing is factorized
    return num_nodes * num_train * (itemsize + 16) + 16 * num_train**2


def _score_bytes(num_nodes: int, num_targets: int, itemsize: int) -> int:
    return num_nodes * num_targets * (3 * itemsize + 8)


def column_bytes(dataset: Dataset, itemsize: int) -> int:
    """Return the peak of method "blocks": K and Θ at the training nodes, and a tile."""
    n, count = dataset.num_nodes, len(_training_nodes(dataset))
    columns = n * count * (3 * itemsize + 16)
    tile = min(local.MAX_BYTES, 6 * n**2 * itemsize)
    inputs = 0 if dataset.features is None else 2 * n * dataset.features.shape[1]
    scores = _score_bytes(n, datasets.num_targets(dataset), itemsize)
    return columns + tile + inputs * itemsize + scores + memory.RUNTIME


def feature_bytes(dataset: Dataset, settings: GNTKSettings, itemsize: int) -> int:
    """Return the peak of method "features": all columns, and what is made of them."""
    n = dataset.num_nodes
    width = n if dataset.features is None else dataset.features.shape[1]
    sampled = 2 * settings.num_features + 2
    columns = width + (max(settings.depths) - 1) * sampled
    last = width if max(settings.depths) == 1 else sampled
    chunks = 4 * random_features.CHUNK + settings.num_features  # and Gaussians
    scores = _score_bytes(n, datasets.num_targets(dataset), itemsize)
    num_train = int(np.atleast_2d(dataset.splits.train).sum(axis=1).max())
    layer = n * (last + chunks) * itemsize
    units = n * min(num_train, exact.MAX_TRAIN) * itemsize  # unit vectors
    evaluation = _factor_bytes(n, num_train, itemsize)
    evaluation += min(units, linear_maps.BLOCK_BYTES)
    held = n * columns * itemsize
    return held + max(layer, evaluation) + scores + memory.RUNTIME


def build(
    dataset: Dataset,
    settings: GNTKSettings,
    matrix: sparse.Matrix,
    chosen: str,
) -> Iterator[tuple[int, WideKernel]]:
    """Yield depth and kernel, of ever deeper networks.

    Those of "exact" and "features" are overwritten by the next one.

    Raises:
        ValueError: Θ is zero or not finite on the training nodes.
    """
    if chosen == "blocks":
        yield from _by_blocks(dataset, settings)
    elif chosen == "features":
        yield from _by_features(dataset, settings, matrix)
    else:
        routes = {"recursion": _by_recursion, "neural-tangents": _by_neural_tangents}
        for depth, theta in routes[settings.route](dataset, settings, matrix):
            step_size = _safe_step(theta, np.atleast_2d(dataset.splits.train))
            yield depth, WideKernel(similarity.Dense(theta), step_size, theta)


def inputs(dataset: Dataset) -> jax.Array:
    """Return X X^T, of row-normalized features where the published settings say so."""
    x = node_features(dataset)
    return jnp.eye(dataset.num_nodes) if x is None else gntk.gram(x)


def node_features(dataset: Dataset) -> Any:
    """Return the features as a network reads them; None if they are one-hot."""
    if dataset.features is None:
        return None
    x = features.as_float(features.validate(dataset.features), jnp.zeros(0).dtype)
    preset = presets.SETTINGS.get(dataset.name)
    if preset is not None and preset.row_normalize:
        x = features.normalize_rows(x)
    return x


def _dense_features(dataset: Dataset) -> jax.Array:
    """Return X, the identity without features."""
    x = node_features(dataset)
    return (
        jnp.eye(dataset.num_nodes) if x is None else jnp.asarray(features.as_dense(x))
    )


def network(settings: GNTKSettings, depth: int) -> gntk.Network:
    """Return the network of the settings with a depth."""
    activation, bias = activations.by_name(settings.activation), settings.bias
    return gntk.Network(depth, activation, bias=bias, bias_std=settings.bias_std)


def _training_nodes(dataset: Dataset) -> Int[np.ndarray, " l"]:
    return np.flatnonzero(np.atleast_2d(dataset.splits.train).any(axis=0))


_layer = jax.jit(blocked.layer, donate_argnums=0, static_argnames=("first", "ntk_only"))
_by_library = jax.jit(neural_tangents.gcn)
_feature_layer = jax.jit(
    random_features.layer,
    donate_argnums=0,
    static_argnames=("number", "num_features"),
)


def _by_recursion(
    dataset: Dataset, settings: GNTKSettings, matrix: sparse.Matrix
) -> Iterator[tuple[int, jax.Array]]:
    """Yield depth and Θ, from 1 to the deepest: each continues from the one before."""
    kernels, one = gntk.initialize(inputs(dataset)), network(settings, 1)
    deepest = max(settings.depths)
    for depth in range(1, deepest + 1):
        kernels = _layer(
            kernels, matrix, one, first=depth == 1, ntk_only=depth == deepest
        )
        yield depth, kernels.ntk


def _by_neural_tangents(
    dataset: Dataset, settings: GNTKSettings, matrix: sparse.Matrix
) -> Iterator[tuple[int, jax.Array]]:
    """Yield depth and Θ, of each depth anew."""
    P, X = matrix(jnp.eye(dataset.num_nodes)), _dense_features(dataset)
    for depth in sorted(set(settings.depths)):
        yield depth, _by_library(P, X, network(settings, depth)).ntk


def _by_blocks(
    dataset: Dataset, settings: GNTKSettings
) -> Iterator[tuple[int, WideKernel]]:
    """Yield depth and the columns of the training nodes, of each depth anew."""
    adjacency = graph.normalized_adjacency(dataset.edges, dataset.num_nodes)
    x = node_features(dataset)
    if x is None:
        x = scipy.sparse.eye_array(dataset.num_nodes, format="csr")
        x = x.astype(jnp.zeros(0).dtype)
    index = _training_nodes(dataset)
    every = np.arange(dataset.num_nodes)
    train = np.atleast_2d(dataset.splits.train)[:, index]
    for depth in sorted(set(settings.depths)):
        columns = local.gcn(adjacency, x, every, index, network(settings, depth)).ntk
        step_size = _safe_step(jnp.asarray(columns[index]), train)
        flow = SomeColumns(jnp.asarray(columns), jnp.asarray(index))
        yield depth, WideKernel(flow, step_size)


def _by_features(
    dataset: Dataset, settings: GNTKSettings, matrix: sparse.Matrix
) -> Iterator[tuple[int, WideKernel]]:
    """Yield depth and Θ ~ Ψ Ψ^T; each continues from the one before."""
    found = random_features.initialize(_dense_features(dataset))
    key = jax.random.key(settings.seed)
    train = jnp.asarray(np.atleast_2d(dataset.splits.train).T, jnp.zeros(0).dtype)
    for depth in range(1, max(settings.depths) + 1):
        found = _feature_layer(
            found,
            matrix,
            network(settings, max(settings.depths)),
            jax.random.fold_in(key, depth - 1),
            number=depth - 1,
            num_features=settings.num_features,
        )
        if depth in settings.depths:
            flow = as_similarity(found)
            facts = {
                "num_features": settings.num_features,
                "num_columns": found.num_columns,
                "relative_error": relative_error(found, settings.seed),
            }
            yield depth, WideKernel(flow, largest_step(flow, train), facts=facts)


def largest_step(flow: LinearMap, train: Float[Array, "n s"]) -> float:
    """Return the least 1 / λ_max(Θ_XX) of all splits.

    Raises:
        ValueError: Θ is zero or not finite on the training nodes.
    """
    block = study_similarities.Block(flow, train)
    found = study_similarities.largest_eigenvalues(block, train)
    return _step(float(jnp.max(found)))


def _step(largest: float) -> float:
    if not np.isfinite(largest):
        kind = jnp.zeros(0).dtype
        msg = f"the GNTK exceeds {kind}; scale the features down, or take gelu or relu"
        raise ValueError(msg)
    if not largest > 0:
        msg = "the GNTK is zero on all training nodes; give them features, or a bias"
        raise ValueError(msg)
    return 1 / largest


def as_similarity(found: random_features.Features) -> similarity.Sum:
    """Return V -> Ψ (Ψ^T V)."""
    blocks = [block for block in found.blocks if block.ntk]
    factors = tuple(low_rank.Factored(block.columns) for block in blocks)
    dtype = blocks[0].columns.dtype
    return similarity.Sum(factors, jnp.asarray([block.ntk for block in blocks], dtype))


def relative_error(found: random_features.Features, seed: int = 0) -> float:
    """Return the estimated |Ψ Ψ^T - Θ| / |Θ| of some nodes, in the Frobenius norm."""
    num_nodes = found.blocks[0].columns.shape[0]
    count = min(NUM_ESTIMATED, num_nodes)
    nodes = np.random.default_rng(seed).choice(num_nodes, count, replace=False)
    error, theta = _error_and_size(found, jnp.asarray(np.sort(nodes)))
    return float(f"{float(error / theta):.3g}")


@jax.jit
def _error_and_size(found, nodes):
    errors = random_features.standard_errors(found, nodes, nodes)
    theta = random_features.kernels(found, nodes, nodes).ntk
    return jnp.linalg.norm(errors.ntk), jnp.linalg.norm(theta)


def _safe_step(theta: jax.Array, train: np.ndarray) -> float:
    """Return the least 1 / |Θ_XX|_∞ of all splits."""
    sums = jnp.abs(theta) @ jnp.asarray(train.T, theta.dtype)
    return _step(float(jnp.max(jnp.where(train.T, sums, 0))))
