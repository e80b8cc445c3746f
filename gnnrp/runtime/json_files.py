"""JSON without NaN, and bounded reads of JSON files."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from gnnrp.runtime import folders

MAX_BYTES = 2**25  # of a JSON file


def dumps(record: Any, *, indent: int | None = 2) -> str:
    """Format a record as JSON that every parser accepts: NaN and infinity are null."""
    text = json.dumps(record, default=np.generic.item)
    finite = json.loads(text, parse_constant=lambda _: None)
    return json.dumps(finite, indent=indent)


def load(path: Path) -> Any:
    """Return the content of a JSON file; refuse one of more than 32 MB."""
    folders.check_regular(path)
    with path.open("rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        msg = f"it has more than {MAX_BYTES} bytes"
        raise ValueError(msg)
    return json.loads(text)
