"""Residuals: minus the gradient of a loss, stable, and what RP makes of them."""

import generators
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import references

from gnnrp.propagation import losses, residual, similarity

seeds = pytest.mark.parametrize("seed", range(3))
LOSSES = {
    losses.squared: lambda Y, F: jnp.sum((Y - F) ** 2) / 2,
    losses.absolute: lambda Y, F: jnp.sum(jnp.abs(Y - F)),
    losses.sigmoid: lambda Y, F: jnp.sum(optax.sigmoid_binary_cross_entropy(F, Y)),
    losses.softmax: lambda Y, F: jnp.sum(optax.softmax_cross_entropy(F, Y)),
}
every_loss = pytest.mark.parametrize(
    ("residual_fn", "loss"), LOSSES.items(), ids=[f.__name__ for f in LOSSES]
)


def pair(seed):
    """Return one-hot targets and predictions."""
    F = 2 * np.random.default_rng(seed).standard_normal((generators.N, generators.C))
    return jnp.asarray(generators.targets(seed)), jnp.asarray(F)


@seeds
@every_loss
def test_residual_is_minus_the_gradient_of_the_loss(residual_fn, loss, seed):
    Y, F = pair(seed)
    expected = -jax.grad(loss, argnums=1)(Y, F)
    np.testing.assert_allclose(residual_fn(Y, F), expected, rtol=0, atol=1e-14)


def test_absolute_loss_leaves_a_perfect_fit_alone():
    Y = jnp.array([[0.3, -2.0], [0.0, 1.0]])
    np.testing.assert_array_equal(losses.absolute(Y, Y), jnp.zeros((2, 2)))
    np.testing.assert_array_equal(losses.absolute(Y, Y + 1e-9), -jnp.ones((2, 2)))


@pytest.mark.parametrize("residual_fn", [losses.sigmoid, losses.softmax])
def test_huge_logits_give_finite_residuals(residual_fn):
    Y, F = jnp.array([[1.0, 0.0]]), jnp.array([[1e4, -1e4]])
    np.testing.assert_array_equal(residual_fn(Y, F), [[0, 0]])
    np.testing.assert_array_equal(residual_fn(Y, -F), [[1, -1]])


@seeds
def test_reweighted_residual_is_the_papers_quotient(seed):
    Y, F = pair(seed)
    p = jax.nn.sigmoid(F)
    c = losses.reweighted(Y, F)
    np.testing.assert_allclose(c, (Y - p) / (p * (1 - p)), rtol=1e-12)
    np.testing.assert_allclose(jnp.abs(c), 1 / (1 - jnp.abs(Y - p)), rtol=1e-12)


def test_reweighted_residual_does_not_cancel_where_the_quotient_is_zero_by_zero():
    Y, F = jnp.array([[1.0], [0.0]]), jnp.array([[50.0], [-50.0]])
    np.testing.assert_allclose(losses.reweighted(Y, F), [[1], [-1]], rtol=1e-15)


@seeds
def test_reweighted_residual_and_probability_kernel_are_the_flow_of_the_logits(seed):
    # df/dt = S [R, 0] in the logits is dp/dt = D S D [c(R), 0] in p = sigmoid(f).
    Y, F = pair(seed)
    train = jnp.asarray(generators.split(seed).train)[:, None]
    S = similarity.Power(generators.adjacency(seed), 3)
    velocity = S(jnp.where(train, losses.sigmoid(Y, F), 0))
    _, expected = jax.jvp(jax.nn.sigmoid, (F,), (velocity,))
    in_p = similarity.Probability(S, jax.nn.sigmoid(F))
    found = in_p(jnp.where(train, losses.reweighted(Y, F), 0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def test_reweighted_residual_with_the_logit_kernel_is_16_times_too_large_at_one_half():
    Y, F = pair(0)[0], jnp.zeros((generators.N, generators.C))
    S = generators.adjacency(0)
    c = losses.reweighted(Y, F)
    right = similarity.Probability(S, jax.nn.sigmoid(F))(c)
    np.testing.assert_allclose(S(c), 16 * right, rtol=1e-12)


@pytest.mark.parametrize("residual_fn", LOSSES)
def test_names_are_those_of_the_functions(residual_fn):
    assert losses.by_name(residual_fn.__name__) is residual_fn


def test_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"got 'sofmax'; did you mean 'softmax'"):
        losses.by_name("sofmax")


# What RP makes of them


def run(S, Y, train, *, step_size, num_steps, residual_fn, initial=None):
    """Return F_0, ..., F_t."""
    mask = jnp.asarray(train)[:, None]

    def body(state, _):
        new = residual.step(
            state, S, Y, mask, step_size=step_size, residual_fn=residual_fn
        )
        return new, state.predictions

    start = residual.init(Y, initial)
    last, before = jax.lax.scan(body, start, length=num_steps)
    return np.concatenate([before, last.predictions[None]])


@seeds
@every_loss
def test_rp_follows_the_dense_reference(residual_fn, loss, seed):
    del loss
    Y, F = pair(seed)
    world, train = generators.world(seed), generators.split(seed).train
    found = run(
        similarity.Power(world.matrix, 2),
        Y,
        train,
        step_size=0.37,
        num_steps=25,
        residual_fn=residual_fn,
        initial=F,
    )
    expected = references.residual_propagation(
        world.A @ world.A,
        np.asarray(Y),
        train,
        0.37,
        25,
        initial=np.asarray(F),
        residual_fn=lambda Y, F: np.asarray(
            residual_fn(jnp.asarray(Y), jnp.asarray(F))
        ),
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@seeds
@pytest.mark.parametrize(
    "residual_fn", [losses.squared, losses.sigmoid, losses.softmax]
)
def test_small_steps_never_raise_a_smooth_training_loss(residual_fn, seed):
    loss = LOSSES[residual_fn]
    Y, _ = pair(seed)
    train = generators.split(seed).train
    S = similarity.Power(generators.adjacency(seed), 2)
    trajectory = run(S, Y, train, step_size=0.5, num_steps=100, residual_fn=residual_fn)
    values = jax.vmap(lambda F: loss(Y[train], F[train]))(trajectory)
    assert np.all(np.diff(values) <= 1e-12)
    assert values[-1] < 0.9 * values[0]


@seeds
def test_absolute_loss_ends_hovering_within_its_steps_and_does_not_converge(seed):
    Y, _ = pair(seed)
    train = generators.split(seed).train
    matrix = generators.positive_definite(seed)
    matrix = matrix * np.eye(len(matrix)) + 0.01  # nearly separate targets
    step_size = 0.013
    trajectory = run(
        similarity.Dense(jnp.asarray(matrix)),
        Y,
        train,
        step_size=step_size,
        num_steps=600,
        residual_fn=losses.absolute,
    )
    late = np.abs(np.asarray(Y)[train] - trajectory[400:, train])
    reach = step_size * np.abs(matrix[np.ix_(train, train)]).sum(axis=1)[:, None]
    assert np.all(late <= 2 * reach)
    assert np.abs(np.diff(trajectory[400:, train], axis=0)).max() > 0.1 * reach.min()


@seeds
@pytest.mark.parametrize("from_zero", [True, False])
def test_softmax_conserves_the_row_sums(seed, from_zero):
    Y, F = pair(seed)
    trajectory = run(
        similarity.Power(generators.adjacency(seed), 3),
        Y,
        generators.split(seed).train,
        step_size=1.0,
        num_steps=50,
        residual_fn=losses.softmax,
        initial=None if from_zero else F,
    )
    sums = trajectory.sum(axis=2)
    np.testing.assert_allclose(sums, np.broadcast_to(sums[0], sums.shape), atol=1e-12)
    assert np.abs(trajectory[-1] - trajectory[0]).max() > 0.1
