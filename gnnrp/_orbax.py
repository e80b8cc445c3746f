"""What orbax does for checkpoints, its errors in one sentence, its lines kept back."""

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnnrp import _text

KEPT = 2


@contextlib.contextmanager
def manager(folder: Path, ocp: Any) -> Iterator[Any]:
    """Open a folder and hide what orbax logs, since errors are raised.

    It logs a half-written checkpoint that it removes after a kill, and a damaged one,
    which `reading` names.
    """
    options = ocp.CheckpointManagerOptions(
        max_to_keep=KEPT, enable_async_checkpointing=False
    )
    with (
        _text.quiet(logging.getLogger("absl")),
        ocp.CheckpointManager(folder.absolute(), options=options) as opened,
    ):
        yield opened


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever a damaged checkpoint ends in into one sentence.

    Raises:
        ValueError: it cannot be read.
        MemoryError: no fault of the checkpoint, nor is the next.
        PermissionError: see above.
    """
    try:
        yield
    except (MemoryError, PermissionError):
        raise
    except Exception as error:
        msg = f"the checkpoint {path} cannot be read; remove it, to go on from earlier"
        raise ValueError(msg) from error


@contextlib.contextmanager
def writing(folder: Path, t: int) -> Iterator[None]:
    """Turn what orbax raises where it cannot write into one sentence.

    Raises:
        OSError: the disk is full, or not to be written any more.
    """
    try:
        yield
    except Exception as error:
        code = re.search(r"os_error_code='(\d+)'", str(error))  # which no class tells
        code = int(code[1]) if code else getattr(error, "errno", None)
        if code is None:
            raise
        for half in folder.glob(f"{t}.orbax-checkpoint-tmp*"):
            shutil.rmtree(half, ignore_errors=True)  # it may be what fills the disk
        msg = (
            f"the checkpoint {folder / str(t)} cannot be written "
            f"({os.strerror(code)}); make room, and go on from the last one"
        )
        raise OSError(msg) from error


def plain(state: Any) -> Any:
    """Return the leaves by number, keys as numbers: no type need be named on disk."""
    leaves = jax.tree.leaves(state)
    return {
        str(i): jax.random.key_data(leaf) if is_key(leaf) else leaf
        for i, leaf in enumerate(leaves)
    }


def rebuilt(leaves: dict[str, Any], like: Any) -> Any:
    """Return the state that ``plain`` took apart, in the structure of another."""
    models, structure = jax.tree.flatten(like)
    found = [
        jax.random.wrap_key_data(leaves[str(i)], impl=jax.random.key_impl(model))
        if is_key(model)
        else leaves[str(i)]
        for i, model in enumerate(models)
    ]
    return jax.tree.unflatten(structure, found)


def is_key(leaf: Any) -> bool:
    """Tell whether a leaf is a key of random numbers."""
    kind = getattr(leaf, "dtype", np.float64)
    return jnp.issubdtype(kind, jax.dtypes.prng_key)
