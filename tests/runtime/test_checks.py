"""Argument checks: each refuses by name and value, and lets the boundary pass."""

import numpy as np
import pytest

from gnnrp.runtime import checks

LIMIT = 2**31 - 1


def test_a_name_from_the_list_passes():
    assert checks.one_of("loss", "mae", ("mse", "mae")) is None


def test_an_unknown_name_is_refused_with_the_list_and_the_nearest():
    with pytest.raises(
        ValueError, match=r"kernel must be one of linear, gaussian, got"
    ):
        checks.one_of("kernel", "gausian", ("linear", "gaussian"))
    with pytest.raises(ValueError, match=r"got 'gausian'; did you mean 'gaussian'\?$"):
        checks.one_of("kernel", "gausian", ("linear", "gaussian"))


def test_a_name_near_none_gets_no_suggestion():
    with pytest.raises(ValueError, match=r"got 'xyz'$"):
        checks.one_of("kernel", "xyz", ("linear", "gaussian"))


def test_names_may_come_from_an_iterator():
    with pytest.raises(ValueError, match="one of a, b"):
        checks.one_of("name", "c", iter("ab"))


@pytest.mark.parametrize("value", [2, 2.5, np.inf])
def test_a_number_from_the_minimum_on_passes(value):
    assert checks.at_least("power", value, 2) is None


@pytest.mark.parametrize("value", [1, 1.999, -np.inf, np.nan])
def test_a_number_below_the_minimum_is_refused(value):
    with pytest.raises(ValueError, match=f"power must be at least 2, got {value}"):
        checks.at_least("power", value, 2)


@pytest.mark.parametrize("value", [0, 0.5, 1])
def test_a_number_inside_the_closed_interval_passes(value):
    assert checks.in_interval("alpha", value, 0, 1) is None


@pytest.mark.parametrize("value", [-0.001, 1.001, np.inf, -np.inf, np.nan])
def test_a_number_outside_the_interval_is_refused(value):
    with pytest.raises(ValueError, match=rf"alpha must lie in \[0, 1\], got {value}"):
        checks.in_interval("alpha", value, 0, 1)


@pytest.mark.parametrize("value", [1e-300, 1, 1e300])
def test_a_positive_number_passes(value):
    assert checks.positive("gamma", value) is None


@pytest.mark.parametrize("value", [0, -1, np.inf, np.nan])
def test_a_number_that_is_not_positive_and_finite_is_refused(value):
    with pytest.raises(ValueError, match=f"gamma must be positive and .* got {value}"):
        checks.positive("gamma", value)


def test_the_expected_shape_passes():
    assert checks.shape("weights", np.ones((2, 3)), (2, 3)) is None
    assert checks.shape("weights", [1.0, 2.0], (2,)) is None


@pytest.mark.parametrize("shape", [(3, 2), (2,), (2, 3, 1), ()])
def test_another_shape_is_refused_with_both(shape):
    with pytest.raises(ValueError, match=r"weights must have shape \(2, 3\), got"):
        checks.shape("weights", np.ones(shape), (2, 3))


def test_int32_addresses_up_to_its_largest_number():
    assert checks.int32_indexable(LIMIT, LIMIT) is None


@pytest.mark.parametrize("sizes", [(LIMIT + 1, 0), (2, LIMIT + 1)])
def test_rows_or_entries_beyond_int32_are_refused(sizes):  # field report 22
    what = "rows" if sizes[0] > LIMIT else "entries"
    with pytest.raises(ValueError, match=f"has 2147483648 {what}, .* row blocks"):
        checks.int32_indexable(*sizes)


@pytest.mark.parametrize("value", [3, 3.0, np.int32(3), np.float64(3)])
def test_whole_numbers_pass_as_integers(value):
    found = checks.count("k", value, 3, 3)
    assert (found, type(found)) == (3, int)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (2, "at least 3"),
        (5, "at most 4"),
        *((odd, "whole number") for odd in (3.5, "3", np.nan, np.inf, None)),
    ],
)
def test_what_is_not_a_whole_number_in_range_is_refused(value, said):
    with pytest.raises(ValueError, match=f"k must be .*{said}.*got"):
        checks.count("k", value, 3, 4)
