"""A graph from tables of edges, labels and features, with node ids of any kind.

The nodes are the ids of the edges and of the features, in the order of their first
occurrence. Labels of other ids are dropped and counted, as are self-loops.
"""

import re
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from gnnrp.graph import edge_lists
from gnnrp.runtime import checks, safe_text
from gnnrp.tables import feature_columns
from gnnrp.tables.files import Table, is_missing
from gnnrp.tables.settings import TableSettings

DUPLICATES = ("error", *edge_lists.COMBINE)
DEFAULTS = TableSettings()
WEIGHT = "weight"  # column of weights, unless others are named


class GraphTables(NamedTuple):
    """Arrays of a graph, and the number of rows and values that do not count."""

    ids: np.ndarray  # (n,) text
    edges: Int[np.ndarray, "2 e"]  # without self-loops
    weights: Float[np.ndarray, " e"] | None
    codes: Int[np.ndarray, " n"]  # class of each node; -1: no label
    classes: np.ndarray  # (c,) text, sorted
    features: feature_columns.Features | None
    dropped: dict[str, int]
    settings: TableSettings


def make(
    edges: Table,
    labels: Table,
    features: Table | None = None,
    settings: TableSettings = DEFAULTS,
    *,
    max_bytes: int | None = None,
) -> GraphTables:
    """Return the graph of two or three tables.

    Args:
        edges: an edge in each row.
        labels: a node and its label in each row; empty if it has none.
        features: a node and its features in each row.
        settings: columns, and rules for edges.
        max_bytes: memory limit; that of the machine by default.

    Raises:
        ValueError: a column that does not exist, an empty or repeated id, a weight that
            is no number, an edge with several weights, two labels of a node, or no
            label at all.
    """
    checks.one_of("duplicates", settings.duplicates, DUPLICATES)
    source, target, weight = _edge_columns(edges, settings.edge_columns)
    id_column, feature_names = _feature_columns(features, settings)
    parts = [_ids(edges, source), _ids(edges, target)]
    if features is not None:
        parts.append(_ids(features, id_column))
    nodes, ids = _factorize(np.concatenate(parts))
    _check_header(edges, (source, target), ids)
    pairs = nodes[: 2 * edges.num_rows].reshape(2, -1)
    kept, loops, dropped = drop_edges(pairs, directed=settings.directed)
    if loops.all():
        msg = f"every edge of {edges.path} is a self-loop; check its columns"
        raise ValueError(msg)
    weights = None
    if weight is not None:
        weights = _weights(edges, weight, signed=settings.signed)
        if settings.duplicates == "error":
            _check_duplicates(edges, pairs, weights)
        weights = weights[~loops]
    codes, classes, num_unknown = _labels(labels, settings.label_columns, ids)
    dropped["labels of unknown ids"] = num_unknown
    encoded = None
    if features is not None:
        _check_header(features, (id_column,), ids)
        owners = nodes[2 * edges.num_rows :]
        _check_owners(features, id_column, np.isin(owners, kept))
        rows = _rows(features, id_column, owners, len(ids))
        categorical = tuple(features.name(name) for name in settings.categorical)
        encoded = feature_columns.encode(
            features,
            feature_names,
            rows,
            categorical=categorical,
            max_bytes=max_bytes,
        )
        dropped |= {
            "nodes without features": int((rows < 0).sum()),
            "missing features": encoded.num_missing,
            "empty or constant columns": len(encoded.dropped),
        }
    return GraphTables(ids, kept, weights, codes, classes, encoded, dropped, settings)


def drop_edges(
    pairs: Int[np.ndarray, "2 e"], *, directed: bool
) -> tuple[Int[np.ndarray, "2 k"], Bool[np.ndarray, " e"], dict[str, int]]:
    """Return the edges without self-loops, the mask of these, and both counts."""
    loops = pairs[0] == pairs[1]
    kept = pairs[:, ~loops]
    low, high = kept if directed else np.sort(kept, axis=0)
    num_distinct = len(np.unique(low * (kept.max(initial=0) + 1) + high))
    counts = {
        "self-loops": int(loops.sum()),
        "repeated edges": kept.shape[1] - num_distinct,
    }
    return kept, loops, counts


def _feature_columns(
    table: Table | None, settings: TableSettings
) -> tuple[str, list[str]]:
    """Return the column of ids and those of features."""
    if table is not None:
        id_column, *names = _names(table, settings.feature_columns)
        return id_column, names
    for name in ("categorical", "feature_columns"):
        if getattr(settings, name):
            msg = f"{name} needs a table of features; leave it out"
            raise ValueError(msg)
    return "", []


def _factorize(
    texts: np.ndarray, *, sort: bool = False
) -> tuple[Int[np.ndarray, " r"], np.ndarray]:
    """Return the number of each text, and the distinct texts."""
    import pandas

    codes, distinct = pandas.factorize(texts, sort=sort)
    return np.asarray(codes), np.asarray(distinct, object)


def _edge_columns(
    table: Table, columns: tuple[str, ...]
) -> tuple[str, str, str | None]:
    """Return the names of source, target and weight."""
    if not columns:
        columns = _first_two(table) + ((WEIGHT,) * (WEIGHT in table.columns))
    if len(columns) not in {2, 3}:
        msg = (
            "edge_columns must name source, target and perhaps weight, got "
            f"{len(columns)} columns"
        )
        raise ValueError(msg)
    source, target, *weight = _distinct(table, columns)
    return source, target, weight[0] if weight else None


def _names(table: Table, columns: tuple[str, ...]) -> list[str]:
    """Return the names of the columns of ids and features."""
    names = _distinct(table, columns) or list(table.columns)
    if len(names) < 2:
        msg = f"{table.path} needs a column of ids and one of features, got {names}"
        raise ValueError(msg)
    return names


def _distinct(table: Table, columns: tuple[str, ...]) -> list[str]:
    """Return the names of columns, none of which is named twice."""
    names = [table.name(column) for column in columns]
    if len(set(names)) < len(names):
        name = max(names, key=names.count)
        msg = f"column {name!r} of {table.path} is named twice; name each column once"
        raise ValueError(msg)
    return names


def _first_two(table: Table) -> tuple[str, ...]:
    """Return the first two columns other than the weight."""
    names = [name for name in table.columns if name != WEIGHT]
    if len(names) < 2:
        msg = (
            f"{table.path} needs two columns, got {list(table.columns)}; separate them "
            "by commas, semicolons or tabs"
        )
        raise ValueError(msg)
    return tuple(names[:2])


def _check_header(table: Table, columns: tuple[str, ...], ids: np.ndarray) -> None:
    """Refuse a first line that has ids instead of names."""
    if table.first_line != 2:
        return
    if found := [name for name in columns if name in ids]:
        msg = (
            f"the first line of {table.path} names no columns, since {found[0]!r} is "
            "the id of a node; pass header=False (--no-header)"
        )
        raise ValueError(msg)


def _check_owners(table: Table, column: str, has_edge: np.ndarray) -> None:
    """Refuse features none of whose nodes has an edge."""
    if not has_edge.any():
        msg = (
            f"no id in column {column!r} of {table.path} is in the edges, the first is "
            f"{table.columns[column][0]!r}; name its columns, the id first, by "
            "feature_columns (--feature-columns)"
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
        if re.fullmatch("[0-9]+,[0-9]+", texts[row]):
            fix = "write it with a decimal point"
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
    import pandas

    names = columns or _first_two(table)
    if len(names) != 2:
        msg = f"label_columns must name id and label, got {len(names)} columns"
        raise ValueError(msg)
    id_column, label_column = _distinct(table, names)
    _check_header(table, (id_column,), ids)
    owners, texts = _ids(table, id_column), table.columns[label_column]
    rows = np.flatnonzero(~is_missing(texts))
    nodes = pandas.Index(ids).get_indexer(owners[rows])
    num_unknown = int((nodes < 0).sum())
    rows, nodes = rows[nodes >= 0], nodes[nodes >= 0]
    if not len(rows):
        msg = (
            f"no label of {table.path} belongs to a node of the graph; compare its ids "
            f"with those of the edges, such as {ids[0]!r}"
        )
        raise ValueError(msg)
    of_row, classes = _factorize(texts[rows], sort=True)
    if len(classes) < 2:
        msg = f"all labels of {table.path} are {classes[0]!r}; label nodes of another"
        raise ValueError(msg)
    codes = np.full(len(ids), -1)
    codes[nodes] = of_row
    if (differs := codes[nodes] != of_row).any():
        row, node = rows[np.argmax(differs)], nodes[np.argmax(differs)]
        other = rows[np.flatnonzero(nodes == node)[-1]]
        msg = (
            f"node {ids[node]!r} has two labels: {texts[row]!r} at "
            f"{table.place(int(row))}, and {texts[other]!r} at "
            f"{table.place(int(other))}; keep one"
        )
        raise ValueError(msg)
    return codes, classes, num_unknown


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
