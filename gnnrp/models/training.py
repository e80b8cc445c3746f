"""Training of finite networks: optax in a chunked scan, several seeds at once.

``step`` and ``init`` are pure; ``run`` drives them, calls back between chunks, keeps
the best parameters by validation, saves and resumes, and stops what diverges.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Shaped

from gnnrp import sparse
from gnnrp.models import _identity, _resumed, objectives
from gnnrp.models._layers import read
from gnnrp.models.gnn import MLP
from gnnrp.runtime import checkpoints, checks, memory, tracing
from gnnrp.types import LinearMap, MetricFn

MOST_STEPS = 2**31 - 2
_RUNTIME = 2**25  # bytes that compiled code and the allocator keep


class Data(NamedTuple):
    """What networks learn from; the masks of one split, or of as many as keys."""

    x: Any  # inputs, see ``gnn``
    matrix: LinearMap | None  # A while training
    targets: Float[Array, "n c"]
    train: Bool[Array, "*s n"]
    val: Bool[Array, "*s n"] | None = None  # chooses the parameters, if given


class Best(NamedTuple):
    """The first parameters of the best validation score so far."""

    params: Any
    score: Float[Array, ""]
    t: Int[Array, ""]


class State(NamedTuple):
    """Where training stands before step ``t``; of s seeds, a leading axis but on t."""

    params: Any
    optimizer: Any
    key: Shaped[Array, "..."]  # of dropout
    best: Best | None
    t: Int[Array, ""]


class Result(NamedTuple):
    """What training found; of s seeds, with a leading axis."""

    params: Any  # the best by validation, or without validation the last
    best_val: Float[np.ndarray, "*s"] | None
    best_step: Int[np.ndarray, "*s"] | None
    losses: Float[np.ndarray, "..."]  # (t,) or (t, s), before each step of this call
    state: State
    diverged: Int[np.ndarray, "*s"]  # first step here whose loss is not finite, or -1


class Rule(NamedTuple):
    """What a step is made of; static."""

    network: MLP
    optimizer: optax.GradientTransformation
    loss_fn: objectives.LossFn = objectives.cross_entropy
    metric_fn: MetricFn | None = None  # of validation
    patience: int | None = None  # steps without a better score that end the search


def peak_bytes(
    rule: Rule, shape: tuple[int, int], *, itemsize: int, num_seeds: int = 1
) -> int:
    """Return the bytes of training at its peak, without the data.

    A chunk holds the state it starts from, which callers may keep, and the next one,
    the gradient and the update, and for the backward pass the hidden units.

    Args:
        rule: network and optimizer.
        shape: (n, d) of the inputs.
        itemsize: bytes of a number.
        num_seeds: networks at once.
    """
    num_nodes, num_features = shape
    network, each = rule.network, {"itemsize": itemsize}
    params = _num_params(network, num_features) * itemsize
    state = state_bytes(rule, num_features, **each)
    hidden = (2.2 * (network.depth - 1) + 1.5) * network.width
    columns = 6 * network.num_classes + (hidden if network.depth > 1 else 0)
    activations = num_nodes * columns * itemsize
    return int(num_seeds * (2 * state + 1.6 * params + activations)) + _RUNTIME


def state_bytes(rule: Rule, num_features: int, *, itemsize: int) -> int:
    """Return the bytes of a ``State``: parameters, optimizer and the best so far."""
    tiny = {"W": jax.ShapeDtypeStruct((2, 2), jnp.zeros(0).dtype)}
    optimizer = jax.tree.leaves(jax.eval_shape(rule.optimizer.init, tiny))
    moments = sum(leaf.shape == (2, 2) for leaf in optimizer)
    copies = 1 + moments + (rule.metric_fn is not None)
    return copies * _num_params(rule.network, num_features) * itemsize


def _num_params(network: MLP, num_features: int) -> int:
    if network.depth == 1:
        return num_features * network.num_classes
    hidden = (network.depth - 2) * network.width
    return network.width * (num_features + hidden + network.num_classes)


def init(rule: Rule, data: Data, key: Shaped[Array, "..."]) -> State:
    """Return fresh parameters and the state of the optimizer.

    Args:
        rule: network and optimizer.
        data: shapes and types are taken from it.
        key: of the weights and of dropout.
    """
    drawn, key = jax.random.split(key)
    params = rule.network.init(drawn, data.x, data.matrix)
    best = None
    if data.val is not None:
        zero = jnp.asarray(-jnp.inf, data.targets.dtype)
        best = Best(params, zero, jnp.asarray(0))
    return State(params, rule.optimizer.init(params), key, best, jnp.asarray(0))


def step(rule: Rule, state: State, data: Data) -> tuple[State, Float[Array, ""]]:
    """Return the state after one step on all training nodes, and the loss before it.

    Args:
        rule: network, optimizer, loss.
        state: from ``init`` or ``step``.
        data: with ``data.val``, parameters are judged before the step.
    """

    def loss(params: Any) -> jax.Array:
        logits = rule.network.apply(
            params,
            data.x,
            data.matrix,
            train=True,
            rngs={"dropout": jax.random.fold_in(state.key, state.t)},
        )
        return rule.loss_fn(logits, data.targets, data.train)  # pyright: ignore[reportArgumentType]

    best = state.best if data.val is None else _judged(rule, state, data)
    value, gradient = jax.value_and_grad(loss)(state.params)
    updates, optimizer = rule.optimizer.update(gradient, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    return State(params, optimizer, state.key, best, state.t + 1), value


def run(
    rule: Rule,
    data: Data,
    keys: Shaped[Array, "..."],
    *,
    num_steps: int,
    every: int = 100,
    callback: Callable[[int, Any], None] | None = None,
    folder: Path | None = None,
    settings: dict[str, Any] | None = None,
    checkpoint_seconds: float = checkpoints.SECONDS,
    progress: Callable[[str, int, int], None] | None = None,
    journal: checkpoints.Journal | None = None,
) -> Result:
    """Train for a number of steps, one network a key.

    Args:
        rule: network, optimizer, loss, metric and patience.
        data: shared by the seeds, but for masks (s, n), of which each has its own.
        keys: one key, or s of them for as many networks by ``vmap``.
        num_steps: steps from the start, resumed ones included.
        every: steps in a chunk; between chunks the callback is called, the state saved
            if it is time, and divergence seen.
        callback: of (t, params), at t = 0 and after each chunk.
        folder: of checkpoints; if it holds one, training resumes from it, to the same
            numbers as without interruption. It must be of the same data, keys, network
            and functions.
        settings: what else a checkpoint must have been made with, as plain JSON. With a
            folder, an entry "optimizer" is needed, since optimizers are closures, which
            cannot be compared: {"optimizer": ["adam", 0.01]}. Entries "loss_fn",
            "metric_fn", "network" and "matrix" name these if they cannot be compared.
        checkpoint_seconds: between two of them; the last state is kept in any case.
        progress: called with what is being done, how far it is, and of how much.
        journal: rows of the callback, saved with the checkpoints and restored.

    Raises:
        ValueError: counts out of range; a network without parameters; masks that are
            empty, not boolean or of another shape; training nodes without a target; a
            metric without validation nodes or these without a metric; a node in both
            masks; a checkpoint of another run, beyond its end, or damaged.
        TypeError: a loss or a metric that is no function; what is no rule, data or key;
            a network with parameters that are not floating, or without one output; with
            a folder, a function that can neither be compared nor is named in
            ``settings``.
    """
    num_steps = checks.count("num_steps", num_steps, 0, MOST_STEPS)
    every = checks.count("every", every, 1)
    checks.instance("rule", rule, Rule, "Rule(network, optimizer) makes one")
    checks.instance("data", data, Data, "Data(x, matrix, targets, train) makes one")
    for name, fn in (("callback", callback), ("progress", progress)):
        if fn is not None:
            checks.function(name, fn)
    if not isinstance(keys, jax.Array):
        msg = f"keys must be of jax.random.key, got {checks.shown(keys)}"
        raise TypeError(msg)
    some = keys.ndim == (1 if jnp.issubdtype(keys.dtype, jax.dtypes.prng_key) else 2)
    _identity.check(rule, data, len(keys) if some else None)
    _check_memory(rule, data, len(keys) if some else 1)
    _identity.check_outputs(rule, data, keys[0] if some else keys)
    held = tracing.as_static(rule), _as_argument(data)
    state = _start(held[0], held[1], keys, some=some)
    if settings is not None:
        checks.instance("settings", settings, dict, "it is kept as JSON")
    made_with = dict(settings or {})
    if folder is not None:
        made_with = _identity.identify(rule, data, keys, state, settings)
    losses, diverged = [], np.full(keys.shape[:1] if some else (), -1)
    with checkpoints.Keeper(folder, made_with, checkpoint_seconds, journal) as keeper:
        saved = _resumed.make_saved_fn(rule, held[1], some)
        begun = state
        resumed = keeper.resumed(
            lambda _: saved(begun),
            lambda t, found: _resumed.find_fault(
                rule, held[1], saved, begun, some, t, found
            ),
        )
        state = begun if resumed is None else resumed.state
        t = int(state.t)
        if t > num_steps:
            msg = (
                f"the run in {folder} stands at step {t}, beyond num_steps {num_steps}"
            )
            raise ValueError(msg)
        if callback and resumed is None:
            callback(t, state.params)
        while t < num_steps and not _done(rule, state, t) and (diverged < 0).any():
            if progress:
                progress("training", t, num_steps)
            length = min(every - t % every, num_steps - t)
            state, found = _chunk(held[0], state, held[1], some=some, length=length)
            losses.append(np.asarray(found))
            diverged = _first_bad(diverged, losses[-1], t)
            t += length
            if callback:
                callback(t, state.params)
            if _resumed.is_sound(state, diverged):
                keeper.offer(t, lambda: saved(state))  # noqa: B023
        if _resumed.is_sound(state, diverged):
            keeper.finish(t, lambda: saved(state))
    return _result(*held, state, losses, diverged, some)


def _check_memory(rule: Rule, data: Data, num_seeds: int) -> None:
    """Refuse a network that does not fit, before it is drawn.

    Raises:
        ValueError: it does not.
    """
    x, _ = read(data.x, data.matrix)
    itemsize = (x.data if isinstance(x, sparse.Matrix) else x).dtype.itemsize
    network = rule.network
    memory.check(
        f"training of {num_seeds} network(s) of width {network.width:,} and depth "
        f"{network.depth} on {x.shape[0]:,} nodes",
        peak_bytes(rule, x.shape, itemsize=itemsize, num_seeds=num_seeds),
        memory.room(),
        "take a smaller width or depth" + (", or fewer seeds" if num_seeds > 1 else ""),
    )


# The state is not donated: a callback may keep the parameters it was shown.
@functools.partial(tracing.Jit, static_argnames=("some", "length"))
def _chunk(
    rule: Any, state: State, data: Data, *, some: bool, length: int
) -> tuple[State, jax.Array]:
    one = functools.partial(step, tracing.unwrap(rule))
    if some:
        axes = (_AXES, _split_axes(data))
        one = jax.vmap(one, in_axes=axes, out_axes=(_AXES, 0))
    return jax.lax.scan(lambda state, _: one(state, data), state, length=length)


def _as_argument(data: Data) -> Data:
    """Return the data as an argument of compiled functions."""
    if data.matrix is None:
        return data
    return data._replace(matrix=tracing.as_argument(data.matrix))


_state: Any = State
_AXES = _state(0, 0, 0, 0, None)  # of seeds; they share t


@functools.partial(tracing.Jit, static_argnames=("some",))
def _start(rule: Any, data: Data, keys: jax.Array, *, some: bool) -> State:
    one = functools.partial(init, tracing.unwrap(rule))
    if some:
        one = jax.vmap(one, in_axes=(_split_axes(data), 0), out_axes=_AXES)
    return one(data, keys)


def _split_axes(data: Data) -> Any:
    """Return what of the data differs between seeds: masks that have an axis for it."""
    axes = [0 if m is not None and m.ndim > 1 else None for m in (data.train, data.val)]
    data_: Any = Data
    return data_(None, None, None, *axes)


@functools.partial(tracing.Jit, static_argnames=("some",))
def _judged_last(rule: Any, state: State, data: Data, *, some: bool) -> Best:
    """Return the best, the parameters after the last step included."""
    one = functools.partial(_judged, tracing.unwrap(rule))
    if not some:
        return one(state, data)
    return jax.vmap(one, in_axes=(_AXES, _split_axes(data)))(state, data)


def _judged(rule: Rule, state: State, data: Data) -> Best:
    """Return the best so far, the parameters before this step included."""
    logits: Any = rule.network.apply(state.params, data.x, data.matrix)
    metric_fn: Any = rule.metric_fn
    score = metric_fn(logits, data.targets, data.val)
    best: Any = state.best
    better = score > best.score
    if rule.patience is not None:  # a seed that has stopped finds nothing any more
        better &= state.t - best.t <= rule.patience
    return jax.tree.map(
        lambda new, old: jnp.where(better, new, old),
        Best(state.params, score.astype(best.score.dtype), state.t),
        best,
    )


def _done(rule: Rule, state: State, t: int) -> bool:
    """Return whether every seed has gone too long without a better score."""
    if rule.patience is None or state.best is None:
        return False
    return bool((t - np.asarray(state.best.t) > rule.patience).all())


def _first_bad(diverged: np.ndarray, losses: np.ndarray, start: int) -> np.ndarray:
    bad = ~np.isfinite(losses)
    first = np.where(bad.any(axis=0), start + bad.argmax(axis=0), -1)
    return np.where(diverged < 0, first, diverged)


def _result(
    rule: Any, data: Data, state: State, losses: list, diverged: np.ndarray, some: bool
) -> Result:
    curve = np.concatenate(losses) if losses else np.zeros((0, *diverged.shape))
    if state.best is None:
        return Result(state.params, None, None, curve, state, diverged)
    best = _judged_last(rule, state, data, some=some)
    return Result(
        best.params, np.asarray(best.score), np.asarray(best.t), curve, state, diverged
    )
