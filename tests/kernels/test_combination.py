"""Weights of kernels, held against a search over all of them."""

import functools
import itertools

import numpy as np
import pytest
from generators import unchecked

from gnnrp.kernels import alignment
from gnnrp.kernels.combination import RULES, align, combine

LABELS = np.repeat([0, 1, 2], [9, 7, 5])
TARGETS = np.eye(3)[LABELS]


def kernels(seed=0, num=3):
    """Return kernels of which each knows something of the labels."""
    rng = np.random.default_rng(seed)
    factors = [
        np.c_[TARGETS @ rng.normal(size=(3, 2)), noise * rng.normal(size=(21, 4))]
        for noise in np.linspace(0.2, 1.2, num)
    ]
    return [phi @ phi.T for phi in factors]


def centered(first, second, *, diagonal=True):
    """Return the alignment, or the correlation over pairs of different nodes."""
    if diagonal:
        return float(alignment.alignment(first, second, centered=True))
    pairs = ~np.eye(len(first), dtype=bool)
    return float(np.corrcoef(first[pairs], second[pairs])[0, 1])


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_alignments_are_those_of_the_kernels_and_their_sum(rule, diagonal):
    given = kernels()
    found = combine(given, TARGETS, rule=rule, diagonal=diagonal)
    aligned = functools.partial(centered, diagonal=diagonal)
    ideal = TARGETS @ TARGETS.T
    expected = [aligned(K, ideal) for K in given]
    np.testing.assert_allclose(found.alignments, expected, rtol=1e-12)
    pairs = [[aligned(K, L) for K in given] for L in given]
    np.testing.assert_allclose(found.overlaps, pairs, rtol=1e-12)
    total = sum(mu * K for mu, K in zip(found.weights, given, strict=True))
    assert found.alignment == pytest.approx(aligned(total, ideal), rel=1e-12)


def test_the_diagonal_does_not_make_up_for_a_kernel_that_knows_no_labels():
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(21, 21))
    blind = 5 * np.eye(21) + noise @ noise.T / 400
    seeing = 0.1 * TARGETS @ TARGETS.T + np.eye(21) + noise @ noise.T / 400
    assert combine([blind, seeing], TARGETS).weights[0] == 0
    fooled = combine([blind, seeing], TARGETS, diagonal=True)
    assert fooled.alignments[0] > 0.3


@pytest.mark.parametrize("seed", range(4))
def test_the_joint_rule_finds_the_best_weights(seed):
    given = kernels(seed)
    ideal = TARGETS @ TARGETS.T
    found = combine(given, TARGETS, diagonal=True)
    rho = np.array([centered(K, ideal) for K in given])
    M = np.array([[centered(K, L) for K in given] for L in given])
    grid = np.array(list(itertools.product(np.linspace(0, 1, 21), repeat=3))[1:])
    best = np.max(grid @ rho / np.sqrt(np.einsum("ij,jk,ik->i", grid, M, grid)))
    assert best - 1e-12 <= found.alignment <= best + 1e-3
    other = combine(given, TARGETS, rule="independent", diagonal=True)
    assert found.alignment >= other.alignment


def test_independent_weights_are_alignments_over_norms():
    given = kernels()
    found = combine(given, TARGETS, rule="independent", diagonal=True)
    H = np.eye(21) - 1 / 21
    norms = [np.linalg.norm(H @ K @ H) for K in given]
    expected = found.alignments / norms
    ratio = found.weights / expected
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)


def test_scaling_a_kernel_changes_its_weight_alone():
    given = kernels()
    found = combine(given, TARGETS)
    scaled = combine([1000 * given[0], *given[1:]], TARGETS)
    np.testing.assert_allclose(scaled.weights * [1000, 1, 1], found.weights, rtol=1e-9)


def test_kernels_that_repeat_each_other_share_one_weight():
    K = kernels()[0]
    alone = combine([K], TARGETS)
    twice = combine([K, 2 * K], TARGETS)
    assert twice.weights @ [1, 2] == pytest.approx(alone.weights[0], rel=1e-9)
    assert twice.alignment == pytest.approx(alone.alignment, rel=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_a_kernel_against_the_labels_has_no_weight(rule):
    K = kernels()[0]
    found = combine([K, -K], TARGETS, rule=rule)
    assert found.weights[0] > 0
    assert found.weights[1] == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: combine([], TARGETS), ["kernels", "at least one"]),
        (lambda: combine(kernels(), TARGETS, rule="best"), ["rule", "joint"]),
        (
            lambda: unchecked(combine, [kernels()[0][1:, 1:]], TARGETS),
            [r"kernels\[0\]", "21"],
        ),
        (
            lambda: unchecked(combine, [np.eye(21)[:4]], TARGETS),
            [r"kernels\[0\]", "square"],
        ),
        (lambda: combine([np.eye(21) * np.nan], TARGETS), [r"kernels\[0\]", "finite"]),
        (lambda: combine([np.ones((21, 21))], TARGETS), [r"kernels\[0\]", "constant"]),
        (lambda: combine([kernels()[0]], np.ones((21, 1))), ["targets", "constant"]),
        (lambda: unchecked(combine, kernels(), LABELS), ["targets", "one-hot"]),
        (
            lambda: unchecked(combine, kernels(), LABELS[:, None]),
            ["targets", "one-hot"],
        ),
        (lambda: combine([-kernels()[0]], TARGETS), ["no kernel aligns", "-"]),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, words):
    with pytest.raises(ValueError, match=words[0]) as error:
        call()
    assert all(word in str(error.value) for word in words[1:]), error.value


def test_the_alignment_of_one_kernel_is_that_of_a_combination():
    (kernel,) = kernels(num=1)
    found = combine([kernel], TARGETS)
    assert align(kernel, TARGETS) == pytest.approx(found.alignments[0], rel=1e-12)
    assert align(np.ones((21, 21)), TARGETS) == 0
    with pytest.raises(ValueError, match="finite"):
        align(np.full((21, 21), np.nan), TARGETS)


@pytest.mark.parametrize(
    ("kernel", "error", "words"),
    [
        (np.triu(np.ones((21, 21))), ValueError, "must be symmetric"),
        ({"a": 1}, TypeError, "kernel"),
        (np.full((21, 21), "a"), TypeError, "kernel"),
    ],
)
def test_what_is_no_kernel_is_refused(kernel, error, words):
    with pytest.raises(error, match=words):
        unchecked(align, kernel, TARGETS)
