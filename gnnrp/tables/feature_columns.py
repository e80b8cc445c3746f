"""Columns of text as features: numbers are standardized, categories are one-hot."""

import re
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from gnnrp.runtime import memory, safe_text
from gnnrp.tables.files import Table, is_missing

MAX_CATEGORIES = 1_000  # of a column
MAX_NUMBER = 1e150  # whose square does not overflow
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
NUMERIC_SHARE = 0.9  # of the values of a numeric column; the others are errors


class Features(NamedTuple):
    """Matrix of features, and how the columns of a table became its columns."""

    matrix: Float[np.ndarray, "n d"]  # float32
    names: tuple[str, ...]  # of its columns
    num_missing: int  # values of the table
    dropped: tuple[str, ...]  # columns that are empty or constant


def encode(
    table: Table,
    columns: list[str],
    rows: Int[np.ndarray, " n"],
    *,
    categorical: tuple[str, ...] = (),
    max_bytes: int | None = None,
) -> Features:
    """Return the features of nodes.

    A column in which at least 90 percent of the values are numbers is numeric: mean 0
    and deviation 1 over its known values. Any other column, and each of
    ``categorical``, is one-hot. A missing value is zero, the mean of a numeric column.

    Args:
        table: columns of text.
        columns: names of the columns to encode.
        rows: row of each node, -1 for a node without one.
        categorical: names of columns of categories that look like numbers.
        max_bytes: memory limit; that of the machine by default.

    Raises:
        ValueError: text in a numeric column, a number that is not finite, or more than
            1,000 categories.
    """
    parts, names, dropped, num_missing = [], [], [], 0
    known_rows = rows >= 0
    for name in columns:
        values = table.columns[name]
        present = ~is_missing(values)
        num_missing += int((~present).sum())
        room = memory.room_on_host(max_bytes)
        is_text = name in categorical
        block, labels = _encode(table, name, present, room, is_text=is_text)
        if not labels:
            dropped.append(name)
            continue
        parts.append(np.where(known_rows[:, None], block[rows], np.float32(0)))
        names += labels
    if not parts:
        msg = (
            f"every column of features in {table.path} is empty or constant; leave the "
            "table out"
        )
        raise ValueError(msg)
    matrix = np.concatenate(parts, axis=1)
    return Features(matrix, tuple(names), num_missing, tuple(dropped))


def _encode(
    table: Table,
    name: str,
    present: Bool[np.ndarray, " r"],
    room: memory.Room,
    *,
    is_text: bool,
) -> tuple[Float[np.ndarray, "r k"], list[str]]:
    """Return the columns of a feature and their names; none if it is constant."""
    values = table.columns[name]
    numbers = np.full(len(values), np.nan)
    texts = []
    for row in np.flatnonzero(present):
        try:
            numbers[row] = float(values[row])
        except ValueError:
            texts.append(int(row))
    count = int(present.sum())
    if is_text or len(texts) > (1 - NUMERIC_SHARE) * count:
        _check_commas(table, name, texts)
        return _one_hot(table, name, present, room)
    invalid = texts or np.flatnonzero(present & ~np.isfinite(numbers)).tolist()
    if invalid:
        row = invalid[0]
        msg = (
            f"{table.place(row)}: {safe_text.line(values[row], 40)!r} in column "
            f"{name!r} is not a finite number, as other values of the column are; "
            "correct it, or name the column in categorical (--categorical)"
        )
        raise ValueError(msg)
    if not count or np.ptp(numbers[present]) == 0:
        return np.zeros((len(values), 0), np.float32), []
    if (large := np.abs(np.nan_to_num(numbers)) > MAX_NUMBER).any():
        row = int(np.argmax(large))
        msg = (
            f"{table.place(row)}: {values[row]} in column {name!r} is too large; "
            f"numbers must be below {MAX_NUMBER:g}"
        )
        raise ValueError(msg)
    mean, deviation = np.mean(numbers[present]), np.std(numbers[present])
    scaled = np.where(present, (numbers - mean) / deviation, 0)
    return scaled[:, None].astype(np.float32), [name]


def _check_commas(table: Table, name: str, rows: list[int]) -> None:
    """Refuse a column of numbers with decimal commas."""
    values = [table.columns[name][row] for row in rows]
    if values and all(_DECIMAL_COMMA.fullmatch(value) for value in values):
        msg = (
            f"{table.place(rows[0])}: {values[0]!r} in column {name!r} has a decimal "
            "comma; write numbers with a point"
        )
        raise ValueError(msg)


def _one_hot(
    table: Table, name: str, present: Bool[np.ndarray, " r"], room: memory.Room
) -> tuple[Float[np.ndarray, "r k"], list[str]]:
    values = table.columns[name]
    import pandas

    codes, categories = pandas.factorize(values[present], sort=True)
    if len(categories) > MAX_CATEGORIES:
        msg = (
            f"column {name!r} of {table.path} has {len(categories):,} different texts, "
            f"more than {MAX_CATEGORIES:,}; leave it out of feature_columns "
            "(--feature-columns)"
        )
        raise ValueError(msg)
    if len(categories) < 2 and present.all():
        return np.zeros((len(values), 0), np.float32), []
    size = 8 * len(values) * len(categories)  # of the block and of that of the nodes
    memory.check(
        f"column {name!r} of {table.path}, with {len(categories):,} categories,",
        size,
        room,
        "leave it out of feature_columns (--feature-columns)",
    )
    block = np.zeros((len(values), len(categories)), np.float32)
    block[np.flatnonzero(present), codes] = 1
    return block, [f"{name}={category}" for category in categories]
