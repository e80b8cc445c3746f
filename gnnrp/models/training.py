"""Training of finite networks: optax steps in a chunked scan, several seeds at once.

``init`` and ``step`` are pure; ``run`` drives them, and saves, resumes and calls back
between chunks.
"""

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Shaped

from gnnrp import sparse
from gnnrp.models import _snapshots, objectives
from gnnrp.models._layers import parse_inputs
from gnnrp.models.gnn import MLP
from gnnrp.runtime import arrays, checkpoints, checks, memory, tracing
from gnnrp.runtime.options import Options
from gnnrp.types import LinearMap, MetricFn

MAX_STEPS = 2**31 - 2


class Data(NamedTuple):
    """Inputs, targets and masks, of one split or of one split per key."""

    x: Any  # inputs (n, d) of a network of ``gnn``
    matrix: LinearMap | None  # A while training
    targets: Float[Array, "n c"]
    train: Bool[Array, "*s n"]
    val: Bool[Array, "*s n"] | None = None  # to choose the best parameters


class Best(NamedTuple):
    """The first parameters of the best validation score so far."""

    params: Any
    score: Float[Array, ""]
    t: Int[Array, ""]


class State(NamedTuple):
    """State of training before step ``t``; all but t have a leading axis of s seeds."""

    params: Any
    optimizer: Any
    key: Shaped[Array, "..."]  # of dropout
    best: Best | None
    t: Int[Array, ""]


class Result(NamedTuple):
    """Result of training; with a leading axis of s seeds."""

    params: Any  # the best by validation, or the last without validation
    best_val: Float[np.ndarray, "*s"] | None
    best_step: Int[np.ndarray, "*s"] | None
    losses: Float[np.ndarray, "..."]  # (t,) or (t, s), before each step of this call
    state: State
    diverged: Int[np.ndarray, "*s"]  # first step here whose loss is not finite, or -1


class Rule(NamedTuple):
    """Network, optimizer and loss of a step; static."""

    network: nn.Module  # one of ``gnn``, or any with __call__(x, matrix)
    optimizer: optax.GradientTransformation
    loss_fn: objectives.LossFn = objectives.cross_entropy
    metric_fn: MetricFn | None = None  # of validation
    patience: int | None = None  # steps without a better score before training stops


def peak_bytes(
    rule: Rule, shape: tuple[int, int], *, itemsize: int, num_seeds: int = 1
) -> int:
    """Return the peak bytes of training a network of ``gnn`` on inputs (n, d)."""
    # A chunk holds its first state, which callers may keep, the next state, the
    # gradient and the update, and the hidden units for the backward pass.
    num_nodes, num_features = shape
    network: Any = rule.network
    state = state_bytes(rule, num_features, itemsize=itemsize)
    params = _num_params(network, num_features) * itemsize
    columns = 6 * network.num_classes
    if network.depth > 1:
        columns += (2.2 * (network.depth - 1) + 1.5) * network.width
    activations = num_nodes * columns * itemsize
    return int(num_seeds * (2 * state + 1.6 * params + activations)) + memory.RUNTIME


def state_bytes(rule: Rule, num_features: int, *, itemsize: int) -> int:
    """Return the bytes of a ``State``: parameters, optimizer and the best so far."""
    network: Any = rule.network
    return _num_copies(rule) * _num_params(network, num_features) * itemsize


def _num_copies(rule: Rule) -> int:
    """Return how many arrays of the size of the parameters a ``State`` holds."""
    tiny = {"W": jax.ShapeDtypeStruct((2, 2), jnp.zeros(0).dtype)}
    optimizer = jax.tree.leaves(jax.eval_shape(rule.optimizer.init, tiny))
    num_moments = sum(leaf.shape == (2, 2) for leaf in optimizer)
    return 1 + num_moments + (rule.metric_fn is not None)


def _num_params(network: MLP, num_features: int) -> int:
    if network.depth == 1:
        return num_features * network.num_classes
    hidden = (network.depth - 2) * network.width
    return network.width * (num_features + hidden + network.num_classes)


def init(rule: Rule, data: Data, key: Shaped[Array, "..."]) -> State:
    """Initialize parameters and optimizer; the key is that of weights and dropout."""
    params_key, key = jax.random.split(key)
    params = rule.network.init(params_key, data.x, data.matrix)
    best = None
    if data.val is not None:
        lowest = jnp.asarray(-jnp.inf, data.targets.dtype)
        best = Best(params, lowest, jnp.asarray(0))
    return State(params, rule.optimizer.init(params), key, best, jnp.asarray(0))


def step(rule: Rule, state: State, data: Data) -> tuple[State, Float[Array, ""]]:
    """Take one step on all training nodes; return the state and the loss before it."""
    key = jax.random.fold_in(state.key, state.t)

    def loss(params: Any) -> jax.Array:
        logits = _train_logits(rule.network, params, data, key)
        return rule.loss_fn(logits, data.targets, data.train)

    best = state.best if data.val is None else _update_best(rule, state, data)
    value, gradient = jax.value_and_grad(loss)(state.params)
    updates, optimizer = rule.optimizer.update(gradient, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    return State(params, optimizer, state.key, best, state.t + 1), value


def _train_logits(network: nn.Module, params: Any, data: Data, key: Any) -> Any:
    """Return the logits in training mode, if the network has one."""
    known = inspect.signature(network.__call__).parameters
    modes = {"train": True, "deterministic": False}
    mode: Any = {name: value for name, value in modes.items() if name in known}
    rngs = {"dropout": key} if mode else {}
    return network.apply(params, data.x, data.matrix, rngs=rngs, **mode)


def _update_best(rule: Rule, state: State, data: Data) -> Best:
    """Return the best so far, including the parameters before this step."""
    logits: Any = rule.network.apply(state.params, data.x, data.matrix)
    metric_fn: Any = rule.metric_fn
    best: Any = state.best
    score = metric_fn(logits, data.targets, data.val)
    better = score > best.score
    if rule.patience is not None:  # a seed that has stopped stays as it is
        better &= state.t - best.t <= rule.patience
    latest = Best(state.params, score.astype(best.score.dtype), state.t)
    return jax.tree.map(functools.partial(jnp.where, better), latest, best)


def run(
    rule: Rule,
    data: Data,
    keys: Shaped[Array, "..."],
    *,
    num_steps: int,
    every: int = 100,
    callback: Callable[[int, Any], None] | None = None,
    options: Options = Options(),
    journal: checkpoints.Journal | None = None,
    stops: Collection[int] = (),
) -> Result:
    """Train for a number of steps, one network per key.

    Args:
        rule: network, optimizer, loss, metric and patience.
        data: shared by the seeds, except that masks (s, n) give each seed its own.
        keys: one key, or s of them for as many networks by ``vmap``.
        num_steps: steps from the start, including resumed ones.
        every: steps of a chunk; the callback, checkpoints and the check for divergence
            come between chunks.
        callback: called with (t, params) at t = 0 and after each chunk.
        options: checkpoints, memory limit and progress. A checkpoint must be of the
            same data, keys, network and functions. With a folder, ``metadata`` needs
            an entry "optimizer", such as ["adam", 0.01], since optimizers are closures,
            which cannot be compared. Entries "loss_fn", "metric_fn", "network" and
            "matrix" name these if they cannot be compared.
        journal: rows of the callback, saved with the checkpoints and restored.
        stops: further steps that end a chunk; they do not change the training.

    Raises:
        ValueError: counts out of range; a network without parameters, with state (of
            BatchNorm), or too large for the memory; masks that are empty, overlap or
            have another shape; training nodes without a target; a metric without
            validation nodes or the reverse; a checkpoint of another run, beyond
            ``num_steps``, or damaged.
        TypeError: an argument of another type; a network that needs more than x and
            matrix, has parameters that are not floating, or several outputs; with a
            folder, a function that cannot be compared and has no entry in
            ``options.metadata``.
        OSError: the folder cannot be written, or another run uses it.
        KeyboardInterrupt: on Ctrl-C, after saving a checkpoint if there is a folder.
    """
    num_steps = checks.count("num_steps", num_steps, 0, MAX_STEPS)
    every = checks.count("every", every, 1)
    stops = sorted(checks.count("stops", stop, 1) for stop in stops)
    num_seeds = _check_arguments(rule, data, keys, callback, options)
    many = num_seeds is not None
    static = tracing.as_static(rule)
    traced = data._replace(matrix=tracing.as_argument(data.matrix))
    start = _start(static, traced, keys, many=many)
    folder, identity = options.folder, {}
    if folder is not None:
        identity = _snapshots.identify(rule, data, keys, start, options.metadata)
    losses, diverged = [], np.full(keys.shape[:1] if many else (), -1)
    seconds = options.checkpoint_seconds
    with checkpoints.Keeper(folder, identity, seconds, journal) as keeper:
        snapshots = _snapshots.Snapshots(keeper, rule, traced, start)
        restored = snapshots.restore()
        state = start if restored is None else restored
        t = int(state.t)
        if t > num_steps:
            msg = f"the run in {folder} is at step {t}, beyond {num_steps=}"
            raise ValueError(msg)
        if callback and restored is None:
            callback(t, state.params)
        while t < num_steps and not _is_done(rule, state, t) and (diverged < 0).any():
            options.report("training", t, num_steps)
            ends = [t - t % every + every, num_steps, *stops]
            length = min(end for end in ends if end > t) - t
            state, values = _chunk(static, state, traced, many=many, length=length)
            losses.append(np.asarray(values))
            diverged = _first_divergence(diverged, losses[-1], t)
            t += length
            if callback:
                callback(t, state.params)
            snapshots.save(state, diverged)
        snapshots.save(state, diverged, is_last=True)
    curve = np.concatenate(losses) if losses else np.zeros((0, *diverged.shape))
    if state.best is None:
        return Result(state.params, None, None, curve, state, diverged)
    params, score, at = _last_best(static, state, traced, many=many)
    return Result(params, np.asarray(score), np.asarray(at), curve, state, diverged)


def _check_arguments(
    rule: Rule, data: Data, keys: Any, callback: Any, options: Options
) -> int | None:
    """Validate the arguments of ``run``; return the number of seeds, or None."""
    checks.instance("rule", rule, Rule, "such as Rule(network, optimizer)")
    checks.instance("data", data, Data, "such as Data(x, matrix, targets, train)")
    if callback is not None:
        checks.function("callback", callback)
    if not isinstance(keys, jax.Array):
        msg = f"keys must be of jax.random.key, got {checks.format_value(keys)}"
        raise TypeError(msg)
    is_new = jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    num_seeds = len(keys) if keys.ndim == (1 if is_new else 2) else None
    _check_rule_and_data(rule, data, num_seeds)
    key = keys if num_seeds is None else keys[0]
    _check_network(rule.network, data, key)
    network: Any = rule.network
    count = num_seeds or 1
    what = f"training of {count} network(s)"
    if isinstance(network, MLP):
        x, _ = parse_inputs(data.x, data.matrix)
        itemsize = (x.data if isinstance(x, sparse.Matrix) else x).dtype.itemsize
        needed = peak_bytes(rule, x.shape, itemsize=itemsize, num_seeds=count)
        what += f" of width {network.width:,} and depth {network.depth}"
    else:
        needed = count * _traced_bytes(rule, data, key) + memory.RUNTIME
    memory.check(
        f"{what} on {len(data.targets):,} nodes",
        needed,
        memory.room(options.max_bytes),
        "take a smaller width or depth" + (", or fewer seeds" if count > 1 else ""),
    )
    return num_seeds


def _traced_bytes(rule: Rule, data: Data, key: Any) -> int:
    """Bound the peak of a step of any module, from its traced forward pass.

    The backward pass holds at most all values of the forward pass and their gradients.
    """
    params = jax.eval_shape(
        lambda key: rule.network.init(key, data.x, data.matrix), key
    )
    forward = jax.make_jaxpr(
        lambda params, key: _train_logits(rule.network, params, data, key)
    )(params, key)
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    copies = 2 * (_num_copies(rule) + 1)  # two states, gradient and update
    return copies * size + 2 * _value_bytes(forward.jaxpr)


def _value_bytes(jaxpr: Any) -> int:
    """Return the bytes of all arrays that a traced function computes."""
    total = 0
    for equation in jaxpr.eqns:
        inner = [getattr(x, "jaxpr", x) for x in equation.params.values()]
        inner = [x for x in inner if hasattr(x, "eqns")]
        total += sum(map(_value_bytes, inner))
        if not inner:
            avals = [var.aval for var in equation.outvars]
            total += sum(x.size * x.dtype.itemsize for x in avals if x.shape)
    return total


def _check_rule_and_data(rule: Rule, data: Data, num_seeds: int | None) -> None:
    fix = "such as gnn.GCN(num_classes)"
    checks.instance("network", rule.network, nn.Module, fix)
    kind = optax.GradientTransformation
    checks.instance("optimizer", rule.optimizer, kind, "such as objectives.sgd(0.1)")
    for name, fn in (("loss_fn", rule.loss_fn), ("metric_fn", rule.metric_fn)):
        if fn is not None:
            checks.function(name, fn, "see objectives and metrics")
    if (rule.metric_fn is None) != (data.val is None):
        msg = "validation nodes and a metric go together, and one of them is missing"
        raise ValueError(msg)
    if rule.patience is not None:
        checks.count("patience", rule.patience, 0)
    checks.no_masked_entries("x", data.x)
    targets = arrays.real("targets", data.targets)
    if targets.ndim != 2:
        fix = "use jax.nn.one_hot(labels, c) for labels"
        msg = f"targets must have shape (n, c), got {targets.shape}; {fix}"
        raise ValueError(msg)
    _check_mask("the train mask", data.train, len(targets), num_seeds)
    if data.val is not None:
        _check_mask("the val mask", data.val, len(targets), num_seeds)
        if (both := np.asarray(data.train & data.val)).any():
            node = int(np.argwhere(both)[0, -1])
            msg = f"node {node} is in both the train and the val mask; remove it in one"
            raise ValueError(msg)
    _check_training_targets(rule.loss_fn, np.asarray(targets), data.train)


def _check_training_targets(loss_fn: Any, targets: np.ndarray, train: Any) -> None:
    """Check that every training node has a target, for losses that need one."""
    # By identity: functions of a caller need not be hashable.
    if loss_fn is objectives.cross_entropy:
        has_target = np.isfinite(targets).all(axis=1) & (targets != 0).any(axis=1)
    elif loss_fn is objectives.squared:
        has_target = np.isfinite(targets).all(axis=1)
    else:
        return
    missing = np.atleast_2d(np.asarray(train)).any(axis=0) & ~has_target
    if missing.any():
        msg = f"node {int(np.argmax(missing))} of the train mask has no target"
        raise ValueError(msg)


def _check_network(network: nn.Module, data: Data, key: Any) -> None:
    """Check call, parameters and outputs of the network without compiling it."""
    x, matrix = data.x, data.matrix
    name, call = type(network).__name__, inspect.signature(network.__call__)
    try:
        call.bind(x, matrix)
    except TypeError as error:
        msg = (
            f"{name} must accept a call with (x, matrix) alone, but its __call__ takes "
            f"{call}; give its other arguments defaults"
        )
        raise TypeError(msg) from error
    params = jax.eval_shape(lambda key: network.init(key, x, matrix), key)
    if state := params.keys() - {"params"}:
        msg = (
            f"{name} must have parameters alone, but keeps state in {min(state)!r}, "
            "which training does not update; use LayerNorm in place of BatchNorm"
        )
        raise ValueError(msg)
    outputs = jax.eval_shape(lambda params: network.apply(params, x, matrix), params)
    if not (leaves := jax.tree.leaves(params)):
        msg = f"{name} must have parameters to train, got none"
        raise ValueError(msg)
    for leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            fix = "keep keys and counters outside of the parameters"
            msg = f"parameters of {name} must be floating, got {leaf.dtype}; {fix}"
            raise TypeError(msg)
    if not hasattr(outputs, "shape"):
        got = type(outputs).__name__
        msg = f"{name} must return one array of logits (n, c), got {got}"
        raise TypeError(msg)


def _check_mask(name: str, mask: Any, num_nodes: int, num_seeds: int | None) -> None:
    """Check a mask (n,), or (s, n) for s seeds."""
    if not hasattr(mask, "dtype"):
        got = type(mask).__name__
        msg = f"{name} must be a boolean array, got {got}; use np.asarray"
        raise TypeError(msg)
    per_seed = num_seeds is not None and mask.ndim == 2
    checks.mask(name, mask, num_nodes, several=per_seed)
    if num_seeds is not None and per_seed:
        checks.shape(name, mask, (num_seeds, num_nodes))
    if not np.asarray(mask).any(axis=-1).all():
        msg = f"{name} must not be empty" + (", for any seed" if per_seed else "")
        raise ValueError(msg)


_STATE_AXES = State(0, 0, 0, 0, None)  # pyright: ignore[reportArgumentType]


def _data_axes(data: Data) -> Any:
    """Return the ``vmap`` axes of the data: masks may have one of the seeds."""
    masks: Any = data.train, data.val
    train, val = (0 if np.ndim(mask) > 1 else None for mask in masks)
    return Data(None, None, None, train, val)  # pyright: ignore[reportArgumentType]


@functools.partial(tracing.Jit, static_argnames=("many",))
def _start(rule: Any, data: Data, keys: jax.Array, *, many: bool) -> State:
    one = functools.partial(init, tracing.unwrap(rule))
    if many:
        one = jax.vmap(one, in_axes=(_data_axes(data), 0), out_axes=_STATE_AXES)
    return one(data, keys)


# The state is not donated: a callback may keep the parameters that it receives.
@functools.partial(tracing.Jit, static_argnames=("many", "length"))
def _chunk(
    rule: Any, state: State, data: Data, *, many: bool, length: int
) -> tuple[State, jax.Array]:
    one = functools.partial(step, tracing.unwrap(rule))
    if many:
        axes = (_STATE_AXES, _data_axes(data))
        one = jax.vmap(one, in_axes=axes, out_axes=(_STATE_AXES, 0))
    return jax.lax.scan(lambda state, _: one(state, data), state, length=length)


@functools.partial(tracing.Jit, static_argnames=("many",))
def _last_best(rule: Any, state: State, data: Data, *, many: bool) -> Best:
    """Return the best, including the parameters after the last step."""
    one = functools.partial(_update_best, tracing.unwrap(rule))
    if many:
        one = jax.vmap(one, in_axes=(_STATE_AXES, _data_axes(data)))
    return one(state, data)


def _is_done(rule: Rule, state: State, t: int) -> bool:
    """Return whether the patience of every seed is exhausted."""
    if rule.patience is None or state.best is None:
        return False
    return bool((t - np.asarray(state.best.t) > rule.patience).all())


def _first_divergence(
    diverged: np.ndarray, losses: np.ndarray, start: int
) -> np.ndarray:
    bad = ~np.isfinite(losses)
    first = np.where(bad.any(axis=0), start + bad.argmax(axis=0), -1)
    return np.where(diverged < 0, first, diverged)
