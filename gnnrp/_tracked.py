"""The graphs that a kernel is tracked on, and what the paper found on them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float

from gnnrp import graph, spmm
from gnnrp.datasets import Dataset
from gnnrp.kernels import homophily, structured
from gnnrp.propagation import similarity

Family = Callable[[float], Dataset]
"""Homophilic share in [0, 1] -> a graph of the same nodes, features and labels."""


class Graph(NamedTuple):
    """A graph that the kernel is looked at on."""

    matrix: spmm.Matrix
    gram: Float[Array, "n n"] | None  # of A X; None: made anew each time
    target: Float[Array, "n n"]  # A^{2L}, that the kernel should align with
    kept: float  # share of edges, or of homophilic ones
    homophily: float  # A(A, Θ*), centered


def build(
    raw: list[scipy.sparse.csr_array],
    kept: list[float],
    dataset: Dataset,
    x: Any,
    *,
    depth: int,
    synthetic: bool,
    hold: bool,
) -> list[Graph]:
    """Return graphs on the union of their edges, so that all share one trace.

    Args:
        raw: W of each.
        kept: share of its edges.
        dataset: its labels.
        x: inputs.
        depth: L.
        synthetic: every graph has its own A^{2L}, else all have that of the first.
        hold: keep the Gram matrix of each graph's inputs.
    """
    normalized = [graph.normalize(w) for w in raw]
    matrices = _on_one_pattern(normalized)
    found: list[Graph] = []
    for adjacency, matrix, share in zip(normalized, matrices, kept, strict=True):
        target = found[0].target if found else None
        if synthetic or target is None:
            target = _powered(matrix, 2 * depth)
        level = homophily.level(adjacency, dataset.labels, centered=True)
        gram = _gram(x, matrix) if hold else None
        found.append(Graph(matrix, gram, target, share, float(level)))
    return found


def raw_graphs(
    dataset: Dataset,
    kept: list[float],
    *,
    family: Family | None,
    seed: int,
    manner: str,
) -> list[scipy.sparse.csr_array]:
    """Return W of each share: of a family, or of the data set's own graph, thinned."""
    if family is not None:
        members = [family(share) for share in kept]
        return [graph.raw_adjacency(x.edges, x.num_nodes) for x in members]
    return [
        graph.thinned(
            dataset.edges, dataset.num_nodes, drop=1 - share, seed=seed, manner=manner
        )
        for share in kept
    ]


def claims(
    rows: list[dict[str, Any]], graphs: list[Graph], *, synthetic: bool
) -> dict[str, bool]:
    """Return whether each of the paper's findings holds in these rows.

    A quantity falls along the graphs if the mean of the first third of them, which have
    most edges (or homophilic ones), is above that of the last third.

    Args:
        rows: of looks.
        graphs: that the looks were at.
        synthetic: which findings.

    Source: Section 6, "Synthetic Dataset", "Real-World Datasets" and what follows.
    """
    first, last = (
        {name: np.array([g[name] for g in row["graphs"]]) for name in row["graphs"][0]}
        for row in (rows[0], rows[-1])
    )
    rises = last["kernel_labels"].mean() > first["kernel_labels"].mean()
    found = {"training raises kernel-target alignment": bool(rises)}
    levels = np.array([g.homophily for g in graphs])
    if synthetic:
        near = last["kernel_graph"]
        stays = near.min() > near.max() / 2 and _falls(levels)
        return found | {
            "kernel-graph alignment stays high while homophily falls": bool(stays),
            "kernel-target alignment falls with it": _falls(last["kernel_labels"]),
            "test accuracy falls with it": _falls(last["test"]),
        }
    sign, word = (1, "better") if levels[0] > levels[-1] else (-1, "worse")
    return found | {
        "less graph, lower kernel-graph alignment": _falls(last["kernel_graph"]),
        f"more graph, {word} kernel-target alignment": _falls(
            sign * last["kernel_labels"]
        ),
        f"more graph, {word} test accuracy": _falls(sign * last["test"]),
    }


def _on_one_pattern(some: list[scipy.sparse.csr_array]) -> list[spmm.Matrix]:
    """Lay matrices out with the places of all of them, zeros where one has no entry."""
    n = some[0].shape[0]
    keys = [a.tocoo().row.astype(np.int64) * n + a.tocoo().col for a in some]
    union = np.unique(np.concatenate(keys))
    place = np.divmod(union, n)
    like = scipy.sparse.csr_array((np.ones(len(union)), place), shape=(n, n))
    whole = spmm.prepare(like, reorder=False)
    found = []
    for a, key in zip(some, keys, strict=True):
        data = np.zeros(len(union), whole.data.dtype)
        data[np.searchsorted(union, key)] = a.data
        found.append(dataclasses.replace(whole, data=jnp.asarray(data)))
    return found


@functools.partial(jax.jit, static_argnames="power")
def _powered(matrix: spmm.Matrix, power: int) -> Array:
    eye = jnp.eye(matrix.shape[0], dtype=matrix.data.dtype)
    return similarity.Power(matrix, power)(eye)


_gram = jax.jit(structured.gram)


def _falls(values: np.ndarray) -> bool:
    third = max(1, len(values) // 3)
    return bool(values[:third].mean() > values[-third:].mean())
