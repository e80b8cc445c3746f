"""What a loaded dataset is."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from gnnrp.types import Split

if TYPE_CHECKING:
    import scipy.sparse


class Dataset(NamedTuple):
    """A graph with labels, exactly as its files store it."""

    name: str  # canonical, one of ``gnnrp.datasets.names()``
    edges: Int[np.ndarray, "2 e"]  # senders, receivers; loops and duplicates included
    num_nodes: int
    # float32, CSR where the source is sparse, None where the files hold no features. A
    # string, so that scipy is only imported by the readers that need it.
    features: "Float[np.ndarray, 'n d'] | scipy.sparse.csr_array | None"
    labels: Int[np.ndarray, " n"] | Float[np.ndarray, "n q"]  # -1 or NaN: unknown
    num_classes: int
    splits: Split  # bool (s, n): always with a leading axis
    metric: str  # "accuracy" or "roc_auc"
    edge_convention: str  # how the paper counts edges: "both", "once" or "lines"
    files: dict[str, str]  # file name below ``folder`` -> sha256 of what was read
    folder: str | None  # None if generated
