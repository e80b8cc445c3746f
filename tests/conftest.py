"""Tests run in float64, with strict promotion, and with the real data where it is."""

import importlib.util
import os
import signal
from pathlib import Path

import jax
import matplotlib as mpl
import pytest

mpl.use("Agg")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
# Ctrl-C, which tests send, is ignored by what a shell starts in the background and by
# the children of that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real files; absent ones skip on a user's machine, never in CI."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GNNRP_TEST_DATA", beside))
    if not folder.is_dir():
        message = f"no real data in {folder}; set GNNRP_TEST_DATA"
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session")
def nt():
    """Return neural_tangents; without it tests skip on a user's machine, not in CI."""
    from gnnrp.kernels import infinite

    absent = importlib.util.find_spec("neural_tangents") is None
    if absent and os.environ.get("CI", "").lower() not in {"1", "true"}:
        pytest.skip(infinite.INSTALL)
    return infinite.load()
