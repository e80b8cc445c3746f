"""The graphs that a kernel is tracked on, and what the paper found on them."""

import bisect
import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from jaxtyping import Array, Float

from gnnrp import graph, sparse
from gnnrp.datasets import Dataset
from gnnrp.kernels import homophily
from gnnrp.kernels.ntk import structured
from gnnrp.models import training
from gnnrp.propagation import similarity
from gnnrp.runtime import memory
from gnnrp.types import Split

NUM_EIGENVALUES = 3
_SMALL = 2**20  # bytes of a network that lie within what every run holds
MARGIN = 0.01  # between alignments that are called different
HIGH = 0.2  # what a kernel-graph alignment that stays high stays above
_JUDGED = ("kernel_graph", "kernel_labels", "test")

Family = Callable[[float], Dataset]
"""Homophilic share in [0, 1] -> a graph of the same nodes, features and labels."""


class Graph(NamedTuple):
    """A graph that the kernel is looked at on."""

    matrix: sparse.Matrix
    gram: Float[Array, "n n"] | None  # of A X; None: made anew each time
    target: Float[Array, "n n"]  # A^{2L}, that the kernel should align with
    kept: float  # share of edges, or of homophilic ones
    homophily: float  # A(A, Θ*), centered


def fits(
    dataset: Dataset,
    rule: training.Rule,
    num_graphs: int,
    max_bytes: int | None,
    *,
    synthetic: bool,
) -> bool:
    """Return whether the Gram matrices of all graphs fit too, in half of the memory.

    Raises:
        ValueError: the kernel or the training of the network does not fit.
    """
    num_nodes, features = dataset.num_nodes, dataset.features
    num_features = num_nodes if features is None else features.shape[1]
    network, itemsize = rule.network, jnp.zeros(0).dtype.itemsize
    look = functools.partial(
        structured.peak_bytes,
        num_nodes,
        num_features,
        network.depth,
        num_graphs if synthetic else 1,
        itemsize=itemsize,
    )
    room = memory.room(max_bytes)
    memory.check(
        f"the kernel of {num_nodes:,} nodes on {num_graphs} graphs",
        look(0),
        room,
        f"take {'a smaller depth, ' if network.depth > 1 else ''}a smaller graph, or "
        "estimates (kernels.stochastic)",
    )
    shape = num_nodes, num_features

    def of_width(width: int, num_grams: int) -> int:
        wide = rule._replace(network=dataclasses.replace(network, width=width))
        state = training.state_bytes(wide, num_features, itemsize=itemsize)
        trained = training.peak_bytes(wide, shape, itemsize=itemsize)
        columns = {"width": width, "num_classes": dataset.num_classes}
        beside = state + look(num_grams, **columns) - look(num_grams)
        return max(trained, look(num_grams) + max(0, beside - _SMALL))

    most = bisect.bisect(range(network.width), room.left, key=lambda m: of_width(m, 0))
    remedy = f"width of at most {most - 1:,}" if most > 1 else "smaller graph"
    memory.check(
        f"a GCN of width {network.width:,} and depth {network.depth} on "
        f"{num_nodes:,} nodes",
        of_width(network.width, 0),
        room,
        f"take a {remedy}",
    )
    return of_width(network.width, num_graphs) <= room.left / 2


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
    rows: list[dict[str, Any]],
    graphs: list[Graph],
    *,
    synthetic: bool,
    num_test: int,
) -> dict[str, bool]:
    """Return whether each of the paper's findings holds in these rows.

    The last look is judged, at the graph with most edges (or homophilic ones) and that
    with least. Alignments must differ by ``MARGIN``, accuracies by the standard error
    that so many test nodes leave at most, (4 n)^-1/2.

    Args:
        rows: of looks.
        graphs: that the looks were at.
        synthetic: which findings.
        num_test: nodes that accuracy is taken on.

    Source: Section 6, "Synthetic Dataset", "Real-World Datasets" and what follows.
    """
    first, last = (
        {name: np.array([g[name] for g in row["graphs"]]) for name in _JUDGED}
        for row in (rows[0], rows[-1])
    )
    error = (4 * max(1, num_test)) ** -0.5

    def falls(values: np.ndarray, margin: float = MARGIN) -> bool:
        return bool(values[0] - values[-1] > margin)

    means = [each["kernel_labels"].mean() for each in (first, last)]
    found = {"training raises kernel-target alignment": falls(np.array(means[::-1]))}
    levels = np.array([g.homophily for g in graphs])
    if synthetic:
        near = last["kernel_graph"]
        stays = near.min() > max(near.max() / 2, HIGH) and falls(levels)
        return found | {
            "kernel-graph alignment stays high while homophily falls": bool(stays),
            "kernel-target alignment falls with it": falls(last["kernel_labels"]),
            "test accuracy falls with it": falls(last["test"], error),
        }
    sign, word = (1, "better") if levels[0] > levels[-1] else (-1, "worse")
    return found | {
        "less graph, lower kernel-graph alignment": falls(last["kernel_graph"]),
        f"more graph, {word} kernel-target alignment": falls(
            sign * last["kernel_labels"]
        ),
        f"more graph, {word} test accuracy": falls(sign * last["test"], error),
    }


def fault(rows: Any, t: int, every: int, num_graphs: int) -> str | None:
    """Return the fault of the rows of a run at step t, or None."""
    try:
        steps = [row["step"] for row in rows]
        entries = [entry for row in rows for entry in row["graphs"]]
        numbers = [len(row["graphs"]) for row in rows]
        names = {tuple(sorted(entry)) for entry in entries}
        values = [x for entry in entries for x in _flat(entry)]
    except (TypeError, LookupError, AttributeError):
        return "its rows cannot be read"
    due = {*range(0, t, every), t}
    whole = all(type(step) is int for step in steps) and {*steps} >= due
    if not whole or steps != sorted({*steps}) or steps[-1] != t:
        return "its rows are not those of the steps of the run"
    if {*numbers} != {num_graphs} or len(names) != 1:
        return "a row does not have an entry for each graph"
    if any(type(x) not in {int, float} for x in values):
        return "a row has a value that is not a number"
    return None


def are_alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two entries of a graph agree, up to round-off.

    Accuracies may differ by a tenth, since round-off may move nodes across ties.
    """
    found, expected = (np.array(_flat(entry), float) for entry in (one, other))
    if one.keys() != other.keys() or found.shape != expected.shape:
        return False
    names = [name for name in sorted(one) for _ in _flat({name: one[name]})]
    slack = np.where(np.isin(names, Split._fields), 0.1, 1e-4)
    return np.allclose(found, expected, 1e-3, slack, equal_nan=True)


def _flat(entry: dict[str, Any]) -> list[Any]:
    """Return the numbers of an entry in the order of their names."""
    return [
        x
        for name in sorted(entry)
        for x in (entry[name] if name == "eigenvalues" else [entry[name]])
    ]


def largest(theta: np.ndarray) -> list[float]:
    """Return the largest eigenvalues, by Lanczos from a fixed vector."""
    if not np.isfinite(theta).all():
        return []
    values = None
    if len(theta) > 2 * NUM_EIGENVALUES:
        settings: dict[str, Any] = {"v0": np.ones(len(theta), theta.dtype), "tol": 1e-4}
        # It fails on a zero matrix.
        with contextlib.suppress(scipy.sparse.linalg.ArpackError):
            values = scipy.sparse.linalg.eigsh(
                theta, NUM_EIGENVALUES, return_eigenvectors=False, **settings
            )
    if values is None:
        values = np.linalg.eigvalsh(theta)[-NUM_EIGENVALUES:]
    return [float(f"{x:.6g}") for x in values[::-1]]


def _on_one_pattern(some: list[scipy.sparse.csr_array]) -> list[sparse.Matrix]:
    """Lay matrices out with the places of all of them, zeros where one has no entry."""
    n = some[0].shape[0]
    keys = [a.tocoo().row.astype(np.int64) * n + a.tocoo().col for a in some]
    union = np.unique(np.concatenate(keys))
    place = np.divmod(union, n)
    like = scipy.sparse.csr_array((np.ones(len(union)), place), shape=(n, n))
    whole = sparse.prepare(like, reorder=False)
    found = []
    for a, key in zip(some, keys, strict=True):
        data = np.zeros(len(union), whole.data.dtype)
        data[np.searchsorted(union, key)] = a.data
        found.append(dataclasses.replace(whole, data=jnp.asarray(data)))
    return found


@functools.partial(jax.jit, static_argnames="power")
def _powered(matrix: sparse.Matrix, power: int) -> Array:
    eye = jnp.eye(matrix.shape[0], dtype=matrix.data.dtype)
    return similarity.Power(matrix, power)(eye)


_gram = jax.jit(structured.gram)
