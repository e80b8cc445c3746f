"""JSON without NaN, and bounded reads of JSON files."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from gnnrp.runtime import folders

MAX_BYTES = 2**25  # of a JSON file


def dumps(record: dict[str, Any], *, indent: int | None = 2) -> str:
    """Format a record as JSON that every parser accepts: NaN and infinity are null."""
    return json.dumps(_as_json(record), indent=indent, allow_nan=False)


def load(path: Path) -> Any:
    """Return the content of a JSON file."""
    folders.check_regular(path)
    with path.open("rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        msg = f"it has more than {MAX_BYTES} bytes"
        raise ValueError(msg)
    return json.loads(text)


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _as_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
