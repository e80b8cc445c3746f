"""Finding a dataset's files below a few base folders, or fetching them."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import platformdirs

from gnnrp.datasets import _archive, _hashes, raw_files
from gnnrp.datasets.catalog import SOURCES, Source
from gnnrp.runtime import atomic_files, folders, safe_text

VARIABLE = "GNNRP_DATA"


class MissingFilesError(FileNotFoundError):
    """Files that are not here, with the remedy.

    A command prints ``message_limit`` characters of the message at most: more, so that
    an address stays whole, if all paths in it are short plain text.
    """

    message_limit = safe_text.LIMIT


def cache() -> Path:
    """Return the folder that downloads go to, which need not exist."""
    return Path(platformdirs.user_cache_dir("gnnrp"))


def bases(root: str | os.PathLike[str] | None) -> list[Path]:
    """Return the folders to look in, in this order.

    Raises:
        FileNotFoundError: the first is named but does not exist.
        NotADirectoryError: it is a file.
        OSError: a folder that is named cannot be looked into.
    """
    named = [root, os.environ.get(VARIABLE)]
    given = [Path(base).expanduser() for base in named if base]
    for folder in given:
        with raw_files.opening(folder):
            if folder.is_dir():
                next(folder.iterdir(), None)
    if root and not given[0].exists():
        msg = f"the data folder {root} does not exist"
        raise FileNotFoundError(msg)
    if root and not given[0].is_dir():
        msg = f"the data folder {root} is a file; name the folder that holds it"
        raise NotADirectoryError(msg)
    return [*given, cache()]


def locate(
    name: str, root: str | os.PathLike[str] | None
) -> tuple[Source, Path] | None:
    """Return the first folder that holds all files of one of the sources."""
    for base in bases(root):
        for source in SOURCES[name]:
            for folder in _candidates(base, source):
                if not _missing(folder, source):
                    return source, folder
    return None


def fetch(
    name: str, root: str | os.PathLike[str] | None, *, progress: bool = False
) -> tuple[Source, Path]:
    """Fetch the preferred source into the cache.

    Files are checked by their sha256; an archive of OGB's has none.

    Args:
        name: of the data set.
        root: the folder that was searched, for the sentence of an error.
        progress: print the address of each file on standard error.

    Raises:
        FileNotFoundError: there is nothing to fetch from, or it failed.
    """
    source = SOURCES[name][0]
    if not source.urls and not (source.archive and _archive.installed()):
        refuse(name, root)
    folder = cache() / source.folder
    if error := atomic_files.obstacle(folder):
        told = f"; the cache {str(folder)!r} cannot be written ({error.strerror})"
        refuse(name, root, told, error, to_cache=False)
    if source.archive:
        return source, _fetch_archive(source, name, root, progress=progress)
    for file, url in zip(source.files, source.urls, strict=True):
        try:
            _fetch_file(url, folder, file, progress=progress)
        except Exception as error:
            refuse(name, root, _failure(url, error), error)
    return source, folder


def refuse(
    name: str,
    root: str | os.PathLike[str] | None,
    failure: str = "",
    cause: Exception | None = None,
    *,
    to_cache: bool = True,
) -> NoReturn:
    """Raise an error that names the missing file, the folders and the remedy.

    Args:
        name: of the data set.
        root: the folder that was searched first.
        failure: the failed attempt and its reason, for the message.
        cause: the exception of that attempt.
        to_cache: advise to put the file into the cache.

    Raises:
        MissingFilesError: always.
    """
    source, file = _nearest(name, root)
    places = ", ".join(str(base) for base in bases(root))
    place = cache() / source.folder
    if source.archive:
        remedy, place = f"fetch {source.archive} and unpack it", cache()
        if not _archive.installed():
            remedy = f"{_archive.INSTALL} to have it fetched, or {remedy}"
    elif source.urls:
        remedy = f"fetch {source.urls[source.files.index(file)]} by hand"
    else:
        remedy = "get it"
    into = f"into {place}, or" if to_cache else "and"
    msg = (
        f"dataset {name!r} needs {file}, which was not found in {places}{failure}; "
        f"{remedy} {into} pass the folder that holds it as root (--data-dir) or in "
        f"the environment variable {VARIABLE}"
    )
    missing = MissingFilesError(msg)
    if all(safe_text.line(path, 100) == path for path in (places, str(place))):
        missing.message_limit = 2 * safe_text.LIMIT
    raise missing from cause


def _fetch_file(url: str, folder: Path, file: str, *, progress: bool) -> None:
    """Fetch a file into a folder, which is removed if it is empty at the end.

    Raises:
        OSError: something else than a file is in its place, or the download fails.
    """
    # Not at the top: it loads slowly, and few calls need it.
    import pooch

    folders.check_regular(folder / file)
    if progress:
        print(safe_text.line(f"fetching {url} to {folder / file}"), file=sys.stderr)
    # Without it, pooch 1.8.0 waits for a silent server for ever. Any, since pooch's own
    # annotations of it do not fit each other.
    patient: Any = pooch.HTTPDownloader(timeout=_archive.TIMEOUT)
    try:
        with folders.scratch(folder) as part, safe_text.quiet(pooch.get_logger()):
            known_hash = f"sha256:{_hashes.SHA256[file]}"
            pooch.retrieve(url, known_hash, fname=file, path=part, downloader=patient)
            (part / file).replace(folder / file)
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _fetch_archive(
    source: Source, name: str, root: str | os.PathLike[str] | None, *, progress: bool
) -> Path:
    """Return the folder in the cache that an archive became.

    Raises:
        FileNotFoundError: it failed, or the folder has other contents.
    """
    url, target = str(source.archive), cache() / source.folder
    if target.exists() and any(target.iterdir()):
        refuse(name, root, f"; remove {target}, which is incomplete, to fetch it anew")
    try:
        _archive.fetch(url, target, source.files, progress=progress)
    except Exception as error:
        if _missing(target, source):  # else another process was faster
            refuse(name, root, _failure(url, error), error)
    return target


def _failure(url: str, error: BaseException) -> str:
    """Return the first cause in one line: the refused connection, not the last try."""
    while error.__context__ is not None:
        error = error.__context__
    reason = next(iter(str(error).splitlines()), repr(error))
    return f"; fetching {url} failed ({safe_text.line(reason, 150)})"


def _nearest(name: str, root: str | os.PathLike[str] | None) -> tuple[Source, str]:
    """Return the first missing file where most of the others are."""
    source = SOURCES[name][0]
    partial = [
        (len(missing), missing[0], option)
        for option in SOURCES[name]
        for base in bases(root)
        for folder in _candidates(base, option)
        if 0 < len(missing := _missing(folder, option)) < len(option.files)
    ]
    if not partial:
        return source, source.files[0]
    _, file, source = min(partial, key=lambda entry: entry[0])
    return source, file


def _missing(folder: Path, source: Source) -> list[str]:
    with raw_files.opening(folder):
        return [file for file in source.files if not (folder / file).is_file()]


def _candidates(base: Path, source: Source) -> Iterator[Path]:
    """Yield the base itself and its folders of the right name, with what lies in them.

    Our own cache, PyTorch Geometric (``Cora/raw``), OGB (``ogbn_arxiv``, ``arxiv``) and
    clones of the upstream repositories (bare files) are all of this form.
    """
    try:
        children = sorted(child for child in base.iterdir() if child.is_dir())
    except OSError:
        return  # not there, or not to be read
    own = [base] if source.telling or _normal(base.name) in source.aliases else []
    for top in (*own, *(c for c in children if _normal(c.name) in source.aliases)):
        yield from (top, top / "raw", top / "geom_gcn", top / "geom_gcn" / "raw")


def _normal(folder: str) -> str:
    return folder.lower().replace("-", "_")
