"""Rows that a hop moves are counted as the code moves them; predictions add up."""

import dataclasses
import importlib
import json

import jax
import numpy as np
import pytest
import scipy.sparse

from experiments import published, runner
from experiments.partition import (
    communities,
    halo_costs,
    markdown,
    partitioners,
    study,
    two_processes,
)
from experiments.partition.halo_costs import Large, Link, Volume
from experiments.report import results_table
from gnnrp import datasets
from gnnrp.distributed import partitioning
from gnnrp.distributed import sharded_matrix as sharded


@pytest.fixture(autouse=True)
def as_users_run_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def graph():
    return communities.generate(2000, 20_000, 0)


def ring(num_nodes=12):
    nodes = np.arange(num_nodes)
    one_way = (np.ones(num_nodes, np.float32), (nodes, (nodes + 1) % num_nodes))
    W = scipy.sparse.coo_array(one_way, shape=(num_nodes, num_nodes)).tocsr()
    return W + W.T


def test_a_generated_graph_is_simple_symmetric_and_has_hubs(graph):
    assert (graph != graph.T).nnz == 0
    assert not graph.diagonal().any()
    assert set(graph.data) == {1}
    assert 30_000 < graph.nnz <= 40_000
    degree = np.diff(graph.indptr)
    assert degree.max() > 5 * np.median(degree)


def test_a_seed_gives_one_graph(graph):
    again = communities.generate(2000, 20_000, 0)
    np.testing.assert_array_equal(again.indices, graph.indices)
    other = communities.generate(2000, 20_000, 1)
    assert other.nnz != graph.nnz


def test_communities_have_the_sizes_that_are_stated():
    sizes = np.diff(communities.starts(10**6, np.random.default_rng(0)))
    assert sizes.sum() == 10**6
    assert sizes[:-1].min() >= communities.LEAST
    assert communities.MOST >= sizes.max() > 10 * np.median(sizes)


@pytest.mark.parametrize("method", partitioners.METHODS)
@pytest.mark.parametrize("parts", [2, 7])
def test_what_is_counted_is_what_the_code_exchanges(graph, method, parts):
    layout = partitioners.METHODS[method](graph, graph.nnz, 0)(parts)
    found = halo_costs.volume(graph, layout)
    needed, rounds = partitioning.halos(graph, layout)
    sizes = np.array([[len(rows) for rows in each] for each in needed])
    lacked, entries = halo_costs.halo_sizes(graph, layout)
    np.testing.assert_array_equal(lacked, sizes)
    assert entries.sum() == graph.nnz
    assert found.halo == sizes.sum()
    assert found.largest_halo == sizes.sum(axis=1).max()
    assert found.padded == sum(len(pairs) * rows for pairs, rows in rounds)
    assert found.gather == parts * (parts - 1) * layout.rows
    assert found.moved == {"halo": found.padded, "gather": found.gather}[found.exchange]
    _, taken = sharded.blocks(graph, layout)
    assert found.exchange == ("gather" if taken is None else "halo")
    if taken is not None:
        assert found.received == sum(rows for _, rows in taken)
        assert found.messages == len(taken)
    assert found.entry_balance == pytest.approx(
        entries.max() / entries.mean(), abs=1e-4
    )


@pytest.mark.parametrize("nodes", [12, 4])
def test_the_exchange_is_the_one_that_prepare_takes(nodes):
    csr = ring(nodes)
    layout = partitioning.from_parts(np.zeros(nodes, int), 1)
    matrix = sharded.prepare(csr, layout, jax.make_mesh((1,), ("nodes",)))
    taken = "gather" if matrix.send is None else "halo"
    assert halo_costs.volume(csr, layout).exchange == taken
    three = partitioning.balance(ring(), 3, reorder=False)
    found = halo_costs.volume(ring(), three)
    assert found.exchange == "halo"
    assert (found.halo, found.padded, found.gather, found.moved) == (6, 6, 24, 6)


def test_partitioners_cut_less_than_ranges_of_drawn_numbers(graph):
    halo = {
        method: halo_costs.volume(graph, make(graph, graph.nnz, 0)(4)).halo
        for method, make in partitioners.METHODS.items()
    }
    assert max(halo["metis"], halo["kahip"]) < 0.9 * halo["natural"]


def test_of_too_many_edges_a_partitioner_is_given_a_share(graph):
    seen = partitioners.sample_edges(graph, graph.nnz // 2, 0)
    assert (seen != seen.T).nnz == 0
    assert 0.4 < seen.nnz / graph.nnz < 0.6
    assert not (seen > graph).nnz
    loops = scipy.sparse.csr_array(ring() + scipy.sparse.eye_array(12))
    assert (partitioners.sample_edges(loops, 24, 0) != ring()).nnz == 0


def test_what_is_not_installed_or_not_known_is_refused_at_once(monkeypatch):
    with pytest.raises(ValueError, match="did you mean 'metis'"):
        partitioners.require(("metiss",))

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    partitioners.require(("natural", "reordered"))
    with pytest.raises(ValueError, match="needs pymetis, which is not installed: pip"):
        partitioners.require(("natural", "metis"))


EXAMPLE = Volume(
    parts=4,
    rows=300,
    halo=100,
    padded=240,
    gather=3600,
    exchange="halo",
    moved=240,
    received=60,
    messages=4,
    largest_halo=40,
    most_entries=5000,
    entry_balance=1.0,
    row_balance=1.2,
)


def test_seconds_are_those_of_the_product_and_of_the_bytes():
    link = Link(gigabits=1.0, latency=1e-3)
    found = halo_costs.seconds(EXAMPLE, 10, speed=1e6, link=link)
    assert found["local"] == pytest.approx(5000 * 10 / 1e6)
    assert found["exchange"] == pytest.approx(4e-3 + 60 * 10 * 4 * 8 / 1e9)
    assert found["total"] == pytest.approx(found["local"] + found["exchange"])
    without = found["local"] + 4e-3 + 40 * 10 * 32 / 1e9
    assert found["total without padding"] == pytest.approx(without)


def test_memory_of_a_host_is_the_sum_of_its_arrays():
    found = halo_costs.memory(Large(1000, 8000, 5), 4, 0.6)
    assert found["matrix"] == 8 * 2000 + 4 * 250
    assert found["arrays"] == len(halo_costs.ARRAYS) * 250 * 20
    assert found["received"] == pytest.approx((250 + 150) * 20)
    assert found["copies"] == pytest.approx(150 * 24)
    assert found["total"] == pytest.approx(sum(found.values()) - found["total"])
    everything = halo_costs.memory(Large(1000, 8000, 5), 4, 3.0)
    assert everything["received"] == 1000 * 20
    assert everything["copies"] == 1000 * 20


def test_a_share_is_measured_or_follows_a_power_of_the_number_of_parts():
    measured = {p: 0.3 * p**0.5 for p in (8, 16, 32)} | {2: 9.0}
    assert halo_costs.share_at(measured, 16) == (measured[16], False)
    share, fitted = halo_costs.share_at(measured, 128)
    assert fitted
    assert share == pytest.approx(0.3 * 128**0.5)
    assert halo_costs.share_at({2: 0.5}, 8) == (0.5, True)
    assert halo_costs.share_at({2: 0.0}, 8) == (0.0, True)


def test_a_graph_like_itself_is_extrapolated_to_itself():
    same = Large(1000, 20_000, 10)
    link = Link(10.0, 1e-4)
    volumes = {4: EXAMPLE}
    found = halo_costs.extrapolate(volumes, 1000, same, 4, 1e6, [link])
    here = halo_costs.seconds(EXAMPLE, 10, 1e6, link)
    assert found["hop"]["10"] == pytest.approx(here["total"])
    assert found["hop without padding"]["10"] < found["hop"]["10"]
    assert not found["fitted"]
    more = halo_costs.extrapolate(volumes, 1000, same, 8, 1e6, [link])
    assert more["fitted"]
    assert more["local"] == pytest.approx(found["local"] / 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": (1, 2)}, "parts must be at least 2, got 1"),
        ({"parts": (4000,)}, "parts must be at most 2000, got 4000"),
        ({"parts": ()}, "the number of parts must be at least 1, got 0"),
        ({"gigabits": (0.0,)}, "gigabits must be positive and finite, got 0.0"),
        ({"latency": -1.0}, "latency must be at least 0, got -1.0"),
        ({"methods": ("metiss",)}, "methods must be one of natural, reordered"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change, message):
    config = study.Config(quick=True, **change)
    with pytest.raises(ValueError, match=message):
        study.run(runner.shortened(config))


def test_a_process_that_fails_is_told_of(graph):
    layout = partitioning.balance(graph, 2)
    with pytest.raises(ChildProcessError, match="exchange must be one of"):
        two_processes.measure(graph, layout, "hallo", 3, 1)


def test_the_committed_page_is_made_of_the_committed_record():
    text = (results_table.RESULTS / "partition_study.json").read_text()
    page = (results_table.RESULTS / "partition_study.md").read_text()
    assert page == markdown.page(json.loads(text))
    for name in json.loads(text)["figures"]:
        assert name in page
        assert (results_table.RESULTS / name).exists()


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    config = study.Config(quick=True, output=folder)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        made = runner.record(config, study.run, "partition_study", page=markdown.page)
    return folder, made


@pytest.mark.slow
def test_the_study_leaves_a_record_figures_and_a_page(quick):
    folder, made = quick
    assert made["result"]["graphs"].keys() == {"sbm", "generated"}
    for one in made["result"]["graphs"].values():
        assert one["volumes"].keys() == partitioners.METHODS.keys()
    page = (folder / "partition_study.md").read_text()
    written = json.loads((folder / "partition_study.json").read_text())
    assert page == markdown.page(written)
    for name in made["figures"]:
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
        assert f"]({name})" in page


@pytest.mark.slow
def test_two_processes_give_the_result_of_one_and_move_what_is_predicted(quick):
    rows = quick[1]["measured"]["processes"]["generated"]
    assert [row["exchange"] for row in rows] == ["halo", "gather"]
    for row in rows:
        assert row["relative difference"] < 1e-6
        assert row["seconds"] > 0
        if row["bytes"] is not None:  # Linux; others may use the loopback too
            assert row["bytes"] > 0.9 * row["predicted bytes"]


@pytest.mark.slow
def test_volumes_are_the_same_in_the_next_run(quick):
    config = dataclasses.replace(study.Config(quick=True), hops=1)
    again = study.run(runner.shortened(config))
    assert again.result == quick[1]["result"]


@pytest.mark.slow
def test_without_the_real_graph_the_generated_one_is_studied(monkeypatch):
    monkeypatch.setattr(datasets, "find", lambda *_: None)
    config = study.Config(quick=True, dataset="arxiv", methods=("natural",), hops=1)
    config = dataclasses.replace(runner.shortened(config), dataset="arxiv")
    found = study.run(config)
    assert found.result["graphs"]["arxiv"] == published.ABSENT
    made = {
        "result": found.result, "measured": found.measured, "versions": {},
        "settings": runner.settings(config), "commit": None, "device": "cpu",
        "seconds": 1.0, "peak_memory_bytes": None,
    }  # fmt: skip
    page = markdown.page(json.loads(runner.json_files.dumps(made)))
    assert f"`arxiv`: {published.ABSENT}." in page
