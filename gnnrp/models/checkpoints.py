"""Checkpoints of training by orbax: written atomically, the last two kept."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

KEPT = 2


def prepare(folder: Path) -> None:
    """Make the folder, or say at once that it cannot be.

    Raises:
        ValueError: it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        msg = (
            f"nothing can be kept in {str(folder)!r}: not a folder that can be written"
        )
        raise ValueError(msg)


def digest(*trees: Any) -> str:
    """Return what tells arrays, keys among them, from others: a SHA-256."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(trees):
        plain = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        found.update(f"{plain.dtype}{plain.shape}".encode())
        found.update(np.ascontiguousarray(plain).tobytes())
    return found.hexdigest()


def latest(folder: Path) -> int | None:
    """Return the number of the last state in a folder, None where there is none."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    import orbax.checkpoint as ocp

    with _manager(folder, ocp) as manager:
        return manager.latest_step()


def save(folder: Path, state: Any, settings: dict[str, Any]) -> None:
    """Write a state beside earlier ones; a half-written one is never read.

    Args:
        folder: made if need be.
        state: a pytree with a field ``t``, its number.
        settings: plain JSON, kept beside it.
    """
    import orbax.checkpoint as ocp

    with _manager(folder, ocp) as manager:
        manager.save(
            int(state.t),
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(_plain(state)),
                settings=ocp.args.JsonSave(settings),
            ),
        )
        manager.wait_until_finished()


def restore(folder: Path, like: Any, settings: dict[str, Any]) -> Any:
    """Return the last state in a folder, None where there is none.

    Args:
        folder: where ``save`` wrote.
        like: a state of the same shapes and types.
        settings: those of this run.

    Raises:
        ValueError: the checkpoint is of other settings, or cannot be read.
    """
    last = latest(folder)
    if last is None:
        return None
    import orbax.checkpoint as ocp

    with _manager(folder, ocp) as manager:
        asked = {"settings": ocp.args.JsonRestore()}
        with _reading(folder / str(last)):
            found: Any = manager.restore(last, args=ocp.args.Composite(**asked))
        _same(folder, found["settings"], json.loads(json.dumps(settings)))
        asked = {"state": ocp.args.StandardRestore(_plain(like))}
        with _reading(folder / str(last)):
            found = manager.restore(last, args=ocp.args.Composite(**asked))
    return _like(found["state"], like)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever a damaged checkpoint ends in into one sentence.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        yield
    except Exception as error:
        msg = f"the checkpoint {path} cannot be read; remove it"
        raise ValueError(msg) from error


def _same(folder: Path, found: dict[str, Any], asked: dict[str, Any]) -> None:
    names = [name for name in asked if found.get(name) != asked[name]]
    if names or found.keys() != asked.keys():
        name = names[0] if names else sorted(found.keys() ^ asked.keys())[0]
        msg = (
            f"the checkpoints in {folder} are of another run: {name} was "
            f"{found.get(name)!r}, is {asked.get(name)!r}; choose another folder"
        )
        raise ValueError(msg)


def _manager(folder: Path, ocp: Any) -> Any:
    options = ocp.CheckpointManagerOptions(
        max_to_keep=KEPT, enable_async_checkpointing=False
    )
    return ocp.CheckpointManager(folder.absolute(), options=options)


def _is_key(leaf: Any) -> bool:
    kind = getattr(leaf, "dtype", np.float64)
    return jnp.issubdtype(kind, jax.dtypes.prng_key)


def _plain(state: Any) -> Any:
    """Return the leaves by number, keys as numbers: no type need be named on disk."""
    leaves = jax.tree.leaves(state)
    return {
        str(i): jax.random.key_data(leaf) if _is_key(leaf) else leaf
        for i, leaf in enumerate(leaves)
    }


def _like(plain: dict[str, Any], like: Any) -> Any:
    leaves, structure = jax.tree.flatten(like)
    found = [
        jax.random.wrap_key_data(plain[str(i)], impl=jax.random.key_impl(leaf))
        if _is_key(leaf)
        else plain[str(i)]
        for i, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, found)
