"""Fits to tables: held-out labels are scored once, and all labels predict."""

import re
import warnings

import numpy as np
import pytest
import sklearn.metrics

from gnnrp import ResidualPropagation
from gnnrp.estimator import tables as own_tables
from gnnrp.estimator._selection import held_out
from gnnrp.runtime import memory, progress
from gnnrp.studies import choice, presets
from gnnrp.studies.candidates import Candidate
from gnnrp.tables import feature_columns, graph_tables
from gnnrp.tables.settings import TableSettings

N = 60


def example(seed=0, *, labeled=30, with_features=True):
    """Return a graph of two noisy communities with ids."""
    rng = np.random.default_rng(seed)
    group = np.arange(N) % 2
    edges = [
        (i, j)
        for i in range(N)
        for j in range(i)
        if rng.random() < (0.2 if group[i] == group[j] else 0.03)
    ]
    codes = np.full(N, -1)
    chosen = rng.choice(N, labeled, replace=False)
    codes[chosen] = group[chosen]
    matrix = (rng.normal(size=(N, 2)) + group[:, None]).astype(np.float32)
    features = feature_columns.Features(matrix, ("x", "y"), 0, ())
    return graph_tables.GraphTables(
        np.array([f"n{i}" for i in range(N)]),
        np.array(edges).T,
        None,
        codes,
        np.array(["even", "odd"]),
        features if with_features else None,
        {"self-loops": 0, "repeated edges": 0},
        TableSettings(),
    )


def auto():
    return ResidualPropagation(similarity="auto", search_seconds=60)


def run(tables, **settings):
    return own_tables.run(tables, search_seconds=60, **settings)


@pytest.fixture(scope="module")
def result():
    return run(example())


def test_predictions_have_a_row_for_each_node(result):
    columns = result.predictions
    assert list(columns) == [
        *("id", "prediction", "given", "margin", "reached", "p(even)", "p(odd)")
    ]
    assert all(len(values) == N for values in columns.values())
    probabilities = np.stack([columns["p(even)"], columns["p(odd)"]], axis=1)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    largest = np.array(["even", "odd"])[probabilities.argmax(axis=1)]
    np.testing.assert_array_equal(columns["prediction"], largest)
    np.testing.assert_allclose(
        columns["margin"], np.abs(np.diff(probabilities, axis=1))[:, 0], rtol=1e-6
    )
    given = np.array(["even", "odd", ""])[example().codes]
    np.testing.assert_array_equal(columns["given"], given)


def test_most_nodes_are_classified_as_they_are(result):
    group = np.array(["even", "odd"])[np.arange(N) % 2]
    assert np.mean(result.predictions["prediction"] == group) > 0.8


@pytest.mark.filterwarnings("ignore:no label reaches")
def test_the_choice_does_not_see_held_out_labels_and_the_test_sees_all_others():
    tables = example()
    here = run(tables).record
    known = tables.codes >= 0
    test = held_out(tables.codes, known, fraction=0.2, seed=0)
    val = held_out(tables.codes, known & ~test, fraction=0.2, seed=1)
    features = tables.features.matrix
    hidden = np.where(test, -1, tables.codes)
    model = auto().fit(tables.edges, hidden, ~test & known & ~val, features, val)
    assert model.similarity_ == here["similarity"]
    assert model.val_score_ == here["val_score"]
    model.refit(tables.edges, hidden, features=features)
    accuracy = np.mean(model.labels_[test] == tables.codes[test])
    assert accuracy == pytest.approx(here["heldout"]["accuracy"])


def test_scores_of_held_out_nodes_are_those_of_scikit_learn(result):
    heldout = result.record["heldout"]
    matrix = np.array(heldout["confusion"])
    labels, predictions = (
        np.repeat(index.ravel(), matrix.ravel()) for index in np.indices(matrix.shape)
    )
    assert len(labels) == heldout["nodes"]
    for name, value in (
        ("accuracy", sklearn.metrics.accuracy_score(labels, predictions)),
        (
            "balanced_accuracy",
            sklearn.metrics.balanced_accuracy_score(labels, predictions),
        ),
        ("macro_f1", sklearn.metrics.f1_score(labels, predictions, average="macro")),
    ):
        assert heldout[name] == pytest.approx(value, abs=1e-12)


def test_probabilities_stay_as_they_are_where_no_temperature_is_best():
    record = run(example(labeled=12)).record
    assert record["temperature"] is None
    assert "are not calibrated" in record["warnings"][-1]


def test_without_features_powers_of_the_adjacency_are_tried():
    found = run(example(with_features=False)).record
    assert [trial["name"] for trial in found["trials"]] == ["A", "A^2", "A^4", "A^8"]
    assert found["features"] == []


def test_the_report_states_scores_classes_and_what_was_not_used(result):
    record = result.record | {"dropped": {"self-loops": 3}}
    record |= {"warnings": ["a remark"], "unreached": 2}
    text = own_tables.report(record)
    for part in (
        "60 nodes",
        "30 labels",
        "3 self-loops",
        "6 held-out labels",
        "note: a remark",
        "note: no label reaches 2 nodes",
        "unweighted edges",
    ):
        assert part in text


def test_a_limit_that_is_too_low_is_refused_and_the_one_it_names_fits():
    tables = example()
    with pytest.raises(ValueError, match=r"a fit of 60 nodes and .* edges") as low:
        run(tables, max_bytes=10**6)
    found = re.search(r"raise the limit to ([0-9.,]+ [GM]B)$", str(low.value))
    assert found, low.value
    record = run(tables, max_bytes=memory.parse(found[1].replace(",", ""))).record
    assert record["trials"]


def test_similarities_that_do_not_fit_are_skipped_with_the_reason(monkeypatch):
    tables = example()
    left = 10**8  # no kernel takes less here
    monkeypatch.setattr(own_tables, "COMPILED", 0)
    monkeypatch.setattr(choice.features, "distance_bytes", lambda *_, **__: left)

    def room(max_bytes=None):
        return memory.Room(10**9 if max_bytes is None else left, left, "allowed")

    monkeypatch.setattr(memory, "room", room)
    record = run(tables, max_bytes=10**8).record
    assert [trial["name"] for trial in record["trials"]] == ["A", "A^2", "A^4", "A^8"]
    assert all("its dense kernel takes" in x for x in record["skipped"].values())
    assert record["skipped"]


def test_classes_that_only_the_senders_show_are_found_along_the_directions(
    monkeypatch,
):
    # Senders have the sign of the class and receivers the other one: their mean is 0.
    kind = np.arange(N) % 4
    sign, group = np.array([1, -1, -1, 1])[kind], np.array([1, 1, 0, 0])[kind]
    senders = np.tile(np.arange(N), 3)
    edges = np.stack([senders, (senders + np.repeat([1, 9, 21], N)) % N])
    matrix = sign[:, None].astype(np.float32)
    tables = example(labeled=40)._replace(
        edges=edges,
        features=feature_columns.Features(matrix, ("sign",), 0, ()),
        settings=TableSettings(directed=True),
    )
    tables = tables._replace(codes=np.where(tables.codes < 0, -1, group))
    names, accuracy = np.array(["even", "odd"])[group], {}
    for directed in (True, False):
        part = presets.hop_settings(1)
        candidate = Candidate((part,), directed=(directed,))
        monkeypatch.setattr(choice, "_menu", lambda *_, one=candidate: iter([one]))
        result = run(tables)
        accuracy[directed] = np.mean(result.predictions["prediction"] == names)
        before = result.model.labels_
        again = result.model.refit(tables.edges, tables.codes, features=matrix)
        np.testing.assert_array_equal(again.labels_, before)
    assert accuracy[True] == 1
    assert accuracy[False] < 0.9
    assert "directed unweighted edges" in own_tables.report(result.record)


def test_directions_are_one_of_the_choices_of_an_automatic_fit_only():
    model = ResidualPropagation(directed=True)
    with pytest.raises(ValueError, match="directed=True applies to similarity='auto'"):
        model.fit(example().edges, example().codes)


@pytest.mark.parametrize("holdout", [-0.1, 0, 0.6, float("nan")])
def test_a_share_out_of_range_is_refused(holdout):
    with pytest.raises(ValueError, match="holdout must"):
        run(example(), holdout=holdout)


def test_too_few_labels_to_hold_out_are_refused():
    with pytest.raises(ValueError, match="2 labels of 2 classes, at most 2 a"):
        run(example(labeled=2))


@pytest.mark.parametrize("params", [{"similarity": "auto"}, {}])
def test_a_verbose_fit_reports_its_progress(params, capsys, monkeypatch):
    monkeypatch.setattr(progress, "FIRST", 0.0)
    tables = example(with_features=False)
    settings = {"search_seconds": 60.0} if params else {}
    for verbose in (False, True):
        model = ResidualPropagation(verbose=verbose, **params, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of the graph
            model.fit(tables.edges, tables.codes)
        captured = capsys.readouterr()
        assert captured.out == ""
        assert bool(captured.err) == verbose
