"""A layout puts every node in the part that is named for it, each row once."""

import jax
import numpy as np
import pytest
import scipy.sparse

from gnnrp.distributed import partitioning
from gnnrp.distributed import sharded_matrix as sharded


@pytest.mark.parametrize("seed", range(3))
def test_nodes_stand_in_their_part_in_their_order(seed):
    part = np.random.default_rng(seed).integers(0, 5, 40)
    layout = partitioning.from_parts(part, 5)
    np.testing.assert_array_equal(layout.place // layout.rows, part)
    assert layout.rows == np.bincount(part).max()
    assert len(set(layout.place.tolist())) == 40
    for one in range(5):
        places = layout.place[part == one]
        np.testing.assert_array_equal(
            places, one * layout.rows + np.arange(len(places))
        )


def test_the_parts_of_ranges_give_the_layout_of_the_ranges():
    csr = scipy.sparse.random_array((30, 30), density=0.2, rng=0, format="csr")
    balanced = partitioning.balance(csr, 4, reorder=False)
    found = partitioning.from_parts(balanced.place // balanced.rows, 4)
    assert found[1:] == balanced[1:]
    np.testing.assert_array_equal(found.place, balanced.place)


def test_a_part_may_be_empty():
    layout = partitioning.from_parts(np.array([2, 0, 2]), 4)
    assert (layout.rows, layout.parts) == (2, 4)
    csr = scipy.sparse.csr_array(np.ones((3, 3)))
    needed, rounds = partitioning.halos(csr, layout)
    assert [(sorted(pairs), rows) for pairs, rows in rounds] == [([(0, 2), (2, 0)], 2)]
    assert [len(rows) for rows in needed[2]] == [1, 0, 0, 0]
    assert not any(len(rows) for rows in needed[3])


def test_a_product_in_named_parts_is_the_product():
    csr = scipy.sparse.random_array((9, 9), density=0.4, rng=0, format="csr")
    layout = partitioning.from_parts(np.zeros(9, int), 1)
    mesh = jax.make_mesh((1,), ("nodes",))
    x = np.random.default_rng(0).standard_normal((9, 2))
    matrix = sharded.prepare(csr, layout, mesh)
    found = sharded.gather(layout, matrix(sharded.spread(layout, x, mesh)))
    np.testing.assert_allclose(found, csr @ x, rtol=1e-14)


@pytest.mark.parametrize(
    ("part", "num_parts", "message"),
    [
        ([0, 2], 2, "the greatest part of a node must be at most 1, got 2"),
        ([0, -1], 2, "the least part of a node must be at least 0, got -1"),
        ([0, 0], 0, "num_parts must be at least 1, got 0"),
        ([], 1, "the number of nodes must be at least 1, got 0"),
    ],
)
def test_parts_that_are_not_there_are_refused(part, num_parts, message):
    with pytest.raises(ValueError, match=message):
        partitioning.from_parts(np.array(part, int), num_parts)


def test_a_stored_zero_is_no_neighbor_that_a_part_lacks():
    entries = (np.array([0.0, 1, 1]), ([0, 1, 2], [2, 0, 3]))
    csr = scipy.sparse.coo_array(entries, (4, 4)).tocsr()
    layout = partitioning.from_parts(np.array([0, 0, 1, 1]), 2)
    assert partitioning.halos(csr, layout).received == 0
    hub = scipy.sparse.csr_array((4, 4), dtype=float).tolil()
    hub[0, :] = 1
    zeros = hub.tocsr()
    zeros.data[:] = 0  # a hub without edges weighs no more than others
    empty = scipy.sparse.csr_array((4, 4))
    for matrix in (zeros, empty):
        found = partitioning.balance(matrix, 2, reorder=False)
        assert found.place.tolist() == [0, 1, 2, 3]
