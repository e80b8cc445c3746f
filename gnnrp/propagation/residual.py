"""Residual propagation (RP): gradient descent in function space, without weights.

With residuals R on the training nodes and a similarity S, each step is

    F <- F + η S [R, 0].

``propagation.run`` drives it over many steps, splits and step sizes.

Source: Eq. 6 and Algorithm 1 (App. D.3).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gnnrp.propagation import losses
from gnnrp.types import LinearMap, ResidualFn, Scalar


class State(NamedTuple):
    """The state of RP after ``t`` steps."""

    predictions: Float[Array, "n *s c"]  # F_t, of all nodes
    t: Int[Array, ""]


def init(
    targets: Float[Array, "n *s c"], initial: Float[Array, "n *s c"] | None = None
) -> State:
    """Return the initial state, F_0 = 0 by default.

    Args:
        targets: Y; only its shape and type are used.
        initial: F_0.
    """
    predictions = jnp.zeros_like(targets) if initial is None else initial
    return State(predictions, jnp.asarray(0, jnp.int32))


def residuals(
    state: State,
    targets: Float[Array, "n *s c"],
    train_mask: Bool[Array, "n *#s #c"],
    *,
    residual_fn: ResidualFn = losses.squared,
) -> Float[Array, "n *s c"]:
    """Return [R_t, 0]: minus the loss gradient on training targets, zero elsewhere.

    Args:
        state: F_t.
        targets: Y; entries outside the mask are ignored, even if NaN.
        train_mask: (n, 1), or (n, c) where single targets are unknown.
        residual_fn: see ``losses``.
    """
    safe = jnp.where(train_mask, targets, 0)
    return jnp.where(train_mask, residual_fn(safe, state.predictions), 0)


def step(
    state: State,
    similarity: LinearMap,
    targets: Float[Array, "n *s c"],
    train_mask: Bool[Array, "n *#s #c"],
    *,
    step_size: Scalar | Float[Array, "*s 1"],
    residual_fn: ResidualFn = losses.squared,
) -> State:
    """Take one step, F <- F + η S [R, 0].

    The state holds predictions rather than residuals, so that one step applies to every
    loss and initial value; for the squared loss R_t = Y - F_t and R'_t = -F'_t.

    Args:
        state: F_t.
        similarity: V -> S V, applied to all columns at once.
        targets: Y, (n, c), or (n, s, c) for several splits at once.
        train_mask: targets that are fed back, (n, 1), (n, c) or (n, s, 1).
        step_size: η, may be traced; (s, 1) if the splits differ in it. Residuals of
            the squared loss shrink if S_XX is PSD and 0 < η < 2 / λ_max(S_XX), see
            ``exact.convergence``.
        residual_fn: see ``losses``.

    Source: Eq. 6 and Algorithm 1 (App. D.3); other losses App. C.2.
    """
    visible = residuals(state, targets, train_mask, residual_fn=residual_fn)
    update = similarity(visible.reshape(len(visible), -1)).reshape(visible.shape)
    rate = jnp.asarray(step_size, update.dtype)
    rate = rate[None] if rate.ndim else rate
    return State(state.predictions + rate * update, state.t + 1)


def coefficients(
    similarity: LinearMap,
    targets: Float[Array, "n *s c"],
    train_mask: Bool[Array, "n *#s #c"],
    *,
    step_size: Scalar | Float[Array, "*s 1"],
    num_steps: int | Int[Array, ""],
    initial: Float[Array, "n *s c"] | None = None,
    residual_fn: ResidualFn = losses.squared,
) -> Float[Array, "n *s c"]:
    """Return α_t = η Σ_{s<t} [R_s, 0], with F_t = F_0 + S α_t.

    RP adds nothing but S times residuals, so α_t, zero outside of the training nodes,
    gives F_t on any nodes that S relates to these: a product without further steps.
    It costs t products with S; ``coefficients.compute`` has closed forms too.

    Args:
        similarity: V -> S V.
        targets: Y, see ``step``, as for the other arguments.
        train_mask: targets that are fed back.
        step_size: η, may be traced.
        num_steps: t, may be traced.
        initial: F_0, zero by default.
        residual_fn: see ``losses``.

    Source: Eq. 6, summed over the steps; other losses App. C.2.
    """

    def body(_, carry):
        # ``step`` computes the residual again; XLA merges the two.
        state, total = carry
        total += residuals(state, targets, train_mask, residual_fn=residual_fn)
        state = step(
            state,
            similarity,
            targets,
            train_mask,
            step_size=step_size,
            residual_fn=residual_fn,
        )
        return state, total

    start = init(targets, initial), jnp.zeros_like(targets)
    total = jax.lax.fori_loop(0, num_steps, body, start)[1]
    rate = jnp.asarray(step_size, total.dtype)
    return (rate[None] if rate.ndim else rate) * total
