"""Any step at once: against digits, iteration, and the paper's table."""

import generators
import jax.numpy as jnp
import numpy as np
import pytest
import references
import scipy.linalg

from gnnrp import graph, metrics, sparse
from gnnrp.propagation import exact, linear_maps, similarity, solvers
from gnnrp.propagation.solvers import _closed_forms
from gnnrp.types import Split

seeds = pytest.mark.parametrize("seed", range(3))
L, M = 6, 10  # training nodes first, then the others
TRAIN = np.arange(M) < L
Y_ALL = np.where(TRAIN[:, None], generators.targets(0, M), 0)
Y = Y_ALL[:L]


def factorize(S, **kwargs):
    return exact.factorize(S[:, :L], np.arange(L), **kwargs)


def iterate(S, step_size, num_steps, targets=Y_ALL):
    return references.residual_propagation(S, targets, TRAIN, step_size, num_steps)


def assert_close(found, expected, tolerance=1e-11):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


# Growth g_t(λ) of one mode

EIGENVALUES = [0.3, 0.9, 1.7, 1e-3]  # η λ < 1
EIGENVALUES += [2.0]  # η λ = 1
EIGENVALUES += [2 + 1e-9, 2 - 1e-9, 3.1, 3.999]  # 1 < η λ < 2, and about 1
EIGENVALUES += [4.0, 4.2, 7.0]  # bounded, then growing
EIGENVALUES += [0.0, 1e-12, -1e-12, 1e-17, -1e-17, 1e-300, -1e-300]
EIGENVALUES += [-0.2, -3.0]


@pytest.mark.parametrize("eigenvalue", EIGENVALUES)
@pytest.mark.parametrize("flow", [False, True])
def test_growth_has_all_digits_for_every_sign_and_size(eigenvalue, flow):
    steps = np.array([0, 1, 2, 3, 10, 101, 150])
    if flow:
        steps = np.array([0, 1e-9, 0.5, 1, 2.75, 10.1, 101])
    found = exact.growth(np.array([eigenvalue]), 0.5, steps, flow=flow)[:, 0]
    expected = [
        references.growth(eigenvalue, 0.5, t, flow=flow) for t in steps.tolist()
    ]
    np.testing.assert_allclose(found, expected, rtol=2e-13, atol=0)


def test_growth_of_a_mode_that_nothing_damps_is_linear():
    found = exact.growth(np.array([0.0, -0.0]), 0.3, np.arange(5))
    np.testing.assert_array_equal(found, 0.3 * np.arange(5)[:, None] * [[1, 1]])


def test_growth_is_everything_in_one_step_where_step_size_times_eigenvalue_is_one():
    found = exact.growth(np.array([4.0]), 0.25, np.arange(4))
    np.testing.assert_array_equal(found[:, 0], [0, 0.25, 0.25, 0.25])


@pytest.mark.parametrize(
    ("eigenvalue", "t", "expected"),
    [(-1.0, 5000, np.inf), (3.0, 5000, -np.inf), (3.0, 5001, np.inf)],
)
def test_growth_overflows_to_infinity_without_a_warning(eigenvalue, t, expected):
    found = exact.growth(np.array([eigenvalue]), 1.0, np.array([t]))
    assert found[0, 0] == expected


def test_growth_takes_steps_in_any_order():
    values = np.array([0.2, -0.1])
    steps = np.array([7, 0, 3])
    ordered = exact.growth(values, 0.5, np.arange(8))
    found = exact.growth(values, 0.5, steps)
    np.testing.assert_array_equal(found, ordered[steps])


# Trajectories


def problems(seed):
    """Yield one similarity of each kind, and a step size."""
    rng = np.random.default_rng(seed)
    yield generators.positive_definite(seed, M), 0.3
    yield generators.low_rank(seed, 3, M), 0.8
    indefinite = rng.standard_normal((M, M)) / M
    yield indefinite + indefinite.T, 0.5
    yield singular_not_psd(seed), 0.5


def singular_not_psd(seed):
    """Return S whose S_XX is PSD of rank 3, and whose other entries are arbitrary."""
    S = np.random.default_rng(seed + 1).standard_normal((M, M)) / M
    S = S + S.T
    S[:L, :L] = generators.low_rank(seed, 3, L)
    return S


@seeds
@pytest.mark.parametrize("kind", range(4))
def test_trajectory_is_that_of_the_iteration(seed, kind):
    S, step_size = list(problems(seed))[kind]
    steps = np.array([0, 1, 2, 3, 17, 300])
    found = exact.trajectory(factorize(S), Y, steps, step_size=step_size)
    expected = iterate(S, step_size, 300)[steps]
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert_close(one, other)
    assert not found[0].any()


@seeds
def test_null_modes_that_round_off_blurs_keep_their_growth(seed):
    # The plain (1 - (1 - z)^t) / λ is 80 percent wrong where λ is round-off.
    S = singular_not_psd(seed)
    factors = factorize(S)
    blurred = factors.eigenvalues[np.abs(factors.eigenvalues) < 1e-14]
    assert len(blurred) == L - 3
    assert blurred.any()
    found = exact.trajectory(factors, Y, np.array([2000]), step_size=0.5)[0]
    assert_close(found, iterate(S, 0.5, 2000)[-1], 1e-10)


def test_where_the_usual_eigen_solver_fails_another_one_is_taken(monkeypatch):
    S = generators.positive_definite(0, M)
    expected = exact.trajectory(factorize(S), Y, np.arange(9), step_size=0.3)
    usual = scipy.linalg.eigh

    def eigh(matrix, driver=None):
        if driver is None:
            raise scipy.linalg.LinAlgError
        return usual(matrix, driver=driver)

    monkeypatch.setattr(scipy.linalg, "eigh", eigh)
    found = exact.trajectory(factorize(S), Y, np.arange(9), step_size=0.3)
    assert_close(found, expected)


@seeds
def test_trajectory_follows_rows_and_columns_in_any_order(seed):
    S = generators.positive_definite(seed, M)
    train, nodes = np.array([4, 1, 7]), np.array([9, 7, 4, 0, 1])
    factors = exact.factorize(S[np.ix_(nodes, train)], np.array([2, 4, 1]))
    mask = np.isin(np.arange(M), train)
    targets = np.where(mask[:, None], generators.targets(seed, M), 0)
    found = exact.trajectory(factors, targets[train], np.array([5]), step_size=0.4)
    expected = references.residual_propagation(S, targets, mask, 0.4, 5)[-1, nodes]
    assert_close(found[0], expected)


@seeds
def test_other_starts_shift_the_trajectory(seed):
    S = generators.positive_definite(seed, M)
    start = np.random.default_rng(seed).standard_normal(Y_ALL.shape)
    found = exact.trajectory(factorize(S), Y - start[:L], np.array([9]), step_size=0.3)
    expected = references.residual_propagation(S, Y_ALL, TRAIN, 0.3, 9, initial=start)
    assert_close(start + found[0], expected[-1])


@seeds
@pytest.mark.parametrize("kind", range(4))
def test_residual_norms_are_those_of_the_iteration(seed, kind):
    S, step_size = list(problems(seed))[kind]
    steps = np.array([0, 1, 2, 50])
    found = exact.residual_norms(factorize(S), Y, steps, step_size=step_size)
    gaps = Y - iterate(S, step_size, 50)[steps, :L]
    np.testing.assert_allclose(found, np.linalg.norm(gaps, axis=(1, 2)), rtol=1e-11)


@seeds
@pytest.mark.parametrize("kind", range(4))
def test_flow_solves_the_differential_equation_at_real_times(seed, kind):
    S, step_size = list(problems(seed))[kind]
    times = np.array([0.3, 1.0, 4.75])
    found = exact.trajectory(factorize(S), Y, times, step_size=step_size, flow=True)
    for t, F in zip(times, found, strict=True):
        # The integral of exp(-η S_XX u) is a corner of the exponential of a block.
        block = np.zeros((2 * L, 2 * L))
        block[:L, :L], block[:L, L:] = -step_size * t * S[:L, :L], np.eye(L)
        integral = t * scipy.linalg.expm(block)[:L, L:]
        assert_close(F, step_size * S[:, :L] @ integral @ Y)


@seeds
def test_short_steps_approach_the_flow(seed):
    S = generators.positive_definite(seed, M)
    factors = factorize(S)
    flow = exact.trajectory(factors, Y, np.array([3.0]), step_size=0.4, flow=True)[0]

    def gap(parts):
        steps = np.array([3 * parts])
        F = exact.trajectory(factors, Y, steps, step_size=0.4 / parts)[0]
        return np.abs(F - flow).max()

    assert gap(1000) < 1e-3
    assert gap(1000) == pytest.approx(10 * gap(10_000), rel=0.02)


def test_overflow_is_infinite_or_nan_and_no_exception():
    S = -np.eye(M)
    found = exact.trajectory(factorize(S), Y, np.array([1, 10_000]), step_size=1.0)
    assert np.isfinite(found[0]).all()
    assert not np.isfinite(found[1, :L]).any()
    norms = exact.residual_norms(factorize(S), Y, np.array([1, 10_000]), step_size=1.0)
    np.testing.assert_array_equal(np.isfinite(norms), [True, False])


def test_psd_flag_takes_negative_eigenvalues_for_round_off():
    S = generators.low_rank(0, 2, M)
    plain, clamped = factorize(S), factorize(S, psd=True)
    assert plain.eigenvalues[0] < 0
    assert clamped.eigenvalues[0] == 0
    positive = plain.eigenvalues > 1e-10
    np.testing.assert_array_equal(
        clamped.eigenvalues[positive], plain.eigenvalues[positive]
    )


def test_asymmetric_similarity_is_refused_with_the_difference():
    S = generators.positive_definite(0, M)
    S[0, 1] += 0.125
    with pytest.raises(ValueError, match=r"differs from its transpose by 0\.125"):
        factorize(S)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_similarity_that_is_not_finite_is_refused(value):
    S = generators.positive_definite(0, M)
    S[1, 1] = value
    with pytest.raises(ValueError, match="not finite"):
        factorize(S)


@pytest.mark.parametrize("step_size", [0.0, -1.0, np.nan, np.inf])
def test_step_size_must_be_positive(step_size):
    factors = factorize(generators.positive_definite(0, M))
    with pytest.raises(ValueError, match=f"step_size .* got {step_size}"):
        exact.trajectory(factors, Y, np.array([1]), step_size=step_size)


def test_steps_must_not_be_negative():
    factors = factorize(generators.positive_definite(0, M))
    with pytest.raises(ValueError, match="steps must be at least 0, got -2"):
        exact.trajectory(factors, Y, np.array([1, -2]), step_size=0.1)


def test_single_precision_columns_are_factorized_in_double_precision():
    S = generators.positive_definite(0, M).astype(np.float32)
    factors = factorize(S)
    assert factors.eigenvalues.dtype == factors.rows.dtype == np.float64
    found = exact.trajectory(factors, Y, np.array([30]), step_size=0.3)[0]
    assert_close(found, iterate(S.astype(float), 0.3, 30)[-1], 1e-11)


# The paper's table of convergence (Theorem 3.2, App. B.2): S_XX, S, and what follows


def explain(S, step_size, targets=Y):
    return exact.convergence(factorize(S), targets, step_size=step_size)


def half_of_safe(S):
    return float(1 / np.linalg.eigvalsh(S[:L, :L])[-1])


@seeds
def test_row_1_pd_block_of_a_psd_similarity_gives_kernel_regression(seed):
    S = generators.positive_definite(seed, M)
    found = explain(S, half_of_safe(S))
    assert found.definiteness == "positive definite"
    assert found.residual_converges
    assert found.predictions_converge
    assert "kernel regression" in found.explanation
    last = iterate(S, half_of_safe(S), 3000)[-1]
    expected = S[:, :L] @ np.linalg.solve(S[:L, :L], Y)
    assert_close(last, expected, 1e-10)
    assert_close(last[:L], Y, 1e-10)
    assert_close(exact.limit(factorize(S), Y), expected)


@seeds
def test_row_2_pd_block_of_an_indefinite_similarity_gives_the_same(seed):
    S = generators.positive_definite(seed, M)
    S[L:, :L] *= 30  # still converges, but to no kernel regression
    S[:L, L:] *= 30
    assert np.linalg.eigvalsh(S)[0] < -1
    found = explain(S, half_of_safe(S))
    assert found.definiteness == "positive definite"
    assert found.residual_converges
    assert found.predictions_converge
    expected = S[:, :L] @ np.linalg.solve(S[:L, :L], Y)
    assert_close(iterate(S, half_of_safe(S), 3000)[-1], expected, 1e-10)
    assert_close(exact.limit(factorize(S), Y), expected)


@seeds
def test_row_3_singular_block_of_a_psd_similarity_gives_linear_regression(seed):
    root = np.random.default_rng(seed).standard_normal((M, 3))  # [B, B']
    S, B, B_rest = root @ root.T, root[:L], root[L:]
    found = explain(S, half_of_safe(S))
    assert found.definiteness == "positive semi-definite"
    assert found.residual_converges
    assert found.predictions_converge
    assert "least-squares" in found.explanation
    last = iterate(S, half_of_safe(S), 3000)[-1]
    weights = np.linalg.solve(B.T @ B, B.T @ Y)
    assert_close(last[L:], B_rest @ weights, 1e-10)
    projector = np.eye(L) - B @ np.linalg.solve(B.T @ B, B.T)
    assert_close(Y - last[:L], projector @ Y, 1e-10)
    assert_close(exact.limit(factorize(S), Y), last, 1e-10)


@seeds
def test_row_4_singular_block_of_an_indefinite_similarity_drifts_linearly(seed):
    S = singular_not_psd(seed)
    step_size = half_of_safe(S)
    found = explain(S, step_size)
    assert found.definiteness == "positive semi-definite"
    assert found.residual_converges
    assert not found.predictions_converge
    assert "drift linearly" in found.explanation
    values, Q = np.linalg.eigh(S[:L, :L])
    null = Q[:, values < 1e-10]
    P = null @ null.T
    trajectory = iterate(S, step_size, 4000)
    assert_close(Y - trajectory[-1, :L], P @ Y, 1e-9)
    drift = step_size * S[L:, :L] @ P @ Y
    assert np.abs(drift).max() > 1e-3
    limit = exact.limit(factorize(S), Y)[L:]
    for t in (3999, 4000):
        assert_close(trajectory[t, L:], limit + t * drift, 1e-9)


@seeds
def test_row_4_converges_if_the_null_space_is_not_carried_on(seed):
    S = singular_not_psd(seed)
    step_size = half_of_safe(S)
    targets = S[:L, :L] @ np.random.default_rng(seed).standard_normal((L, 2))
    found = explain(S, step_size, targets)
    assert found.definiteness == "positive semi-definite"
    assert found.predictions_converge
    padded = np.vstack([targets, np.zeros((M - L, 2))])
    last = iterate(S, step_size, 3000, padded)[-1]
    assert_close(last, exact.limit(factorize(S), targets), 1e-9)


@seeds
def test_row_5_indefinite_block_diverges_by_its_most_negative_eigenvalue(seed):
    S = list(problems(seed))[2][0]
    step_size = half_of_safe(S)
    smallest = np.linalg.eigvalsh(S[:L, :L])[0]
    found = explain(S, step_size)
    assert found.definiteness == "indefinite"
    assert found.smallest == pytest.approx(smallest)
    assert not found.residual_converges
    assert not found.predictions_converge
    assert f"{smallest:.4g} < 0" in found.explanation
    norms = np.linalg.norm(Y - iterate(S, step_size, 400)[:, :L], axis=(1, 2))
    assert norms[-1] / norms[-2] == pytest.approx(1 - step_size * smallest, rel=1e-6)


@seeds
def test_row_5_converges_for_targets_without_a_negative_component(seed):
    S = list(problems(seed))[2][0]
    step_size = half_of_safe(S)
    values, Q = np.linalg.eigh(S[:L, :L])
    targets = Q[:, values > 0.01] @ np.random.default_rng(seed).standard_normal((
        (values > 0.01).sum(),
        2,
    ))
    found = explain(S, step_size, targets)
    assert found.definiteness == "indefinite"
    assert found.residual_converges
    assert found.predictions_converge


@seeds
@pytest.mark.parametrize("singular", [False, True])
def test_single_precision_does_not_change_the_row(seed, singular):
    S = generators.low_rank(seed, 3, M) if singular else None
    S = generators.positive_definite(seed, M) if S is None else S
    double, single = (explain(s, half_of_safe(S)) for s in (S, S.astype(np.float32)))
    assert double.definiteness == single.definiteness
    assert double.predictions_converge
    assert single.predictions_converge
    drifting = singular_not_psd(seed).astype(np.float32)
    assert not explain(drifting, half_of_safe(drifting)).predictions_converge


# The bound on the step size is strict


@seeds
@pytest.mark.parametrize(("share", "converges"), [(0.99, True), (1.01, False)])
def test_step_sizes_converge_below_two_over_the_largest_eigenvalue(
    seed, share, converges
):
    S = generators.positive_definite(seed, M)
    found = explain(S, share * 2 * half_of_safe(S))
    assert found.safe_step_size == pytest.approx(2 * half_of_safe(S))
    assert found.residual_converges == converges
    assert ("not below 2 / λ_max" in found.explanation) == (not converges)
    norms = exact.residual_norms(
        factorize(S), Y, np.array([0, 5000]), step_size=share * found.safe_step_size
    )
    assert (norms[1] < norms[0]) == converges


def test_at_the_bound_itself_the_residual_swings_forever():
    S = np.diag(np.where(np.arange(M) == 0, 2.0, 1.0))
    found = explain(S, 1.0, np.ones((L, 1)))
    assert found.safe_step_size == 1.0
    assert not found.residual_converges
    R = (
        1
        - exact.trajectory(
            factorize(S), np.ones((L, 1)), np.arange(1, 50), step_size=1.0
        )[:, :L, 0]
    )
    np.testing.assert_array_equal(R[:, 0], (-1.0) ** np.arange(1, 50))
    np.testing.assert_array_equal(R[:, 1:], 0)


def test_a_similarity_without_positive_eigenvalues_bounds_no_step_size():
    found = explain(np.zeros((M, M)), 5.0)
    assert found.safe_step_size == np.inf
    assert found.residual_converges
    assert found.predictions_converge


# Small inputs that went wrong elsewhere


def test_nearly_singular_kernel_gives_the_pseudo_inverse_limit():
    K = np.ones((2, 2))
    factors = exact.factorize(K, np.arange(2))
    Y = np.array([[1.0], [0.0]])
    np.testing.assert_allclose(exact.limit(factors, Y), [[0.5], [0.5]], rtol=1e-14)
    assert exact.convergence(factors, Y, step_size=0.5).predictions_converge
    found = exact.trajectory(factors, Y, np.array([10**6]), step_size=0.3)[0]
    np.testing.assert_allclose(found, [[0.5], [0.5]], rtol=1e-14)


@pytest.mark.long
@pytest.mark.parametrize("method", solvers.NAMES)
def test_nearly_singular_kernel_gives_the_pseudo_inverse_limit_in_a_run(method):
    nobody = np.zeros(2, bool)
    found = generators.run(
        similarity.Dense(jnp.ones((2, 2))),
        np.array([[1.0], [0.0]]),
        Split(~nobody, nobody, nobody),
        step_size=0.3,
        num_steps=200,
        metric=metrics.accuracy,
        method=method,
    )
    np.testing.assert_allclose(found.predictions, [[0.5], [0.5]], rtol=1e-14)
    assert not found.report.diverged


def bipartite(power):
    """Return A^K of K3,3, each side one class, all labeled."""
    edges = np.array([[i, j] for i in range(3) for j in range(3, 6)]).T
    A = sparse.prepare(graph.normalized_adjacency(edges))
    return similarity.Power(A, power), np.eye(2)[[0, 0, 0, 1, 1, 1]]


@pytest.mark.parametrize("power", [1, 3])
@pytest.mark.parametrize("step_size", [1e-3, 0.1, 1.0, 1.9])
def test_odd_powers_on_a_bipartite_graph_diverge_for_every_step_size(power, step_size):
    S, targets = bipartite(power)
    factors = exact.factorize(linear_maps.columns(S, np.arange(6), 6), np.arange(6))
    found = exact.convergence(factors, targets, step_size=step_size)
    assert found.smallest == pytest.approx(-(0.5**power), abs=1e-14)
    assert not found.residual_converges
    norms = exact.residual_norms(
        factors, targets, np.array([0, 100_000]), step_size=step_size
    )
    assert norms[1] > norms[0]


def test_even_power_on_a_bipartite_graph_converges():
    S, targets = bipartite(2)
    factors = exact.factorize(linear_maps.columns(S, np.arange(6), 6), np.arange(6))
    found = exact.convergence(factors, targets, step_size=1.0)
    assert found.definiteness == "positive definite"
    assert found.predictions_converge
    assert_close(exact.limit(factors, targets), targets)


@pytest.mark.long
@pytest.mark.parametrize("method", solvers.NAMES)
@pytest.mark.parametrize("power", [1, 2])
def test_a_run_says_diverged_with_the_spectrum_and_does_not_raise(method, power):
    S, targets = bipartite(power)
    nobody = np.zeros(6, bool)
    found = generators.run(
        S,
        targets,
        Split(~nobody, nobody, nobody),
        step_size=1.0,
        num_steps=60,
        metric=metrics.accuracy,
        method=method,
    )
    assert found.report.diverged == (power == 1)
    size = np.abs(found.predictions).max()
    if power == 1:
        assert size == pytest.approx(0.5 * 1.5**60 - 0.5, rel=1e-9)  # 2e10
        assert 1e10 < size < 3e10
    else:
        np.testing.assert_allclose(found.predictions, targets, atol=1e-6)
    if method in {"auto", "exact"}:
        (convergence,) = found.report.convergence
        assert convergence.residual_converges == (power == 2)
        assert convergence.smallest == pytest.approx({1: -0.5, 2: 1 / 16}[power])
        assert ("eigenvalue -0.5 < 0" in convergence.explanation) == (power == 1)


def test_the_table_is_of_the_nodes_that_are_looked_at():
    # The same S_XX converges or drifts by what S carries to the nodes asked for.
    S = singular_not_psd(0)
    step_size = half_of_safe(S)
    inside = exact.factorize(S[:L, :L], np.arange(L))
    assert exact.convergence(inside, Y, step_size=step_size).predictions_converge
    assert not explain(S, step_size).predictions_converge


@seeds
def test_permuting_the_nodes_permutes_the_trajectory(seed):
    S = singular_not_psd(seed)
    order = np.random.default_rng(seed).permutation(M)
    train = np.flatnonzero(order < L)  # where the training nodes went
    steps = np.array([1, 40])
    plain = exact.trajectory(factorize(S), Y, steps, step_size=0.5)
    moved = exact.trajectory(
        exact.factorize(S[np.ix_(order, order[train])], train),
        Y[order[train]],
        steps,
        step_size=0.5,
    )
    assert_close(moved, plain[:, order])


@seeds
def test_limit_is_kernel_regression_by_the_pseudo_inverse(seed):
    for S, _ in problems(seed):
        expected = references.kernel_regression(S, Y_ALL, TRAIN)
        assert_close(exact.limit(factorize(S), Y), expected, 1e-9)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_few_combinations_of_modes_represent_thousands_of_steps(dtype):
    modes = exact.growth(np.linspace(0, 1, 200), 0.5, np.arange(1, 3001))
    weights = np.random.default_rng(0).uniform(0.5, 1, 200)
    tall, mix = _closed_forms._compress(modes, weights, dtype)
    assert tall.shape[1] <= 64
    largest = (modes * weights).max(axis=1, keepdims=True)
    error = np.abs((tall @ mix - modes) * weights) / largest
    assert error.max() < {"float32": 3e-7, "float64": 1e-13}[dtype]
