"""What the drivers compile also compiles for GPUs and TPUs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api import test_jax_flags

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_drivers_and_kernels_lower_for_gpus_and_tpus_without_host_callbacks():
    paths = os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS / "helpers")))
    done = subprocess.run(
        [sys.executable, str(TESTS / "helpers" / "lowering.py")],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        check=True,
    )
    counts = json.loads(done.stdout)
    assert list(counts) == list(test_jax_flags.DRIVERS)
    assert all(counts[name] for name in test_jax_flags.PURE)
    assert sum(counts.values()) > 100
