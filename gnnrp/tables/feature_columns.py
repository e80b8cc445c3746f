"""Columns of text as features: numbers are standardized, categories are one-hot."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from gnnrp.runtime import safe_text
from gnnrp.tables.files import MISSING, Table

MAX_CATEGORIES = 1_000  # of a column
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

    Raises:
        ValueError: text in a numeric column, a number that is not finite, or more than
            1,000 categories.
    """
    parts, names, dropped, num_missing = [], [], [], 0
    known_rows = rows >= 0
    for name in columns:
        values = table.columns[name]
        present = ~np.isin(values, MISSING)
        num_missing += int((~present).sum())
        block, labels = _encode(table, name, present, is_text=name in categorical)
        if not labels:
            dropped.append(name)
            continue
        parts.append(np.where(known_rows[:, None], block[rows], 0))
        names += labels
    matrix = np.concatenate(parts, axis=1) if parts else np.zeros((len(rows), 0))
    return Features(
        matrix.astype(np.float32), tuple(names), num_missing, tuple(dropped)
    )


def _encode(
    table: Table, name: str, present: Bool[np.ndarray, " r"], *, is_text: bool
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
        return _one_hot(table, name, present)
    invalid = texts or np.flatnonzero(present & ~np.isfinite(numbers)).tolist()
    if invalid:
        row = invalid[0]
        msg = (
            f"{table.place(row)}: {safe_text.line(values[row], 40)!r} in column "
            f"{name!r} is not a finite number, as other values of the column are; "
            "correct it, or name the column in categorical (--categorical)"
        )
        raise ValueError(msg)
    deviation = np.std(numbers[present]) if count else 0.0
    if not deviation:
        return np.zeros((len(values), 0)), []
    scaled = (numbers - np.mean(numbers[present])) / deviation
    return np.where(present, scaled, 0)[:, None], [name]


def _one_hot(
    table: Table, name: str, present: Bool[np.ndarray, " r"]
) -> tuple[Float[np.ndarray, "r k"], list[str]]:
    values = table.columns[name]
    categories, codes = np.unique(values[present].astype(str), return_inverse=True)
    if len(categories) > MAX_CATEGORIES:
        msg = (
            f"column {name!r} of {table.path} has {len(categories):,} different texts, "
            f"more than {MAX_CATEGORIES:,}; leave it out of feature_columns "
            "(--feature-columns)"
        )
        raise ValueError(msg)
    if len(categories) < 2 and present.all():
        return np.zeros((len(values), 0)), []
    block = np.zeros((len(values), len(categories)))
    block[np.flatnonzero(present), codes] = 1
    return block, [f"{name}={category}" for category in categories]
