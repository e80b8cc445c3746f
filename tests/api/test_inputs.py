"""Arrays of other libraries keep their meaning, or are refused in one sentence."""

import types

import jax.numpy as jnp
import ml_dtypes
import networkx as nx
import numpy as np
import pytest
import scipy.sparse
from path_graph import (  # noqa: F401
    ENDS,
    FULL,
    LABELS,
    PATH,
    TUPLE,
    A,
    X,
    Y,
    fit,
    run,
    without_type_checks,
)

from gnnrp import graph, sparse
from gnnrp.graph import class_labels
from gnnrp.kernels import features

# Labels in lists, and of types that NumPy lacks


class Tensor:
    """The part of torch's tensors that is read; hashed by identity, as they are."""

    def __init__(self, array, dtype="float32", layout="torch.strided"):
        self.array, self.dtype, self.layout = np.asarray(array), dtype, layout
        self.shape = self.array.shape

    def __eq__(self, other):
        return Tensor(self.array == other)

    def __bool__(self):
        return bool(self.array)

    __hash__ = object.__hash__

    def __getitem__(self, place):
        return Tensor(self.array[place], self.dtype)

    def detach(self):
        return self

    def cpu(self):
        return self

    def float(self):
        return Tensor(self.array.astype(np.float32))

    def numpy(self):
        if "sparse" in self.layout or self.dtype == "bfloat16":
            msg = f"Got unsupported {self.layout} {self.dtype}"
            raise TypeError(msg)
        return self.array


NUMBERS = [0, -1, -1, -1, -1, 1]
LISTS = {
    "tensors": [Tensor(y) for y in NUMBERS],
    "arrays of JAX": [jnp.asarray(y) for y in NUMBERS],
    "0-d arrays": [np.array(y) for y in NUMBERS],
    "arrays of one": [np.array([y]) for y in NUMBERS],
    "lists of one": [[y] for y in NUMBERS],
    "tuples of one": tuple((y,) for y in NUMBERS),
    "tensors and None": [Tensor(0), None, None, None, None, Tensor([1])],
    "an array of tensors": np.array([Tensor(y) for y in NUMBERS], object),
    "bfloat16 of NumPy": np.array(NUMBERS).astype(ml_dtypes.bfloat16),
    "bfloat16 of JAX": jnp.array(NUMBERS, jnp.bfloat16),
    "bfloat16 of torch": Tensor(NUMBERS, "bfloat16"),
    "bfloat16 in a list": [*np.array(NUMBERS).astype(ml_dtypes.bfloat16)],
    "complex": np.array(NUMBERS, complex),
    "half": np.array(NUMBERS, np.float16),
    "a column": jnp.array(NUMBERS)[:, None],
}


@pytest.mark.parametrize("name", LISTS)
def test_labels_in_lists_and_of_any_number_type_are_the_same_labels(name):
    model, expected = fit(labels=LISTS[name]), fit()
    assert model.classes_.tolist() == [0, 1]
    np.testing.assert_array_equal(model.scores_, expected.scores_)
    model = fit(labels=FULL, train_mask=ENDS)
    nodes = [0, 5]
    assert model.score(nodes, [LISTS[name][0], LISTS[name][-1]]) == 1


WRAPS = [int, float, np.int8, np.array, jnp.asarray, Tensor, ml_dtypes.bfloat16]
WRAPS += [lambda y: [y], lambda y: np.array([y]), lambda y: (np.float32(y),)]
MISSING = [None, -1, np.nan, np.ma.masked, [-1], Tensor(-1), jnp.asarray(jnp.nan)]


@pytest.mark.parametrize("seed", range(40))
def test_every_mixture_of_labels_has_the_codes_of_its_numbers(seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(-1, 3, 12)
    codes[:3] = [0, 1, 2]
    wrapped = [
        MISSING[rng.integers(len(MISSING))]
        if code < 0
        else rng.choice(WRAPS)(int(code))
        for code in codes
    ]
    as_objects = np.empty(len(wrapped), object)
    for place, label in enumerate(wrapped):
        as_objects[place] = label
    for labels in (wrapped, tuple(wrapped), as_objects):
        classes, found = class_labels.encode(labels)
        assert classes.tolist() == [0, 1, 2]
        np.testing.assert_array_equal(found, codes)


@pytest.mark.parametrize(
    ("labels", "shape"),
    [
        ([[0, 1], [1, 0]] * 3, r"\(n, 2\)"),
        ([[], [0], [1]] * 2, r"\(n, 0\)"),
        ([Tensor([0, 1])] * 6, r"\(n, 2\)"),
        ([np.eye(2)] * 6, r"\(n, 2, 2\)"),
    ],
)
def test_several_labels_for_a_node_are_refused(labels, shape):
    with pytest.raises(ValueError, match=rf"shape \(n,\), one for each.*got {shape}"):
        fit(labels=labels)


@pytest.mark.parametrize("word", ["-1", "nan", "None"])
def test_missing_labels_that_have_become_strings_are_refused_in_lists_too(word):
    labels = ["a", word, "b", "a", "b", "a"]
    for given in (labels, np.array(labels), np.array(labels, object), Frame(labels)):
        with pytest.raises(
            ValueError, match=f"the string '{word}', a missing .* use None in a"
        ):
            fit(labels=given)


def test_labels_that_cannot_be_compared_are_refused():
    labels = [{0}, None, None, None, None, {0, 1}]
    with pytest.raises(ValueError, match=r"labels cannot be compared .*strings or num"):
        fit(labels=labels)


# Tensors, frames and graphs that other libraries make


def test_bfloat16_tensors_serve_as_every_number():
    x, start = Tensor(X, "bfloat16"), Tensor(Y, "bfloat16")
    found = fit(features=x, initial=start, kernel="gaussian")
    expected = fit(features=X.astype(np.float32), initial=Y, kernel="gaussian")
    np.testing.assert_array_equal(found.scores_, expected.scores_)
    weights = Tensor(np.arange(1.0, 6), "bfloat16")
    found = graph.raw_adjacency(PATH, weights=weights)
    expected = graph.raw_adjacency(PATH, weights=np.arange(1.0, 6))
    np.testing.assert_array_equal(found.toarray(), expected.toarray())


SPARSE = Tensor(np.eye(6), layout="torch.sparse_coo")


@pytest.mark.parametrize(
    "call",
    [
        lambda: fit(SPARSE),
        lambda: fit({"edge_index": SPARSE}),
        lambda: fit(labels=SPARSE),
        lambda: fit(train_mask=SPARSE),
        lambda: fit(features=SPARSE, kernel="linear"),
        lambda: fit(initial=SPARSE),
        lambda: graph.raw_adjacency(SPARSE),
        lambda: graph.raw_adjacency(PATH, weights=SPARSE),
        lambda: features.build(SPARSE),
        lambda: run(SPARSE),
    ],
)
def test_sparse_tensors_are_refused_with_what_serves(call):
    with pytest.raises(
        TypeError, match=r"sparse tensor, got .*sparse_coo; pass a dense"
    ):
        call()


class Frame:
    """The part of pandas' frames and nullable columns that is read."""

    def __init__(self, rows):
        self.rows = rows

    def to_numpy(self):
        return np.array(self.rows, object)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.rows, object)


NA = type("NAType", (), {"__repr__": lambda _: "<NA>"})()


class Series(np.ndarray):
    """A boolean series of pandas, which is indexed by its labels and not by place."""

    def to_numpy(self):
        return self.view(np.ndarray)

    def __getitem__(self, place):
        raise KeyError(place)


def test_masks_in_a_series_are_read_by_place():
    support = ENDS.copy().view(Series)
    found = sparse.select_columns(sparse.prepare(A), support)
    expected = sparse.select_columns(sparse.prepare(A), ENDS)
    np.testing.assert_array_equal(found.data, expected.data)


def test_frames_of_mixed_and_nullable_columns_are_numbers():
    mixed = Frame([[1, True, 0.5], [2, False, 1.5]])
    found = features.as_dense(mixed)
    np.testing.assert_array_equal(found, [[1, 1, 0.5], [2, 0, 1.5]])
    model = fit(PATH, FULL, Frame(ENDS.tolist()))
    np.testing.assert_array_equal(model.scores_, fit(PATH, FULL, ENDS).scores_)
    assert fit(PATH, Frame([[0], [NA], [NA], [NA], [NA], [1]])).classes_.tolist() == [
        0,
        1,
    ]
    edges = Frame(PATH.tolist())
    assert (graph.raw_adjacency(edges) != graph.raw_adjacency(PATH)).nnz == 0


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: features.build(Frame([[1, 2], [3, NA]])),
            "features must hold real numbers, got <NA> in row 1",
        ),
        (
            lambda: features.build(Frame([[1, "a"], [3, "b"]])),
            "features must hold real numbers, got 'a' in row 0",
        ),
        (
            lambda: fit(PATH, FULL, Frame([True, NA, True, True, False, False])),
            "train_mask must be a boolean mask or node ids, got <NA> in row 1",
        ),
    ],
)
def test_missing_values_and_strings_in_frames_are_refused_by_row(call, sentence):
    with pytest.raises(TypeError, match=sentence):
        call()


class Hetero:
    """The part of PyG's graphs of several types that is read."""

    node_types, edge_types = ["a"], [("a", "to", "a")]

    def detach(self):
        return self

    def cpu(self):
        return self

    def __array__(self, dtype=None, copy=None):
        raise NotImplementedError


def test_a_graph_of_several_node_types_is_refused():
    with pytest.raises(
        TypeError, match=r"one type of nodes, got Hetero; convert it with its to_homog"
    ):
        fit(Hetero())
    with pytest.raises(TypeError, match=r"edges must be an edge index .* got Hetero"):
        graph.raw_adjacency(Hetero())


# Weights that a graph carries


def pyg(**more):
    return types.SimpleNamespace(edge_index=PATH, num_nodes=6, **more)


def networkx_graph(**attributes):
    """Return the path, with edge attributes."""
    path = nx.Graph()
    for i, (u, v) in enumerate(PATH.T):
        path.add_edge(u, v, **{name: each[i] for name, each in attributes.items()})
    return path


WEIGHTS = np.arange(1.0, 6)
CARRIED = {
    "edge_attr of one column": (pyg(edge_attr=Tensor(WEIGHTS[:, None])), "edge_attr"),
    "edge_attr": (pyg(edge_attr=WEIGHTS), "edge_attr"),
    "weight": (pyg(weight=Tensor(WEIGHTS, "bfloat16")), "weight"),
    "both": (pyg(edge_attr=WEIGHTS, weight=WEIGHTS), "edge_attr"),
    "edge_weights": (pyg(edge_weights=WEIGHTS), "edge_weights"),
    "integers": (pyg(weight=np.arange(1, 6)), "weight"),
    "OGB": ({"edge_index": PATH, "edge_feat": WEIGHTS[:, None]}, "edge_feat"),
    "jraph": (TUPLE._replace(edges=jnp.arange(16.0)), "GraphsTuple.edges"),
    "networkx": (networkx_graph(cost=WEIGHTS), "the edge attribute 'cost'"),
    "networkx, two": (
        networkx_graph(name=list("abcde"), length=[*range(5)], cost=[*WEIGHTS]),
        "the edge attribute 'cost'",
    ),
}


@pytest.mark.parametrize("name", CARRIED)
def test_weights_that_a_graph_carries_and_that_do_not_count_are_one_warning(name):
    given, attribute = CARRIED[name]
    pattern = rf"^{attribute} has a number per edge that is not used as a weight"
    with pytest.warns(UserWarning, match=pattern) as caught:
        found = fit(given)
    assert len(caught) == 1
    np.testing.assert_array_equal(found.scores_, fit().scores_)


@pytest.mark.parametrize(
    "given",
    [
        pyg(edge_attr=np.ones(5)),
        pyg(edge_attr=None, weight=None),
        pyg(edge_attr=np.ones((5, 3))),
        pyg(edge_attr=np.array(list("abcde"))),
        {"edge_index": PATH, "edge_feat": np.ones((5, 8))},
        TUPLE._replace(edges=None),
        networkx_graph(cost=[1] * 5, name=list("abcde")),
        networkx_graph(cost=[1, 2, 3, 4, None], kind=[[1], [1, 2], [], [0], [3]]),
        networkx_graph(cost=[True, False, True, True, True]),
    ],
)
def test_attributes_that_make_no_weights_are_no_warning(given):
    np.testing.assert_array_equal(fit(given).scores_, fit().scores_)


def test_weights_count_where_they_are_passed_or_carried_under_their_own_name():
    expected = fit(PATH, weights=WEIGHTS).scores_
    assert not np.allclose(expected, fit().scores_)
    heavy = nx.Graph()
    heavy.add_weighted_edges_from(zip(*PATH.tolist(), WEIGHTS, strict=True))
    w = scipy.sparse.coo_array((WEIGHTS, PATH), (6, 6))
    tuples = graph.to_jraph(graph.raw_adjacency(PATH, weights=WEIGHTS))
    for found in (
        fit(pyg(edge_attr=WEIGHTS, edge_weight=Tensor(WEIGHTS))),
        fit(pyg(edge_attr=WEIGHTS), weights=WEIGHTS),
        fit(pyg(edge_weight=np.ones(5)), weights=WEIGHTS[:, None]),
        fit(
            ({"edge_index": PATH, "edge_feat": WEIGHTS}, LABELS), None, weights=WEIGHTS
        ),
        fit(tuples, weights="edges"),
        fit(heavy),
        fit(heavy, weights="weight"),
        fit(w),
    ):
        np.testing.assert_allclose(found.scores_, expected, atol=1e-12)
