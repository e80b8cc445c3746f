"""A message advises an argument only to callers that can pass it.

Messages are read from the source, where an argument is advised as ``name=`` or
``--name``. A call graph leads from each public function to the messages that it can
raise or warn with.
"""

import ast
import dataclasses
import functools
import importlib
import inspect
import re
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse

from gnnrp import ResidualPropagation, datasets, estimator, graph, propagation, sparse
from gnnrp.commands import flags
from gnnrp.estimator import OnGraph
from gnnrp.kernels import features, homophily
from gnnrp.propagation import sweep
from gnnrp.studies import similarities

PACKAGE = Path(__file__).parents[2] / "gnnrp"
OF_CALL = re.compile(r"[\w.]+\([^()]*\)")  # its arguments are those of that function
ARGUMENT = re.compile(r"(?<![\w-])(?:([a-z_]+)=(?![={])|--([a-z][a-z-]*))")
TWO_NAMES = re.compile(r"(\w+) \(--([a-z-]+)\)")  # of one argument, in Python and not
OF_WEIGHTS = {
    ("gnnrp.graph.formats", "edge_list"),
    ("gnnrp.graph.edge_lists", "check"),
    ("gnnrp.graph.edge_lists", "_combine"),
}

PATH = np.array([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@functools.cache
def definitions():
    """Return the syntax tree of each function and method by (module, name)."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            within = node.body if isinstance(node, ast.ClassDef) else [node]
            owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            for inner in within:
                if isinstance(inner, ast.FunctionDef):
                    found[module_name(path), owner + inner.name] = inner
    return found


def strings(function):
    """Yield the strings of a function but its docstrings; {} stands for a value."""
    parts = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Expr):
            parts.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            texts = (getattr(part, "value", "{}") for part in node.values)
            yield "".join(text if isinstance(text, str) else "{}" for text in texts)
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and node not in parts:
            yield str(node.value)


@functools.cache
def advised(key):
    """Return the arguments that a function's own messages advise.

    A message that begins with an argument is about a value that the caller passed.
    """
    found = set()
    for text in strings(definitions()[key]):
        text = TWO_NAMES.sub(r"\1=", OF_CALL.sub("", text))
        own = "commands" not in key[0] and re.match("[a-z_]+=|--", text)
        for argument, flag in () if own else ARGUMENT.findall(text):
            found.add(argument or flag.replace("-", "_"))
    return found


def key_of(thing):
    """Return (module, name) of a function or class."""
    for _ in range(9):
        thing = getattr(thing, "func", getattr(thing, "__wrapped__", thing))
    return getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)


def scope_of(key):
    """Return the values of the names in a function, without its parameters."""
    module, name = key
    scope = dict(vars(importlib.import_module(module)))
    if "." in name:
        scope["self"] = scope[name.split(".")[0]]
    for node in ast.walk(definitions()[key]):
        if isinstance(node, ast.arg) and node.arg != "self":
            scope.pop(node.arg, None)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("gnnrp"):
            exec(ast.unparse(node), scope)
    return scope


@functools.cache
def references(key):
    """Return the functions and methods of the package that a function refers to."""
    scope, found = scope_of(key), set()
    for node in ast.walk(definitions()[key]):
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in scope:
            thing = scope[node.id]
            for part in reversed(parts):
                thing = getattr(thing, part, None)
            module, name = key_of(thing)
            makes = ("__init__", "__post_init__", "__call__")
            found |= {(module, name), *((module, f"{name}.{each}") for each in makes)}
    return found & set(definitions())


def lacking(key, arguments, *, weighted=True):
    """Return the messages that advise other arguments, by the function that has them.

    Args:
        key: of the function that the user calls.
        arguments: that it takes.
        weighted: whether its edges may have weights.
    """
    seen, left = set() if weighted else set(OF_WEIGHTS), [key]
    wrong = {}
    while left:
        here = left.pop()
        if here not in seen:
            seen.add(here)
            left.extend(references(here))
            wrong[here] = advised(here) - set(arguments)
    return {here: names for here, names in wrong.items() if names}


FUNCTIONS = [
    function
    for module in (graph, datasets, sparse, homophily)
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if not name.startswith("_") and key_of(function) in definitions()
]
FUNCTIONS += [propagation.run, sweep.run, features.build]
MADE = inspect.signature(ResidualPropagation).parameters
METHODS = [
    (kind, name, inspect.signature(kind).parameters)
    for kind in (ResidualPropagation, OnGraph)
    for name in ("fit", "refit", "predict_on", "predict", "predict_proba", "score")
    if hasattr(kind, name)
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: ".".join(key_of(f)))
def test_functions_advise_only_what_they_take(function):
    arguments = inspect.signature(function).parameters
    assert lacking(key_of(function), arguments) == {}


@pytest.mark.parametrize(("kind", "name", "made"), METHODS)
def test_estimators_advise_only_what_they_take(kind, name, made):
    key = key_of(getattr(kind, name))
    arguments = {*inspect.signature(getattr(kind, name)).parameters, *made, *MADE}
    assert lacking(key, arguments) == {}
    if kind is OnGraph and name == "fit":  # it fits a ResidualPropagation
        assert lacking(key_of(ResidualPropagation.fit), arguments) == {}


# `gnnrp fit` sets no kernel and no class weights, and its edges are arrays.
UNREACHED = {
    ("gnnrp.estimator._inputs", "parse_features"),
    ("gnnrp.estimator._inputs", "parse_settings"),
    ("gnnrp.graph.formats", "_from_fields"),
}


@pytest.mark.parametrize("command", flags.COMMANDS)
def test_commands_advise_only_flags_that_they_have(command):
    kind = flags.load(command)
    names = {field.name for field in dataclasses.fields(kind)} | {"root"}
    # The edges of a dataset have no weights, and those of a table are checked before.
    found = lacking(key_of(kind.run), names, weighted=False)
    unreached = UNREACHED if command == "fit" else set()
    assert {key: x for key, x in found.items() if key not in unreached} == {}


def test_a_library_function_below_commands_advises_only_what_all_of_them_take():
    arguments = inspect.signature(similarities.build).parameters
    assert lacking(key_of(similarities.build), arguments) == {}


def test_an_argument_that_a_caller_lacks_is_found():
    wrong = lacking(key_of(graph.raw_adjacency), {"weights", "duplicates"})
    assert wrong == {("gnnrp.graph.edge_lists", "check"): {"signed"}}
    assert lacking(key_of(ResidualPropagation.fit), ["kernel", "weights"]) == {
        ("gnnrp.graph.edge_lists", "check"): {"signed"},
        ("gnnrp.graph.edge_lists", "_combine"): {"duplicates"},
        ("gnnrp.estimator._inputs", "parse_features"): {"features"},
        ("gnnrp.estimator._inputs", "parse_settings"): {"loss"},
        ("gnnrp.estimator._inputs", "check_free"): {"similarity"},
        (
            "gnnrp.estimator.residual_propagation",
            "ResidualPropagation._check_free",
        ): {"similarity"},
        ("gnnrp.estimator.residual_propagation", "ResidualPropagation.fit"): {
            "similarity"
        },
    }


# Remedies at work


def twice(weight=2.0):
    """Return a path whose first edge is stored in both directions."""
    w = scipy.sparse.coo_array(([1.0, weight, 3.0], ([0, 1, 1], [1, 0, 2])), (3, 3))
    return w.tocsr()


MULTIGRAPH = nx.MultiGraph()
MULTIGRAPH.add_weighted_edges_from([(0, 1, 1.0), (0, 1, 2.0), (1, 2, 3.0)])
CALLERS = {
    "raw_adjacency": graph.raw_adjacency,
    "normalized_adjacency": graph.normalized_adjacency,
    "drop_edges": lambda edges, **more: graph.drop_edges(edges, drop=0.5, **more),
    "fit": lambda edges, **more: ResidualPropagation(1, 0.5, 3).fit(
        edges, [0, None, 1], **more
    ),
    "OnGraph": lambda edges, **more: OnGraph(
        ResidualPropagation(1, 0.5, 3), edges, **more
    ).fit([0, 2], [0, 1]),
}


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("edges", [twice(), MULTIGRAPH], ids=["scipy", "networkx"])
def test_the_rule_for_duplicates_that_a_message_advises_is_taken(caller, edges):
    with pytest.raises(ValueError, match='duplicates="sum", "max" or "min"'):
        CALLERS[caller](edges)
    CALLERS[caller](edges, duplicates="max")


@pytest.mark.parametrize("caller", CALLERS)
def test_the_signed_weights_that_a_message_advises_are_taken(caller):
    edges = twice(1.0) * -1.0
    with pytest.raises(ValueError, match="pass signed=True"):
        CALLERS[caller](edges)
    CALLERS[caller](edges, signed=True)


def test_a_fit_has_the_weights_duplicates_and_signs_of_the_graph_functions():
    settings = {"weights": [1.0, -2.0, 5.0, 1.0], "duplicates": "sum", "signed": True}
    edges, labels = np.array([[0, 1, 1, 2], [1, 0, 2, 3]]), [0, None, None, 1]
    model = ResidualPropagation(2, 0.5, 4)
    found = model.fit(edges, labels, **settings).scores_
    w = graph.raw_adjacency(edges, **settings)
    np.testing.assert_array_equal(found, model.fit(w, labels, signed=True).scores_)
    over_nodes = OnGraph(model, edges, **settings).fit([0, 3], [0, 1])
    np.testing.assert_array_equal(over_nodes.model_.scores_, found)


def test_nodes_beyond_those_of_the_graph_are_refused_without_an_argument_of_another():
    given = {"edge_index": PATH, "num_nodes": 4}
    with pytest.raises(
        ValueError, match="have node id 5, but the graph has 4 nodes; corr"
    ):
        ResidualPropagation().fit(given, [0, 1, 0, 1])


def test_row_sums_that_do_not_scale_are_refused_with_what_a_fit_can_change():
    model = ResidualPropagation(1, 0.5, 3, kernel="linear")
    x = np.arange(6.0)[:, None] - 2.5
    with pytest.raises(ValueError, match="take another kernel or gamma"):
        model.fit(PATH, [0, 1] * 3, features=x)


def test_estimator_module_lists_what_this_test_covers():
    kinds = {kind.__name__ for kind, *_ in METHODS}
    assert kinds == set(estimator.__all__) - {"NotFittedError", "Predictions"}
