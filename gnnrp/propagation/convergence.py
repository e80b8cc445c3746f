"""Convergence of RP: the row of the paper's table, and the ends of the spectrum."""

import enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gnnrp.runtime import tracing
from gnnrp.types import LinearMap

_GROWTH = 1.01  # a residual that ends 1 percent above its start grows beyond round-off
_NUM_ITERATIONS = 50  # of the power method, for each end of the spectrum
_ROUND_OFF = 1e-5  # of an eigenvalue that is zero, relative to the largest


class Definiteness(enum.StrEnum):
    """Definiteness of S_XX."""

    POSITIVE_DEFINITE = "positive definite"
    POSITIVE_SEMIDEFINITE = "positive semi-definite"
    INDEFINITE = "indefinite"
    UNKNOWN = "no negative eigenvalue seen"


_KINDS = tuple(Definiteness)


class Convergence(NamedTuple):
    """The row of the paper's convergence table that holds, and the spectrum behind it.

    It holds for the targets of the run, not in general; see ``exact.convergence``.
    """

    definiteness: Definiteness
    smallest: float  # eigenvalue of S_XX
    largest: float
    safe_step_size: float  # residuals stay bounded for η below it: 2 / λ_max
    step_size: float  # η
    has_large_mode: bool  # R_0 has a component with η λ >= 2
    has_negative_mode: bool  # R_0 has a component with λ < 0
    drifts: bool  # S carries a null vector of S_XX in R_0 to other nodes

    @property
    def residual_converges(self) -> bool:
        """Whether the residuals stay bounded."""
        return not (self.has_large_mode or self.has_negative_mode)

    @property
    def predictions_converge(self) -> bool:
        """Whether the predictions of all evaluated nodes converge."""
        return self.residual_converges and not self.drifts

    @property
    def explanation(self) -> str:
        """Consequence and cause in words."""
        causes = []
        if self.has_large_mode:
            causes.append(_describe_excess(self.step_size, self.safe_step_size))
        if self.has_negative_mode:
            causes.append(
                f"S_XX has eigenvalue {self.smallest:.4g} < 0 and Y a component on it"
            )
        if causes:
            return f"diverges: {', and '.join(causes)}"
        if self.drifts:
            return (
                "residuals converge; predictions drift linearly with the null space of "
                "S_XX"
            )
        if self.definiteness is Definiteness.UNKNOWN:
            return "no eigenvalue of S_XX seen that diverges"
        if self.definiteness is Definiteness.POSITIVE_DEFINITE:
            return "converges to kernel regression, S_X'X S_XX^-1 Y"
        return "converges to the least-squares limit, S_X'X S_XX^+ Y"

    def to_record(self) -> dict[str, Any]:
        """Return numbers, names and the explanation as plain JSON."""
        names = ("smallest", "largest", "safe_step_size")
        names += ("residual_converges", "predictions_converge", "explanation")
        record = {name: getattr(self, name) for name in names}
        return {"definiteness": str(self.definiteness)} | record

    def pack(self) -> Float[np.ndarray, "8"]:
        """Return the fields as numbers, for a checkpoint."""
        return np.array([_KINDS.index(self.definiteness), *self[1:]], np.float64)

    @classmethod
    def unpack(cls, numbers: Float[np.ndarray, "8"]) -> "Convergence":
        """Return the report that ``pack`` converted; refuse other numbers."""
        kind, smallest, largest, safe, step_size, *flags = numbers.tolist()
        ordered = smallest <= largest and safe > 0 and step_size > 0
        if kind not in range(len(_KINDS)) or not ordered or not {*flags} <= {0, 1}:
            msg = f"no convergence report has the numbers {numbers.tolist()}"
            raise ValueError(msg)
        return cls(_KINDS[int(kind)], *numbers[1:5].tolist(), *map(bool, flags))


def divergence_steps(norms: Float[np.ndarray, "s t"]) -> Int[np.ndarray, " s"]:
    """Return the first step after which each residual stays above its start, or 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        bounded = norms <= _GROWTH * norms[:, :1]
    last = norms.shape[1] - 1 - np.argmax(bounded[:, ::-1], axis=1)
    # Entry t of the curve is the residual before step t, after step t - 1.
    return np.where(bounded[:, -1], 0, np.where(bounded.any(axis=1), last + 1, 1))


def safe_step_size(
    ends: Float[np.ndarray, "2"], step_size: float, max_curvature: float
) -> tuple[float, str]:
    """Return a safe step size (0: none, NaN: unknown), and why this one diverges."""
    smallest, largest = float(min(ends)), float(max(ends))
    unknown = np.isnan(max_curvature) or not np.isfinite(ends).all()
    if unknown or largest == smallest == 0:
        return float("nan"), "no step size is known to be safe for this loss"
    safe = 2 / (max_curvature * largest) if largest > 0 else np.inf
    excess = _describe_excess(step_size, safe)
    if smallest < -_ROUND_OFF * max(largest, -smallest):
        why = f"S_XX has an eigenvalue near {smallest:.4g} < 0: no step is safe"
        return 0.0, f"{excess}, and {why}" if step_size >= safe else why
    if step_size < safe:
        return 0.0, (
            f"step size {step_size:g} is below 2 / λ_max = {safe:.4g}, so S_XX cannot "
            "be symmetric: no step is safe"
        )
    return safe, excess


def _describe_excess(step_size: float, safe: float) -> str:
    return f"step size {step_size:g} is not below 2 / λ_max = {safe:.4g}"


@tracing.Jit
def spectrum_ends(
    similarity: LinearMap, train: Bool[Array, "s n"]
) -> Float[Array, "2 s"]:
    """Estimate both ends of the spectrum of S_XX of each split, in any order.

    The power method is applied to S_XX, and to S_XX minus its dominant eigenvalue.
    """
    inside = train.T

    def multiply(v, shift):
        return jnp.where(inside, similarity(v), 0) - shift[None, :] * v

    def find_dominant(shift):
        def body(_, v):
            image = multiply(v, shift)
            norm = jnp.linalg.norm(image, axis=0, keepdims=True)
            return image / jnp.where(norm > 0, norm, 1)

        v = jax.lax.fori_loop(0, _NUM_ITERATIONS, body, body(0, start))
        return jnp.sum(v * multiply(v, shift), axis=0)

    start = 1 + jnp.sin(jnp.arange(len(inside), dtype=jnp.zeros(0).dtype)) / 2
    start = jnp.where(inside, start[:, None], 0)
    first = find_dominant(jnp.zeros(len(train), start.dtype))
    return jnp.stack([first, first + find_dominant(first)])
