"""Predictions of a fit on a later graph, without another run of RP."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from gnnrp import graph, sparse
from gnnrp.estimator import _inputs
from gnnrp.estimator._inputs import Inputs
from gnnrp.estimator._selection import Choice
from gnnrp.graph import formats
from gnnrp.graph.formats import GraphData
from gnnrp.propagation import Steps, coefficients, linear_maps
from gnnrp.runtime import tracing
from gnnrp.studies import extension, similarities
from gnnrp.studies.candidates import Candidate, Similarities
from gnnrp.types import LinearMap


class Predictions(NamedTuple):
    """Predictions for the nodes of a later graph, in its order."""

    labels: np.ndarray  # (n,)
    probabilities: Float[np.ndarray, "n c"]  # over ``classes_``
    scores: Float[np.ndarray, "n c"]  # F
    reached: Bool[np.ndarray, " n"]  # nodes whose scores a training label changed


class FittedRun(NamedTuple):
    """The inputs of the last run, from which its coefficients follow."""

    inputs: Inputs  # without similarity and matrix
    choice: Choice

    @property
    def candidate(self) -> Candidate:
        """The settings of the similarity."""
        if self.choice.candidate is not None:
            return self.choice.candidate
        power = self.choice.power
        return Candidate((dataclasses.replace(self.inputs.settings, power=power),))

    @property
    def train(self) -> Int[np.ndarray, " l"]:
        """The rows of the training nodes."""
        return np.flatnonzero(self.inputs.train)


def keep(inputs: Inputs, choice: Choice) -> FittedRun:
    """Return the run without arrays that are quick to compute again."""
    settings = inputs.settings
    if choice.candidate is not None:
        settings = choice.candidate.parts[-1]
    light = inputs._replace(similarity=None, matrix=None, maps=None, settings=settings)
    return FittedRun(light, choice)


def solve(run: FittedRun) -> Float[np.ndarray, "l c"]:
    """Return α of the run, F = F_0 + S[:, X] α, of the residuals without weights."""
    inputs, choice = run.inputs._replace(similarity=_similarity(run)), run.choice
    weighted = inputs.weigh()
    assert weighted.similarity is not None
    alpha = coefficients.compute(
        weighted.similarity,
        weighted.targets,
        weighted.train,
        Steps(choice.step_size, choice.best_step),
        initial=weighted.start(),
        solver=inputs.settings.solver(),
    )
    scale = inputs.scale()
    return alpha if scale is None else scale[run.train] * alpha


def _similarity(run: FittedRun) -> LinearMap:
    """Build S of the run again."""
    inputs = run.inputs
    matrix = sparse.prepare(graph.normalize(inputs.adjacency))
    inputs = inputs._replace(matrix=matrix)
    if run.choice.candidate is not None:
        return Similarities(inputs.task()).build(run.choice.candidate)
    return similarities.build(
        matrix,
        inputs.features,
        run.candidate.parts[0],
        num_train=len(run.train),
        adjacency=inputs.adjacency,
    ).similarity


class Later(NamedTuple):
    """A later graph, validated."""

    graph: extension.LaterGraph
    train: Int[np.ndarray, " l"]  # rows of the training nodes
    start: Float[np.ndarray, "n c"]  # F_0


def validate(run: FittedRun, data: GraphData, initial: Any) -> Later:
    """Validate a later graph, and match its nodes with those of the fit.

    Raises:
        ValueError: nodes of the fit are missing, or arrays do not match.
    """
    needs_features = any(part.kernel for part in run.candidate.parts)
    counts = data.num_nodes is None and data.features is not None
    x = None
    if needs_features or counts:
        x = _inputs.parse_features(data.features)
    num_nodes = _count_nodes(run, data, x)
    if needs_features:
        _check_features(run, x, num_nodes)
    rows = _match(run, num_nodes, data.node_ids)
    adjacency = _inputs.adjacency_of(data, num_nodes, directed=False)
    directed = None
    if any(run.candidate.directed):
        directed = _inputs.adjacency_of(data, num_nodes, directed=True)
    matrix = sparse.prepare(graph.normalize(adjacency))
    known = rows[rows >= 0]
    later = extension.LaterGraph(adjacency, matrix, x, known, directed)
    return Later(later, rows[run.train], _start(run, initial, num_nodes))


def score(
    run: FittedRun, alpha: Float[np.ndarray, "l c"], later: Later
) -> Float[np.ndarray, "n c"]:
    """Return F_0 + S[:, X] α on the later graph."""
    flow = linear_maps.as_pytree(extension.extend(run.candidate, later.graph))
    v = jnp.zeros(later.start.shape, alpha.dtype).at[later.train].set(alpha)
    change = linear_maps.product(tracing.as_argument(flow), v)
    return later.start + np.asarray(change)


def _count_nodes(run: FittedRun, data: GraphData, x: Any) -> int:
    """Return the number of nodes; that of the fit at least, for an edge index."""
    if data.num_nodes is not None:
        return data.num_nodes
    if x is not None:
        return x.shape[0]
    return max(formats.max_node_id(data.edges) + 1, len(run.inputs.train))


def _check_features(run: FittedRun, x: Any, num_nodes: int) -> None:
    """Check the shape of the features."""
    expected = (num_nodes, run.inputs.num_features)
    if x.shape != expected:
        msg = (
            f"features must have shape {expected}, a row for each node of the graph "
            f"and the columns of fit, got {x.shape}"
        )
        raise ValueError(msg)


def _match(
    run: FittedRun, num_nodes: int, ids: list[Any] | None
) -> Int[np.ndarray, " m"]:
    """Return the rows of the nodes of the fit; -1 for those that are gone."""
    known = run.inputs.node_ids
    if known is None:
        num_known = len(run.inputs.train)
        if num_nodes < num_known:
            msg = (
                f"the first {num_known} nodes of the graph must be those of fit, and "
                f"it has {num_nodes} nodes; add the others, or give fit node_ids"
            )
            raise ValueError(msg)
        return np.arange(num_known)
    if ids is None:
        msg = (
            "node_ids must name the nodes of the graph, since those of fit are matched "
            "by their ids; pass one for each node"
        )
        raise ValueError(msg)
    place = {node: row for row, node in enumerate(ids)}
    rows = np.array([place.get(node, -1) for node in known])
    lacking = rows[run.train] < 0
    if lacking.any():
        node = known[run.train[np.argmax(lacking)]]
        msg = (
            f"node_ids lack {lacking.sum()} training nodes of fit, such as {node!r}; "
            "add them to the graph"
        )
        raise ValueError(msg)
    return rows


def _start(run: FittedRun, initial: Any, num_nodes: int) -> Float[np.ndarray, "n c"]:
    """Return F_0 of the later graph."""
    inputs = run.inputs
    if inputs.initial is not None and initial is None:
        msg = "initial is missing, and fit had it; pass its scores for this graph too"
        raise ValueError(msg)
    if inputs.initial is None and initial is not None:
        msg = "initial does not apply to a fit without it; leave it out"
        raise ValueError(msg)
    if initial is not None:
        return _inputs.parse_initial(initial, num_nodes, inputs.classes)
    start = inputs.start()
    shape = (num_nodes, len(inputs.classes))
    if start is None:
        return np.zeros(shape, jnp.zeros(0).dtype)
    return np.broadcast_to(start[0], shape).astype(jnp.zeros(0).dtype)
