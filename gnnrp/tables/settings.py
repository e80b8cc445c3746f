"""Columns of tables, and rules for their edges."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSettings:
    """Columns by name or by position from 0, and the rules for edges.

    Args:
        edge_columns: source, target and perhaps weight; by default the first two, and
            "weight" if there is such a column.
        label_columns: id and label; by default the first two.
        feature_columns: id and features; by default all.
        categorical: columns of categories that look like numbers.
        duplicates: how the weights of repeated edges combine: sum, max, min; by
            default, an edge may be there in both directions with equal weights.
        signed: allow negative weights.
        directed: count an edge and its reverse as two, and try similarities that use
            the directions too.
    """

    edge_columns: tuple[str, ...] = ()
    label_columns: tuple[str, ...] = ()
    feature_columns: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    duplicates: str = "error"
    signed: bool = False
    directed: bool = False
