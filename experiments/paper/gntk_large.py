"""Infinitely wide GCNs on large graphs: random features beside the exact kernel.

    python -m experiments.paper.gntk_large --data-dir DIR --output reproduced
    python -m experiments.paper.gntk_large --quick

For each dataset and number of random features: scores over several keys, the error
that the features estimate, their error beside the exact kernel on some nodes, time and
memory. All kernels take steps of 1 / λ_max. A GCN is trained on the same split. Arxiv
has generated features, as the real ones are not at hand, and shows the cost only.

Cost of two layers: 4 n d m operations and n (d + 2 m) numbers, besides 2 m products of
A with a column.
"""

import dataclasses
import functools
import time
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from experiments import published, runner
from experiments.paper import trained
from gnnrp import datasets, graph, sparse
from gnnrp.datasets import sbm
from gnnrp.kernels.gntk import local
from gnnrp.propagation import linear_maps
from gnnrp.runtime import memory
from gnnrp.studies import gntk as gntk_study
from gnnrp.studies import gntk_kernels, presets, records
from gnnrp.studies.settings import GNTKSettings

SETS = ("cora", "pubmed", "photo", "physics", "cs", "arxiv", "computers")
NUM_COMPARED = 1000
"""Nodes of the block on which estimate and kernel are compared."""
ARXIV_FEATURES = 128
GROWTH = (10_000, 20_000, 40_000, 80_000)
"""Nodes of the generated graphs whose time shows the growth."""
GROWTH_FEATURES = 1024


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Datasets, numbers of features and keys."""

    datasets: tuple[str, ...] = SETS
    num_features: tuple[int, ...] = (4096,)
    small_features: tuple[int, ...] = (1024, 4096, 8192)
    """Of graphs with up to 5,000 nodes."""
    depths: tuple[int, ...] = (2, 3)
    """Three layers on graphs with up to 5,000 nodes only."""
    num_keys: int = 5
    num_steps: int = 10_000
    """Steps of gradient descent."""
    num_epochs: int = trained.EPOCHS
    """Maximum number of epochs of the GCN."""
    sizes: tuple[int, ...] = GROWTH

    SHORT: ClassVar[dict[str, Any]] = {
        "datasets": ("sbm",), "small_features": (256, 1024), "num_keys": 2,
        "num_steps": 200, "num_epochs": 20, "sizes": (500, 1000),
    }  # fmt: skip


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return rows for each dataset, and the growth of the time."""
    found: dict[str, Any] = dict.fromkeys(config.datasets, published.ABSENT)
    files, measured = {}, {}
    compute = functools.partial(panel, config=config, progress=progress)
    for data, made in runner.each(config, "gntk_large", compute):
        found[data.name], files[data.name] = made, data.files
        measured[data.name] = made.pop("measured")
    measured["growth"] = growth(config)
    figures = {"": figure(found, measured["growth"])}
    return runner.Outcome({"datasets": found}, figures, files, measured)


def panel(
    data: datasets.Dataset, config: Config, progress: runner.Progress
) -> dict[str, Any]:
    """Return rows of the exact kernel and of random features, and those of a GCN."""
    data = datasets.select_split(data, 0)
    generated = data.features is None
    if generated:
        shape = data.num_nodes, ARXIV_FEATURES
        x = np.random.default_rng(config.seed).standard_normal(shape)
        data = data._replace(features=x.astype(np.float32))
    is_small = data.num_nodes < trained.LARGE
    depths = config.depths if is_small else (2,)
    counts = config.small_features if is_small else config.num_features
    rows, times = [], []
    for depth in depths:
        truth, exact_row = exact(data, config, depth, generated=generated)
        if exact_row is not None:
            times.append(exact_row.pop("seconds"))
            rows.append(exact_row)
        for count in counts[-1:] if generated else counts:
            settings = _settings(config, depth, count)
            if not fits(data, settings):
                continue
            keys = 1 if generated else config.num_keys
            row, seconds = estimates(data, settings, keys, truth, progress)
            rows.append(row)
            times.append(seconds)
    network = None if generated else gcn(data, config, progress)
    assert data.features is not None
    return {
        "num_nodes": data.num_nodes,
        "num_edges": data.edges.shape[1],
        "num_inputs": data.features.shape[1],
        "generated_features": generated,
        "rows": rows,
        "GCN": network,
        "measured": {"seconds": times, "peak_memory_bytes": memory.peak()},
    }


def fits(data: datasets.Dataset, settings: GNTKSettings) -> bool:
    """Return whether the features of a run fit in memory."""
    needed = gntk_kernels.feature_bytes(data, settings, jnp.zeros(0).dtype.itemsize)
    return needed <= memory.room().left


def _settings(config: Config, depth: int, count: int) -> GNTKSettings:
    return GNTKSettings(
        depths=(depth,),
        num_steps=config.num_steps,
        num_features=count,
        method="features",
        seed=config.seed,
    )


def _matrix(data: datasets.Dataset) -> sparse.Matrix:
    return sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))


def _nodes(data: datasets.Dataset, count: int) -> np.ndarray:
    """Return the nodes of the block that is compared."""
    generator = np.random.default_rng(0)
    return np.sort(generator.choice(data.num_nodes, min(count, data.num_nodes), False))


def exact(
    data: datasets.Dataset, config: Config, depth: int, *, generated: bool
) -> tuple[np.ndarray | None, dict[str, Any] | None]:
    """Return a block of the exact kernel, and its row if the whole kernel fits."""
    settings = GNTKSettings(depths=(depth,), num_steps=config.num_steps, method="exact")
    if generated:
        return None, None
    itemsize = jnp.zeros(0).dtype.itemsize
    if gntk_kernels.exact_bytes(data, itemsize) > memory.room().left:
        nodes = _nodes(data, NUM_COMPARED // 4)
        block = local.gcn(
            graph.normalized_adjacency(data.edges, data.num_nodes),
            gntk_kernels.node_features(data),
            nodes,
            nodes,
            gntk_kernels.network(settings, depth),
        )
        return np.asarray(block.ntk), None
    began = time.perf_counter()
    kernel = _last(data, settings)
    train = jnp.asarray(data.splits.train.T, jnp.zeros(0).dtype)
    step_size = gntk_kernels.largest_step(kernel.similarity, train)  # as of features
    kernel = kernel._replace(step_size=step_size)
    assert kernel.matrix is not None
    jax.block_until_ready(kernel.matrix)
    built = time.perf_counter()
    found = gntk_study.evaluate(data, _matrix(data), kernel, settings, depth)
    nodes = _nodes(data, NUM_COMPARED)
    row = {
        "method": "exact",
        "depth": depth,
        "val_mean": found["val_mean"],
        "test_mean": found["test_mean"],
        "test_std": 0.0,
        "seconds": [round(built - began, 2), round(time.perf_counter() - built, 2)],
    }
    return np.asarray(kernel.matrix[jnp.asarray(nodes)][:, nodes]), row


def _last(data: datasets.Dataset, settings: GNTKSettings) -> gntk_kernels.WideKernel:
    """Return the kernel of the deepest network; those before it are dropped."""
    kernels = gntk_kernels.build(data, settings, _matrix(data), settings.method)
    last = next(kernels)
    for each in kernels:
        last = each
    return last[1]


def estimates(
    data: datasets.Dataset,
    settings: GNTKSettings,
    num_keys: int,
    truth: np.ndarray | None,
    progress: runner.Progress,
) -> tuple[dict[str, Any], list[float]]:
    """Return scores and errors over keys, and the median times to build and to run."""
    depth, count = settings.depths[0], settings.num_features
    vals, tests, errors, stated, times = [], [], [], [], []
    columns = 0
    for key in range(num_keys):
        progress(f"{data.name} m={count}", key, num_keys)
        began = time.perf_counter()
        kernel = _last(data, dataclasses.replace(settings, seed=settings.seed + key))
        built = time.perf_counter()
        found = gntk_study.evaluate(data, _matrix(data), kernel, settings, depth)
        times.append([built - began, time.perf_counter() - built])
        vals.append(found["val_mean"] / 100)
        tests.append(found["test_mean"] / 100)
        stated.append(found["relative_error"])
        columns = found["num_columns"]
        if truth is not None:
            nodes = _nodes(data, len(truth))
            block = linear_maps.columns(kernel.similarity, nodes, data.num_nodes)[nodes]
            size = np.linalg.norm(truth)
            errors.append(float(np.linalg.norm(block - truth) / size))
        del kernel
    row = {
        "method": "features",
        "depth": depth,
        "num_features": count,
        "num_columns": columns,
        **records.summary(np.asarray(vals), np.asarray(tests)),
        "num_keys": num_keys,
        "error": _digits(errors),
        "stated_error": _digits(stated),
    }
    return row, [round(float(x), 2) for x in np.median(times, axis=0)]


def _digits(values: list[float]) -> float | None:
    """Return the root mean square, to three digits."""
    return float(f"{np.sqrt(np.mean(np.square(values))):.3g}") if values else None


def gcn(
    data: datasets.Dataset, config: Config, progress: runner.Progress
) -> dict[str, Any]:
    """Return the scores of GCNs trained on the same split."""
    count = 3 if data.num_nodes > trained.LARGE else config.num_keys
    row_normalize = presets.settings(data.name).row_normalize
    learned = trained.subject(data, count, row_normalize=row_normalize)
    return trained.run(
        learned,
        trained.recipes(data, ["GCN"]),
        seed=config.seed,
        num_epochs=config.num_epochs,
        progress=progress,
        title=data.name,
    )["GCN"]


def growth(config: Config) -> dict[str, Any]:
    """Return the time of features on generated graphs of growing size."""
    rows = []
    for size in config.sizes:
        data = sbm.generate(
            config.seed,
            num_blocks=5,
            block_size=size // 5,
            intra_probability=min(1.0, 50 / size),
            num_val=size // 10,
            num_test=size // 10,
        )
        rng = np.random.default_rng(config.seed)
        x = rng.standard_normal((data.num_nodes, ARXIV_FEATURES)).astype(np.float32)
        data = data._replace(features=x)
        settings = _settings(config, 2, min(GROWTH_FEATURES, max(config.num_features)))
        times = []
        for _ in range(4):
            began = time.perf_counter()
            kernel = _last(data, settings)
            jax.block_until_ready(kernel.similarity)
            times.append(time.perf_counter() - began)
            del kernel
        rows.append([data.num_nodes, data.edges.shape[1], float(np.median(times[1:]))])
    sizes, times = np.array(rows)[:, 0], np.array(rows)[:, 2]
    slope = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
    return {"rows": rows, "exponent": round(slope, 3)}


def figure(found: dict[str, Any], grown: dict[str, Any]) -> Figure:
    """Draw the error against m with the line m^-1/2, and the time against n."""
    drawn = Figure(figsize=(8.4, 3.6), layout="constrained")
    left, right = drawn.subplots(1, 2)
    for name, made in found.items():
        rows = [] if isinstance(made, str) else made["rows"]
        some = [
            row for row in rows if row["method"] == "features" and row["depth"] == 2
        ]
        pairs = [(row["num_features"], row["error"]) for row in some if row["error"]]
        if pairs:
            left.loglog(*zip(*pairs, strict=True), "o-", label=name)
            m = np.array([pair[0] for pair in pairs])
            line = pairs[0][1] * np.sqrt(m[0] / m)
            left.loglog(m, line, color="0.7", linewidth=0.8, zorder=0)
    left.set(xlabel="random features m", ylabel="|Ψ Ψ^T - Θ| / |Θ|")
    if left.lines:
        left.legend(frameon=False, fontsize="small")
    rows = np.array(grown["rows"])
    right.loglog(rows[:, 0], rows[:, 2], "o-")
    right.set(
        xlabel="nodes n",
        ylabel="seconds",
        title=f"time of random features, n^{grown['exponent']:.2f}",
    )
    right.title.set_fontsize("small")
    return drawn


if __name__ == "__main__":
    runner.main(Config, run, "gntk_large")
