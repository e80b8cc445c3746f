"""The tangent kernel of a GCN while it trains, on many graphs at the same weights."""

import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.sparse

from gnnrp import datasets, graph, metrics, sparse
from gnnrp.datasets import Dataset
from gnnrp.kernels import alignment, features
from gnnrp.kernels.ntk import structured
from gnnrp.models import gnn, objectives, training
from gnnrp.runtime import checkpoints, checks, fingerprint, memory
from gnnrp.runtime.options import Options
from gnnrp.studies import _graphs, records

Progress = Callable[[str, int, int], None]
"""(what, done, total), called now and then."""

DENSE = 0.2
"""Share of entries from which features are taken as dense ones."""


@dataclasses.dataclass(frozen=True)
class NTKSettings:
    """Settings of the network, its training, and the graphs of the kernel.

    Args:
        learning_rate: η of gradient descent.
        num_steps: number of training steps.
        width: m, number of hidden units.
        depth: L, number of weight matrices, at most 3.
        momentum: momentum of gradient descent.
        weight_decay: of weights, not of biases.
        row_normalize: scale the rows of the features to sum to 1. The first bias then
            outweighs them in the kernel, and the paper's findings do not hold on Cora:
            its figures must use the features as stored.
        every: number of steps between two evaluations of the kernel.
        num_graphs: number of graphs, from all edges to none, or from homophilic to
            heterophilic ones.
        manner: drop directed edges, as the paper's code does, or undirected ones.
        reduce: kernel over classes: trace (average), sum of logits, or pseudo (1 / c of
            the sum).
        seed: seed of weights and thinning.

    Raises:
        ValueError: a value out of its range.
    """

    learning_rate: float = 1e-2
    num_steps: int = 50_000
    width: int = 16
    depth: int = 2
    momentum: float = 0.9
    weight_decay: float = 5e-4
    row_normalize: bool = False
    every: int = 2000
    num_graphs: int = 11
    manner: str = "directed"
    reduce: str = "sum"
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate the settings."""
        checks.positive("learning_rate", self.learning_rate)
        checks.count("num_steps", self.num_steps, 1, training.MOST_STEPS)
        checks.count("width", self.width, 1)
        checks.count("depth", self.depth, 1, structured.DEEPEST)
        checks.inside("momentum", self.momentum, 0, 1)
        checks.inside("weight_decay", self.weight_decay, 0, 1)
        checks.count("seed", self.seed, 0)
        checks.count("every", self.every, 1)
        checks.count("num_graphs", self.num_graphs, 2, 1000)
        checks.one_of("manner", self.manner, graph.DROP_MODES)
        checks.one_of("reduce", self.reduce, ("trace", "sum", "pseudo"))


PAPER: dict[str, NTKSettings] = {
    "cora": NTKSettings(),
    "texas": NTKSettings(3e-4, 20_000),
    "sbm": NTKSettings(5e-5, 20_000),
}
"""App. D.2; other sets are trained as Cora is, or Texas if they are heterophilous."""


def settings(name: str) -> NTKSettings:
    """Return the paper's settings of a data set, or those of the nearest one.

    Raises:
        ValueError: unknown name.
    """
    checks.one_of("dataset", name, datasets.names())
    near = "texas" if name in {"cornell", "wisconsin"} else "cora"
    return PAPER.get(name, PAPER[near])


def run(
    dataset: Dataset,
    settings: NTKSettings,
    *,
    options: Options = Options(),
    family: _graphs.Family | None = None,
) -> dict[str, Any]:
    """Train a GCN and track its kernel; return the record.

    On a data set it is trained on its graph and the kernel taken on thinned ones,
    against A^{2L} of the whole; in a synthetic family it is trained without a graph
    (PMLP) and the kernel taken on mixtures of homophilic and heterophilic edges, each
    against its own A^{2L}. All alignments are centered.

    Args:
        dataset: see ``datasets.load``; its first split is used. Without features,
            inputs are one-hot.
        settings: see ``settings`` for the paper's.
        options: the folder also holds ``tracking.jsonl``, a line per evaluation, which
            is rewritten from the checkpoint and never read.
        family: of synthetic graphs with the nodes, features and labels of the data set,
            from a homophilic share in [0, 1]; makes the run a synthetic one.

    Raises:
        ValueError: a data set of several tasks; kernels or training that do not fit; a
            folder of another run.
        TypeError: no data set, no settings.

    Source: Section 6, App. D.2.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    checks.instance("settings", settings, NTKSettings, "NTKSettings() makes one")
    began = time.perf_counter()
    folder = None if options.folder is None else Path(options.folder)
    if folder is not None:
        checkpoints.prepare(folder)  # before hours are spent
    subject = _prepare(dataset, settings, family, options.max_bytes)
    kept = (folder, options.checkpoint_seconds)
    rows, diverged = _followed(subject, dataset.name, settings, kept, options.progress)
    graphs, synthetic = subject.graphs, family is not None
    return {
        "dataset": dataset.name,
        "method": "ntk",
        "settings": dataclasses.asdict(settings),
        "synthetic": synthetic,
        "graphs": [
            {"kept": g.kept, "homophily": round(g.homophily, 6)} for g in graphs
        ],
        "rows": rows,
        "claims": {}  # of a diverged run nothing can be told
        if diverged is not None
        else _graphs.claims(
            rows,
            graphs,
            synthetic=synthetic,
            num_test=int(subject.splits["test"].sum()),
        ),
        "diverged": diverged,
        "seconds": {"run": round(time.perf_counter() - began, 4)},
        "peak_memory_bytes": memory.peak(),
        "device": str(jax.devices()[0].device_kind),
        "dtype": str(subject.data.targets.dtype),
        "versions": records.versions(),
        "commit": records.commit(),
        "files": dataset.files,
    }


def inputs(dataset: Dataset, *, row_normalize: bool) -> Any:
    """Return features as networks take them, sparse or dense; or one-hot ones.

    A dense product, and dropout of dense inputs, is faster from ``DENSE`` on.

    Args:
        dataset: see ``datasets.load``.
        row_normalize: less their minimum, each row over max(its sum, 1).
    """
    x: Any = dataset.features
    if x is None:
        x = scipy.sparse.eye_array(dataset.num_nodes, format="csr")
    else:
        x = features.row_normalized(x) if row_normalize else features.checked(x)
    dtype = jnp.zeros(0).dtype
    if scipy.sparse.issparse(x):
        if x.nnz < DENSE * x.shape[0] * x.shape[1]:
            return sparse.prepare(x.astype(dtype), reorder=False)
        x = x.toarray()
    return jnp.asarray(x, dtype)


class _Subject(NamedTuple):
    """What is trained and looked at."""

    rule: training.Rule
    data: training.Data
    graphs: list[_graphs.Graph]
    ideal: alignment.Factor  # of the labels
    splits: dict[str, jax.Array]  # masks of the first one


def _prepare(
    dataset: Dataset,
    settings: NTKSettings,
    family: _graphs.Family | None,
    max_bytes: int | None,
) -> _Subject:
    """Lay out the data and all graphs.

    Raises:
        ValueError: several tasks a node; kernels that do not fit.
    """
    if dataset.labels.ndim != 1:
        msg = f"{dataset.name} has several tasks a node; tracking needs one label"
        raise ValueError(msg)
    synthetic = family is not None
    network = gnn.GCN(dataset.num_classes, settings.width, settings.depth)
    rule = training.Rule(network, _optimizer(settings))
    hold = _graphs.fits(
        dataset, rule, settings.num_graphs, max_bytes, synthetic=synthetic
    )
    x = inputs(dataset, row_normalize=settings.row_normalize)
    kept = [float(share) for share in np.linspace(1, 0, settings.num_graphs)]
    raw = _graphs.raw_graphs(
        dataset, kept, family=family, seed=settings.seed, manner=settings.manner
    )
    graphs = _graphs.build(
        raw, kept, dataset, x, depth=settings.depth, synthetic=synthetic, hold=hold
    )
    ideal = alignment.from_labels(dataset.labels, dataset.num_classes)
    splits = {
        name: jnp.asarray(np.atleast_2d(mask)[0])
        for name, mask in dataset.splits._asdict().items()
    }
    data = training.Data(
        x,
        None if synthetic else graphs[0].matrix,
        ideal.phi.astype(jnp.zeros(0).dtype),  # one-hot, whatever the set's metric is
        splits["train"],
    )
    return _Subject(rule, data, graphs, ideal, splits)


def _optimizer(settings: NTKSettings) -> optax.GradientTransformation:
    return objectives.sgd(
        settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )


def _followed(
    subject: _Subject,
    name: str,
    settings: NTKSettings,
    kept: tuple[Path | None, float],
    progress: Progress | None,
) -> tuple[list[dict[str, Any]], int | None]:
    """Train, with looks between; return the rows, and the step that diverged."""
    folder, seconds = kept
    states = None if folder is None else folder / "checkpoints"
    journal = checkpoints.Journal(
        folder and folder / "tracking.jsonl",
        functools.partial(_fault, subject, settings),
    )

    def look(t: int, params: Any) -> None:
        journal.append(_look(subject, settings.reduce, t, params, progress))

    asked = dataclasses.asdict(settings) | {
        "dataset": name,
        "optimizer": "sgd",  # with the settings above
        "graphs and splits": fingerprint.digest(
            [one.matrix for one in subject.graphs], subject.splits, subject.ideal
        ),
    }
    del asked["num_steps"]  # a finished run may be gone on with
    result = training.run(
        subject.rule,
        subject.data,
        jax.random.key(settings.seed),
        num_steps=settings.num_steps,
        every=settings.every,
        callback=look,
        folder=states,
        settings=asked,
        checkpoint_seconds=seconds,
        progress=progress,
        journal=journal,
    )
    return journal.rows, None if result.diverged < 0 else int(result.diverged)


@functools.partial(jax.jit, static_argnames=("network", "reduce"))
def _measured(network, params, data, one, ideal, splits, *, reduce):
    theta = structured.gcn(
        gnn.layers(network, params), data.x, one.matrix, reduce=reduce, gram=one.gram
    )
    logits = network.apply(params, data.x, one.matrix)
    scores = {
        name: metrics.accuracy(logits, data.targets, mask)
        for name, mask in splits.items()
    }
    return theta, scores | {
        "kernel_graph": alignment.alignment(theta, one.target, centered=True),
        "kernel_labels": alignment.alignment(theta, ideal, centered=True),
        "loss": objectives.cross_entropy(logits, data.targets, splits["train"]),
    }


def _look(
    subject: _Subject, reduce: str, t: int, params: Any, progress: Progress | None
) -> dict[str, Any]:
    """Return a row: what the network and its kernel are on each graph."""
    row = []
    for number, one in enumerate(subject.graphs):
        if progress:
            progress(f"kernels at step {t}", number, len(subject.graphs))
        row.append(_entry(subject, reduce, params, one))
    return {"step": t, "graphs": row}


def _entry(
    subject: _Subject, reduce: str, params: Any, one: _graphs.Graph
) -> dict[str, Any]:
    """Return what the network and its kernel are on one graph."""
    (network, *_), data, _, ideal, splits = subject
    theta, found = _measured(network, params, data, one, ideal, splits, reduce=reduce)
    entry = {name: round(float(value), 6) for name, value in found.items()}
    return entry | {"eigenvalues": _graphs.largest(np.asarray(theta))}


def _fault(
    subject: _Subject, settings: NTKSettings, t: int, rows: Any, saved: Any
) -> str | None:
    """Return the fault of the rows of a checkpoint, or None.

    There must be a row for every step at which one is due, with an entry for each
    graph, and the last one must agree with the parameters on the first graph.
    """
    fault = _graphs.fault(rows, t, settings.every, len(subject.graphs))
    if fault:
        return fault
    now = _entry(subject, settings.reduce, saved.state.params, subject.graphs[0])
    if not _graphs.are_alike(rows[-1]["graphs"][0], now):
        return "its last row is not that of its parameters"
    return None
