"""Locked folders, temporary folders, and checks of disk space and file types."""

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from gnnrp.runtime import atomic_files, interrupts

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

_LOCK, _PART = ".lock", ".part"


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Lock a folder for a block; refuse one that another run has locked."""
    # A flock ends with its process; NFS of Linux shares it between machines.
    with atomic_files.write_errors(folder):
        file = (folder / _LOCK).open("a")
    with file:
        try:
            _flock(file.fileno())
        except BlockingIOError:
            msg = (
                f"{str(folder)!r} is in use by another run; wait until that ends, or "
                "choose another folder"
            )
            raise BlockingIOError(msg) from None
        except OSError as error:
            warnings.warn(
                f"{str(folder)!r} cannot be locked ({error.strerror}); do not start a "
                "second run in it",
                stacklevel=3,
            )
        yield


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Make a temporary folder in another one, and remove it after the block.

    A signal to a command removes it too; the next call removes leftovers of a kill.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for unused in folder.glob(f".*{_PART}"):
        with contextlib.suppress(OSError), (unused / _LOCK).open("a") as file:
            _flock(file.fileno())
            shutil.rmtree(unused, ignore_errors=True)
    path = folder / f".{secrets.token_hex(8)}{_PART}"
    new = path.with_suffix(".new")  # until it is locked: it is not a leftover

    def remove() -> None:
        for each in (new, path):
            shutil.rmtree(each, ignore_errors=True)

    with interrupts.cleanup(remove):
        try:
            new.mkdir()
            with (new / _LOCK).open("a") as file:
                with contextlib.suppress(OSError):  # without locks, a kill leaves it
                    _flock(file.fileno())
                yield new.rename(path)
        finally:
            remove()


def reserve(folder: Path, num_bytes: int) -> None:
    """Check that a number of bytes fits on a disk, by a file removed at once."""
    if not hasattr(os, "posix_fallocate"):
        return
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(1, num_bytes))
        except OSError as error:
            # A limit on one file, say, need not hold for several smaller ones.
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise


def check_regular(path: Path) -> None:
    """Refuse a path that is neither free nor a regular file."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            msg = f"{str(path)!r} is not a regular file; remove it"
            raise OSError(msg)


def _flock(descriptor: int) -> None:
    # Does not wait.
    if fcntl is None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
