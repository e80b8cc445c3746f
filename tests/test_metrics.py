"""Scores on device, held against plain counting and scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics

from gnnrp import metrics
from gnnrp.propagation.problem import evaluate, make_problem
from gnnrp.runtime import tracing
from gnnrp.types import Split

SEEDS = range(3)
accuracy, roc_auc = jax.jit(metrics.accuracy), jax.jit(metrics.roc_auc)
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def all_of(n):
    return jnp.ones(n, bool)


def one_hot(labels, num_classes, dtype=np.float64):
    return jnp.asarray(np.eye(num_classes, dtype=dtype)[labels])


def tied_problem(seed, n=60, tasks=3, dtype=np.float64):
    """Scores of few values, some of them negative zeros, and targets partly unknown."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(-2, 3, (n, tasks)).astype(dtype)
    scores[(scores == 0) & (rng.random((n, tasks)) < 0.5)] = -0.0
    targets = rng.integers(0, 2, (n, tasks)).astype(dtype)
    targets[rng.random((n, tasks)) < 0.2] = np.nan
    mask = rng.random(n) < 0.7
    return scores, targets, mask


def reference_auc(scores, targets, mask):
    areas = []
    for score, target in zip(scores[mask].T, targets[mask].T, strict=True):
        known = ~np.isnan(target)
        if len(set(target[known])) == 2:
            areas.append(sklearn.metrics.roc_auc_score(target[known], score[known]))
    return np.mean(areas)


@dtypes
@pytest.mark.parametrize("seed", SEEDS)
def test_accuracy_counts_the_hits_among_the_masked(seed, dtype):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(30, 4)).astype(dtype)
    labels, mask = rng.integers(0, 4, 30), rng.random(30) < 0.5
    expected = np.mean(scores.argmax(1)[mask] == labels[mask])
    found = accuracy(jnp.asarray(scores), one_hot(labels, 4, dtype), jnp.asarray(mask))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=np.finfo(dtype).eps)


def test_ties_go_to_the_first_class_and_never_to_an_absent_one():
    unreached, targets = jnp.zeros((3, 3)), one_hot([1, 2, 2], 3)
    np.testing.assert_allclose(accuracy(unreached, targets, all_of(3)), 1 / 3)
    scores = jnp.array([[2.0, 1.0, 2.0]] * 3)  # classes 0 and 2 tie
    np.testing.assert_allclose(accuracy(scores, targets, all_of(3)), 2 / 3)
    alone = jnp.array([[2.0, 1.0, 1.0]] * 3)  # not a tie: an error everywhere
    assert accuracy(alone, targets, all_of(3)) == 0


@pytest.mark.long
def test_ties_go_to_the_same_class_in_every_part_of_a_split():
    y = np.eye(4)[[1, 1, 2, 2, 3, 3, 1, 2]]
    node = np.arange(8)
    train, val, test = node == 7, [node < 2, node < 5], [node == 5, node == 6]
    split = Split(np.stack([train] * 2), np.stack(val), np.stack(test))
    problem = make_problem(y, split)
    metric = tracing.as_static(metrics.accuracy)
    found = evaluate(problem, jnp.zeros((8, 2, 4)), metric=metric)
    expected = [
        [accuracy(jnp.zeros(y.shape), y, mask) for mask in masks]
        for masks in (val, test)
    ]
    np.testing.assert_array_equal(found, expected)


def test_rows_of_padding_add_no_class():
    targets = jnp.array([[0.0, 0.0], [0.0, 1.0]])
    mask = jnp.array([False, True])
    assert float(accuracy(jnp.zeros((2, 2)), targets, mask)) == 1


def test_ties_go_to_the_first_class():
    scores = jnp.array([[0.0, 0.0], [0.0, 0.0], [-1.0, 1.0], [1.0, 1.0]])
    targets = one_hot([0, 1, 1, 0], 2)
    assert accuracy(scores, targets, all_of(4)) == 0.75
    assert accuracy(scores, targets, jnp.array([1, 1, 0, 0], bool)) == 0.5


def test_rows_outside_the_mask_do_not_count():
    scores, targets = one_hot([0, 1, 1], 2), one_hot([0, 1, 0], 2)
    assert accuracy(scores, targets, jnp.array([True, True, False])) == 1
    assert accuracy(scores, targets, jnp.array([False, False, True])) == 0


@pytest.mark.long
@pytest.mark.parametrize("score", [accuracy, roc_auc, metrics.roc_auc_to_round_off])
@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_diverged_run_scores_nan(score, broken):
    targets = one_hot([0, 1, 1, 0], 2)
    assert score(targets, targets, all_of(4)) == 1
    assert jnp.isnan(score(targets.at[2, 1].set(broken), targets, all_of(4)))
    assert jnp.isnan(score(jnp.full((4, 2), -jnp.inf), targets, all_of(4)))


@pytest.mark.parametrize("score", [accuracy, roc_auc])
def test_an_empty_mask_scores_nan(score):
    targets = one_hot([0, 1, 1, 0], 2)
    assert jnp.isnan(score(targets, targets, jnp.zeros(4, bool)))


@pytest.mark.long
@dtypes
@pytest.mark.parametrize("seed", SEEDS)
def test_roc_auc_is_that_of_scikit_learn(seed, dtype):
    scores, targets, mask = tied_problem(seed, dtype=dtype)
    found = roc_auc(*map(jnp.asarray, (scores, targets, mask)))
    assert found.dtype == dtype
    rtol = 1e-6 if dtype == np.float32 else 1e-13
    np.testing.assert_allclose(found, reference_auc(scores, targets, mask), rtol=rtol)


@dtypes
@pytest.mark.parametrize("seed", SEEDS)
def test_roc_auc_orders_scores_of_all_magnitudes_and_signs(seed, dtype):
    rng = np.random.default_rng(seed)
    largest = np.finfo(dtype).maxexp - 1
    scores = rng.choice([-1, 1], 80) * 2.0 ** rng.integers(-largest + 2, largest, 80)
    scores[:3] = np.finfo(dtype).max, np.finfo(dtype).min, np.finfo(dtype).tiny
    problem = scores.astype(dtype)[:, None], rng.integers(0, 2, (80, 1)).astype(dtype)
    found = roc_auc(*map(jnp.asarray, problem), all_of(80))
    np.testing.assert_allclose(
        found, reference_auc(*problem, np.ones(80, bool)), rtol=1e-6
    )


@dtypes
def test_negative_zero_ties_with_zero(dtype):
    targets = jnp.asarray([[1], [0]], dtype)
    for scores in ([[-0.0], [0.0]], [[0.0], [-0.0]]):
        assert roc_auc(jnp.asarray(scores, dtype), targets, all_of(2)) == 0.5


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_round_off_does_not_rank_nodes_of_one_score_in_float64(seed):
    scores, targets, mask = tied_problem(seed)
    exact = roc_auc(*map(jnp.asarray, (scores, targets, mask)))
    noise = np.random.default_rng(seed).uniform(-5, 5, scores.shape)
    noisy = scores * (1 + noise * np.finfo(float).eps)
    arguments = [jnp.asarray(array) for array in (noisy, targets, mask)]
    assert abs(roc_auc(*arguments) - exact) > 1e-4
    assert jax.jit(metrics.roc_auc_to_round_off)(*arguments) == exact
    for factor in (1e-30, 1e30):  # digits follow the scores
        arguments[0] = jnp.asarray(factor * noisy)
        assert metrics.roc_auc_to_round_off(*arguments) == exact


by_name = jax.jit(metrics.by_name("roc_auc"))


@dtypes
@pytest.mark.parametrize("gap", [1e-3, 1e-4, 1e-5])
@pytest.mark.parametrize("score", [roc_auc, by_name, metrics.by_name("roc_auc")])
def test_roc_auc_ranks_scores_that_differ_little(score, gap, dtype):
    scores = (1 + gap * np.array([0.1, 0.4, 0.35, 0.8])).astype(dtype)
    targets = jnp.asarray([[0], [0], [1], [1]], dtype)
    assert score(jnp.asarray(scores)[:, None], targets, all_of(4)) == 0.75


@pytest.mark.long
@pytest.mark.parametrize(
    "scores",
    [
        1 + 1e-8 * np.array([0.1, 0.4, 0.35, 0.8]),
        2**24 + np.array([0, 2, 1, 3]),
        2**60 + np.array([0, 2, 1, 3]),
        np.array([0, 3e-45, 1e-45, 4e-45]),
    ],
)
def test_roc_auc_ranks_numpy_scores_that_float32_rounds_together(scores):
    targets = np.array([[0], [0], [1], [1]], np.float32)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        assert metrics.roc_auc(scores[:, None], targets, np.ones(4, bool)) == 0.75


@dtypes
@pytest.mark.parametrize("outlier", [1e6, 1e30])
@pytest.mark.parametrize("score", [roc_auc, by_name])
def test_a_large_score_ties_no_others(score, outlier, dtype):
    scores = jnp.asarray([outlier, 1, 2, 3, 4, 5, 6], dtype)[:, None]
    targets = jnp.asarray([1, 0, 0, 0, 1, 1, 1], dtype)[:, None]
    assert score(scores, targets, all_of(7)) == 1


@pytest.mark.long
def test_the_largest_numbers_are_scores_too():
    largest = np.finfo(float).max
    scores = jnp.asarray([[largest], [-largest], [0.0]])
    targets = jnp.asarray([[1.0], [0.0], [0.0]])
    assert by_name(scores, targets, all_of(3)) == 1


@pytest.mark.long
def test_scores_that_are_all_zero_tie():
    zeros, targets = jnp.zeros((4, 2)), one_hot([0, 1, 1, 0], 2)
    assert metrics.roc_auc_to_round_off(zeros, targets, all_of(4)) == 0.5


def test_unknown_targets_are_left_out():
    scores = jnp.array([[3.0], [2.0], [9.0], [1.0], [-9.0]])
    targets = jnp.array([[1.0], [0.0], [jnp.nan], [1.0], [jnp.nan]])
    assert roc_auc(scores, targets, all_of(5)) == 0.5


@pytest.mark.long
def test_tasks_of_one_class_are_left_out_of_the_mean():  # field report 12
    targets = jnp.array([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    scores = jnp.array([[0.0, 3.0], [5.0, 2.0], [0.0, 1.0]])
    assert roc_auc(scores, targets, all_of(3)) == 0.5
    zeros_only = targets.at[:, 0].set(0)
    assert roc_auc(scores, zeros_only, all_of(3)) == 0.5


def test_a_task_may_have_both_classes_only_outside_the_mask():
    targets = jnp.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    scores = jnp.array([[1.0, 1.0], [2.0, 0.0], [3.0, 1.0]])
    assert roc_auc(scores, targets, jnp.array([True, True, False])) == 1


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan])
def test_roc_auc_without_any_task_of_both_classes_is_nan(value):  # field report 12
    targets = jnp.full((3, 2), value)
    assert jnp.isnan(roc_auc(jnp.ones((3, 2)), targets, all_of(3)))


def test_roc_auc_of_opposite_scores_is_its_complement():
    scores, targets, mask = map(jnp.asarray, tied_problem(0))
    total = roc_auc(scores, targets, mask)
    total += roc_auc(-scores, targets, mask)
    np.testing.assert_allclose(total, 1, rtol=1e-14)


@pytest.mark.long
def test_the_pairs_of_a_large_sample_do_not_overflow():
    n = 2**17  # n^2 / 4 pairs are 2^32
    targets = jnp.arange(n) % 2
    found = roc_auc(
        jnp.arange(n, dtype=jnp.float32)[:, None],
        targets.astype(jnp.float32)[:, None],
        all_of(n),
    )
    np.testing.assert_allclose(found, 0.5 + 1 / n, atol=2e-6)


@pytest.mark.long
@dtypes
@pytest.mark.parametrize("score", [accuracy, roc_auc])
def test_a_batch_of_scores_and_masks_is_scored_one_by_one(score, dtype):
    problems = [tied_problem(seed, dtype=dtype) for seed in SEEDS]
    scores, _, masks = (jnp.stack(arrays) for arrays in zip(*problems, strict=True))
    targets = jnp.asarray(problems[0][1])
    found = jax.jit(jax.vmap(score, in_axes=(0, None, 0)))(scores, targets, masks)
    expected = [score(s, targets, m) for s, m in zip(scores, masks, strict=True)]
    np.testing.assert_allclose(found, jnp.stack(expected), rtol=1e-6)


@pytest.mark.long
def test_metrics_are_known_by_name():
    assert metrics.by_name("accuracy") is metrics.accuracy
    assert metrics.by_name("roc_auc") is metrics.roc_auc_to_round_off
    with pytest.raises(ValueError, match="got 'auc'"):
        metrics.by_name("auc")


# Of classes, precision and probabilities


def tied_classes(seed, n=80, c=4):
    """Scores of few values, labels, and a mask; class 2 is neither label nor best."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (n, c)).astype(np.float64)
    scores[:, 2] = -1
    labels = rng.choice([0, 1, 3], n, p=[0.7, 0.2, 0.1])
    return scores, labels, rng.random(n) < 0.6


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("score", "reference"),
    [
        (metrics.balanced_accuracy, sklearn.metrics.balanced_accuracy_score),
        (
            metrics.macro_f1,
            lambda y, p: sklearn.metrics.f1_score(y, p, average="macro"),
        ),
    ],
)
def test_means_over_classes_are_those_of_scikit_learn(score, reference, seed):
    scores, labels, mask = tied_classes(seed)
    found = jax.jit(score)(jnp.asarray(scores), one_hot(labels, 4), jnp.asarray(mask))
    expected = reference(labels[mask], scores.argmax(axis=1)[mask])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.long
def test_a_predicted_class_without_targets_lowers_the_macro_f1_alone():
    labels, predicted = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 2])
    given = one_hot(predicted, 3), one_hot(labels, 3), all_of(4)
    np.testing.assert_allclose(metrics.balanced_accuracy(*given), 3 / 4)
    expected = sklearn.metrics.f1_score(labels, predicted, average="macro")
    np.testing.assert_allclose(metrics.macro_f1(*given), expected, rtol=1e-12)


@pytest.mark.parametrize("score", [metrics.balanced_accuracy, metrics.macro_f1])
def test_rows_without_a_class_are_a_class_that_is_never_predicted(score):
    targets = one_hot([0, 0, 1, 1], 2).at[3].set(0)
    np.testing.assert_allclose(
        score(one_hot([0, 0, 1, 1], 2), targets, all_of(4)),
        {
            metrics.balanced_accuracy: 2 / 3,
            metrics.macro_f1: (1 + 2 / 3 + 0) / 3,
        }[score],
    )
    outside = jnp.array([True, True, True, False])
    assert score(one_hot([0, 0, 1, 1], 2), targets, outside) == 1


def test_a_row_without_a_class_is_an_error():
    targets = one_hot([0, 1], 2).at[0].set(0)
    assert accuracy(one_hot([0, 1], 2), targets, all_of(2)) == 0.5


average_precision = jax.jit(metrics.average_precision)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_average_precision_with_ties_is_that_of_scikit_learn(seed):
    scores, targets, mask = tied_problem(seed)
    known = mask[:, None] & ~np.isnan(targets)
    expected = [
        sklearn.metrics.average_precision_score(targets[rows, i], scores[rows, i])
        for i, rows in enumerate(known.T)
    ]
    found = average_precision(*map(jnp.asarray, (scores, targets, mask)))
    np.testing.assert_allclose(found, np.mean(expected), rtol=1e-12)


def test_average_precision_leaves_out_tasks_of_one_class():
    targets = jnp.array([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    scores = jnp.array([[0.0, 1.0], [5.0, 2.0], [0.0, 3.0]])
    np.testing.assert_allclose(
        average_precision(scores, targets, all_of(3)), (1 + 2 / 3) / 2
    )
    assert jnp.isnan(average_precision(scores[:, :1], targets[:, :1], all_of(3)))


@pytest.mark.long
def test_round_off_does_not_rank_nodes_for_the_average_precision():
    scores, targets, mask = map(jnp.asarray, tied_problem(1))
    noise = np.random.default_rng(1).uniform(-5, 5, scores.shape)
    noisy = scores * (1 + noise * np.finfo(float).eps)
    exact = average_precision(scores, targets, mask)
    assert abs(average_precision(noisy, targets, mask) - exact) > 1e-4
    assert metrics.by_name("average_precision")(noisy, targets, mask) == exact


@pytest.mark.long
@dtypes
@pytest.mark.parametrize("seed", SEEDS)
def test_neg_log_loss_is_that_of_scikit_learn_zeros_included(seed, dtype):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(4, 0.3), 60).astype(dtype)
    p[:9] = np.eye(4, dtype=dtype)[rng.integers(0, 4, 9)]
    labels, mask = rng.integers(0, 4, 60), rng.random(60) < 0.7
    found = metrics.neg_log_loss(jnp.asarray(p), one_hot(labels, 4, dtype), mask)
    expected = -sklearn.metrics.log_loss(labels[mask], p[mask], labels=range(4))
    assert found.dtype == dtype
    rtol = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(found, expected, rtol=rtol)


def reference_ece(p, labels, mask, num_bins):
    confidence, hits = p.max(axis=1), p.argmax(axis=1) == labels
    error = 0.0
    for m in range(num_bins):
        low, high = m / num_bins, (m + 1) / num_bins
        inside = mask & (confidence > low) & (confidence <= high)
        if inside.any():
            gap = hits[inside].mean() - confidence[inside].mean()
            error += inside.sum() / mask.sum() * abs(gap)
    return error


@pytest.mark.parametrize("num_bins", [1, 10, 15])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_calibration_error_is_that_of_a_loop_over_the_bins(seed, num_bins):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), 90)
    p[:3] = [[0.6, 0.4, 0], [1, 0, 0], [0.2, 0.8, 0]]  # on the edges of bins
    labels, mask = rng.integers(0, 3, 90), rng.random(90) < 0.8
    ece = jax.jit(metrics.expected_calibration_error, static_argnames="num_bins")
    found = ece(jnp.asarray(p), one_hot(labels, 3), mask, num_bins=num_bins)
    expected = reference_ece(p, labels, mask, num_bins)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_confidence_that_is_accuracy_has_no_calibration_error():
    p = jnp.tile(jnp.array([[0.75, 0.25]]), (4, 1))
    labels = one_hot([0, 0, 1, 0], 2)
    assert metrics.expected_calibration_error(p, labels, all_of(4)) == 0
    with pytest.raises(ValueError, match="num_bins must be at least 1, got 0"):
        metrics.expected_calibration_error(p, labels, all_of(4), num_bins=0)


def test_probabilities_of_squared_scores_are_shares_of_the_positive_ones():
    scores = jnp.array([[3.0, 1.0, -2.0], [-3.0, -1.0, -2.0], [-5.0, -5.0, -5.0]])
    expected = [[0.75, 0.25, 0], [0, 2 / 3, 1 / 3], [1 / 3] * 3]
    for loss in ("squared", "absolute"):
        np.testing.assert_allclose(metrics.probabilities(scores, loss), expected)


@pytest.mark.parametrize(
    ("loss", "weights"),
    [("softmax", np.exp), ("sigmoid", lambda x: 1 / (1 + np.exp(-x)))],
)
def test_probabilities_of_logits_are_shares_of_their_exponentials(loss, weights):
    logits = np.random.default_rng(0).normal(size=(20, 3))
    expected = weights(logits) / weights(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(metrics.probabilities(logits, loss), expected)
    far = metrics.probabilities(logits - 900, loss)
    assert np.array_equal(far.argmax(axis=1), logits.argmax(axis=1))


@pytest.mark.long
def test_neg_log_loss_by_name_is_that_of_the_probabilities_of_the_scores():
    scores, labels, mask = tied_classes(0)
    targets = one_hot(labels, 4)
    for loss in metrics.LOSSES:
        found = metrics.by_name("neg_log_loss", loss=loss)(scores, targets, mask)
        p = metrics.probabilities(scores, loss)
        assert found == metrics.neg_log_loss(p, targets, mask)
    with pytest.raises(ValueError, match="neg_log_loss needs the loss of the run"):
        metrics.by_name("neg_log_loss")
    with pytest.raises(ValueError, match=r"loss must be one of .* got 'hinge'"):
        metrics.by_name("neg_log_loss", loss="hinge")


LATER = [
    *map(metrics.by_name, ("balanced_accuracy", "macro_f1", "average_precision")),
    *(metrics.by_name("neg_log_loss", loss=loss) for loss in metrics.LOSSES),
    metrics.expected_calibration_error,
]


@pytest.mark.long
@pytest.mark.parametrize("score", LATER)
def test_a_diverged_run_and_an_empty_mask_score_nan_without_making_one(score):
    targets = one_hot([0, 1, 1, 0], 2)
    with jax.debug_nans(True):
        assert jnp.isfinite(score(targets, targets, all_of(4)))
    compiled = jax.jit(score)
    assert jnp.isnan(compiled(targets, targets, jnp.zeros(4, bool)))
    for broken in (np.nan, np.inf):
        assert jnp.isnan(compiled(targets.at[2, 1].set(broken), targets, all_of(4)))


@pytest.mark.long
@pytest.mark.parametrize("score", LATER)
def test_a_batch_of_later_metrics_is_scored_one_by_one(score):
    problems = [tied_classes(seed) for seed in SEEDS]
    scores, _, masks = (jnp.stack(arrays) for arrays in zip(*problems, strict=True))
    targets = one_hot(problems[0][1], 4)
    found = jax.jit(jax.vmap(score, in_axes=(0, None, 0)))(scores, targets, masks)
    expected = [score(s, targets, m) for s, m in zip(scores, masks, strict=True)]
    np.testing.assert_allclose(found, jnp.stack(expected), rtol=1e-12)
