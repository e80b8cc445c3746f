"""The benchmark's parts run on a small graph and say what they measured."""

import jax
import pytest

from experiments import benchmark_rp
from gnnrp import datasets


def test_contestants_take_turns():
    order = []
    runs = {name: lambda name=name: order.append(name) for name in "ab"}
    times = benchmark_rp.interleaved(runs, 3)
    assert order == ["a", "b"] * 4
    assert set(times["a"]) == {"median", "min"}


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # torch's own, of its beta
def test_products_are_measured_beside_a_floor():
    data = datasets.load("sbm")
    config = benchmark_rp.Config(repeats=1, columns=3)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        found = benchmark_rp.product(data, config)
    assert {"gnnrp", "scipy CSR", "copy"} <= set(found["milliseconds"])
    assert found["floor_milliseconds"] >= 0


def test_a_command_is_timed_and_read():
    found = benchmark_rp.command("sbm", None)
    assert found["test_mean"] > 50
    assert found["seconds"] > 0
    assert found["peak_gigabytes"] > 0
