"""The paper's Table 3, and the same numbers of a loaded dataset."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from gnnrp.datasets.dataset import Dataset
from gnnrp.runtime import checks

CHUNK = 1 << 20  # edges compared at once


class Published(NamedTuple):
    """A row of Table 3; None if the paper states no single number."""

    num_nodes: int | None
    num_edges: int | None
    num_features: int | None
    num_classes: int | None


class Statistics(NamedTuple):
    """The numbers of Table 3 for a loaded dataset, and its edge homophily."""

    num_nodes: int
    num_edges: int  # under the dataset's own convention
    num_features: int  # 0 without features
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
    "chameleon": Published(None, None, None, None),
    "squirrel": Published(None, None, None, None),
    "chameleon-filtered": Published(None, None, None, None),
    "squirrel-filtered": Published(None, None, None, None),
    "actor": Published(None, None, None, None),
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
        ValueError: unknown name.
    """
    checks.one_of("dataset", name, TABLE_3)
    return TABLE_3[name]


def statistics(dataset: Dataset) -> Statistics:
    """Return the numbers of Table 3, edges counted by ``dataset.edge_convention``.

    "once": undirected edges without loops and duplicates; "both": twice as many;
    "lines": all stored edges. The homophily is the share of undirected edges between
    nodes of the same label, among those with two labels.

    Raises:
        ValueError: masked edges or labels.
        TypeError: no dataset.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    checks.no_masked_entries("edges", dataset.edges)
    checks.no_masked_entries("labels", dataset.labels)
    senders, receivers = dataset.edges
    codes = np.minimum(senders, receivers).astype(np.int64, copy=False)
    codes *= dataset.num_nodes
    codes += np.maximum(senders, receivers)
    codes = codes[senders != receivers]
    # As np.unique, which hashes and takes 50 times as long on Arxiv.
    codes.sort()
    codes = codes[np.concatenate([codes[:1] >= 0, codes[1:] != codes[:-1]])]
    counts = {"both": 2 * codes.size, "once": codes.size, "lines": senders.size}
    num_edges = counts[dataset.edge_convention]
    homophily = np.nan
    if dataset.labels.ndim == 1:
        homophily = _homophily(codes, dataset.labels, dataset.num_nodes)
    features = dataset.features
    width = 0 if features is None else features.shape[1]  # pyright: ignore[reportOptionalSubscript]
    sizes = (dataset.num_nodes, num_edges, width, dataset.num_classes)
    return Statistics(*sizes, homophily)


def _homophily(
    codes: Int[np.ndarray, " e"], labels: Int[np.ndarray, " n"], num_nodes: int
) -> float:
    """Return the share of labeled edges inside a class, in bounded memory."""
    num_same = num_labeled = 0
    for start in range(0, codes.size, CHUNK):
        ends = np.divmod(codes[start : start + CHUNK], num_nodes)
        one, other = (labels[nodes] for nodes in ends)
        labeled = (one >= 0) & (other >= 0)
        num_labeled += int(labeled.sum())
        num_same += int((labeled & (one == other)).sum())
    return num_same / num_labeled if num_labeled else np.nan


def differences(dataset: Dataset) -> dict[str, tuple[int, int]]:
    """Return the numbers that differ from Table 3: name -> (counted, published).

    Raises:
        ValueError: unknown name; masked edges or labels.
        TypeError: no dataset.
    """
    counted = statistics(dataset)._asdict()
    return {
        name: (counted[name], number)
        for name, number in published(dataset.name)._asdict().items()
        if number not in {None, counted[name]}
    }
