"""Rows shared by several devices give what one device gives."""

import json
import re

import generators
import jax
import numpy as np
import pytest
import scipy.sparse

from gnnrp import datasets, graph, sparse
from gnnrp.distributed import partitioning
from gnnrp.distributed import sharded_matrix as sharded

ON_FOUR = """
import json
import jax, jax.numpy as jnp, numpy as np, scipy.sparse
from gnnrp import datasets, graph, metrics, propagation, sparse
from gnnrp.datasets import sbm
from gnnrp.distributed import sharded_matrix as sharded, partitioning
from gnnrp.propagation import Exact, Steps, similarity, solvers
from gnnrp.types import Split

mesh = jax.make_mesh((4,), ("nodes",))
found = {"devices": len(jax.devices())}
rng = np.random.default_rng(0)
matrices = {
    "small": scipy.sparse.random_array((37, 37), density=0.1, rng=rng, format="csr"),
    "empty rows": scipy.sparse.csr_array(np.diag([1.0, 0, 0, 0, 2.0], k=1)),
}
apply = jax.jit(lambda m, v: m(v))
slope = jax.jit(jax.grad(lambda v, m: jnp.sum(jnp.sin(m(v)))))
for name, A in matrices.items():
    x = rng.standard_normal((A.shape[0], 3))
    layout = partitioning.balance(A, 4, reorder=False)
    for exchange in sharded.EXCHANGES:
        m = sharded.prepare(A, layout, mesh, exchange=exchange)
        v = sharded.spread(layout, x, mesh)
        one = sharded.spread(layout, x[:, 0], mesh)
        expected = sharded.gather(layout, slope(v, m))
        text = apply.lower(m, v).compile().as_text()
        found[name + ", " + exchange] = {
            "product": abs(sharded.gather(layout, apply(m, v)) - A @ x).max(),
            "column": abs(sharded.gather(layout, m(one)) - A @ x[:, 0]).max(),
            "slope": abs(expected - A.T @ np.cos(A @ x)).max(),
            "in rounds": text.count(" collective-permute("),
            "rounds": len(m.rounds or ()),
            "all gather": "all-gather" in text,
        }

data = sbm.generate(0, block_size=60, num_val=50, num_test=100)
A = graph.normalized_adjacency(data.edges, data.num_nodes)
layout = partitioning.balance(A, 4)
m = sharded.prepare(A, layout, mesh)
rolled = [np.stack([np.roll(mask[0], 7 * i) for i in range(3)]) for mask in data.splits]
split = Split(*rolled)
shared = Split(*[sharded.spread(layout, mask, mesh, axis=-1) for mask in rolled])
targets = datasets.targets(data)
placed = sharded.spread(layout, targets, mesh)
start = rng.standard_normal(targets.shape)
for method in ("iterate", "krylov"):
    for name, initial in (("", None), (" from F_0", start)):
        settings = dict(
            steps=Steps([0.5, 1.0], 50), metric=metrics.accuracy,
            solver=solvers.by_name(method),
        )
        one = propagation.run(
            similarity.Power(sparse.prepare(A), 4), targets, split,
            initial=initial, **settings,
        )
        if initial is not None:
            initial = sharded.spread(layout, initial, mesh)
        four = propagation.run(
            similarity.Power(m, 4), placed, shared, initial=initial, **settings
        )
        rows = [np.asarray(each.predictions)[:, layout.place] for each in four]
        apart = [x - each.predictions for x, each in zip(rows, one)]
        found[method + name] = {
            "curves": max(abs(x.test - y.test).max() for x, y in zip(four, one)),
            "predictions": abs(np.array(apart)).max() / abs(np.array(rows)).max(),
            "rows a device": four[0].predictions.addressable_shards[0].data.shape[1],
        }
found["rows"] = layout.rows

def refused(**change):
    asked = dict(
        similarity=similarity.Power(m, 4), targets=placed, split=shared,
        steps=Steps(1.0, 5), metric=metrics.accuracy,
    )
    try:
        propagation.run(**asked | change)
    except (ValueError, TypeError) as error:
        return str(error)

found["refused"] = [
    refused(solver=Exact()),
    refused(targets=placed.at[0].set(np.inf)),
    refused(targets=placed.astype(int)),
    refused(split=shared._replace(test=shared.train)),
    refused(split=shared._replace(train=shared.train & False)),
    refused(split=shared._replace(val=shared.val.astype(int))),
    refused(split=shared._replace(val=shared.val[:2])),
    refused(initial=placed[:8]),
    refused(initial=placed * np.nan),
]
print(json.dumps(found, default=float))
"""


@pytest.fixture(scope="module")
def on_four():
    found = json.loads(generators.on_four_devices(ON_FOUR))
    assert found["devices"] == 4
    return found


@pytest.mark.parametrize("name", ["small", "empty rows"])
@pytest.mark.parametrize("exchange", sharded.EXCHANGES)
def test_four_devices_multiply_as_one_and_back(on_four, name, exchange):
    found = on_four[f"{name}, {exchange}"]
    assert max(found[what] for what in ("product", "column", "slope")) < 1e-14
    assert found["in rounds"] == found["rounds"]
    assert (found["rounds"] > 0) == (exchange != "gather")
    assert found["all gather"] == (exchange == "gather")


@pytest.mark.parametrize("method", ["iterate", "krylov"])
@pytest.mark.parametrize("start", ["", " from F_0"])
def test_residual_propagation_on_four_devices_is_that_on_one(on_four, method, start):
    found = on_four[method + start]
    assert found["curves"] == 0
    assert found["predictions"] < 1e-12
    assert found["rows a device"] == on_four["rows"]


def test_what_shared_rows_cannot_be_used_for_is_refused(on_four):
    expected = [
        "eigenvectors of S_XX need one machine; use 'krylov' or 'iterate'",
        "targets must not be infinite",
        "targets must be floats of shape",
        "a node is in the train mask and in another one",
        "a split without a training node with a known target",
        "the val mask must be boolean",
        "val mask must have shape",
        "initial must have shape",
        "initial must be finite",
    ]
    for message, pattern in zip(on_four["refused"], expected, strict=True):
        assert re.search(pattern, message), message


def ring(num_nodes=12):
    nodes = np.arange(num_nodes)
    ones = np.ones(num_nodes)
    one_way = (ones, (nodes, (nodes + 1) % num_nodes))
    W = scipy.sparse.coo_array(one_way, shape=(num_nodes, num_nodes)).tocsr()
    return W + W.T


def test_parts_hold_about_as_many_entries():
    data = datasets.load("sbm")
    csr = sparse.to_scipy(graph.normalized_adjacency(data.edges, data.num_nodes))
    layout = partitioning.balance(csr, 7)
    assert len(set(layout.place.tolist())) == data.num_nodes
    assert layout.place.max() < layout.parts * layout.rows
    entries = np.zeros(7)
    np.add.at(entries, layout.place // layout.rows, np.diff(csr.indptr))
    assert entries.sum() == csr.nnz
    assert entries.max() < 1.02 * entries.mean()


def test_a_part_lacks_what_its_entries_name_and_others_hold():
    csr = ring()
    layout = partitioning.balance(csr, 3, reorder=False)
    assert layout == (pytest.approx(np.arange(12)), 4, 3)
    needed, rounds = partitioning.halos(csr, layout)
    found = [[rows.tolist() for rows in each] for each in needed]
    assert found == [[[], [4], [11]], [[3], [], [8]], [[0], [7], []]]
    assert [each.rows for each in rounds] == [1, 1]
    assert {pair for each in rounds for pair in each.pairs} == {
        (i, j) for i in range(3) for j in range(3) if i != j
    }


def lacking(num_parts, seed):
    """Return sizes that vary as much as those of real graphs; a third is zero."""
    rng = np.random.default_rng(seed)
    sizes = (rng.pareto(1, (num_parts, num_parts)) * 10).astype(int)
    sizes[rng.random(sizes.shape) < 1 / 3] = 0
    np.fill_diagonal(sizes, 0)
    return sizes


@pytest.mark.parametrize("num_parts", [1, 2, 3, 7, 32])
@pytest.mark.parametrize("seed", range(3))
def test_rounds_send_every_row_once_and_no_part_is_twice_on_a_side(num_parts, seed):
    lacked = lacking(num_parts, seed)
    left = lacked.copy()
    rounds = partitioning.rounds(lacked)
    for pairs, rows in rounds:
        for side in zip(*pairs, strict=True):
            assert len(set(side)) == len(pairs)
        for source, to in pairs:
            assert 0 < left[to, source] <= rows
            left[to, source] = 0
        assert rows == max(lacked[to, source] for source, to in pairs)
    assert not left.any()
    received = sum(rows for _, rows in rounds)
    bound = max(lacked.sum(axis=0).max(), lacked.sum(axis=1).max())
    # As many rows for each pair as for the largest would be up to 30 times the bound.
    assert bound <= received <= 1.5 * bound


def test_equal_pairs_take_as_many_rounds_as_there_are_other_parts():
    lacked = 5 * (1 - np.eye(8, dtype=int))
    assert [len(pairs) for pairs, _ in partitioning.rounds(lacked)] == [8] * 7


def test_an_order_that_brings_neighbors_together_makes_borders_small():
    shuffled = np.random.default_rng(0).permutation(200)
    csr = ring(200)[shuffled][:, shuffled]
    received = {
        reorder: partitioning.halos(
            csr, partitioning.balance(csr, 4, reorder=reorder)
        ).received
        for reorder in (True, False)
    }
    assert received[True] <= 8 < 70 < received[False]


@pytest.mark.parametrize("parts", [1, 2, 5, 6])
def test_a_row_that_outweighs_all_others_leaves_one_for_each_part(parts):
    dense = np.zeros((6, 6))
    dense[0] = 1
    layout = partitioning.balance(scipy.sparse.csr_array(dense), parts, reorder=False)
    assert set(layout.place // layout.rows) == set(range(parts))


def test_one_device_is_a_mesh_too():
    csr = ring()
    mesh = jax.make_mesh((1,), ("nodes",))
    layout = partitioning.balance(csr, 1)
    x = np.random.default_rng(0).standard_normal((12, 2))
    matrix = sharded.prepare(csr, layout, mesh)
    found = sharded.gather(layout, matrix(sharded.spread(layout, x, mesh)))
    np.testing.assert_allclose(found, csr @ x, rtol=1e-14)


def test_what_does_not_fit_is_refused():
    csr = ring()
    mesh = jax.make_mesh((1,), ("nodes",))
    layout = partitioning.balance(csr, 1)
    with pytest.raises(ValueError, match="parts must be at most 12, got 13"):
        partitioning.balance(csr, 13)
    with pytest.raises(ValueError, match="one axis of 3 devices, one for each"):
        sharded.prepare(csr, partitioning.balance(csr, 3), mesh)
    with pytest.raises(ValueError, match="exchange must be one of auto, halo, gather"):
        sharded.prepare(csr, layout, mesh, exchange="hallo")
    with pytest.raises(ValueError, match="layout has 12 nodes, the matrix shape"):
        sharded.prepare(ring(5), layout, mesh)
    with pytest.raises(ValueError, match="must have 12 rows, as spread gives it, got"):
        sharded.prepare(csr, layout, mesh)(jax.numpy.ones((5, 1)))
