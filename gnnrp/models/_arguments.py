"""Checks of the arguments of training."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gnnrp.models import objectives
from gnnrp.models.gnn import MLP
from gnnrp.runtime import arrays, checks


def count_seeds(keys: Any) -> int | None:
    """Return the number of keys, or None for a single one.

    Raises:
        TypeError: not an array of keys.
    """
    if not isinstance(keys, jax.Array):
        msg = f"keys must be of jax.random.key, got {checks.format_value(keys)}"
        raise TypeError(msg)
    ndim = 1 if jnp.issubdtype(keys.dtype, jax.dtypes.prng_key) else 2
    return len(keys) if keys.ndim == ndim else None


def check(rule: Any, data: Any, num_seeds: int | None) -> None:
    """Validate network, functions, targets and masks; see ``training.run``.

    Raises:
        ValueError: data that do not match, or training nodes without a target.
        TypeError: an object of another type.
    """
    checks.instance("network", rule.network, MLP, "such as gnn.GCN(num_classes)")
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
        msg = (
            f"targets must have shape (n, c), got {targets.shape}; use "
            "jax.nn.one_hot(labels, c) for labels"
        )
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
    """Check that every training node has a target, for losses that need one.

    Raises:
        ValueError: a training node has none.
    """
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


def check_outputs(rule: Any, data: Any, key: Any) -> None:
    """Check parameters and outputs of the network without compiling it.

    Raises:
        ValueError: no parameters.
        TypeError: parameters that are not floating, or outputs that are not one array.
    """

    def init_and_apply(key: Any) -> tuple[Any, Any]:
        params = rule.network.init(key, data.x, data.matrix)
        return params, rule.network.apply(params, data.x, data.matrix)

    params, outputs = jax.eval_shape(init_and_apply, key)
    name = type(rule.network).__name__
    if not (leaves := jax.tree.leaves(params)):
        msg = f"{name} must have parameters to train, got none"
        raise ValueError(msg)
    for leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            msg = (
                f"parameters of {name} must be floating, got {leaf.dtype}; keep keys "
                "and counters outside of the parameters"
            )
            raise TypeError(msg)
    if not hasattr(outputs, "shape"):
        got = type(outputs).__name__
        msg = f"{name} must return one array of logits (n, c), got {got}"
        raise TypeError(msg)


def _check_mask(name: str, mask: Any, num_nodes: int, num_seeds: int | None) -> None:
    """Check a mask (n,), or (s, n) for s seeds.

    Raises:
        ValueError: another shape, or no node in a mask.
        TypeError: not a boolean array.
    """
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
