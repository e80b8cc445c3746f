"""A persistent cache of compiled functions, which only commands use."""

import contextlib
import hashlib
import os
import platform
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

VARIABLE = "GNNRP_COMPILATION_CACHE"
"""Environment variable with the folder of the cache, or "off"."""
_LEAST_SECONDS = 0.1  # of a compilation that is saved


@contextlib.contextmanager
def use() -> Iterator[None]:
    """Let JAX save and load compiled functions, unless the caller has set a cache."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    path = folder()
    settings = {
        "jax_compilation_cache_dir": str(path),
        "jax_persistent_cache_min_compile_time_secs": _LEAST_SECONDS,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    if path is None or before["jax_compilation_cache_dir"] or not _is_writable(path):
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Error .*persistent compilation cache")
        try:
            for name, value in settings.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()  # which a caller may have used without one
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()


def folder() -> Path | None:
    """Return the folder of this jaxlib and CPU, since code for another may crash it."""
    import platformdirs

    base = (
        os.environ.get(VARIABLE) or platformdirs.user_cache_path("gnnrp") / "compiled"
    )
    if base == "off":
        return None
    cpu = hashlib.sha256(_cpu().encode()).hexdigest()[:12]
    return Path(base).absolute() / f"jaxlib-{metadata.version('jaxlib')}-{cpu}"


def _cpu() -> str:
    """Return the model of the CPU and its instruction sets."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = ("model name", "flags", "Features")  # the last one on ARM
        return "\n".join(sorted({x for x in lines if x.startswith(names)}))
    return f"{platform.machine()} {platform.processor()}"


def _is_writable(path: Path) -> bool:
    from gnnrp.runtime import atomic_files

    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return atomic_files.obstacle(path) is None
