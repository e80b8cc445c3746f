"""Fit the estimator to a graph in tables: a prediction for each node, and a record."""

import time
import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from gnnrp import graph, metrics
from gnnrp.estimator import _calibration, _inputs, _scores
from gnnrp.estimator._inputs import Inputs
from gnnrp.estimator._selection import held_out
from gnnrp.estimator.residual_propagation import ResidualPropagation
from gnnrp.graph import formats
from gnnrp.runtime import checks, memory, safe_text
from gnnrp.studies import presets, records
from gnnrp.tables.graph_tables import GraphTables

HOLDOUT = 0.2
SEARCH_SECONDS = 30.0
COMPILED = 2**28  # bytes of the compiled functions of a search, estimated
_IN_PERCENT = (*_scores.OF_LABELS, "calibration_error")


class Result(NamedTuple):
    """Predictions, one row for each node, the record of the fit, and the estimator."""

    predictions: dict[str, np.ndarray]  # column -> (n,)
    record: dict[str, Any]
    model: ResidualPropagation


def run(
    tables: GraphTables,
    *,
    search_seconds: float = SEARCH_SECONDS,
    metric: str = "accuracy",
    holdout: float = HOLDOUT,
    seed: int = 0,
    verbose: bool = False,
    max_bytes: int | None = None,
) -> Result:
    """Choose by validation, score held-out labels once, and predict with all labels.

    A share of the labels of each class is held out as a test, and the same share of the
    others validates the choice and calibrates the probabilities. The test is scored
    after a refit on all other labels, and the predictions are those of a refit on all
    labels.

    Args:
        tables: see ``tables.graph_tables.make``.
        search_seconds: time after which no other similarity is tried.
        metric: of the choice, a name of ``metrics.NAMES``.
        holdout: share of the labels of each class for the test, in (0, 0.5].
        seed: of the held-out shares.
        verbose: show the progress of the search on standard error.
        max_bytes: memory limit; that of the machine by default. Similarities that do
            not fit are not tried.

    Raises:
        ValueError: a share out of range, too few labels, a limit below the memory of
            the simplest similarity, or what ``fit`` refuses.
    """
    checks.positive("holdout", holdout)
    checks.in_interval("holdout", holdout, 0, 0.5)
    model = ResidualPropagation(
        similarity="auto",
        search_seconds=search_seconds,
        directed=tables.settings.directed,
        metric=metric,
        seed=seed,
        verbose=verbose,
    )
    began = time.perf_counter()
    known = tables.codes >= 0
    test, val = _held_out(tables.codes, holdout, seed)
    inputs = _inputs_of(tables, model, max_bytes)
    remarks = model._fit(inputs.on(known & ~test & ~val, val), max_bytes)
    remarks += _calibrate(model, tables.codes, np.flatnonzero(val))
    chosen = time.perf_counter()
    curve, val_score = model.val_curve_, model.val_score_
    model._refit(inputs.on(known & ~test), max_bytes)
    heldout = _score(model, tables, test)
    model._refit(inputs.on(known), max_bytes)
    over = time.perf_counter()
    record = {
        "metric": metric,
        **_describe(model, tables),
        "val_score": val_score,
        "val_curve": None if curve is None else curve.tolist(),
        "heldout": heldout,
        "warnings": remarks,
        "seconds": {"choice": round(chosen - began, 3), "all": round(over - began, 3)},
        "versions": records.versions(),
    }
    return Result(_predictions(model, tables), record, model)


def _describe(model: ResidualPropagation, tables: GraphTables) -> dict[str, Any]:
    """Return the sizes of the tables, and what was chosen."""
    return {
        "nodes": len(tables.ids),
        "edges": tables.edges.shape[1] - tables.dropped["repeated edges"],
        "weighted": tables.weights is not None,
        "directed": tables.settings.directed,
        "labels": int((tables.codes >= 0).sum()),
        "features": [] if tables.features is None else list(tables.features.names),
        "dropped": tables.dropped,
        "similarity": model.similarity_,
        "step_size": model.step_size_,
        "best_step": model.best_step_,
        "trials": model.trials_,
        "skipped": model.skipped_,
        "temperature": model.temperature_,
        "classes": _classes(model, tables),
        "unreached": int((~model.reached_).sum()),
    }


def _held_out(
    codes: Int[np.ndarray, " n"], holdout: float, seed: int
) -> tuple[Bool[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Return the masks of test and validation nodes.

    Raises:
        ValueError: no class has three labels, or enough for both shares.
    """
    known = codes >= 0
    counts = np.bincount(codes[known])
    try:
        test = held_out(codes, known, fraction=holdout, seed=seed)
        val = held_out(codes, known & ~test, fraction=holdout, seed=seed + 1)
    except ValueError as error:
        msg = (
            f"{counts.sum()} labels of {len(counts)} classes, at most {counts.max()} a "
            "class, are too few to train, validate and test; add labels"
        )
        raise ValueError(msg) from error
    return test, val


def _inputs_of(
    tables: GraphTables, model: ResidualPropagation, max_bytes: int | None
) -> Inputs:
    """Return the inputs of a fit with all labels, validated once."""
    _check_memory(tables, max_bytes)
    rule = tables.settings.duplicates
    data = formats.replace_arrays(
        formats.read(tables.edges, tables.weights),
        labels=tables.codes,
        features=None if tables.features is None else tables.features.matrix,
        weights=tables.weights,
        duplicates=None if rule == "error" else rule,
        signed=tables.settings.signed or None,
    )
    settings = _inputs.parse_settings(model.get_params())
    return _inputs.validate(
        data,
        None,
        settings,
        model.metric,
        auto=True,
        directed=model.directed,
        max_bytes=max_bytes,
    )


def _check_memory(tables: GraphTables, max_bytes: int | None) -> None:
    """Refuse a graph along which no run fits, before its adjacency is built.

    Raises:
        ShortageError: a limit that is too low; the message names one that is not.
    """
    num_nodes, num_edges = len(tables.ids), tables.edges.shape[1]
    num_labels = int((tables.codes >= 0).sum())
    shape = num_nodes, len(tables.classes)
    num_adjacencies = 1 + tables.settings.directed
    needed = num_adjacencies * graph.peak_bytes(num_nodes, num_edges) + COMPILED
    memory.check(
        f"a fit of {num_nodes:,} nodes and {num_edges:,} edges",
        needed + _inputs.run_bytes(shape, num_labels, num_labels),
        memory.room(max_bytes),
        "take a smaller graph",
    )


def _calibrate(
    model: ResidualPropagation, codes: Int[np.ndarray, " n"], val: Int[np.ndarray, " q"]
) -> list[str]:
    """Set the temperature, or return why there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            scores = model.scores_[val]
            model.temperature_ = _calibration.fit(scores, codes[val], "squared")
    except (UserWarning, ValueError):
        return [
            f"the probabilities are not calibrated, which the {len(val)} validation "
            "nodes do not allow; more labels may"
        ]
    return []


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
    names = {name: safe_text.line(name, 30) for name in record["classes"]}
    width = max(map(len, names.values()))
    dropped = [
        f"{count:,} {name}" for name, count in record["dropped"].items() if count
    ]
    lines = [
        f"{record['nodes']:,} nodes, {record['edges']:,} "
        f"{'directed ' if record['directed'] else ''}"
        f"{'weighted' if record['weighted'] else 'unweighted'} edges, "
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
            f"{names[name]:{width + 2}}{each['labels']:>10,}{each['predictions']:>14,}"
            for name, each in record["classes"].items()
        ),
        "",
        f"choice {seconds['choice']:.1f} s, all {seconds['all']:.1f} s",
    ]
    notes = list(record["warnings"])
    if record["unreached"]:
        notes.append(f"no label reaches {record['unreached']:,} nodes")
    lines[-1:-1] = [f"note: {note}" for note in notes]
    return "\n".join(lines)


def _words(name: str) -> str:
    return name.replace("_", " ")
