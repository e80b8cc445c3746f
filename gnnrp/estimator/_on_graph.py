"""An estimator whose samples are the nodes of one graph, for model selection."""

import copy
from typing import Any

import numpy as np

from gnnrp.estimator._parameters import Parameters
from gnnrp.graph import formats, masks
from gnnrp.runtime import checks


class OnGraph(Parameters):
    """A transductive model on one graph, with node ids for samples.

    scikit-learn slices samples and labels alike; a graph cannot be sliced so. Here X
    are node ids and y their labels: each fold is fitted on the whole graph, with the
    labels of its training nodes alone, and judged on its other nodes. Parameters of the
    model are named ``model__power``. ``sklearn.base.clone`` copies the model and shares
    the graph.

    Args:
        model: such as ``ResidualPropagation``.
        graph: see ``ResidualPropagation.fit``; labels and masks that it carries are
            ignored.
        features: see there.
        initial: see there; its model must not have seen the labels of a fold that is
            judged.
        num_nodes: n, where an edge index does not name the last nodes.
        weights: of the edges, see there, as are ``duplicates`` and ``signed``.
        duplicates: how weights of repeated edges combine.
        signed: allow negative weights.

    Attributes (after ``fit``):
        model_: the fitted copy of the model.
        classes_: those of the nodes it was fitted on.

    Example:
        >>> from gnnrp.estimator import OnGraph, ResidualPropagation
        >>> path = [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]
        >>> model = ResidualPropagation(power=3, step_size=0.5, num_steps=20)
        >>> over_nodes = OnGraph(model, path).fit([0, 1, 4, 5], list("aabb"))
        >>> over_nodes.predict([2, 3]).tolist()
        ['a', 'b']
    """

    def __init__(
        self,
        model: Any = None,
        graph: Any = None,
        features: Any = None,
        initial: Any = None,
        num_nodes: int | None = None,
        *,
        weights: Any = None,
        duplicates: str | None = None,
        signed: bool = False,
    ) -> None:
        """Keep the arguments as they are; ``fit`` checks them."""
        self.model = model
        self.graph = graph
        self.features = features
        self.initial = initial
        self.num_nodes = num_nodes
        self.weights = weights
        self.duplicates = duplicates
        self.signed = signed

    def fit(self, nodes: Any, labels: Any) -> "OnGraph":
        """Fit a copy of the model to the labels of these nodes.

        Args:
            nodes: ids, (q,).
            labels: theirs, (q,).

        Raises:
            ValueError: what does not fit together; see the model too.
            TypeError: nodes that are no ids.
        """
        given = formats.read(self.graph, self.weights)
        total = given.num_nodes
        if total is None:
            total = formats.max_node_id(given.edges) + 1
            if self.num_nodes is not None:
                total = checks.count("num_nodes", self.num_nodes, total)
        index = masks.indices("nodes", nodes, total)
        checks.plain("labels", labels)
        values = checks.as_array(labels)
        if values.shape not in {(values.size,), (values.size, 1)}:
            msg = (
                f"labels must have shape (q,), one for each node, got {values.shape}; "
                "np.argmax(labels, axis=1) makes them of one-hot rows"
            )
            raise ValueError(msg)
        if len(values) != len(index):
            msg = (
                f"there must be {len(index)} labels, one for each of the nodes, "
                f"got {len(values)}; pass labels[nodes]"
            )
            raise ValueError(msg)
        full = np.full(total, None, object)
        full[index] = values.ravel()
        given = formats.GraphData(
            given.edges,
            total,
            given.weights if self.weights is None else self.weights,
            given.features if self.features is None else self.features,
            duplicates=self.duplicates,
            signed=self.signed,
        )
        self.model_ = _copied(self.model).fit(given, full, index, initial=self.initial)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, nodes: Any) -> np.ndarray:
        """Return the classes of the nodes; see the model, as for what it raises."""
        return self._fitted().predict(nodes)

    def predict_proba(self, nodes: Any) -> np.ndarray:
        """Return their distributions; see the model, as for what it raises."""
        return self._fitted().predict_proba(nodes)

    def score(self, nodes: Any, labels: Any) -> float:
        """Return the metric on the nodes; see the model, as for what it raises."""
        return self._fitted().score(nodes, labels)

    def _fitted(self) -> Any:
        # An unfitted model says itself what is missing.
        return getattr(self, "model_", self.model)

    def __sklearn_clone__(self) -> "OnGraph":
        """Return an unfitted copy that shares the graph."""
        params = self.get_params(deep=False)
        return type(self)(**params | {"model": _copied(self.model)})


def _copied(model: Any) -> Any:
    """Return an unfitted copy.

    Raises:
        TypeError: no model.
    """
    if not hasattr(model, "get_params") or isinstance(model, type):
        msg = f"model must be an estimator, got {model!r}; ResidualPropagation() is one"
        raise TypeError(msg)
    return type(model)(**copy.deepcopy(model.get_params(deep=False)))
