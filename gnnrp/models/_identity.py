"""What a run of training must be of, and what tells it from another."""

import dataclasses
from typing import Any

import jax
import numpy as np

from gnnrp import _checks, checkpoints
from gnnrp.models import objectives
from gnnrp.models.gnn import MLP


def check(rule: Any, data: Any, num_seeds: int | None) -> None:
    """Refuse what would train silently on nothing, or on something else.

    Raises:
        ValueError: see ``training.run``.
        TypeError: see ``training.run``.
    """
    for name, fn in (("loss_fn", rule.loss_fn), ("metric_fn", rule.metric_fn)):
        if fn is not None and not callable(fn):
            msg = f"{name} must be a function, got {fn!r}; see objectives and metrics"
            raise TypeError(msg)
    if (rule.metric_fn is None) != (data.val is None):
        msg = "validation nodes and a metric go together, and one of them is missing"
        raise ValueError(msg)
    if rule.patience is not None:
        _checks.count("patience", rule.patience, 0)
    num_nodes = len(data.targets)
    for name, mask in (("train", data.train), ("val", data.val)):
        if mask is None:
            continue
        own = mask.ndim == 2 and num_seeds is not None
        expected = (num_seeds or 1, num_nodes) if own else (num_nodes,)
        _checks.shape(f"the {name} mask", mask, expected)
        if mask.dtype != np.bool_:
            msg = f"the {name} mask must be boolean, got {mask.dtype}"
            raise ValueError(msg)
        if not np.asarray(mask).any(axis=-1).all():
            msg = f"the {name} mask must hold at least one node, and one holds none"
            raise ValueError(msg)
    if rule.loss_fn is objectives.cross_entropy:
        used = np.atleast_2d(np.asarray(data.train)).any(axis=0)
        bare = used & ~(np.asarray(data.targets) != 0).any(axis=1)
        if bare.any():
            msg = f"node {int(np.argmax(bare))} of the train mask has no target"
            raise ValueError(msg)


def of(rule: Any, data: Any, keys: Any, state: Any) -> dict[str, Any]:
    """Return what tells a run from others, as plain JSON; see ``training.run``."""
    return {
        "network": described(rule.network),
        "state": [f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(state)],
        "data": checkpoints.digest(data, keys),
    }


def described(network: MLP) -> str:
    """Return what tells a network from others, in any process: no address."""
    parts = []
    for field in dataclasses.fields(network):
        if field.name not in {"parent", "name"}:
            value = getattr(network, field.name)
            if callable(value):
                value = getattr(value, "__name__", type(value).__name__)
            parts.append(f"{field.name}={value}")
    return f"{type(network).__name__}({', '.join(parts)})"
