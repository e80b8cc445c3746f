"""The cache of compiled functions: damage and missing permissions break nothing."""

import warnings

import jax
import jax.numpy as jnp
import pytest

from gnnrp.commands import compilation_cache

BEFORE = 60.0  # seconds, so that a change shows


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    before = {
        name: getattr(jax.config, name)
        for name in (
            "jax_compilation_cache_dir",
            "jax_persistent_cache_min_compile_time_secs",
        )
    }
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", BEFORE)
    monkeypatch.setattr(compilation_cache, "_LEAST_SECONDS", 0.0)
    monkeypatch.setenv(compilation_cache.VARIABLE, str(tmp_path / "cache"))
    yield tmp_path / "cache"
    for name, value in before.items():
        jax.config.update(name, value)


def compiled():
    """Return the value of a function that is compiled anew, under one key."""
    return float(jax.jit(lambda x: jnp.sum(jnp.sin(x) ** 2 + jnp.cos(x) ** 2))(X))


X = jnp.arange(4.0)


def test_entries_stand_in_one_folder_a_cpu_and_the_settings_are_restored(cache):
    with compilation_cache.use():
        assert jax.config.jax_persistent_cache_min_compile_time_secs == 0
        assert compiled() == pytest.approx(4)
    (folder,) = cache.iterdir()
    assert folder == compilation_cache.folder()
    assert list(folder.iterdir())
    assert jax.config.jax_compilation_cache_dir is None
    assert jax.config.jax_persistent_cache_min_compile_time_secs == BEFORE


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "folder"])
def test_a_damaged_entry_is_compiled_again_without_a_word(damage):
    with compilation_cache.use():
        compiled()
    for path in compilation_cache.folder().glob("*-cache"):
        content = bytearray(path.read_bytes())
        path.unlink()
        if damage == "folder":
            path.mkdir()
            continue
        if damage == "flipped":
            content[len(content) // 2] ^= 255
        path.write_bytes({"cut": content[:-9], "empty": b""}.get(damage, content))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with compilation_cache.use():
            assert compiled() == pytest.approx(4)


@pytest.mark.parametrize("place", ["/proc/gnnrp", "file", "off"])
def test_without_a_folder_that_can_be_written_nothing_is_cached(
    place, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    place = place if place == "off" else str(tmp_path / place)
    monkeypatch.setenv(compilation_cache.VARIABLE, place)
    with compilation_cache.use():
        assert jax.config.jax_compilation_cache_dir is None
        assert compiled() == pytest.approx(4)


def test_the_cache_of_the_caller_is_left_alone(tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    with compilation_cache.use():
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")
