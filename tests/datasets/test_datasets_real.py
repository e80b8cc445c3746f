"""The paper's real files, held against its Table 3 and counts made elsewhere."""

import numpy as np
import pytest

from gnnrp import datasets
from gnnrp.datasets import heterophilous, webkb

pytestmark = pytest.mark.data

ROMAN_EMPIRE_CLASSES = (
    *(944, 3163, 3133, 2502, 2487, 1359, 1244, 1080, 852),
    *(789, 717, 445, 428, 365, 329, 319, 312, 2194),
)
# sizes of the classes, sizes of the parts of each split, edge homophily
FACTS = {
    "cora": ((351, 217, 418, 818, 426, 298, 180), (140, 500, 1000), 0.810),
    "citeseer": ((249, 590, 668, 701, 596, 508), (120, 500, 1000), 0.738),
    "pubmed": ((4103, 7739, 7875), (60, 500, 1000), 0.802),
    "computers": (None, (11002, 1375, 1375), 0.777),
    "photo": (None, (6121, 765, 764), 0.827),
    "cs": (None, (14667, 1833, 1833), 0.808),
    "physics": (None, (27595, 3449, 3449), 0.931),
    "minesweeper": ((8000, 2000), (5000, 2500, 2500), 0.683),
    "tolokers": ((9192, 2566), (5879, 2939, 2940), 0.595),
    "texas": ((33, 1, 18, 101, 30), (87, 59, 37), 0.061),
    "cornell": ((38, 16, 30, 82, 17), (87, 59, 37), 0.123),
    "wisconsin": ((10, 70, 118, 32, 21), (120, 80, 51), 0.178),
    "roman-empire": (ROMAN_EMPIRE_CLASSES, (11331, 5665, 5666), 0.047),
    "arxiv": (None, (90941, 29799, 48603), 0.654),
}
EXTREMES = {  # smallest, largest class
    "photo": (331, 1941),
    "computers": (291, 5158),
    "cs": (118, 4136),
    "physics": (2753, 17426),
}
# stored entries, undirected edges, nodes without one, non-zero features
COUNTS = {
    "cora": (10_858, 5_278, 0, 49_216),
    "citeseer": (9_464, 4_552, 48, 105_165),
    "pubmed": (88_676, 44_324, 0, 988_031),
    "photo": (143_663, 119_081, 115, 1_979_909),
    "computers": (287_209, 245_861, 281, 3_675_081),
    "cs": (163_788, 81_894, 0, 1_092_079),
    "physics": (495_924, 247_962, 0, 1_137_311),
    "minesweeper": (39_402, 39_402, 0, None),
    "tolokers": (519_000, 519_000, 0, None),
    "texas": (325, 279, 0, None),
    "cornell": (277, 277, 0, None),
    "wisconsin": (450, 450, 0, None),
    "roman-empire": (32_927, 32_927, 0, None),
    "arxiv": (1_166_243, 1_157_799, 0, None),
}
CITESEER_MISSING = (
    *(2407, 2489, 2553, 2682, 2781, 2953, 3042, 3063),
    *(3212, 3214, 3250, 3292, 3305, 3306, 3309),
)


@pytest.fixture(scope="module")
def load(data_dir):
    loaded = {}

    def cached(name):
        if name not in loaded:
            loaded[name] = datasets.load(name, data_dir, download=False)
        return loaded[name]

    return cached


def undirected(data):
    low, high = data.edges.min(axis=0), data.edges.max(axis=0)
    codes = np.unique((low * data.num_nodes + high)[low < high])
    return np.stack(np.divmod(codes, data.num_nodes))


@pytest.mark.parametrize("name", FACTS)
def test_statistics_equal_the_papers(name, load):
    data = load(name)
    found, paper = datasets.statistics(data), datasets.published(name)
    for field in ("num_nodes", "num_edges", "num_features", "num_classes"):
        if getattr(paper, field) is None:  # not in the paper
            continue
        if field == "num_features" and data.features is None:
            continue
        assert getattr(found, field) == getattr(paper, field), field


@pytest.mark.parametrize("name", FACTS)
def test_classes_splits_and_homophily_are_as_counted_elsewhere(name, load):
    data = load(name)
    class_sizes, parts, homophily = FACTS[name]
    sizes = np.bincount(data.labels[data.labels >= 0])
    if class_sizes is not None:
        assert tuple(sizes) == class_sizes
    if name in EXTREMES:
        assert (sizes.min(), sizes.max()) == EXTREMES[name]
    for part, mask in zip(parts, data.splits, strict=True):
        assert set(mask.sum(axis=1)) == {part}
    assert datasets.statistics(data).edge_homophily == pytest.approx(
        homophily, abs=5e-4
    )


@pytest.mark.parametrize("name", COUNTS)
def test_edges_and_features_are_as_counted_elsewhere(name, load):
    data = load(name)
    entries, num_edges, isolated, nonzeros = COUNTS[name]
    edges = undirected(data)
    assert data.edges.shape[1] == entries
    assert edges.shape[1] == num_edges
    assert data.num_nodes - len(np.unique(edges)) == isolated
    if nonzeros is not None:
        assert data.features.nnz == nonzeros


RANDOM = {  # sizes of the parts of ten random splits
    "computers": (11001, 1375, 1376),
    "photo": (6120, 765, 765),
    "cs": (14666, 1833, 1834),
    "physics": (27594, 3449, 3450),
}


@pytest.mark.parametrize("name", RANDOM)
def test_copurchase_and_coauthor_features_are_binary_and_splits_of_two_kinds(
    name, load, data_dir
):
    data = load(name)
    assert (data.split_kind, len(data.splits.train)) == ("published", 1)
    assert set(np.unique(data.features.data)) == {1}
    drawn = datasets.load(name, data_dir, download=False, splits="random")
    assert (drawn.split_kind, len(drawn.splits.train)) == ("random", 10)
    for part, mask in zip(RANDOM[name], drawn.splits, strict=True):
        assert set(mask.sum(axis=1)) == {part}


def test_citeseers_missing_nodes_have_edges_but_nothing_else(load):
    data = load("citeseer")
    missing = np.array(CITESEER_MISSING)
    np.testing.assert_array_equal(np.flatnonzero(data.labels < 0), missing)
    assert data.features[missing].nnz == 0
    assert not any(mask[:, missing].any() for mask in data.splits)
    assert np.isin(missing, undirected(data)).all()


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_planetoid_trains_on_twenty_nodes_a_class(name, load):
    data = load(name)
    counts = np.bincount(data.labels[data.splits.train[0]])
    assert set(counts) == {20}


def test_homophily_published_elsewhere_counts_other_edges(load):
    # With unknown labels read as class 0, which is what an argmax gives.
    data = load("citeseer")
    ends = np.maximum(data.labels, 0)[undirected(data)]
    assert (ends[0] == ends[1]).mean() == pytest.approx(0.736, abs=5e-4)
    # Reciprocal citations twice.
    data = load("arxiv")
    ends = data.labels[data.edges]
    assert (ends[0] == ends[1]).mean() == pytest.approx(0.655, abs=5e-4)


def test_both_formats_of_texas_agree(data_dir):
    text = webkb.read(data_dir / "texas" / "geom_gcn", "texas")
    npz = heterophilous.read(data_dir / "texas", "texas")
    assert (text.edges[0] == text.edges[1]).sum() == 16
    np.testing.assert_array_equal(undirected(text), undirected(npz))
    np.testing.assert_array_equal(text.features, npz.features)
    np.testing.assert_array_equal(text.labels, npz.labels)
    for one, other in zip(text.splits, npz.splits, strict=True):
        np.testing.assert_array_equal(one, other)


def test_arxiv_cites_in_one_direction_only(load):
    pairs = set(zip(*load("arxiv").edges.tolist(), strict=True))
    for citing, cited in ((104447, 13091), (15858, 47283), (107156, 69161)):
        assert (citing, cited) in pairs
        assert (cited, citing) not in pairs
