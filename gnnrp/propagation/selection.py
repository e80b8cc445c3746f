"""Selection of one step by its validation score."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gnnrp.runtime import checks

RULES = ("first", "last")
_NEVER = int(np.iinfo(np.int32).max)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """The rule by which a run selects one of its steps.

    Args:
        rule: "first" or "last" of several best steps. The published generalized RP
            numbers use "last", those of plain RP "first".
        patience: stop after this many steps without a better validation score; None:
            take all steps.

    Raises:
        ValueError: an unknown rule, or a patience that is not a positive integer.
    """

    rule: str = "first"
    patience: int | None = None

    def __post_init__(self) -> None:
        """Validate the fields."""
        checks.one_of("rule", self.rule, RULES)
        if self.patience is not None:
            patience = checks.count("patience", self.patience, 1)
            object.__setattr__(self, "patience", patience)

    @property
    def max_waits(self) -> Int[Array, ""]:
        """The patience as an array; the largest int32 if there is none."""
        waits = _NEVER if self.patience is None else min(self.patience, _NEVER)
        return jnp.asarray(waits, jnp.int32)


FIRST_BEST = Selection()


class Choice(NamedTuple):
    """The selected step of each split, so far."""

    value: Float[Array, " s"]  # best validation score; -inf before any
    step: Int[Array, " s"]  # its step; 0 before any
    rising: Int[Array, " s"]  # the last step that was better than all before
    stopped: Bool[Array, " s"]  # patience ran out


def init(num_splits: int, dtype: jnp.dtype) -> Choice:
    """Return the choice before the first step."""
    # Each field has its own buffer, since solvers donate them.
    step, rising = (jnp.array(np.zeros(num_splits, np.int32)) for _ in range(2))
    value = jnp.array(np.full(num_splits, -np.inf, dtype))
    return Choice(value, step, rising, jnp.array(np.zeros(num_splits, bool)))


def update(
    choice: Choice,
    value: Float[Array, " s"],
    step: Int[Array, ""],
    *,
    rule: str,
    patience: Int[Array, ""],
) -> tuple[Choice, Bool[Array, " s"]]:
    """Return the choice after step t, and the splits that selected this step.

    NaN is never selected. ``patience`` is ``Selection.max_waits``.
    """
    better = value > choice.value
    selected = (value >= choice.value) if rule == "last" else better
    selected &= ~choice.stopped
    rising = jnp.where(better & ~choice.stopped, step, choice.rising)
    stopped = choice.stopped | (step - rising >= patience)
    return Choice(
        jnp.where(selected, value, choice.value),
        jnp.where(selected, step, choice.step),
        rising.astype(jnp.int32),
        stopped,
    ), selected


@functools.partial(jax.jit, static_argnames="rule")
def choose(
    values: Float[Array, "s t"], *, rule: str, patience: Int[Array, ""]
) -> Choice:
    """Return the choice after steps 1 to t, equal to t calls of ``update``."""

    def body(choice, pair):
        step, value = pair
        return update(choice, value, step, rule=rule, patience=patience)[0], None

    steps = jnp.arange(1, values.shape[1] + 1, dtype=jnp.int32)
    start = init(values.shape[0], values.dtype)
    return jax.lax.scan(body, start, (steps, values.T))[0]


def count_steps(choice: Choice, num_steps: int, patience: Int[Array, ""]) -> int:
    """Return the number of steps, fewer only if every split ran out of patience."""
    if not np.all(choice.stopped):
        return num_steps
    return int(min(num_steps, np.max(choice.rising) + int(patience)))
