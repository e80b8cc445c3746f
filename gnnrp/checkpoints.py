"""Checkpoints of long runs: written atomically by orbax, sealed, the last two kept.

A driver offers its state between steps. ``Keeper`` saves it now and then, and once more
on an interrupt. A resumed run is bit-identical to an uninterrupted one.

A damaged checkpoint is refused. Its manifest seals the step, the settings and all files
(``_writing.seal``), and holds type, shape and digest of each leaf, which are compared
again after orbax has read them. One more leaf holds a digest of the others, the step,
the settings and the rows (``bind``). Drivers then compare the state with its step, and
recompute what one product or one metric reveals. This detects accidents, files that
were edited, moved or copied from another run, and leaves that were changed and saved
again by ``save``. A state that somebody changes and binds again passes if the checks of
the driver do not see the change: no secret signs the seal.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import UInt8

from gnnrp import _checks, _disk, _fingerprint, _interrupts, _orbax, _writing

SECONDS = 60.0  # between two checkpoints
_FILES = 48  # of a checkpoint at most, beside its arrays, of a block each
_LEAST_RATIO = 50  # of the time between two checkpoints to that of writing one

Journal = _writing.Journal


class Bound(NamedTuple):
    """A state, and the digest that binds its leaves to each other and to their run."""

    state: Any
    digest: UInt8[np.ndarray, " 32"]  # SHA-256


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
        self,
        folder: Path | None,
        settings: dict[str, Any],
        seconds: float = SECONDS,
        journal: Journal | None = None,
    ) -> None:
        """Make the folder.

        Args:
            folder: None: nothing is kept.
            settings: plain JSON that a checkpoint must have been made with.
            seconds: between two checkpoints, or fifty times what writing one takes.
            journal: saved with each checkpoint, and restored with the last one.

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
        self._journal = journal or Journal(None)
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

    def resumed(
        self,
        like: Callable[[int], Any],
        find_fault: Callable[[int, Any], str | None] = lambda *_: None,
        most: int | None = None,
    ) -> Any:
        """Return the state of the last checkpoint, or None.

        Args:
            like: from its number t, a state of the same shapes and types.
            find_fault: from t and the state, its fault, or None.
            most: largest t of the run, if it has one.

        Raises:
            ValueError: the checkpoint is of other settings, or damaged.
        """
        if self._folder is None:
            return None
        none = np.zeros(32, np.uint8)
        self._kept, found, rows = _restored(
            self._folder, lambda t: Bound(like(t), none), self._settings, most
        )
        if found is None:
            return None
        path = self._folder / str(self._kept)
        with _together(path):
            state, fault = found.state, None
            expected = bind(self._kept, state, self._settings, rows)
            if not np.array_equal(found.digest, expected.digest):
                fault = f"its arrays or rows are not those of step {self._kept}"
            fault = fault or find_fault(self._kept, state)
            fault = fault or self._journal.find_fault(self._kept, rows, state)
            with _orbax.reading(path):
                if fault:
                    _writing.refuse(fault)
        self._journal.restore(rows)
        return state

    def offer(self, t: int, make: Callable[[], Any]) -> None:
        """Save a state if one is due; its number t grows from one offer to the next.

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
        """Save a state, whether one is due or not, unless it is saved already."""
        if self._folder is None or t <= self._kept:
            return
        began, rows = time.monotonic(), self._journal.rows
        bound = bind(t, make(), self._settings, rows)
        save(self._folder, t, bound, self._settings, rows)
        self._last, self._kept = time.monotonic(), t
        if self._seconds > 0:  # else every state is saved
            self._cost = self._last - began

    def _told(self) -> str:
        return f"interrupted; kept at {self._kept:,} in {self._folder}"


def prepare(folder: Path) -> None:
    """Make the folder, and check that it can be written.

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


def _check_disk(folder: Path, state: Any) -> None:
    """Refuse a full disk before orbax runs into it.

    Orbax closes its event loop at the first error, and threads that still write then
    print tracebacks.

    Raises:
        OSError: the disk is full.
    """
    if jax.process_count() == 1:  # else each writes a share
        blocks = _FILES * os.statvfs(folder).f_frsize
        _disk.reserve(folder, blocks + sum(x.nbytes for x in jax.tree.leaves(state)))


def latest(folder: Path) -> int | None:
    """Return the number of the last state in a folder, None where there is none."""
    # Processes that share the folder may look before and after it is made.
    (held,) = agreed(folder.is_dir() and any(folder.iterdir()))
    if not held:
        return None
    found = max(_orbax.steps(folder), default=-1)
    if jax.process_count() > 1:
        found = int(multihost_utils.broadcast_one_to_all(np.array(found)))
    return None if found < 0 else found


def bind(
    t: int, state: Any, settings: dict[str, Any], rows: list[Any] | None = None
) -> Bound:
    """Return a state with the digest of its leaves, number, settings and rows.

    Args:
        t: its number.
        state: a pytree of arrays.
        settings: plain JSON.
        rows: of a journal, plain JSON too.
    """
    leaves = [_described(leaf) for leaf in _orbax.plain(state).values()]
    # As JSON is read again, where each key is a string.
    made = json.loads(json.dumps([t, settings, rows or [], leaves]))
    digest = bytes.fromhex(_writing.seal_of(made))
    return Bound(state, np.frombuffer(digest, np.uint8))


def save(
    folder: Path,
    t: int,
    state: Any,
    settings: dict[str, Any],
    rows: list[Any] | None = None,
) -> None:
    """Write a state beside earlier ones; a half-written one has no number.

    Args:
        folder: made if need be.
        t: its number.
        state: a pytree of arrays; ``Keeper`` resumes one from ``bind``.
        settings: plain JSON, kept beside it.
        rows: of a journal, plain JSON too.

    Raises:
        OSError: it cannot be written; earlier ones stay.
    """
    import orbax.checkpoint as ocp

    leaves = _orbax.plain(state)
    half = folder / f"{t}{_orbax.HALF}"
    with _orbax.writing(folder, t):
        with _together(half):
            folder.mkdir(parents=True, exist_ok=True)
            if jax.process_index() == 0:
                _orbax.remove(folder, _orbax.leftovers(folder))
        _check_disk(folder, state)
        with _orbax.manager(ocp) as manager:
            manager.save(half.absolute(), args=ocp.args.StandardSave(leaves))
        described = [_described(leaf) for leaf in leaves.values()]
        with _together(half):
            if jax.process_index() == 0:
                known = {"settings": settings, "rows": rows or [], "leaves": described}
                _writing.seal(half, step=t, **known)
                half.rename(folder / str(t))
                old = _orbax.steps(folder)[: -_orbax.KEPT]
                _orbax.remove(folder, map(str, old))


def started(folder: Path) -> bool:
    """Return whether a folder holds a run."""
    return latest(folder) is not None


def _restored(
    folder: Path, like: Callable[[int], Any], settings: dict[str, Any], most: int | None
) -> tuple[int, Any, list[Any]]:
    """Return the number of the last state in a folder, the state and the rows.

    Raises:
        ValueError: the checkpoint is of other settings, or damaged.
    """
    last = latest(folder)
    if last is None:
        return -1, None, []
    import orbax.checkpoint as ocp

    path = folder / str(last)
    with _together(path), _orbax.reading(path):
        # Before orbax's threads meet what is damaged, and print tracebacks.
        made = _writing.unseal(path, step=last)
        made_with, rows, leaves = (made[x] for x in ("settings", "rows", "leaves"))
        if not (isinstance(made_with, dict) and isinstance(rows, list)):
            _writing.refuse("its manifest.json has another form")
    with _together(path):
        _same(folder, made_with, settings)
    with _together(path), _orbax.reading(path):
        if most is not None and last > most:
            _writing.refuse(f"the run ends at {most}")
        model = like(last)
        expected = _orbax.plain(model)
        kinds = [each[:2] for each in leaves]
        with _orbax.manager(ocp) as manager:
            stored = manager.metadata(path.absolute())
        stored = getattr(stored, "item_metadata", stored).tree  # older orbax has none
        stored = [stored[name] for name in sorted(stored, key=int)]
        stored = [[str(x.dtype), list(x.shape)] for x in stored]
        if not kinds == stored == [_described(x)[:2] for x in expected.values()]:
            _writing.refuse("its arrays have other types or shapes than the run's")
    with _orbax.reading(path), _orbax.manager(ocp) as manager:
        found = manager.restore(
            path.absolute(), args=ocp.args.StandardRestore(expected)
        )
    with _together(path), _orbax.reading(path):
        if [_described(found[name]) for name in expected] != leaves:
            _writing.refuse("its arrays are not those that were saved")
    return last, _orbax.rebuilt(found, model), rows


def _described(leaf: Any) -> list[Any]:
    """Return type, shape and SHA-256 of an array, a checksum if processes share it."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return [str(leaf.dtype), list(leaf.shape), _fingerprint.checksum(leaf)]
    array = np.asarray(leaf)
    return [str(array.dtype), list(array.shape), _fingerprint.digest(array)]


@contextlib.contextmanager
def _together(path: Path) -> Iterator[None]:
    """Fail in every process if one of them fails, so that none waits for it.

    Raises:
        ValueError: another process failed.
    """
    failed = None
    try:
        yield
    except Exception as error:  # whatever it is, the others must know
        failed = error
    (any_failed,) = agreed(failed is not None)
    if failed is not None:
        raise failed
    if any_failed:
        msg = f"another process could not use the checkpoint {path}; see its message"
        raise ValueError(msg)


def _check_json(name: str, value: Any) -> None:
    """Refuse settings that are not JSON before the run starts.

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
    """Refuse a checkpoint of other settings.

    Raises:
        ValueError: a setting differs.
    """
    asked = json.loads(json.dumps(asked))
    names = [name for name in asked if found.get(name) != asked[name]]
    if names or found.keys() != asked.keys():
        name = names[0] if names else sorted(found.keys() ^ asked.keys())[0]
        was, now = (_checks.shown(each.get(name)) for each in (found, asked))
        msg = (
            f"the checkpoints in {folder} are of another run: {name} was {was}, is "
            f"{now}; choose another folder"
        )
        raise ValueError(msg)
