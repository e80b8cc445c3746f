"""An estimator whose samples are the nodes of one graph, for model selection."""

import copy
import dataclasses
from typing import Any

import numpy as np

from gnnrp.estimator._parameters import Parameters
from gnnrp.graph import formats, masks
from gnnrp.runtime import checks


@dataclasses.dataclass(eq=False, repr=False)
class OnGraph(Parameters):
    """A transductive model on one graph, with node ids as samples.

    Model selection of scikit-learn slices samples and labels, which a graph does not
    allow. Here X are node ids and y their labels: each fold is fitted on the whole
    graph with the labels of its training nodes, and scored on its other nodes.
    Parameters of the model are named ``model__power``. ``sklearn.base.clone`` copies
    the model and shares the graph.

    Args:
        model: such as ``ResidualPropagation``.
        graph: see ``ResidualPropagation.fit``; its labels and masks are ignored.
        features: see ``ResidualPropagation.fit``.
        initial: F_0 of a model that has not seen the labels of a test fold.
        num_nodes: n, if an edge index does not contain the last nodes.
        weights: of the edges, see ``ResidualPropagation.fit``.
        duplicates: how weights of repeated edges combine.
        signed: allow negative weights.
        node_ids: by which the graph names nodes, see ``ResidualPropagation.fit``. The
            samples X are positions in these.

    Attributes:
        model_: the fitted copy of the model.
        classes_: classes of the training nodes.

    Example:
        >>> from gnnrp.estimator import OnGraph, ResidualPropagation
        >>> path = [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]
        >>> model = ResidualPropagation(power=3, step_size=0.5, num_steps=20)
        >>> over_nodes = OnGraph(model, path).fit([0, 1, 4, 5], list("aabb"))
        >>> over_nodes.predict([2, 3]).tolist()
        ['a', 'b']
    """

    model: Any = None
    graph: Any = None
    features: Any = None
    initial: Any = None
    num_nodes: int | None = None
    _: dataclasses.KW_ONLY
    weights: Any = None
    duplicates: str | None = None
    signed: bool = False
    node_ids: Any = None

    def fit(self, nodes: Any, labels: Any) -> "OnGraph":
        """Fit a copy of the model to the labels of these nodes.

        Args:
            nodes: ids (q,).
            labels: of the nodes, (q,).

        Raises:
            ValueError: inputs that do not match each other, or that the model refuses.
            TypeError: ``nodes`` are not ids.
        """
        data = formats.read(self.graph, self.weights, self.node_ids)
        num_nodes = data.num_nodes
        if num_nodes is None:
            num_nodes = formats.max_node_id(data.edges) + 1
            if self.num_nodes is not None:
                num_nodes = checks.count("num_nodes", self.num_nodes, num_nodes)
        index = masks.indices("nodes", nodes, num_nodes)
        checks.no_masked_entries("labels", labels)
        values = checks.as_array(labels)
        if values.shape not in {(values.size,), (values.size, 1)}:
            msg = (
                f"labels must have shape (q,), one for each node, got {values.shape}; "
                "use np.argmax(labels, axis=1) for one-hot rows"
            )
            raise ValueError(msg)
        if len(values) != len(index):
            msg = (
                f"there must be {len(index)} labels, one for each of the nodes, "
                f"got {len(values)}; pass labels[nodes]"
            )
            raise ValueError(msg)
        all_labels = np.full(num_nodes, None, object)
        all_labels[index] = values.ravel()
        data = formats.GraphData(
            data.edges,
            num_nodes,
            data.weights if self.weights is None else self.weights,
            data.features if self.features is None else self.features,
            duplicates=self.duplicates,
            signed=self.signed,
        )
        model = _clone(self.model)
        self.model_ = model.fit(data, all_labels, index, initial=self.initial)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, nodes: Any) -> np.ndarray:
        """Return the classes of the nodes; see the model."""
        return self._fitted_model().predict(nodes)

    def predict_proba(self, nodes: Any) -> np.ndarray:
        """Return the class probabilities of the nodes; see the model."""
        return self._fitted_model().predict_proba(nodes)

    def score(self, nodes: Any, labels: Any) -> float:
        """Return the metric on the nodes; see the model."""
        return self._fitted_model().score(nodes, labels)

    def _fitted_model(self) -> Any:
        return getattr(self, "model_", self.model)  # an unfitted model raises itself

    def __sklearn_clone__(self) -> "OnGraph":
        """Return an unfitted copy that shares the graph."""
        params = self.get_params(deep=False)
        return type(self)(**params | {"model": _clone(self.model)})


def _clone(model: Any) -> Any:
    """Return an unfitted copy of a model."""
    if not hasattr(model, "get_params") or isinstance(model, type):
        msg = (
            f"model must be an estimator, such as ResidualPropagation(), got {model!r}"
        )
        raise TypeError(msg)
    return type(model)(**copy.deepcopy(model.get_params(deep=False)))
