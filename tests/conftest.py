"""Tests run in float64, with strict promotion, and with the real data where it is.

Compiled programs are kept from run to run, in the cache of the commands;
``GNNRP_COMPILATION_CACHE=off`` keeps none.
"""

import gc
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

mpl.use("Agg")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
# Ctrl-C, which tests send, is ignored by what a shell starts in the background and by
# the children of that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # after the type checker is in place
def pytest_configure():
    """Share compiled programs among workers, subprocesses and runs."""
    from gnnrp.commands import compilation_cache

    folder = compilation_cache.folder()
    os.environ[compilation_cache.VARIABLE] = "off"  # for commands and workers
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in (
        ("jax_compilation_cache_dir", str(folder)),
        ("jax_persistent_cache_min_compile_time_secs", 0.0),
    ):
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)


UNITS = ("propagation", "kernels", "graph", "sparse", "models", "test_metrics.py")


def pytest_collection_modifyitems(items):
    """Mark the tests of the mathematics as ``unit``, but for slow and long ones."""
    here = Path(__file__).parent
    for item in items:
        part = item.path.relative_to(here).parts[0] if here in item.path.parents else ""
        known = {marker.name for marker in item.iter_markers()}
        if part in UNITS and not known & {"slow", "long"}:
            item.add_marker("unit")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """Spare the garbage collector what stays: modules, tests, compiled type checks."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def no_compiled_program_outlives_its_module():
    """Drop compiled programs, of two megabytes each."""
    yield
    jax.clear_caches()


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
