"""Estimates of memory against what is measured, and how they grow."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from measuring import CASES, measured

from gnnrp.kernels import features
from gnnrp.kernels.ntk import structured
from gnnrp.propagation import Exact, Iterate, krylov, label
from gnnrp.propagation.sizes import Sizes
from gnnrp.propagation.solvers import _lanczos
from gnnrp.studies import gntk_kernels

RP = Sizes(
    num_nodes=50_000,
    num_classes=10,
    num_splits=2,
    num_train=1000,
    num_evaluated=40_000,
    num_steps=100,
)


@pytest.fixture(scope="module")
def found_peaks() -> Iterator[dict[str, Future[dict[str, float]]]]:
    """All cases, two processes at a time."""
    pool = ThreadPoolExecutor(2)
    yield {name: pool.submit(measured, name) for name in CASES}
    pool.shutdown(cancel_futures=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_estimates_are_within_30_percent_of_what_is_measured(name, found_peaks):
    found = found_peaks[name].result()
    assert 200e6 < found["measured"] < 1.5e9
    assert found["estimated"] == pytest.approx(found["measured"], rel=0.3)


METHODS = {
    "iterated": lambda sizes: Iterate().cost(sizes).num_bytes,
    "exact": lambda sizes: Exact().cost(sizes).num_bytes,
    "krylov": lambda sizes: krylov.peak_bytes(sizes, 48),
    "label propagation": label.limit_bytes,
}


# The more training nodes, the fewer that a Krylov space is looked at on.
GROWING = [
    (name, field)
    for name in METHODS
    for field in Sizes._fields
    if (name, field) != ("krylov", "num_train")
]


@pytest.mark.parametrize(("name", "field"), GROWING)
def test_no_size_lowers_a_peak(name, field):
    more = RP._replace(**{field: 2 * getattr(RP, field) + 1})
    assert METHODS[name](more) >= METHODS[name](RP)


@pytest.mark.parametrize("name", METHODS)
def test_double_precision_takes_about_twice_as_much_at_most(name):
    single, double = (METHODS[name](RP._replace(itemsize=size)) for size in (4, 8))
    assert 1.05 * single < double <= 2 * single


def test_steps_share_columns_while_closed_forms_share_step_sizes():
    several = RP._replace(num_step_sizes=7)
    assert METHODS["iterated"](several) > 3 * METHODS["iterated"](RP)
    assert METHODS["exact"](several) < 1.1 * METHODS["exact"](RP)
    assert krylov.peak_bytes(several, 48) < 1.2 * krylov.peak_bytes(RP, 48)


def test_exact_trajectories_hold_one_factorization_whatever_the_splits():
    more = RP._replace(num_splits=4)
    factorization = 8 * RP.num_nodes * RP.num_train
    assert METHODS["exact"](more) - METHODS["exact"](RP) < factorization


def test_a_krylov_space_grows_with_its_vectors():
    sizes = [krylov.peak_bytes(RP, number) for number in _lanczos.CAPACITIES]
    assert sizes == sorted(sizes)
    basis = 4 * RP.num_nodes * RP.num_splits * RP.num_classes
    assert krylov.peak_bytes(RP, 96) - krylov.peak_bytes(RP, 48) > 48 * basis


def test_kernels_grow_with_the_square_of_their_nodes():
    for one, two in (
        (
            gntk_kernels.peak_bytes(20_000, 100, itemsize=4),
            gntk_kernels.peak_bytes(40_000, 100, itemsize=4),
        ),
        (
            features.matrix_bytes(40_000, itemsize=4),
            features.matrix_bytes(80_000, itemsize=4),
        ),
        (
            structured.peak_bytes(20_000, 10, 2, 1, 0, itemsize=4),
            structured.peak_bytes(40_000, 10, 2, 1, 0, itemsize=4),
        ),
    ):
        assert two == pytest.approx(4 * one, rel=0.1)


def test_deeper_networks_targets_and_gram_matrices_add_to_a_tracked_kernel():
    def needed(depth, targets, grams):
        return structured.peak_bytes(1000, 100, depth, targets, grams, itemsize=4)

    assert needed(1, 1, 0) < needed(2, 1, 0) < needed(3, 1, 0)
    assert needed(2, 4, 0) - needed(2, 1, 0) == 3 * 4 * 1000**2
    assert needed(2, 1, 5) - needed(2, 1, 0) == 5 * 4 * 1000**2


def test_sparse_rows_take_what_their_entries_take():
    def needed(num_entries, num_features):
        return features.sparse_rows_bytes(num_entries, num_features, 2**26, itemsize=4)

    small = needed(10**6, 3 * 10**6)
    assert small < 0.1 * features.dense_rows_bytes(400, 3 * 10**6, 2**26, itemsize=4)
    assert needed(2 * 10**6, 3 * 10**6) > small
    assert needed(10**6, 6 * 10**6) > small
