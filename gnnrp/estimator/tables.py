"""Fit the estimator to a graph in tables: a prediction for each node, and a record."""

import time
import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from gnnrp import metrics
from gnnrp.estimator import _inputs, _scores
from gnnrp.estimator._inputs import Inputs
from gnnrp.estimator._selection import held_out
from gnnrp.estimator.residual_propagation import ResidualPropagation
from gnnrp.graph import formats
from gnnrp.runtime import checks
from gnnrp.studies import presets, records
from gnnrp.tables.graph_tables import GraphTables

HOLDOUT = 0.2
_IN_PERCENT = (*_scores.OF_LABELS, "calibration_error")


class Result(NamedTuple):
    """Predictions, one row for each node, and the record of the fit."""

    predictions: dict[str, np.ndarray]  # column -> (n,)
    record: dict[str, Any]


def run(
    tables: GraphTables,
    model: ResidualPropagation,
    *,
    holdout: float = HOLDOUT,
    seed: int = 0,
    duplicates: str | None = None,
    signed: bool = False,
) -> Result:
    """Choose by validation, score held-out labels once, and predict with all labels.

    A share of the labels of each class is held out as a test, and the same share of the
    others validates the choice. The test is scored after a refit on all other labels.
    The predictions come from a refit on all labels.

    Args:
        tables: see ``datasets.graph_tables.make``.
        model: an estimator that is not fitted; it is fitted here.
        holdout: share of the labels of each class for the test, in (0, 1).
        seed: of the held-out shares.
        duplicates: rule for repeated weighted edges, see ``fit``.
        signed: allow negative weights.

    Raises:
        ValueError: a share outside of (0, 1), fewer than two classes with three labels,
            or what ``fit`` refuses.
    """
    checks.in_interval("holdout", holdout, 0, 1)
    began = time.perf_counter()
    known = tables.codes >= 0
    test = held_out(tables.codes, known, fraction=holdout, seed=seed)
    train = known & ~test
    val = held_out(tables.codes, train, fraction=holdout, seed=seed + 1)
    inputs = _inputs_of(tables, model, duplicates=duplicates, signed=signed)
    remarks = model._fit(inputs.on(train & ~val, val))
    chosen = time.perf_counter()
    curve, val_score = model.val_curve_, model.val_score_
    model._refit(inputs.on(train))
    heldout = _score(model, tables, test)
    model._refit(inputs.on(known))
    record = {
        "metric": model.metric,
        "nodes": len(tables.ids),
        "edges": tables.edges.shape[1],
        "labels": int(known.sum()),
        "features": [] if tables.features is None else list(tables.features.names),
        "dropped": tables.dropped,
        "similarity": model.similarity_,
        "step_size": model.step_size_,
        "best_step": model.best_step_,
        "trials": model.trials_,
        "skipped": model.skipped_,
        "val_score": val_score,
        "val_curve": None if curve is None else curve.tolist(),
        "heldout": heldout,
        "classes": _classes(model, tables),
        "warnings": remarks,
        "unreached": int((~model.reached_).sum()),
        "seconds": {
            "choice": round(chosen - began, 3),
            "all": round(time.perf_counter() - began, 3),
        },
        "versions": records.versions(),
    }
    return Result(_predictions(model, tables), record)


def _inputs_of(
    tables: GraphTables,
    model: ResidualPropagation,
    *,
    duplicates: str | None,
    signed: bool,
) -> Inputs:
    """Return the inputs of a fit with all labels, validated once."""
    data = formats.replace_arrays(
        formats.read(tables.edges, tables.weights),
        labels=tables.codes,
        features=None if tables.features is None else tables.features.matrix,
        weights=tables.weights,
        duplicates=duplicates,
        signed=signed or None,
    )
    settings = _inputs.parse_settings(model.get_params())
    return _inputs.validate(data, None, settings, model.metric, auto=True)


def _score(
    model: ResidualPropagation, tables: GraphTables, test: Bool[np.ndarray, " n"]
) -> dict[str, Any]:
    """Return the scores of held-out nodes, and their confusion matrix."""
    nodes = np.flatnonzero(test)
    codes, num_classes = tables.codes[nodes], len(tables.classes)
    predictions = model.labels_[nodes]
    one_hot = np.eye(num_classes)
    scores = {
        name: _scores.evaluate(name, one_hot[predictions], codes)
        for name in _scores.OF_LABELS
    }
    p = _probabilities(model)[nodes].astype(np.float64)
    with presets.precision("float64"):
        arrays = map(jnp.asarray, (p, one_hot[codes], np.ones(len(nodes), bool)))
        error = float(metrics.expected_calibration_error(*arrays))
    return {
        "nodes": len(nodes),
        **scores,
        "log_loss": -_scores.evaluate("neg_log_loss", p, codes),
        "calibration_error": error,
        "confusion": confusion(codes, predictions, num_classes).tolist(),
    }


def _probabilities(model: ResidualPropagation) -> Float[np.ndarray, "n c"]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "no label reaches")  # the record counts them
        return model.predict_proba()


def confusion(
    labels: Int[np.ndarray, " q"], predictions: Int[np.ndarray, " q"], num_classes: int
) -> Int[np.ndarray, "c c"]:
    """Return the number of nodes of class i that are predicted as j."""
    pairs = labels * num_classes + predictions
    counts = np.bincount(pairs, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes)


def _classes(
    model: ResidualPropagation, tables: GraphTables
) -> dict[str, dict[str, int]]:
    """Return the number of labels and predictions of each class."""
    labels = np.bincount(tables.codes[tables.codes >= 0], minlength=len(tables.classes))
    found = np.bincount(model.labels_, minlength=len(tables.classes))
    return {
        str(name): {"labels": int(i), "predictions": int(j)}
        for name, i, j in zip(tables.classes, labels, found, strict=True)
    }


def _predictions(
    model: ResidualPropagation, tables: GraphTables
) -> dict[str, np.ndarray]:
    """Return the columns of the predictions."""
    probabilities = _probabilities(model)
    ordered = np.sort(probabilities, axis=1)
    given = np.append(tables.classes, "")[tables.codes]  # -1: the empty text
    columns = {
        "id": tables.ids,
        "prediction": tables.classes[model.labels_],
        "given": given,
        "margin": ordered[:, -1] - ordered[:, -2],
        "reached": model.reached_,
    }
    for column, code in enumerate(model.classes_.tolist()):
        columns[f"p({tables.classes[code]})"] = probabilities[:, column]
    return columns


def report(record: dict[str, Any]) -> str:
    """Return the record as text for a terminal."""
    heldout, seconds = record["heldout"], record["seconds"]
    width = max(map(len, record["classes"]), default=0)
    dropped = [
        f"{count:,} {name}" for name, count in record["dropped"].items() if count
    ]
    lines = [
        f"{record['nodes']:,} nodes, {record['edges']:,} edges, "
        f"{record['labels']:,} labels, {len(record['features'])} features",
        f"not used, or filled in: {', '.join(dropped) or 'nothing'}",
        "",
        f"{record['similarity']}, step {record['best_step']} of size "
        f"{record['step_size']:.3g}",
        "",
        f"{heldout['nodes']} held-out labels, in percent:",
        *(f"  {_words(name):20}{100 * heldout[name]:6.1f}" for name in _IN_PERCENT),
        "",
        f"{'class':{width + 2}}{'labels':>10}{'predictions':>14}",
        *(
            f"{name:{width + 2}}{counts['labels']:>10,}{counts['predictions']:>14,}"
            for name, counts in record["classes"].items()
        ),
        "",
        f"choice {seconds['choice']:.1f} s, all {seconds['all']:.1f} s",
        f"Predictions: {record['out']}",
    ]
    notes = list(record["warnings"])
    if record["unreached"]:
        notes.append(f"no label reaches {record['unreached']:,} nodes")
    lines[-2:-2] = [f"note: {note}" for note in notes]
    return "\n".join(lines)


def _words(name: str) -> str:
    return name.replace("_", " ")
