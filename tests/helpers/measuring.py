"""Peaks of memory, measured beside their estimates, each in a process of its own.

``python -m tests.helpers.measuring`` prints all of them, or the one that follows.
"""

import contextlib
import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from gnnrp import graph, metrics, propagation, sparse
from gnnrp.datasets import sbm
from gnnrp.kernels import features
from gnnrp.kernels.features import low_rank
from gnnrp.kernels.ntk import structured
from gnnrp.models import gnn, objectives, training
from gnnrp.propagation import Steps, krylov, label, similarity, solvers
from gnnrp.propagation.problem import make_problem
from gnnrp.propagation.sizes import sizes_of
from gnnrp.propagation.solvers import _lanczos
from gnnrp.runtime import memory
from gnnrp.studies import baselines, gntk_kernels
from gnnrp.studies import gntk as gntk_study
from gnnrp.studies import ntk as ntk_study
from gnnrp.types import Split

ROOT = Path(__file__).parents[2]


class Case(NamedTuple):
    """What is run, and from its result the estimate of what it takes."""

    run: Callable[[], Any]
    estimate: Callable[[Any], int]


def world(n: int, e: int, c: int, s: int, num_train: int) -> tuple[Any, Any, Split]:
    """Return a random symmetric matrix, targets, and splits that see every node."""
    rng, dtype = np.random.default_rng(0), jnp.zeros(0).dtype
    entries = (np.full(e // 2, 0.1), tuple(rng.integers(n, size=(2, e // 2))))
    half: Any = scipy.sparse.csr_array(scipy.sparse.coo_array(entries, shape=(n, n)))
    matrix = sparse.prepare((half + half.T).astype(dtype), reorder=False)
    train = np.zeros((s, n), bool)
    for row in train:
        row[rng.permutation(n)[:num_train]] = True
    even = np.arange(n) % 2 == 0
    targets = np.eye(c, dtype=dtype)[rng.integers(c, size=n)]
    return matrix, targets, Split(train, ~train & even, ~train & ~even)


def rp(
    method: str, sizes: tuple[int, ...], num_steps: int, num_step_sizes: int = 1
) -> Case:
    """RP along A^2 of a world of these sizes."""
    matrix, targets, split = world(*sizes)
    S = similarity.Power(matrix, 2)

    def run() -> Any:
        return propagation.run(
            S,
            targets,
            split,
            Steps([0.1] * num_step_sizes, num_steps),
            metric=metrics.accuracy,
            solver=solvers.by_name(method),
        )

    def estimate(found: Any) -> int:
        problem = make_problem(targets, split)
        size = sizes_of(problem, S, Steps([0.1] * num_step_sizes, num_steps))
        if method != "krylov":
            return solvers.by_name(method).cost(size).num_bytes
        vectors = found[0].report.num_columns // (size.num_splits * size.num_classes)
        return krylov.peak_bytes(
            size, min(m for m in _lanczos.CAPACITIES if m >= vectors)
        )

    return Case(run, estimate)


def lines(*sizes: int) -> Case:
    matrix, targets, split = world(*sizes)

    def run() -> Any:
        return baselines.run(
            matrix, targets, split, metric=metrics.accuracy, with_plain=False
        )

    def estimate(_: Any) -> int:
        size = sizes_of(make_problem(targets, split), matrix, Steps(1.0, 1))
        return label.limit_bytes(size._replace(num_entries=0))

    return Case(run, estimate)


def kernel(name: str, n: int, d: int, number: int) -> Case:
    """A kernel of n x d features, of as many distinct rows or columns as said."""
    x = np.random.default_rng(0).random((n, d)).astype(jnp.zeros(0).dtype)
    if name == "distinct":
        x = x[np.arange(n) % number]
    each, key = {"itemsize": x.itemsize}, jax.random.key(0)

    def dense() -> Any:
        return features.normalized_matrix(features.build(x, normalized=False))

    run, estimate = {
        "dense": (dense, features.matrix_bytes(n, **each)),
        "distinct": (
            lambda: low_rank.distinct(x),
            low_rank.distinct_bytes(n, d, number, **each),
        ),
        "fourier": (
            lambda: low_rank.fourier(x, gamma=0.01, num_features=number, key=key),
            low_rank.fourier_bytes(n, d, number, **each),
        ),
        "nystrom": (
            lambda: low_rank.nystrom(x, num_landmarks=number, key=key),
            low_rank.nystrom_bytes(n, number, **each),
        ),
    }[name]
    return Case(run, lambda _: estimate)


def sparse_kernel(name: str, n: int, d: int, e: int) -> Case:
    """A normalized kernel of n x d features with e random entries."""
    rng, dtype = np.random.default_rng(0), jnp.zeros(0).dtype
    place = rng.integers(n, size=e), rng.integers(d, size=e)
    entries = scipy.sparse.coo_array((rng.random(e).astype(dtype), place), (n, d))
    x: Any = scipy.sparse.csr_array(entries)
    needed = features.sparse_rows_bytes(x.nnz, d, 2**26, itemsize=dtype.itemsize)
    return Case(lambda: features.build(x, name, gamma=0.01), lambda _: needed)


def blocks(n: int) -> Any:
    """Return a graph of five blocks with few nodes to look at."""
    few = {"train_per_class": 20, "num_val": 100, "num_test": 100}
    return sbm.generate(0, block_size=n // 5, **few)


def gntk(n: int, depths: tuple[int, ...]) -> Case:
    data = blocks(n)
    settings = gntk_study.GNTKSettings(depths=depths, num_steps=100)
    num_train = int(data.splits.train.sum(axis=-1).max())
    needed = gntk_kernels.peak_bytes(n, num_train, itemsize=jnp.zeros(0).dtype.itemsize)
    return Case(lambda: gntk_study.run(data, settings), lambda _: needed)


def training_of(n: int, width: int, depth: int, *, judged: bool = False) -> Case:
    """Steps of an MLP, with momentum, and with validation if ``judged``."""
    rng, dtype = np.random.default_rng(0), jnp.zeros(0).dtype
    targets = jnp.asarray(np.eye(5, dtype=dtype)[rng.integers(5, size=n)])
    train = jnp.arange(n) % 2 == 0
    x = jnp.asarray(rng.random((n, 50)).astype(dtype))
    data = training.Data(x, None, targets, train, ~train if judged else None)
    optimizer = objectives.sgd(0.01, momentum=0.9, weight_decay=1e-3)
    metric = metrics.accuracy if judged else None
    rule = training.Rule(gnn.MLP(5, width, depth), optimizer, metric_fn=metric)
    needed = training.peak_bytes(rule, x.shape, itemsize=dtype.itemsize)
    key = jax.random.key(0)
    return Case(lambda: training.run(rule, data, key, num_steps=3), lambda _: needed)


def wide_ntk(n: int, depth: int, width: int) -> Case:
    """Training of a wide GCN, and its kernels."""
    data = blocks(n)
    settings = ntk_study.NTKSettings(
        depth=depth, width=width, num_graphs=2, num_steps=2, every=2
    )
    rule = training.Rule(gnn.GCN(5, width, depth), objectives.sgd(0.1, momentum=0.9))
    shape, each = data.features.shape, {"itemsize": jnp.zeros(0).dtype.itemsize}
    state = training.state_bytes(rule, shape[1], **each)
    look = structured.peak_bytes(
        *shape, depth, 1, 2, width=width, num_classes=5, **each
    )
    needed = max(training.peak_bytes(rule, shape, **each), state + look)
    return Case(lambda: ntk_study.run(data, settings), lambda _: needed)


def ntk(n: int, depth: int, num_graphs: int, width: int = 16) -> Case:
    """The kernels of two looks; the Gram matrices are held."""
    data = blocks(n)
    more = {"num_graphs": num_graphs, "num_steps": 10, "every": 10}
    settings = ntk_study.NTKSettings(depth=depth, width=width, **more)
    itemsize = jnp.zeros(0).dtype.itemsize
    needed = structured.peak_bytes(n, 100, depth, 1, num_graphs, itemsize=itemsize)
    return Case(lambda: ntk_study.run(data, settings), lambda _: needed)


def adjacency(n: int, e: int) -> Case:
    """Cleaning, normalizing and layout of random edges."""
    edges = np.random.default_rng(0).integers(n, size=(2, e))

    def run() -> Any:
        return sparse.prepare(graph.normalized_adjacency(edges, n))

    return Case(run, lambda _: graph.peak_bytes(n, e))


CASES: dict[str, tuple[int, Callable[[], Case], Callable[[], Case]]] = {
    # bits, one like it of tiny size, the one that is measured
    "iterated": (
        32,
        lambda: rp("iterate", (2000, 8000, 4, 2, 100), 5),
        lambda: rp("iterate", (200_000, 800_000, 10, 3, 20_000), 5, 2),
    ),
    "iterated, float64": (
        64,
        lambda: rp("iterate", (2000, 8000, 4, 2, 100), 5),
        lambda: rp("iterate", (150_000, 600_000, 40, 1, 75_000), 5),
    ),
    "iterated, many entries": (
        32,
        lambda: rp("iterate", (2000, 8000, 4, 2, 100), 5),
        lambda: rp("iterate", (200_000, 12_000_000, 4, 1, 100_000), 3),
    ),
    "exact": (
        32,
        lambda: rp("exact", (2000, 8000, 4, 1, 100), 50),
        lambda: rp("exact", (24_000, 96_000, 10, 1, 1200), 100),
    ),
    "exact, float64": (
        64,
        lambda: rp("exact", (2000, 8000, 4, 1, 100), 50),
        lambda: rp("exact", (20_000, 400_000, 5, 1, 800), 100),
    ),
    "exact, many steps": (
        32,
        lambda: rp("exact", (2000, 8000, 4, 1, 100), 50),
        lambda: rp("exact", (2000, 40_000, 2, 1, 1500), 4000),
    ),
    "krylov": (
        32,
        lambda: rp("krylov", (2000, 8000, 4, 1, 100), 100),
        lambda: rp("krylov", (100_000, 400_000, 10, 1, 10_000), 100),
    ),
    "krylov, several splits": (
        32,
        lambda: rp("krylov", (2000, 8000, 4, 1, 100), 100),
        lambda: rp("krylov", (40_000, 160_000, 10, 4, 15_000), 100),
    ),
    "krylov, many steps": (
        32,
        lambda: rp("krylov", (2000, 8000, 4, 1, 100), 100),
        lambda: rp("krylov", (1000, 8000, 40, 1, 500), 6000),
    ),
    "label propagation": (
        32,
        lambda: lines(2000, 8000, 4, 2, 100),
        lambda: lines(150_000, 300_000, 20, 3, 15_000),
    ),
    "adjacency": (
        32,
        lambda: adjacency(1000, 3000),
        lambda: adjacency(200_000, 2_000_000),
    ),
    "dense kernel": (
        32,
        lambda: kernel("dense", 500, 20, 0),
        lambda: kernel("dense", 11_000, 20, 0),
    ),
    "distinct": (
        32,
        lambda: kernel("distinct", 500, 20, 50),
        lambda: kernel("distinct", 50_000, 20, 5000),
    ),
    "distinct, many nodes": (
        32,
        lambda: kernel("distinct", 500, 20, 50),
        lambda: kernel("distinct", 100_000, 300, 500),
    ),
    "fourier": (
        32,
        lambda: kernel("fourier", 500, 20, 50),
        lambda: kernel("fourier", 80_000, 20, 600),
    ),
    "nystrom": (
        32,
        lambda: kernel("nystrom", 500, 20, 50),
        lambda: kernel("nystrom", 60_000, 20, 400),
    ),
    "sparse rows, gaussian": (
        32,
        lambda: sparse_kernel("gaussian", 50, 2000, 500),
        lambda: sparse_kernel("gaussian", 400, 3_000_000, 2_000_000),
    ),
    "sparse rows, laplacian": (
        32,
        lambda: sparse_kernel("laplacian", 50, 2000, 500),
        lambda: sparse_kernel("laplacian", 400, 3_000_000, 2_000_000),
    ),
    "gntk": (32, lambda: gntk(500, (2,)), lambda: gntk(5000, (1, 2))),
    "ntk": (32, lambda: ntk(500, 2, 2), lambda: ntk(4000, 2, 3)),
    "training, wide": (
        32,
        lambda: training_of(100, 8, 3),
        lambda: training_of(200, 4500, 3),
    ),
    "training, wide, judged": (
        32,
        lambda: training_of(100, 8, 3, judged=True),
        lambda: training_of(200, 4000, 3, judged=True),
    ),
    "training, many nodes": (
        32,
        lambda: training_of(100, 8, 2),
        lambda: training_of(60_000, 200, 3),
    ),
    "ntk, wide": (
        32,
        lambda: wide_ntk(500, 2, 8),
        lambda: wide_ntk(3000, 2, 5000),
    ),
    "ntk, wide, three layers": (
        32,
        lambda: wide_ntk(500, 3, 8),
        lambda: wide_ntk(400, 3, 4500),
    ),
    "ntk, three layers": (
        32,
        lambda: ntk(500, 3, 2, width=2),
        lambda: ntk(4000, 3, 2, width=2),
    ),
}


def measured(name: str) -> dict[str, float]:
    """Measure a case in another process; return both figures, and its seconds."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.helpers.measuring", name],
        cwd=ROOT,
        env=os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "0"},  # which takes memory
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def measure(name: str) -> dict[str, float]:
    """Measure a case in this process, from what it holds once all is loaded."""
    bits, small, large = CASES[name]
    jax.config.update("jax_enable_x64", bits == 64)
    small().run()
    case = large()
    gc.collect()
    with contextlib.suppress(AttributeError):  # else freed memory that is used again
        ctypes.CDLL(None).malloc_trim(0)  # would not be measured
    with contextlib.suppress(OSError):  # else the peak so far must be exceeded
        Path("/proc/self/clear_refs").write_text("5")
    before, began = memory.process_bytes(), time.perf_counter()
    found = case.run()
    return {
        "measured": memory.peak() - before,
        "estimated": case.estimate(found),
        "seconds": round(time.perf_counter() - began, 1),
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        print("MB at the peak            measured   estimated   of it   seconds")
        for name in CASES:
            it = measured(name)
            megabytes = it["measured"] / 1e6, it["estimated"] / 1e6
            share = it["estimated"] / it["measured"]
            print(f"{name:26}", end="")
            print(f"{megabytes[0]:8.0f} {megabytes[1]:11.0f} {share:7.2f}", end="")
            print(f"{it['seconds']:10.1f}", flush=True)
