"""Tests run in float64, with strict promotion, and with the real data where it is."""

import importlib.util
import os
import signal
from pathlib import Path
from typing import NoReturn

import jax
import matplotlib as mpl
import pytest

# Named by `make package` and `make test-ogb`, whose environments have what they need.
collect_ignore = ["package.py", "ogb_package.py"]

os.environ["GNNRP_COMPILATION_CACHE"] = "off"  # of commands
mpl.use("Agg")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
# Ctrl-C, which tests send, is ignored by what a shell starts in the background and by
# the children of that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def lacking(what: str) -> NoReturn:
    """Skip on a user's machine, never in CI."""
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real files."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GNNRP_TEST_DATA", beside))
    if not folder.is_dir():
        lacking(f"no real data in {folder}; set GNNRP_TEST_DATA")
    return folder


@pytest.fixture(scope="session")
def nt():
    """Return neural_tangents."""
    from gnnrp.kernels.gntk import neural_tangents

    if importlib.util.find_spec("neural_tangents") is None:
        lacking(neural_tangents.INSTALL)
    return neural_tangents.load()
