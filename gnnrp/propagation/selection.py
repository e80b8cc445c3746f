"""Which step to keep: the best by validation, with ties and patience stated."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

RULES = ("first", "last")


class Selection(NamedTuple):
    """The choice so far, one per split."""

    value: Float[Array, " s"]  # best validation value; -inf before any
    step: Int[Array, " s"]  # the step kept; 0 before any
    rising: Int[Array, " s"]  # the last step that was better than all before
    stopped: Bool[Array, " s"]  # patience ran out


def init(num_splits: int, dtype: jnp.dtype) -> Selection:
    """Return the choice before the first step."""
    # Each its own buffer: drivers donate them.
    return Selection(
        jnp.array(np.full(num_splits, -np.inf, dtype)),
        jnp.array(np.zeros(num_splits, np.int32)),
        jnp.array(np.zeros(num_splits, np.int32)),
        jnp.array(np.zeros(num_splits, bool)),
    )


def update(
    selection: Selection,
    value: Float[Array, " s"],
    step: Int[Array, ""],
    *,
    rule: str,
    patience: Int[Array, ""],
) -> tuple[Selection, Bool[Array, " s"]]:
    """Take one more validation value in; also return which splits keep this step.

    Args:
        selection: so far.
        value: at this step; NaN is never kept.
        step: t.
        rule: "first" keeps the first best value, "last" the last one. The published
            generalized RP numbers use "last", those of plain RP "first".
        patience: stop for good after so many steps without a strictly better value.
    """
    better = value > selection.value
    kept = (value >= selection.value) if rule == "last" else better
    kept &= ~selection.stopped
    rising = jnp.where(better & ~selection.stopped, step, selection.rising)
    stopped = selection.stopped | (step - rising >= patience)
    return Selection(
        jnp.where(kept, value, selection.value),
        jnp.where(kept, step, selection.step),
        rising.astype(jnp.int32),
        stopped,
    ), kept


@functools.partial(jax.jit, static_argnames="rule")
def over_curve(
    values: Float[Array, "s t"], *, rule: str, patience: Int[Array, ""]
) -> Selection:
    """Return the choice after steps 1 to t, as ``update`` makes it step by step."""

    def body(selection, pair):
        step, value = pair
        return update(selection, value, step, rule=rule, patience=patience)[0], None

    steps = jnp.arange(1, values.shape[1] + 1, dtype=jnp.int32)
    start = init(values.shape[0], values.dtype)
    return jax.lax.scan(body, start, (steps, values.T))[0]


def last_step(selection: Selection, num_steps: int, patience: Int[Array, ""]) -> int:
    """Return the step at which the last split's patience ran out, if all did."""
    if not np.all(selection.stopped):
        return num_steps
    return int(min(num_steps, np.max(selection.rising) + int(patience)))
