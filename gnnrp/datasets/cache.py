"""Find the files of a dataset below a few folders, or download them to the cache."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import platformdirs

from gnnrp.datasets import download, raw_files
from gnnrp.datasets.catalog import SOURCES, Source
from gnnrp.runtime import atomic_files, safe_text

VARIABLE = "GNNRP_DATA"

Root = str | os.PathLike[str] | None  # searched before VARIABLE and the cache
_MAX_FILES = 3  # named in a message


class MissingFilesError(FileNotFoundError):
    """Missing files, with the remedy."""

    message_limit = safe_text.LIMIT  # of commands; more if all paths are short


def cache() -> Path:
    """Return the folder of downloads, which need not exist."""
    return Path(platformdirs.user_cache_dir("gnnrp"))


def bases(root: Root) -> list[Path]:
    """Return the folders to search, in this order."""
    named = [root, os.environ.get(VARIABLE)]
    folders = [Path(base).expanduser() for base in named if base]
    for folder in folders:
        with raw_files.os_errors(folder):
            if folder.is_dir():
                next(folder.iterdir(), None)
    if root and not folders[0].exists():
        msg = f"the data folder {root} does not exist"
        raise FileNotFoundError(msg)
    if root and not folders[0].is_dir():
        msg = f"the data folder {root} is a file; name the folder that holds it"
        raise NotADirectoryError(msg)
    return [*folders, cache()]


def locate(name: str, root: Root) -> tuple[Source, Path] | None:
    """Return the first folder that holds all files of one of the sources."""
    complete = (place[:2] for place in _places(name, root) if not place[2])
    return next(complete, None)


def fetch(name: str, root: Root, *, progress: bool = False) -> tuple[Source, Path]:
    """Download the preferred source to the cache."""
    source = SOURCES[name][0]
    if not source.urls and not (source.archive and download.can_fetch_archives()):
        refuse(name, root)
    folder = cache() / source.folder
    if error := atomic_files.obstacle(folder):
        reason = f"; the cache {str(folder)!r} cannot be written ({error.strerror})"
        refuse(name, root, reason, error, to_cache=False)
    if source.archive and folder.exists() and any(folder.iterdir()):
        refuse(name, root, f"; delete {folder}, which is incomplete, and retry")
    url = str(source.archive)
    try:
        if source.archive:
            download.archive(url, folder, source.files, progress=progress)
        for file, url in zip(source.files, source.urls, strict=False):
            download.file(url, folder, file, progress=progress)
    except Exception as error:
        # Another process may have been faster.
        if not source.archive or _missing(folder, source):
            refuse(name, root, _failure(url, error), error)
    return source, folder


def refuse(
    name: str,
    root: Root,
    failure: str = "",
    cause: Exception | None = None,
    *,
    to_cache: bool = True,
) -> NoReturn:
    """Raise an error with the missing files, the searched folders and the remedy."""
    source, missing = _nearest(name, root)
    places = ", ".join(str(base) for base in bases(root))
    place = cache() / source.folder
    several = len(missing) > 1
    them, more = ("them", " and the other files likewise") if several else ("it", "")
    if source.archive:
        remedy, place, more = f"fetch {source.archive} and unpack it", cache(), ""
        if not download.can_fetch_archives():
            remedy = f"{download.INSTALL} to have it fetched, or {remedy}"
    elif source.urls:
        remedy = f"fetch {source.urls[source.files.index(missing[0])]} by hand"
    else:
        remedy = f"get {them}"
    named = ", ".join(missing[:_MAX_FILES])
    if len(missing) > _MAX_FILES:
        named += f" and {len(missing) - _MAX_FILES} more files"
    msg = (
        f"dataset {name!r} needs {named}, which {'were' if several else 'was'} not "
        f"found in {places}{failure}; {remedy} "
        f"{f'into {place}{more}, or' if to_cache else 'and'} pass the folder that "
        f"holds {them} as root (--data-dir) or in the environment variable {VARIABLE}"
    )
    error = MissingFilesError(msg)
    if all(safe_text.line(path, 100) == path for path in (places, str(place))):
        error.message_limit = 2 * safe_text.LIMIT
    raise error from cause


def _failure(url: str, error: BaseException) -> str:
    """Return the first cause in one line: the refused connection, not the last try."""
    while error.__context__ is not None:
        error = error.__context__
    reason = next(iter(str(error).splitlines()), repr(error))
    return f"; fetching {url} failed ({safe_text.line(reason, 150)})"


def _nearest(name: str, root: Root) -> tuple[Source, list[str]]:
    """Return the source with the fewest missing files, and these files."""
    partial = [
        (len(missing), SOURCES[name].index(source), missing)
        for source, _, missing in _places(name, root)
        if 0 < len(missing) < len(source.files)
    ]
    _, index, missing = min(partial, default=(0, 0, [*SOURCES[name][0].files]))
    return SOURCES[name][index], missing


def _places(name: str, root: Root) -> Iterator[tuple[Source, Path, list[str]]]:
    """Yield each source and folder of a dataset with the files that it lacks."""
    for base in bases(root):
        for source in SOURCES[name]:
            for folder in _candidates(base, source):
                yield source, folder, _missing(folder, source)


def _missing(folder: Path, source: Source) -> list[str]:
    with raw_files.os_errors(folder):
        return [file for file in source.files if not (folder / file).is_file()]


def _candidates(base: Path, source: Source) -> Iterator[Path]:
    """Yield the folders of our cache, PyTorch Geometric, OGB and original clones."""
    try:
        children = sorted(child for child in base.iterdir() if child.is_dir())
    except OSError:
        return
    tops = [child for child in children if _normal(child.name) in source.aliases]
    if source.unique_names or _normal(base.name) in source.aliases:
        tops.insert(0, base)
    for top in tops:
        yield from (top, top / "raw", top / "geom_gcn", top / "geom_gcn" / "raw")


def _normal(folder: str) -> str:
    return folder.lower().replace("-", "_")
