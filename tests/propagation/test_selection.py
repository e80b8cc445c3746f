"""The step that is kept, held against a loop that can be read."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
import references

from gnnrp.propagation import selection

NEVER = np.iinfo(np.int32).max
rules = pytest.mark.parametrize("rule", selection.RULES)


def over(values, rule, patience=NEVER):
    return selection.choose(
        jnp.asarray(np.atleast_2d(values), float),
        rule=rule,
        patience=jnp.asarray(patience, jnp.int32),
    )


def one_by_one(values, rule, patience=NEVER):
    """Return the choice, and which splits kept which step."""
    chosen, kept = selection.init(len(values), jnp.dtype(float)), []
    for t in range(values.shape[1]):
        chosen, keep = selection.update(
            chosen,
            jnp.asarray(values[:, t]),
            jnp.asarray(t + 1, jnp.int32),
            rule=rule,
            patience=jnp.asarray(patience, jnp.int32),
        )
        kept.append(np.asarray(keep))
    return chosen, np.stack(kept, axis=1)


def random_curves(seed, num_splits=40, num_steps=12):
    """Few distinct values, so with many ties, and some of them NaN or infinite."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 4, (num_splits, num_steps)).astype(float)
    values[rng.random(values.shape) < 0.2] = np.nan
    values[rng.random(values.shape) < 0.05] = -np.inf
    values[0] = np.nan
    return values


@rules
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("patience", [1, 2, 4, NEVER])
def test_choice_is_that_of_the_plain_loop(rule, seed, patience):
    values = random_curves(seed)
    found = over(values, rule, patience)
    for i, row in enumerate(values):
        best, step, stopped = references.select(row.tolist(), rule, patience)
        assert (found.value[i], found.step[i]) == (best, step)
        assert bool(found.stopped[i]) == (stopped is not None)
        if stopped is not None:
            assert found.rising[i] + patience == stopped


@rules
@pytest.mark.parametrize("patience", [3, NEVER])
def test_whole_curve_gives_the_same_as_one_step_at_a_time(rule, patience):
    values = random_curves(9, num_splits=10)
    stepwise, kept = one_by_one(values, rule, patience)
    for name, whole, part in zip(
        selection.Choice._fields, over(values, rule, patience), stepwise, strict=True
    ):
        np.testing.assert_array_equal(whole, part, err_msg=name)
    steps = np.arange(1, values.shape[1] + 1)
    last_kept = np.max(np.where(kept, steps, 0), axis=1)
    np.testing.assert_array_equal(last_kept, stepwise.step)


@pytest.mark.parametrize(("rule", "step"), [("first", 2), ("last", 5)])
def test_ties_go_to_the_first_or_the_last(rule, step):
    found = over([1.0, 3.0, 3.0, 2.0, 3.0, 0.0], rule)
    assert (found.step[0], found.value[0], found.rising[0]) == (step, 3.0, 2)


@rules
def test_nan_is_never_kept(rule):
    found = over([[np.nan, 1.0, np.nan], [np.nan] * 3], rule)
    np.testing.assert_array_equal(found.step, [2, 0])
    np.testing.assert_array_equal(found.value, [1.0, -np.inf])


@rules
def test_patience_counts_from_the_last_strictly_better_step_and_is_for_good(rule):
    curve = [1.0, 2.0, 2.0, 2.0, 9.0]
    patient = over(curve, rule, 3)
    assert (patient.step[0], patient.rising[0], bool(patient.stopped[0])) == (
        5,
        5,
        False,
    )
    hasty = over(curve, rule, 2)  # stops after step 4 and does not see the 9
    expected = {"first": 2, "last": 4}[rule]
    assert (hasty.step[0], hasty.value[0], bool(hasty.stopped[0])) == (
        expected,
        2,
        True,
    )


def test_splits_are_chosen_apart():
    values = random_curves(3, num_splits=6)
    together = over(values, "last", 3)
    apart = [over(row, "last", 3) for row in values]
    for name in selection.Choice._fields:
        rows = [getattr(one, name)[0] for one in apart]
        np.testing.assert_array_equal(getattr(together, name), rows, err_msg=name)


def test_patience_is_traced():
    values = random_curves(0)
    choose = functools.partial(over, values, "first")
    choose(2)
    size = selection.choose._cache_size()
    assert choose(3).stopped.sum() != choose(9).stopped.sum()
    assert selection.choose._cache_size() == size
