"""A graph that several files of tests fit."""

import pytest

from gnnrp.datasets import sbm


@pytest.fixture(scope="package")
def data():
    """Return a graph in which labels reach every node."""
    return sbm.generate(
        2,
        block_size=40,
        intra_probability=0.1,
        inter_probability=0.05,
        homophilic_fraction=0.6,
        train_per_class=8,
        num_val=60,
        num_test=80,
    )
