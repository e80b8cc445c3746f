"""Alignment against digits and dense algebra, whatever stands for the kernels."""

import itertools
import json
from pathlib import Path

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from gnnrp import graph, sparse
from gnnrp.kernels import alignment, generalization, gntk
from gnnrp.kernels.alignment import Factor, Operator

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "alignment_bound.json").read_text()
)
A = np.array(GOLDEN["A"])
Y_SIGN = np.array(GOLDEN["y_pm1"], float)[:, None]
Y = np.array(GOLDEN["Y_onehot"], float)
N = generators.N
center = pytest.mark.parametrize("centered", [False, True])


def golden_kernel(name):
    if name == "GNTK L=2":
        X = np.array(GOLDEN["X"])
        matrix = sparse.prepare(scipy.sparse.csr_array(A))
        return gntk.gcn(matrix, jnp.asarray(X @ X.T), gntk.Network(2)).ntk
    return {
        "A": A,
        "A_no_loops": np.array(GOLDEN["A_no_loops"]),
        "A^4": np.linalg.matrix_power(A, 4),
        "y y^T": alignment.ideal_kernel(Y_SIGN),
        "Y Y^T": alignment.ideal_kernel(Y),
    }[name]


@pytest.mark.long
@pytest.mark.parametrize(
    "case", GOLDEN["alignments"], ids=lambda c: f"{c['K1']}, {c['K2']}"
)
def test_alignments_equal_forty_digits(case):
    pair = golden_kernel(case["K1"]), golden_kernel(case["K2"])
    assert alignment.alignment(*pair) == pytest.approx(case["uncentred"], rel=1e-12)
    found = alignment.alignment(*pair, centered=True)
    assert found == pytest.approx(case["centred"], rel=1e-12)


def forms(seed):
    """Return one sparse and one low-rank kernel, each in every form it may have."""
    raw = graph.normalized_adjacency(generators.edges(seed), N)
    csr = sparse.to_scipy(raw)
    phi = np.random.default_rng(seed).standard_normal((N, 2))
    sent, low = (
        Operator(sparse.prepare(csr), N),
        Operator(lambda v: phi @ (phi.T @ v), N),
    )
    return (
        [csr.toarray(), csr, csr.tocsc(), raw, sent],
        [phi @ phi.T, Factor(jnp.asarray(phi)), low],
    )


def slow(one, two, centered):
    H = np.eye(N) - (1 / N if centered else 0)
    one, two = H @ one @ H, H @ two @ H
    return np.sum(one * two) / np.linalg.norm(one) / np.linalg.norm(two)


@pytest.mark.long
@center
@pytest.mark.parametrize("seed", range(2))
def test_every_form_gives_the_same_alignment(seed, centered):
    kinds = forms(seed)
    for first, second in itertools.product(kinds, repeat=2):
        expected = slow(first[0], second[0], centered)
        for pair in itertools.product(first, second):
            found = alignment.alignment(*pair, centered=centered)
            np.testing.assert_allclose(found, expected, rtol=1e-12)


@center
@pytest.mark.parametrize("width", [1, 4, 5, 14])
def test_operators_are_met_some_columns_at_a_time(monkeypatch, width, centered):
    monkeypatch.setattr(alignment, "_WIDTH", width)
    (dense, *_, sent), (other, *_) = forms(2)
    align = jax.jit(alignment.alignment, static_argnames="centered")
    found = align(sent, jnp.asarray(other), centered=centered)
    np.testing.assert_allclose(found, slow(dense, other, centered), rtol=1e-12)


@pytest.mark.long
@center
def test_a_kernel_aligns_with_itself_and_its_multiples(centered):
    for kernel in itertools.chain(*forms(0)):
        found = alignment.alignment(kernel, kernel, centered=centered)
        assert found == pytest.approx(1, rel=1e-13)
    dense = forms(0)[0][0]
    found = alignment.alignment(dense, -3 * dense, centered=centered)
    assert found == pytest.approx(-1, rel=1e-13)


@pytest.mark.long
def test_a_heterophilic_bipartite_graph_aligns_negatively():
    path = np.array([[0, 1, 2], [1, 2, 3]])
    adjacency = graph.normalized_adjacency(path, 4, self_loops=0.0)
    ideal = alignment.ideal_kernel(np.array([[1.0], [-1.0], [1.0], [-1.0]]))
    assert alignment.alignment(adjacency, ideal) < -0.3
    assert alignment.alignment(adjacency, ideal, centered=True) < -0.3


def test_nodes_of_unknown_label_align_with_nothing():
    labels = np.array([0, 1, -1, 1])
    ideal = alignment.label_kernel(labels, 2)
    expected = (labels[:, None] == labels) & (labels >= 0)
    np.testing.assert_array_equal(ideal.phi @ ideal.phi.T, expected)


def test_the_angle_obeys_the_triangle_inequality():
    rng = np.random.default_rng(0)
    for _ in range(50):
        a, b, c = (x + x.T for x in rng.standard_normal((3, 4, 4)))
        angle = [
            np.arccos(alignment.alignment(*pair)) for pair in ((a, b), (b, c), (a, c))
        ]
        assert angle[2] <= angle[0] + angle[1] + 1e-12


@pytest.mark.long
@center
def test_gradients_in_a_dense_kernel_and_a_factor_are_differences(centered):
    (dense, *_), (_, factor, _) = forms(1)

    def of(step, which):
        move = np.random.default_rng(2).standard_normal((N, N if which == 0 else 2))
        first = jnp.asarray(dense) + (step * (move + move.T) if which == 0 else 0)
        second = Factor(factor.phi + (step * move if which else 0))
        return alignment.alignment(first, second, centered=centered)

    for which in (0, 1):
        slope = jax.grad(of)(0.0, which)
        difference = (of(1e-6, which) - of(-1e-6, which)) / 2e-6
        np.testing.assert_allclose(slope, difference, rtol=1e-6)


@center
def test_the_alignment_of_a_zero_kernel_is_nan_with_a_warning(centered):
    zero, other = np.zeros((N, N)), forms(0)[0][1]
    with pytest.warns(RuntimeWarning, match="the first kernel is zero"):
        assert jnp.isnan(alignment.alignment(zero, other, centered=centered))


@pytest.mark.long
@center
def test_kernels_of_mixed_types_and_large_entries_align(centered):
    (dense, csr, *_), (_, factor, _) = forms(1)
    expected = slow(dense, np.asarray(factor.phi @ factor.phi.T), centered)
    for one in (dense.astype(np.float32), csr.astype(np.float32)):
        for two in (factor, Factor(1e8 * factor.phi.astype(np.float32))):
            found = alignment.alignment(one, two, centered=centered)
            np.testing.assert_allclose(found, expected, rtol=1e-5)
    counts = (dense > 0).astype(int)
    found = alignment.alignment(counts, factor, centered=centered)
    phi = np.asarray(factor.phi)
    np.testing.assert_allclose(found, slow(counts, phi @ phi.T, centered), rtol=1e-6)


def test_kernels_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="kernels of 3 and 4 nodes"):
        alignment.alignment(np.eye(3), np.eye(4))
    with pytest.raises(ValueError, match=r"square matrix, got shape \(3, 2\)"):
        alignment.alignment(np.ones((3, 2)), np.eye(3))


def test_the_bound_equals_forty_digits():
    case = GOLDEN["bound"]
    mask = np.isin(np.arange(5), case["train_idx"])
    found = generalization.bound(A, Y_SIGN[:, 0], mask, alpha=case["alpha"])
    assert found.complexity == pytest.approx(case["Y^T Theta^-1 Y"], rel=1e-12)
    assert found.trace == pytest.approx(case["trace_Theta"], rel=1e-12)
    expected = case["sqrt(Y^T Theta^-1 Y * tr Theta)/n_l"]
    assert found.main == pytest.approx(expected, rel=1e-12)
    assert found.confidence == pytest.approx(np.sqrt(np.log(20) / 3), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_is_about_the_inverse_of_the_training_block(seed):
    adjacency = forms(seed)[0][0]
    rng = np.random.default_rng(seed)
    y, mask = rng.choice([-1.0, 1.0], N), np.arange(N) % 2 == 0
    found = generalization.bound(adjacency, y, mask, alpha=0.7)
    block = np.eye(7) - 0.7 * adjacency[mask][:, mask]
    theta = np.linalg.inv(block)
    assert found.complexity == pytest.approx(y[mask] @ block @ y[mask], rel=1e-12)
    assert found.trace == pytest.approx(np.trace(theta), rel=1e-12)
    whole = np.linalg.inv(np.eye(N) - 0.7 * adjacency)[mask][:, mask]
    other = y[mask] @ np.linalg.inv(whole) @ y[mask]
    assert abs(other - found.complexity) > 1e-3
    largest = np.linalg.eigvalsh(adjacency[mask][:, mask])[-1]
    assert found.trace <= 7 / (1 - 0.7 * largest)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.arange(5.0)}, "labels must be -1 or 1, got 0"),
        ({"train_mask": np.zeros(5, bool)}, "there must be a training node"),
        ({"alpha": 5.0}, "alpha must be below 1 / λ_max = "),
        ({"alpha": -0.1}, "alpha must be at least 0"),
        ({"confidence": 1.0}, "confidence must be in"),
    ],
)
def test_bounds_of_other_settings_are_refused(change, message):
    given = {
        "adjacency": A,
        "labels": Y_SIGN[:, 0],
        "train_mask": np.ones(5, bool),
        "alpha": 0.5,
    }
    with pytest.raises(ValueError, match=message):
        generalization.bound(**(given | change))


def test_the_bayes_kernel_and_its_predictor_equal_forty_digits():
    case = GOLDEN["bayes"]
    kernel = generalization.bayes_kernel(np.array(case["P_same"]))
    np.testing.assert_allclose(kernel, case["K_star = 2P-1"], rtol=1e-12)
    found = generalization.best_linear(kernel, np.array([True, True, False]))
    expected = case["weights of last node on the others = K_x K^-1"]
    np.testing.assert_allclose(found, [expected], rtol=1e-12)


def test_no_linear_predictor_beats_the_bayes_kernel():
    """Labels of one hidden sign a pair: their covariance is known exactly."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((6, 12))
    covariance = root @ root.T
    scale = 1 / np.sqrt(np.diag(covariance))
    covariance *= np.outer(scale, scale)
    seen = np.arange(6) < 4

    def risk(weights):
        inside = weights @ covariance[:4, :4] @ weights.T
        return np.trace(covariance[4:, 4:] - 2 * weights @ covariance[:4, 4:] + inside)

    best = generalization.best_linear(covariance, seen)
    for _ in range(20):
        assert risk(best) < risk(best + 0.1 * rng.standard_normal(best.shape))


@pytest.mark.long
@pytest.mark.parametrize(
    ("same", "message"),
    [
        ([[1, 0.2], [0.3, 1]], "symmetric with ones"),
        ([[1, 1.2], [1.2, 1]], "probabilities, got 1 to 1.2"),
        ([[1, 0.0], [0.0, 1]], "positive definite; its smallest eigenvalue is 0"),
    ],
)
def test_what_is_no_probability_of_one_class_is_refused(same, message):
    with pytest.raises(ValueError, match=message):
        generalization.bayes_kernel(np.array(same, float))
