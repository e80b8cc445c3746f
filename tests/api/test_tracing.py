"""No result is stale: a changed global, closure, list or attribute is seen."""

import dataclasses
import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import generators
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from generators import C, N

from gnnrp import graph, metrics
from gnnrp.kernels import alignment, features, gntk
from gnnrp.kernels.features import low_rank
from gnnrp.kernels.gntk import activations, blocked, local
from gnnrp.kernels.ntk import empirical, stochastic, structured
from gnnrp.models import gnn, objectives, training
from gnnrp.propagation import (
    Steps,
    krylov,
    label,
    linear_maps,
    losses,
    similarity,
    solvers,
)
from gnnrp.propagation.solvers import _closed_forms, _lanczos, _node_positions, iterate
from gnnrp.runtime import tracing
from gnnrp.studies import baselines
from gnnrp.types import Layer

A = generators.adjacency(0)
TARGETS, SPLIT = generators.targets(0), generators.split(0)
FEATURES = np.abs(generators.world(0).features)
X, Y = jnp.asarray(FEATURES), jnp.asarray(TARGETS)
P = graph.normalized_adjacency(generators.edges(0), N)
KEY = jax.random.key(0)
LAYERS = [
    Layer(jnp.asarray(generators.positive_definite(i, 4)), None) for i in range(2)
]

Make = Callable[[Callable], tuple[Any, Callable[[float], None]]]
"""(factor, *arguments) -> value: a function that holds the factor, and its setter."""

factor = 1.0


def in_a_global(core):
    def set_to(value):
        globals()["factor"] = value

    set_to(1.0)
    return lambda *args: core(factor, *args), set_to


def in_a_cell(core):
    held = 1.0

    def set_to(value):
        nonlocal held
        held = value

    return lambda *args: core(held, *args), set_to


def in_a_list(core):
    held = [1.0]
    return lambda *args: core(held[0], *args), functools.partial(held.__setitem__, 0)


def in_a_default(core):
    def function(*args, held=[1.0]):  # noqa: B006
        return core(held[0], *args)

    (held,) = function.__kwdefaults__.values()
    return function, functools.partial(held.__setitem__, 0)


class Holder:
    """A callable object that cannot be hashed, as it is compared by its value."""

    def __init__(self, core):
        self.core, self.held = core, 1.0

    def __eq__(self, other):
        return self.held == other.held

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __call__(self, *args):
        return self.core(self.held, *args)


def in_an_attribute(core):
    holder = Holder(core)
    return holder, functools.partial(setattr, holder, "held")


def behind_a_method(core):
    holder = Holder(core)
    return holder.__call__, functools.partial(setattr, holder, "held")


def in_a_partial(core):
    function, set_to = in_a_list(core)
    return functools.partial(function), set_to


def in_a_partial_of_jax(core):
    function, set_to = in_a_list(core)
    return jax.tree_util.Partial(function), set_to


def under_a_borrowed_name(core):
    function, set_to = in_a_list(core)
    return functools.wraps(metrics.accuracy)(function), set_to


STATES: list[Make] = [
    in_a_global,
    in_a_cell,
    in_a_list,
    in_a_default,
    in_an_attribute,
    behind_a_method,
    in_a_partial,
    in_a_partial_of_jax,
    under_a_borrowed_name,
]


def run(S=None, **settings):
    defaults = {"step_size": 0.5, "num_steps": 9, "metric": metrics.accuracy}
    S = similarity.Power(A, 2) if S is None else S
    return generators.run(S, TARGETS, SPLIT, **(defaults | settings))


def mix(factor, v):
    return factor * v + A(A(v))


def score(factor, scores, targets, mask):
    gap = jnp.where(mask[:, None], scores - targets, 0)
    return -factor * jnp.sum(gap**2)


def push(factor, targets, predictions):
    return factor * (targets - predictions)


def gram(factor, x, y, gamma):
    return gamma + factor * x @ y.T


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Applied:
    """A similarity with a function for a static field."""

    matrix: Any
    function: Callable = dataclasses.field(metadata={"static": True})

    def __call__(self, v):
        return self.function(self.matrix(v))


def trained(**changes):
    rule = {"network": gnn.GCN(C, 4), "optimizer": objectives.sgd(0.1)}
    data = {"x": X, "matrix": A, "targets": Y, "train": jnp.asarray(SPLIT.train)}
    for settings in (rule, data):
        settings |= {name: changes[name] for name in settings if name in changes}
    if "metric_fn" in changes:
        rule["metric_fn"] = changes["metric_fn"]
        data["val"] = jnp.asarray(SPLIT.val)
    if "loss_fn" in changes:
        rule["loss_fn"] = changes["loss_fn"]
    found = training.run(training.Rule(**rule), training.Data(**data), KEY, num_steps=3)
    return found.losses, found.best_val


def activation_of(function):
    return activations.RELU._replace(
        covariance=lambda c, a, b: function(activations.RELU.covariance(c, a, b))
    )


def network(apply_fn):
    return lambda params, x: apply_fn(A(x @ params))


def space(S):
    basis = krylov.build(
        S,
        _node_positions.AllNodes(jnp.asarray(SPLIT.train)[None]),
        jnp.asarray(np.where(SPLIT.train, 1.0, 0)[None, None]),
        Steps(0.5, 5),
    )
    return basis.eigenvalues


class Driver(NamedTuple):
    """A function of a factor, and a driver that takes the function."""

    core: Callable
    drive: Callable[[Any], Any]


def times(factor, *args):
    return factor * args[-1]


WEIGHTS = jnp.asarray(generators.positive_definite(2, 4))
DRIVERS = {
    # Similarities.
    "run, iterate": Driver(mix, lambda f: run(f, method="iterate").predictions),
    "run, exact": Driver(mix, lambda f: run(f, method="exact").predictions),
    "run, krylov": Driver(mix, lambda f: run(f, method="krylov").predictions),
    "run, a part of the map": Driver(
        mix, lambda f: run(similarity.Sandwich(A, f), method="iterate").predictions
    ),
    "run, a static field": Driver(
        times, lambda f: run(Applied(A, f), method="iterate").predictions
    ),
    "sweep, adjacency": Driver(
        lambda factor, v: factor * A(v), lambda f: swept(adjacency=f).val
    ),
    "columns": Driver(mix, lambda f: linear_maps.columns(f, np.arange(3), N)),
    "krylov.build": Driver(mix, space),
    "label.propagate": Driver(mix, lambda f: label.propagate(f, Y, num_iterations=2)),
    "label.limit": Driver(times, lambda f: label.limit(f, Y, alpha=0.3)),
    # Losses and metrics.
    "run, loss": Driver(push, lambda f: run(residual_fn=f).predictions),
    "run, metric": Driver(score, lambda f: run(metric=f).val),
    "run, metric step by step": Driver(
        score, lambda f: run(metric=f, method="iterate").val
    ),
    "sweep, loss": Driver(push, lambda f: swept(residual_fn=f).val),
    "sweep, metric": Driver(score, lambda f: swept(metric=f).val),
    "baselines, metric": Driver(score, lambda f: baseline(f)),
    # Kernels.
    "features.build": Driver(gram, lambda f: features.build(FEATURES, f).scale),
    "features.diagonal": Driver(gram, lambda f: features.diagonal(plain_kernel(f))),
    "low_rank.distinct": Driver(
        gram, lambda f: low_rank.distinct(FEATURES, f, normalized=False).gram
    ),
    "low_rank.nystrom": Driver(
        gram,
        lambda f: low_rank.nystrom(FEATURES, f, num_landmarks=3, key=KEY).map.factor,
    ),
    "run, kernel": Driver(
        gram, lambda f: run(plain_kernel(f), method="iterate").predictions
    ),
    "local.gcn": Driver(
        times,
        lambda f: (
            local.gcn(
                P,
                FEATURES,
                [0, 1],
                [2, 3],
                gntk.Network(3, activation=activation_of(f)),
            ).ntk
        ),
    ),
    "gntk.gcn": Driver(
        times,
        lambda f: (
            gntk.gcn(A, X @ X.T, gntk.Network(2, activation=activation_of(f))).ntk
        ),
    ),
    "gntk.gcn, propagation": Driver(
        mix, lambda f: gntk.gcn(f, X @ X.T, gntk.Network(2)).ntk
    ),
    "blocked.gcn": Driver(mix, lambda f: blocked.gcn(f, X @ X.T, gntk.Network(2)).ntk),
    "structured.gcn": Driver(
        times,
        lambda f: structured.gcn(LAYERS, X, A, activation_fn=lambda z: f(jnp.tanh(z))),
    ),
    "empirical.ntk": Driver(
        times, lambda f: empirical.ntk(network(f), WEIGHTS, X, method="products")
    ),
    "run, empirical.Product": Driver(
        times,
        lambda f: (
            run(
                empirical.Product(network(f), WEIGHTS, X),
                step_size=0.01,
                method="iterate",
            ).predictions
        ),
    ),
    "alignment": Driver(
        mix, lambda f: alignment.alignment(alignment.Operator(f, N), Y @ Y.T)
    ),
    "stochastic": Driver(mix, lambda f: stochastic.trace(f, N, KEY).value),
    # Training.
    "training, loss": Driver(times, lambda f: trained(loss_fn=loss_of(f))[0]),
    "training, metric": Driver(score, lambda f: trained(metric_fn=f)[1]),
    "training, activation": Driver(
        times, lambda f: trained(network=gnn.GCN(C, 4, activation_fn=f))[0]
    ),
    "training, schedule": Driver(
        lambda factor, _: 0.1 * factor, lambda f: trained(optimizer=optax.sgd(f))[0]
    ),
    "training, matrix": Driver(mix, lambda f: trained(matrix=f)[0]),
}


def swept(adjacency=A, **settings):
    defaults = {"metric": metrics_of_distance, "method": "iterate"}
    grid = {"powers": [1], "step_sizes": [0.5], "num_steps": 5}
    return generators.sweep_of(
        adjacency, TARGETS, SPLIT, **(grid | defaults | settings)
    )


def metrics_of_distance(*args):
    return score(1.0, *args)


def baseline(metric):
    lines = baselines.run(A, TARGETS, SPLIT, metric=metric, with_plain=False)
    return list(lines["lp"].grid.values())


def plain_kernel(function):
    return features.build(FEATURES, function, normalized=False)


def loss_of(function):
    return lambda *args: function(objectives.cross_entropy(*args))


def assert_seen(driver, make):
    function, set_to = make(driver.core)
    first = np.asarray(driver.drive(function))
    set_to(2.0)
    second = np.asarray(driver.drive(function))
    expected = np.asarray(driver.drive(lambda *args: driver.core(2.0, *args)))
    np.testing.assert_array_equal(second, expected)
    assert not np.array_equal(first, second)


SLOW = {
    "local.gcn",
    "run, a part of the map",
    "run, empirical.Product",
    "sweep, loss",
    "training, matrix",
    "training, schedule",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name in DRIVERS
    ],
)
def test_a_mutated_list_behind_a_function_is_seen(name):
    assert_seen(DRIVERS[name], in_a_list)


@pytest.mark.parametrize("make", STATES)
@pytest.mark.parametrize("wrap", [tracing.as_argument, tracing.as_static])
def test_every_kind_of_state_is_seen(wrap, make):
    compiled = tracing.Jit(lambda function, x: function(x))
    assert_seen(Driver(times, lambda f: compiled(wrap(f), jnp.ones(2))), make)


def test_a_kernel_evaluates_its_function_as_it_is_now():
    function, set_to = in_a_list(gram)
    kernel = plain_kernel(function)
    first = features.matrix(kernel)
    set_to(2.0)
    expected = 1 + 2 * FEATURES @ FEATURES.T
    np.testing.assert_allclose(features.matrix(kernel), expected, rtol=1e-12)
    np.testing.assert_allclose(first, 1 + FEATURES @ FEATURES.T, rtol=1e-12)


@pytest.mark.parametrize("method", solvers.NAMES[1:])
def test_functions_of_the_package_and_pytrees_keep_their_compilation(method):
    drivers = (iterate._advance, _closed_forms._metric_of_chunks, _lanczos._multiply)

    def sizes():
        return [driver._jitted._cache_size() for driver in drivers]

    run(method=method)
    before = sizes()
    for step_size in (0.1, 0.2, 0.3):
        run(method=method, step_size=step_size)
    assert sizes() == before
    S = similarity.Power(A, 2)
    assert tracing.as_argument(S) is S


def test_training_with_equal_settings_keeps_its_compilation():
    compiled = training._chunk._jitted
    trained()
    size = compiled._cache_size()
    trained(optimizer=objectives.sgd(0.1), network=gnn.GCN(C, 4))
    assert compiled._cache_size() == size


def counted(core):
    traces = []

    def function(*args):
        traces.append(1)
        return core(1.0, *args)

    return function, traces


@pytest.mark.parametrize("method", solvers.NAMES[1:])
def test_one_call_traces_a_metric_once_for_all_step_sizes_and_splits(method):
    splits = generators.splits(0, ((6, 4, 3), (6, 4, 3)))

    def traces_of(step_sizes):
        metric, traces = counted(score)
        generators.run(
            similarity.Power(A, 2),
            TARGETS,
            splits,
            step_sizes=step_sizes,
            num_steps=9,
            metric=metric,
            method=method,
        )
        return len(traces)

    assert traces_of([0.1, 0.2, 0.3]) == traces_of([0.1]) > 0


def test_a_sweep_traces_a_metric_once_for_all_powers():
    def traces_of(powers):
        metric, traces = counted(score)
        swept(metric=metric, powers=powers, method="krylov")
        return len(traces)

    assert traces_of([1, 2, 3]) == traces_of([1]) > 0


def test_columns_trace_a_map_once_for_all_blocks():
    S, traces = counted(mix)
    linear_maps.columns(S, np.arange(6), N, max_bytes=8 * N * 2)
    assert len(traces) == 1


class Token:
    """An object that only a function refers to."""


@pytest.mark.parametrize("method", solvers.NAMES[1:])
def test_a_run_keeps_nothing_of_the_functions_that_it_was_given(method):
    tokens = []

    def held(core):
        token = Token()
        tokens.append(weakref.ref(token))
        return lambda *args: core(1.0 if token else 0.0, *args)

    run(held(mix), metric=held(score), method=method)
    if method == "iterate":
        run(held(mix), metric=held(score), residual_fn=held(push))
    gc.collect()
    assert [token() for token in tokens] == [None] * len(tokens)


def test_training_keeps_nothing_of_the_functions_that_it_was_given():
    token = Token()
    alive = weakref.ref(token)

    def activation_fn(z, token=token):
        return jnp.tanh(z) if token else z

    trained(network=gnn.GCN(C, 4, activation_fn=activation_fn))
    del activation_fn, token
    gc.collect()
    assert alive() is None


@dataclasses.dataclass(frozen=True)
class Settings:
    """A value that is compared by its fields."""

    field: Any


@pytest.mark.parametrize(
    "value",
    [
        metrics.accuracy,
        losses.softmax,
        objectives.sgd(0.1, momentum=0.9),
        objectives.adam(0.1, weight_decay=0.1),
        gnn.GCN(3),
        activations.leaky_relu(0.3),
        training.Rule(gnn.APPNP(3), objectives.adam(0.1), metric_fn=metrics.accuracy),
        jax.nn.relu,
        functools.partial(features.polynomial, degree=2),
        Settings((1, "a", None, jnp.float32)),
    ],
)
def test_functions_of_libraries_hold_no_state(value):
    assert tracing.is_stateless(value)
    assert isinstance(tracing.as_static(value), tracing.Constant)


@pytest.mark.parametrize(
    "value",
    [
        mix,
        jax.jit(mix),
        objectives.sgd(lambda t: 0.1 * t),
        gnn.GCN(3, activation_fn=lambda z: z),
        functools.partial(features.polynomial, degree=[2]),
        Settings(mix),
        Settings([1]),
        Holder(mix),
        Holder,
        object(),
        np.zeros(2),
        jax.tree.structure(Applied(A, mix)),
    ],
)
def test_what_may_hold_state_is_known(value):
    assert not tracing.is_stateless(value)
    assert isinstance(tracing.as_static(value), tracing.Fresh)
