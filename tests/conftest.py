"""Tests run in float64, with strict promotion, and with the real data where it is.

Compiled programs are kept from run to run in the user's cache directory, or in
``GNNRP_TEST_CACHE``; if that is empty, nowhere.
"""

import hashlib
import importlib.util
import os
import platform
import signal
from pathlib import Path
from typing import NoReturn

import jax
import matplotlib as mpl
import platformdirs
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


def use_compilation_cache() -> None:
    """Share compiled programs among workers, subprocesses and runs.

    One folder per version of JAX and CPU: a program compiled for another CPU may crash.
    """
    default = str(platformdirs.user_cache_path("gnnrp-tests"))
    folder = os.environ.get("GNNRP_TEST_CACHE", default)
    if not folder:
        return
    cpu = platform.processor()
    if (info := Path("/proc/cpuinfo")).exists():
        first = info.read_text().split("\n\n")[0].splitlines()
        kinds = ("model name", "flags", "Features")
        cpu = "".join(line for line in first if line.startswith(kinds))
    kind = hashlib.sha256(cpu.encode()).hexdigest()[:8]
    path = Path(folder) / f"jax-{jax.__version__}-{platform.machine()}-{kind}"
    path.mkdir(parents=True, exist_ok=True)
    for name, value in (
        ("jax_compilation_cache_dir", str(path)),
        ("jax_persistent_cache_min_compile_time_secs", 0.0),
    ):
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)


use_compilation_cache()


UNITS = ("propagation", "kernels", "graph", "sparse", "models", "test_metrics.py")


def pytest_collection_modifyitems(items):
    """Mark the fast tests of the mathematics as ``unit``."""
    here = Path(__file__).parent
    for item in items:
        part = item.path.relative_to(here).parts[0] if here in item.path.parents else ""
        if part in UNITS and not item.get_closest_marker("slow"):
            item.add_marker("unit")


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
