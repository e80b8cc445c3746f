"""Small random graphs, targets, splits and similarities; a seed names each of them."""

import functools
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
import references
import scipy.sparse

from gnnrp import graph, propagation, sparse
from gnnrp.kernels import features
from gnnrp.propagation import losses, similarity, solvers, sweep
from gnnrp.runtime.options import Options
from gnnrp.types import LinearMap, Split

N, E, C = 14, 22, 3  # nodes, undirected edges, classes: equal shapes share one trace


def edges(seed: int, num_nodes: int = N, num_edges: int = E) -> np.ndarray:
    """Return (2, e) distinct edges of a connected graph, each stored once."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(num_nodes)
    pairs = {tuple(sorted(pair)) for pair in itertools.pairwise(order)}
    others = [
        (i, j)
        for i in range(num_nodes)
        for j in range(i + 1, num_nodes)
        if (i, j) not in pairs
    ]
    extra = rng.permutation(len(others))[: num_edges - len(pairs)]
    return np.array(sorted(pairs | {others[i] for i in extra})).T


@functools.cache
def adjacency(seed: int, num_nodes: int = N, num_edges: int = E) -> sparse.Matrix:
    return sparse.prepare(
        graph.normalized_adjacency(edges(seed, num_nodes, num_edges), num_nodes)
    )


def targets(seed: int, num_nodes: int = N, num_classes: int = C) -> np.ndarray:
    """Return one-hot rows."""
    labels = np.random.default_rng(seed + 100).integers(num_classes, size=num_nodes)
    return np.eye(num_classes)[labels]


def split(
    seed: int, num_nodes: int = N, sizes: tuple[int, int, int] = (6, 4, 3)
) -> Split:
    """Return one split, masks (n,); what the sizes leave over is in no part."""
    order = np.random.default_rng(seed + 200).permutation(num_nodes)
    bounds = np.cumsum((0, *sizes))
    parts = (order[a:b] for a, b in itertools.pairwise(bounds))
    return Split(*(np.isin(np.arange(num_nodes), part) for part in parts))


def splits(seed: int, sizes: tuple[tuple[int, int, int], ...], n: int = N) -> Split:
    """Return one split for each triple of sizes, masks (s, n)."""
    each = [split(seed + 10 * i, n, size) for i, size in enumerate(sizes)]
    return Split(*(np.stack(masks) for masks in zip(*each, strict=True)))


def run(similarity, targets, split, *, metric, initial=None, **settings) -> Any:
    """Run RP with settings by name, as tables of tests list them.

    ``step_sizes`` gives a list of trajectories, ``step_size`` one; ``method`` is the
    name of a solver, or a solver.
    """
    several = settings.pop("step_sizes", None)
    step_size = settings.pop("step_size") if several is None else list(several)
    steps = propagation.Steps(step_size, settings.pop("num_steps"))
    choices = choices_of(settings)
    return propagation.run(
        similarity, targets, split, steps, metric=metric, initial=initial, **choices
    )


def sweep_of(S, targets, split, *, metric, **settings) -> sweep.Table:
    """Run a sweep over powers of an adjacency, or over similarities, likewise."""
    powers = settings.pop("powers", sweep.POWERS)
    S = S if isinstance(S, dict) else sweep.powers(S, powers)
    step_sizes = settings.pop("step_sizes", sweep.STEP_SIZES)
    steps = propagation.Steps(step_sizes, settings.pop("num_steps", 100))
    return sweep.run(S, targets, split, steps, metric=metric, **choices_of(settings))


def choices_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Return solver, selection and options of settings by name."""
    solver = settings.pop("method", "auto")
    if isinstance(solver, str):
        loss = settings.pop("residual_fn", losses.squared)
        solver = solvers.by_name(solver, loss)
    rule, patience = settings.pop("select", "first"), settings.pop("patience", None)
    selection = propagation.Selection(rule=rule, patience=patience)
    callback = settings.pop("callback", None)
    if callback is not None:
        settings["progress"] = lambda _, done, total: callback(done, total)
    return {"solver": solver, "selection": selection, "options": Options(**settings)}


def positive_definite(seed: int, size: int = N) -> np.ndarray:
    root = np.random.default_rng(seed + 300).standard_normal((size, size))
    return root @ root.T / size + 0.1 * np.eye(size)


def low_rank(seed: int, rank: int, size: int = N) -> np.ndarray:
    """Return a PSD matrix of that rank."""
    root = np.random.default_rng(seed + 400).standard_normal((size, rank))
    return root @ root.T / size


class World(NamedTuple):
    """What the similarities of the table are made from."""

    matrix: sparse.Matrix
    by_rows: sparse.Matrix  # normalized by rows, so not symmetric
    A: np.ndarray  # the same, dense, by the references
    A_by_rows: np.ndarray
    kernel: np.ndarray
    features: np.ndarray


class Case(NamedTuple):
    """One way to say S, and the same S as a dense matrix."""

    make: Callable[[World], LinearMap]
    dense: Callable[[World], np.ndarray]
    symmetric: bool = True
    psd: bool = False


@functools.cache
def world(seed: int) -> World:
    index = edges(seed)
    by_rows = graph.normalized_adjacency(index, N, normalization="row")
    rng = np.random.default_rng(seed + 500)
    return World(
        adjacency(seed),
        sparse.prepare(by_rows),
        references.adjacency(index, N),
        references.adjacency(index, N, normalization="row"),
        positive_definite(seed),
        rng.standard_normal((N, 4)),
    )


def _hops(A: np.ndarray, power: int) -> np.ndarray:
    return np.linalg.matrix_power(A, power)


def _lazy(A: np.ndarray, power: int, alpha: float) -> np.ndarray:
    return _hops(alpha * A + (1 - alpha) * np.eye(len(A)), power)


SIMILARITIES: dict[str, Case] = {
    "dense": Case(
        lambda w: similarity.Dense(jnp.asarray(w.kernel)), lambda w: w.kernel, psd=True
    ),
    "function": Case(lambda w: lambda v: jnp.asarray(w.A) @ v, lambda w: w.A),
    "adjacency": Case(lambda w: w.matrix, lambda w: w.A),
    "power 2": Case(
        lambda w: similarity.Power(w.matrix, 2), lambda w: _hops(w.A, 2), psd=True
    ),
    "power 3": Case(lambda w: similarity.Power(w.matrix, 3), lambda w: _hops(w.A, 3)),
    "lazy walk, alpha 1/2": Case(
        lambda w: similarity.LazyWalk(w.matrix, 3, 0.5),
        lambda w: _lazy(w.A, 3, 0.5),
        psd=True,
    ),
    "lazy walk, alpha 0.9": Case(
        lambda w: similarity.LazyWalk(w.matrix, 1, 0.9), lambda w: _lazy(w.A, 1, 0.9)
    ),
    "restart": Case(
        lambda w: similarity.Restart(w.matrix, 4, 0.8),
        lambda w: references.label_propagation(w.A, np.eye(N), 4, 0.8),
        psd=True,
    ),
    "sandwich of a power": Case(
        lambda w: similarity.Sandwich(
            similarity.Power(w.matrix, 3), features.build(w.features, gamma=0.4)
        ),
        lambda w: (
            _hops(w.A, 3)
            @ references.normalized_gaussian_kernel(w.features, 0.4)
            @ _hops(w.A, 3)
        ),
        psd=True,
    ),
    "sandwich of a lazy walk": Case(
        lambda w: similarity.Sandwich(
            similarity.LazyWalk(w.matrix, 2, 0.5),
            features.build(w.features, "linear", normalized=False),
        ),
        lambda w: _lazy(w.A, 2, 0.5) @ w.features @ w.features.T @ _lazy(w.A, 2, 0.5),
        psd=True,
    ),
    "coupling": Case(
        lambda w: similarity.Coupling(
            w.by_rows, sparse.prepare(scipy.sparse.csr_array(w.A_by_rows.T))
        ),
        lambda w: (w.A_by_rows @ w.A_by_rows.T + w.A_by_rows.T @ w.A_by_rows) / 2,
        psd=True,
    ),
    "weighted": Case(
        lambda w: similarity.Weighted(
            similarity.Power(w.matrix, 2), jnp.asarray(np.linspace(0.5, 1, N)[:, None])
        ),
        lambda w: (
            np.diag(np.linspace(0.5, 1, N))
            @ _hops(w.A, 2)
            @ np.diag(np.linspace(0.5, 1, N))
        ),
        psd=True,
    ),
    "sum": Case(
        lambda w: similarity.Sum(
            (similarity.Power(w.matrix, 2), similarity.Dense(jnp.asarray(w.kernel))),
            np.array([0.5, 2.0]),
        ),
        lambda w: 0.5 * _hops(w.A, 2) + 2 * w.kernel,
        psd=True,
    ),
    "power of a row-normalized adjacency": Case(
        lambda w: similarity.Power(w.by_rows, 2),
        lambda w: _hops(w.A_by_rows, 2),
        symmetric=False,
    ),
}

SOLVERS = {
    "iterate": propagation.Iterate(),
    "exact": propagation.Exact(),
    "krylov": propagation.Krylov(),
}
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=list(SOLVERS))

every_similarity = pytest.mark.parametrize(
    "case", SIMILARITIES.values(), ids=list(SIMILARITIES)
)
every_symmetric_similarity = pytest.mark.parametrize(
    "case",
    [case for case in SIMILARITIES.values() if case.symmetric],
    ids=[name for name, case in SIMILARITIES.items() if case.symmetric],
)


def unchecked(fn, *args, **settings):
    """Call without the tests' type checks: users have none."""
    while hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    return fn(*args, **settings)


def on_four_devices(script: str) -> str:
    """Return what a script prints in a process of four virtual devices and float64."""
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_ENABLE_X64": "1",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
