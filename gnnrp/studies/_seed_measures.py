"""Alignments of a kernel with graph and labels, with and without the direction A 1.

All kernels are centered. A direction u, |u| = 1, is removed by P K P, P = I - u u^T,
which needs only K u.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gnnrp import metrics, sparse
from gnnrp.kernels.ntk import structured
from gnnrp.studies._graphs import Graph
from gnnrp.types import Layer

NAMES = (
    *("kernel_graph", "kernel_first", "kernel_labels", "test"),
    *("share", "rest_graph", "rest_labels"),
)
"""Alignments with A^4 of the graph, A^4 of the first graph and Θ*; accuracy; share of
|HΘH|^2 along A 1; without A 1, the alignments with A^4 of the first graph and Θ*."""

_HIGHEST = jax.lax.Precision.HIGHEST


class Centered(NamedTuple):
    """H K H with its product with the direction A 1 of a graph."""

    entries: Float[Array, "n n"]
    along: Float[Array, " n"]  # H K H u
    square: Float[Array, ""]  # |H K H|^2


class Reference(NamedTuple):
    """Targets and the direction A 1 of the kernels on a graph."""

    direction: Float[Array, " n"]  # u = H A 1 / |H A 1|; zero if A 1 is constant
    own: Centered  # A^4 of the graph
    first: Centered  # A^4 of the first graph
    labels: Float[Array, "n c"]  # H Y
    targets: Float[Array, "n c"]  # Y
    test: Bool[Array, " n"]


def references(
    graphs: list[Graph], targets: Float[Array, "n c"], test: Bool[Array, " n"]
) -> list[Reference]:
    """Return the reference of each graph."""
    shared = center(graphs[0].target)  # one array in memory
    labels = targets - jnp.mean(targets, axis=0)
    result = []
    for one in graphs:
        u = _direction(one.matrix)
        first = own = _along(shared, u)
        if one.target is not graphs[0].target:
            own = _along(center(one.target), u)
        result.append(Reference(u, own, first, labels, targets, test))
    return result


def _direction(matrix: sparse.Matrix) -> Array:
    sums = matrix(jnp.ones((matrix.shape[0], 1), matrix.data.dtype))[:, 0]
    sums = sums - jnp.mean(sums)
    norm = jnp.linalg.norm(sums)
    is_constant = norm < 1e-4 * len(sums) ** 0.5
    return jnp.where(is_constant, 0, sums / jnp.where(is_constant, 1, norm))


@jax.jit
def center(kernel: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return H K H of a symmetric K."""
    means = jnp.mean(kernel, axis=0)
    return kernel - means[None, :] - means[:, None] + jnp.mean(means)


def _along(entries: Array, direction: Array) -> Centered:
    along = jnp.matmul(entries, direction, precision=_HIGHEST)
    return Centered(entries, along, jnp.sum(entries**2))


@jax.jit
def measure(
    layers: tuple[Layer, Layer], x: Any, one: Graph, reference: Reference
) -> Float[Array, "q s"]:
    """Return the measures of ``NAMES`` of all seeds on a graph."""
    return jax.lax.map(lambda each: _measure(each, x, one, reference), layers).T


def _measure(
    layers: tuple[Layer, Layer], x: Any, one: Graph, reference: Reference
) -> Array:
    theta = structured.gcn(layers, x, one.matrix, reduce="sum", gram=one.gram)
    u, Y = reference.direction, reference.labels
    theta = _along(center(theta), u)
    whole = [_inner(theta, each) for each in (reference.own, reference.first)]
    alone = _without(theta, theta, theta.square, u)
    rest = _without(theta, reference.first, whole[1], u)
    other = _without(reference.first, reference.first, reference.first.square, u)
    return jnp.stack([
        whole[0] / _norm(theta.square, reference.own.square),
        whole[1] / _norm(theta.square, reference.first.square),
        _label_alignment(theta.entries, Y, theta.square),
        _accuracy(layers, x, one, reference),
        1 - alone / theta.square,
        rest / _norm(alone, other),
        _label_alignment(theta.entries, Y - jnp.outer(u, u @ Y), alone),
    ])


def _inner(one: Centered, other: Centered) -> Array:
    return jnp.sum(one.entries * other.entries)


def _norm(square: Array, other: Array) -> Array:
    return jnp.sqrt(square) * jnp.sqrt(other)


def _without(one: Centered, other: Centered, inner: Array, u: Array) -> Array:
    """Return <P K1 P, P K2 P> from <K1, K2>."""
    return inner - 2 * one.along @ other.along + (u @ one.along) * (u @ other.along)


def _label_alignment(theta: Array, Y: Array, square: Array) -> Array:
    inner = jnp.sum(Y * jnp.matmul(theta, Y, precision=_HIGHEST))
    ideal = jnp.linalg.norm(jnp.matmul(Y.T, Y, precision=_HIGHEST))
    return inner / jnp.sqrt(square) / ideal


def _accuracy(
    layers: tuple[Layer, Layer], x: Any, one: Graph, reference: Reference
) -> Array:
    for number, layer in enumerate(layers):
        x = jax.nn.relu(x) if number > 0 else x
        is_sparse = isinstance(x, sparse.Matrix)
        product = sparse.matmul if is_sparse else _matmul
        x = one.matrix(product(x, layer.weights))
        x = x if layer.bias is None else x + layer.bias
    return metrics.accuracy(x, reference.targets, reference.test)


def _matmul(x: Array, W: Array) -> Array:
    return jnp.matmul(x, W, precision=_HIGHEST)
