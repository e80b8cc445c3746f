"""Downloads of single files, by pooch, and of OGB's archives, by the ogb package.

Only ``ogb.utils.url`` of ogb is used, which does not import torch. The dataset classes
of ogb would prompt on the terminal, and store a second copy of the graph that torch 2.6
or newer refuses to read.
"""

import contextlib
import functools
import importlib.resources
import importlib.util
import io
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gnnrp.runtime import folders, safe_text

INSTALL = "pip install 'gnnrp[ogb]'"
TIMEOUT = 60.0  # seconds without a byte


@functools.cache
def registry() -> dict[str, str]:
    """Return the sha256 of each file that can be downloaded."""
    text = importlib.resources.files("gnnrp.datasets").joinpath("registry.txt")
    lines = text.read_text().splitlines()
    return dict(line.split() for line in lines if not line.startswith("#"))  # pyright: ignore


def file(url: str, folder: Path, name: str, *, progress: bool) -> None:
    """Download a file with the sha256 of the registry."""
    import pooch  # slow, and rarely needed

    folders.check_regular(folder / name)
    if progress:
        print(safe_text.line(f"fetching {url} to {folder / name}"), file=sys.stderr)
    # Without a timeout, pooch 1.8.0 waits forever. Any, since the annotations of pooch
    # are inconsistent.
    downloader: Any = pooch.HTTPDownloader(timeout=TIMEOUT)
    try:
        with folders.scratch(folder) as part, safe_text.silence(pooch.get_logger()):
            known_hash = f"sha256:{registry()[name]}"
            pooch.retrieve(
                url, known_hash, fname=name, path=part, downloader=downloader
            )
            (part / name).replace(folder / name)
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def can_fetch_archives() -> bool:
    """Return whether the ogb package is installed."""
    return importlib.util.find_spec("ogb") is not None


def archive(url: str, target: Path, files: tuple[str, ...], *, progress: bool) -> None:
    """Download and unpack an archive of OGB; ``target`` is complete or not created."""
    from ogb.utils import url as ogb_url  # pyright: ignore[reportMissingImports]

    target.parent.mkdir(parents=True, exist_ok=True)
    with folders.scratch(target.parent) as folder:
        path = _download(ogb_url, url, str(folder), progress=progress)
        ogb_url.extract_zip(str(path), str(folder), log=False)  # it checks every CRC
        unpacked = Path(folder, Path(url).stem)
        for name in files:
            if not (unpacked / name).is_file():
                msg = f"the archive has no {unpacked.name}/{name}"
                raise FileNotFoundError(msg)
        unpacked.rename(target)


def _download(ogb_url: Any, url: str, folder: str, *, progress: bool) -> Path:
    """Return the archive, of the size that the server states."""
    bar = sys.stderr if progress and sys.stderr.isatty() else io.StringIO()
    with _timeout():
        size = _size(url)
        if progress:  # in place of ogb's prompt
            print(f"fetching {url}, {size / 1e9:.2f} GB", file=sys.stderr)
        try:
            with contextlib.redirect_stderr(bar):
                path = Path(ogb_url.download_url(url, folder, log=False))
        except RuntimeError as error:
            raise error.__context__ or error from None
    if (received := path.stat().st_size) != size:
        msg = f"the connection broke off after {received} of {size} bytes"
        raise ConnectionError(msg)
    return path


def _size(url: str) -> int:
    """Return the size of a download in bytes."""
    try:
        with urllib.request.urlopen(url) as reply:
            return int(reply.headers["Content-Length"] or 0)
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        raise


@contextlib.contextmanager
def _timeout() -> Iterator[None]:
    """Set a timeout for ogb, which sets none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
