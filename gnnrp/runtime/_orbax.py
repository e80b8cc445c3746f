"""Access to orbax: its errors in one sentence, and none of its log lines."""

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnnrp.runtime import atomic_files, safe_text

KEPT = 2
HALF = ".half"


@contextlib.contextmanager
def manager(ocp: Any) -> Iterator[Any]:
    """Open orbax and hide its log lines, since errors are raised."""
    with (
        safe_text.silence(logging.getLogger("absl")),
        ocp.Checkpointer(ocp.StandardCheckpointHandler()) as opened,
    ):
        yield opened


@contextlib.contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn every error of a damaged checkpoint into one sentence."""
    try:
        yield
    except (MemoryError, PermissionError):
        raise
    except Exception as error:
        is_known = isinstance(error, atomic_files.DamagedError)
        reason = str(error) if is_known else "it cannot be read"
        has_previous = any(t < int(path.name) for t in steps(path.parent))
        way = "resume from the previous checkpoint" if has_previous else "start anew"
        msg = f"the checkpoint {path} is damaged ({reason}); delete it to {way}"
        raise ValueError(msg) from error


def steps(folder: Path) -> list[int]:
    """Return the numbers of all checkpoints in a folder, intact or damaged."""
    names = (path.name for path in folder.iterdir())
    return sorted(int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name))


def remove(folder: Path, names: Iterable[str]) -> None:
    """Delete checkpoints; a kill leaves no part of one under its number."""
    for name in names:
        path = folder / name
        if not name.endswith(HALF):
            path = path.rename(folder / f"{name}{HALF}")
        shutil.rmtree(path, ignore_errors=True)


def leftovers(folder: Path) -> list[str]:
    """Return the names of half-written checkpoints, which a kill leaves."""
    half = rf"[0-9]+({re.escape(HALF)})?(\.orbax-checkpoint-tmp.*)?"
    names = [path.name for path in folder.iterdir()]
    return [n for n in names if re.fullmatch(half, n) and not n.isdecimal()]


@contextlib.contextmanager
def write_errors(folder: Path, t: int) -> Iterator[None]:
    """Turn orbax's errors of writing into one sentence."""
    try:
        yield
    except Exception as error:
        code = re.search(r"os_error_code='(\d+)'", str(error))  # its class has none
        code = int(code[1]) if code else getattr(error, "errno", None)
        if code is None:
            raise
        for half in folder.glob(f"{t}{HALF}*"):
            shutil.rmtree(half, ignore_errors=True)  # it may fill the disk
        msg = (
            f"the checkpoint {folder / str(t)} cannot be written "
            f"({os.strerror(code)}); make room, and resume from the previous one"
        )
        raise OSError(msg) from error


def leaves_by_index(state: Any) -> Any:
    """Return the leaves by index, with random keys as integers.

    Files store no key types.
    """
    leaves = jax.tree.leaves(state)
    return {
        str(i): jax.random.key_data(leaf) if is_key(leaf) else leaf
        for i, leaf in enumerate(leaves)
    }


def rebuild(leaves: dict[str, Any], like: Any) -> Any:
    """Return the state of ``plain`` leaves, in the structure of another state."""
    models, structure = jax.tree.flatten(like)
    state = [
        jax.random.wrap_key_data(leaves[str(i)], impl=jax.random.key_impl(model))
        if is_key(model)
        else leaves[str(i)]
        for i, model in enumerate(models)
    ]
    return jax.tree.unflatten(structure, state)


def is_key(leaf: Any) -> bool:
    """Return whether a leaf is a key of random numbers."""
    kind = getattr(leaf, "dtype", np.float64)
    return jnp.issubdtype(kind, jax.dtypes.prng_key)
