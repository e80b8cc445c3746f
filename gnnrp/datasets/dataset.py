"""The type of a loaded dataset."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from gnnrp.types import Split

if TYPE_CHECKING:
    import scipy.sparse


class Dataset(NamedTuple):
    """A graph with labels, as stored in its files."""

    name: str  # one of ``gnnrp.datasets.names()``, or of an own graph
    edges: Int[np.ndarray, "2 e"]  # senders, receivers; loops and duplicates included
    num_nodes: int
    # float32, CSR if the source is sparse, None without features. A string, so that
    # scipy is only imported by the readers that need it.
    features: "Float[np.ndarray, 'n d'] | scipy.sparse.csr_array | None"
    labels: Int[np.ndarray, " n"] | Float[np.ndarray, "n q"]  # -1 or NaN: unknown
    num_classes: int
    splits: Split  # bool (s, n), also for one split
    metric: str  # a name of ``metrics.by_name``, which needs no loss
    edge_convention: str  # for counting edges as the paper: "both", "once" or "lines"
    files: dict[str, str]  # file name below ``folder`` -> sha256
    folder: str | None  # None if generated
    split_kind: str = "published"  # "random", "generated" with the graph, or "given"
