"""Processes that are killed read the cache of compiled programs, and write none."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_process_is_killed_while_it_writes_a_compiled_program():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1e9")
        yield
