"""Rows of a tracked kernel: eigenvalues, columns, checks on resuming."""

import contextlib
from typing import Any

import numpy as np
import scipy.sparse.linalg

from gnnrp.types import Split

NUM_EIGENVALUES = 3


def largest_eigenvalues(theta: np.ndarray) -> list[float]:
    """Return the largest eigenvalues, by Lanczos from a fixed vector."""
    if not np.isfinite(theta).all():
        return []
    values = None
    if len(theta) > 2 * NUM_EIGENVALUES:
        lanczos: dict[str, Any] = {"v0": np.ones(len(theta), theta.dtype), "tol": 1e-4}
        # It fails on a zero matrix.
        with contextlib.suppress(scipy.sparse.linalg.ArpackError):
            values = scipy.sparse.linalg.eigsh(
                theta, NUM_EIGENVALUES, return_eigenvectors=False, **lanczos
            )
    if values is None:
        values = np.linalg.eigvalsh(theta)[-NUM_EIGENVALUES:]
    return [float(f"{x:.6g}") for x in values[::-1]]


def columns(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Return the alignments and accuracies of the rows, each (step, graph)."""
    names = ("kernel_graph", "kernel_labels", "test")
    return {
        name: np.array([[g[name] for g in row["graphs"]] for row in rows])
        for name in names
    }


def find_fault(rows: Any, due: list[int], num_graphs: int) -> str | None:
    """Return the fault of the rows of a run whose steps are due, or None."""
    try:
        steps = [row["step"] for row in rows]
        entries = [entry for row in rows for entry in row["graphs"]]
        counts = {len(row["graphs"]) for row in rows}
        names = {tuple(sorted(entry)) for entry in entries}
        values = [x for entry in entries for x in _numbers(entry)]
    except (TypeError, LookupError, AttributeError):
        return "its rows cannot be read"
    complete = all(type(step) is int for step in steps) and {*steps} >= {*due}
    if not complete or steps != sorted({*steps}) or steps[-1] != due[-1]:
        return "its rows are not those of the steps of the run"
    if counts != {num_graphs} or len(names) != 1:
        return "a row does not have an entry for each graph"
    if any(type(x) not in {int, float} for x in values):
        return "a row has a value that is not a number"
    return None


def are_close(entry: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Return whether two entries of a graph agree up to round-off."""
    values, others = (np.array(_numbers(each), float) for each in (entry, expected))
    if entry.keys() != expected.keys() or values.shape != others.shape:
        return False
    names = [name for name in sorted(entry) for _ in _numbers({name: entry[name]})]
    # Round-off may move nodes across ties, and change accuracies.
    slack = np.where(np.isin(names, Split._fields), 0.1, 1e-4)
    return np.allclose(values, others, 1e-3, slack, equal_nan=True)


def _numbers(entry: dict[str, Any]) -> list[Any]:
    """Return the numbers of an entry in the order of their names."""
    return [
        x
        for name in sorted(entry)
        for x in (entry[name] if name == "eigenvalues" else [entry[name]])
    ]
