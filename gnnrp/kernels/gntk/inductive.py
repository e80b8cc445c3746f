"""Kernels of networks that train on one graph and predict on another.

The network is trained on l nodes through P_a, and tested on all n through P_b. Stacked
into one graph of l + n nodes whose parts do not touch, both are one network, and its
kernel has every block of the dynamics:

    [ Θ_aa  Θ_ab ]     Θ_aa drives training; the rows of Θ_ba = Θ_ab^T carry it to the
    [ Θ_ba  Θ_bb ]     nodes that are predicted.

It is a Gram matrix, so PSD; no network has the transductive kernel, restricted.

Source: App. C.1.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gnnrp import sparse
from gnnrp.kernels.gntk.recursion import Kernels
from gnnrp.runtime import checks
from gnnrp.types import LinearMap


class Blocks(NamedTuple):
    """The kernels of training and prediction."""

    train: Kernels  # a with a, (l, l)
    cross: Kernels  # b with a, (n, l): the effect of training residuals on each node
    all: Kernels  # b with b, (n, n): the prior of the predictions


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class BlockDiagonal:
    """V -> [P_a V_a; P_b V_b], two graphs that do not touch."""

    first: LinearMap
    second: LinearMap
    size: int = dataclasses.field(metadata={"static": True})  # rows of V_a

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return both products, one above the other."""
        parts = self.first(v[: self.size]), self.second(v[self.size :])
        return jnp.concatenate(parts)


def identity(v: Array) -> Array:
    """Return V: the propagation without a graph, with which a PMLP is trained."""
    return v


def submatrix(adjacency: Any, index: Int[np.ndarray, " l"]) -> sparse.Matrix:
    """Return A_XX, rows and columns of the normalized A, as a matrix of its own.

    This is the inductive setting of the paper. To normalize the induced subgraph
    itself, another common choice, pass its edges to ``graph.normalized_adjacency``.

    Args:
        adjacency: A, BCOO or scipy sparse.
        index: X, the nodes seen in training.

    Raises:
        ValueError: not a square matrix, or nodes out of range.
        TypeError: not sparse.
    """
    csr = sparse.to_scipy(adjacency)
    checks.square("the adjacency", csr)
    index = checks.node_ids("index", index, csr.shape[0])
    return sparse.prepare(csr[index][:, index])


def between(
    kernel_fn: Callable[[LinearMap, Array], Kernels],
    gram: Float[Array, "n n"],
    index: Int[np.ndarray, " l"],
    *,
    train: LinearMap,
    test: LinearMap,
) -> Blocks:
    """Return the kernels of a network trained on one graph and tested on another.

    Args:
        kernel_fn: (propagation, X X^T) -> kernels, such as
            ``functools.partial(gntk.gcn, network=network)``.
        gram: X X^T of all nodes.
        index: the nodes seen in training, in the order of the rows of P_a.
        train: V -> P_a V, of l nodes; ``identity`` for a network trained without the
            graph (PMLP).
        test: V -> P_b V, of all n nodes.

    Raises:
        ValueError: nodes out of range, or a gram matrix that is not square.
        TypeError: not a function, or not a linear map.

    Source: App. C.1. The appendix calls the off-diagonal block Θ^(pmlp) in the matrix
    and Θ^(ind) in its definition.
    """
    checks.function("kernel_fn", kernel_fn, "such as a partial of gntk.gcn")
    checks.linear_map("train", train)
    checks.linear_map("test", test)
    checks.square("gram", gram)
    gram, num_nodes = jnp.asarray(gram), len(gram)
    index = checks.node_ids("index", index, num_nodes)
    size = len(index)
    stacked = np.concatenate([index, np.arange(num_nodes)])
    both = kernel_fn(BlockDiagonal(train, test, size), gram[stacked][:, stacked])

    def block(rows, columns):
        return Kernels(*(kernel[rows, columns] for kernel in both))

    a, b = slice(size), slice(size, None)
    return Blocks(block(a, a), block(b, a), block(b, b))


def inductive(
    kernel_fn: Callable[[LinearMap, Array], Kernels],
    gram: Float[Array, "n n"],
    adjacency: Any,
    index: Int[np.ndarray, " l"],
) -> Blocks:
    """Return the kernels of training on A_XX alone and testing on A, see ``between``.

    A is BCOO or scipy sparse; ``index`` is X, the nodes seen in training.
    """
    train, test = submatrix(adjacency, index), sparse.prepare(adjacency)
    return between(kernel_fn, gram, index, train=train, test=test)
