"""What an estimator was given, checked and laid out for a run of RP."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float, Int

from gnnrp import graph, metrics, sparse
from gnnrp.estimator import _scores
from gnnrp.graph import class_labels, formats
from gnnrp.graph.formats import Given
from gnnrp.kernels import features
from gnnrp.propagation import (
    Exact,
    Iterate,
    Selection,
    losses,
    problem,
    similarity,
    solvers,
)
from gnnrp.propagation.sizes import Sizes
from gnnrp.runtime import checks, memory
from gnnrp.studies import rp as rp_study
from gnnrp.studies.presets import RPSettings
from gnnrp.types import LinearMap, MetricFn, Split

OPTIONAL = ("power", "step_size", "num_steps")


class Task(NamedTuple):
    """What RP is run on, and how."""

    matrix: LinearMap  # A
    make_similarity: Callable[[LinearMap, int], LinearMap]  # (A, K) -> S
    targets: Float[np.ndarray, "n c"]
    train: Bool[np.ndarray, " n"]
    val: Bool[np.ndarray, " n"]  # those of the classes
    used: Bool[np.ndarray, " n"]  # to fit or to choose by
    initial: Float[np.ndarray, "n c"] | None  # F_0
    classes: np.ndarray  # (c,) of the training nodes
    codes: Int[np.ndarray, " n"]  # which of them; -1: no label, c: another class
    num_features: int | None  # that the kernel looks at
    metric: MetricFn
    loss: str
    select: str
    method: str

    def split(self) -> Split:
        """Return the training and validation nodes as runs take them."""
        return Split(self.train, self.val, np.zeros_like(self.val))

    def options(self) -> dict[str, Any]:
        """Return what ``propagation.run`` and ``sweep.run`` both take."""
        return {
            "metric": self.metric,
            "initial": self.initial,
            "solver": solvers.by_name(self.method, losses.by_name(self.loss)),
            "selection": Selection(rule=self.select),
        }


def settings(params: dict[str, Any]) -> RPSettings:
    """Check an estimator's arguments; what may be left out has a stand-in.

    Raises:
        ValueError: one that no run can use.
    """
    numbers = {}  # of numpy and JAX too, which become Python's
    for name in (*OPTIONAL, "gamma", "alpha", "holdout"):
        if name in OPTIONAL and params[name] is None:
            continue
        if name in {"power", "num_steps"}:
            numbers[name] = checks.count(name, params[name], 0)
        else:
            numbers[name] = checks.number(name, params[name])
    if not 0 < numbers.pop("holdout") < 1:
        msg = f"holdout must lie between 0 and 1, got {params['holdout']}"
        raise ValueError(msg)
    for name in ("loss", "select", "method", "precision"):
        if params[name] is None:
            msg = f"{name} must be a name, got None; leave it out for the usual one"
            raise ValueError(msg)
    checks.count("seed", params["seed"], 0)
    metrics.by_name(params["metric"])
    names = {field.name for field in dataclasses.fields(RPSettings)} & set(params)
    given = {name: params[name] for name in names if params[name] is not None}
    return RPSettings(**given | numbers)


def make(given: Given, initial: Any, asked: RPSettings, metric: str) -> Task:
    """Check what was given, and build the similarity.

    Args:
        given: graph, labels, masks and features.
        initial: F_0, or None.
        asked: settings of RP; the power is one of perhaps many.
        metric: its name.

    Raises:
        ValueError: what does not fit together.
        TypeError: a graph or mask of another kind.
    """
    classes, codes, train, val = _nodes(given)
    if metric == "roc_auc" and val.any() and len(np.unique(codes[val])) == 1:
        msg = "roc_auc needs two classes in val_mask, and all its nodes are of one"
        raise ValueError(msg)
    x = _features(given.features) if asked.kernel else None
    matrix = _matrix(given, len(codes))
    flow = rp_study.build_similarity(matrix, x, asked, num_train=int(train.sum()))
    targets = _one_hot(codes, len(classes), train, val)
    inside = targets.any(axis=1)
    if val.any() and not (val & inside).any():
        msg = f"no node of val_mask is of a training class ({_listed(classes)})"
        raise ValueError(msg)
    return Task(
        matrix,
        with_power(flow),
        targets,
        train,
        val & inside,
        train | val,
        _initial(initial, len(codes), classes),
        classes,
        codes,
        None if x is None else x.shape[1],
        _scores.metric_fn(metric, len(classes)),
        asked.loss,
        asked.select,
        asked.method,
    )


def _one_hot(
    codes: Int[np.ndarray, " n"],
    num_classes: int,
    train: Bool[np.ndarray, " n"],
    val: Bool[np.ndarray, " n"],
) -> Float[np.ndarray, "n c"]:
    """Return the targets, zero rows for nodes of no class of the training nodes.

    Raises:
        ValueError: they, or the smallest run with them, do not fit the memory.
    """
    sizes = Sizes(
        len(codes),
        num_classes,
        num_splits=1,
        num_train=int(train.sum()),
        num_evaluated=int(val.sum()),
        num_steps=1,
        itemsize=jnp.zeros(0).dtype.itemsize,
    )
    memory.check(
        f"a fit of {len(codes):,} nodes and {num_classes:,} classes",
        problem.peak_bytes((len(codes), num_classes), itemsize=8)
        + min(solver.cost(sizes).num_bytes for solver in (Iterate(), Exact())),
        memory.room(),
        "take fewer nodes or classes",
    )
    targets = np.zeros((len(codes), num_classes))
    known = np.flatnonzero((codes >= 0) & (codes < num_classes))
    targets[known, codes[known]] = 1
    return targets


def with_power(flow: LinearMap) -> Callable[[LinearMap, int], LinearMap]:
    """Return (A, K) -> S as ``flow`` is, but for its K: its kernel is made once."""
    if type(flow) is similarity.Power:
        return similarity.Power  # of which a sweep shares the products

    def make(_: LinearMap, power: int) -> LinearMap:
        if isinstance(flow, similarity.Sandwich):
            outer: Any = flow.outer
            outer = dataclasses.replace(outer, power=power)
            return dataclasses.replace(flow, outer=outer)
        walk: Any = flow
        return dataclasses.replace(walk, power=power)

    return make


def _nodes(
    given: Given,
) -> tuple[
    np.ndarray,
    Int[np.ndarray, " n"],
    Bool[np.ndarray, " n"],
    Bool[np.ndarray, " n"],
]:
    """Return training classes, codes, training and validation nodes.

    Raises:
        ValueError: labels and masks that do not fit, or do not suffice.
    """
    if given.labels is None:
        msg = "labels are missing: pass one for each node, -1 or None where unknown"
        raise ValueError(msg)
    every, codes = class_labels.codes(given.labels)
    train, val = _masks(given, codes)
    if not train.any():
        msg = "there is no training node: give some a label, and train_mask some nodes"
        raise ValueError(msg)
    classes = every[np.unique(codes[train])]
    if len(classes) < 2:
        msg = (
            f"all training nodes are of one class, {classes.tolist()[0]!r} (-1, None "
            "and NaN mean no label); label nodes of another too"
        )
        raise ValueError(msg)
    return classes, class_labels.codes(given.labels, classes)[1], train, val


def _masks(
    given: Given, codes: Int[np.ndarray, " n"]
) -> tuple[Bool[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Return the masks of the training and the validation nodes, all with a label.

    Raises:
        ValueError: masks that do not fit the nodes, each other or the labels.
    """
    num_nodes = formats.num_nodes(given, len(codes))
    val = np.zeros(num_nodes, bool)
    if given.val_mask is not None:
        val = formats.mask("val_mask", given.val_mask, num_nodes)
        if not val.any():
            msg = "val_mask holds no node; leave it out, or name the nodes to choose by"
            raise ValueError(msg)
    train = (codes >= 0) & ~val
    if given.train_mask is not None:
        train = formats.mask("train_mask", given.train_mask, num_nodes)
    if (train & val).any():
        node = int(np.argmax(train & val))
        msg = f"node {node} is in both train_mask and val_mask; take it out of one"
        raise ValueError(msg)
    for name, part in (("train_mask", train), ("val_mask", val)):
        if (part & (codes < 0)).any():
            node = int(np.argmax(part & (codes < 0)))
            msg = (
                f"node {node} of {name} has no label (-1, None and NaN mean none); "
                "give it one, or take it out"
            )
            raise ValueError(msg)
    return train, val


def _matrix(given: Given, num_nodes: int) -> sparse.Matrix:
    adjacency = graph.normalized_adjacency(
        given.edges,
        num_nodes,
        weights=given.weights,
        duplicates=given.duplicates,
        signed=given.signed,
    )
    return sparse.prepare(adjacency)


def _features(given: Any) -> Any:
    """Return the features as a kernel takes them, dense ones on the host.

    Raises:
        ValueError: there are none, or not a matrix.
        TypeError: not real numbers.
    """
    if given is None:
        msg = "a kernel needs features: pass features=, or kernel=None for the graph"
        raise ValueError(msg)
    x = given if scipy.sparse.issparse(given) else checks.reals("features", given)
    return features.checked(x)


def _initial(given: Any, num_nodes: int, classes: np.ndarray) -> Any:
    """Return F_0 in the type that runs have.

    Raises:
        ValueError: another shape, or not finite.
        TypeError: not real numbers.
    """
    if given is None:
        return None
    start = checks.reals("initial", given)
    expected = (num_nodes, len(classes))
    if start.shape != expected:
        msg = (
            f"initial must have shape {expected}, a column for each training class "
            f"({_listed(classes)}), got {start.shape}"
        )
        raise ValueError(msg)
    if not np.isfinite(start).all():
        row = int(np.argwhere(~np.isfinite(start))[0, 0])
        msg = f"initial must be finite, and row {row} is not"
        raise ValueError(msg)
    dtype = jnp.zeros(0).dtype
    checks.fits("initial", start, dtype)
    return start.astype(dtype)


def _listed(classes: np.ndarray) -> str:
    told = ", ".join(map(repr, classes[:8].tolist()))
    return f"{told}, ..." if len(classes) > 8 else told
