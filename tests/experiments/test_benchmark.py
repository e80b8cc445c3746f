"""The benchmarks run at toy size and say what they measured."""

import json
import sys
from pathlib import Path

import jax
import pytest

from experiments.benchmarks import (
    classifiers,
    gntk,
    harness,
    ntk,
    rp,
    scaling,
    speed_table,
    spmm,
)


@pytest.fixture(autouse=True)
def as_users_run_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def test_contestants_take_turns():
    order = []
    runs = {name: lambda name=name: order.append(name) for name in "ab"}
    times = harness.interleaved(runs, 3)
    assert order == ["a", "b"] * 4
    assert set(times["a"]) == {"median", "min"}


def test_a_random_graph_is_symmetric_and_normalized():
    csr = harness.random_graph(100_000)
    assert abs(csr - csr.T).max() == 0
    assert csr.nnz == pytest.approx(100_000, rel=0.1)
    assert abs(csr).sum(axis=1).max() < 2
    degrees = (csr != 0).sum(axis=1)
    row, column = csr.tocoo().row[0], csr.tocoo().col[0]
    expected = (degrees[row] * degrees[column]) ** -0.5
    assert csr.tocoo().data[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # torch's, of its beta
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # PyG's import
def test_products_rules_and_steps_are_measured_beside_a_floor(tmp_path):
    config = spmm.Config(
        repeats=1, columns=8, entries=(2000, 4000), power=2, hidden=4, output=tmp_path
    )
    found = spmm.main(config)
    assert json.loads((tmp_path / "benchmark_spmm.json").read_text()) == found
    assert (tmp_path / "benchmark_spmm.png").read_bytes().startswith(b"\x89PNG")
    for product in found["products"].values():
        assert {"gnnrp", "gnnrp, inner hop", "scipy CSR"} <= set(
            product["milliseconds"]
        )
        assert product["floor_milliseconds"] > 0
    assert set(found["rules"]["ratio_to_product"]) == {
        "reverse mode",
        "forward mode",
        "vmap",
    }
    assert {"RP", "GCN training"} <= set(found["steps"]["milliseconds"])
    assert found["steps"]["megabytes"]["RP"] > 0
    assert found["steps"]["memory_ratio"] < 1


def test_classifiers_are_scored_on_the_test_nodes(tmp_path):
    config = classifiers.Config(customers=500, search_seconds=1, output=tmp_path)
    found = classifiers.main(config)
    record = json.loads((tmp_path / "benchmark_classifiers.json").read_text())
    assert record == found
    for name in ("customers", "sbm"):
        rows = found[name]["classifiers"]
        assert {"RP", "RP, chosen similarity", "label propagation"} <= set(rows)
        assert all(
            0 < row["test"] < 100 and row["seconds"] > 0 for row in rows.values()
        )


def test_customers_without_a_label_are_the_test_nodes():
    problem = classifiers.customers(500)
    masks = [problem.train, problem.val, problem.test]
    assert (sum(mask.astype(int) for mask in masks) == 1).all()
    assert [mask.sum() for mask in masks] == [12, 3, 485]


def test_scaling_is_fitted(tmp_path):
    config = scaling.Config(
        least=50_000, most=500_000, columns=3, power=2, repeats=1, output=tmp_path
    )
    found = scaling.main(config)
    assert [row["entries"] for row in found["sizes"]] == pytest.approx(
        [50_000, 158_114, 500_000], rel=0.1
    )
    assert found["sizes"][-1]["rp_steps"] == 4
    assert found["peak_gigabytes"] > 0
    assert (tmp_path / "benchmark_scaling.png").exists()


def test_the_exponent_of_a_power_law_is_found():
    rows = [
        {"entries": n, "nodes": n, "median": 3e-9 * n**1.5} for n in (10, 100, 1000)
    ]
    assert scaling.exponent(rows) == 1.5
    assert scaling.exponent(rows, 10) == 1.5
    assert scaling.exponent(rows, 100) is None


@pytest.mark.slow
def test_wide_networks_are_measured_beside_their_targets(tmp_path):
    config = gntk.Config(hops=2, block=20, repeats=1, output=tmp_path)
    found = gntk.main(config)
    two = found["two layers"]
    assert ("neural-tangents" in two["milliseconds"]) == (not two["notes"])
    errors = two["error_to_float64"]
    assert errors["gnnrp"] < 2e-6
    if not two["notes"]:
        assert two["relative_difference"] < 1e-4
        assert errors["gnnrp"] < errors["neural-tangents"]
    assert found["decoupled step"]["ratio"]["RP"] > 0
    assert found["block"]["rows"] == 20
    assert found["large"]["peak_gigabytes"] > 0


@pytest.mark.slow
def test_finite_kernels_and_training_stand_beside_their_peers(tmp_path):
    config = ntk.Config(repeats=1, steps=3, width=4, output=tmp_path)
    found = ntk.main(config)
    kernel = found["kernel"]
    assert kernel["relative_difference"]["float64"] < 1e-12
    assert kernel["relative_difference"]["float32"] < 1e-5
    assert {"structured", "Jacobian contraction"} <= kernel["milliseconds"].keys()
    assert kernel["three layers"].keys() == {"structured", "Jacobian"}
    assert found["large"]["nodes"] == 2000
    assert found["training"]["steps_per_second"]["gnnrp"] > 0
    for note in found["training"]["notes"]:
        assert note.endswith("is not installed: not measured")
    assert (tmp_path / "benchmark_ntk.json").exists()


@pytest.mark.slow
def test_whole_runs_are_measured_beside_their_targets(tmp_path):
    config = rp.Config(
        repeats=1,
        commands=("sbm --split 0",),
        epochs=30,
        curve="sbm",
        sweep="sbm",
        power=2,
        num_steps=20,
        output=tmp_path,
    )
    found = rp.main(config)
    assert found["commands"]["sbm --split 0"]["test_mean"] > 50
    assert found["commands"]["sbm --split 0"]["peak_gigabytes"] > 0
    assert found["curve"]["steps"] == 1000
    assert found["sweep"]["products"] > 0
    assert len(found["sweep"]["val"]) == 7
    assert found["grid"]["winner"]["power"] in (1, 2)
    race = found["time to accuracy"]
    assert race["val"] <= min(race["RP"]["best_val"], race["GCN"]["best_val"])
    assert 1 <= race["GCN"]["epochs"] <= 30
    assert found["import"]["added_seconds"] < 60


@pytest.mark.parametrize(
    "config",
    [
        gntk.Config(block=0),
        rp.Config(powers=(1, 0)),
        scaling.Config(columns=-3),
        spmm.Config(entries=(0,)),
    ],
)
def test_sizes_below_one_are_refused(config):
    main = sys.modules[type(config).__module__].main
    with pytest.raises(ValueError, match=r"must be at least 1, got"):
        main(config)


@pytest.mark.parametrize(
    ("page", "made"),
    [("README.md", speed_table.first), ("docs/speed.md", speed_table.section)],
)
def test_the_tables_of_speed_are_made_of_the_records(page, made):
    text = (Path(__file__).parents[2] / page).read_text()
    shown = text.split("<!-- speed -->\n")[1].split("\n<!-- /speed -->")[0]
    assert shown == made(speed_table.RESULTS)
