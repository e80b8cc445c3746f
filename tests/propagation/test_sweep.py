"""Grids of step sizes and powers, held against one run each."""

import generators
import jax
import numpy as np
import pytest
import scipy.sparse

from gnnrp import metrics, propagation, sparse
from gnnrp.propagation import (
    Steps,
    losses,
    similarity,
    sweep,
)
from gnnrp.runtime.options import Options
from gnnrp.types import Split

N, C, STEPS = 40, 3, 30
GRID = (0.1, 0.5, 1.0)
methods = pytest.mark.parametrize("method", ["exact", "krylov", "iterate"])


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    half = np.triu(rng.random((N, N)) < 0.1, 1)
    W = (half | half.T | np.eye(N, dtype=bool)).astype(float)
    A = W / np.sqrt(np.outer(W.sum(0), W.sum(0)))
    matrix = sparse.prepare(scipy.sparse.csr_array(A))
    targets = np.eye(C)[rng.integers(0, C, N)]
    part = np.stack([rng.permutation(N) for _ in range(2)])
    split = Split(part < 15, (part >= 15) & (part < 25), part >= 25)
    return matrix, targets, split


def one(world, power, step_size, **settings):
    matrix, targets, split = world
    return generators.run(
        similarity.Power(matrix, power),
        targets,
        split,
        step_size=step_size,
        num_steps=STEPS,
        metric=metrics.accuracy,
        **settings,
    )


def all_of(world, power, step_sizes=GRID, **settings):
    matrix, targets, split = world
    return generators.run(
        similarity.Power(matrix, power),
        targets,
        split,
        step_sizes=step_sizes,
        num_steps=STEPS,
        metric=metrics.accuracy,
        **settings,
    )


def assert_same(found, expected):
    for name in ("train_residual", "predictions", "val", "test"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), atol=1e-11, err_msg=name
        )
    np.testing.assert_array_equal(found.best_step, expected.best_step)
    np.testing.assert_array_equal(found.report.diverged, expected.report.diverged)


@pytest.mark.long
@methods
@pytest.mark.parametrize("patience", [None, 4])
def test_step_sizes_together_equal_step_sizes_apart(world, method, patience):
    settings = {"method": method, "patience": patience}
    for step_size, found in zip(GRID, all_of(world, 2, **settings), strict=True):
        assert_same(found, one(world, 2, step_size, **settings))


@pytest.mark.long
@pytest.mark.parametrize("residual_fn", [losses.softmax, losses.absolute])
def test_other_losses_take_several_step_sizes_too(world, residual_fn):
    found = all_of(world, 1, residual_fn=residual_fn)
    for step_size, each in zip(GRID, found, strict=True):
        assert each.report.solver == "iterate"
        assert_same(each, one(world, 1, step_size, residual_fn=residual_fn))


@pytest.mark.long
def test_a_start_and_a_single_split_serve_several_step_sizes(world):
    matrix, targets, split = world
    split = Split(*(part[0] for part in split))
    initial = np.random.default_rng(1).normal(size=(N, C))
    for method in ("exact", "krylov", "iterate"):
        settings = {"method": method, "initial": initial}
        single = (matrix, targets, split)
        for step_size, found in zip(GRID, all_of(single, 2, **settings), strict=True):
            assert found.predictions.shape == (N, C)
            assert_same(found, one(single, 2, step_size, **settings))


@pytest.mark.long
@methods
def test_step_sizes_share_their_products(world, method):
    matrix, targets, split = world
    columns = []

    def counted(v):
        jax.debug.callback(lambda: columns.append(v.shape[1]))
        return sparse.matmul(matrix, v)

    def count(step_sizes):
        columns.clear()
        generators.run(
            counted,
            targets,
            split,
            step_sizes=step_sizes,
            num_steps=STEPS,
            metric=metrics.accuracy,
            method=method,
        )
        jax.effects_barrier()
        # What tells why a step size diverged sends a column a split.
        return sum(width > len(split.train) for width in columns)

    assert count(GRID) == count([1.0])


@pytest.mark.parametrize("step_sizes", [[], [1.0, 0.0], [np.nan]])
def test_step_sizes_that_do_not_serve_are_refused(world, step_sizes):
    with pytest.raises(ValueError, match="step_size"):
        all_of(world, 1, step_sizes)


@pytest.fixture(scope="module")
def table(world):
    matrix, targets, split = world
    return sweep.run(
        sweep.powers(matrix, (3, 1)),
        targets,
        split,
        Steps(GRID, STEPS),
        metric=metrics.accuracy,
    )


@pytest.mark.long
def test_a_table_has_a_row_for_each_power_step_size_and_split(world, table):
    assert {len(column) for column in table} == {2 * len(GRID) * 2}
    np.testing.assert_array_equal(table.power, np.repeat([3, 1], 2 * len(GRID)))
    np.testing.assert_array_equal(table.step_size, np.tile(np.repeat(GRID, 2), 2))
    np.testing.assert_array_equal(table.split, [0, 1] * (2 * len(GRID)))
    for row in range(len(table.power)):
        split = table.split[row]
        expected = one(world, int(table.power[row]), table.step_size[row])
        assert table.best_step[row] == expected.best_step[split]
        assert table.val[row] == expected.best_val[split]
        assert table.test[row] == expected.best_test[split]
        assert table.diverged[row] == expected.report.diverged[split]
        assert table.solver[row] == "exact"


@pytest.mark.long
def test_the_winner_has_the_best_mean_validation_score(table):
    best = sweep.winner(table)
    means = {
        (power, step_size): np.mean(
            table.val[(table.power == power) & (table.step_size == step_size)]
        )
        for power in (3, 1)
        for step_size in GRID
    }
    first = max(means, key=lambda key: means[key])  # max keeps the first
    assert (best.power, best.step_size, best.val) == (*first, means[first])
    rows = (table.power == best.power) & (table.step_size == best.step_size)
    assert best.test == np.mean(table.test[rows])


def test_a_setting_with_a_lost_split_never_wins(table):
    best = sweep.winner(table)
    lost = (table.power == best.power) & (table.step_size == best.step_size)
    val = np.where(lost & (table.split == 0), np.nan, table.val)
    second = sweep.winner(table._replace(val=val))
    assert (second.power, second.step_size) != (best.power, best.step_size)
    with pytest.raises(ValueError, match="every setting"):
        sweep.winner(table._replace(val=np.full_like(val, np.nan)))


@pytest.mark.parametrize("powers", [[], [-1]])
def test_powers_that_do_not_serve_are_refused(world, powers):
    matrix, targets, split = world
    with pytest.raises(ValueError, match="power"):
        sweep.run(
            sweep.powers(matrix, powers),
            targets,
            split,
            Steps(GRID, STEPS),
            metric=metrics.accuracy,
        )


def test_a_sweep_needs_a_similarity(world):
    _, targets, split = world
    with pytest.raises(ValueError, match="similarities must not be empty"):
        sweep.run({}, targets, split, Steps(GRID, STEPS), metric=metrics.accuracy)


def test_the_grid_is_the_papers():
    assert sweep.STEP_SIZES == (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    assert sweep.POWERS == (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)


@pytest.mark.long
def test_any_similarity_may_be_swept(world):
    matrix, targets, split = world
    progress = []
    found = sweep.run(
        {2: similarity.LazyWalk(matrix, 2, 0.5)},
        targets,
        split,
        Steps(1.0, 3),
        metric=metrics.accuracy,
        options=Options(progress=lambda *seen: progress.append(seen)),
    )
    expected = generators.run(
        similarity.LazyWalk(matrix, 2, 0.5),
        targets,
        split,
        step_size=1.0,
        num_steps=3,
        metric=metrics.accuracy,
    )
    np.testing.assert_array_equal(found.val, expected.best_val)
    assert progress == [("sweep", 1, 1)]


@pytest.mark.long
def test_step_sizes_may_be_an_array(world):
    matrix, targets, split = world
    found = propagation.run(
        similarity.Power(matrix, 1),
        targets,
        split,
        Steps(np.array(GRID), STEPS),
        metric=metrics.accuracy,
    )
    assert_same(found[0], one(world, 1, GRID[0]))
