"""A graph from tables of edges, labels and features, with node ids of any kind.

The nodes are the ids of the edges and of the features, in the order of their first
occurrence. Labels of other ids are dropped and counted, as are self-loops.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from gnnrp.graph import edge_lists
from gnnrp.runtime import checks, safe_text
from gnnrp.tables import feature_columns
from gnnrp.tables.files import MISSING, Table
from gnnrp.tables.settings import TableSettings

DUPLICATES = ("error", *edge_lists.COMBINE)
DEFAULTS = TableSettings()


class GraphTables(NamedTuple):
    """Arrays of a graph, and the number of rows and values that do not count."""

    ids: np.ndarray  # (n,) text
    edges: Int[np.ndarray, "2 e"]  # without self-loops
    weights: Float[np.ndarray, " e"] | None
    codes: Int[np.ndarray, " n"]  # class of each node; -1: no label
    classes: np.ndarray  # (c,) text, sorted
    features: feature_columns.Features | None
    dropped: dict[str, int]


def make(
    edges: Table,
    labels: Table,
    features: Table | None = None,
    settings: TableSettings = DEFAULTS,
) -> GraphTables:
    """Return the graph of two or three tables.

    Args:
        edges: an edge in each row; its direction does not count.
        labels: a node and its label in each row; empty if it has none.
        features: a node and its features in each row.
        settings: columns, and rules for edges.

    Raises:
        ValueError: a column that does not exist, an empty or repeated id, a weight that
            is no number, an edge with several weights, two labels of a node, or no
            label at all.
    """
    checks.one_of("duplicates", settings.duplicates, DUPLICATES)
    source, target, weight = _edge_columns(edges, settings.edge_columns)
    _check_header(edges, source, target)
    ends = [_ids(edges, source), _ids(edges, target)]
    owners, feature_names = np.array([], object), []
    if features is not None:
        id_column, *feature_names = _names(features, settings.feature_columns)
        owners = _ids(features, id_column)
    elif settings.categorical:
        msg = "categorical needs a table of features; leave it out"
        raise ValueError(msg)
    ids, nodes = _factorize(np.concatenate([*ends, owners]))
    pairs = nodes[: 2 * edges.num_rows].reshape(2, -1)
    loops = pairs[0] == pairs[1]
    weights = None
    if weight is not None:
        weights = _weights(edges, weight, signed=settings.signed)
        if settings.duplicates == "error":
            _check_duplicates(edges, pairs, weights)
        weights = weights[~loops]
    codes, classes, num_unknown = _labels(labels, settings.label_columns, ids)
    dropped = {"self-loops": int(loops.sum()), "labels of unknown ids": num_unknown}
    encoded = None
    if features is not None:
        rows = _rows(features, id_column, nodes[2 * edges.num_rows :], len(ids))
        categorical = tuple(features.name(name) for name in settings.categorical)
        encoded = feature_columns.encode(
            features, feature_names, rows, categorical=categorical
        )
        dropped |= {
            "nodes without features": int((rows < 0).sum()),
            "missing features": encoded.num_missing,
            "empty or constant columns": len(encoded.dropped),
        }
    return GraphTables(ids, pairs[:, ~loops], weights, codes, classes, encoded, dropped)


def _edge_columns(
    table: Table, columns: tuple[str, ...]
) -> tuple[str, str, str | None]:
    """Return the names of source, target and weight."""
    if not columns:
        columns = _first_two(table) + (("weight",) * ("weight" in table.columns))
    if len(columns) not in {2, 3}:
        msg = (
            "edge_columns must name source, target and perhaps weight, got "
            f"{len(columns)} columns"
        )
        raise ValueError(msg)
    source, target, *weight = map(table.name, columns)
    return source, target, weight[0] if weight else None


def _names(table: Table, columns: tuple[str, ...]) -> list[str]:
    """Return the names of the columns of ids and features."""
    names = [table.name(column) for column in columns] or list(table.columns)
    if len(names) < 2:
        msg = f"{table.path} needs a column of ids and one of features, got {names}"
        raise ValueError(msg)
    return names


def _first_two(table: Table) -> tuple[str, ...]:
    if len(table.columns) < 2:
        msg = (
            f"{table.path} needs two columns, got {list(table.columns)}; separate them "
            "by commas, semicolons or tabs"
        )
        raise ValueError(msg)
    return tuple(table.columns)[:2]


def _check_header(table: Table, *columns: str) -> None:
    """Refuse a first line that looks like an edge."""
    if table.first_line != 2:
        return
    known = set(table.columns[columns[0]]) | set(table.columns[columns[1]])
    if all(name in known for name in columns):
        msg = (
            f"the first line of {table.path} is an edge rather than a header, since "
            f"{columns[0]!r} and {columns[1]!r} are ids of other lines; pass "
            "header=False (--no-header)"
        )
        raise ValueError(msg)


def _ids(table: Table, column: str) -> np.ndarray:
    """Return a column of ids, none of which is empty."""
    ids = table.columns[column]
    if (empty := ids == "").any():
        row = int(np.argmax(empty))
        msg = f"{table.place(row)}: the id in column {column!r} is empty; add it"
        raise ValueError(msg)
    return ids


def _factorize(ids: np.ndarray) -> tuple[np.ndarray, Int[np.ndarray, " r"]]:
    """Return the distinct ids in the order of occurrence, and the number of each."""
    distinct, first, inverse = np.unique(
        ids.astype(str), return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return distinct[order], rank[inverse.ravel()]


def _weights(table: Table, column: str, *, signed: bool) -> Float[np.ndarray, " e"]:
    """Return the weights of the edges."""
    texts = table.columns[column]
    weights = np.full(len(texts), np.nan)
    for row, text in enumerate(texts):
        try:
            weights[row] = float(text)
        except ValueError:
            break
    invalid = ~np.isfinite(weights) | ((weights < 0) & (not signed))
    if invalid.any():
        row = int(np.argmax(invalid))
        negative = weights[row] < 0 and np.isfinite(weights[row])
        fix = "allow it by signed (--signed)" if negative else "correct it"
        msg = (
            f"{table.place(row)}: the weight must be a finite number, at least 0, got "
            f"{safe_text.line(str(texts[row]), 40)!r}; {fix}"
        )
        raise ValueError(msg)
    return weights


def _check_duplicates(
    table: Table, pairs: Int[np.ndarray, "2 e"], weights: Float[np.ndarray, " e"]
) -> None:
    """Refuse an edge with two weights, or stored twice in one direction."""
    low, high = pairs.min(axis=0), pairs.max(axis=0)
    order = np.lexsort((low, high))
    before, after = order[:-1], order[1:]
    same = (low[before] == low[after]) & (high[before] == high[after])
    same &= low[before] != high[before]
    equal = weights[before] == weights[after]
    reverse = (pairs[0][before] != pairs[0][after]) & equal
    thrice = np.append(same[1:] & same[:-1], [False])[: len(same)]
    wrong = same & (~reverse | thrice)
    if wrong.any():
        rows = sorted((int(before[np.argmax(wrong)]), int(after[np.argmax(wrong)])))
        msg = (
            f"{table.place(rows[1])}: the edge is also at {table.place(rows[0])}, and "
            f"the weights are {weights[rows[1]]:g} and {weights[rows[0]]:g}; choose "
            "how they combine: duplicates (--duplicates) sum, max or min"
        )
        raise ValueError(msg)


def _labels(
    table: Table, columns: tuple[str, ...], ids: np.ndarray
) -> tuple[Int[np.ndarray, " n"], np.ndarray, int]:
    """Return the class of each node, the classes, and the number of unknown ids."""
    names = columns or _first_two(table)
    if len(names) != 2:
        msg = f"label_columns must name id and label, got {len(names)} columns"
        raise ValueError(msg)
    id_column, label_column = map(table.name, names)
    owners, texts = _ids(table, id_column), table.columns[label_column]
    rows = np.flatnonzero(~np.isin(texts, MISSING))
    nodes = _find(owners[rows].astype(str), ids)
    num_unknown = int((nodes < 0).sum())
    rows, nodes = rows[nodes >= 0], nodes[nodes >= 0]
    if not len(rows):
        msg = (
            f"no label of {table.path} belongs to a node of the graph; compare its ids "
            f"with those of the edges, such as {ids[0]!r}"
        )
        raise ValueError(msg)
    classes, of_row = np.unique(texts[rows].astype(str), return_inverse=True)
    codes = np.full(len(ids), -1)
    codes[nodes] = of_row
    if (differs := codes[nodes] != of_row).any():
        row = int(rows[np.argmax(differs)])
        msg = (
            f"{table.place(row)}: node {owners[row]!r} has the labels {texts[row]!r} "
            f"and {str(classes[codes[nodes[np.argmax(differs)]]])!r}; keep one of them"
        )
        raise ValueError(msg)
    return codes, classes, num_unknown


def _find(wanted: np.ndarray, ids: np.ndarray) -> Int[np.ndarray, " q"]:
    """Return the number of each wanted id, -1 if there is no such node."""
    order = np.argsort(ids)
    place = np.searchsorted(ids, wanted, sorter=order).clip(max=len(ids) - 1)
    return np.where(ids[order[place]] == wanted, order[place], -1)


def _rows(
    table: Table, column: str, nodes: Int[np.ndarray, " r"], num_nodes: int
) -> Int[np.ndarray, " n"]:
    """Return the row of features of each node, -1 for none."""
    rows = np.full(num_nodes, -1)
    rows[nodes] = np.arange(len(nodes))
    if (repeated := rows[nodes] != np.arange(len(nodes))).any():
        row = int(np.argmax(repeated))
        msg = (
            f"node {table.columns[column][row]!r} has two rows of features: "
            f"{table.place(row)} and {table.place(int(rows[nodes[row]]))}; keep one"
        )
        raise ValueError(msg)
    return rows
