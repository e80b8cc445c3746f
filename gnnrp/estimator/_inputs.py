"""Validated inputs of an estimator fit."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float, Int

from gnnrp import graph, metrics, sparse
from gnnrp.estimator import _scores
from gnnrp.graph import class_labels, masks
from gnnrp.graph.formats import GraphData
from gnnrp.kernels import features
from gnnrp.propagation import Exact, Iterate, problem, similarity
from gnnrp.propagation.sizes import Sizes
from gnnrp.runtime import checks, memory
from gnnrp.studies import rp as rp_study
from gnnrp.studies import similarities
from gnnrp.studies.candidates import Similarities, Task
from gnnrp.studies.settings import RPSettings
from gnnrp.types import LinearMap, MetricFn, Split

MIN_WEIGHT = 1e-6  # of a class, relative to the largest
SELECTED = ("power", "step_size", "num_steps")
"""Parameters that validation selects where they are None."""


class Inputs(NamedTuple):
    """Similarity, targets, masks, metric and settings of a fit."""

    similarity: LinearMap | None  # S; None: to be chosen
    adjacency: scipy.sparse.csr_array  # W
    matrix: sparse.Matrix  # A
    features: Any  # X, or None
    targets: Float[np.ndarray, "n c"]
    train: Bool[np.ndarray, " n"]
    val: Bool[np.ndarray, " n"]  # those of a training class
    used: Bool[np.ndarray, " n"]  # to train or to validate
    initial: Float[np.ndarray, "n c"] | None  # F_0
    classes: np.ndarray  # (c,) of the training nodes
    codes: Int[np.ndarray, " n"]  # index of the class; -1: no label, c: another class
    num_features: int | None  # of the kernel
    metric: MetricFn
    settings: RPSettings
    class_weights: Float[np.ndarray, " c"] | None = None  # at most 1
    maps: Similarities | None = None  # of an automatic choice
    directed: scipy.sparse.csr_array | None = None  # W with directions, if they count
    node_ids: list[Any] | None = None  # of the rows; None: positions

    def task(self) -> Task:
        """Return the inputs of an automatic choice."""
        return Task(
            self.adjacency,
            self.matrix,
            self.features,
            self.targets,
            self.train[None],
            self.val[None],
            self.metric,
            self.directed,
        )

    def split(self) -> Split:
        """Return training and validation nodes as a split without test nodes."""
        return Split(self.train, self.val, np.zeros_like(self.val))

    def on(
        self,
        train: Bool[np.ndarray, " n"],
        val: Bool[np.ndarray, " n"] | None = None,
    ) -> "Inputs":
        """Return inputs with other training and validation nodes of these classes."""
        val = np.zeros_like(train) if val is None else val
        return self._replace(train=train, val=val, used=train | val)

    def weigh(self) -> "Inputs":
        """Return inputs whose residuals are weighted by class, in S and the targets."""
        scale = self.scale()
        if scale is None:
            return self
        start, flow = self.start(), self.similarity
        assert flow is not None  # an automatic choice has no weights
        return self._replace(
            similarity=similarity.Weighted(flow, jnp.asarray(scale)),
            targets=self.targets * scale,
            initial=None if start is None else start * scale,
        )

    def scale(self) -> Float[np.ndarray, "n 1"] | None:
        """Return the root of the weight of each training node, 1 elsewhere."""
        if self.class_weights is None:
            return None
        weights = np.append(self.class_weights, 1.0)[self.codes]
        scale = np.sqrt(np.where(self.train, weights, 1.0))[:, None]
        return scale.astype(jnp.zeros(0).dtype)

    def start(self) -> Float[np.ndarray, "n c"] | None:
        """Return F_0: ``initial``, or the class shares of a centered run."""
        if self.initial is not None or not self.settings.is_centered:
            return self.initial
        return rp_study.class_shares(self.targets, self.train[None])[0]

    def with_power(self, power: int) -> LinearMap:
        """Return S with another power of A and the same kernel."""
        return _with_power(self.similarity, power)


def _with_power(flow: Any, power: int) -> LinearMap:
    if isinstance(flow, similarity.Weighted):
        inner = _with_power(flow.inner, power)
        return dataclasses.replace(flow, inner=inner)
    if isinstance(flow, similarity.Sandwich):
        return dataclasses.replace(flow, outer=_with_power(flow.outer, power))
    return dataclasses.replace(flow, power=power)


def parse_settings(params: dict[str, Any]) -> RPSettings:
    """Validate the parameters of an estimator; those to select become defaults."""
    numbers = {}  # of numpy and JAX too, as Python numbers
    for name in (*SELECTED, "gamma", "alpha"):
        value = params[name]
        if value is None and name in SELECTED:
            continue
        if name in {"power", "num_steps"}:
            numbers[name] = checks.count(name, value, 0)
        else:
            numbers[name] = checks.number(name, value)
    if not 0 < checks.number("holdout", params["holdout"]) < 1:
        msg = f"holdout must lie between 0 and 1, got {params['holdout']}"
        raise ValueError(msg)
    checks.count("seed", params["seed"], 0)
    if not callable(params["metric"]):
        metrics.by_name(params["metric"], loss=params["loss"])
    names = ("row_normalize", "hops", "scaling", "center")
    names += ("loss", "select", "method", "precision")
    if params["class_weight"] is not None and params["loss"] != "squared":
        msg = f"class_weight needs loss='squared', got loss={params['loss']!r}"
        raise ValueError(msg)
    kernel = params["kernel"]
    if kernel is None and params["hops"] is not None:
        kernel = "gaussian"
    values = {name: params[name] for name in names} | numbers
    return RPSettings(kernel=kernel, **values)


def check_free(params: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Refuse parameters that an automatic choice sets itself."""
    checks.positive("search_seconds", params["search_seconds"])
    names = (*SELECTED, "kernel", "gamma", "alpha", "row_normalize", "hops", "scaling")
    for name in (*names, "center", "loss", "select", "method", "class_weight"):
        if params[name] != defaults[name]:
            msg = (
                f"{name}={params[name]!r} does not apply to similarity='auto', which "
                "chooses the settings; leave one of them out"
            )
            raise ValueError(msg)


def validate(
    data: GraphData,
    initial: Any,
    settings: RPSettings,
    metric: str | MetricFn,
    *,
    auto: bool,
    directed: bool = False,
    max_bytes: int | None = None,
) -> Inputs:
    """Validate graph, labels, masks and features, and build S unless it is chosen."""
    classes, codes, train, val = _nodes(data)
    _check_metric(metric, codes[val])
    needs_features = settings.kernel or (auto and data.features is not None)
    x = parse_features(data.features) if needs_features else None
    adjacency = adjacency_of(data, len(codes), directed=False)
    matrix = sparse.prepare(graph.normalize(adjacency))
    flow = None
    if not auto:
        flow = similarities.build(
            matrix, x, settings, num_train=int(train.sum()), adjacency=adjacency
        ).similarity
    targets = _one_hot(codes, len(classes), (train, val), max_bytes)
    in_class = targets.any(axis=1)
    if val.any() and not (val & in_class).any():
        msg = f"no node of val_mask is of a training class ({_join(classes)})"
        raise ValueError(msg)
    inputs = Inputs(
        similarity=flow,
        adjacency=adjacency,
        matrix=matrix,
        features=x,
        targets=targets,
        train=train,
        val=val & in_class,
        used=train | val,
        initial=parse_initial(initial, len(codes), classes),
        classes=classes,
        codes=codes,
        num_features=None if x is None else x.shape[1],
        metric=_scores.metric_fn(metric, len(classes), settings.loss),
        settings=settings,
        directed=adjacency_of(data, len(codes), directed=True) if directed else None,
        node_ids=data.node_ids,
    )
    if not auto:
        return inputs
    return inputs._replace(maps=Similarities(inputs.task(), max_bytes))


def adjacency_of(
    data: GraphData, num_nodes: int, *, directed: bool
) -> scipy.sparse.csr_array:
    """Return W."""
    return graph.raw_adjacency(
        data.edges,
        num_nodes,
        weights=data.weights,
        directed=directed,
        duplicates=data.duplicates,
        signed=data.signed,
    )


def _check_metric(metric: str | MetricFn, codes: Int[np.ndarray, " q"]) -> None:
    """Refuse validation nodes of one class, if the metric needs two."""
    if metric in _scores.OF_TASKS and len(np.unique(codes)) == 1:
        msg = f"{metric} needs two classes in val_mask, and all its nodes are of one"
        raise ValueError(msg)


def set_class_weights(inputs: Inputs, given: Any) -> Inputs:
    """Return the inputs with a weight for each class, the largest of which is 1."""
    if given is None:
        return inputs
    if isinstance(given, str):
        checks.one_of("class_weight", given, ("balanced",))
        weights = 1.0 / np.bincount(inputs.codes[inputs.train])
    else:
        weights = _parse_class_weights(given, inputs.classes)
    return inputs._replace(class_weights=weights / weights.max())


def _parse_class_weights(given: Any, classes: np.ndarray) -> Float[np.ndarray, " c"]:
    """Return the weights of a dict, 1 for classes that it lacks."""
    if not isinstance(given, dict):
        msg = (
            "class_weight must be 'balanced' or a dict {class: weight}, got "
            f"{checks.format_value(given)}"
        )
        raise TypeError(msg)
    names = classes.tolist()
    if unknown := [name for name in given if name not in names]:
        msg = (
            f"class_weight has {unknown[0]!r}, which is no training class "
            f"({_join(classes)})"
        )
        raise ValueError(msg)
    for name, weight in given.items():
        checks.positive(f"class_weight[{name!r}]", weight)
    weights = np.array([float(given.get(name, 1.0)) for name in names])
    if weights.min() < MIN_WEIGHT * weights.max():
        msg = (
            f"weights in class_weight must not differ by more than 1e6, got {given}; "
            "leave nodes of a class that should not count out of train_mask"
        )
        raise ValueError(msg)
    return weights


def _one_hot(
    codes: Int[np.ndarray, " n"],
    num_classes: int,
    masks: tuple[Bool[np.ndarray, " n"], Bool[np.ndarray, " n"]],
    max_bytes: int | None,
) -> Float[np.ndarray, "n c"]:
    """Return the targets, with zero rows for nodes of no training class."""
    shape = len(codes), num_classes
    memory.check(
        f"a fit of {len(codes):,} nodes and {num_classes:,} classes",
        run_bytes(shape, *(int(mask.sum()) for mask in masks)),
        memory.room(max_bytes),
        "take fewer nodes or classes",
    )
    targets = np.zeros(shape)
    rows = np.flatnonzero((codes >= 0) & (codes < num_classes))
    targets[rows, codes[rows]] = 1
    return targets


def run_bytes(shape: tuple[int, int], num_train: int, num_val: int) -> int:
    """Return the bytes of a run on n nodes and c classes, without its similarity."""
    sizes = Sizes(
        *shape,
        num_splits=1,
        num_train=num_train,
        num_evaluated=num_val,
        num_steps=1,
        itemsize=jnp.zeros(0).dtype.itemsize,
    )
    least = min(solver.cost(sizes).num_bytes for solver in (Iterate(), Exact()))
    return problem.peak_bytes(shape, itemsize=8) + least


def _nodes(data: GraphData) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return training classes (c,), codes (n,), and two masks (n,)."""
    if data.labels is None:
        msg = "labels are missing: pass one for each node, -1 or None where unknown"
        raise ValueError(msg)
    every, codes = class_labels.encode(data.labels)
    train, val = _masks(data, codes)
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
    return classes, class_labels.encode(data.labels, classes)[1], train, val


def _masks(
    data: GraphData, codes: Int[np.ndarray, " n"]
) -> tuple[Bool[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Return the masks of the training and the validation nodes, all labeled."""
    num_nodes = masks.num_nodes(data, len(codes))
    val = np.zeros(num_nodes, bool)
    if data.val_mask is not None:
        val = masks.mask("val_mask", data.val_mask, num_nodes)
        if not val.any():
            msg = "val_mask must not be empty; leave it out, or add validation nodes"
            raise ValueError(msg)
    train = (codes >= 0) & ~val
    if data.train_mask is not None:
        train = masks.mask("train_mask", data.train_mask, num_nodes)
    if (train & val).any():
        node = int(np.argmax(train & val))
        msg = f"node {node} is in both train_mask and val_mask; take it out of one"
        raise ValueError(msg)
    for name, mask in (("train_mask", train), ("val_mask", val)):
        if (unlabeled := mask & (codes < 0)).any():
            msg = (
                f"node {int(np.argmax(unlabeled))} of {name} has no label (-1, None "
                "and NaN mean none); label it, or remove it"
            )
            raise ValueError(msg)
    return train, val


def parse_features(x: Any) -> Any:
    """Return the features of a kernel, dense ones on the host."""
    if x is None:
        msg = "a kernel needs features: pass features=, or kernel=None for the graph"
        raise ValueError(msg)
    x = x if scipy.sparse.issparse(x) else checks.reals("features", x)
    return features.validate(x)


def parse_initial(scores: Any, num_nodes: int, classes: np.ndarray) -> Any:
    """Return F_0 in the type of runs."""
    if scores is None:
        return None
    initial = checks.reals("initial", scores)
    expected = (num_nodes, len(classes))
    if initial.shape != expected:
        msg = (
            f"initial must have shape {expected}, a column for each training class "
            f"({_join(classes)}), got {initial.shape}"
        )
        raise ValueError(msg)
    if not np.isfinite(initial).all():
        row = int(np.argwhere(~np.isfinite(initial))[0, 0])
        msg = f"initial must be finite, and row {row} is not"
        raise ValueError(msg)
    dtype = jnp.zeros(0).dtype
    checks.representable("initial", initial, dtype)
    return initial.astype(dtype)


def _join(classes: np.ndarray) -> str:
    names = ", ".join(map(repr, classes[:8].tolist()))
    return f"{names}, ..." if len(classes) > 8 else names
