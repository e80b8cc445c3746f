"""The tangent kernel of a GCN in training, on many graphs with the same weights."""

import dataclasses
import functools
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.sparse

from gnnrp import datasets, metrics, sparse
from gnnrp.datasets import Dataset
from gnnrp.kernels import alignment, features
from gnnrp.kernels.ntk import structured
from gnnrp.models import gnn, objectives, training
from gnnrp.runtime import checkpoints, checks, fingerprint
from gnnrp.runtime.options import Options
from gnnrp.studies import _graphs, _tracking_rows, findings, records
from gnnrp.studies.settings import NTKSettings

DENSE = 0.2  # share of nonzero features from which dense products are faster
NORMALIZED = frozenset({"cora", "citeseer", "pubmed", "cs", "physics"})
"""Datasets whose rows of features the authors' code normalizes."""


PAPER: dict[str, NTKSettings] = {
    "cora": NTKSettings(features="normalized"),
    "texas": NTKSettings(3e-4, 20_000),
    "sbm": NTKSettings(5e-5, 20_000),
}
"""App. D.2, and the features as in the authors' code. Other sets are trained like Cora,
the small web graphs like Texas."""


def settings(name: str) -> NTKSettings:
    """Return the paper's settings of a dataset, or those of the nearest one.

    Args:
        name: of a dataset, or the path of an npz file, which is trained like Cora.

    Raises:
        ValueError: unknown name.
    """
    if not datasets.is_file(name):
        checks.one_of("dataset", name, datasets.names())
    nearest = PAPER["texas" if name in {"cornell", "wisconsin"} else "cora"]
    features = "normalized" if name in NORMALIZED else "raw"
    return PAPER.get(name, dataclasses.replace(nearest, features=features))


def optimizer(settings: NTKSettings) -> optax.GradientTransformation:
    """Return the optimizer of the settings."""
    return objectives.sgd(
        settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )


def run(
    dataset: Dataset,
    settings: NTKSettings,
    *,
    options: Options = Options(),
    family: _graphs.Family | None = None,
) -> dict[str, Any]:
    """Train a GCN and track its kernel; return the record.

    A dataset is trained on its graph, and the kernel is computed on thinned graphs and
    compared with A^{2L} of the whole one. A synthetic family is trained without a graph
    (PMLP), and the kernel is computed on mixtures of homophilic and heterophilic edges
    and compared with A^{2L} of each. All alignments are centered. Findings are judged
    without the early evaluations.

    Args:
        dataset: see ``datasets.load``; its first split is used. Without features,
            inputs are one-hot.
        settings: see ``settings`` for the paper's.
        options: the folder also holds ``tracking.jsonl``, a line per evaluation, which
            is rewritten from the checkpoint and never read.
        family: from a homophilic share in [0, 1] to a synthetic graph with the nodes,
            features and labels of the dataset.

    Raises:
        ValueError: a dataset of several tasks; kernels or training that do not fit in
            memory; a checkpoint of another run.
        TypeError: not a dataset, or not settings.
        OSError: the folder cannot be written, or another run uses it.

    Source: Section 6, App. D.2.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    checks.instance("settings", settings, NTKSettings, "NTKSettings() makes one")
    start = time.perf_counter()
    if options.folder is not None:
        checkpoints.prepare(Path(options.folder))  # fails early if it is not writable
    setup = _set_up(dataset, settings, family, options.max_bytes)
    rows, diverged = _track(setup, dataset.name, settings, options)
    synthetic, num_test = family is not None, int(setup.splits["test"].sum())
    found = {}  # a diverged run supports none
    if diverged is None:
        # Pairs of early evaluations would outweigh those of the paper.
        early = {*settings.early_steps()} - {rows[-1]["step"]}
        regular = [row for row in rows if row["step"] not in early]
        found = findings.judge(
            _tracking_rows.columns(regular),
            [one.homophily for one in setup.graphs],
            synthetic=synthetic,
            num_test=num_test,
        )
    return {
        "dataset": dataset.name,
        "method": "ntk",
        "settings": dataclasses.asdict(settings),
        "synthetic": synthetic,
        "graphs": [_graphs.describe(one) for one in setup.graphs],
        "target_labels": _graphs.describe_target(setup.graphs[0], setup.ideal),
        "rows": rows,
        "findings": {name: each.as_dict() for name, each in found.items()},
        "diverged": diverged,
        "seconds": {"run": round(time.perf_counter() - start, 4)},
        **records.provenance(dataset, setup.data.targets.dtype),
    }


def inputs(dataset: Dataset, *, row_normalize: bool) -> Any:
    """Return the inputs of a network: the features, or one-hot rows without them.

    Args:
        dataset: see ``datasets.load``.
        row_normalize: subtract the minimum, and divide each row by max(its sum, 1).
    """
    x: Any = dataset.features
    if x is None:
        x = scipy.sparse.eye_array(dataset.num_nodes, format="csr")
    else:
        x = features.normalize_rows(x) if row_normalize else features.validate(x)
    dtype = jnp.zeros(0).dtype
    if scipy.sparse.issparse(x):
        if x.nnz < DENSE * x.shape[0] * x.shape[1]:
            return sparse.prepare(x.astype(dtype), reorder=False)
        x = x.toarray()
    return jnp.asarray(x, dtype)


def check_single_task(dataset: Dataset) -> None:
    """Refuse a data set with several tasks per node.

    Raises:
        ValueError: it has several.
    """
    if dataset.labels.ndim != 1:
        msg = f"{dataset.name} has several tasks a node; tracking needs one label"
        raise ValueError(msg)


class _Setup(NamedTuple):
    rule: training.Rule
    data: training.Data
    graphs: list[_graphs.Graph]
    ideal: alignment.Factor  # of the labels
    splits: dict[str, jax.Array]  # masks of the first split


def _set_up(
    dataset: Dataset,
    settings: NTKSettings,
    family: _graphs.Family | None,
    max_bytes: int | None,
) -> _Setup:
    """Prepare network, data and graphs."""
    check_single_task(dataset)
    synthetic = family is not None
    network = gnn.GCN(dataset.num_classes, settings.width, settings.depth)
    rule = training.Rule(network, optimizer(settings))
    hold = _graphs.check_memory(
        dataset, rule, settings.num_graphs, max_bytes, synthetic=synthetic
    )
    x = inputs(dataset, row_normalize=settings.features == "normalized")
    graphs = _graphs.build(dataset, x, settings, family=family, hold=hold)
    ideal = alignment.label_kernel(dataset.labels, dataset.num_classes)
    splits = {
        name: jnp.asarray(np.atleast_2d(mask)[0])
        for name, mask in dataset.splits._asdict().items()
    }
    data = training.Data(
        x,
        None if synthetic else graphs[0].matrix,
        ideal.phi.astype(jnp.zeros(0).dtype),  # one-hot, for any metric of the set
        splits["train"],
    )
    return _Setup(rule, data, graphs, ideal, splits)


def _track(
    setup: _Setup, name: str, settings: NTKSettings, options: Options
) -> tuple[list[dict[str, Any]], int | None]:
    """Train, and evaluate at intervals; return the rows and the step of divergence."""
    folder = options.folder and Path(options.folder)
    journal = checkpoints.Journal(
        folder and folder / "tracking.jsonl",
        functools.partial(_find_fault, setup, settings),
    )

    def evaluate(t: int, params: Any) -> None:
        graphs = []
        for number, one in enumerate(setup.graphs):
            options.report(f"kernels at step {t}", number, len(setup.graphs))
            graphs.append(_entry(setup, settings.reduce, params, one))
        journal.append({"step": t, "graphs": graphs})

    identity = dataclasses.asdict(settings) | {
        "dataset": name,
        "optimizer": "sgd",  # with the settings above
        "graphs and splits": fingerprint.digest(
            [one.matrix for one in setup.graphs], setup.splits, setup.ideal
        ),
    }
    del identity["num_steps"]  # a finished run can be extended
    result = training.run(
        setup.rule,
        setup.data,
        jax.random.key(settings.seed),
        num_steps=settings.num_steps,
        every=settings.every,
        callback=evaluate,
        options=dataclasses.replace(
            options,
            folder=folder and folder / "checkpoints",
            metadata={**options.metadata, **identity},
            max_bytes=None,  # checked in ``_set_up``, before the graphs were built
        ),
        journal=journal,
        stops=settings.early_steps(),
    )
    return journal.rows, None if result.diverged < 0 else int(result.diverged)


@functools.partial(jax.jit, static_argnames=("network", "reduce"))
def _evaluate(network, params, data, one, ideal, splits, *, reduce):
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


def _entry(
    setup: _Setup, reduce: str, params: Any, one: _graphs.Graph
) -> dict[str, Any]:
    """Return scores, alignments and eigenvalues on one graph."""
    (network, *_), data, _, ideal, splits = setup
    theta, values = _evaluate(network, params, data, one, ideal, splits, reduce=reduce)
    entry = {name: round(float(value), 6) for name, value in values.items()}
    return entry | {
        "eigenvalues": _tracking_rows.largest_eigenvalues(np.asarray(theta))
    }


def _find_fault(
    setup: _Setup, settings: NTKSettings, t: int, rows: Any, snapshot: Any
) -> str | None:
    """Return the fault of the rows of a checkpoint, or None."""
    fault = _tracking_rows.find_fault(rows, settings.evaluations(t), len(setup.graphs))
    if fault:
        return fault
    params = snapshot.state.params
    entry = _entry(setup, settings.reduce, params, setup.graphs[0])
    if not _tracking_rows.are_close(rows[-1]["graphs"][0], entry):
        return "its last row is not that of its parameters"
    return None
