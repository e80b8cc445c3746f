"""Files written completely or not at all; folders checked beforehand, and sealed."""

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from gnnrp.runtime import interrupts

MANIFEST = "manifest.json"
_MOST_BYTES = 2**28  # of a manifest


def obstacle(folder: Path) -> OSError | None:
    """Return the error of writing a file into a folder, or None; leave no trace."""
    nearest = folder.absolute()  # or the nearest one above it that exists
    try:
        while not os.path.lexists(nearest):
            nearest = nearest.parent
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(b"0")
    except OSError as error:
        return error
    return None


def try_folder(folder: Path) -> None:
    """Refuse a folder in which nothing can be written."""
    if error := obstacle(folder):
        with write_errors(folder):
            raise error


def write(path: Path, content: bytes | memoryview) -> None:
    """Write a file completely or not at all, by way of a temporary one beside it."""
    # Without the file's own name, which may be as long as the system allows.
    half = path.with_name(f".{secrets.token_hex(8)}.half")
    remove = functools.partial(half.unlink, missing_ok=True)
    with interrupts.Delay(), interrupts.cleanup(remove), write_errors(path):
        try:
            with half.open("xb") as file:
                file.write(content)
            half.replace(path)
        finally:
            remove()


def is_half(name: str) -> bool:
    """Return whether a name is that of a file that a killed ``write`` left."""
    return re.fullmatch(r"\.[0-9a-f]{16}\.half", name) is not None


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn an error of writing into one sentence that names the file or folder."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        named = type(error)(
            f"{str(path)!r} cannot be written ({error.strerror or error}); "
            f"{'make room, or ' if is_full else ''}choose another place"
        )
        named.errno = error.errno
        raise named from error


class DamagedError(ValueError):
    """A file or folder that differs from the one that was written."""


def refuse(reason: str) -> NoReturn:
    """Refuse a damaged file or folder."""
    raise DamagedError(reason)


def seal(folder: Path, **known: Any) -> None:
    """Write ``manifest.json``, with the size and digest of each file of a folder.

    The seal is a SHA-256 of the manifest, not a signature.
    """
    files = {
        name: None if size is None else [size, _sha256(folder / name)]
        for name, size in _tree(folder).items()
    }
    manifest = known | {"files": files}
    content = json.dumps(manifest | {"seal": seal_of(manifest)}).encode()
    write(folder / MANIFEST, content)


def unseal(folder: Path, **expected: Any) -> dict[str, Any]:
    """Return the manifest of a folder that has not changed since ``seal``."""
    tree = _tree(folder)
    size = tree.pop(MANIFEST, None)
    if size is None:
        refuse(f"it has no {MANIFEST}")
    if size > _MOST_BYTES:
        refuse(f"its {MANIFEST} has {size:,} bytes")
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        is_sealed = manifest.pop("seal") == seal_of(manifest)
        sizes = {name: each and each[0] for name, each in manifest["files"].items()}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        is_sealed = False
    if not is_sealed or any(manifest.get(name) != expected[name] for name in expected):
        refuse(f"its {MANIFEST} is not the one that was written there")
    if wrong := sorted(tree.items() ^ sizes.items(), key=str):
        refuse(f"{wrong[0][0]!r} is missing, new or of another size")
    for name, each in manifest["files"].items():
        if each is not None and each[1] != _sha256(folder / name):
            refuse(f"{name!r} is not the file that was written")
    return manifest


def seal_of(manifest: Any) -> str:
    """Return the SHA-256 of plain JSON, regardless of the order of its keys."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _tree(folder: Path) -> dict[str, int | None]:
    """Return the size of each file below a folder, None for folders; follow no link."""
    if not stat.S_ISDIR(folder.lstat().st_mode):
        refuse("it is not a folder")

    def fail(error: OSError) -> NoReturn:
        raise error

    sizes: dict[str, int | None] = {}
    for parent, folders, files in os.walk(folder, onerror=fail):
        for path in (Path(parent, name) for name in folders + files):
            status, name = path.lstat(), path.relative_to(folder).as_posix()
            if stat.S_ISDIR(status.st_mode):
                sizes[name] = None
            elif stat.S_ISREG(status.st_mode):
                sizes[name] = status.st_size
            else:
                refuse(f"{name!r} is neither a file nor a folder")
    return sizes


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
