"""Residual propagation with fit and predict, for people who want a baseline.

RP is transductive: ``fit`` is given the whole graph, with the labels of some nodes, and
``predict`` returns those of all, or of the nodes asked for. ``OnGraph`` turns it round
for scikit-learn's model selection, whose samples are then the nodes.
"""

import warnings
from typing import Any

import numpy as np

from gnnrp.estimator import _inputs, _scores, _selection
from gnnrp.estimator._inputs import Task
from gnnrp.estimator._on_graph import OnGraph
from gnnrp.estimator._parameters import Parameters
from gnnrp.estimator._selection import Choice
from gnnrp.graph import formats
from gnnrp.propagation import Trajectory

__all__ = ["NotFittedError", "OnGraph", "ResidualPropagation"]


class NotFittedError(ValueError, AttributeError):
    """Predictions were asked for before ``fit``; scikit-learn's has these bases too."""


class ResidualPropagation(Parameters):
    """Classify the nodes of a graph by RP, S = A^K, or B Kn B with a feature kernel.

    What is left out (None) of power, step size and number of steps is chosen by
    validation, on ``val_mask`` or else on held-out training nodes, over the paper's
    grid: powers 1 to 10, step sizes 0.01 to 1, the best of 100 steps. RP is then fitted
    at that setting: with ``val_mask``, on the training nodes, as each setting was; with
    held-out nodes, on all training nodes together, to the step that was best without
    those held out. With all three given and no ``val_mask``, all steps are taken, and
    no node is held out. Given ``num_steps`` is the most that validation can choose.
    Few nodes to choose by make many ties, which go to the smallest power and step size.

    Args:
        power: K, 0 or more.
        step_size: η > 0.
        num_steps: t, 1 or more.
        kernel: of the features, a name of ``kernels.features.KERNELS``; None: the graph
            alone, whatever features there are.
        gamma: γ of the kernel, positive.
        alpha: of a lazy walk (α A + (1 - α) I)^K, in [0, 1].
        row_normalize: features less their minimum, rows summing to 1.
        loss: "squared", "absolute", "sigmoid" or "softmax".
        metric: to choose and score by, "accuracy" or "roc_auc": of two classes the area
            of the scores of the second, of more the mean of each against the rest.
        select: "first" or "last" of several steps that are equally good.
        method: see ``solvers.by_name``.
        precision: "float32", which is float64 where JAX has that enabled; "float64"
            holds within the calls. No flag of JAX is changed.
        holdout: share of the training nodes of each class that is held out.
        seed: of numpy's default generator, for what is held out.

    Attributes:
        classes_: there after ``fit``, as all that follow; those of the training nodes,
            sorted, (c,). No other is ever predicted.
        class_prior_: their shares of the training nodes, (c,).
        scores_: F, (n, c).
        labels_: predictions for all nodes, (n,); of equal scores the first class.
        reached_: which nodes a training label reached, (n,): RP changed their scores.
        power_: fitted with.
        step_size_: likewise.
        best_step_: likewise.
        val_score_: of the choice, on the nodes of ``classes_`` it was made by; None
            where none was made. Unreached nodes count there as of the first class.
        report_: how RP was run, and whether it diverged; see ``propagation.Report``.
        n_features_in_: with a kernel.

    A node that no label reaches, and that has no score of its own from ``initial``, is
    given the most frequent training class (the first of several), and the class prior
    as its probabilities; ``fit`` and the predictions say of how many in a UserWarning.
    ``fit`` also warns if the best step is the last one although validation still rises,
    and if all nodes are predicted to be of one class.

    Source: Eq. 6, Algorithm 1 and App. D.1 (grid), E.1 (kernels).

    Example:
        >>> from gnnrp import ResidualPropagation
        >>> path = [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]
        >>> labels = ["red", None, None, None, None, "blue"]
        >>> model = ResidualPropagation(power=3, step_size=0.5, num_steps=20)
        >>> model.fit(path, labels).predict().tolist()
        ['red', 'red', 'red', 'blue', 'blue', 'blue']

        On top of another model, whose errors on the training nodes flow on, as in
        Correct and Smooth; columns are those of the sorted classes:

        >>> other = [[0.9, 0.1]] * 6  # blue, red
        >>> model.fit(path, labels, initial=other).predict([1, 4]).tolist()
        ['red', 'blue']
    """

    def __init__(
        self,
        power: int | None = None,
        step_size: float | None = None,
        num_steps: int | None = None,
        kernel: str | None = None,
        *,
        gamma: float = 1.0,
        alpha: float = 1.0,
        row_normalize: bool = False,
        loss: str = "squared",
        metric: str = "accuracy",
        select: str = "first",
        method: str = "auto",
        precision: str = "float32",
        holdout: float = 0.2,
        seed: int = 0,
    ) -> None:
        """Keep the arguments as they are; ``fit`` checks them."""
        self.power: Any = power  # what set_params may have put there is not known
        self.step_size: Any = step_size
        self.num_steps: Any = num_steps
        self.kernel = kernel
        self.gamma = gamma
        self.alpha = alpha
        self.row_normalize = row_normalize
        self.loss = loss
        self.metric = metric
        self.select = select
        self.method = method
        self.precision = precision
        self.holdout = holdout
        self.seed = seed

    def fit(
        self,
        graph: Any,
        labels: Any = None,
        train_mask: Any = None,
        features: Any = None,
        val_mask: Any = None,
        initial: Any = None,
        *,
        weights: Any = None,
        duplicates: str | None = None,
        signed: bool = False,
    ) -> "ResidualPropagation":
        """Run RP from the labels of the training nodes.

        Args:
            graph: edge index (2, e), scipy sparse, networkx (nodes in its order),
                ``jraph.GraphsTuple``, PyG's ``Data``, OGB's dict or its pair of that
                and labels. It is made undirected; the weights of a sparse matrix, of
                networkx ("weight") and of PyG (edge_weight) count. What ``Data`` has of
                y, x, train_mask and val_mask serves where an argument is left out, as
                do the node features of the others.
            labels: (n,), of any type that can be sorted; -1, None, NaN and masked
                entries mean none.
            train_mask: boolean (n,), or node ids. If left out, all nodes with a label
                that are not in ``val_mask``.
            features: (n, d), dense or scipy sparse; only a kernel looks at them.
            val_mask: boolean (n,), or node ids, to choose by. Nodes whose class no
                training node has are errors whatever is chosen.
            initial: F_0, (n, c): scores of another model, a column for each of
                ``classes_``; of the scale of one-hot rows (probabilities) for the
                squared loss, logits for softmax and sigmoid. If that model saw the
                training labels, choose by a ``val_mask`` it did not see.
            weights: see ``graph.raw_adjacency``, as are ``duplicates`` and ``signed``.
                They replace those of PyG; a warning says if an object carries one
                number an edge that does not count.
            duplicates: how weights of repeated edges combine.
            signed: allow negative weights.

        Raises:
            ValueError: what does not fit together, or no settings can use; scores that
                grew beyond all numbers.
            TypeError: a graph or mask of another kind.
        """
        params = self.get_params()
        settings = _inputs.settings(params)
        given = formats.completed(
            formats.read(graph, weights),
            labels=labels,
            train_mask=train_mask,
            val_mask=val_mask,
            features=features,
            weights=weights,
            duplicates=duplicates,
            signed=signed or None,
        )
        with _scores.wide(settings.precision == "float64"):
            task = _inputs.make(given, initial, settings, self.metric)
            chosen, found = _selection.run(task, settings, params)
        self._keep(task, chosen, found)
        for remark in found.report.warnings.values():
            warnings.warn(remark, UserWarning, stacklevel=2)
        self._tell(np.arange(len(task.codes)))
        return self

    def predict(self, nodes: Any = None) -> np.ndarray:
        """Return the classes of the nodes.

        Args:
            nodes: boolean (n,), or node ids in any order; None: all.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: nodes that are not there.
            TypeError: nodes that are neither a mask nor ids.
        """
        self._check_fitted()
        index = formats.indices("nodes", nodes, len(self.labels_))
        self._tell(index)
        return self.labels_[index]

    def predict_proba(self, nodes: Any = None) -> np.ndarray:
        """Return a distribution over ``classes_`` for each node, (q, c).

        For the squared and the absolute loss: scores clipped at 0, over their sum, and
        where none is positive, the row less its minimum; for softmax, that of the
        scores; for sigmoid, the columns' sigmoids over their sum. Rows sum to 1, and
        the largest entry is the prediction, but nothing is calibrated: 0.9 does not
        mean that nine of ten are right.

        Args:
            nodes: see ``predict``.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: nodes that are not there.
            TypeError: nodes that are neither a mask nor ids.
        """
        self._check_fitted()
        index = formats.indices("nodes", nodes, len(self.labels_))
        self._tell(index)
        found = _scores.distribution(self.scores_[index], self._by[0])
        found[self._guessed[index]] = self.class_prior_
        return found.astype(self.scores_.dtype)

    def score(self, nodes: Any = None, labels: Any = None) -> float:
        """Return the accuracy on the nodes, or the ROC-AUC if ``metric`` says so.

        Args:
            nodes: boolean (n,), or node ids. If left out, all that have a label and
                that ``fit`` neither trained on nor chose by.
            labels: of all nodes, or, where ``nodes`` are ids, of these in their order;
                those that ``fit`` was given if left out. A class that no training node
                has is never right.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: nodes that are not there or have no label, another number of
                labels; a ROC-AUC of nodes of one class.
            TypeError: nodes that are neither a mask nor ids.
        """
        self._check_fitted()
        index, codes = formats.scored(
            nodes, labels, self._codes, classes=self.classes_, used=self._used
        )
        if self._by[1] == "accuracy":
            self._tell(index)
            return float(np.mean(self._predicted[index] == codes))
        return _scores.roc_auc(self.scores_[index], codes)

    def _keep(self, task: Task, chosen: Choice, found: Trajectory) -> None:
        """Set what is fitted, all at once.

        Raises:
            ValueError: scores that are not finite.
        """
        scores = np.asarray(found.predictions)
        told = found.report.divergences[0]
        if not np.isfinite(scores).all() or chosen.best_step == 0:
            why = told.explanation if told else "no step has a validation score"
            remedies = []
            if not told or "step size" in why:
                remedies.append("a smaller step_size")
            if told and told.safe_step_size == 0:
                remedies.append("an even power or an alpha of at most 0.5")
            msg = f"RP did not stay finite ({why}); take {', and '.join(remedies)}"
            raise ValueError(msg)
        if told and chosen.best_step >= told.step:
            msg = f"the residual grows from step {told.step} on: {told.explanation}"
            warnings.warn(msg, UserWarning, stacklevel=3)
        start = np.zeros_like(scores) if task.initial is None else task.initial
        counts = np.bincount(task.codes[task.train], minlength=len(task.classes))
        self.classes_, self.class_prior_ = task.classes, counts / counts.sum()
        self.scores_, self.reached_ = scores, (scores != start).any(axis=1)
        self._guessed = ~self.reached_ & (start == 0).all(axis=1)
        own = np.argmax(scores, axis=1)
        self._predicted = np.where(self._guessed, np.argmax(counts), own)
        self.labels_ = task.classes[self._predicted]
        self.power_, self.step_size_, self.best_step_ = chosen[:3]
        self.val_score_ = None if np.isnan(chosen.val) else chosen.val
        self.report_ = found.report
        self._codes, self._used = task.codes, task.used
        self._by = (self.loss, self.metric)  # set_params changes no fit
        self.__dict__.pop("n_features_in_", None)
        if task.num_features is not None:
            self.n_features_in_ = task.num_features

    def _tell(self, index: np.ndarray) -> None:
        count = int(self._guessed[index].sum())
        if count:
            guess = self.classes_.tolist()[np.argmax(self.class_prior_)]
            msg = (
                f"no label reaches {count} of {len(index)} nodes (see reached_); they "
                f"are given the most frequent training class, {guess!r}"
            )
            warnings.warn(msg, UserWarning, stacklevel=3)

    def _check_fitted(self) -> None:
        if not hasattr(self, "scores_"):
            msg = f"this {type(self).__name__} is not fitted; call fit(graph, labels)"
            raise NotFittedError(msg)
