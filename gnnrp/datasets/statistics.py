"""What the paper's Table 3 states of a dataset, and what a loaded one has."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from gnnrp.datasets.dataset import Dataset
from gnnrp.runtime import checks

PIECE = 1 << 20  # edges compared at once


class Published(NamedTuple):
    """A row of Table 3; None where the paper states no single number."""

    num_nodes: int | None
    num_edges: int | None
    num_features: int | None
    num_classes: int | None


class Statistics(NamedTuple):
    """The same of a loaded dataset, and its edge homophily."""

    num_nodes: int
    num_edges: int  # under the dataset's own convention
    num_features: int  # 0 if the files hold none
    num_classes: int
    edge_homophily: float  # in [0, 1]; NaN for multi-label sets


TABLE_3 = {
    "cora": Published(2_708, 10_556, 1_433, 7),
    "citeseer": Published(3_327, 9_104, 3_703, 6),
    "pubmed": Published(19_717, 88_648, 500, 3),
    "computers": Published(13_752, 491_722, 767, 10),
    "photo": Published(7_650, 238_162, 745, 8),
    "cs": Published(18_333, 163_788, 6_805, 15),
    "physics": Published(34_493, 495_924, 8_415, 5),
    "texas": Published(183, 325, 1_703, 5),
    "cornell": Published(None, None, None, None),
    "wisconsin": Published(None, None, None, None),
    "roman-empire": Published(22_662, 32_927, 300, 18),
    "amazon-ratings": Published(24_492, 93_050, 300, 5),
    "minesweeper": Published(10_000, 39_402, 7, 2),
    "tolokers": Published(11_758, 519_000, 10, 2),
    "questions": Published(48_921, 153_540, 301, 2),
    "arxiv": Published(169_343, 1_166_243, 128, 40),
    "proteins": Published(132_534, 39_561_252, 8, 2),
    "products": Published(2_449_029, 61_859_140, 100, 47),
    "sbm": Published(2_000, None, 100, 5),  # e varies with the mixture, about 8,000
}


def published(name: str) -> Published:
    """Return the row of the paper's Table 3.

    Raises:
        ValueError: there is no dataset of that name.
    """
    checks.one_of("dataset", name, TABLE_3)
    return TABLE_3[name]


def statistics(dataset: Dataset) -> Statistics:
    """Count what Table 3 counts, edges under ``dataset.edge_convention``.

    "both": twice the undirected edges without loops and duplicates; "once": these
    edges; "lines": what is stored, loops included. The homophily is the share of these
    undirected edges whose ends have the same label, among those with both labels known.

    Raises:
        ValueError: masked edges or labels.
        TypeError: no data set.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    checks.plain("edges", dataset.edges)
    checks.plain("labels", dataset.labels)
    senders, receivers = dataset.edges
    codes = np.minimum(senders, receivers).astype(np.int64, copy=False)
    codes *= dataset.num_nodes
    codes += np.maximum(senders, receivers)
    codes = codes[senders != receivers]
    # What np.unique returns, which hashes and takes 50 times as long on Arxiv.
    codes.sort()
    codes = codes[np.concatenate([codes[:1] >= 0, codes[1:] != codes[:-1]])]
    count = {
        "both": 2 * codes.size,
        "once": codes.size,
        "lines": senders.size,
    }[dataset.edge_convention]
    homophily = np.nan
    if dataset.labels.ndim == 1:
        homophily = _homophily(codes, dataset.labels, dataset.num_nodes)
    features = dataset.features
    width = 0 if features is None else features.shape[1]  # pyright: ignore[reportOptionalSubscript]
    return Statistics(dataset.num_nodes, count, width, dataset.num_classes, homophily)


def _homophily(
    codes: Int[np.ndarray, " e"], labels: Int[np.ndarray, " n"], num_nodes: int
) -> float:
    """Return the share of edges inside a class, a part of them at a time."""
    num_same = num_known = 0
    for start in range(0, codes.size, PIECE):
        piece = codes[start : start + PIECE]
        one, other = (labels[ends] for ends in np.divmod(piece, num_nodes))
        known = (one >= 0) & (other >= 0)
        num_known += int(known.sum())
        num_same += int((known & (one == other)).sum())
    return num_same / num_known if num_known else np.nan


def differing(dataset: Dataset) -> dict[str, tuple[int, int]]:
    """Return what Table 3 states otherwise: name -> (here, there).

    Raises:
        ValueError: there is no dataset of that name; masked edges or labels.
        TypeError: no data set.
    """
    here = statistics(dataset)
    return {
        name: (getattr(here, name), there)
        for name, there in published(dataset.name)._asdict().items()
        if there not in {None, getattr(here, name)}
    }
