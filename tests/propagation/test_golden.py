"""Held against values computed with 40 digits by other means."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from gnnrp import graph, sparse
from gnnrp.kernels import features
from gnnrp.propagation import exact, label, linear_maps, losses, residual, similarity

GOLDEN = Path(__file__).parents[1] / "golden"


def load(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())


PROPAGATION, TRAJECTORY = load("propagation"), load("trajectory")
GENERALIZED, LOSSES = load("generalized_rp"), load("losses")
LP = {case["op"]: case for case in PROPAGATION["cases"] if case["op"][:2] != "RP"}
RP = [case for case in PROPAGATION["cases"] if case["op"] == "RP with A^K"]


def assert_golden(actual, expected):
    """12 digits relative to the largest entry."""
    expected = np.asarray(expected, float)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * scale)


def matrix_of(golden):
    W = scipy.sparse.csr_array(np.array(golden["W"], float))
    return sparse.prepare(graph.normalized_adjacency(W))


def seeds_of(golden):
    """Return [Y, 0] and the training mask."""
    train = np.array(golden["train_idx"])
    values = np.reshape(np.array(golden["Y_train"], float), (len(train), -1))
    num_nodes = len(golden["W"] if "W" in golden else golden["S"])
    targets = np.zeros((num_nodes, values.shape[1]))
    targets[train] = values
    return targets, np.isin(np.arange(num_nodes), train)


def expected_of(golden, num_nodes, train_idx, rest_idx):
    """Return F of all nodes in node order."""
    out = np.full((num_nodes, len(golden["F_train"][0])), np.nan)
    out[train_idx], out[rest_idx] = golden["F_train"], golden["F_rest"]
    return out


def by_steps(S, targets, train_mask, *, step_size, steps, residual_fn=losses.squared):
    """Return {t: F_t} from ``init`` and ``step``."""
    mask, Y = jnp.asarray(train_mask)[:, None], jnp.asarray(targets)

    @jax.jit
    def advance(state, count):
        def body(_, state):
            return residual.step(
                state, S, Y, mask, step_size=step_size, residual_fn=residual_fn
            )

        return jax.lax.fori_loop(0, count, body, state)

    state, found = residual.init(Y), {}
    for t in sorted(steps):
        state = advance(state, t - state.t)
        assert int(state.t) == t
        found[t] = np.asarray(state.predictions)
    return found


def by_eigenvectors(S, targets, train_mask, *, step_size, steps):
    """Return {t: F_t} from ``exact``."""
    train = np.flatnonzero(train_mask)
    columns = linear_maps.columns(S, train, len(targets))
    found = exact.trajectory(
        exact.factorize(columns, train),
        targets[train],
        np.array(steps),
        step_size=step_size,
    )
    return dict(zip(steps, found, strict=True))


routes = pytest.mark.parametrize("route", [by_steps, by_eigenvectors])


def assert_trajectory(S, targets, mask, case, *, step_size, route):
    train, rest = np.flatnonzero(mask), np.array(case["rest_idx"])
    steps = [point["t"] for point in case["trajectory"]]
    found = route(S, targets, mask, step_size=step_size, steps=steps)
    for point in case["trajectory"]:
        expected = expected_of(point, len(targets), train, rest)
        if point["t"] == 0:
            assert not found[0].any()
        else:
            assert_golden(found[point["t"]], expected)


@pytest.mark.parametrize(
    ("self_loops", "name"),
    [(1.0, "A_norm_with_self_loops"), (0.0, "A_norm_no_self_loops")],
)
def test_normalized_adjacency_is_the_golden_one(self_loops, name):
    W = scipy.sparse.csr_array(np.array(PROPAGATION["W"], float))
    A = graph.normalized_adjacency(W, self_loops=self_loops)
    assert_golden(A.todense(), PROPAGATION[name])


def test_label_propagation_is_the_golden_one():
    targets, mask = seeds_of(PROPAGATION)
    case = LP["LP(alpha=1)"]
    start = label.seeds(jnp.asarray(targets), jnp.asarray(mask))
    found = label.propagate(matrix_of(PROPAGATION), start, num_iterations=case["k"])
    assert_golden(found, case["F_all"])


def test_restarting_label_propagation_is_the_golden_one():
    targets, _ = seeds_of(PROPAGATION)
    case = LP["LP restart: F<-a A F+(1-a)[Y,0], F0=[Y,0]"]
    found = label.propagate(
        matrix_of(PROPAGATION),
        jnp.asarray(targets),
        num_iterations=case["k"],
        alpha=case["alpha"],
    )
    assert_golden(found, case["F_all"])


@pytest.mark.long
def test_converged_label_propagation_is_the_golden_one():
    targets, _ = seeds_of(PROPAGATION)
    case = LP["LP converged (1-a)(I-aA)^-1[Y,0]"]
    found = label.limit(
        matrix_of(PROPAGATION),
        jnp.asarray(targets),
        alpha=case["alpha"],
        tolerance=1e-15,
    )
    assert_golden(found, case["F_all"])


def test_lazy_walk_is_the_golden_one():
    targets, _ = seeds_of(PROPAGATION)
    case = LP["lazy walk: F<-a A F+(1-a)F, k times"]
    walk = similarity.LazyWalk(matrix_of(PROPAGATION), case["k"], case["alpha"])
    assert_golden(walk(jnp.asarray(targets)), case["F_all"])


@routes
@pytest.mark.parametrize("case", RP, ids=lambda case: f"K={case['K']}")
def test_basic_rp_is_the_golden_one(case, route):
    S = similarity.Power(matrix_of(PROPAGATION), case["K"])
    targets, mask = seeds_of(PROPAGATION)
    assert_trajectory(S, targets, mask, case, step_size=case["eta"], route=route)


@routes
@pytest.mark.parametrize("case", TRAJECTORY["cases"], ids=lambda case: case["name"])
def test_trajectory_of_each_convergence_case_is_the_golden_one(case, route):
    S = similarity.Dense(jnp.asarray(np.array(case["S"], float)))
    targets, mask = seeds_of(case)
    assert_trajectory(S, targets, mask, case, step_size=case["eta"], route=route)


@pytest.mark.parametrize("case", TRAJECTORY["cases"], ids=lambda case: case["name"])
def test_limit_is_the_golden_one_or_said_not_to_be_reached(case):
    S, train = np.array(case["S"], float), np.array(case["train_idx"])
    factors = exact.factorize(S[:, train], train)
    Y = np.array(case["Y_train"], float)
    found = exact.convergence(factors, Y, step_size=case["eta"])
    assert found.predictions_converge == (case["limit"] is not None)
    if case["limit"]:
        expected = expected_of(case["limit"], len(S), train, case["rest_idx"])
        assert_golden(exact.limit(factors, Y), expected)


def generalized(case):
    alpha = float(case["alpha_lazy"])
    walk = similarity.LazyWalk(matrix_of(GENERALIZED), case["k"], alpha)
    X = np.array(GENERALIZED["X"])
    return similarity.Sandwich(walk, features.build(X, gamma=GENERALIZED["gamma"]))


each_walk = pytest.mark.parametrize(
    "case", GENERALIZED["cases"], ids=lambda case: f"k={case['k']}"
)


@pytest.mark.long
@each_walk
def test_generalized_similarity_is_the_golden_one(case):
    every = np.arange(5)
    S = generalized(case)
    assert_golden(linear_maps.columns(S, every, 5), case["S"])
    if case["alpha_lazy"] == 1:  # a walk that never rests is a power
        power = similarity.Power(S.outer.adjacency, case["k"])
        S = similarity.Sandwich(power, S.inner)
        assert_golden(linear_maps.columns(S, every, 5), case["S"])


@pytest.mark.long
def test_gaussian_kernels_are_the_golden_ones():
    X, gamma = np.array(GENERALIZED["X"]), GENERALIZED["gamma"]
    plain = features.build(X, gamma=gamma, normalized=False)
    assert_golden(features.matrix(plain), GENERALIZED["K_gauss"])
    kernel = features.build(X, gamma=gamma)
    assert_golden(features.matrix(kernel), GENERALIZED["K_sym_normalised"])
    assert features.gamma_from_bandwidth(GENERALIZED["sigma"]) == pytest.approx(
        gamma, rel=1e-14
    )


@routes
@each_walk
def test_generalized_rp_is_the_golden_one(case, route):
    targets, mask = seeds_of(GENERALIZED)
    assert_trajectory(
        generalized(case), targets, mask, case, step_size=case["eta"], route=route
    )


@pytest.mark.parametrize(
    ("position", "residual_fn"),
    [(0, losses.sigmoid), (1, losses.absolute), (2, losses.softmax)],
)
def test_other_losses_follow_the_golden_trajectories(position, residual_fn):
    case, Theta = LOSSES["cases"][position], np.array(LOSSES["Theta"])
    targets, mask = seeds_of({**case, "S": Theta, "train_idx": LOSSES["train_idx"]})
    found = by_steps(
        similarity.Dense(jnp.asarray(Theta)),
        targets,
        mask,
        step_size=LOSSES["eta"],
        steps=[point["t"] for point in case["trajectory"]],
        residual_fn=residual_fn,
    )
    for point in case["trajectory"]:
        assert_golden(found[point["t"]], np.reshape(point["f_all"], targets.shape))


@pytest.mark.long
def test_probability_kernel_with_reweighted_residual_is_the_golden_one():
    check, train = LOSSES["prob_space_check"], np.array(LOSSES["train_idx"])
    f = jnp.asarray(check["f"])[:, None]
    y = np.zeros((5, 1))
    y[train, 0] = LOSSES["cases"][0]["Y_train"]
    Theta = similarity.Dense(jnp.asarray(np.array(LOSSES["Theta"])))
    S = similarity.Probability(Theta, jax.nn.sigmoid(f))
    assert_golden(linear_maps.columns(S, np.arange(5), 5), check["Theta_prob"])
    R = losses.sigmoid(jnp.asarray(y), f)
    assert_golden(R[train, 0], check["R_train"])
    c = losses.reweighted(jnp.asarray(y), f)
    assert_golden(c[train, 0], check["c_of_R_train"])
    sent = S(jnp.where(jnp.isin(jnp.arange(5), train)[:, None], c, 0.0))
    assert_golden(sent[:, 0], check["dp_dt_over_eta = Theta_prob[:,tr] c(R)"])
