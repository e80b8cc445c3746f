"""Wrong arguments of public functions, as a user without type checks passes them.

Each is refused in one line that names the value and the remedy, before any product.
"""

import generators
import jax
import jax.numpy as jnp
import jaxtyping
import networkx as nx
import numpy as np
import optax
import pytest
import scipy.sparse
from jax.experimental.sparse import BCOO

from gnnrp import ResidualPropagation, datasets, estimator, graph, metrics, sparse
from gnnrp.datasets import sbm, splits
from gnnrp.distributed import partitioning, shards
from gnnrp.distributed import sharded_matrix as sharded
from gnnrp.kernels import alignment, features, generalization, gntk, homophily
from gnnrp.kernels.features import low_rank
from gnnrp.kernels.gntk import activations, blocked, closed_forms, inductive, local
from gnnrp.kernels.ntk import empirical, stochastic, structured
from gnnrp.models import gnn, objectives, training
from gnnrp.propagation import exact, label, linear_maps, regression, similarity, sweep
from gnnrp.runtime import memory
from gnnrp.studies import baselines, presets
from gnnrp.studies import gntk as gntk_study
from gnnrp.studies import ntk as ntk_study
from gnnrp.studies import rp as rp_study
from gnnrp.types import Split

N, C = 12, 3
NODE = np.arange(N)
EDGES = np.stack([NODE, np.roll(NODE, 1)])
LABELS = NODE % C
Y = np.eye(C)[LABELS]
X = np.random.default_rng(0).random((N, 4))
PARTS = Split(NODE < 4, (NODE >= 4) & (NODE < 8), NODE >= 8)
EYE = scipy.sparse.eye_array(N, format="csr")
A = graph.normalized_adjacency(EDGES)
M = sparse.prepare(A)
S = similarity.Power(M, 2)
GRAM = jnp.asarray(X @ X.T)
KEY = jax.random.key(0)
NET = gnn.GCN(C, width=4)
RULE = training.Rule(NET, objectives.sgd(0.1))
DATA = training.Data(X, M, jnp.asarray(Y), jnp.asarray(PARTS.train))
FACTORS = exact.factorize(np.eye(4), NODE[:4])
LAYOUT = partitioning.balance(A, 1)
MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("nodes",))
LAYERS = [structured.Layer(jnp.ones((4, C)), None, jnp.asarray(1.0), jnp.asarray(1.0))]
SBM = sbm.generate(num_blocks=2, block_size=4, train_per_class=1, num_val=2, num_test=2)
PLAIN = presets.RPSettings(num_steps=1)


def run(similarity=S, targets=Y, split=PARTS, **more):
    given = {"step_size": 0.5, "num_steps": 2, "metric": metrics.accuracy} | more
    return generators.run(similarity, targets, split, **given)


def swept(adjacency=M, split=PARTS, **more):
    return generators.sweep_of(
        adjacency, Y, split, **({"metric": metrics.accuracy} | more)
    )


def trained(rule=RULE, data=DATA, key=KEY, **more):
    return training.run(rule, data, key, **({"num_steps": 1} | more))


def score(scores=Y, targets=Y, mask=PARTS.val, metric=metrics.accuracy):
    return metric(scores, targets, mask)


def fitted(graph=EDGES, labels=(0, 1, *[-1] * 10), **more):
    return ResidualPropagation(1, 0.5, 1).fit(graph, list(labels), **more)


NUMBERS = {  # a number each, and what is none
    "step sizes of a run": lambda x: generators.run(
        S, Y, PARTS, step_sizes=[x], num_steps=1, metric=metrics.accuracy
    ),
    "step sizes of a sweep": lambda x: swept(step_sizes=[x]),
    "step size of a trajectory": lambda x: exact.trajectory(
        FACTORS, Y[:4], [1], step_size=x
    ),
    "ridge": lambda x: exact.limit(FACTORS, Y[:4], ridge=x),
    "alpha of propagation": lambda x: label.propagate(M, Y, num_iterations=1, alpha=x),
    "alpha of a limit": lambda x: label.limit(M, Y, alpha=x),
    "tolerance": lambda x: label.limit(M, Y, alpha=0.5, tolerance=x),
    "gamma": lambda x: features.build(X, gamma=x),
    "gamma of Fourier features": lambda x: low_rank.fourier(
        X, gamma=x, num_features=2, key=KEY
    ),
    "bandwidth": lambda x: features.gamma_from_bandwidth(x),
    "scale": lambda x: gntk.gcn(M, GRAM, gntk.Network(2, scale=x)),
    "scale in closed form": lambda x: closed_forms.constants(2, scale=x),
    "bias": lambda x: gntk.gcn(M, GRAM, gntk.Network(1, bias="after", bias_std=x)),
    "bias in blocks": lambda x: blocked.gcn(
        M, GRAM, gntk.Network(1, bias="after", bias_std=x)
    ),
    "slope": activations.leaky_relu,
    "confidence": lambda x: generalization.bound(
        np.eye(N), np.ones(N), PARTS.train, alpha=0.1, confidence=x
    ),
    "self-loops": lambda x: graph.normalized_adjacency(EDGES, self_loops=x),
    "share dropped": lambda x: graph.drop_edges(EDGES, drop=x),
    "probability": lambda x: sbm.generate(intra_probability=x),
    "share of a split": lambda x: splits.random(LABELS, 1, (0.8, 0.1, x)),
    "preset": lambda x: presets.RPSettings(step_size=x),
    "wide network": lambda x: gntk_study.GNTKSettings(bias_std=x),
    "tracking": lambda x: ntk_study.NTKSettings(learning_rate=x),
    "learning rate": objectives.sgd,
    "momentum": lambda x: objectives.sgd(0.1, momentum=x),
    "weight decay": lambda x: objectives.adam(0.1, weight_decay=x),
    "dropout": lambda x: gnn.GCN(C, dropout=x).init(KEY, X, M),
}

COUNTS = {  # a whole number each
    "nodes": lambda x: graph.raw_adjacency(EDGES, x),
    "seed of thinning": lambda x: graph.drop_edges(EDGES, drop=0.5, seed=x),
    "seed of a graph": sbm.generate,
    "seed of splits": lambda x: splits.random(LABELS, 1, seed=x),
    "splits": lambda x: splits.random(LABELS, x),
    "nodes of a split": lambda x: splits.public(x, [], [], []),
    "split": lambda x: datasets.select_split(SBM, x),
    "steps of a run": lambda x: run(num_steps=x),
    "powers of a sweep": lambda x: swept(powers=[x]),
    "hops": lambda x: sparse.propagate(M, lambda new, *_: new, jnp.ones(N), x),
    "products": lambda x: label.limit(M, Y, alpha=0.5, max_iterations=x),
    "columns": lambda x: linear_maps.columns(S, [0], x),
    "parts": lambda x: partitioning.balance(A, x),
    "depth": lambda x: gntk.gcn(M, GRAM, gntk.Network(x)),
    "hops of a kernel": lambda x: closed_forms.linear(M, GRAM, num_hops=x),
    "nodes of a kernel": lambda x: closed_forms.decoupled(M, x, num_hops=1, depth=2),
    "classes": lambda x: alignment.label_kernel(LABELS, x),
    "landmarks": lambda x: low_rank.nystrom(X, num_landmarks=x, key=KEY),
    "size of an estimate": lambda x: stochastic.trace(M, x, KEY),
    "steps of training": lambda x: trained(num_steps=x),
    "blocks of sbm": lambda x: sbm.generate(num_blocks=x),
    "training nodes of sbm": lambda x: sbm.generate(train_per_class=x),
    "bytes": memory.room,
}


@pytest.fixture(autouse=True)
def _as_users_have_it(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def refused(call, exception, phrases):
    with pytest.raises(exception) as caught:
        call()
    assert type(caught.value) is exception
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 330
    for phrase in phrases:
        assert phrase in message


@pytest.mark.parametrize("wrong", ["0.1", [0.1], True, 1j], ids=repr)
@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_not_a_single_number_is_refused(name, wrong):
    told = str(wrong).strip("[]")  # flax makes tuples of lists
    refused(lambda: NUMBERS[name](wrong), ValueError, ["must be a number", told])


@pytest.mark.parametrize("name", NUMBERS)
def test_not_a_number_is_refused(name):
    refused(lambda: NUMBERS[name](np.nan), ValueError, ["nan"])


@pytest.mark.parametrize("wrong", [1.5, -3, True, [2]], ids=repr)
@pytest.mark.parametrize("name", COUNTS)
def test_what_is_not_a_whole_number_in_range_is_refused(name, wrong):
    refused(lambda: COUNTS[name](wrong), ValueError, ["must", repr(wrong)])


MAP = "must be a linear map"
REALS = "must hold real numbers"
ROWS = [
    # Graphs
    (lambda: graph.raw_adjacency(EDGES, weights=["a"] * N), TypeError, [REALS, "<U1"]),
    (lambda: graph.raw_adjacency(EDGES, weights="weight"), TypeError, [REALS, "str"]),
    (lambda: graph.raw_adjacency(EDGES, weights=EDGES[0] * 1j), TypeError, ["complex"]),
    (lambda: graph.raw_adjacency(EYE * 1j), TypeError, [REALS, "complex128"]),
    (
        lambda: graph.raw_adjacency(scipy.sparse.coo_array(np.ones(3))),
        ValueError,
        ["n x n", "(3,)"],
    ),
    (
        lambda: graph.raw_adjacency(nx.Graph([("a", "b", {"weight": "heavy"})])),
        TypeError,
        ["'weight'", REALS],
    ),
    (lambda: graph.normalize(np.eye(3)), TypeError, ["ndarray", "csr_array"]),
    (lambda: graph.normalize(EYE[:3]), ValueError, ["square", "(3, 12)"]),
    (lambda: graph.normalize(EYE * np.nan), ValueError, ["finite", "drop or replace"]),
    (lambda: graph.to_jraph(A, np.ones((3, 2))), ValueError, ["12 rows", "(3, 2)"]),
    # Products
    (lambda: sparse.to_scipy(None), TypeError, ["NoneType", "csr_array"]),
    (lambda: sparse.to_scipy(M), TypeError, ["got Matrix"]),
    (
        lambda: sparse.prepare(
            BCOO((np.ones((2, 1)), np.zeros((2, 1, 2), int)), shape=(2, 3, 3))
        ),
        ValueError,
        ["must be a sparse matrix", "(2, 3, 3)"],
    ),
    (lambda: sparse.prepare(EYE * np.nan), ValueError, ["finite", "row 0"]),
    (lambda: sparse.matmul(M, None), TypeError, ["V " + REALS, "NoneType"]),
    (lambda: sparse.matmul(M, ["a"] * N), TypeError, ["V " + REALS]),
    (lambda: sparse.matmul(A, np.ones(N)), TypeError, [MAP, "BCOO", "sparse.prepare"]),
    (
        lambda: sparse.propagate(M, None, np.ones(N), 1),
        TypeError,
        ["update_fn", "None"],
    ),
    (
        lambda: sparse.select_columns(A, PARTS.train),
        TypeError,
        ["BCOO", "sparse.prepare"],
    ),
    (lambda: sparse.select_columns(M, [0, 1]), TypeError, ["boolean", "np.isin"]),
    # Metrics
    (lambda: score(targets=LABELS), ValueError, ["(12, 3) and (12,)", "one_hot"]),
    (lambda: score(targets=Y[:, :2]), ValueError, ["(12, 3) and (12, 2)"]),
    (lambda: score(mask=PARTS.val[:, None]), ValueError, ["(12,)", "(12, 1)"]),
    (lambda: score(mask=PARTS.val.astype(int)), TypeError, ["int64", ".astype(bool)"]),
    (lambda: score(mask=[0, 1]), TypeError, ["boolean", "np.isin"]),
    (lambda: score(scores=Y * 1j), TypeError, [REALS]),
    (
        lambda: score(mask=PARTS.val[:, None], metric=metrics.roc_auc_to_round_off),
        ValueError,
        ["(12, 1)"],
    ),
    (lambda: metrics.by_name("acuracy"), ValueError, ["did you mean 'accuracy'?"]),
    (lambda: memory.room("8GB"), TypeError, ["'8GB'", "memory.parse"]),
    (lambda: memory.parse(None), ValueError, ["a size must be like 8GB", "None"]),
    (lambda: memory.parse(f"{10**40}GB"), ValueError, ["a size must be like 8GB"]),
    # Runs
    (lambda: run(targets=LABELS), ValueError, ["(n, c)", "(12,)", "one_hot"]),
    (lambda: run(targets=Y.astype(int)), ValueError, ["int64", ".astype(float)"]),
    (lambda: run(targets=np.where(Y > 0, np.inf, 0)), ValueError, ["infinite"]),
    (lambda: run(split=PARTS[:2]), TypeError, ["Split(train, val, test)", "got 2"]),
    (lambda: run(split=PARTS.train), TypeError, ["three masks", "ndarray"]),
    (lambda: run(split=None), TypeError, ["three masks", "NoneType"]),
    (
        lambda: run(split=Split(*map(np.flatnonzero, PARTS))),
        TypeError,
        ["the train mask", "int64", "np.isin"],
    ),
    (lambda: run(split=PARTS._replace(val=NODE > 2)), ValueError, ["node 3", "both"]),
    (lambda: run(progress="bar"), TypeError, ["progress", "'bar'"]),
    (lambda: run(metadata="x"), TypeError, ["metadata", "dict"]),
    (lambda: run(max_bytes="8GB"), ValueError, ["max_bytes", "'8GB'"]),
    (lambda: run(initial="x"), TypeError, ["initial", REALS]),
    (lambda: run(initial=Y * 1j), TypeError, ["initial", "complex128"]),
    (lambda: run(similarity.Power), TypeError, ["map V -> S V", "Power"]),
    (lambda: run(lambda v: v[:3]), ValueError, ["(12, 3)", "got float64 (3, 3)"]),
    (lambda: run(lambda v: v.astype(complex)), ValueError, ["floats", "complex128"]),
    (lambda: run(lambda _: None), ValueError, ["got NoneType"]),
    (lambda: run(lambda v: np.asarray(v)), TypeError, ["jax.numpy", "pure_callback"]),
    (lambda: run(similarity.Dense(jnp.eye(5))), ValueError, ["5 rows", "(12, 3)"]),
    (lambda: run(similarity.Dense(jnp.ones((N, 5)))), ValueError, ["square matrix"]),
    (
        lambda: run(similarity.Sum((similarity.Power(M, 1),), jnp.ones(2))),
        ValueError,
        ["one weight for each part", "(2,) for 1"],
    ),
    (lambda: run(similarity.Sum((), jnp.ones(0))), ValueError, ["(0,) for 0 parts"]),
    (lambda: run(similarity.Sum((3,), jnp.ones(1))), TypeError, ["parts[0]"]),
    (lambda: run(similarity.Sandwich(S, None)), TypeError, ["inner " + MAP]),
    (lambda: similarity.Power(M, -1), ValueError, ["power", "-1"]),
    (lambda: similarity.LazyWalk(M, 2, np.nan)(Y), ValueError, ["alpha", "nan"]),
    (lambda: similarity.Restart(M, 2, 1.5)(Y), ValueError, ["alpha", "1.5"]),
    (lambda: run(similarity.LazyWalk(M, 2, jnp.array(5.0))), ValueError, ["alpha"]),
    (lambda: swept(powers=3), ValueError, ["powers must be a list", "got 3"]),
    (lambda: swept(step_sizes=[]), ValueError, ["step_size", "empty"]),
    (lambda: swept(step_sizes="0.5"), ValueError, ["must be a number", "'0.5'"]),
    (lambda: swept({1: "power"}), TypeError, ["map V -> S V", "str"]),
    (lambda: swept(np.eye(N)), TypeError, [MAP, "similarity.Dense"]),
    (lambda: swept(split=PARTS.train), TypeError, ["three masks"]),
    (lambda: sweep.winner(None), TypeError, ["Table", "sweep.run"]),
    (lambda: sweep.winner(sweep.Table(*[X[:0, 0]] * 8)), ValueError, ["no row"]),
    (lambda: linear_maps.columns(S, PARTS.train, N), ValueError, ["np.flatnonzero"]),
    (lambda: linear_maps.restrict(S, NODE[:2]), TypeError, ["boolean"]),
    (
        lambda: baselines.run(M, Y, PARTS[:2], metric=metrics.accuracy, with_plain=0),
        TypeError,
        ["three masks"],
    ),
    # Closed forms
    (lambda: exact.factorize(np.eye(4), [0, 1, 2, 9]), ValueError, ["node 9", "4"]),
    (lambda: exact.factorize(np.eye(4), [0, 1]), ValueError, ["(4,)", "(2,)"]),
    (lambda: exact.factorize(np.eye(4) * 1j, NODE[:4]), TypeError, ["complex128"]),
    (lambda: exact.factorize(np.ones(4), NODE[:4]), ValueError, ["S[nodes, X]"]),
    (lambda: exact.limit(FACTORS, np.ones(4)), ValueError, ["(4, c)", "(4,)"]),
    (lambda: exact.limit(FACTORS, Y), ValueError, ["(4, c)", "(12, 3)"]),
    (lambda: exact.limit(np.eye(4), Y[:4]), TypeError, ["exact.factorize"]),
    (
        lambda: exact.trajectory(FACTORS, Y[:4], [1.5], step_size=0.1),
        ValueError,
        ["whole numbers", "1.5"],
    ),
    (
        lambda: exact.residual_norms(FACTORS, Y[:4], [-1], step_size=0.1),
        ValueError,
        ["at least 0", "-1"],
    ),
    (
        lambda: exact.trajectory(FACTORS, Y[:4], 3, step_size=0.1),
        ValueError,
        ["a list of them"],
    ),
    (
        lambda: exact.convergence(FACTORS, np.ones(4), step_size=0.1),
        ValueError,
        ["(4, c)"],
    ),
    (
        lambda: regression.posterior(FACTORS, np.ones(4), np.ones(4)),
        ValueError,
        ["(4, c)"],
    ),
    (lambda: label.seeds(LABELS, PARTS.train), ValueError, ["(n, c)", "one_hot"]),
    (lambda: label.seeds(Y, PARTS.train[:, None]), ValueError, ["(12, 1)"]),
    (lambda: label.seeds(Y, NODE[:4]), TypeError, ["boolean", "np.isin"]),
    (lambda: label.limit(EYE, Y, alpha=0.5), TypeError, [MAP, "sparse.prepare"]),
    (
        lambda: label.propagate(M, Y * 1j, num_iterations=1),
        TypeError,
        [REALS, "complex128"],
    ),
    # Parts
    (lambda: partitioning.balance(EYE[:3], 2), ValueError, ["square", "(3, 12)"]),
    (lambda: partitioning.from_parts([0.5, 1], 2), TypeError, ["float64"]),
    (lambda: partitioning.halos(A, None), TypeError, ["partitioning.balance"]),
    (lambda: sharded.prepare(A, LAYOUT, None), TypeError, ["Mesh(jax.devices()"]),
    (lambda: sharded.spread(LAYOUT, np.ones(3), MESH), ValueError, ["12 nodes", "[3]"]),
    (lambda: sharded.spread(LAYOUT, X, MESH, axis=5), ValueError, ["axis", "5"]),
    (lambda: sharded.gather(LAYOUT, np.ones(3)), ValueError, ["12 rows"]),
    # Features
    (lambda: features.build(X.astype(str)), TypeError, ["features " + REALS]),
    (lambda: features.build(None), TypeError, ["features " + REALS, "NoneType"]),
    (lambda: features.build(A), TypeError, ["features " + REALS, "BCOO"]),
    (lambda: features.build(EYE * 1j), TypeError, ["complex128"]),
    (lambda: features.build(X, None), TypeError, ["kernel", "gaussian"]),
    (lambda: features.build(X, "gausian"), ValueError, ["did you mean 'gaussian'?"]),
    (lambda: features.matrix(GRAM), TypeError, ["features.build"]),
    (lambda: gntk.gram(X.astype(object)), TypeError, ["features " + REALS]),
    (lambda: gntk.gram(X * np.nan), ValueError, ["row 0"]),
    (
        lambda: low_rank.fourier(X, gamma=1.0, num_features=2, key=0),
        TypeError,
        ["jax.random.key(0)", "got 0"],
    ),
    # Kernels and labels
    (lambda: alignment.alignment(M, GRAM), TypeError, ["Matrix", "Operator"]),
    (lambda: alignment.alignment("x", GRAM), TypeError, ["a kernel " + REALS]),
    (
        lambda: alignment.alignment(alignment.Factor(np.ones(N)), GRAM),
        ValueError,
        ["(n, r)", "(12,)"],
    ),
    (
        lambda: alignment.alignment(alignment.Operator(None, N), GRAM),
        TypeError,
        [MAP],
    ),
    (lambda: alignment.ideal_kernel(LABELS), ValueError, ["(12,)", "label_kernel"]),
    (lambda: alignment.label_kernel(LABELS, 2), ValueError, ["label", "got 2"]),
    (
        lambda: alignment.label_kernel(LABELS * 1.0, C),
        TypeError,
        ["class ids", "float"],
    ),
    (lambda: alignment.label_kernel(Y, C), ValueError, ["(12, 3)"]),
    (lambda: homophily.level(A, LABELS.astype(str)), TypeError, ["return_inverse"]),
    (lambda: homophily.by_edges(None, LABELS), TypeError, ["NoneType", "csr_array"]),
    (lambda: homophily.by_nodes(A, LABELS[:3]), ValueError, ["(12,)", "(3,)"]),
    (lambda: splits.random(["a"] * N, 1), TypeError, ["class ids"]),
    (lambda: splits.random(LABELS, 1, (0.5, 0.5)), ValueError, ["three"]),
    (lambda: splits.public(N, PARTS.train, [], []), ValueError, ["np.flatnonzero"]),
    # Wide networks
    (lambda: gntk.gcn(A, GRAM, gntk.Network(1)), TypeError, [MAP, "BCOO"]),
    (lambda: gntk.gcn(M, X, gntk.Network(1)), ValueError, ["gram", "(12, 4)"]),
    (
        lambda: gntk.gcn(M, GRAM, gntk.Network(2, activation="relu")),
        TypeError,
        ["'relu'", "activations.by_name"],
    ),
    (
        lambda: gntk.gcn(M, GRAM, gntk.Network(2, trained=3)),
        ValueError,
        ["trained", "list"],
    ),
    (lambda: gntk.dense(GRAM), TypeError, ["Kernels", "gntk.initialize"]),
    (lambda: gntk.propagate(GRAM, M), TypeError, ["gntk.initialize"]),
    (lambda: gntk.add([gntk.initialize(GRAM), GRAM]), TypeError, ["each branch"]),
    (
        lambda: gntk.transform(gntk.initialize(GRAM), variances=jnp.ones(N)),
        ValueError,
        ["a pair"],
    ),
    (lambda: gntk.initialize(GRAM[0]), ValueError, ["(12,)", "gntk.gram"]),
    (lambda: blocked.gcn(EYE, GRAM, gntk.Network(1)), TypeError, [MAP]),
    (
        lambda: blocked.gcn(M, GRAM, gntk.Network(1, activation=None)),
        TypeError,
        ["by_name"],
    ),
    (
        lambda: blocked.gcn(M, GRAM, gntk.Network(1), mesh="x"),
        TypeError,
        ["Mesh", "'x'"],
    ),
    (
        lambda: local.gcn(A, X, PARTS.train, [1], gntk.Network(1)),
        ValueError,
        ["flatnonzero"],
    ),
    (
        lambda: local.gcn(A, X.astype(str), [0], [1], gntk.Network(1)),
        TypeError,
        [REALS],
    ),
    (lambda: closed_forms.spectral_gram(A), TypeError, [REALS, "BCOO"]),
    (lambda: closed_forms.spectral_gram(X), ValueError, ["square", "(12, 4)"]),
    (lambda: closed_forms.two_layer(A, GRAM), TypeError, [MAP]),
    (lambda: inductive.submatrix(A, [99]), ValueError, ["node 99", "12 nodes"]),
    (lambda: inductive.submatrix(A, PARTS.train), ValueError, ["np.flatnonzero"]),
    (
        lambda: inductive.between(None, GRAM, [0], train=M, test=M),
        TypeError,
        ["kernel_fn", "gntk.gcn"],
    ),
    (
        lambda: generalization.bound(np.eye(N), np.ones(N), NODE[:4], alpha=0.1),
        TypeError,
        ["boolean", "np.isin"],
    ),
    (
        lambda: generalization.bound(A, np.ones(N), PARTS.train, alpha=0.1),
        TypeError,
        [REALS, "BCOO"],
    ),
    (lambda: generalization.bayes_kernel(np.zeros((0, 0))), ValueError, ["symmetric"]),
    (
        lambda: generalization.best_linear(np.eye(N), NODE[:4]),
        TypeError,
        ["boolean"],
    ),
    (
        lambda: generalization.best_linear(np.eye(N), NODE >= 0),
        ValueError,
        ["neither all nor none"],
    ),
    (
        lambda: generalization.best_linear(np.ones((N, N)), PARTS.train),
        ValueError,
        ["positive definite", "bayes_kernel"],
    ),
    (lambda: stochastic.trace(A, N, KEY), TypeError, [MAP]),
    (lambda: stochastic.trace(M, N, 0), TypeError, ["jax.random.key(0)"]),
    (lambda: stochastic.alignment(M, LABELS, KEY), ValueError, ["one_hot"]),
    # Networks
    (lambda: empirical.ntk(None, {}, X), TypeError, ["apply_fn", "network.apply"]),
    (lambda: empirical.over_nodes(GRAM), ValueError, ["(k, c, j, c)"]),
    (lambda: structured.gcn(NET, X, M), TypeError, ["gnn.layers", "GCN"]),
    (lambda: structured.gcn(LAYERS, X[:, :2], M), ValueError, ["(n, 4)", "(12, 2)"]),
    (lambda: structured.gcn(LAYERS, EYE, M), TypeError, ["x " + REALS]),
    (
        lambda: structured.gcn(LAYERS, X, M, activation_fn="relu"),
        TypeError,
        ["jax.nn.relu"],
    ),
    (lambda: structured.gram(X, np.eye(N)), TypeError, [MAP]),
    (
        lambda: gnn.GCN(C, activation_fn="relu").init(KEY, X, M),
        TypeError,
        ["activation_fn", "jax.nn.relu"],
    ),
    (lambda: NET.init(KEY, X, np.eye(N)), TypeError, [MAP]),
    (lambda: gnn.layers(NET, None), ValueError, ["not of GCN"]),
    (
        lambda: objectives.squared(Y, LABELS, PARTS.train),
        ValueError,
        ["(12, 3)", "one_hot"],
    ),
    (lambda: objectives.squared(Y, Y, NODE), TypeError, ["boolean", "int64"]),
    (lambda: trained(rule=NET), TypeError, ["Rule(network, optimizer)"]),
    (lambda: trained(RULE._replace(network=gnn.GCN)), TypeError, ["gnn.GCN("]),
    (lambda: trained(RULE._replace(optimizer=0.1)), TypeError, ["objectives.sgd"]),
    (lambda: trained(RULE._replace(optimizer=optax.sgd)), TypeError, ["optimizer"]),
    (lambda: trained(data=tuple(DATA)), TypeError, ["Data(x, matrix"]),
    (lambda: trained(data=DATA._replace(targets=LABELS)), ValueError, ["one_hot"]),
    (lambda: trained(data=DATA._replace(train=[True] * N)), TypeError, ["np.asarray"]),
    (lambda: trained(data=DATA._replace(train=NODE)), TypeError, ["boolean"]),
    (
        lambda: trained(data=DATA._replace(targets=Y * np.nan)),
        ValueError,
        ["node 0", "no target"],
    ),
    (
        lambda: trained(
            RULE._replace(metric_fn=metrics.accuracy), DATA._replace(val=DATA.train)
        ),
        ValueError,
        ["node 0", "both"],
    ),
    (lambda: trained(key=0), TypeError, ["jax.random.key", "got 0"]),
    (lambda: trained(callback="x"), TypeError, ["callback", "'x'"]),
    # Datasets and what runs on them
    (lambda: datasets.load("coraa"), ValueError, ["did you mean 'cora'?"]),
    (lambda: datasets.load("Cora"), ValueError, ["did you mean 'cora'?"]),
    (lambda: ntk_study.settings("coraa"), ValueError, ["did you mean 'cora'?"]),
    (lambda: datasets.targets(None), TypeError, ["datasets.load"]),
    (lambda: datasets.statistics("cora"), TypeError, ["'cora'", "datasets.load"]),
    (lambda: rp_study.run("cora", PLAIN), TypeError, ["'cora'", "datasets.load"]),
    (lambda: rp_study.run(SBM, {"power": 1}), TypeError, ["presets.settings"]),
    (lambda: gntk_study.run(SBM, PLAIN), TypeError, ["GNTKSettings"]),
    (lambda: ntk_study.run(SBM, PLAIN), TypeError, ["NTKSettings"]),
    (lambda: shards.write("nowhere", "cora", 2), TypeError, ["datasets.load"]),
    (lambda: gntk_study.GNTKSettings(depths=3), ValueError, ["depths must be a list"]),
    (lambda: fitted(SBM), TypeError, ["data.edges"]),
    (lambda: fitted(EDGES + 1), ValueError, ["node id 12", "pass one per node"]),
    (lambda: fitted(train_mask=["a", "b"]), TypeError, ["<U1", "numbers from 0"]),
    (lambda: fitted(train_mask=NODE[None] < 2), ValueError, ["train_mask[0]"]),
    (
        lambda: ResidualPropagation().fit(nx.Graph([("a", "b")]), {"a": 0, "b": 1}),
        TypeError,
        ["labels[node] for node in graph"],
    ),
    (
        lambda: ResidualPropagation(1, 1.0, 1, "linear").fit(
            EDGES, [0, 1] * 6, features=X[:3]
        ),
        ValueError,
        ["3 rows", "12 nodes", "in training or not"],
    ),
    (
        lambda: graph.raw_adjacency(EDGES + 1, N),
        ValueError,
        ["node id 12", "0 to 11", "larger num_nodes"],
    ),
    (lambda: fitted(initial=Y[:, :2] * 1j), TypeError, ["complex128"]),
    (
        lambda: ResidualPropagation(1, 0.5, 1, loss=None).fit(EDGES, [0, 1] * 6),
        ValueError,
        ["loss", "None"],
    ),
    (
        lambda: estimator.OnGraph("x", EDGES).fit([0, 1], [0, 1]),
        TypeError,
        ["ResidualPropagation()"],
    ),
]


@pytest.mark.parametrize(("call", "exception", "phrases"), ROWS)
def test_wrong_arguments_are_refused_in_one_line(call, exception, phrases):
    refused(call, exception, phrases)


def test_integer_scores_are_judged_as_floats():
    found = metrics.accuracy(np.eye(C, dtype=int), np.eye(C), np.ones(C, bool))
    assert found == 1.0


def test_nobody_is_judged_as_nan():
    for metric in (metrics.accuracy, metrics.roc_auc):
        assert jnp.isnan(metric(Y[:0], Y[:0], PARTS.val[:0]))


@pytest.mark.filterwarnings("ignore:all nodes are predicted to be of one")
def test_masks_of_other_libraries_are_read():
    foreign = Split(*(Tensor(mask) for mask in PARTS))
    assert run(split=foreign).predictions.tobytes() == run().predictions.tobytes()


class Tensor:
    """What torch's tensors are for numpy."""

    dtype = "torch.bool"

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return np.array(self.array, dtype, copy=copy)


def test_where_no_step_size_is_safe_another_power_is_advised():
    model = ResidualPropagation(1, 1e30, 60)
    with pytest.raises(ValueError, match=r"< 0.*even power or an alpha of at most"):
        model.fit(EDGES, [0, 1] * 6)  # alternating along a cycle: eigenvalue -1/3


def test_entries_of_padding_are_no_entries():
    entries = jnp.ones(3), jnp.array([[0, 1], [1, 0], [2, 2]])  # (2, 2) pads
    padded = BCOO(entries, shape=(2, 2))
    np.testing.assert_array_equal(sparse.to_scipy(padded).toarray(), [[0, 1], [1, 0]])


def test_a_factorization_of_device_arrays_is_in_double_precision():
    with jax.enable_x64(False):
        found = exact.factorize(jnp.eye(3), jnp.arange(3))
    assert found.eigenvalues.dtype == np.float64


def test_whole_numbers_are_features():
    with jax.numpy_dtype_promotion("standard"):
        found = gntk.gram(np.eye(3, dtype=bool))
    assert jnp.issubdtype(found.dtype, jnp.floating)
    np.testing.assert_array_equal(found, np.eye(3))
