"""Predictions on a later graph: F_0 + S[:, X] α, without another run of RP."""

import copy
import pickle
import types

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
import references
import scipy.sparse

from gnnrp import ResidualPropagation, graph, metrics, sparse
from gnnrp.estimator.residual_propagation import NotFittedError
from gnnrp.studies import extension
from gnnrp.studies.candidates import Candidate, Similarities, Task
from gnnrp.studies.settings import RPSettings

N, C = generators.N, generators.C
EDGES = generators.edges(0)
CODES = generators.targets(0).argmax(axis=1)
TRAIN, VAL, _ = generators.split(2, sizes=(7, 4, 3))
FIXED = {"power": 2, "step_size": 0.5, "num_steps": 9, "precision": "float64"}
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 4))
MORE = 3  # new nodes: two with edges, one without
LATER = np.concatenate([EDGES, [[N, N, N + 1, 0], [0, 3, N, 6]]], axis=1)
LATER_X = np.concatenate([X, RNG.normal(size=(MORE, 4))])
OLD = np.arange(N)

# The graph is small, and the residual grows along odd powers of its A.
pytestmark = [
    pytest.mark.filterwarnings("ignore:the residual grows"),
    pytest.mark.filterwarnings("ignore:all nodes are predicted"),
    pytest.mark.filterwarnings("ignore:no label reaches"),
    pytest.mark.filterwarnings("ignore:no temperature is best"),
]


def fitted(features=X, initial=None, **params):
    model = ResidualPropagation(**(FIXED | params))
    return model.fit(EDGES, CODES, TRAIN, features, initial=initial)


def hops(x, W, num_hops, scaling):
    """Return hop features whose columns have mean 0 and deviation 1 on old nodes."""
    degree = W.sum(axis=1, keepdims=True)
    if scaling == "standard":
        x = np.hstack([x, np.log1p(degree)])
    parts, P = [x], W / np.maximum(degree, 1)
    for _ in range(num_hops):
        parts.append(P @ parts[-1])
    if scaling == "cosine":
        lengths = [np.linalg.norm(part, axis=1, keepdims=True) for part in parts]
        pairs = zip(parts, lengths, strict=True)
        scaled = [part / np.where(size > 0, size, 1) for part, size in pairs]
        return np.hstack(scaled) / np.sqrt(num_hops + 1)
    z = np.hstack(parts)
    return (z - z[OLD].mean(axis=0)) / z[OLD].std(axis=0) / np.sqrt(z.shape[1])


def kernel(z, gamma, *, centered):
    """Return the kernel, normalized or centered by the old nodes, entry by entry."""
    K = np.array([[np.exp(-gamma * np.sum((x - y) ** 2)) for y in z] for x in z])
    if not centered:
        new = np.arange(len(z)) >= N
        degree = K[:, OLD].sum(axis=1) + np.where(new, 1, 0)
        return K / np.sqrt(np.outer(degree, degree))
    H = np.eye(len(z))
    H[:, OLD] -= 1 / N
    M = H @ K @ H.T
    v = np.random.default_rng(0).standard_normal((N, 1))
    for _ in range(21):  # as many products as the package takes
        v = M[:N, :N] @ v
        v = v / np.linalg.norm(v)
    return M / np.linalg.norm(M[:N, :N] @ v)


def similarity(model, edges, x):
    """Return S of a graph that has the old nodes first, as a dense matrix."""
    num_nodes = len(x)
    A = references.adjacency(edges, num_nodes)
    B = np.linalg.matrix_power(
        model.alpha * A + (1 - model.alpha) * np.eye(num_nodes), model.power
    )
    if model.kernel is None and model.hops is None:
        return B
    W = np.zeros((num_nodes, num_nodes))
    W[tuple(edges)] = W[tuple(edges[::-1])] = 1
    if model.hops is not None:
        x = hops(x, W, model.hops, model.scaling)
    return B @ kernel(x, model.gamma, centered=model.hops is not None) @ B


def slow(model, edges=EDGES, x=X):
    """Return F of a loop on the old graph, and S[:, X] α on the later one."""
    S, Y = similarity(model, EDGES, X), np.eye(C)[CODES]
    start = np.zeros(C)
    if model.hops is not None:
        start = Y[TRAIN].mean(axis=0)
    F, alpha = np.tile(start, (N, 1)), np.zeros((N, C))
    weights = np.ones(C)
    if model.class_weight == "balanced":
        counts = np.bincount(CODES[TRAIN], minlength=C)
        weights = counts.min() / counts
    for _ in range(model.num_steps):
        p = F
        if model.loss == "softmax":
            p = np.exp(F) / np.exp(F).sum(axis=1, keepdims=True)
        R = np.where(TRAIN[:, None], weights[CODES][:, None] * (Y - p), 0)
        alpha += model.step_size * R
        F = F + model.step_size * S @ R
    later = similarity(model, edges, x)
    return start + later[:, OLD[TRAIN]] @ alpha[TRAIN]


CASES = {
    "power": {},
    "lazy walk": {"alpha": 0.5, "power": 3},
    "kernel": {"kernel": "gaussian", "gamma": 0.3},
    "standard hops": {"hops": 2, "power": 1},
    "cosine hops": {"hops": 1, "scaling": "cosine", "power": 0},
    "class weights": {"class_weight": "balanced"},
    "class weights on hops": {"class_weight": "balanced", "hops": 1},
    "softmax": {"loss": "softmax"},
}
every_case = pytest.mark.parametrize("params", CASES.values(), ids=list(CASES))


@every_case
def test_scores_of_a_later_graph_are_those_of_a_slow_dense_reference(params):
    model = fitted(**params)
    np.testing.assert_allclose(model.scores_, slow(model), rtol=1e-9, atol=1e-11)
    found = model.predict_on(LATER, LATER_X)
    expected = slow(model, LATER, LATER_X)
    np.testing.assert_allclose(found.scores, expected, rtol=1e-9, atol=1e-11)


SAME = CASES | {
    "row normalization": {"kernel": "gaussian", "row_normalize": True},
    "laplacian": {"kernel": "laplacian", "center": True},
    "sigmoid": {"loss": "sigmoid"},
    "absolute": {"loss": "absolute"},
    "exact": {"method": "exact"},
    "krylov": {"method": "krylov"},
    "iterate": {"method": "iterate"},
    "calibrated": {"calibrate": True},
}


@pytest.mark.parametrize("params", SAME.values(), ids=list(SAME))
def test_on_the_graph_of_the_fit_all_is_as_in_the_fit(params):
    model = fitted(**params)
    found = model.predict_on(EDGES, X)
    np.testing.assert_allclose(found.scores, model.scores_, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(found.labels, model.predict())
    np.testing.assert_allclose(found.probabilities, model.predict_proba(), atol=1e-9)
    np.testing.assert_array_equal(found.reached, model.reached_)


@pytest.mark.parametrize("features", [None, X], ids=["graph alone", "features"])
@pytest.mark.parametrize("directed", [False, True])
def test_an_automatic_choice_predicts_on_a_later_graph(features, directed):
    settings = {"similarity": "auto", "precision": "float64", "directed": directed}
    model = ResidualPropagation(**settings)
    model.fit(EDGES, CODES, TRAIN, features, VAL)
    found = model.predict_on(EDGES, features)
    np.testing.assert_allclose(found.scores, model.scores_, rtol=0, atol=1e-8)
    later = None if features is None else LATER_X
    assert model.predict_on(LATER, later).scores.shape[1] == C


@pytest.mark.parametrize("scaling", ["standard", "cosine"])
@pytest.mark.parametrize("directed", [(False, False), (True, False), (True, True)])
def test_a_sum_of_similarities_is_extended_part_by_part(directed, scaling):
    kernel = RPSettings(power=0, kernel="gaussian", hops=1, scaling=scaling)
    sum_of_both = Candidate((RPSettings(power=2), kernel), (0.4, 0.6), directed)
    W = graph.raw_adjacency(EDGES, N)
    W_to = graph.raw_adjacency(EDGES, N, directed=True)
    A = sparse.prepare(graph.normalize(W))
    masks = TRAIN[None], VAL[None]
    task = Task(W, A, X, np.eye(C)[CODES], *masks, metrics.accuracy, W_to)
    later = extension.LaterGraph(W, A, X, OLD, W_to)
    v = jnp.asarray(RNG.normal(size=(N, 2)))
    expected = Similarities(task).build(sum_of_both)(v)
    found = extension.extend(sum_of_both, later)(v)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_scores_of_another_model_are_given_for_the_later_graph_too():
    initial = RNG.uniform(size=(N + MORE, C))
    model = fitted(initial=initial[:N])
    found = model.predict_on(EDGES, initial=initial[:N])
    np.testing.assert_allclose(found.scores, model.scores_, rtol=0, atol=1e-12)
    S = references.adjacency(LATER, N + MORE)
    S = S @ S
    expected = initial + S[:, OLD[TRAIN]] @ model._coefficients
    found = model.predict_on(LATER, LATER_X, initial)
    np.testing.assert_allclose(found.scores, expected, rtol=0, atol=1e-12)


@every_case
def test_new_nodes_without_edges_do_not_move_the_others(params):
    model = fitted(**params)
    x = np.concatenate([X, 100 * np.ones((2, 4)), -LATER_X])
    found = model.predict_on(EDGES, x)
    assert len(found.labels) == len(x)
    np.testing.assert_allclose(found.scores[:N], model.scores_, rtol=0, atol=1e-10)


def test_a_node_that_no_label_reaches_gets_the_class_prior():
    model = fitted()
    with pytest.warns(UserWarning, match=r"reaches 1 of 17 nodes \(see reached\)"):
        found = model.predict_on(LATER, LATER_X)
    assert not found.reached[-1]
    assert found.reached[N]
    np.testing.assert_array_equal(found.probabilities[-1], model.class_prior_)
    assert found.labels[-1] == model.classes_[np.argmax(model.class_prior_)]


def test_fitting_on_the_induced_graph_is_the_inductive_setting(data):
    """Train on the graph of training and validation nodes, predict on the whole."""
    train, val, _ = (mask[0] for mask in data.splits)
    seen = np.flatnonzero(train | val)
    A = references.adjacency(data.edges, data.num_nodes)
    W = scipy.sparse.csr_array((A > 0) & ~np.eye(len(A), dtype=bool)).astype(float)
    inside = W[seen][:, seen]
    model = ResidualPropagation(2, 0.5, 40, precision="float64")
    model.fit(inside, data.labels[seen], train[seen])
    # The loop sees the graph of the training and validation nodes only.
    part = references.adjacency(np.stack(inside.nonzero()), len(seen))
    S, Y = part @ part, np.eye(data.labels.max() + 1)[data.labels[seen]]
    F, alpha = np.zeros_like(Y), np.zeros_like(Y)
    for _ in range(40):
        R = np.where(train[seen][:, None], Y - F, 0)
        F, alpha = F + 0.5 * S @ R, alpha + 0.5 * R
    np.testing.assert_allclose(model.scores_, F, rtol=0, atol=1e-11)
    order = np.concatenate([seen, np.flatnonzero(~(train | val))])
    found = model.predict_on(W[order][:, order])
    whole = (A @ A)[np.ix_(order, order[: len(seen)])]
    np.testing.assert_allclose(found.scores, whole @ alpha, rtol=0, atol=1e-11)


@pytest.mark.parametrize("params", [{}, {"hops": 2}, {"kernel": "gaussian"}])
def test_node_ids_match_nodes_in_any_order(params):
    ids = np.array([f"n{i}" for i in range(N + MORE)])
    table = pandas.DataFrame({"from": ids[EDGES[0]], "to": ids[EDGES[1]]})
    model = ResidualPropagation(**(FIXED | params))
    model.fit(table, CODES, TRAIN, X, node_ids=ids[:N])
    expected = fitted(**params).predict_on(LATER, LATER_X).scores
    order = np.random.default_rng(3).permutation(N + MORE)
    later = pandas.DataFrame({"from": ids[LATER[0]], "to": ids[LATER[1]]})
    found = model.predict_on(later, LATER_X[order], node_ids=ids[order])
    np.testing.assert_allclose(found.scores, expected[order], rtol=0, atol=1e-10)


def test_other_nodes_than_training_nodes_may_be_gone():
    gone = int(np.flatnonzero(~TRAIN)[0])
    left = np.setdiff1d(OLD, gone)
    model = ResidualPropagation(**FIXED).fit(EDGES, CODES, TRAIN, node_ids=OLD)
    kept = EDGES[:, (gone != EDGES).all(axis=0)]
    found = model.predict_on(kept, node_ids=left)
    A = references.adjacency(kept, N)
    expected = (A @ A)[:, TRAIN] @ model._coefficients
    np.testing.assert_allclose(found.scores, expected[left], rtol=0, atol=1e-12)


def as_scipy(edges, num_nodes):
    ones = np.ones(edges.shape[1])
    return scipy.sparse.coo_array((ones, tuple(edges)), (num_nodes,) * 2).tocsr()


def test_graphs_of_other_libraries_are_read_as_in_a_fit():
    model = fitted(hops=1)
    expected = model.predict_on(LATER, LATER_X).scores
    pyg = types.SimpleNamespace(edge_index=LATER, x=LATER_X, num_nodes=N + MORE)
    for given in ((pyg,), (as_scipy(LATER, N + MORE), LATER_X)):
        np.testing.assert_array_equal(model.predict_on(*given).scores, expected)


def test_weights_of_edges_count_on_a_later_graph():
    weights = np.linspace(0.5, 2, EDGES.shape[1])
    model = ResidualPropagation(**FIXED).fit(EDGES, CODES, TRAIN, weights=weights)
    found = model.predict_on(EDGES, weights=weights)
    np.testing.assert_allclose(found.scores, model.scores_, rtol=0, atol=1e-12)


def test_a_refit_changes_the_coefficients():
    model = fitted()
    model.predict_on(EDGES)
    model.refit(EDGES, CODES, TRAIN | VAL)
    found = model.predict_on(EDGES)
    np.testing.assert_allclose(found.scores, model.scores_, rtol=0, atol=1e-12)


def test_a_prediction_on_a_later_graph_leaves_the_fit_alone():
    model = fitted(hops=1)
    before = copy.deepcopy(vars(model))
    model.predict_on(LATER, LATER_X)
    for name in ("scores_", "labels_", "reached_"):
        np.testing.assert_array_equal(getattr(model, name), before[name])
    model.set_params(power=9, loss="softmax", precision="float32")
    twin = pickle.loads(pickle.dumps(fitted(hops=1)))
    np.testing.assert_array_equal(
        model.predict_on(LATER, LATER_X).scores, twin.predict_on(LATER, LATER_X).scores
    )


def test_in_float32_the_scores_are_those_of_the_fit_up_to_round_off():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        model = fitted(hops=1, precision="float32")
        found = model.predict_on(EDGES, X)
    assert found.scores.dtype == np.float32
    np.testing.assert_allclose(found.scores, model.scores_, rtol=0, atol=1e-5)


BAD = {
    "another width": (
        {"kernel": "gaussian"},
        {"features": X[:, :2]},
        r"features must have shape \(14, 4\).* got \(14, 2\)",
    ),
    "no features": (
        {"kernel": "gaussian"},
        {},
        "needs features: pass features=",
    ),
    "fewer nodes": (
        {},
        {"graph": as_scipy(EDGES[:, :3], N)[:5][:, :5]},
        "the first 14 nodes of the graph must be those of fit, and it has 5",
    ),
    "initial": (
        {},
        {"initial": np.zeros((N, C))},
        "initial does not apply to a fit without it; leave it out",
    ),
    "negative weights": (
        {},
        {"graph": as_scipy(EDGES, N) * -1.0},
        "pass signed=True",
    ),
}


@pytest.mark.parametrize(("params", "arguments", "words"), BAD.values(), ids=list(BAD))
def test_what_does_not_match_the_fit_is_refused(params, arguments, words):
    model = fitted(**params)
    with pytest.raises(ValueError, match=words) as error:
        model.predict_on(**({"graph": EDGES} | arguments))
    assert "\n" not in str(error.value)


def test_missing_scores_of_another_model_are_named():
    model = fitted(initial=np.zeros((N, C)))
    with pytest.raises(ValueError, match="initial is missing, and fit had it; pass"):
        model.predict_on(EDGES)


def test_missing_nodes_are_named():
    model = ResidualPropagation(**FIXED).fit(EDGES, CODES, TRAIN, node_ids=OLD)
    with pytest.raises(ValueError, match="node_ids must name the nodes"):
        model.predict_on(EDGES)
    first = int(np.flatnonzero(TRAIN)[0])
    left = np.setdiff1d(OLD, first)
    kept = EDGES[:, (first != EDGES).all(axis=0)]
    with pytest.raises(
        ValueError, match=f"lack 1 training nodes of fit.* {first}; add"
    ):
        model.predict_on(kept, node_ids=left)


def test_a_prediction_before_a_fit_is_refused():
    with pytest.raises(NotFittedError, match="not fitted; call fit"):
        ResidualPropagation().predict_on(EDGES)
