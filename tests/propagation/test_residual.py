"""Residual propagation, held against what the paper says of it, and its runs."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import generators
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import references
from generators import C, N, every_similarity, every_symmetric_similarity

from gnnrp import graph, metrics, propagation, sparse
from gnnrp.kernels import features
from gnnrp.propagation import (
    exact,
    krylov,
    label,
    losses,
    residual,
    similarity,
    solvers,
)
from gnnrp.propagation.problem import make_problem
from gnnrp.types import Split

seeds = pytest.mark.parametrize("seed", range(2))
methods = pytest.mark.parametrize("method", solvers.NAMES)
explicit_methods = pytest.mark.parametrize("method", solvers.NAMES[1:])
SIZES = ((6, 4, 3), (5, 2, 6), (8, 5, 1))  # splits of unequal parts


def minus_error(scores, targets, mask):
    """A metric without ties: minus the mean squared error of the known entries."""
    known = mask[:, None] & jnp.isfinite(targets)
    gap = jnp.where(known, scores - jnp.where(known, targets, 0), 0)
    return -jnp.sum(gap**2) / jnp.sum(known, dtype=scores.dtype)


def largest_score(scores, targets, mask):
    """A metric that does not look at the targets."""
    del targets
    return jnp.max(jnp.where(mask[:, None], scores, -jnp.inf))


def constant(scores, targets, mask):
    """A metric that is all ties."""
    del targets, mask
    return jnp.ones((), scores.dtype)


def run(S, targets, split, **settings) -> propagation.Trajectory:
    defaults = {"step_size": 0.7, "num_steps": 40, "metric": minus_error}
    return generators.run(S, targets, split, **(defaults | settings))


def basic(seed, power=2):
    """Return S = A^K, the same dense, Y and three splits at once."""
    S = similarity.Power(generators.adjacency(seed), power)
    A = references.adjacency(generators.edges(seed), N)
    targets = generators.targets(seed)
    return S, np.linalg.matrix_power(A, power), targets, generators.splits(seed, SIZES)


def rows(split):
    """Return the splits of (s, n) masks, one by one."""
    return [Split(*masks) for masks in zip(*split, strict=True)]


def untied(seed):
    """Return a start without ties, so that round-off decides no accuracy."""
    return 0.1 * np.random.default_rng(seed).standard_normal((N, C))


def expected_run(S, targets, split, step_size, num_steps, **settings):
    """Return F of every step, and the curves, of one split by the references."""
    F = references.residual_propagation(
        S, targets, split.train, step_size, num_steps, **settings
    )

    def curve(mask):
        return -np.mean((F[1:, mask] - targets[mask]) ** 2, axis=(1, 2))

    norms = references.train_residual(F, targets, split.train)
    return F, norms, curve(split.val), curve(split.test)


def expected_accuracy(S, targets, split, step_size, num_steps, **settings):
    """Return the accuracy on the validation nodes after each step."""
    F = expected_run(S, targets, split, step_size, num_steps, **settings)[0]
    hits = F[1:].argmax(axis=2) == targets.argmax(axis=1)
    return hits[:, split.val].mean(axis=1)


def assert_close(found, expected, tolerance=1e-11):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


def assert_same_run(found, expected, tolerance=1e-9):
    for name in ("train_residual", "val", "test", "best_val", "best_test"):
        np.testing.assert_allclose(
            getattr(found, name),
            getattr(expected, name),
            rtol=0,
            atol=tolerance,
            err_msg=name,
        )
    np.testing.assert_array_equal(found.best_step, expected.best_step)
    assert_close(found.predictions, expected.predictions, tolerance)


# The algorithm: Eq. 6, Algorithm 1, Proposition 3.1


def steps_of(S, targets, train, num_steps, *, step_size=0.7, initial=None):
    """Yield the state after each of the steps, the start first."""
    Y, mask = jnp.asarray(targets), jnp.asarray(train)[:, None]
    state = residual.init(Y, None if initial is None else jnp.asarray(initial))
    advance = jax.jit(
        lambda state: residual.step(state, S, Y, mask, step_size=step_size)
    )
    yield state
    for _ in range(num_steps):
        state = advance(state)
        yield state


@seeds
@pytest.mark.parametrize("power", [1, 3])
def test_first_step_is_label_propagation_including_the_training_rows(seed, power):
    S, _, targets, split = basic(seed, power)
    train = split.train[0]
    _, first = steps_of(S, targets, train, 1)
    start = label.seeds(jnp.asarray(targets), jnp.asarray(train))
    LP = label.propagate(S.adjacency, start, num_iterations=power)
    np.testing.assert_allclose(first.predictions, 0.7 * LP, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(
        np.argmax(first.predictions, axis=1), np.argmax(LP, axis=1)
    )


@seeds
@pytest.mark.parametrize("power", [1, 2])
def test_each_later_step_is_label_propagation_of_the_residual(seed, power):
    S, _, targets, split = basic(seed, power)
    Y, train = jnp.asarray(targets), split.train[0]
    states = list(steps_of(S, targets, train, 5))
    for before, after in itertools.pairwise(states):
        rest = label.seeds(Y - before.predictions, jnp.asarray(train))
        LP = label.propagate(S.adjacency, rest, num_iterations=power)
        moved = after.predictions - before.predictions
        np.testing.assert_allclose(moved, 0.7 * LP, rtol=0, atol=1e-15)
    assert [int(state.t) for state in states] == list(range(6))


@seeds
def test_residuals_follow_the_papers_recursion(seed):
    # [R, R'] <- [R, R'] - η S [R, 0] from [Y, 0], with F = Y - R and F' = -R'.
    S, dense, targets, split = basic(seed, 3)
    train = split.train[0]
    mask = jnp.asarray(train)[:, None]
    R = np.where(train[:, None], targets, 0)
    for state in steps_of(S, targets, train, 20):
        visible = residual.residuals(state, jnp.asarray(targets), mask)
        assert not np.asarray(visible)[~train].any()
        np.testing.assert_allclose(visible[train], R[train], rtol=0, atol=1e-13)
        F = np.asarray(state.predictions)
        np.testing.assert_allclose(F[train], (targets - visible)[train], atol=1e-14)
        np.testing.assert_allclose(F[~train], -R[~train], rtol=0, atol=1e-13)
        R = R - 0.7 * dense @ np.where(train[:, None], R, 0)


@seeds
def test_steps_from_another_start_are_those_of_the_definition(seed):
    S, dense, targets, split = basic(seed)
    start = np.random.default_rng(seed).standard_normal((N, C))
    train = split.train[0]
    *_, last = steps_of(S, targets, train, 12, initial=start)
    expected = references.residual_propagation(
        dense, targets, train, 0.7, 12, initial=start
    )
    assert_close(last.predictions, expected[-1])


@every_similarity
def test_every_similarity_follows_the_dense_reference(case):
    world, targets = generators.world(0), generators.targets(0)
    train = generators.split(0).train
    step_size = 1 / np.linalg.norm(case.dense(world), 2)
    *_, last = steps_of(case.make(world), targets, train, 30, step_size=step_size)
    expected = references.residual_propagation(
        case.dense(world), targets, train, step_size, 30
    )
    assert_close(last.predictions, expected[-1])


@pytest.mark.long
def test_several_splits_and_unknown_targets_take_one_step_together():
    S, _, targets, split = basic(0)
    unknown = np.random.default_rng(0).random((N, C)) < 0.3
    Y = np.where(unknown, np.nan, targets)
    mask = split.train.T[:, :, None] & ~unknown[:, None, :]
    state = residual.init(jnp.zeros((N, 3, C)))
    wide = jnp.broadcast_to(jnp.asarray(Y)[:, None, :], (N, 3, C))
    for _ in range(2):
        state = residual.step(state, S, wide, jnp.asarray(mask), step_size=0.7)
    for s in range(3):
        alone = residual.init(jnp.asarray(targets))
        for _ in range(2):
            alone = residual.step(
                alone, S, jnp.asarray(Y), jnp.asarray(mask[:, s]), step_size=0.7
            )
        assert np.isfinite(alone.predictions).all()
        np.testing.assert_allclose(
            state.predictions[:, s], alone.predictions, rtol=0, atol=1e-14
        )


# Gradient descent on a linear GNN is RP (Cor. 4.4)


@pytest.mark.parametrize(
    ("residual_fn", "loss"),
    [
        (losses.squared, lambda Y, F: jnp.sum((Y - F) ** 2) / 2),
        (losses.softmax, lambda Y, F: jnp.sum(optax.softmax_cross_entropy(F, Y))),
        (
            losses.sigmoid,
            lambda Y, F: jnp.sum(optax.sigmoid_binary_cross_entropy(F, Y)),
        ),
    ],
    ids=["squared", "softmax", "sigmoid"],
)
@pytest.mark.parametrize("from_zero", [True, False])
def test_gradient_descent_on_a_linear_gnn_is_rp_step_by_step(
    residual_fn, loss, from_zero
):
    seed = 0
    world, train = generators.world(seed), generators.split(seed).train
    Y, depth, step_size = jnp.asarray(generators.targets(seed)), 2, 0.1
    aggregated = jnp.asarray(np.linalg.matrix_power(world.A, depth) @ world.features)
    W = jnp.zeros((world.features.shape[1], C))
    if not from_zero:
        W = W + jax.random.normal(jax.random.key(seed), W.shape)

    @jax.jit
    def descend(W):
        return W - step_size * jax.grad(
            lambda W: loss(Y[train], (aggregated @ W)[train])
        )(W)

    S = similarity.Sandwich(
        similarity.Power(world.matrix, depth),
        features.build(world.features, "linear", normalized=False),
    )
    step = jax.jit(
        lambda state: residual.step(
            state,
            S,
            Y,
            jnp.asarray(train)[:, None],
            step_size=step_size,
            residual_fn=residual_fn,
        )
    )
    state = residual.init(Y, aggregated @ W)
    for _ in range(30):
        W, state = descend(W), step(state)
        np.testing.assert_allclose(
            state.predictions, aggregated @ W, rtol=0, atol=1e-12
        )
    assert np.abs(state.predictions).max() > 0.1


# Runs: what they return, by every method


@pytest.mark.long
@explicit_methods
@pytest.mark.parametrize(("seed", "power"), [(0, 1), (1, 2), (2, 3)])
def test_run_returns_the_curves_and_the_best_step_of_the_reference(seed, method, power):
    S, dense, targets, split = basic(seed, power)
    found = run(S, targets, split, method=method)
    assert found.report.solver == method
    assert found.report.num_steps == 40
    assert found.report.error < 1e-4
    for s, one in enumerate(rows(split)):
        F, norms, val, test = expected_run(dense, targets, one, 0.7, 40)
        tolerance = 2e-11
        assert_close(found.train_residual[s], norms, tolerance)
        assert_close(found.val[s], val, tolerance)
        assert_close(found.test[s], test, tolerance)
        best = int(np.argmax(val)) + 1
        assert found.best_step[s] == best
        assert found.best_val[s] == found.val[s, best - 1]
        assert found.best_test[s] == found.test[s, best - 1]
        assert_close(found.predictions[s], F[best], tolerance)


@pytest.mark.long
@seeds
@explicit_methods
@pytest.mark.parametrize("shape", ["one", "each"])
def test_methods_agree_from_another_start(seed, method, shape):
    S, dense, targets, split = basic(seed)
    start = np.random.default_rng(seed).standard_normal((3, N, C))
    if shape == "one":
        start[:] = start[0]
    found = run(
        S, targets, split, method=method, initial=start[0] if shape == "one" else start
    )
    for s, one in enumerate(rows(split)):
        F, norms, val, test = expected_run(
            dense, targets, one, 0.7, 40, initial=start[s]
        )
        assert_close(found.train_residual[s], norms, 2e-11)
        assert_close(found.val[s], val, 2e-11)
        assert_close(found.test[s], test, 2e-11)
        assert_close(found.predictions[s], F[int(found.best_step[s])], 2e-11)


@pytest.mark.long
@explicit_methods
@pytest.mark.parametrize("num_steps", [1, 3])
def test_few_steps_are_as_exact_as_many(method, num_steps):
    S, dense, targets, split = basic(1)
    nobody = np.zeros_like(split.val)
    found = run(
        S, targets, split._replace(val=nobody), method=method, num_steps=num_steps
    )
    np.testing.assert_array_equal(found.best_step, [num_steps] * 3)
    for s, one in enumerate(rows(split)):
        F = expected_run(dense, targets, one, 0.7, num_steps)[0]
        assert_close(found.predictions[s][~one.train], F[-1][~one.train])
        assert_close(found.predictions[s][one.train], F[-1][one.train])


@pytest.mark.long
@explicit_methods
def test_splits_at_once_equal_one_at_a_time_and_one_alone_has_no_axis(method):
    S, _, targets, split = basic(0)
    together = run(S, targets, split, method=method)
    assert together.predictions.shape == (3, N, C)
    assert together.val.shape == together.train_residual.shape == (3, 40)
    assert together.best_step.shape == together.report.diverged.shape == (3,)
    for s in (0, 2):
        alone = run(S, targets, rows(split)[s], method=method)
        assert alone.predictions.shape == (N, C)
        assert alone.val.shape == (40,)
        assert np.shape(alone.best_step) == np.shape(alone.report.diverged) == ()
        row = propagation.Trajectory(*(part[s] for part in together[:-1]), alone.report)
        assert_same_run(alone, row, 1e-11)
        assert alone.report.num_steps == together.report.num_steps


@pytest.mark.long
@every_symmetric_similarity
def test_every_symmetric_similarity_has_closed_forms(case):
    check_similarity(case, "exact")
    check_similarity(case, "krylov")


@pytest.mark.long
@pytest.mark.parametrize("method", ["iterate", "exact", "krylov"])
def test_a_metric_that_says_nothing_of_the_validation_nodes_is_told(method):
    S, _, targets, split = basic(0)
    targets = targets[:, :1]
    of_one_class = split._replace(val=split.val & (targets[:, 0] == 0))
    with pytest.raises(ValueError, match=r"metric is NaN on the validation nodes of"):
        run(S, targets, of_one_class, metric=metrics.roc_auc, method=method)


@pytest.mark.long
@pytest.mark.parametrize("name", ["function", "restart", "sandwich of a power"])
def test_similarities_run_step_by_step(name):
    check_similarity(generators.SIMILARITIES[name], "iterate")


def check_similarity(case, method):
    world, targets = generators.world(1), generators.targets(1)
    split, dense = generators.split(1), case.dense(generators.world(1))
    step_size = float(1 / np.linalg.norm(dense, 2))
    found = run(case.make(world), targets, split, step_size=step_size, method=method)
    F, norms, val, test = expected_run(dense, targets, split, step_size, 40)
    assert_close(found.train_residual, norms, 1e-10)
    assert_close(found.val, val, 1e-10)
    assert_close(found.test, test, 1e-10)
    assert_close(found.predictions, F[int(found.best_step)], 1e-10)


@pytest.mark.long
@seeds
@explicit_methods
def test_permuting_the_nodes_permutes_the_predictions_only(seed, method):
    edges, targets = generators.edges(seed), generators.targets(seed)
    split = generators.split(seed)
    order = np.random.default_rng(seed).permutation(N)
    place = np.argsort(order)  # node i is now at place[i]
    moved_split = Split(*(mask[order] for mask in split))

    def similarity_of(edges):
        matrix = sparse.prepare(graph.normalized_adjacency(edges, N))
        return similarity.Power(matrix, 2)

    plain = run(similarity_of(edges), targets, split, method=method)
    moved = run(similarity_of(place[edges]), targets[order], moved_split, method=method)
    assert_same_run(moved, plain._replace(predictions=plain.predictions[order]), 1e-11)


@seeds
@explicit_methods
def test_accuracy_is_that_of_the_predictions(seed, method):
    S, dense, targets, split = basic(seed)
    start = untied(seed)
    found = run(
        S, targets, split, method=method, metric=metrics.accuracy, initial=start
    )
    labels = targets.argmax(axis=1)
    for s, one in enumerate(rows(split)):
        hits = found.predictions[s].argmax(axis=1) == labels
        assert found.best_val[s] == pytest.approx(hits[one.val].mean())
        assert found.best_test[s] == pytest.approx(hits[one.test].mean())
        expected = expected_accuracy(dense, targets, one, 0.7, 40, initial=start)
        np.testing.assert_allclose(found.val[s], expected, atol=1e-12)


@pytest.mark.long
@explicit_methods
def test_scores_are_not_clipped(method):
    # A hub with 6 leaves of class 0 and 2 of class 1, one step of η = 1.
    edges = np.array([[0] * 8, range(1, 9)])
    S = similarity.Power(sparse.prepare(graph.normalized_adjacency(edges)), 1)
    train = np.arange(9) > 0
    targets = np.eye(2)[[0] * 7 + [1] * 2]
    found = run(
        S,
        targets,
        Split(train, ~train, ~train),
        method=method,
        step_size=1.0,
        num_steps=1,
    )
    expected = np.array([6, 2]) / np.sqrt(18)
    np.testing.assert_allclose(found.predictions[0], expected, rtol=1e-13)
    np.testing.assert_allclose(found.predictions[0], [1.414, 0.471], atol=5e-4)


@pytest.mark.long
@explicit_methods
def test_labels_outside_the_training_set_change_no_bit(method):
    S, _, targets, split = basic(0)
    for seed, one in enumerate(rows(split)[:2]):
        hidden = np.flatnonzero(~one.train)
        other = targets.copy()
        other[hidden] = targets[np.random.default_rng(seed).permutation(hidden)]
        assert (other != targets).any()
        plain, again = (
            run(S, y, one, method=method, metric=largest_score)
            for y in (targets, other)
        )
        for name in propagation.Trajectory._fields[:-1]:
            np.testing.assert_array_equal(
                getattr(plain, name), getattr(again, name), err_msg=name
            )
        assert plain.predictions.any()


@pytest.mark.long
@explicit_methods
def test_hidden_labels_may_be_unknown(method):
    S, _, targets, split = basic(0)
    one = rows(split)[0]
    hidden = np.where(one.train[:, None], targets, np.nan)
    plain = run(S, targets, one, method=method, metric=largest_score)
    blind = run(S, hidden, one, method=method, metric=largest_score)
    assert blind.report.solver == method
    np.testing.assert_array_equal(plain.predictions, blind.predictions)
    np.testing.assert_array_equal(plain.train_residual, blind.train_residual)


@pytest.mark.long
@seeds
def test_unknown_training_targets_are_left_out_as_if_each_column_ran_alone(seed):
    S, _, targets, split = basic(seed)
    one = rows(split)[2]
    unknown = np.random.default_rng(seed).random((N, C)) < 0.3
    unknown[np.flatnonzero(one.train)[:2]] = False  # each column keeps two
    Y = np.where(unknown, np.nan, targets)
    nobody = np.zeros(N, bool)
    found = run(S, Y, Split(one.train, nobody, one.test), residual_fn=losses.squared)
    assert found.report.solver == "iterate"
    assert "unknown" in found.report.reason
    squares, count = np.zeros(40), 0
    for column in range(C):
        train = one.train & ~unknown[:, column]
        alone = run(
            S,
            targets[:, [column]],
            Split(train, nobody, nobody),
            method="exact",
        )
        np.testing.assert_allclose(
            found.predictions[:, [column]], alone.predictions, rtol=0, atol=1e-12
        )
        squares += alone.train_residual**2 * train.sum()
        count += train.sum()
    np.testing.assert_allclose(
        found.train_residual, np.sqrt(squares / count), rtol=1e-11
    )
    for method in ("exact", "krylov"):
        with pytest.raises(ValueError, match="unknown"):
            run(S, Y, one, method=method)


@pytest.mark.long
@pytest.mark.parametrize(
    "residual_fn", [losses.squared, losses.absolute, losses.sigmoid, losses.softmax]
)
def test_every_loss_runs_as_its_steps_do(residual_fn):
    S, _, targets, split = basic(0)
    one, settings = rows(split)[0], {"residual_fn": residual_fn}
    found = run(S, targets, one, method="iterate", **settings)
    Y, mask = jnp.asarray(targets), jnp.asarray(one.train)[:, None]

    def body(state, _):
        sent = residual.residuals(state, Y, mask, **settings)
        state = residual.step(state, S, Y, mask, step_size=0.7, **settings)
        return state, (sent, state.predictions)

    _, (sent, F) = jax.lax.scan(body, residual.init(Y), length=40)
    norms = np.sqrt(np.mean(np.asarray(sent)[:, one.train] ** 2, axis=(1, 2)))
    np.testing.assert_allclose(found.train_residual, norms, rtol=1e-11)
    assert_close(found.predictions, F[int(found.best_step) - 1])


@pytest.mark.long
def test_softmax_run_conserves_the_row_sums():
    S, _, targets, split = basic(0, 3)
    start = np.random.default_rng(0).standard_normal((N, C))
    found = run(S, targets, split, residual_fn=losses.softmax, initial=start)
    expected = np.broadcast_to(start.sum(axis=1), (3, N))
    np.testing.assert_allclose(found.predictions.sum(axis=2), expected, atol=1e-12)
    assert np.abs(found.predictions - start).max() > 0.1


# Which step is kept, and when a run stops


@explicit_methods
@pytest.mark.parametrize(("select", "step"), [("first", 1), ("last", 40)])
def test_ties_go_to_the_first_or_last_step(method, select, step):
    S, dense, targets, split = basic(0)
    found = run(S, targets, split, method=method, select=select, metric=constant)
    np.testing.assert_array_equal(found.best_step, [step] * 3)
    for s, one in enumerate(rows(split)):
        F = expected_run(dense, targets, one, 0.7, 40)[0]
        assert_close(found.predictions[s], F[step], 1e-10)


@seeds
@explicit_methods
@pytest.mark.parametrize("select", ["first", "last"])
def test_kept_step_is_that_of_the_rule_over_the_curve(seed, method, select):
    S, dense, targets, split = basic(seed, 1)
    start = untied(seed)
    settings = {"method": method, "metric": metrics.accuracy, "initial": start}
    for patience in (None, 1, 5):
        found = run(S, targets, split, select=select, patience=patience, **settings)
        for s, one in enumerate(rows(split)):
            val = expected_accuracy(dense, targets, one, 0.7, 40, initial=start)
            value, step, _ = references.select(val.tolist(), select, patience or 99)
            assert found.best_val[s] == pytest.approx(value)
            assert found.best_step[s] == step


@explicit_methods
def test_patience_ends_the_run_once_it_has_run_out_for_every_split(method):
    S, dense, targets, split = basic(0, 1)
    start, stops = untied(0), []
    found = run(
        S,
        targets,
        split,
        method=method,
        num_steps=300,
        patience=3,
        metric=metrics.accuracy,
        initial=start,
    )
    for s, one in enumerate(rows(split)):
        val = expected_accuracy(dense, targets, one, 0.7, 300, initial=start)
        value, step, stop = references.select(val.tolist(), "first", 3)
        assert found.best_val[s] == pytest.approx(value)
        assert found.best_step[s] == step
        seen = found.report.num_steps
        np.testing.assert_allclose(found.val[s], val[:seen], atol=1e-12)
        stops.append(stop)
    assert max(stops) < 300
    assert found.report.num_steps == found.val.shape[1] == max(stops)


@pytest.mark.long
@explicit_methods
def test_without_validation_nodes_the_last_step_is_kept(method):
    S, dense, targets, split = basic(0)
    val = split.val.copy()
    val[1] = False  # one of three splits
    found = run(S, targets, split._replace(val=val), method=method, select="first")
    assert found.best_step[1] == 40
    assert np.isnan(found.best_val[1])
    F, _, _, test = expected_run(dense, targets, rows(split)[1], 0.7, 40)
    assert_close(found.predictions[1], F[-1], 1e-10)
    assert found.best_test[1] == pytest.approx(test[-1], rel=1e-10)
    for s in (0, 2):
        assert np.isfinite(found.best_val[s])


# The choice of a method, and its reasons


def chosen(S, targets, split, **settings):
    report = run(S, targets, split, **settings).report
    assert (report.convergence is None) == (report.solver == "iterate")
    return report.solver, report.reason


@pytest.mark.long
def test_auto_sends_the_fewest_columns_and_says_how_many(monkeypatch):
    S, _, targets, split = basic(0)
    c = targets.shape[1]
    assert split.train.sum(axis=1).tolist() == [6, 5, 8]
    method, reason = chosen(S, targets, split)  # 40 steps
    assert method == "exact"
    counts = f"exact 19, krylov {8 * 3 * c}, iterate {40 * 3 * c}"
    assert reason == f"fewest columns through S: {counts}"
    # Three steps of so few columns are cheaper than columns of S_XX.
    assert chosen(S, targets, split, num_steps=1)[0] == "iterate"
    monkeypatch.setattr(exact, "MAX_TRAIN", 7)
    method, reason = chosen(S, targets, split)
    assert method == "krylov"
    assert "exact" not in reason
    monkeypatch.setattr(krylov, "NUM_VECTORS", 2)
    assert chosen(S, targets, split, num_steps=2)[0] == "krylov"
    assert chosen(S, targets, split, num_steps=1)[0] == "iterate"


@pytest.mark.long
def test_auto_counts_the_step_sizes_that_closed_forms_share(monkeypatch):
    S, _, targets, split = basic(0)
    monkeypatch.setattr(exact, "MAX_TRAIN", 7)
    settings = {"num_steps": 3, "metric": metrics.accuracy}
    for step_sizes, method in (([0.5], "iterate"), ([0.5, 0.7], "krylov")):
        found = generators.run(S, targets, split, step_sizes=step_sizes, **settings)
        assert {each.report.solver for each in found} == {method}


@pytest.mark.long
def test_auto_iterates_where_memory_holds_too_few_vectors(monkeypatch):
    S, _, targets, split = basic(0)
    monkeypatch.setattr(exact, "MAX_TRAIN", 7)
    monkeypatch.setattr(krylov, "MAX_BYTES", 7 * 3 * targets.nbytes)
    method, reason = chosen(S, targets, split)
    assert method == "iterate"
    assert "krylov" not in reason
    monkeypatch.setattr(krylov, "MAX_BYTES", 8 * 3 * targets.nbytes)
    assert chosen(S, targets, split)[0] == "krylov"


def test_auto_iterates_for_other_losses_and_the_closed_forms_refuse_them():
    S, _, targets, split = basic(0)
    assert chosen(S, targets, split, residual_fn=losses.softmax)[0] == "iterate"
    for method in ("exact", "krylov"):
        with pytest.raises(ValueError, match=f"method '{method}' .* squared loss"):
            run(S, targets, split, residual_fn=losses.softmax, method=method)


@pytest.mark.long
def test_auto_iterates_for_asymmetric_similarities_and_the_closed_forms_refuse_them():
    _, _, targets, split = basic(0)
    world = generators.world(0)
    S = similarity.Power(world.by_rows, 2)
    method, reason = chosen(S, targets, split)
    assert method == "iterate"
    assert "not symmetric" in reason
    for method in ("exact", "krylov"):
        with pytest.raises(ValueError, match=r"not symmetric.*iterate"):
            run(S, targets, split, method=method)
    found = run(S, targets, split, method="iterate")
    assert found.report.reason == "requested"
    dense = np.linalg.matrix_power(world.A_by_rows, 2)
    for s, one in enumerate(rows(split)):
        F = expected_run(dense, targets, one, 0.7, 40)[0]
        assert_close(found.predictions[s], F[int(found.best_step[s])])


def test_report_of_the_exact_method_tells_the_spectrum_of_each_split():
    S, dense, targets, split = basic(0)
    report = run(S, targets, split, method="exact").report
    assert len(report.convergence) == 3
    for one, found in zip(rows(split), report.convergence, strict=True):
        values = np.linalg.eigvalsh(dense[np.ix_(one.train, one.train)])
        assert found.smallest == pytest.approx(values[0], abs=1e-12)
        assert found.safe_step_size == pytest.approx(2 / values[-1])
        assert found.predictions_converge


@pytest.mark.long
@explicit_methods
@pytest.mark.parametrize("num_steps", [60, 2000])
def test_divergence_is_flagged_and_never_raises(method, num_steps, monkeypatch):
    S, _, targets, split = basic(1)
    vectors = 8  # as many as training nodes
    monkeypatch.setattr(krylov, "MAX_BYTES", vectors * 3 * targets.nbytes)
    found = run(
        S,
        targets,
        split,
        step_size=30.0,
        num_steps=num_steps,
        method=method,
        metric=metrics.accuracy,
    )
    assert found.report.diverged.all()
    kept = found.best_step[:, None] - 1
    assert np.isfinite(np.take_along_axis(found.val, kept, axis=1)).all()
    assert np.isfinite(found.predictions).all()
    calm = run(S, targets, split, num_steps=num_steps, method=method)
    assert not calm.report.diverged.any()


# Arguments


def argument(**changes):
    """Return targets and masks of three nodes, changed."""
    masks = {
        "train": np.array([True, False, False]),
        "val": np.array([False, True, False]),
        "test": np.array([False, False, True]),
    }
    y = changes.pop("targets", np.eye(3))
    initial = changes.pop("initial", None)
    return y, Split(**(masks | changes)), initial


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": np.ones(3)}, r"float64 \(3,\)"),
        ({"targets": np.eye(3, dtype=int)}, r"floats .* int64 \(3, 3\)"),
        ({"targets": np.diag([1, np.inf, 1])}, "infinite, and row 1 is"),
        ({"train": np.ones(4, bool)}, r"train mask .* \(3,\) .* got \(4,\)"),
        ({"val": np.ones((1, 1, 3), bool)}, r"val mask .* got \(1, 1, 3\)"),
        ({"val": np.zeros((2, 3), bool)}, r"val mask .* \(1, 3\), got \(2, 3\)"),
        ({"test": np.zeros((2, 3), bool)}, r"test mask .* \(1, 3\), got \(2, 3\)"),
        ({"train": np.zeros(3, bool)}, "split 0 has no training node"),
        (
            {"val": np.array([True, True, False])},
            "node 0 is in both the train and the val mask",
        ),
        (
            {"test": np.array([True, False, True])},
            "node 0 is in both the train and the test mask",
        ),
        (
            {"initial": np.zeros((3, 2))},
            r"\(3, 3\) or \(1, 3, 3\), got \(3, 2\)",
        ),
        ({"initial": np.full((3, 3), np.nan)}, "initial must be finite"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_value(changes, message):
    with pytest.raises(ValueError, match=message):
        make_problem(*argument(**changes))


def test_split_without_training_node_is_named():
    masks = np.zeros((3, 3), bool)
    masks[[0, 2], 0] = True
    nobody = np.zeros_like(masks)
    with pytest.raises(ValueError, match="split 1 has no training node"):
        make_problem(*argument(train=masks, val=nobody, test=nobody))


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_masks_that_are_not_boolean_are_refused(part):
    with pytest.raises(TypeError, match=f"{part} mask must be boolean, got int64"):
        make_problem(*argument(**{part: np.array([1, 0, 0])}))


@pytest.mark.long
def test_parts_may_overlap_if_neither_is_trained_on():
    both = np.array([False, True, True])
    problem = make_problem(*argument(val=both, test=both))
    np.testing.assert_array_equal(problem.val.mask, problem.test.mask)


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"step_size": 0.0}, r"step_size .* got 0\.0"),
        ({"step_size": -1.0}, r"step_size .* got -1\.0"),
        ({"step_size": np.nan}, "step_size .* got nan"),
        ({"step_size": np.inf}, "step_size .* got inf"),
        ({"num_steps": 0}, "num_steps must be at least 1, got 0"),
        ({"patience": 0}, "patience must be at least 1, got 0"),
        ({"method": "exakt"}, "method .* got 'exakt'; did you mean 'exact'"),
        ({"select": "lats"}, "rule .* got 'lats'; did you mean 'last'"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_value(settings, message):
    S, _, targets, split = basic(0)
    with pytest.raises(ValueError, match=message):
        run(S, targets, split, **settings)


@pytest.mark.long
@explicit_methods
def test_callback_is_told_ever_more_of_the_same_total(method):
    S, _, targets, split = basic(0)
    calls = []
    run(
        S,
        targets,
        split,
        method=method,
        callback=lambda *progress: calls.append(progress),
    )
    done, totals = zip(*calls, strict=True)
    assert np.all(np.diff(done) > 0)
    assert len(set(totals)) == 1
    assert done[0] >= 1
    assert done[-1] <= totals[0]
    if method != "krylov":  # which may need fewer vectors than it has room for
        assert done[-1] == totals[0]


@pytest.mark.long
@methods
def test_step_size_may_be_a_jax_scalar(method):
    S, _, targets, split = basic(0)
    plain = run(S, targets, split, method=method)
    found = run(S, targets, split, method=method, step_size=jnp.asarray(0.7))
    assert_same_run(found, plain, 1e-13)


# Traces


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Counted:
    """A similarity that counts how often it is traced."""

    inner: Any
    traces: list[int] = dataclasses.field(metadata={"static": True})

    def __call__(self, v):
        self.traces.append(1)
        return self.inner(v)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class CountedMetric:
    """A metric that counts how often it is traced; as a pytree it is traced once."""

    traces: "Traces"

    def __call__(self, scores, targets, mask):
        self.traces.append(1)
        return minus_error(scores, targets, mask)


class Traces(list):
    """A list that is always equal, so that it can be static."""

    def __hash__(self):
        return 0

    def __eq__(self, other):
        return isinstance(other, Traces)


class OwnTraces(Traces):
    """A list that is equal to itself alone."""

    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other


def counted_metric() -> tuple[Callable, list]:
    traces = OwnTraces()
    return CountedMetric(traces), traces


@pytest.mark.long
@explicit_methods
def test_step_sizes_masks_and_graphs_of_equal_size_share_one_trace(method):
    traces = Traces()
    metric, metric_traces = counted_metric()

    def one(seed=0, split_seed=0, step_size=0.5, power=2):
        S = similarity.Power(generators.adjacency(seed), power)
        return run(
            Counted(S, traces),
            generators.targets(split_seed),
            generators.split(split_seed),
            step_size=step_size,
            num_steps=30,
            method=method,
            metric=metric,
        )

    results = [one()]
    before = len(traces), len(metric_traces)
    assert min(before) > 0
    step_sizes = (0.1, 0.2, 0.3, 0.7, 1.0, 1.5)
    results += [one(step_size=step_size) for step_size in step_sizes]
    results += [one(split_seed=1), one(seed=1)]
    assert (len(traces), len(metric_traces)) == before
    finals = [result.predictions for result in results]
    assert len({final.tobytes() for final in finals}) == len(finals)
    one(power=3)
    assert len(traces) > before[0]


@pytest.mark.long
def test_numbers_of_steps_share_one_trace_of_the_iteration():
    S, _, targets, split = basic(0)
    metric, traces = counted_metric()
    run(S, targets, split, method="iterate", metric=metric)
    before = len(traces)
    for settings in ({"num_steps": 7}, {"num_steps": 90}, {"patience": 2}):
        run(S, targets, split, method="iterate", metric=metric, **settings)
    assert len(traces) == before


@pytest.mark.long
def test_step_size_is_an_argument_of_a_traced_step():
    S, _, targets, split = basic(0)
    Y, mask = jnp.asarray(targets), jnp.asarray(split.train[0])[:, None]
    traces = []

    @jax.jit
    def step(state, S, mask, step_size):
        traces.append(1)
        return residual.step(state, S, Y, mask, step_size=step_size)

    outcomes = [
        step(residual.init(Y), S, mask, eta).predictions
        for eta in (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5)
    ]
    assert len(traces) == 1
    np.testing.assert_allclose(outcomes[-1], 15 * outcomes[0], rtol=1e-13)


@pytest.mark.long
def test_gradient_in_the_step_size_is_that_of_finite_differences():
    S, _, targets, split = basic(0)
    Y, mask = jnp.asarray(targets), jnp.asarray(split.train[0])[:, None]

    @jax.jit
    def loss(step_size):
        state = residual.init(Y)
        for _ in range(3):
            state = residual.step(state, S, Y, mask, step_size=step_size)
        return jnp.sum(jnp.where(mask, 0, state.predictions - Y) ** 2)

    slope = float(loss(0.7 + 1e-6) - loss(0.7 - 1e-6)) / 2e-6
    assert float(jax.grad(loss)(0.7)) == pytest.approx(slope, rel=1e-7)
