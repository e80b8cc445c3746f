"""A run that diverges says at which step, in which column, and what step is safe."""

import generators
import jax.numpy as jnp
import numpy as np
import pytest
from generators import N, positive_definite, splits, targets

from gnnrp import metrics
from gnnrp.propagation import convergence, losses, similarity

METHODS = pytest.mark.parametrize("method", ["exact", "krylov", "iterate"])
SPLITS = splits(0, ((6, 4, 3),) * 2)


def run(S, method, step_size, *, num_steps=60, **more):
    return generators.run(
        similarity.Dense(jnp.asarray(S)),
        targets(0),
        SPLITS,
        step_size=step_size,
        num_steps=num_steps,
        metric=metrics.accuracy,
        method=method,
        **more,
    )


SPECTRUM = np.array([2.0, 0.5])


def safe(S, split=0):
    X = SPLITS.train[split]
    return 2 / np.linalg.eigvalsh(S[X][:, X])[-1]


def residuals(S, split, step_size, num_steps):
    """Return R_0, R_1, ... of the training nodes, taken one by one."""
    X = SPLITS.train[split]
    R = [targets(0)[X]]
    for _ in range(num_steps - 1):
        R.append(R[-1] - step_size * S[X][:, X] @ R[-1])
    return np.array(R)


@pytest.mark.long
@METHODS
@pytest.mark.parametrize("seed", [0, 1])
def test_the_step_the_column_and_a_safe_step_size_are_told(method, seed):
    S = positive_definite(seed)
    found = run(S, method, 2.5 * safe(S))
    assert found.report.diverged.all()
    for split, told in enumerate(found.report.divergences):
        R = residuals(S, split, 2.5 * safe(S), 60)
        norms = np.linalg.norm(R, axis=(1, 2))
        step = 1 + int(np.flatnonzero(norms <= 1.01 * norms[0])[-1])
        assert told.step == step
        assert told.column == np.argmax(np.linalg.norm(R[step], axis=0))
        assert told.safe_step_size == pytest.approx(safe(S, split), rel=1e-3)
        assert f"is not below 2 / λ_max = {told.safe_step_size:.4g}" in told.explanation


@pytest.mark.long
@METHODS
def test_what_is_called_safe_is_and_not_much_more_is_not(method):
    S = positive_definite(0)
    least = min(told.safe_step_size for told in run(S, method, 3.0).report.divergences)
    assert not run(S, method, 0.99 * least, num_steps=400).report.diverged.any()
    assert run(S, method, 1.02 * least, num_steps=400).report.diverged.any()
    calm = run(S, method, 0.1)
    assert calm.report.divergences == (None, None)


@pytest.mark.long
@METHODS
def test_no_step_size_is_safe_where_an_eigenvalue_is_negative(method):
    S = positive_definite(0) - 0.9 * np.eye(N)
    for step_size in (0.1, 40.0):
        found = run(S, method, step_size, num_steps=1000)
        assert found.report.diverged.all()
        for told in found.report.divergences:
            assert told.safe_step_size == 0
            assert "< 0" in told.explanation or "negative" in told.explanation


def test_the_ends_of_the_spectrum_are_found():
    S = positive_definite(0) - 0.9 * np.eye(N)
    found = convergence.spectrum_ends(
        similarity.Dense(jnp.asarray(S)), jnp.asarray(SPLITS.train)
    )
    for split, X in enumerate(SPLITS.train):
        both = np.linalg.eigvalsh(S[X][:, X])[[0, -1]]
        np.testing.assert_allclose(np.sort(found[:, split]), both, rtol=1e-3)


def bound(residual_fn):
    curvature = losses.max_curvature(residual_fn)
    return convergence.safe_step_size(SPECTRUM, 9.0, curvature)


@pytest.mark.long
def test_losses_of_flatter_slope_bear_larger_steps():
    assert bound(losses.squared)[0] == 1
    assert bound(losses.softmax)[0] == 2
    assert bound(losses.sigmoid)[0] == 4
    unknown, why = bound(losses.absolute)
    assert np.isnan(unknown)
    assert why == "no step size is known to be safe for this loss"


@pytest.mark.long
def test_iterated_steps_stop_where_no_residual_comes_back():
    S = positive_definite(0)
    told = run(S, "iterate", 10 * safe(S), num_steps=5000).report
    assert told.num_steps < 300
    assert told.diverged.all()
    # One of two step sizes that is calm goes on, and the other with it.
    calm, wild = generators.run(
        similarity.Dense(jnp.asarray(S)),
        targets(0),
        SPLITS,
        step_sizes=[0.1, 10 * safe(S)],
        num_steps=600,
        metric=metrics.accuracy,
        method="iterate",
    )
    assert (calm.report.num_steps, wild.report.num_steps) == (600, 600)
    assert not calm.report.diverged.any()
    assert wild.report.diverged.all()
    assert wild.report.divergences[0].step == told.divergences[0].step


@pytest.mark.long
def test_a_residual_that_comes_back_has_not_diverged():
    norms = np.array([[1.0, 2.0, 0.5], [1.0, 0.5, 2.0], [1.0, 2.0, np.nan], [0, 0, 0]])
    assert convergence.divergence_steps(norms).tolist() == [0, 2, 1, 0]
    assert convergence.divergence_steps(np.full((1, 3), np.nan)).tolist() == [1]
