"""Targets, masks, initial predictions and steps of a run, validated once on the host.

Rows that the devices of a mesh share (``distributed.matrix.spread``) stay in place.
"""

import dataclasses
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gnnrp.runtime import checks, tracing
from gnnrp.types import MetricFn, Split

MAX_STEPS = 10_000_000
StepSize = TypeVar("StepSize", covariant=True)  # a number, or several
_MOST_CLASSES = 64  # for which padding always has room


@dataclasses.dataclass(frozen=True)
class Steps(Generic[StepSize]):
    """Step sizes of a run, and its number of steps.

    Args:
        step_size: η > 0, or several of them, which share their products with S.
        num_steps: t, 1 to ten million.

    Raises:
        ValueError: a value out of its range, or no step size.
    """

    step_size: StepSize
    num_steps: int

    def __post_init__(self) -> None:
        """Validate the fields, and convert them to Python numbers."""
        count = checks.count("num_steps", self.num_steps, 1, MAX_STEPS)
        object.__setattr__(self, "num_steps", count)
        value: Any = self.step_size
        if np.ndim(value) == 0:
            value = _step_size(value)
        else:
            value = tuple(map(_step_size, checks.nonempty_list("step_size", value)))
        object.__setattr__(self, "step_size", value)

    @property
    def is_single(self) -> bool:
        """Whether there is one step size, not a list."""
        return not isinstance(self.step_size, tuple)

    @property
    def step_sizes(self) -> tuple[float, ...]:
        """All step sizes."""
        value: Any = self.step_size
        return (value,) if self.is_single else value


def _step_size(value: Any) -> float:
    """Return a step size as a float, which must be positive."""
    value = checks.number("step_size", value)
    checks.positive("step_size", value)
    return value


class Part(NamedTuple):
    """The nodes of a metric, padded to one length a split.

    The padding has a node of each class that the part lacks, so that a metric sees the
    same classes in every part. Shared rows stay in place, and the mask selects them.
    """

    index: Any  # (s, q) nodes, or None
    targets: Float[Any, "*s q c"]  # NaN where unknown; of shared rows, of all splits
    mask: Bool[Any, "s q"]  # false in the padding

    def split_inputs(self, split: int) -> tuple[Any, Any, Any]:
        """Return index, targets and mask of one split."""
        if self.index is None:
            return slice(None), self.targets, self.mask[split]
        return self.index[split], self.targets[split], self.mask[split]


class Problem(NamedTuple):
    """Targets, splits and initial predictions; JAX arrays if devices share the rows."""

    targets: Float[Any, "n c"]  # zero where unknown
    known: Bool[Any, "n c"] | None  # None: no training target is NaN
    train: Bool[Any, "s n"]
    initial: Float[Any, "s n c"] | None  # F_0; None: zero
    val: Part
    test: Part

    @property
    def is_sharded(self) -> bool:
        """Whether devices share the rows."""
        return self.val.index is None

    @property
    def initial_residual(self) -> Float[Any, "s n c"]:
        """[R_0, 0] of each split."""
        start = self.targets[None]
        if self.initial is not None:
            start = start - self.initial
        xp: Any = jnp if self.is_sharded else np
        return xp.where(self.train[:, :, None], start, 0)


def make_problem(targets: Any, split: Split, initial: Any = None) -> Problem:
    """Validate the targets Y, the masks and F_0 of a run, see ``propagation.run``.

    If devices share the rows of Y, they must share those of the masks and of F_0 too.

    Raises:
        ValueError: a shape does not fit, a value is infinite, or a mask is empty or
            overlaps another.
    """
    split = as_split(split)
    dtype = jnp.zeros(0).dtype  # float32 unless JAX has float64 enabled
    if isinstance(targets, jax.Array) and not targets.is_fully_replicated:
        _check_targets(targets)
        return _make_sharded(targets.astype(dtype), split, initial)
    checks.no_masked_entries("targets", targets)
    y = checks.as_array(targets)
    _check_targets(y)
    if np.isinf(y).any():
        msg = f"targets must not be infinite, and row {_first(np.isinf(y))} is"
        raise ValueError(msg)
    checks.representable("targets", y, dtype)
    y = y.astype(dtype)
    train, val, test = map(np.asarray, _masks(split, len(y)))
    for name, part in (("val", val), ("test", test)):
        if (train & part).any():
            node = _first((train & part).any(axis=0))
            msg = f"node {node} is in both the train and the {name} mask; take one away"
            raise ValueError(msg)
    if 0 in {len(train), y.shape[1]}:
        msg = f"there must be a split and a class, got {len(train)} and {y.shape[1]}"
        raise ValueError(msg)
    finite = np.isfinite(y)
    fed = (train & finite.any(axis=1)).any(axis=1)
    if not fed.all():
        msg = f"split {_first(~fed)} has no training node with a known target"
        raise ValueError(msg)
    if initial is not None:
        start = checks.reals("initial", initial)
        shape = _check_initial(start, (len(train), *y.shape))
        if not np.isfinite(start).all():
            msg = "initial must be finite"
            raise ValueError(msg)
        checks.representable("initial", start, dtype)
        initial = np.broadcast_to(start.astype(dtype), shape)
    known = None if finite[train.any(axis=0)].all() else finite
    parts = _make_part(y, val), _make_part(y, test)
    return Problem(np.where(finite, y, 0), known, train, initial, *parts)


def peak_bytes(shape: tuple[int, int], *, itemsize: int) -> int:
    """Return the bytes of ``make_problem`` on (n, c) targets, without its arguments."""
    num_nodes, num_classes = shape
    return num_nodes * num_classes * (2 * itemsize + 2)


def part_scores(
    metric: MetricFn, part: Part, predictions: Float[Array, "n s c"]
) -> Float[Array, " s"]:
    """Return the metric of each split on one part, inside a trace."""
    if part.index is None:
        over = jax.vmap(metric, in_axes=(1, None, 0))
        return over(predictions, part.targets, part.mask)
    splits = jnp.arange(predictions.shape[1])[:, None]
    scores = predictions[part.index, splits]
    return jax.vmap(metric)(scores, part.targets, part.mask)


def evaluate(
    problem: Problem, predictions: Float[Any, "n s c"], *, metric: MetricFn
) -> Float[np.ndarray, "2 s"]:
    """Return the metric of each split on its validation and its test nodes."""
    return decode_nan(_evaluate(problem, predictions, metric=metric))


@tracing.Jit
def _evaluate(problem, predictions, *, metric):
    parts = (problem.val, problem.test)
    scores = [part_scores(metric, part, predictions) for part in parts]
    return encode_nan(jnp.stack(scores))


def encode_nan(scores: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return -inf for NaN, which ``jax.debug_nans`` refuses in compiled functions."""
    return jnp.where(jnp.isnan(scores), -jnp.inf, scores)


def decode_nan(scores: Any) -> Float[np.ndarray, "..."]:
    """Return the scores on the host, NaN for each -inf of ``encode_nan``."""
    scores = np.asarray(scores)
    return np.where(np.isneginf(scores), np.asarray(np.nan, scores.dtype), scores)


def _make_sharded(targets: jax.Array, split: Split, initial: Any) -> Problem:
    """Validate arrays whose rows devices share; all processes raise the same error."""
    train, val, test = _masks(split, len(targets))
    if initial is not None:
        shape = _check_initial(initial, (len(train), *targets.shape))
        initial = jnp.broadcast_to(initial, shape).astype(targets.dtype)
    faults = _find_faults(targets, train, val, test, initial)
    *wrong, unknown = (bool(each) for each in faults)
    for is_wrong, msg in zip(wrong, _FAULTS, strict=True):
        if is_wrong:
            raise ValueError(msg)
    finite = jnp.isfinite(targets)
    known = finite if unknown else None
    parts = Part(None, targets, val), Part(None, targets, test)
    return Problem(jnp.where(finite, targets, 0), known, train, initial, *parts)


_FAULTS = (
    "targets must not be infinite",
    "a node is in the train mask and in another one",
    "there is a split without a training node with a known target",
    "initial must be finite",
)


@jax.jit
def _find_faults(targets, train, val, test, initial):
    """Return a flag for each of ``_FAULTS``, and for unknown training targets."""
    finite = jnp.isfinite(targets)
    return (
        jnp.isinf(targets).any(),
        (train & (val | test)).any(),
        ~(train & finite.any(axis=1)).any(axis=1).all(),
        False if initial is None else ~jnp.isfinite(initial).all(),
        (train.any(axis=0)[:, None] & ~finite).any(),
    )


def as_split(parts: Any) -> Split:
    """Return the masks of a split by name."""
    is_list = isinstance(parts, list | tuple)
    if not is_list or len(parts) != len(Split._fields):
        got = len(parts) if is_list else type(parts).__name__
        msg = f"a split must be three masks, Split(train, val, test), got {got}"
        raise TypeError(msg)
    return Split(*parts)


def _masks(split: Split, num_nodes: int) -> list[Any]:
    """Return the three masks, each (s, n)."""
    masks: list[Any] = []
    for part, values in split._asdict().items():
        name = f"the {part} mask"
        mask = checks.mask(name, values, num_nodes, several=True)
        masks.append(mask[None] if mask.ndim == 1 else mask)
        checks.shape(name, masks[-1], (len(masks[0]), num_nodes))
    return masks


def _check_targets(targets: Any) -> None:
    if targets.ndim != 2 or not jnp.issubdtype(targets.dtype, jnp.floating):
        hint = ".astype(float)" if targets.ndim == 2 else "jax.nn.one_hot(labels, c)"
        msg = (
            f"targets must be floats of shape (n, c), got {targets.dtype} "
            f"{targets.shape}; {hint} makes them"
        )
        raise ValueError(msg)


def _check_initial(initial: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    if initial.shape not in {shape, shape[1:]}:
        msg = f"initial must have shape {shape[1:]} or {shape}, got {initial.shape}"
        raise ValueError(msg)
    return shape


def _first(flags: Any) -> int:
    return int(np.argwhere(flags)[0, 0])


def _make_part(targets: np.ndarray, mask: np.ndarray) -> Part:
    # The length is rounded up to three binary digits, so that masks of about the same
    # size share one trace. This leaves room for all classes, unless there are more
    # than 64.
    labels = np.argmax(targets, axis=1)
    nodes = np.flatnonzero((targets > 0).any(axis=1))
    classes, first = np.unique(labels[nodes], return_index=True)
    missing = [
        nodes[first[~np.isin(classes, labels[entries]) & entries.any()]]
        for entries in mask
    ]
    most = len(classes)
    if most > _MOST_CLASSES:
        most = max(map(len, missing))
    longest = min(int(mask.sum(axis=1).max()) + most, mask.shape[1])
    unit = 1 << max(0, longest.bit_length() - 3)
    width = max(1, min(-(-longest // unit) * unit, mask.shape[1]))
    index = np.zeros((len(mask), width), np.int32)
    inside = np.zeros((len(mask), width), bool)
    for row, flags, entries, more in zip(index, inside, mask, missing, strict=True):
        nodes = np.append(np.flatnonzero(entries), more)
        row[: len(nodes)] = nodes
        flags[: entries.sum()] = True
    return Part(index, targets[index], inside)
