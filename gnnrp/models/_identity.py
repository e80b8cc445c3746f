"""Checks of the arguments of training, and the identity of a run."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gnnrp.models import objectives
from gnnrp.models.gnn import MLP
from gnnrp.runtime import arrays, checks, fingerprint


def check(rule: Any, data: Any, num_seeds: int | None) -> None:
    """Refuse what would train silently on nothing, or on something else.

    Raises:
        ValueError: see ``training.run``.
        TypeError: see ``training.run``.
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
    checks.plain("x", data.x)
    targets = arrays.real("targets", data.targets)
    if targets.ndim != 2:
        msg = (
            f"targets must have shape (n, c), got {targets.shape}; "
            "jax.nn.one_hot(labels, c) makes them of labels"
        )
        raise ValueError(msg)
    _check_mask("the train mask", data.train, len(targets), num_seeds)
    if data.val is not None:
        _check_mask("the val mask", data.val, len(targets), num_seeds)
    if data.val is not None and (both := np.asarray(data.train & data.val)).any():
        node = int(np.argwhere(both)[0, -1])
        msg = f"node {node} is in both the train and the val mask; take one away"
        raise ValueError(msg)
    # By identity: not every function of a caller can be hashed.
    known_losses = (objectives.cross_entropy, objectives.squared)
    if any(rule.loss_fn is each for each in known_losses):
        used = np.atleast_2d(np.asarray(data.train)).any(axis=0)
        y = np.asarray(targets)
        known = np.isfinite(y).all(axis=1)
        if rule.loss_fn is objectives.cross_entropy:
            known &= (y != 0).any(axis=1)
        bare = used & ~known
        if bare.any():
            msg = f"node {int(np.argmax(bare))} of the train mask has no target"
            raise ValueError(msg)


def check_outputs(rule: Any, data: Any, key: Any) -> None:
    """Refuse a network that no gradient trains, before anything is compiled.

    Raises:
        ValueError: no parameters.
        TypeError: parameters that are not floating, or outputs that are no array.
    """

    def both(key: Any) -> tuple[Any, Any]:
        params = rule.network.init(key, data.x, data.matrix)
        return params, rule.network.apply(params, data.x, data.matrix)

    params, outputs = jax.eval_shape(both, key)
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
        msg = (
            f"{name} must return one array of logits (n, c), got "
            f"{type(outputs).__name__}"
        )
        raise TypeError(msg)


def identify(
    rule: Any, data: Any, keys: Any, state: Any, settings: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the identity of a run of training as plain JSON; see ``training.run``.

    Raises:
        TypeError: a function that cannot be compared and has no name.
    """
    named = {
        "network": rule.network,
        "optimizer": rule.optimizer,
        "state": [f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(state)],
        "loss_fn": rule.loss_fn,
        "metric_fn": rule.metric_fn,
        "patience": rule.patience,
        "matrix": fingerprint.Structure(data.matrix),
    }
    return fingerprint.identify(named, settings, "settings", data=(data, keys))


def _check_mask(name: str, mask: Any, num_nodes: int, num_seeds: int | None) -> None:
    """Refuse what is no mask of the nodes, or not one for each seed.

    Raises:
        ValueError: of another shape, or empty.
        TypeError: not an array, or not boolean.
    """
    if not hasattr(mask, "dtype"):
        got = type(mask).__name__
        msg = f"{name} must be a boolean array, got {got}; np.asarray makes one"
        raise TypeError(msg)
    own = num_seeds is not None and mask.ndim == 2
    checks.mask(name, mask, num_nodes, several=own)
    if num_seeds is not None and own:
        checks.shape(name, mask, (num_seeds, num_nodes))
    if not np.asarray(mask).any(axis=-1).all():
        msg = f"{name} must hold at least one node, and one holds none"
        raise ValueError(msg)
