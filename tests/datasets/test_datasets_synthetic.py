"""Splits partition the nodes; the synthetic graph is what was asked for."""

import numpy as np
import pytest

from gnnrp import datasets
from gnnrp.datasets import sbm, splits


@pytest.mark.parametrize("seed", range(3))
def test_random_splits_partition_the_labeled_nodes(seed):
    labels = np.arange(103) % 4 - 1
    split = splits.random(labels, 4, (0.6, 0.2, 0.2), seed)
    np.testing.assert_array_equal(np.sum(split, axis=0), [labels >= 0] * 4)
    num_labeled = (labels >= 0).sum()
    assert set(split.train.sum(axis=1)) == {int(0.6 * num_labeled)}
    assert set(split.val.sum(axis=1)) == {int(0.2 * num_labeled)}
    assert (split.train[0] != split.train[1]).any()
    fewer = splits.random(labels, 2, (0.6, 0.2, 0.2), seed)
    np.testing.assert_array_equal(fewer.test, split.test[:2])


def test_split_sizes_are_not_spoiled_by_rounding():
    split = splits.random(np.zeros(100, int), 1, (0.29, 0.57, 0.14))
    assert [int(mask.sum()) for mask in split] == [29, 57, 14]


@pytest.mark.parametrize("fractions", [(0.5, 0.5, 0.5), (1.2, -0.1, -0.1)])
def test_bad_fractions_are_refused(fractions):
    with pytest.raises(ValueError, match="fractions"):
        splits.random(np.zeros(10, int), 1, fractions)
    with pytest.raises(ValueError, match="num_splits"):
        splits.random(np.zeros(10, int), 0)


# torch.randperm(n) after torch.manual_seed(123): first ten, last three
PERMUTATIONS = {
    7650: (
        (1732, 3269, 1984, 2769, 5096, 5192, 4656, 7332, 7155, 3508),
        (6450, 2411, 5906),
    ),
    13752: (
        (4846, 5857, 11604, 6210, 12572, 10403, 6678, 5644, 4699, 9151),
        (1616, 2800, 12496),
    ),
    18333: (
        (8437, 15838, 12202, 9933, 4931, 6319, 12165, 8046, 5932, 9151),
        (11069, 8469, 14264),
    ),
    34493: (
        (10436, 23506, 10283, 20173, 5334, 14815, 1472, 22960, 32797, 22451),
        (22589, 27900, 3997),
    ),
}


@pytest.mark.parametrize("num_nodes", PERMUTATIONS)
def test_permutations_are_those_of_torch(num_nodes):
    order = splits.permutation(num_nodes, 123)
    first, last = PERMUTATIONS[num_nodes]
    assert (tuple(order[:10]), tuple(order[-3:])) == (first, last)
    np.testing.assert_array_equal(np.sort(order), np.arange(num_nodes))
    assert (splits.permutation(num_nodes, 124)[:10] != first).any()


@pytest.mark.parametrize(
    ("num_nodes", "sizes"),
    [
        (7650, (6121, 765, 764)),  # 0.9 - 0.8 is below 0.1 in floating point
        (13752, (11002, 1375, 1375)),
        (18333, (14667, 1833, 1833)),
        (34493, (27595, 3449, 3449)),
    ],
)
def test_published_splits_validate_test_and_train_in_this_order(num_nodes, sizes):
    split = splits.published(num_nodes)
    assert tuple(int(mask.sum()) for mask in split) == sizes
    np.testing.assert_array_equal(np.sum(split, axis=0), np.ones((1, num_nodes)))
    order = splits.permutation(num_nodes, 123)
    _, num_val, num_test = sizes
    assert split.val[0, order[:num_val]].all()
    assert split.test[0, order[num_val : num_val + num_test]].all()


def test_permutations_of_few_nodes_and_refusals():
    assert splits.permutation(0, 1).tolist() == []
    assert splits.permutation(1, 1).tolist() == [0]
    with pytest.raises(ValueError, match="num_nodes must be at most 214748364"):
        splits.permutation(2**28, 1)
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        splits.permutation(3, -1)


def test_public_splits_refuse_overlap_by_node():
    with pytest.raises(ValueError, match="test node 1 is in another part"):
        splits.public(4, [0, 1], [2], [3, 1])
    with pytest.raises(ValueError, match="val: node 4 is not one of 4"):
        splits.public(4, [0, 1], [4], [3])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_block_model_has_the_published_size_and_the_asked_homophily(seed, fraction):
    data = sbm.generate(seed, homophilic_fraction=fraction)
    stats = datasets.statistics(data)
    assert (stats.num_nodes, stats.num_features, stats.num_classes) == (2000, 100, 5)
    assert abs(stats.num_edges - 8000) < 450  # five standard deviations
    assert stats.edge_homophily == pytest.approx(fraction, abs=0.01)
    assert (data.edges[0] != data.edges[1]).all()
    assert len(np.unique(data.edges, axis=1).T) == data.edges.shape[1]
    assert [int(mask.sum()) for mask in data.splits] == [100, 500, 1000]
    assert set(np.bincount(data.labels[data.splits.train[0]])) == {20}
    assert np.sum(data.splits, axis=0).max() == 1


@pytest.mark.parametrize("seed", range(3))
def test_block_model_features_are_informative_but_weak(seed):
    data = sbm.generate(seed)
    informative = data.features[:, :4]
    centers = np.stack([informative[data.labels == c].mean(axis=0) for c in range(5)])
    distances = ((informative[:, None] - centers) ** 2).sum(axis=-1)
    assert 0.45 < (distances.argmin(axis=1) == data.labels).mean() < 0.65


def test_block_model_is_a_function_of_its_seed():
    one, same, other = (datasets.load("sbm", seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.edges, same.edges)
    np.testing.assert_array_equal(one.features, same.features)
    np.testing.assert_array_equal(one.splits.train, same.splits.train)
    assert one.edges.shape != other.edges.shape or (one.edges != other.edges).any()
    assert datasets.statistics(one).edge_homophily == pytest.approx(0.5, abs=0.02)


def test_block_model_joins_every_pair_at_probability_one():
    data = sbm.generate(
        num_blocks=3,
        block_size=4,
        intra_probability=1.0,
        inter_probability=1.0,
        train_per_class=1,
        num_val=2,
        num_test=2,
    )
    assert datasets.statistics(data).num_edges == 3 * 6
    assert datasets.statistics(data).edge_homophily == 1
    mixed = sbm.generate(
        num_blocks=3,
        block_size=4,
        intra_probability=1.0,
        inter_probability=1.0,
        homophilic_fraction=0.0,
        train_per_class=1,
        num_val=2,
        num_test=2,
    )
    assert datasets.statistics(mixed).num_edges == 66 - 18
    assert datasets.statistics(mixed).edge_homophily == 0


@pytest.mark.parametrize(
    ("setting", "match"),
    [
        ({"homophilic_fraction": 1.5}, "homophilic_fraction"),
        ({"intra_probability": -0.1}, "intra_probability"),
        ({"num_blocks": 17}, "num_blocks"),
        ({"num_informative": 101}, "num_informative"),
        ({"num_test": 2000}, r"num_val \+ num_test must be at most 1900"),
    ],
)
def test_block_model_refuses_what_it_cannot_draw(setting, match):
    with pytest.raises(ValueError, match=match):
        sbm.generate(**setting)
