"""Checkpoints of long runs by orbax: written atomically, the last two kept.

A driver offers its state between steps; ``Keeper`` writes it now and then, and once
more where the run is interrupted. What goes on from a checkpoint ends in the same bits.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from gnnrp import _checks, _disk, _interrupts, _orbax, _writing

SECONDS = 60.0  # between two checkpoints
_FILES = 48  # of a checkpoint at most, beside its arrays, of a block each
_LEAST_RATIO = 50  # of the time between two checkpoints to that of writing one


class Keeper:
    """Keeps a run in a folder, if there is one.

    A run writes::

        with Keeper(folder, settings) as keeper:
            state = keeper.resumed(like) or start
            while ...:
                ...
                keeper.offer(t, lambda: state)
            keeper.finish(t, lambda: state)

    Within, Ctrl-C waits for the next offer, which is saved before ``KeyboardInterrupt``
    is raised; a second one does not wait. In a command both hold for SIGTERM too.
    """

    def __init__(
        self, folder: Path | None, settings: dict[str, Any], seconds: float = SECONDS
    ) -> None:
        """Make the folder.

        Args:
            folder: None: nothing is kept.
            settings: plain JSON that a checkpoint must have been made with.
            seconds: between two checkpoints, or fifty times what writing one takes.

        Raises:
            OSError: it cannot be made or written.
            ValueError: negative seconds.
            TypeError: settings that are not JSON.
        """
        _checks.at_least("checkpoint_seconds", seconds, 0)
        for name, value in settings.items() if folder is not None else ():
            _check_json(name, value)
        self._folder = None if folder is None else Path(folder)
        self._settings, self._seconds = settings, seconds
        self._last, self._cost, self._kept = time.monotonic(), 0.0, -1
        self._held, self._lock = _interrupts.Held(), contextlib.ExitStack()
        if self._folder is not None:
            prepare(self._folder)

    def __enter__(self) -> "Keeper":
        """Lock the folder, and let Ctrl-C wait for an offer.

        Raises:
            OSError: another run uses the folder.
        """
        if self._folder is not None:
            _lock(self._folder, self._lock)
            self._held.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Unlock the folder, and restore the handling of Ctrl-C.

        Raises:
            KeyboardInterrupt: on Ctrl-C after the last offer.
        """
        interrupted = self._folder is not None and _interrupts.pending()
        self._held.release()
        self._lock.close()
        if kind is None and interrupted:
            raise KeyboardInterrupt(self._told())

    def resumed(self, like: Callable[[int], Any]) -> Any:
        """Return the last state kept, None where there is none.

        Args:
            like: from its number t, a state of the same shapes and types.

        Raises:
            ValueError: the checkpoint is of other settings, or cannot be read.
        """
        if self._folder is None:
            return None
        self._kept, found = _restored(self._folder, like, self._settings)
        return found

    def offer(self, t: int, make: Callable[[], Any]) -> None:
        """Keep a state if it is time; its number t grows from one offer to the next.

        Raises:
            KeyboardInterrupt: on Ctrl-C, after saving the state.
        """
        if self._folder is None:
            return
        waited = time.monotonic() - self._last
        due = waited >= max(self._seconds, _LEAST_RATIO * self._cost)
        due, interrupted = agreed(due, _interrupts.pending())
        if due or interrupted:
            self.finish(t, make)
        if interrupted:
            raise KeyboardInterrupt(self._told())

    def finish(self, t: int, make: Callable[[], Any]) -> None:
        """Keep a state, whatever the time, unless it is kept already."""
        if self._folder is None or t <= self._kept:
            return
        began = time.monotonic()
        save(self._folder, t, make(), self._settings)
        self._last, self._kept = time.monotonic(), t
        if self._seconds > 0:  # else asked for always
            self._cost = self._last - began

    def _told(self) -> str:
        return f"interrupted; kept at {self._kept:,} in {self._folder}"


def prepare(folder: Path) -> None:
    """Make the folder, or say at once that it cannot be.

    Raises:
        OSError: it cannot be made or written.
    """
    _writing.try_folder(folder)
    with _writing.telling(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _lock(folder: Path, stack: contextlib.ExitStack) -> None:
    """Lock a folder until the stack is closed, by the first process of a run.

    Raises:
        OSError: another run uses the folder; in all processes alike.
    """
    error = None
    if jax.process_index() == 0:
        try:
            stack.enter_context(_disk.locked(folder))
        except OSError as refused:
            error = refused
    (failed,) = agreed(error is not None)
    if failed:
        msg = f"the first process of this run could not lock {str(folder)!r}"
        raise error or BlockingIOError(msg)


@contextlib.contextmanager
def _room(folder: Path, state: Any) -> Iterator[None]:
    """Refuse a full disk before orbax runs into it.

    Orbax closes its event loop at the first error, and threads that still write then
    print tracebacks.

    Raises:
        OSError: the disk is full.
    """
    if jax.process_count() == 1:  # else each writes a share
        folder.mkdir(parents=True, exist_ok=True)
        blocks = _FILES * os.statvfs(folder).f_frsize
        _disk.reserve(folder, blocks + sum(x.nbytes for x in jax.tree.leaves(state)))
    yield


def latest(folder: Path) -> int | None:
    """Return the number of the last state in a folder, None where there is none."""
    # Processes that share the folder may look before and after it is made.
    (held,) = agreed(folder.is_dir() and any(folder.iterdir()))
    if not held:
        return None
    import orbax.checkpoint as ocp

    with _orbax.manager(folder, ocp) as manager:
        return manager.latest_step()


def save(folder: Path, t: int, state: Any, settings: dict[str, Any]) -> None:
    """Write a state beside earlier ones; a half-written one is never read.

    Args:
        folder: made if need be.
        t: its number.
        state: a pytree of arrays.
        settings: plain JSON, kept beside it.

    Raises:
        OSError: it cannot be written; earlier ones stay.
    """
    import orbax.checkpoint as ocp

    with (
        _orbax.writing(folder, t),
        _room(folder, state),
        _orbax.manager(folder, ocp) as manager,
    ):
        manager.save(
            t,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(_orbax.plain(state)),
                settings=ocp.args.JsonSave(settings),
            ),
        )
        manager.wait_until_finished()
        if jax.process_index() == 0:
            _writing.vouch(folder / str(t))


def started(folder: Path) -> bool:
    """Tell whether a folder holds a run."""
    return latest(folder) is not None


def _restored(
    folder: Path, like: Callable[[int], Any], settings: dict[str, Any]
) -> tuple[int, Any]:
    """Return the number of the last state in a folder, and the state; -1 and None.

    Raises:
        ValueError: the checkpoint is of other settings, or cannot be read.
    """
    last = latest(folder)
    if last is None:
        return -1, None
    import orbax.checkpoint as ocp

    with _orbax.manager(folder, ocp) as manager:
        asked = {"settings": ocp.args.JsonRestore()}
        with _orbax.reading(folder / str(last)):
            # Before orbax's threads meet what is damaged, and print tracebacks.
            _writing.verify(folder / str(last))
            found: Any = manager.restore(last, args=ocp.args.Composite(**asked))
        _same(folder, found["settings"], json.loads(json.dumps(settings)))
        model = like(last)
        asked = {"state": ocp.args.StandardRestore(_orbax.plain(model))}
        with _orbax.reading(folder / str(last)):
            found = manager.restore(last, args=ocp.args.Composite(**asked))
    return last, _orbax.rebuilt(found["state"], model)


def _check_json(name: str, value: Any) -> None:
    """Refuse, before hours are spent, what could not be kept beside a state.

    Raises:
        TypeError: it is not plain JSON.
    """
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        msg = (
            f"what a run was made with is kept as JSON, and {name} cannot be, got "
            f"{_checks.shown(value)}; name it by numbers or strings"
        )
        raise TypeError(msg) from error


def agreed(*flags: bool) -> list[bool]:
    """Return flags, each true where it is in any process, so that all do alike."""
    if jax.process_count() == 1:
        return list(flags)
    every = multihost_utils.process_allgather(np.array(flags))
    return [bool(flag) for flag in every.any(axis=0)]


def _same(folder: Path, found: dict[str, Any], asked: dict[str, Any]) -> None:
    names = [name for name in asked if found.get(name) != asked[name]]
    if names or found.keys() != asked.keys():
        name = names[0] if names else sorted(found.keys() ^ asked.keys())[0]
        msg = (
            f"the checkpoints in {folder} are of another run: {name} was "
            f"{found.get(name)!r}, is {asked.get(name)!r}; choose another folder"
        )
        raise ValueError(msg)
