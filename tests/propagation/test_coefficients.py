"""Coefficients of a run, F_t = F_0 + S[:, X] α_t: every solver, every loss."""

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references
from generators import C, N, every_similarity, unchecked

from gnnrp import propagation
from gnnrp.propagation import Steps, coefficients, losses, residual, similarity

TRAIN = generators.split(0).train
STEPS = Steps(0.4, 9)
LOSSES = (losses.squared, losses.absolute, losses.sigmoid, losses.softmax)
every_loss = pytest.mark.parametrize("residual_fn", LOSSES, ids=lambda f: f.__name__)


def initial(seed=0):
    return np.random.default_rng(seed).uniform(size=(N, C))


def reference(S, Y, F, residual_fn, num_steps=STEPS.num_steps):
    """Return Σ η R_s, (l, c), in a loop."""
    alpha = np.zeros((N, C))
    for _ in range(num_steps):
        R = np.where(TRAIN[:, None], residual_fn(jnp.asarray(Y), jnp.asarray(F)), 0)
        alpha += STEPS.step_size * R
        F = F + STEPS.step_size * S @ R
    return alpha


def check_steps(case, residual_fn):
    world, Y = generators.world(0), generators.targets(0)
    S, F = case.dense(world), initial()
    alpha = residual.coefficients(
        case.make(world),
        jnp.asarray(Y),
        jnp.asarray(TRAIN[:, None]),
        step_size=STEPS.step_size,
        num_steps=STEPS.num_steps,
        initial=jnp.asarray(F),
        residual_fn=residual_fn,
    )
    expected = reference(S, Y, F, residual_fn)
    np.testing.assert_allclose(alpha, expected, rtol=1e-9, atol=1e-11)


@every_similarity
def test_coefficients_are_the_residuals_times_the_step_size(case):
    check_steps(case, losses.squared)


@every_loss
def test_every_loss_has_coefficients(residual_fn):
    check_steps(generators.SIMILARITIES["power 2"], residual_fn)


@generators.every_solver
@generators.every_symmetric_similarity
def test_every_solver_gives_the_predictions_of_the_run(case, solver):
    world, Y, F = generators.world(0), generators.targets(0), initial()
    S, flow = case.dense(world), case.make(world)
    alpha = coefficients.compute(flow, Y, TRAIN, STEPS, initial=F, solver=solver)
    path = references.residual_propagation(
        S, Y, TRAIN, STEPS.step_size, STEPS.num_steps, initial=F
    )
    np.testing.assert_allclose(F + S[:, TRAIN] @ alpha, path[-1], atol=1e-8)


def test_unknown_targets_have_no_coefficient():
    Y = generators.targets(0)
    node = np.flatnonzero(TRAIN)[2]
    Y[node, 1] = np.nan
    flow = similarity.Power(generators.adjacency(0), 2)
    alpha = coefficients.compute(flow, Y, TRAIN, STEPS)
    assert np.flatnonzero(alpha[:, 1] == 0).tolist() == [2]


def test_several_splits_share_products():
    flow = similarity.Power(generators.adjacency(0), 2)
    Y = jnp.asarray(generators.targets(0))
    parts = generators.splits(0, ((6, 4, 3), (5, 2, 6))).train
    rates = np.array([[0.3], [0.8]])
    targets = jnp.broadcast_to(Y[:, None], (N, 2, C))
    both = residual.coefficients(
        flow,
        targets,
        jnp.asarray(parts.T[:, :, None]),
        step_size=jnp.asarray(rates),
        num_steps=7,
    )
    for split, rate in enumerate(rates[:, 0].tolist()):
        alone = coefficients.compute(flow, Y, parts[split], Steps(rate, 7))
        np.testing.assert_allclose(both[parts[split], split], alone, atol=1e-12)


def test_steps_may_be_traced():
    flow = similarity.Power(generators.adjacency(0), 2)
    Y, mask = jnp.asarray(generators.targets(0)), jnp.asarray(TRAIN[:, None])
    count = 0

    @jax.jit
    def compute(step_size, num_steps):
        nonlocal count
        count += 1
        return residual.coefficients(
            flow, Y, mask, step_size=step_size, num_steps=num_steps
        )

    for rate, num_steps in ((0.2, 3), (0.5, 8)):
        expected = coefficients.compute(flow, Y, TRAIN, Steps(rate, num_steps))
        np.testing.assert_allclose(
            compute(rate, num_steps)[TRAIN], expected, atol=1e-12
        )
    assert count == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"steps": Steps([0.1, 0.2], 3)}, "steps must have one step size, got 2"),
        ({"train_mask": np.zeros(N, bool)}, "no training node with a known target"),
        ({"initial": np.zeros((N, 1))}, "initial must have shape"),
        (
            {"solver": propagation.Exact(), "similarity": "power by rows"},
            "solver 'exact' is not supported",
        ),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    world = generators.world(0)
    flow = similarity.Power(world.matrix, 2)
    if "similarity" in arguments:
        flow = similarity.Power(world.by_rows, 2)
    given = {"targets": generators.targets(0), "train_mask": TRAIN, "steps": STEPS}
    given |= arguments | {"similarity": flow}
    with pytest.raises(ValueError, match=words):
        unchecked(coefficients.compute, **given)


def test_a_name_in_place_of_a_solver_is_refused():
    flow = similarity.Power(generators.adjacency(0), 2)
    with pytest.raises(TypeError, match=r"solver must be Exact\(\), Krylov\(\)"):
        unchecked(
            coefficients.compute,
            flow,
            generators.targets(0),
            TRAIN,
            STEPS,
            solver="exact",
        )
