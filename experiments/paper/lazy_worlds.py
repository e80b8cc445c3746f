"""Small graphs on which finite networks are compared with the infinite kernel.

The synthetic graph has 60 nodes in three blocks. Of Cora we take the first labeled
nodes of each class and their neighborhood of two hops, with the rows and columns of the
normalized adjacency of the whole graph: networks of two layers then have the same
outputs on the training nodes as on the whole graph. Rows of features have length one
and are rotated to at most n columns, which changes neither the Gram matrix nor the law
of a network with normal weights. They are then scaled so that outputs of the infinite
network have variance one on average: the scale of the outputs decides how lazy a
network is.

Source: Def. 4.1.
"""

import importlib.util
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int

from gnnrp import datasets, graph, sparse
from gnnrp.datasets import sbm
from gnnrp.kernels import alignment, gntk
from gnnrp.kernels.gntk import neural_tangents
from gnnrp.propagation import similarity

PARAMETERIZATIONS = ("ntk", "standard")
_HOPS = 2
_LABELED = {"sbm": 4, "others": 3}  # training nodes per class


class World(NamedTuple):
    """A graph with features, targets and training nodes."""

    matrix: sparse.Matrix
    x: Float[Array, "n r"]
    targets: Float[Array, "n c"]  # one-hot
    labels: Int[np.ndarray, " n"]
    train: Int[np.ndarray, " l"]
    num_features: int  # d, before the rotation

    @property
    def rest(self) -> Int[np.ndarray, " q"]:
        """Nodes outside of the training set."""
        return np.setdiff1d(np.arange(len(self.labels)), self.train)


class Infinite(NamedTuple):
    """Kernels of the infinitely wide network, and the targets of alignments."""

    ntk: Float[Array, "n n"]
    first: Float[Array, "n n"]  # share of the first layer
    hops: Float[Array, "n n"]  # A^{2L}
    ideal: alignment.Factor  # Θ*
    routes: float | None  # relative difference of the two routes; None: only one


def build(data: datasets.Dataset, depth: int, seed: int) -> World:
    """Return the small graph of a dataset.

    Args:
        data: the synthetic one is replaced by one of 60 nodes.
        depth: L of the networks, for the scale of the features.
        seed: of the synthetic graph.

    Raises:
        ValueError: a dataset without features.
    """
    if data.features is None:
        msg = f"networks need features, and those of {data.name} are absent"
        raise ValueError(msg)
    labeled = _LABELED["sbm" if data.name == "sbm" else "others"]
    if data.name == "sbm":
        data = synthetic(labeled, seed)
    features: Any = data.features
    candidates = np.flatnonzero(data.splits.train[0])
    classes = data.labels[candidates]
    chosen = [candidates[classes == k][:labeled] for k in range(data.num_classes)]
    train = np.sort(np.concatenate(chosen))
    adjacency = graph.normalized_adjacency(data.edges, data.num_nodes)
    A = sparse.to_scipy(adjacency).tocsr()
    nodes = np.arange(data.num_nodes)
    if data.name != "sbm":
        nodes = neighborhood(A, train, _HOPS)
    matrix = sparse.prepare(A[nodes][:, nodes], reorder=False)
    x = jnp.asarray(_rotated(features[nodes]), matrix.data.dtype)
    outputs = gntk.gcn(matrix, gntk.gram(x), gntk.Network(depth)).nngp
    return World(
        matrix,
        x / jnp.sqrt(jnp.mean(jnp.diagonal(outputs))),
        jnp.asarray(datasets.targets(data)[nodes], x.dtype),
        np.asarray(data.labels)[nodes],
        np.searchsorted(nodes, train),
        features.shape[1],
    )


def neighborhood(
    A: scipy.sparse.csr_array, nodes: Int[np.ndarray, " l"], hops: int
) -> Int[np.ndarray, " q"]:
    """Return the nodes within some hops of others; A has self-loops."""
    near = np.zeros(A.shape[0])
    near[nodes] = 1
    for _ in range(hops):
        near = (A @ near > 0).astype(float)
    return np.flatnonzero(near)


def infinite(world: World, depth: int) -> Infinite:
    """Return the kernels of infinite width, by both routes where both are installed."""
    gram = gntk.gram(world.x)
    ntk = gntk.gcn(world.matrix, gram, gntk.Network(depth)).ntk
    one = gntk.Network(depth, trained=[True] + [False] * (depth - 1))
    first = gntk.gcn(world.matrix, gram, one).ntk
    eye = jnp.eye(len(world.x), dtype=world.x.dtype)
    routes = None
    if importlib.util.find_spec("neural_tangents") is not None:
        dense = world.matrix(eye)
        other = neural_tangents.gcn(dense, world.x, gntk.Network(depth)).ntk
        routes = distance(other, ntk)
    hops = similarity.Power(world.matrix, 2 * depth)(eye)
    return Infinite(ntk, first, hops, alignment.ideal_kernel(world.targets), routes)


def kernel(
    kernels: Infinite, world: World, parameterization: str, width: int
) -> Float[Array, "n n"]:
    """Return the kernel that a network of some width has on average at the start.

    A weight of the standard parameterization is c times one of the NTK
    parameterization, with c² = 2 / m, or 2 / d in the first layer, whose inputs are
    larger by 1 / c. So its share of the kernel is 1 / c² as large.
    """
    if parameterization == "ntk":
        return kernels.ntk
    later = kernels.ntk - kernels.first
    return world.num_features / 2 * kernels.first + width / 2 * later


def distance(one: Array, other: Array) -> float:
    """Return |one - other| / |other|, Frobenius norms."""
    return float(jnp.linalg.norm(one - other) / jnp.linalg.norm(other))


def synthetic(labeled: int, seed: int) -> datasets.Dataset:
    """Return three blocks of 20 nodes with edges between them."""
    return sbm.generate(
        seed,
        num_blocks=3,
        block_size=20,
        intra_probability=0.12,
        inter_probability=0.06,
        homophilic_fraction=0.8,
        num_features=64,
        class_separation=0.5,
        train_per_class=labeled,
        num_val=1,
        num_test=1,
    )


def _rotated(features: Any) -> Float[np.ndarray, "n r"]:
    """Return rows of length one (or zero) with at most n columns."""
    if scipy.sparse.issparse(features):
        features = features.toarray()
    x = np.asarray(features, np.float64)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    if x.shape[1] <= len(x):
        return x
    triangle: Any = np.linalg.qr(x.T, mode="r")
    return triangle.T
