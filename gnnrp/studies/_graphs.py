"""The graphs on which the kernel is tracked: memory limits, edges, and A^{2L}."""

import bisect
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float

from gnnrp import graph, sparse
from gnnrp.datasets import Dataset
from gnnrp.kernels import alignment, homophily
from gnnrp.kernels.ntk import structured
from gnnrp.models import training
from gnnrp.propagation import similarity
from gnnrp.runtime import memory
from gnnrp.studies.settings import NTKSettings

_SMALL = 2**20  # bytes of a network that are part of the constant of every run

Family = Callable[[float], Dataset]
"""Homophilic share in [0, 1] -> a graph of the same nodes, features and labels."""


class Graph(NamedTuple):
    """A graph on which the kernel is tracked."""

    matrix: sparse.Matrix
    gram: Float[Array, "n n"] | None  # of A X; None: recomputed for each kernel
    target: Float[Array, "n n"]  # A^{2L}, to which the kernel aligns
    kept: float  # share of edges, or of homophilic ones
    homophily: float  # A(A, Θ*), centered


def check_memory(
    dataset: Dataset,
    rule: training.Rule,
    num_graphs: int,
    max_bytes: int | None,
    *,
    synthetic: bool,
) -> bool:
    """Return whether the Gram matrices of all graphs fit in half of the memory too."""
    num_nodes, network, room = dataset.num_nodes, rule.network, memory.room(max_bytes)
    kernel_bytes, run_bytes = _peak_fns(dataset, rule, num_graphs if synthetic else 1)
    smaller = "a smaller depth, " if network.depth > 1 else ""
    smaller += "fewer graphs, " if synthetic and num_graphs > 1 else ""
    memory.check(
        f"the kernel of {num_nodes:,} nodes on {num_graphs} graphs",
        kernel_bytes(0),
        room,
        f"take {smaller}a smaller graph, or estimates (kernels.ntk.stochastic)",
    )
    widest = bisect.bisect(range(network.width), room.left, key=run_bytes)
    remedy = f"width of at most {widest - 1:,}" if widest > 1 else "smaller graph"
    memory.check(
        f"a GCN of width {network.width:,} and depth {network.depth} on "
        f"{num_nodes:,} nodes",
        run_bytes(network.width),
        room,
        f"take a {remedy}",
    )
    return run_bytes(network.width, num_graphs) <= room.left / 2


def _peak_fns(
    dataset: Dataset, rule: training.Rule, num_targets: int
) -> tuple[Callable[..., int], Callable[..., int]]:
    """Return the peak of a kernel, and of a run by its width, with so many Grams."""
    num_nodes, features = dataset.num_nodes, dataset.features
    num_features = num_nodes if features is None else features.shape[1]
    shape, network = (num_nodes, num_features), rule.network
    itemsize = jnp.zeros(0).dtype.itemsize
    kernel_bytes = functools.partial(
        structured.peak_bytes, *shape, network.depth, num_targets, itemsize=itemsize
    )

    def run_bytes(width: int, num_grams: int = 0) -> int:
        wide = rule._replace(network=dataclasses.replace(network, width=width))
        state = training.state_bytes(wide, num_features, itemsize=itemsize)
        kernel = kernel_bytes(num_grams)
        whole = kernel_bytes(num_grams, width=width, num_classes=dataset.num_classes)
        extra = state + whole - kernel
        trained = training.peak_bytes(wide, shape, itemsize=itemsize)
        return max(trained, kernel + max(0, extra - _SMALL))

    return kernel_bytes, run_bytes


def build(
    dataset: Dataset,
    x: Any,
    settings: NTKSettings,
    *,
    family: Family | None,
    hold: bool,
    normalization: str = "symmetric",
) -> list[Graph]:
    """Return the graphs with the union of their edges, so that all share one trace.

    Args:
        dataset: of edges and labels.
        x: inputs.
        settings: of the thinning and the depth.
        family: of synthetic graphs, each with its own A^{2L}; thinned graphs of the
            dataset all have that of the first.
        hold: store the Gram matrix of each graph's inputs.
        normalization: of A, see ``graph.normalize``; A^{2L} is that of the symmetric A.
    """
    shares = [float(share) for share in np.linspace(1, 0, settings.num_graphs)]
    manner, seed, power = settings.manner, settings.seed, 2 * settings.depth
    raw = raw_graphs(dataset, shares, family=family, seed=seed, manner=manner)
    normalized = [graph.normalize(w) for w in raw]
    symmetric = matrices = _with_shared_pattern(normalized)
    if normalization != "symmetric":
        scaled = [graph.normalize(w, normalization=normalization) for w in raw]
        matrices = _with_shared_pattern(scaled)
    target = _power(symmetric[0], power)
    result = []
    for adjacency, plain, matrix, share in zip(
        normalized, symmetric, matrices, shares, strict=True
    ):
        if family is not None and result:
            target = _power(plain, power)
        level = homophily.level(adjacency, dataset.labels, centered=True)
        gram = _gram(x, matrix) if hold else None
        result.append(Graph(matrix, gram, target, share, float(level)))
    return result


def describe(one: Graph) -> dict[str, float]:
    """Return the plain numbers of a graph for a record."""
    return {"kept": one.kept, "homophily": round(one.homophily, 6)}


def describe_target(one: Graph, ideal: alignment.Factor) -> float:
    """Return A(A^{2L}, Θ*), centered: the alignment of a perfect copy of the graph."""
    return round(float(alignment.alignment(one.target, ideal, centered=True)), 6)


def raw_graphs(
    dataset: Dataset,
    shares: list[float],
    *,
    family: Family | None,
    seed: int,
    manner: str,
) -> list[scipy.sparse.csr_array]:
    """Return W of each share: from the family, or of the dataset's thinned graph."""
    if family is not None:
        members = [family(share) for share in shares]
        return [graph.raw_adjacency(x.edges, x.num_nodes) for x in members]
    return [
        graph.drop_edges(
            dataset.edges, dataset.num_nodes, drop=1 - share, seed=seed, mode=manner
        )
        for share in shares
    ]


def _with_shared_pattern(matrices: list[scipy.sparse.csr_array]) -> list[sparse.Matrix]:
    """Return the matrices with the union of their entries, explicit zeros included."""
    n = matrices[0].shape[0]
    keys = [a.tocoo().row.astype(np.int64) * n + a.tocoo().col for a in matrices]
    union = np.unique(np.concatenate(keys))
    ones = scipy.sparse.csr_array((np.ones(len(union)), np.divmod(union, n)), (n, n))
    whole = sparse.prepare(ones, reorder=False)
    result = []
    for a, key in zip(matrices, keys, strict=True):
        data = np.zeros(len(union), whole.data.dtype)
        data[np.searchsorted(union, key)] = a.data
        result.append(dataclasses.replace(whole, data=jnp.asarray(data)))
    return result


@functools.partial(jax.jit, static_argnames="power")
def _power(matrix: sparse.Matrix, power: int) -> Array:
    eye = jnp.eye(matrix.shape[0], dtype=matrix.data.dtype)
    return similarity.Power(matrix, power)(eye)


_gram = jax.jit(structured.gram)
