"""Residual propagation as an estimator with fit and predict.

RP is transductive: ``fit`` takes the whole graph with the labels of some nodes, and
``predict`` returns those of all or of selected nodes. ``OnGraph`` makes the nodes the
samples, for scikit-learn's model selection. ``predict_on`` predicts the nodes of a
later graph, which is the inductive setting.
"""

import dataclasses
import warnings
from typing import Any, NoReturn

import numpy as np

from gnnrp.estimator import _calibration, _inputs, _new_nodes, _scores, _selection
from gnnrp.estimator._inputs import Inputs
from gnnrp.estimator._new_nodes import Predictions
from gnnrp.estimator._parameters import Parameters
from gnnrp.estimator._selection import Fit
from gnnrp.graph import formats, masks
from gnnrp.propagation import Divergence
from gnnrp.runtime import checks
from gnnrp.runtime.options import Options
from gnnrp.runtime.progress import Bar
from gnnrp.studies import presets
from gnnrp.types import MetricFn


class NotFittedError(ValueError, AttributeError):
    """Prediction before ``fit``; the bases are those of scikit-learn's error."""


@dataclasses.dataclass(eq=False, repr=False)
class ResidualPropagation(Parameters):
    """Classify the nodes of a graph by RP, S = A^K, or B Kn B with a feature kernel.

    Power, step size and number of steps are chosen by validation unless you set them,
    over the paper's grid: powers 1 to 10, step sizes 0.01 to 1, the best of 100 steps
    or of ``num_steps``. Validation uses ``val_mask``, or else held-out training nodes;
    the final fit then includes them and stops at the best step found without them. If
    all three are set and there is no ``val_mask``, the run takes all steps and holds
    out no node. Few validation nodes make many ties; the smallest power and step size
    win.

    Args:
        power: K, 0 or more.
        step_size: η > 0.
        num_steps: t, 1 or more.
        kernel: of the features, a name of ``kernels.features.KERNELS``; None uses the
            graph alone.
        gamma: γ of the kernel, positive.
        alpha: of a lazy walk (α A + (1 - α) I)^K, in [0, 1].
        row_normalize: subtract the minimum of the features, scale rows to sum to 1.
        hops: L of hop features, averages of the features over neighborhoods, which the
            kernel then compares; the Gaussian kernel if none is set.
        scaling: of hop features, "standard" (columns) or "cosine" (rows).
        center: start from the class shares of the training nodes, and center the
            kernel; by default with hop features only.
        similarity: "settings" or "auto", which tries a menu of similarities, sets all
            of the above, and keeps the best by validation, see ``studies.choice``.
        search_seconds: with "auto", time after which no other similarity is tried.
        directed: with "auto", try similarities that use the directions of the edges
            too, see ``propagation.similarity.Coupling``.
        loss: "squared", "absolute", "sigmoid" or "softmax".
        class_weight: weights of the residuals, "balanced" (one over the number of
            training nodes of the class) or {class: weight}, 1 by default; for the
            squared loss. They are divided by the largest, so that the same step sizes
            are stable.
        metric: of selection and ``score``, a name of ``metrics.NAMES`` or a function
            (scores, targets, mask) -> scalar, larger is better, which JAX can trace.
            For two classes, "roc_auc" and "average_precision" are those of the second
            class's scores, else the mean of the one-vs-rest ones. "neg_log_loss" is
            that of the probabilities of ``predict_proba``, before calibration in
            selection.
        calibrate: scale the probabilities by a temperature, which minimizes the log
            loss on ``val_mask`` after selection, or else on held-out training nodes of
            another run with the same settings. Predictions do not change.
        select: "first" or "last" of several best steps.
        method: see ``solvers.by_name``.
        precision: "float32", which is float64 if JAX has that enabled, or "float64",
            which leaves JAX's flags alone.
        holdout: share of the training nodes of each class that is held out.
        seed: of numpy's default generator, for holding out.
        verbose: show the progress of the selection on standard error.

    Attributes:
        classes_: (c,) sorted, those of the training nodes; no other is predicted. This
            and the following exist after ``fit``.
        class_prior_: (c,) their shares of the training nodes.
        scores_: F, (n, c).
        labels_: predictions for all nodes, (n,).
        reached_: (n,) nodes that a training label reached: RP changed their scores.
        power_: of the fit.
        step_size_: of the fit.
        similarity_: of the fit, in words.
        trials_: with "auto", the similarities tried with their scores; else None.
        skipped_: with "auto", similarities not tried, and the reason of each.
        best_step_: of the fit.
        val_score_: score of the selected setting on validation nodes of ``classes_``,
            or None; unreached nodes count as the first class, and have uniform
            probabilities.
        val_curve_: (t,) score on the nodes of ``val_mask`` after each step, or None.
        temperature_: T of ``predict_proba``, or None.
        report_: solver and divergence; see ``propagation.Report``.
        n_features_in_: with a kernel.

    A node that no label reaches, without a score from ``initial``, gets the most
    frequent training class (the first of several), and the class prior as its
    probabilities; ``fit`` and the predictions warn of their number. ``fit`` also warns
    if the best step is the last one while validation still rises, and if all nodes are
    predicted to be of one class.

    Source: Eq. 6, Algorithm 1 and App. D.1 (grid), E.1 (kernels).

    Example:
        >>> from gnnrp import ResidualPropagation
        >>> path = [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]
        >>> labels = ["red", None, None, None, None, "blue"]
        >>> model = ResidualPropagation(power=3, step_size=0.5, num_steps=20)
        >>> model.fit(path, labels).predict().tolist()
        ['red', 'red', 'red', 'blue', 'blue', 'blue']

        On top of another model, whose errors on the training nodes are propagated, as
        in Correct and Smooth; columns are those of the sorted classes:

        >>> other = [[0.9, 0.1]] * 6  # blue, red
        >>> model.fit(path, labels, initial=other).predict([1, 4]).tolist()
        ['red', 'blue']
    """

    power: int | None = None
    step_size: float | None = None
    num_steps: int | None = None
    kernel: str | None = None
    _: dataclasses.KW_ONLY
    gamma: float = 1.0
    alpha: float = 1.0
    row_normalize: bool = False
    hops: int | None = None
    scaling: str = "standard"
    center: bool | None = None
    similarity: str = "settings"
    search_seconds: float = 600.0
    directed: bool = False
    loss: str = "squared"
    class_weight: str | dict[Any, float] | None = None
    metric: str | MetricFn = "accuracy"
    calibrate: bool = False
    select: str = "first"
    method: str = "auto"
    precision: str = "float32"
    holdout: float = 0.2
    seed: int = 0
    verbose: bool = False

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
        node_ids: Any = None,
    ) -> "ResidualPropagation":
        """Run RP from the labels of the training nodes.

        Args:
            graph: edge index (2, e), scipy sparse, networkx (nodes in its order),
                ``jraph.GraphsTuple``, PyG's ``Data``, OGB's dict or its pair of that
                and labels, or a table of pandas with two columns of node ids and
                optionally "weight". A is made undirected. Weights of a sparse matrix,
                of networkx and tables ("weight") and of PyG (edge_weight) are used.
                Labels, features and masks of the graph (PyG's y, x, train_mask and
                val_mask) replace missing arguments.
            labels: (n,), of any type that can be sorted; -1, None, NaN and masked
                entries mean none.
            train_mask: boolean (n,), or node ids; by default all labeled nodes outside
                of ``val_mask``.
            features: (n, d), dense or scipy sparse; for a kernel.
            val_mask: boolean (n,), or node ids, for validation. Nodes of a class
                without training nodes count as errors.
            initial: F_0, (n, c): scores of another model, a column for each of
                ``classes_``; on the scale of one-hot rows (probabilities) for the
                squared loss, logits for softmax and sigmoid. If that model has seen the
                training labels, pass a ``val_mask`` that it has not seen.
            weights: of the edges, see ``graph.raw_adjacency``; they replace those of
                PyG. A warning names edge values of the graph that are not used.
            duplicates: how weights of repeated edges combine.
            signed: allow negative weights.
            node_ids: (n,), strings or numbers: the id of each row of labels and
                features, by which an edge index or a table names nodes. Without them,
                ids are positions from 0, as in masks and ``predict``.

        Raises:
            ValueError: inputs that do not match each other, parameters out of range, or
                scores that are not finite.
            TypeError: an object of another type.
        """
        params = self.get_params()
        settings = _inputs.parse_settings(params)
        checks.one_of("similarity", self.similarity, ("settings", "auto"))
        auto = self.similarity == "auto"
        if auto:
            self._check_free(initial)
        elif self.search_seconds != ResidualPropagation.search_seconds:
            msg = "search_seconds applies to similarity='auto' only; leave it out"
            raise ValueError(msg)
        elif self.directed:
            msg = "directed=True applies to similarity='auto' only; leave it out"
            raise ValueError(msg)
        data = formats.replace_arrays(
            formats.read(graph, weights, node_ids),
            labels=labels,
            train_mask=train_mask,
            val_mask=val_mask,
            features=features,
            weights=weights,
            duplicates=duplicates,
            signed=signed or None,
        )
        with presets.precision(settings.precision):
            inputs = _inputs.validate(
                data,
                initial,
                settings,
                self.metric,
                auto=auto,
                directed=self.directed,
            )
            inputs = _inputs.set_class_weights(inputs, self.class_weight)
            remarks = self._fit(inputs)
        for remark in remarks:
            warnings.warn(remark, UserWarning, stacklevel=2)
        self._warn_of_unreached(self._unreached)
        return self

    def _fit(self, inputs: Inputs, max_bytes: int | None = None) -> list[str]:
        """Choose, run and set the fitted attributes; return what to warn of."""
        params = self.get_params()
        with Bar(quiet=not self.verbose) as progress:
            options = Options(max_bytes=max_bytes, progress=progress)
            found = _selection.fit(inputs, params, options)
        self._set_results(inputs, found)
        # Later calls of set_params do not change the fit.
        self._fit_params, self._choice = params, found.choice
        self._fit_loss, self._fit_metric = self.loss, self.metric
        return list(found.trajectory.report.warnings.values())

    def refit(
        self,
        graph: Any,
        labels: Any = None,
        train_mask: Any = None,
        features: Any = None,
        *,
        weights: Any = None,
        duplicates: str | None = None,
        signed: bool = False,
        node_ids: Any = None,
    ) -> "ResidualPropagation":
        """Run RP again as ``fit`` chose, without choosing anew.

        For nodes, edges and labels that arrive later, and to train on the validation
        nodes too. The similarity, the time η t and the temperature stay those of
        ``fit``, and no node is held out. The parameters are those that ``fit`` had.

        Args:
            graph: see ``fit``, as for the other arguments.
            labels: (n,).
            train_mask: boolean (n,), or node ids; by default all labeled nodes.
            features: (n, d).
            weights: of the edges.
            duplicates: how weights of repeated edges combine.
            signed: allow negative weights.
            node_ids: (n,).

        Raises:
            NotFittedError: before ``fit``.
            ValueError: see ``fit``; or features of another number of columns.
            TypeError: an object of another type.
        """
        self._check_fitted()
        params, auto = self._fit_params, self._choice.candidate is not None
        data = formats.replace_arrays(
            formats.read(graph, weights, node_ids)._replace(val_mask=None),
            labels=labels,
            train_mask=train_mask,
            features=features,
            weights=weights,
            duplicates=duplicates,
            signed=signed or None,
        )
        settings = _inputs.parse_settings(params)
        with presets.precision(settings.precision):
            inputs = _inputs.validate(
                data,
                None,
                settings,
                params["metric"],
                auto=auto,
                directed=params["directed"],
            )
            self._check_num_features(inputs)
            inputs = _inputs.set_class_weights(inputs, params["class_weight"])
            self._refit(inputs)
        self._warn_of_unreached(self._unreached)
        return self

    def _refit(self, inputs: Inputs, max_bytes: int | None = None) -> None:
        """Run as ``fit`` chose, and set the fitted attributes."""
        found = _selection.refit(inputs, self._choice, max_bytes)
        self._set_results(inputs, found, self.temperature_)

    def predict_on(
        self,
        graph: Any,
        features: Any = None,
        initial: Any = None,
        *,
        weights: Any = None,
        duplicates: str | None = None,
        signed: bool = False,
        node_ids: Any = None,
    ) -> Predictions:
        """Predict the nodes of a later graph without another run of RP.

        The scores are F_0 + S[:, X] α, with S on the later graph and the coefficients α
        of the last fit or refit, which stays as it is. The later graph contains the
        nodes of the fit: by their ids if the fit had ``node_ids``, else as its first
        rows in the same order.

        Args:
            graph: see ``fit``; its labels and masks are ignored.
            features: (n, d), if the similarity compares features.
            initial: F_0 of the later graph, (n, c), if the fit had one.
            weights: of the edges.
            duplicates: how weights of repeated edges combine.
            signed: allow negative weights.
            node_ids: (n,); ids of nodes that are not training nodes may be missing.

        Returns:
            Labels, probabilities, scores and reached nodes of the later graph.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: training nodes are missing, or inputs do not match the fit.
            TypeError: an object of another type.

        Source: Eq. 6, summed over the steps.
        """
        self._check_fitted()
        data = formats.replace_arrays(
            formats.read(graph, weights, node_ids),
            features=features,
            weights=weights,
            duplicates=duplicates,
            signed=signed or None,
        )
        with presets.precision(self._fit_params["precision"]):
            later = _new_nodes.validate(self._run, data, initial)
            if self._coefficients is None:
                self._coefficients = _new_nodes.solve(self._run)
            scores = _new_nodes.score(self._run, self._coefficients, later)
        found = _scores.outcome(scores, later.start, self.class_prior_)
        self._warn_of_unreached(found.unreached, where="reached")
        labels = self.classes_[found.codes]
        p = self._probabilities(scores, found.unreached)
        return Predictions(labels, p, scores, found.reached)

    def _check_num_features(self, inputs: Inputs) -> None:
        """Refuse features that differ in number from those of ``fit``."""
        expected = getattr(self, "n_features_in_", None)
        if inputs.num_features != expected:
            msg = (
                f"features must have {expected or 'no'} columns, as in fit, got "
                f"{inputs.num_features or 'none'}"
            )
            raise ValueError(msg)

    def _check_free(self, initial: Any) -> None:
        """Refuse parameters that an automatic choice sets itself."""
        _inputs.check_free(self.get_params(), type(self)().get_params())
        if initial is not None:
            msg = "initial does not apply to similarity='auto'; leave it out"
            raise ValueError(msg)

    def predict(self, nodes: Any = None) -> np.ndarray:
        """Return the classes of the nodes.

        Args:
            nodes: boolean (n,), or node ids in any order; all by default.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: nodes that do not exist.
            TypeError: neither a mask nor ids.
        """
        index = self._index(nodes)
        return self.labels_[index]

    def predict_proba(self, nodes: Any = None) -> np.ndarray:
        """Return a distribution over ``classes_`` for each node, (q, c).

        For the squared and the absolute loss: scores clipped at 0, over their sum;
        rows without a positive score subtract their minimum instead. For softmax, the
        softmax of the scores; for sigmoid, the sigmoids over their sum. If calibrated,
        softmax(z / T) with ``temperature_`` T; z are the scores of softmax and sigmoid,
        and these shares for the other losses. The largest entry is the prediction.

        Args:
            nodes: see ``predict``, also for the errors.
        """
        index = self._index(nodes)
        return self._probabilities(self.scores_[index], self._unreached[index])

    def _probabilities(self, scores: np.ndarray, unreached: np.ndarray) -> np.ndarray:
        if self.temperature_ is None:
            result = _scores.probabilities(scores, self._fit_loss)
        else:
            result = _calibration.probabilities(
                scores, self._fit_loss, self.temperature_
            )
        result[unreached] = self.class_prior_
        return result

    def score(self, nodes: Any = None, labels: Any = None) -> float:
        """Return the metric on the nodes, by default the accuracy.

        Accuracy, balanced accuracy and macro F1 are those of ``predict``, the log loss
        is that of ``predict_proba``, and other metrics take ``scores_``.

        Args:
            nodes: boolean (n,), or node ids; by default the labeled nodes that ``fit``
                used neither to train nor to validate.
            labels: of all nodes, or, if ``nodes`` are ids, of these in their order; by
                default those of ``fit``. Classes without training nodes are always
                errors, count as one class, and have probability 0.

        Raises:
            ValueError: nodes without a label, another number of labels, or nodes of one
                class for a metric that needs two; see ``predict`` for other errors.
        """
        self._check_fitted()
        index, codes = masks.labeled_mask(
            nodes, labels, self._codes, classes=self.classes_, used=self._used
        )
        if self._fit_metric in _scores.OF_LABELS:
            self._warn_of_unreached(self._unreached[index])
            values = np.eye(len(self.classes_))[self._predicted[index]]
        elif self._fit_metric == "neg_log_loss":
            self._warn_of_unreached(self._unreached[index])
            values = self._probabilities(self.scores_[index], self._unreached[index])
        else:
            values = self.scores_[index]
        return _scores.evaluate(self._fit_metric, values, codes)

    def _index(self, nodes: Any) -> np.ndarray:
        """Return the ids of the nodes to predict, and warn of unreached ones."""
        self._check_fitted()
        index = masks.indices("nodes", nodes, len(self.labels_))
        self._warn_of_unreached(self._unreached[index], stacklevel=4)
        return index

    def _set_results(
        self, inputs: Inputs, found: Fit, temperature: float | None = None
    ) -> None:
        """Set the fitted attributes, all at once."""
        choice, trajectory, calibration = found
        scores = np.asarray(trajectory.predictions)
        growth = trajectory.report.divergences[0]
        if not np.isfinite(scores).all() or choice.best_step == 0:
            _refuse_divergence(growth)
        if growth and choice.best_step >= growth.step:
            msg = f"the residual grows from step {growth.step} on: {growth.explanation}"
            warnings.warn(msg, UserWarning, stacklevel=4)
        if calibration is not None:
            temperature = _calibration.fit(*calibration, inputs.settings.loss)
        self._run, self._coefficients = _new_nodes.keep(inputs, choice), None
        start = self._run.inputs.start()
        start = np.zeros_like(scores) if start is None else start
        counts = np.bincount(inputs.codes[inputs.train], minlength=len(inputs.classes))
        self.classes_, self.class_prior_ = inputs.classes, counts / counts.sum()
        outcome = _scores.outcome(scores, start, self.class_prior_)
        self.scores_, self.reached_ = scores, outcome.reached
        self._unreached, self._predicted = outcome.unreached, outcome.codes
        self.labels_ = inputs.classes[self._predicted]
        self.power_, self.step_size_, self.best_step_ = choice[:3]
        self.similarity_, self.trials_ = choice.similarity, choice.trials
        self.skipped_ = choice.skipped
        self.val_score_ = None if np.isnan(choice.val) else choice.val
        has_val = inputs.val.any()
        self.val_curve_ = np.ravel(trajectory.val) if has_val else None
        self.temperature_ = temperature
        self.report_ = trajectory.report
        self._codes, self._used = inputs.codes, inputs.used
        self.__dict__.pop("n_features_in_", None)
        if inputs.num_features is not None:
            self.n_features_in_ = inputs.num_features

    def _warn_of_unreached(
        self, unreached: np.ndarray, stacklevel: int = 3, where: str = "reached_"
    ) -> None:
        count = int(unreached.sum())
        if count:
            name = self.classes_.tolist()[np.argmax(self.class_prior_)]
            msg = (
                f"no label reaches {count} of {len(unreached)} nodes (see {where}); "
                f"they get the most frequent training class, {name!r}"
            )
            warnings.warn(msg, UserWarning, stacklevel=stacklevel)

    def _check_fitted(self) -> None:
        if not hasattr(self, "scores_"):
            msg = f"this {type(self).__name__} is not fitted; call fit(graph, labels)"
            raise NotFittedError(msg)


def _refuse_divergence(growth: Divergence | None) -> NoReturn:
    reason = growth.explanation if growth else "no step has a validation score"
    remedies = []
    if not growth or "step size" in reason:
        remedies.append("a smaller step_size")
    if growth and growth.safe_step_size == 0:
        remedies.append("an even power or an alpha of at most 0.5")
    msg = f"RP did not stay finite ({reason}); take {', and '.join(remedies)}"
    raise ValueError(msg)
