"""Checkpoints of long runs, written atomically by orbax and sealed.

The last two are retained. A manifest seals the files (``atomic_files.seal``) and lists
a digest of each leaf; ``bind`` adds one of all leaves, the step, settings and rows. No
secret signs them: only the checks of a driver detect a state that is bound again.
"""

import contextlib
import dataclasses
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import UInt8

from gnnrp.runtime import (
    atomic_files,
    checks,
    fingerprint,
    folders,
    interrupts,
    json_files,
    process,
    safe_text,
)

_RETAINED = 2  # checkpoints
_HALF = ".half"
_FILES = 48  # upper bound on files besides the arrays, one block each
_LEAST_RATIO = 50  # of the time between two checkpoints to that of writing one


class Bound(NamedTuple):
    """A state, and the digest that binds its leaves to each other and to their run."""

    state: Any
    digest: UInt8[np.ndarray, " 32"]  # SHA-256


@dataclasses.dataclass
class Journal:
    """Rows of JSON, saved with each checkpoint, and in a file that is never read."""

    path: Path | None
    find_fault: Callable[[int, list[Any], Any], str | None] = lambda *_: None
    rows: list[Any] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse a folder in place of the file."""
        if self.path is not None and self.path.is_dir():
            msg = f"{str(self.path)!r} is a folder, and rows are saved there; remove it"
            raise IsADirectoryError(msg)

    def append(self, row: Any) -> None:
        """Add a row."""
        self.restore([*self.rows, row])

    def restore(self, rows: list[Any]) -> None:
        """Replace the rows by those of a checkpoint."""
        self.rows = rows
        if self.path is not None:
            lines = [f"{json_files.dumps(row, indent=None)}\n" for row in rows]
            atomic_files.write(self.path, "".join(lines).encode())


class Keeper:
    """Saves the states of a run in a folder, if there is one.

    A run writes::

        with Keeper(folder, settings) as keeper:
            state = keeper.restore(like) or start
            while ...:
                ...
                keeper.save_if_due(t, lambda: state)
            keeper.save(t, lambda: state)

    Within, Ctrl-C waits for the next state, which is saved before ``KeyboardInterrupt``
    is raised; a second one does not wait. In a command this holds for SIGTERM too.
    """

    def __init__(
        self,
        folder: Path | None,
        settings: dict[str, Any],
        seconds: float = 0,
        journal: Journal | None = None,
    ) -> None:
        """Make the folder; 0 seconds between checkpoints save every state."""
        checks.at_least("checkpoint_seconds", seconds, 0)
        self._folder = None if folder is None else Path(folder)
        self._settings, self._seconds = settings, seconds
        self._journal = journal or Journal(None)
        self._last, self._cost, self._saved = time.monotonic(), 0.0, -1
        self._held, self._lock = interrupts.Delay(), contextlib.ExitStack()
        if self._folder is not None:
            _check_json(settings)
            prepare(self._folder)

    def __enter__(self) -> "Keeper":
        """Lock the folder, and delay Ctrl-C to the next state."""
        if self._folder is not None:
            _lock(self._folder, self._lock)
            self._held.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Unlock the folder, and restore the handling of Ctrl-C."""
        interrupted = self._folder is not None and interrupts.pending()
        self._held.release()
        self._lock.close()
        if kind is None and interrupted:
            raise KeyboardInterrupt(self._message())

    def restore(
        self,
        like: Callable[[int], Any],
        find_fault: Callable[[int, Any], str | None] = lambda *_: None,
        most: int | None = None,
    ) -> Any:
        """Return the last state, of the shapes of ``like(t)``, or None."""
        t = None if self._folder is None else latest(self._folder)
        if self._folder is None or t is None:
            return None
        path, zeros = self._folder / str(t), np.zeros(32, np.uint8)
        bound, rows = _load(path, lambda: Bound(like(t), zeros), self._settings, most)
        state, fault = bound.state, None
        with _fail_together(path):
            expected = bind(t, state, self._settings, rows)
            if not np.array_equal(bound.digest, expected.digest):
                fault = f"its arrays or rows are not those of step {t}"
            fault = fault or find_fault(t, state)
            fault = fault or self._journal.find_fault(t, rows, state)
            with _read_errors(path):
                if fault:
                    atomic_files.refuse(fault)
        self._saved = t
        self._journal.restore(rows)
        return state

    def save_if_due(self, t: int, make: Callable[[], Any]) -> None:
        """Save a state if one is due; its number t grows from state to state."""
        if self._folder is None:
            return
        waited = time.monotonic() - self._last
        due = waited >= max(self._seconds, _LEAST_RATIO * self._cost)
        due, interrupted = any_process(due, interrupts.pending())
        if due or interrupted:
            self.save(t, make)
        if interrupted:
            raise KeyboardInterrupt(self._message())

    def save(self, t: int, make: Callable[[], Any]) -> None:
        """Save a state, whether one is due or not, unless it is saved already."""
        if self._folder is None or t <= self._saved:
            return
        began, rows = time.monotonic(), self._journal.rows
        bound = bind(t, make(), self._settings, rows)
        save(self._folder, t, bound, self._settings, rows)
        self._last, self._saved = time.monotonic(), t
        if self._seconds > 0:  # otherwise every state is saved
            self._cost = self._last - began

    def _message(self) -> str:
        return f"interrupted; saved step {self._saved:,} in {self._folder}"


def prepare(folder: Path) -> None:
    """Make a folder, and check that it can be written."""
    atomic_files.try_folder(folder)
    with atomic_files.write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _lock(folder: Path, stack: contextlib.ExitStack) -> None:
    # The first process locks the folder for all of them.
    msg = f"the first process of this run could not lock {str(folder)!r}"
    with _fail_together(folder, BlockingIOError(msg)):
        if jax.process_index() == 0:
            stack.enter_context(folders.lock(folder))


def origin(folder: Path) -> dict[str, Any] | None:
    """Return run id and step of the last state in a folder, None if there is none.

    The id is None if no manifest has one; ``Keeper.restore`` refuses a damaged one.
    """
    t, run_id = latest(folder), None
    if t is None:
        return None
    path = folder / str(t) / atomic_files.MANIFEST
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RuntimeError):
        run_id = json_files.load(path)["run_id"]
    return {"run_id": run_id if isinstance(run_id, str) else None, "step": t}


def latest(folder: Path) -> int | None:
    """Return the number of the last state in a folder, None if there is none."""
    # Processes that share the folder may look before and after it is made.
    (is_used,) = any_process(folder.is_dir() and any(folder.iterdir()))
    if not is_used:
        return None
    last = max(steps(folder), default=-1)
    if jax.process_count() > 1:
        last = int(multihost_utils.broadcast_one_to_all(np.array(last)))
    return None if last < 0 else last


def bind(
    t: int, state: Any, settings: dict[str, Any], rows: Sequence[Any] = ()
) -> Bound:
    """Return a state with the digest of its leaves, number, settings and rows."""
    leaves = [_describe(leaf) for leaf in _leaves_by_index(state).values()]
    # As JSON is read again, with strings as keys.
    contents = json.loads(json.dumps([t, settings, rows, leaves]))
    digest = bytes.fromhex(atomic_files.seal_of(contents))
    return Bound(state, np.frombuffer(digest, np.uint8))


def save(
    folder: Path, t: int, state: Any, settings: dict[str, Any], rows: Sequence[Any] = ()
) -> None:
    """Write a state; it gets its number once it is complete."""
    import orbax.checkpoint as ocp

    leaves = _leaves_by_index(state)
    half = folder / f"{t}{_HALF}"
    with _write_errors(folder, t):
        with _fail_together(half):
            folder.mkdir(parents=True, exist_ok=True)
            if jax.process_index() == 0:
                _remove(folder, _leftovers(folder))
        if jax.process_count() == 1:  # otherwise each writes a share
            # Orbax closes its event loop at the first error, and threads that still
            # write then print tracebacks.
            blocks = _FILES * os.statvfs(folder).f_frsize
            size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
            folders.reserve(folder, blocks + size)
        with checkpointer(ocp) as opened:
            opened.save(half.absolute(), args=ocp.args.StandardSave(leaves))
        described = [_describe(leaf) for leaf in leaves.values()]
        known = {"settings": settings, "rows": rows, "leaves": described}
        known["run_id"] = process.RUN_ID
        with _fail_together(half):
            if jax.process_index() == 0:
                atomic_files.seal(half, step=t, **known)
                half.rename(folder / str(t))
                old = steps(folder)[:-_RETAINED]
                _remove(folder, map(str, old))


def _load(
    path: Path, like: Callable[[], Any], settings: dict[str, Any], most: int | None
) -> tuple[Any, list[Any]]:
    """Return state and rows of a checkpoint."""
    import orbax.checkpoint as ocp

    t = int(path.name)
    with _fail_together(path), _read_errors(path):
        # Before orbax's threads meet the damage, and print tracebacks.
        manifest = atomic_files.unseal(path, step=t)
        saved, rows, leaves = (manifest[x] for x in ("settings", "rows", "leaves"))
        if not (isinstance(saved, dict) and isinstance(rows, list)):
            atomic_files.refuse("its manifest.json has another form")
    with _fail_together(path):
        _check_settings(path.parent, saved, settings)
    with _fail_together(path), _read_errors(path):
        if most is not None and t > most:
            atomic_files.refuse(f"the run ends at {most}")
        model = like()
        expected = _leaves_by_index(model)
        kinds = [leaf[:2] for leaf in leaves]
        with checkpointer(ocp) as opened:
            stored = opened.metadata(path.absolute())
        stored = getattr(stored, "item_metadata", stored).tree  # older orbax has none
        stored = [stored[name] for name in sorted(stored, key=int)]
        stored = [[str(x.dtype), list(x.shape)] for x in stored]
        if not kinds == stored == [_describe(x)[:2] for x in expected.values()]:
            atomic_files.refuse("its arrays have other types or shapes than the run's")
    target = ocp.args.StandardRestore(expected)
    with _read_errors(path), checkpointer(ocp) as opened:
        arrays = opened.restore(path.absolute(), args=target)
    with _fail_together(path), _read_errors(path):
        if [_describe(arrays[name]) for name in expected] != leaves:
            atomic_files.refuse("its arrays are not those that were saved")
    return _rebuild(arrays, model), rows


def _describe(leaf: Any) -> list[Any]:
    """Return type, shape and digest of an array, a checksum if processes share it."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return [str(leaf.dtype), list(leaf.shape), fingerprint.checksum(leaf)]
    array = np.asarray(leaf)
    return [str(array.dtype), list(array.shape), fingerprint.digest(array)]


@contextlib.contextmanager
def _fail_together(path: Path, other: Exception | None = None) -> Iterator[None]:
    """Fail in every process if one of them fails, so that none waits for it."""
    error = None
    try:
        yield
    except Exception as raised:  # of any kind: the others must know
        error = raised
    (any_failed,) = any_process(error is not None)
    if error is not None:
        raise error
    if any_failed:
        msg = f"another process could not use the checkpoint {path}; see its message"
        raise other or ValueError(msg)


def any_process(*flags: bool) -> list[bool]:
    """Return for each flag whether it is true in any process: all branch alike."""
    if jax.process_count() == 1:
        return list(flags)
    every = multihost_utils.process_allgather(np.array(flags))
    return [bool(flag) for flag in every.any(axis=0)]


def _check_json(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            msg = (
                f"{name} must be plain JSON to be stored in a checkpoint, got "
                f"{checks.format_value(value)}; pass numbers or strings"
            )
            raise TypeError(msg) from error


def _check_settings(
    folder: Path, stored: dict[str, Any], settings: dict[str, Any]
) -> None:
    settings = json.loads(json.dumps(settings))
    names = [name for name in settings if stored.get(name) != settings[name]]
    if names or stored.keys() != settings.keys():
        name = names[0] if names else sorted(stored.keys() ^ settings.keys())[0]
        was, now = (checks.format_value(each.get(name)) for each in (stored, settings))
        msg = (
            f"the checkpoints in {folder} are of another run: {name} was {was}, is "
            f"{now}; choose another folder"
        )
        raise ValueError(msg)


@contextlib.contextmanager
def checkpointer(ocp: Any) -> Iterator[Any]:
    """Open orbax and hide its log lines, since errors are raised."""
    with (
        safe_text.silence(logging.getLogger("absl")),
        ocp.Checkpointer(ocp.StandardCheckpointHandler()) as opened,
    ):
        yield opened


@contextlib.contextmanager
def _read_errors(path: Path) -> Iterator[None]:
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
    names = os.listdir(folder)
    return sorted(int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name))


def _remove(folder: Path, names: Iterable[str]) -> None:
    """Delete checkpoints; a kill leaves no part of one under its number."""
    for name in names:
        path = folder / name
        if not name.endswith(_HALF):
            path = path.rename(folder / f"{name}{_HALF}")
        shutil.rmtree(path, ignore_errors=True)


def _leftovers(folder: Path) -> list[str]:
    """Return the names of half-written checkpoints, which a kill leaves."""
    half = rf"[0-9]+({re.escape(_HALF)})?(\.orbax-checkpoint-tmp.*)?"
    names = os.listdir(folder)
    return [n for n in names if re.fullmatch(half, n) and not n.isdecimal()]


@contextlib.contextmanager
def _write_errors(folder: Path, t: int) -> Iterator[None]:
    """Turn orbax's errors of writing into one sentence."""
    try:
        yield
    except Exception as error:
        code = re.search(r"os_error_code='(\d+)'", str(error))  # its class has none
        code = int(code[1]) if code else getattr(error, "errno", None)
        if code is None:
            raise
        for half in folder.glob(f"{t}{_HALF}*"):
            shutil.rmtree(half, ignore_errors=True)  # it may fill the disk
        msg = (
            f"the checkpoint {folder / str(t)} cannot be written "
            f"({os.strerror(code)}); make room, and resume from the previous one"
        )
        raise OSError(msg) from error


def _leaves_by_index(state: Any) -> Any:
    """Return the leaves by index, with random keys as integers, as files need."""
    return {
        str(i): jax.random.key_data(leaf) if fingerprint.is_key(leaf) else leaf
        for i, leaf in enumerate(jax.tree.leaves(state))
    }


def _rebuild(leaves: dict[str, Any], like: Any) -> Any:
    """Return the state of ``_leaves_by_index``, in the structure of another state."""
    models, structure = jax.tree.flatten(like)
    state = [leaves[str(i)] for i in range(len(models))]
    for i, model in enumerate(models):
        if fingerprint.is_key(model):
            kind = jax.random.key_impl(model)
            state[i] = jax.random.wrap_key_data(state[i], impl=kind)
    return jax.tree.unflatten(structure, state)
