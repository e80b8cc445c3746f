"""Results that may mislead are remarked on, once a run, and ordinary ones are not."""

import contextlib
import itertools
import json
import warnings

import generators
import jax.numpy as jnp
import numpy as np
import pytest
from generators import N

from gnnrp import ResidualPropagation, cli, datasets, graph, metrics, sparse
from gnnrp.propagation import similarity, solvers
from gnnrp.runtime import streams
from gnnrp.studies import presets
from gnnrp.studies import rp as rp_study
from gnnrp.types import Split

LATE = r"the validation score is best at the last of 4 steps"
SAME = "all nodes are predicted to be of one class"
S = similarity.Power(generators.adjacency(0), 2)
TARGETS, SPLIT = generators.targets(0), generators.split(0)
NOBODY = np.zeros(N, bool)
COMPLETE = np.array(list(itertools.combinations(range(12), 2))).T
CLASSES = np.arange(12) % 3 // 2  # two thirds are of class 0


def largest(scores, targets, mask):
    """Return a score that rises with every step."""
    del targets
    return jnp.max(jnp.where(mask[:, None], scores, -jnp.inf))


def until_two(scores, targets, mask):
    """Return a score that no step after the second improves."""
    return jnp.minimum(largest(scores, targets, mask), 0.1)


def run(S=S, targets=TARGETS, split=SPLIT, **settings):
    defaults = {"step_size": 0.05, "num_steps": 4, "metric": largest}
    return generators.run(S, targets, split, **(defaults | settings))


@contextlib.contextmanager
def silence():
    """Refuse every warning, that one too which the test suite ignores."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def collapsed(**settings):
    """Run on a complete graph, whose S has one eigenvector: rows of F are equal."""
    flow = similarity.Power(sparse.prepare(graph.normalized_adjacency(COMPLETE, 12)), 1)
    train = np.arange(12) < 5
    settings = {"metric": metrics.accuracy} | settings
    split = settings.pop("split", Split(train, ~train, np.zeros(12, bool)))
    targets = settings.pop("targets", np.eye(2)[CLASSES])
    return run(flow, targets, split, **settings)


@pytest.mark.long
@pytest.mark.parametrize("method", solvers.NAMES[1:])
def test_a_score_that_still_rises_at_the_last_step_is_remarked_on(method):
    with pytest.warns(UserWarning, match=LATE) as told:
        found = run(method=method)
    assert len(told) == 1
    assert found.best_step == 4
    assert list(found.report.warnings) == ["last step"]


@pytest.mark.long
def test_splits_share_one_remark():
    split = generators.splits(0, ((6, 4, 3), (6, 4, 3)))
    split.val[1] = False
    with pytest.warns(UserWarning, match=f"{LATE} in 1 of 2 splits") as told:
        run(split=split)
    assert len(told) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"num_steps": 1},
        {"split": SPLIT._replace(val=NOBODY)},
        {"metric": until_two, "num_steps": 40, "select": "first"},
        {"metric": until_two, "num_steps": 40, "select": "last"},  # a plateau
        {"patience": 2, "metric": until_two, "num_steps": 40},
    ],
)
def test_a_choice_before_the_last_step_or_none_at_all_is_not_remarked_on(settings):
    with silence():
        assert run(**settings).report.warnings == {}


def test_many_step_sizes_at_once_only_report():
    with silence():
        first, second = generators.run(
            S, TARGETS, SPLIT, step_sizes=[0.01, 0.05], num_steps=4, metric=largest
        )
    assert "last step" in first.report.warnings
    assert "last step" in second.report.warnings


@pytest.mark.long
@pytest.mark.parametrize("method", solvers.NAMES[1:])
def test_predictions_of_one_class_are_remarked_on(method):
    with pytest.warns(UserWarning, match=SAME) as told:
        found = collapsed(method=method)
    assert len(told) == 1
    assert set(np.argmax(found.predictions, axis=1)) == {0}


@pytest.mark.long
def test_without_nodes_to_judge_one_class_is_still_remarked_on():
    train = np.arange(12) < 5
    nobody = np.zeros(12, bool)
    with pytest.warns(UserWarning, match=SAME):
        collapsed(split=Split(train, nobody, nobody))


@pytest.mark.long
def test_one_class_is_no_fault_where_nothing_else_was_to_be_learned():
    one = np.eye(2)[np.zeros(12, int)]
    several_tasks = np.ones((12, 2))
    with silence():
        collapsed(targets=one)
        collapsed(targets=several_tasks)
        collapsed(targets=np.linspace(0, 1, 24).reshape(12, 2))


@pytest.mark.long
def test_scores_that_rank_well_may_be_of_one_class():
    A = sparse.prepare(graph.normalized_adjacency([[0, 1, 2, 4], [1, 2, 3, 5]], 7))
    targets = np.eye(2)[[0, 0, 0, 0, 0, 1, 0]]
    mask = np.array([1, 0, 0, 0, 0, 1, 0], bool)
    split = Split(mask, ~mask, ~mask)
    start = np.tile([1.0, 0.0], (7, 1))
    settings = {"split": split, "initial": start, "step_size": 0.1, "num_steps": 1}
    targets[4] = [0, 1]
    with silence():
        run(A, targets, **settings, metric=metrics.roc_auc_to_round_off)
    with pytest.warns(UserWarning, match=SAME):
        run(A, targets, **settings, metric=metrics.accuracy)


def test_the_estimator_remarks_once_on_either():
    train = np.arange(12) < 5
    model = ResidualPropagation(power=1, step_size=0.5, num_steps=3)
    with pytest.warns(UserWarning, match=SAME) as told:
        model.fit(COMPLETE, CLASSES, train)
    assert len(told) == 1


def fit(seed, *, holds_out, select):
    """Fit with the step size free, from random scores; at most three steps."""
    num_nodes = 40
    rng = np.random.default_rng(seed)
    labels, order = rng.integers(0, 2, num_nodes), rng.permutation(num_nodes)
    train, val = (np.isin(np.arange(num_nodes), part) for part in np.split(order, [16]))
    val &= ~np.isin(np.arange(num_nodes), order[30:])
    start = 0.4 * np.eye(2)[rng.integers(0, 2, num_nodes)]
    edges = generators.edges(seed, num_nodes, 70)
    model = ResidualPropagation(power=2, num_steps=3, select=select, holdout=0.5)
    chosen_by = {} if holds_out else {"val_mask": val}
    return model.fit(edges, labels, train, initial=start, **chosen_by)


@pytest.mark.long
@pytest.mark.parametrize("select", ["first", "last"])
@pytest.mark.parametrize(("seed", "holds_out"), [(6, True), (7, False)])
def test_the_estimator_remarks_on_a_choice_that_is_the_last_step(
    seed, holds_out, select
):
    with pytest.warns(UserWarning, match="best at the last of 3 steps") as told:
        model = fit(seed, holds_out=holds_out, select=select)
    assert len(told) == 1
    assert model.best_step_ == 3


@pytest.mark.long
@pytest.mark.parametrize("holds_out", [True, False])
def test_the_estimator_does_not_remark_on_the_end_of_a_plateau(holds_out):
    with silence():
        assert fit(2, holds_out=holds_out, select="last").best_step_ == 3


@pytest.mark.long
def test_a_command_prints_a_remark_as_one_line(capsys):
    flags = "rp --kernel none --power 8 --step-size 0.5 --num-steps 3 --json --quiet"
    assert cli.main(flags.split()) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["splits"][0]["best_step"] == 3
    assert printed.err == (
        "gnnrp: the validation score is best at the last of 3 steps and may still "
        "rise; take more steps\n"
    )


@pytest.mark.long
def test_commands_print_each_user_warning_once_and_leave_the_others(capsys):
    def told():
        with streams.warning_lines():
            for message in ("odd", "odd", "even"):
                warnings.warn(message, UserWarning, stacklevel=1)
            warnings.warn("old", DeprecationWarning, stacklevel=1)

    with pytest.warns(DeprecationWarning, match="old"):
        told()
    assert capsys.readouterr().err == "gnnrp: odd\ngnnrp: even\n"


@pytest.mark.long
def test_ordinary_runs_of_the_embedded_graph_are_not_remarked_on():
    data = datasets.load("sbm")
    train, val, _ = (mask[0] for mask in data.splits)
    with silence():
        rp_study.run(data, presets.settings("sbm"))
        ResidualPropagation(power=8).fit(data.edges, data.labels, train, val_mask=val)
