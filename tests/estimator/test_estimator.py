"""What the estimator fits is RP, whatever it is given, and it says what it guesses."""

import copy
import pickle
import subprocess
import sys
import types
import warnings

import generators
import jax
import jax.numpy as jnp
import jraph
import networkx as nx
import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, ParameterGrid, cross_val_score

from gnnrp import ResidualPropagation, metrics
from gnnrp.datasets import sbm
from gnnrp.estimator import NotFittedError, OnGraph, _selection
from gnnrp.kernels import features as feature_kernels
from gnnrp.propagation import losses, similarity, sweep
from gnnrp.types import Split

N, C = generators.N, generators.C
FIXED = {"power": 3, "step_size": 0.5, "num_steps": 9}
EDGES = generators.edges(0)
CODES = generators.targets(0).argmax(axis=1)
X = np.random.default_rng(1).standard_normal((N, 4))
TRAIN, VAL, _ = generators.split(2, sizes=(7, 4, 3))
NONE = np.zeros(N, bool)
PATH = np.array([[0, 1, 2, 3], [1, 2, 3, 4]])  # a path of five nodes; node 5 is alone
PATH_LABELS = ["b", "b", None, "a", "b", None]
ALONE = pytest.mark.filterwarnings("ignore:no label reaches")
GROWS = pytest.mark.filterwarnings("ignore:the residual grows")
ONE_CLASS = pytest.mark.filterwarnings("ignore:all nodes are predicted to be of one")


class Tensor:
    """What torch's tensors have, for those who cannot import torch."""

    def __init__(self, array):
        self.array = array

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self.array


def data(**more):
    names = {"edge_index": Tensor(EDGES), "x": Tensor(X), "y": Tensor(CODES)}
    names |= {"train_mask": Tensor(TRAIN), "num_nodes": N}
    return types.SimpleNamespace(**names | more)


def networkx_graph():
    graph = nx.Graph()
    graph.add_nodes_from(range(N))
    graph.add_edges_from(EDGES.T.tolist())
    return graph


def scipy_graph():
    ones = np.ones(EDGES.shape[1])
    return scipy.sparse.coo_array((ones, EDGES), shape=(N, N)).tocsr()


def jraph_graph():
    return jraph.GraphsTuple(
        nodes=X,
        edges=None,
        senders=EDGES[0],
        receivers=EDGES[1],
        n_node=np.array([N]),
        n_edge=np.array([EDGES.shape[1]]),
        globals=None,
    )


GRAPHS = {
    "edge index": lambda: EDGES,
    "list of two rows": EDGES.tolist,
    "JAX array": lambda: jnp.asarray(EDGES),
    "tensor": lambda: Tensor(EDGES),
    "scipy": scipy_graph,
    "networkx": networkx_graph,
    "jraph": jraph_graph,
    "PyG": data,
    "OGB": lambda: {"edge_index": EDGES, "num_nodes": N, "node_feat": X},
    "OGB's pair": lambda: (GRAPHS["OGB"](), CODES[:, None]),
}


def fixed(**more):
    return ResidualPropagation(**FIXED | more)


def run(flow, split, *, num_steps=9, step_size=0.5, **more):
    return generators.run(
        flow,
        generators.targets(0),
        split,
        step_size=step_size,
        num_steps=num_steps,
        metric=metrics.accuracy,
        **more,
    )


def walk(power=3):
    return similarity.Power(generators.adjacency(0), power)


# What is fitted


@GROWS
def test_with_all_settings_given_it_is_all_steps_of_residual_run():
    model = fixed().fit(EDGES, CODES, TRAIN)
    expected = run(walk(), Split(TRAIN, NONE, NONE))
    assert np.array_equal(model.scores_, expected.predictions)
    assert np.array_equal(model.labels_, expected.predictions.argmax(axis=1))
    assert (model.power_, model.step_size_, model.best_step_) == (3, 0.5, 9)
    assert model.val_score_ is None
    assert model.report_.solver == expected.report.solver


@GROWS
def test_numbers_of_numpy_and_jax_are_numbers():
    model = ResidualPropagation().set_params(
        power=np.int64(3), step_size=np.float32(0.5), num_steps=jnp.asarray(9)
    )
    expected = fixed().fit(EDGES, CODES, TRAIN).scores_
    assert np.array_equal(model.fit(EDGES, CODES, TRAIN).scores_, expected)


@GROWS
def test_a_validation_mask_chooses_the_step_as_residual_run_does():
    model = fixed(select="last").fit(EDGES, CODES, TRAIN, val_mask=VAL)
    expected = run(walk(), Split(TRAIN, VAL, NONE), select="last")
    assert model.best_step_ == expected.best_step
    assert model.val_score_ == expected.best_val
    assert np.array_equal(model.scores_, expected.predictions)


@GROWS
@pytest.mark.parametrize("loss", ["absolute", "sigmoid", "softmax"])
def test_losses_are_those_of_residual_run(loss):
    model = fixed(loss=loss).fit(EDGES, CODES, TRAIN)
    split = Split(TRAIN, NONE, NONE)
    expected = run(walk(), split, residual_fn=losses.by_name(loss))
    assert np.array_equal(model.scores_, expected.predictions)


@ONE_CLASS
@GROWS
def test_a_kernel_makes_the_generalized_similarity():
    model = fixed(kernel="gaussian", gamma=0.3).fit(EDGES, CODES, TRAIN, X)
    flow = similarity.Sandwich(walk(), feature_kernels.build(X, gamma=0.3))
    expected = run(flow, Split(TRAIN, NONE, NONE))
    assert np.allclose(model.scores_, expected.predictions, atol=1e-12)
    assert model.n_features_in_ == 4
    model.set_params(kernel=None).fit(EDGES, CODES, TRAIN, X)
    assert not hasattr(model, "n_features_in_")


@GROWS
@pytest.mark.parametrize("name", GRAPHS)
def test_every_kind_of_graph_gives_the_same_fit(name):
    model = fixed(kernel="gaussian").fit(GRAPHS[name](), CODES, TRAIN, X)
    expected = fixed(kernel="gaussian").fit(EDGES, CODES, TRAIN, X)
    assert np.array_equal(model.scores_, expected.scores_)


@GROWS
@pytest.mark.parametrize("name", ["jraph", "PyG", "OGB", "OGB's pair"])
def test_features_that_a_graph_carries_serve(name):
    model = fixed(kernel="gaussian").fit(GRAPHS[name](), CODES, TRAIN)
    expected = fixed(kernel="gaussian").fit(EDGES, CODES, TRAIN, X)
    assert np.array_equal(model.scores_, expected.scores_)


@GROWS
def test_pyg_data_is_enough_and_arguments_come_before_what_it_has():
    model = fixed().fit(data(val_mask=Tensor(VAL)))
    expected = fixed().fit(EDGES, CODES, TRAIN, val_mask=VAL)
    assert np.array_equal(model.scores_, expected.scores_)
    other = np.roll(CODES, 1)
    model = fixed().fit(data(), other)
    assert np.array_equal(model.scores_, fixed().fit(EDGES, other, TRAIN).scores_)


@GROWS
def test_labels_of_ogbs_pair_serve_unless_others_are_passed():
    pair = GRAPHS["OGB's pair"]()
    model = fixed().fit(pair, train_mask=TRAIN)
    assert np.array_equal(model.scores_, fixed().fit(EDGES, CODES, TRAIN).scores_)
    other = np.roll(CODES, 1)
    model = fixed().fit(pair, other, TRAIN)
    assert np.array_equal(model.scores_, fixed().fit(EDGES, other, TRAIN).scores_)


@GROWS
def test_edge_weights_of_pyg_count():
    weights = np.random.default_rng(0).uniform(0.5, 2, EDGES.shape[1])
    model = fixed().fit(data(edge_weight=Tensor(weights)))
    weighted = scipy.sparse.coo_array((weights, EDGES), shape=(N, N))
    assert np.allclose(model.scores_, fixed().fit(weighted, CODES, TRAIN).scores_)


@GROWS
@pytest.mark.parametrize(
    "labels", [CODES[:, None], CODES.astype(np.int8), Tensor(CODES)]
)
def test_the_shape_and_type_of_labels_do_not_matter(labels):
    expected = fixed().fit(EDGES, CODES, TRAIN)
    assert np.array_equal(fixed().fit(EDGES, labels, TRAIN).labels_, expected.labels_)


@GROWS
def test_node_ids_serve_as_masks():
    ids = (np.flatnonzero(TRAIN), np.flatnonzero(VAL))
    model = fixed().fit(EDGES, CODES, ids[0], val_mask=ids[1])
    expected = fixed().fit(EDGES, CODES, TRAIN, val_mask=VAL)
    assert np.array_equal(model.scores_, expected.scores_)
    without_train = fixed().fit(EDGES, np.where(TRAIN | VAL, CODES, -1), val_mask=VAL)
    assert np.array_equal(without_train.scores_, expected.scores_)


# Labels


@GROWS
@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.where(TRAIN, CODES, -1), [0, 1, 2]),
        (np.where(TRAIN, CODES, np.nan), [0.0, 1.0, 2.0]),
        (["cab"[c] if t else None for c, t in zip(CODES, TRAIN, strict=True)], "abc"),
        (["cab"[c] if t else -1 for c, t in zip(CODES, TRAIN, strict=True)], "abc"),
        (np.array(list("cab"))[CODES], "abc"),
    ],
)
def test_labels_of_any_kind_are_the_same_problem(labels, classes):
    mask = (
        TRAIN if isinstance(labels, np.ndarray) and labels.dtype.kind == "U" else None
    )
    model = fixed().fit(EDGES, labels, mask)
    numbers = fixed().fit(EDGES, CODES, TRAIN)
    assert model.classes_.tolist() == list(classes)
    order = [0, 1, 2] if model.classes_.dtype.kind in "if" else [1, 2, 0]
    assert np.allclose(model.scores_, numbers.scores_[:, order])
    assert set(model.predict().tolist()) <= set(classes)


@GROWS
def test_booleans_are_classes():
    model = fixed().fit(EDGES, CODES > 0, TRAIN)
    assert model.classes_.tolist() == [False, True]
    assert model.predict().dtype == bool


@GROWS
def test_a_class_without_a_training_node_is_never_predicted():
    train = TRAIN & (CODES != 0)
    model = fixed(loss="softmax").fit(EDGES, CODES, train, val_mask=~train)
    assert model.classes_.tolist() == [1, 2]
    assert 0 not in model.predict()
    absent = np.flatnonzero(CODES == 0)
    assert model.score(absent) == 0
    assert model.score(absent, CODES[absent]) == 0


# Nodes that no label reaches


def test_unreached_nodes_are_named_and_given_the_most_frequent_class():
    model = ResidualPropagation(power=1, step_size=0.5, num_steps=5)
    with pytest.warns(
        UserWarning, match=r"no label reaches 1 of 6 nodes .* class, 'b'"
    ):
        model.fit(PATH, PATH_LABELS)
    assert model.reached_.tolist() == [True] * 5 + [False]
    with pytest.warns(UserWarning, match="reaches 1 of 1 "):
        assert model.predict([5]).tolist() == ["b"]
    with pytest.warns(UserWarning, match="reaches 1 of 2 "):
        assert np.allclose(model.predict_proba([5, 3])[0], [1 / 4, 3 / 4])
    with pytest.warns(UserWarning, match="reaches 1 of 2 "):
        assert model.score([5, 0], ["b", "b"]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict([0, 4])  # of whom none need be guessed


def test_reached_are_those_within_k_hops():
    model = ResidualPropagation(power=1, step_size=0.5, num_steps=5)
    with pytest.warns(UserWarning, match="reaches 2 of 6"):
        model.fit(PATH, ["a", "b", None, None, None, "b"])
    assert model.reached_.tolist() == [True, True, True, False, False, True]


def test_an_unreached_node_keeps_what_another_model_said():
    initial = np.tile([0.8, 0.2], (6, 1))
    model = ResidualPropagation(power=1, step_size=0.5, num_steps=5)
    model.fit(PATH, PATH_LABELS, initial=initial)
    assert not model.reached_[5]
    assert model.predict([5]).tolist() == ["a"]
    assert np.allclose(model.predict_proba([5]), [[0.8, 0.2]])


# On top of another model


@GROWS
def test_initial_is_where_residual_run_starts():
    initial = np.random.default_rng(3).dirichlet(np.ones(C), N)
    model = fixed().fit(EDGES, CODES, TRAIN, initial=initial)
    expected = run(walk(), Split(TRAIN, NONE, NONE), initial=initial)
    assert np.array_equal(model.scores_, expected.predictions)


@ALONE
@GROWS
def test_the_choice_with_an_initial_of_zero_is_that_without(monkeypatch):
    monkeypatch.setattr(sweep, "POWERS", (1, 3))
    model = ResidualPropagation(num_steps=6)
    zero = model.fit(EDGES, CODES, TRAIN, val_mask=VAL, initial=np.zeros((N, C)))
    chosen = (zero.power_, zero.step_size_, zero.best_step_, zero.val_score_)
    model = ResidualPropagation(num_steps=6).fit(EDGES, CODES, TRAIN, val_mask=VAL)
    assert (
        model.power_,
        model.step_size_,
        model.best_step_,
        model.val_score_,
    ) == chosen


# Choice of what is left out


def swept(train, val, **grid):
    table = generators.sweep_of(
        generators.adjacency(0),
        generators.targets(0),
        Split(train, val, NONE),
        metric=metrics.accuracy,
        **grid,
    )
    return table, sweep.winner(table)


@ALONE
@GROWS
@pytest.mark.parametrize(
    "given", [{}, {"power": 2}, {"step_size": 0.2, "num_steps": 7}]
)
def test_what_is_left_out_is_the_winner_of_the_sweep(given):
    model = ResidualPropagation(**given).fit(EDGES, CODES, TRAIN, val_mask=VAL)
    grid = {"num_steps": given.get("num_steps", 100)}
    if "power" in given:
        grid["powers"] = [2]
    if "step_size" in given:
        grid["step_sizes"] = [0.2]
    _, won = swept(TRAIN, VAL, **grid)
    assert (model.power_, model.step_size_, model.val_score_) == won[:3]
    split = Split(TRAIN, VAL, NONE)
    expected = run(
        walk(won.power),
        split,
        step_size=won.step_size,
        num_steps=grid["num_steps"],
    )
    assert np.allclose(model.scores_, expected.predictions, atol=1e-12)


@ALONE
@GROWS
def test_without_a_mask_held_out_nodes_choose_and_all_training_nodes_are_fitted():
    train = np.arange(N) < 11
    model = ResidualPropagation(holdout=0.3, seed=4).fit(EDGES, CODES, train)
    out = _selection.held_out(CODES, train, fraction=0.3, seed=4)
    table, won = swept(train & ~out, out)
    row = (table.power == won.power) & (table.step_size == won.step_size)
    assert (model.power_, model.step_size_) == won[:2]
    assert model.best_step_ == table.best_step[row][0]
    expected = run(
        walk(won.power),
        Split(train, NONE, NONE),
        step_size=won.step_size,
        num_steps=model.best_step_,
    )
    assert np.allclose(model.scores_, expected.predictions, atol=1e-12)


@pytest.mark.parametrize("fraction", [0.01, 0.2, 0.5, 0.99])
def test_what_is_held_out_is_a_share_of_each_class_and_never_all(fraction):
    codes = np.repeat([0, 1, 2, 3], [1, 2, 10, 40])
    out = _selection.held_out(codes, codes >= 0, fraction=fraction, seed=0)
    counts = np.bincount(codes[out], minlength=4)
    assert counts[0] == 0
    assert (counts[1:] >= 1).all()
    assert (counts < [2, 2, 10, 40]).all()
    assert counts[3] == min(39, max(1, round(40 * fraction)))


@ONE_CLASS
@ALONE
@GROWS
@pytest.mark.parametrize("more", [{"kernel": "linear"}, {"alpha": 0.5}])
def test_kernels_and_lazy_walks_are_swept_too(more, monkeypatch):
    monkeypatch.setattr(sweep, "POWERS", (1, 3))
    x = np.abs(X)
    model = ResidualPropagation(step_size=0.1, num_steps=5, **more)
    model.fit(EDGES, CODES, TRAIN, x, VAL)
    best = max(
        ResidualPropagation(power, 0.1, 5, **more)
        .fit(EDGES, CODES, TRAIN, x, VAL)
        .val_score_
        for power in sweep.POWERS
    )
    assert model.val_score_ == best


# Probabilities and scores


@GROWS
@pytest.mark.parametrize("loss", ["squared", "absolute", "sigmoid", "softmax"])
def test_probabilities_are_distributions_that_agree_with_the_prediction(loss):
    model = fixed(loss=loss, num_steps=40).fit(EDGES, CODES, TRAIN)
    found = model.predict_proba()
    assert found.shape == (N, C)
    assert ((found >= 0) & (found <= 1)).all()
    assert np.allclose(found.sum(axis=1), 1)
    assert np.array_equal(model.classes_[found.argmax(axis=1)], model.predict())


def test_rows_without_a_positive_score_have_a_distribution():
    model = fixed()
    initial = np.array([[-3.0, -1.0], [-2.0, -2.0]] * 3)
    model.set_params(power=0).fit(PATH, list("ab") + [None] * 4, initial=initial)
    assert np.allclose(model.predict_proba([2, 3]), [[0, 1], [0.5, 0.5]])


@GROWS
def test_nodes_are_a_mask_or_ids_in_any_order():
    model = fixed().fit(EDGES, CODES, TRAIN)
    ids = [5, 0, 5]
    assert np.array_equal(model.predict(ids), model.predict()[ids])
    assert np.array_equal(model.predict(VAL), model.predict()[VAL])
    assert np.array_equal(model.predict_proba(VAL), model.predict_proba()[VAL])
    assert model.predict([]).shape == (0,)


@GROWS
def test_the_score_is_the_accuracy_on_what_is_asked():
    model = fixed().fit(EDGES, CODES, TRAIN, val_mask=VAL)
    right = model.predict() == CODES
    rest = ~TRAIN & ~VAL
    ids = np.flatnonzero(VAL)[::-1]
    assert model.score(VAL) == right[VAL].mean()
    assert model.score() == model.score(labels=CODES) == right[rest].mean()
    assert model.score(VAL, CODES) == model.score(ids, CODES[ids]) == right[VAL].mean()


@GROWS
@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_roc_auc_is_that_of_scikit_learn(num_classes):
    from sklearn.metrics import roc_auc_score

    codes = np.minimum(CODES, num_classes - 1)
    model = fixed(metric="roc_auc").fit(EDGES, codes, TRAIN)
    rest = ~TRAIN
    scores, one_hot = model.scores_[rest], np.eye(num_classes)[codes[rest]]
    if num_classes == 2:
        scores, one_hot = scores[:, 1], one_hot[:, 1]
    assert np.isclose(model.score(), roc_auc_score(one_hot, scores, average="macro"))
    best = fixed(metric="roc_auc").fit(EDGES, codes, TRAIN, val_mask=rest)
    assert np.isclose(best.val_score_, best.score(rest))


# Precision


@GROWS
def test_float32_is_the_default_and_float64_is_asked_for_without_flags():
    with jax.enable_x64(False):
        single = fixed().fit(EDGES, CODES, TRAIN)
        double = fixed(precision="float64").fit(EDGES, CODES, TRAIN)
        assert jnp.zeros(0).dtype == jnp.float32
        assert double.predict_proba().dtype == np.float64
    assert single.scores_.dtype == single.predict_proba().dtype == np.float32
    assert double.scores_.dtype == np.float64
    assert np.array_equal(double.scores_, fixed().fit(EDGES, CODES, TRAIN).scores_)
    assert np.allclose(single.scores_, double.scores_, atol=1e-5)


def test_gnnrp_gives_the_estimator_without_importing_jax_before():
    code = """
import sys, gnnrp
assert 'jax' not in sys.modules
from gnnrp import ResidualPropagation
assert not {'sklearn', 'torch', 'networkx', 'jraph'} & set(sys.modules)
try: gnnrp.ResidualPropagatoin
except AttributeError as error: assert 'ResidualPropagatoin' in str(error)
else: raise SystemExit(1)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# scikit-learn


def test_arguments_are_kept_as_they_are_and_cloned():
    value = np.float64(0.5)
    model = ResidualPropagation(2, value, kernel="gaussian", holdout=0.4)
    assert model.step_size is value
    twin = clone(model)
    assert twin is not model
    assert twin.get_params() == model.get_params()
    assert repr(twin).startswith(
        "ResidualPropagation(power=2, step_size=np.float64(0.5)"
    )
    assert is_classifier(model)
    assert set(model.get_params()) >= {"power", "step_size", "num_steps", "kernel"}
    assert model.set_params(power=5, loss="softmax") is model
    assert (model.power, model.loss) == (5, "softmax")


@GROWS
def test_a_fitted_model_survives_pickle_copy_and_set_params():
    model = fixed().fit(EDGES, CODES, TRAIN)
    expected = model.predict_proba()
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert np.array_equal(twin.predict_proba(), expected)
    model.set_params(loss="softmax", metric="roc_auc")
    assert np.array_equal(model.predict_proba(), expected)


@ONE_CLASS
@ALONE
@GROWS
def test_a_grid_search_over_nodes_fits_each_fold_on_the_whole_graph():
    nodes = np.random.default_rng(0).permutation(N)
    labels = np.where(CODES > 0, "x", "y")[nodes]
    over_nodes = OnGraph(fixed(), EDGES, X, num_nodes=N)
    grid = {"model__power": [1, 2], "model__kernel": [None, "gaussian"]}
    search = GridSearchCV(over_nodes, grid, cv=2, error_score="raise")
    search.fit(nodes, labels)
    assert search.best_estimator_.graph is EDGES
    by_hand = []
    for params in ParameterGrid(grid):
        scores = []
        for train, test in folds(nodes, labels):
            model = clone(over_nodes).set_params(**params)
            model.fit(nodes[train], labels[train])
            scores.append(model.score(nodes[test], labels[test]))
        by_hand.append(np.mean(scores))
    assert np.allclose(search.cv_results_["mean_test_score"], by_hand)
    full = np.full(N, None, object)
    full[nodes] = labels
    params = {key.removeprefix("model__"): v for key, v in search.best_params_.items()}
    expected = fixed(**params).fit(EDGES, full, features=X)
    assert np.array_equal(search.predict(nodes), expected.predict(nodes))
    assert np.array_equal(search.predict_proba(nodes), expected.predict_proba(nodes))
    assert search.classes_.tolist() == ["x", "y"]


def folds(nodes, labels):
    from sklearn.model_selection import StratifiedKFold

    return StratifiedKFold(2).split(nodes, labels)


@ALONE
@GROWS
@pytest.mark.parametrize(
    "name", ["scipy", "networkx", "jraph", "PyG", "OGB", "OGB's pair"]
)
def test_cross_validation_takes_every_kind_of_graph_and_no_label_of_it(name):
    nodes = np.arange(N)
    binary = (CODES > 0).astype(int)
    graph = GRAPHS[name]()
    if name == "PyG":
        graph = data(val_mask=Tensor(VAL))
    found = cross_val_score(OnGraph(fixed(), graph), nodes, binary, cv=2)
    plain = OnGraph(fixed(), EDGES, num_nodes=N)
    assert np.array_equal(found, cross_val_score(plain, nodes, binary, cv=2))


# Refusals


def refusals():
    wrong = np.nan * X
    shifted = np.where(TRAIN, -1, CODES)
    half = np.where(CODES == 0, 0, 0.5)
    two_columns = np.stack([TRAIN, VAL], axis=1)
    initial = np.ones((N, C - 1))
    spoiled = np.where(np.arange(N * C).reshape(N, C) == 4, np.inf, 1.0)
    gauss = {"kernel": "gaussian"}
    auc = {"metric": "roc_auc"}
    yield {}, {"labels": CODES[:-1]}, "have node id 13, but there are 13 labels"
    yield {}, {"graph": scipy_graph(), "labels": CODES[:-1]}, "each of 14 nodes, got 13"
    yield {}, {"labels": None}, "labels are missing: pass one for each node"
    yield {}, {"labels": np.eye(N)}, r"must have shape \(n,\).*got \(14, 14\)"
    yield {}, {"labels": [*"ab", 3] + ["a"] * 11}, "cannot be sorted.*all strings or"
    yield {}, {"labels": np.array(["a", "nan"] * 7)}, "the string 'nan'.*use None"
    yield {}, {"labels": shifted}, "of train_mask has no label .-1, None and NaN"
    yield {}, {"labels": -np.ones(N), "train": None}, "there is no training node"
    yield {}, {"train": NONE}, "there is no training node"
    yield {}, {"labels": CODES * 0 + 7}, "of one class, 7 .*label nodes of another"
    yield {}, {"train": TRAIN[:-1]}, r"train_mask must have shape \(14,\), got \(13,\)"
    yield {}, {"train": two_columns}, r"got \(14, 2\); pass one split.*\[:, 0\]"
    yield (
        {},
        {"train": TRAIN.astype(int)},
        "train_mask must be a boolean mask, got int64.*astype",
    )
    yield {}, {"train": [0, 99]}, "train_mask: node 99 is not one of 14 nodes"
    yield {}, {"val": TRAIN}, "is in both train_mask and val_mask; take it out"
    yield {}, {"val": NONE}, "val_mask must not be empty; leave it out"
    yield {}, {"graph": {"num_nodes": N}}, "the dict has no edge_index; pass the edges"
    yield {}, {"graph": EDGES.T}, r"edges must have shape \(2, e\).*pass edges.T"
    yield {}, {"initial": initial}, r"initial must have shape \(14, 3\).*\(0, 1, 2\)"
    yield {}, {"initial": spoiled}, "initial must be finite, and row 1 is not"
    yield gauss, {}, "a kernel needs features: pass features=, or kernel=None"
    yield gauss, {"features": wrong}, "features must be finite, and row 0 is not"
    yield gauss, {"features": X[:-1]}, "13 rows of features for 14 nodes"
    yield gauss, {"features": X[0]}, r"features must have shape \(n, d\), got \(4,\)"
    yield {"kernel": "gausian"}, {}, "kernel must be one of.*did you mean 'gaussian'"
    yield {"loss": "sqared"}, {}, "loss must be one of.*did you mean 'squared'"
    yield {"metric": "acuracy"}, {}, "metric must be one of.*did you mean 'accuracy'"
    yield {"select": "frist"}, {}, "did you mean 'first'"
    yield {"method": "kriylov"}, {}, "did you mean 'krylov'"
    yield {"precision": "float16"}, {}, "precision must be one of"
    yield {"power": -1}, {}, "power must be at least 0, got -1"
    yield {"power": "7"}, {}, "power must be a whole number, got '7'"
    yield {"step_size": 0}, {}, "step_size must be positive and finite, got 0"
    yield {"step_size": [0.1]}, {}, r"step_size must be a number, got \[0.1\]"
    yield {"num_steps": 1.5}, {}, "num_steps must be a whole number, got 1.5"
    yield {"gamma": None}, {}, "gamma must be a number, got None"
    yield {"alpha": 2}, {}, r"alpha must lie in \[0, 1\], got 2"
    yield {"holdout": 1}, {}, "holdout must lie between 0 and 1, got 1"
    yield {"seed": -1}, {}, "seed must be at least 0, got -1"
    one_each = np.r_[0, 1, [-1] * 12]
    yield (
        {"power": None},
        {"labels": one_each, "train": None},
        r"needs 1 class\(es\) with two",
    )
    few = {"labels": np.r_[0, 0, 1, [-1] * 11], "train": None}
    yield auc | {"power": None}, few, r"needs 2 class\(es\) with two training nodes"
    absent = {"labels": np.r_[0, 1, 2, half[3:] * 0 - 1], "train": [0, 1], "val": [2]}
    yield {}, absent, r"no node of val_mask is of a training class \(0.0, 1.0\)"
    one = {"labels": np.r_[0, 1, 0, 0, [-1] * 10], "train": [0, 1], "val": [2, 3]}
    yield auc, one, "roc_auc needs two classes in val_mask"
    far = {"step_size": 1e300, "num_steps": 50}
    yield far | {"power": 2}, {}, "did not stay finite.*take a smaller step_size"
    yield far | {"power": 3}, {}, "take a smaller step_size, and an even power"


@pytest.mark.parametrize(("settings", "given", "sentence"), list(refusals()))
def test_what_does_not_fit_is_refused_in_one_sentence(settings, given, sentence):
    given = {"graph": EDGES, "labels": CODES, "train": TRAIN} | given
    names = {"train": "train_mask", "val": "val_mask"}
    model = fixed().set_params(**settings)
    with pytest.raises(ValueError, match=sentence):
        model.fit(**{names.get(key, key): value for key, value in given.items()})
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"features": X.astype(str)}, "features must hold real numbers, got <U"),
        ({"train_mask": TRAIN * 1.0}, "train_mask must be a boolean mask or node ids"),
        ({"graph": "cora"}, "edges must be an edge index"),
        ({"graph": EDGES * 1.0}, "integer node ids"),
    ],
)
def test_another_type_is_refused(given, sentence):
    given = {"graph": EDGES, "labels": CODES, "train_mask": TRAIN} | given
    model = fixed(kernel="gaussian" if "features" in given else None)
    with pytest.raises(TypeError, match=sentence):
        model.fit(**given)


@pytest.mark.parametrize("ask", ["predict", "predict_proba", "score"])
def test_an_unfitted_model_says_so(ask):
    with pytest.raises(
        NotFittedError, match=r"is not fitted; call fit\(graph, labels\)"
    ):
        getattr(fixed(), ask)()
    with pytest.raises(NotFittedError):
        OnGraph(fixed(), EDGES).predict([0])


@GROWS
def test_what_cannot_be_scored_is_refused():
    model = fixed().fit(EDGES, np.where(TRAIN, CODES, -1))
    other = int(np.flatnonzero(~TRAIN)[0])
    for nodes, labels, sentence in (
        (None, None, "there is no labeled node to score; pass"),
        ([other], None, f"node {other} has no label to score;"),
        ([other, 0], CODES, r"must be 2 labels, got 14; pass labels\[nodes\]"),
        (VAL, CODES[VAL], "must be 14 labels, got 4"),
        ([99], [0], "nodes: node 99 is not one of 14 nodes, 0 to 13"),
    ):
        with pytest.raises(ValueError, match=sentence):
            model.score(nodes, labels)
    model = fixed(metric="roc_auc").fit(EDGES, CODES, TRAIN)
    with pytest.raises(ValueError, match="nodes of two classes, and all 1 are of one"):
        model.score([0])


def test_growing_residuals_are_reported():
    with pytest.warns(UserWarning, match="the residual grows from step"):
        fixed(step_size=9).fit(EDGES, CODES, TRAIN)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"step": 1}, "parameter must be one of.*did you mean 'step_size'"),
        ({"power__x": 1}, "power is 3, which has no parameter x"),
    ],
)
def test_unknown_parameters_are_refused(params, sentence):
    with pytest.raises(ValueError, match=sentence):
        fixed().set_params(**params)


def test_samples_that_do_not_fit_are_refused():
    for labels, sentence in (
        ([0, 1, 2], r"must be 2 labels, .* got 3; pass labels\[nodes\]"),
        ([0], "must be 2 labels, .* got 1;"),
        (np.eye(2), r"labels must have shape \(q,\).*got \(2, 2\); use np.argmax"),
        (0, r"labels must have shape \(q,\).*got \(\)"),
    ):
        with pytest.raises(ValueError, match=sentence):
            OnGraph(fixed(), EDGES).fit([0, 1], labels)
    with pytest.raises(ValueError, match="num_nodes must be at least 14, got 3"):
        OnGraph(fixed(), EDGES, num_nodes=3).fit([0, 1], [0, 1])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int8, np.int64])
def test_edges_of_any_whole_type_are_the_same_graph(dtype):
    model = fixed().fit(np.asarray(EDGES).astype(dtype), CODES, TRAIN)
    expected = fixed().fit(EDGES, CODES, TRAIN)
    np.testing.assert_array_equal(model.scores_, expected.scores_)


def test_rows_of_different_lengths_are_no_edge_index():
    with pytest.raises(TypeError, match="edges must be an edge index of shape"):
        fixed().fit([[0, 1], [1]], [0, 1])


def test_labels_of_another_type_are_not_scored_as_errors():
    model = fixed().fit(EDGES, CODES, TRAIN)
    with pytest.raises(
        ValueError, match="of the classes of the fit, such as 0, got '0'"
    ):
        model.score(VAL, np.asarray(CODES).astype(str))


# Hop features and an automatic choice


@pytest.fixture(scope="module")
def blocks():
    return sbm.generate(1, block_size=30, train_per_class=6, num_val=40, num_test=60)


def fit_blocks(data, *, val=True, **params):
    train, held, test = (mask[0] for mask in data.splits)
    val_mask = held if val else None
    model = ResidualPropagation(**params)
    model.fit(data.edges, data.labels, train, data.features, val_mask)
    return model, model.score(np.flatnonzero(test))


def test_hops_take_a_gaussian_kernel_from_the_class_shares(blocks):
    model, _ = fit_blocks(blocks, hops=2, power=0, step_size=1.5, num_steps=200)
    assert model.similarity_ == "2-hop kernel, standard, γ=1"
    assert model.trials_ is None
    other, _ = fit_blocks(blocks, hops=2, power=0, step_size=1.5, num_steps=1)
    shares = np.bincount(blocks.labels[blocks.splits.train[0]]) / 30
    change = other.scores_ - shares
    np.testing.assert_allclose(change.mean(axis=0), 0, atol=1e-6)


@pytest.mark.parametrize("val", [True, False])
def test_an_automatic_choice_says_what_it_took_and_tried(blocks, val):
    model, score = fit_blocks(blocks, val=val, similarity="auto")
    tried = {trial["name"]: trial for trial in model.trials_}
    assert model.similarity_ in tried
    assert score > 0.3  # five classes
    assert (model.val_score_ is None) != val
    if val:
        best = max(trial["val_mean"] for trial in model.trials_)
        assert tried[model.similarity_]["val_mean"] == best
        assert model.val_score_ == pytest.approx(best / 100, abs=1e-4)
    assert model.predict_proba([0]).sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"similarity": "auto", "power": 2}, "power=2 does not apply"),
        ({"similarity": "auto", "kernel": "linear"}, "kernel='linear' does not apply"),
        ({"similarity": "auto", "search_seconds": 0.0}, "search_seconds"),
        ({"similarity": "best"}, "similarity must be one of"),
        ({"hops": -1}, "hops must be at least 0"),
        ({"hops": 1, "scaling": "rows"}, "scaling must be one of"),
    ],
)
def test_choices_that_make_no_sense_are_refused(blocks, params, words):
    with pytest.raises(ValueError, match=words):
        fit_blocks(blocks, **params)


def test_another_models_scores_do_not_start_an_automatic_choice(blocks):
    model = ResidualPropagation(similarity="auto")
    start = np.zeros((150, 5))
    with pytest.raises(ValueError, match="initial does not apply"):
        model.fit(blocks.edges, blocks.labels, blocks.splits.train[0], initial=start)


def test_an_automatic_choice_needs_neither_alignment_nor_features_that_vary():
    ring = np.stack([np.arange(24), (np.arange(24) + 1) % 24])
    labels = np.repeat([0, 1], 12)
    x = np.random.default_rng(0).normal(size=(24, 3))
    model = ResidualPropagation(similarity="auto")
    model.fit(ring, labels, [0, 12], x, [5, 6, 17, 18])  # one label for each class
    assert all(trial["alignment"] is None for trial in model.trials_)
    assert model.skipped_ == {}
    model.fit(ring, labels, [0, 1, 12, 13], np.ones((24, 3)), [5, 6, 17, 18])
    assert set(model.skipped_) == {
        "2-hop kernel, standard, γ=1",
        "2-hop kernel, cosine, γ=1",
    }
    with pytest.raises(ValueError, match="same for all pairs of nodes"):
        ResidualPropagation(hops=2).fit(ring, labels, [0, 1, 12, 13], np.ones((24, 3)))


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"center": True}, "center=True needs a kernel"),
        ({"scaling": "cosine"}, "set hops too"),
        ({"search_seconds": 3.0}, "search_seconds"),
    ],
)
def test_parameters_without_effect_are_refused(blocks, params, words):
    with pytest.raises(ValueError, match=words):
        fit_blocks(blocks, **params)
