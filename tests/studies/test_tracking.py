"""Kernels of networks that this package does not define, tracked during training."""

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest
from generators import C, N, adjacency, edges, targets, unchecked

from gnnrp import sparse
from gnnrp.kernels.ntk import structured
from gnnrp.models import gnn, objectives, training
from gnnrp.runtime.options import Options
from gnnrp.studies.tracking import track

KEY = jax.random.key(0)
NODES = np.array([1, 4, 5, 9])
A = np.asarray(sparse.to_csr(adjacency(0)).toarray())
TARGET = np.linalg.matrix_power(A, 4)[np.ix_(NODES, NODES)]


dense = functools.partial(nn.Dense, param_dtype=jnp.float64)


class GCNII(nn.Module):
    """Residual layers with an identity map, as in Chen et al. 2020."""

    num_classes: int
    width: int = 6

    @nn.compact
    def __call__(self, x, matrix, *, train=False):
        first = h = nn.relu(dense(self.width)(x))
        for number in (1, 2, 3):
            beta = np.log(0.5 / number + 1)
            h = 0.9 * matrix(h) + 0.1 * first
            h = nn.relu((1 - beta) * h + beta * dense(self.width, use_bias=False)(h))
            h = nn.Dropout(0.2)(h, deterministic=not train)
        return dense(self.num_classes)(h)


class Edges(NamedTuple):
    senders: jax.Array
    receivers: jax.Array


class GAT(nn.Module):
    """A layer of attention over the edges, as in Velickovic et al. 2018."""

    num_classes: int

    @nn.compact
    def __call__(self, x, matrix):
        h = dense(self.num_classes)(x)
        ends = dense(2, use_bias=False)(h)
        scores = ends[matrix.senders, 0] + ends[matrix.receivers, 1]
        weights = jraph.segment_softmax(nn.leaky_relu(scores), matrix.receivers, N)
        return jax.ops.segment_sum(
            weights[:, None] * h[matrix.senders], matrix.receivers, N
        )


def data(matrix):
    x = jnp.asarray(np.random.default_rng(1).normal(size=(N, 3)))
    mask = jnp.asarray(np.arange(N) % 2 == 0)
    return training.Data(x, matrix, jnp.asarray(targets(0)), mask)


def attention_edges():
    loops = np.arange(N)
    both = np.concatenate([edges(0), edges(0)[::-1], [loops, loops]], axis=1)
    return Edges(jnp.asarray(both[0]), jnp.asarray(both[1]))


NETWORKS = {
    "GCNII": (GCNII(C), adjacency(0)),
    "GAT": (GAT(C), attention_edges()),
    "GCN": (gnn.GCN(C, 5, 2), adjacency(0)),
}


GIVEN = {"nodes": NODES, "graph_kernel": TARGET, "num_steps": 6, "every": 3}


def arguments(name):
    network, matrix = NETWORKS[name]
    return training.Rule(network, objectives.sgd(0.1)), data(matrix), KEY


def rows(name, **settings):
    return track(*arguments(name), **GIVEN | settings)


@pytest.mark.parametrize("name", NETWORKS)
def test_any_network_has_its_kernel_tracked(name):
    found = rows(name)
    assert [row["step"] for row in found] == [0, 3, 6]
    assert found[0]["drift"] == 0 < found[1]["drift"] < found[2]["drift"]
    assert found[-1]["loss"] < found[0]["loss"]
    for row in found:
        assert -1 <= row["kernel_graph"] <= 1
        assert -1 <= row["kernel_labels"] <= 1


@pytest.mark.parametrize("name", ["GCNII", "GAT"])
def test_the_kernel_is_that_of_jacobians(name):
    network, matrix = NETWORKS[name]
    inputs = data(matrix)
    params = training.init(training.Rule(network, objectives.sgd(0.1)), inputs, KEY)
    jacobian = jax.jacobian(
        lambda p: network.apply(p, inputs.x, matrix)[NODES].sum(axis=1)
    )(params.params)
    flat = np.concatenate(
        [np.reshape(leaf, (4, -1)) for leaf in jax.tree.leaves(jacobian)], axis=1
    )
    H = np.eye(4) - 1 / 4
    theta, target = H @ flat @ flat.T @ H, H @ TARGET @ H
    expected = np.vdot(theta, target) / np.linalg.norm(theta) / np.linalg.norm(target)
    assert rows(name)[0]["kernel_graph"] == pytest.approx(expected, abs=1e-6)


def test_a_gcn_has_the_alignments_of_its_structured_kernel():
    network, matrix = NETWORKS["GCN"]
    inputs = data(matrix)
    state = training.init(training.Rule(network, objectives.sgd(0.1)), inputs, KEY)
    theta = structured.gcn(
        gnn.layers(network, state.params), inputs.x, matrix, reduce="sum"
    )
    theta = np.asarray(theta)[np.ix_(NODES, NODES)]
    H = np.eye(4) - 1 / 4
    a, b = H @ theta @ H, H @ TARGET @ H
    expected = np.vdot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)
    assert rows("GCN")[0]["kernel_graph"] == pytest.approx(expected, abs=1e-6)


def test_a_stopped_run_resumes_with_all_rows(tmp_path):
    options = Options(
        folder=tmp_path, checkpoint_seconds=0, metadata={"optimizer": ["sgd", 0.1]}
    )
    rows("GCNII", num_steps=3, options=options)
    assert rows("GCNII", options=options) == rows("GCNII")
    lines = (tmp_path / "tracking.jsonl").read_text().splitlines()
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nodes": np.array([0, 1, 2, N])}, ["nodes", str(N)]),
        ({"graph_kernel": np.eye(3)}, ["graph_kernel", "(4, 4)", "(3, 3)"]),
        ({"nodes": NODES[:1], "graph_kernel": TARGET[:1, :1]}, ["nodes", "two"]),
        ({"graph_kernel": TARGET * np.nan}, ["graph_kernel", "finite"]),
        ({"options": Options(max_bytes=1)}, ["training of 1 network", "smaller"]),
    ],
)
def test_what_does_not_match_is_refused(change, words):
    with pytest.raises(ValueError, match=words[0]) as error:
        unchecked(track, *arguments("GCNII"), **GIVEN | change)
    assert all(word in str(error.value) for word in words)


def test_a_diverged_run_ends_its_rows_with_a_warning():
    network, matrix = NETWORKS["GCN"]
    rule = training.Rule(network, objectives.sgd(1e200), objectives.squared)
    with pytest.warns(RuntimeWarning, match="diverged at step"):
        found = track(rule, data(matrix), KEY, **GIVEN)
    assert found[0]["step"] == 0
    assert np.isnan(found[-1]["loss"]) or np.isinf(found[-1]["loss"])


class Deterministic(nn.Module):
    """A network whose dropout has the usual switch of flax."""

    @nn.compact
    def __call__(self, x, matrix, *, deterministic=True):
        h = nn.Dropout(0.5)(x, deterministic=deterministic)
        return dense(C)(matrix(h))


def test_dropout_with_the_switch_of_flax_is_on_in_training():
    rule = training.Rule(Deterministic(), objectives.sgd(0.1))
    inputs = data(adjacency(0))
    state = training.init(rule, inputs, KEY)
    _, loss = training.step(rule, state, inputs)
    logits = rule.network.apply(state.params, inputs.x, inputs.matrix)
    without = objectives.cross_entropy(logits, inputs.targets, inputs.train)
    assert abs(float(loss) - float(without)) > 1e-3
