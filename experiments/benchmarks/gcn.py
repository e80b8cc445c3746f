"""The GCN baseline of the benchmarks: full batch, Adam, no dropout."""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy.typing as npt

from gnnrp import sparse
from gnnrp.models import gnn, objectives, training


class Training(NamedTuple):
    """A compiled training step, its initial state and its data."""

    step: Callable  # (state, data) -> (new state, loss before the step)
    state: training.State
    data: training.Data


def compiled(
    data: training.Data, *, hidden: int, num_layers: int, metric: Callable | None = None
) -> Training:
    """Return full-batch Adam training on the cross-entropy of the masked nodes."""
    network = gnn.GCN(data.targets.shape[1], hidden, num_layers)
    rule = training.Rule(network, objectives.adam(0.01), metric_fn=metric)
    step = jax.jit(functools.partial(training.step, rule))
    init = jax.jit(functools.partial(training.init, rule))
    return Training(step, init(data, jax.random.key(0)), data)


def race(
    matrix: sparse.Matrix,
    x: jax.Array,
    targets: npt.NDArray,
    splits: Any,
    *,
    metric: Callable,
    num_epochs: int,
) -> tuple[list[float], list[float]]:
    """Return the best validation score so far at each epoch, and the elapsed seconds.

    A two-layer GCN of width 64 on the first split, compiled before the timing starts.
    """
    train, val = (jnp.asarray(mask[0]) for mask in splits[:2])
    data = training.Data(x, matrix, jnp.asarray(targets), train, val)
    step, state, data = compiled(data, hidden=64, num_layers=2, metric=metric)
    step(state, data)  # compiles
    scores: list[float] = []
    seconds: list[float] = []
    began = time.perf_counter()
    for _ in range(num_epochs):
        state, _ = step(state, data)
        scores.append(float(state.best.score))  # pyright: ignore[reportOptionalMemberAccess]
        seconds.append(time.perf_counter() - began)
    return scores, seconds
