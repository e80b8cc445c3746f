"""The tangent kernel of two-layer GCNs of many seeds in training."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from gnnrp.datasets import Dataset
from gnnrp.kernels import alignment
from gnnrp.models import gnn, training
from gnnrp.runtime import checks
from gnnrp.runtime.options import Options
from gnnrp.studies import _graphs, _seed_measures, _span_training
from gnnrp.studies import ntk as ntk_study
from gnnrp.studies.settings import NTKSettings

MEASURES = _seed_measures.NAMES


class Tracks(NamedTuple):
    """Measures of s networks at t steps on g graphs."""

    steps: list[int]
    graphs: list[dict[str, float]]  # share of edges and homophily level
    target_labels: float  # A(A^4, Θ*) of the first graph
    values: dict[str, Float[np.ndarray, "s t g"]]  # of each of ``MEASURES``
    largest_bias: Float[np.ndarray, "s t"]  # max |b_1|


def run(
    dataset: Dataset,
    settings: NTKSettings,
    num_seeds: int,
    *,
    family: _graphs.Family | None = None,
    first_bias: bool = True,
    normalization: str = "symmetric",
    options: Options = Options(),
) -> Tracks:
    """Train networks of many seeds, and measure their kernels at intervals.

    A network equals that of ``ntk.run`` with the same seed up to round-off. Kernels are
    those of the sum of logits, and centered.

    Args:
        dataset: see ``ntk.run``.
        settings: of depth 2. The first seed is ``settings.seed``, which also thins.
        num_seeds: number of networks.
        family: see ``ntk.run``.
        first_bias: give the first layer a bias.
        normalization: of A in the network, see ``graph.normalize``; the A^4 of the
            alignments are those of the symmetric A.
        options: memory limit and progress.

    Raises:
        ValueError: a depth other than 2, a data set of several tasks, or kernels that
            do not fit in memory.

    Source: Section 6, App. D.2.
    """
    num_seeds = checks.count("num_seeds", num_seeds, 1)
    if settings.depth != 2:
        msg = f"depth must be 2 for several seeds, got {settings.depth}; see ntk.run"
        raise ValueError(msg)
    x, graphs = _build(dataset, settings, family, normalization, options.max_bytes)
    matrix = None if family else graphs[0].matrix
    problem = _span_training.problem(dataset, x, matrix)
    ideal = alignment.label_kernel(dataset.labels, dataset.num_classes)
    test = jnp.asarray(np.atleast_2d(dataset.splits.test)[0])
    targets = ideal.phi.astype(problem.targets.dtype)
    references = _seed_measures.references(graphs, targets, test)
    seeds = list(range(settings.seed, settings.seed + num_seeds))
    optimizer = ntk_study.optimizer(settings)
    start, state = _span_training.init(
        gnn.GCN(dataset.num_classes, settings.width),
        *(optimizer, problem, seeds),
        first_bias=first_bias,
    )
    t, steps, rows, biases = 0, [], [], []
    for due in settings.evaluations(settings.num_steps):
        options.report("training", t, settings.num_steps)
        if due > t:
            length, t = due - t, due
            state = _span_training.train(
                optimizer, problem, start, state, length=length
            )
        layers = _span_training.layers(problem, start, state)
        row = []
        for number, (one, reference) in enumerate(zip(graphs, references, strict=True)):
            options.report(f"kernels at step {t}", number, len(graphs))
            row.append(_seed_measures.measure(layers, x, one, reference))
        steps.append(t)
        rows.append(np.array(row))
        biases.append(_largest(layers[0].bias, num_seeds))
    values = np.transpose(rows, (2, 3, 0, 1)).astype(float)
    return Tracks(
        steps,
        [_graphs.describe(one) for one in graphs],
        _graphs.describe_target(graphs[0], ideal),
        dict(zip(MEASURES, values, strict=True)),
        np.transpose(biases).astype(float),
    )


def _largest(bias: Any, num_seeds: int) -> np.ndarray:
    return np.zeros(num_seeds) if bias is None else np.abs(bias).max(axis=1)


def _build(
    dataset: Dataset,
    settings: NTKSettings,
    family: _graphs.Family | None,
    normalization: str,
    max_bytes: int | None,
) -> tuple[Any, list[_graphs.Graph]]:
    """Return the inputs, and the graphs with the Gram matrices of their inputs.

    Raises:
        ValueError: several tasks, or kernels that do not fit in memory.
    """
    ntk_study.check_single_task(dataset)
    network = gnn.GCN(dataset.num_classes, settings.width)
    rule = training.Rule(network, ntk_study.optimizer(settings))
    hold = _graphs.check_memory(
        dataset, rule, settings.num_graphs, max_bytes, synthetic=family is not None
    )
    x = ntk_study.inputs(dataset, row_normalize=settings.features == "normalized")
    graphs = _graphs.build(
        dataset, x, settings, family=family, hold=hold, normalization=normalization
    )
    return x, graphs
