"""OGB's archives, fetched by the ogb package: a whole folder, or nothing.

Of ogb, ``ogb.utils.url`` alone is used, which does not import torch. Its classes of
data sets would ask on the terminal, and leave a second copy of the graph, which torch
2.6 or newer refuses to read.
"""

import contextlib
import importlib.util
import io
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gnnrp.runtime import folders

INSTALL = "pip install 'gnnrp[ogb]'"
TIMEOUT = 60.0  # seconds without a byte


def installed() -> bool:
    """Tell whether the ogb package is there."""
    return importlib.util.find_spec("ogb") is not None


def fetch(url: str, target: Path, files: tuple[str, ...], *, progress: bool) -> None:
    """Fetch an archive and unpack it, so that ``target`` is whole or not there at all.

    OGB publishes no checksums; the archive's own, a CRC of each file, are held.

    Args:
        url: of a zip file with one folder, which has the name of the zip file.
        target: what that folder becomes; absent or empty.
        files: that it must hold.
        progress: tell the size on standard error, and show ogb's bar on a terminal.

    Raises:
        OSError: no connection, or no room.
        FileNotFoundError: the archive lacks a file.
    """
    from ogb.utils import url as of_ogb  # pyright: ignore[reportMissingImports]

    target.parent.mkdir(parents=True, exist_ok=True)
    with folders.scratch(target.parent) as folder:
        archive = _download(of_ogb, url, str(folder), progress=progress)
        of_ogb.extract_zip(str(archive), str(folder), log=False)
        unpacked = Path(folder, Path(url).stem)
        for file in files:
            if not (unpacked / file).is_file():
                msg = f"the archive has no {unpacked.name}/{file}"
                raise FileNotFoundError(msg)
        unpacked.rename(target)


def _download(of_ogb: Any, url: str, folder: str, *, progress: bool) -> Path:
    """Return the archive, as long as the server says that it is.

    Raises:
        OSError: no connection.
        ConnectionError: it broke off.
        BaseException: what ogb says was an interruption, whether it was one or not.
    """
    bar_goes_to = sys.stderr if progress and sys.stderr.isatty() else io.StringIO()
    with _timeout():
        size = _size(url)
        if progress:  # ogb would ask on the terminal whether it is not too much
            print(f"fetching {url}, {size / 1e9:.2f} GB", file=sys.stderr)
        try:
            with contextlib.redirect_stderr(bar_goes_to):
                archive = Path(of_ogb.download_url(url, folder, log=False))
        except RuntimeError as error:
            raise error.__context__ or error from None
    if (found := archive.stat().st_size) != size:
        msg = f"the connection broke off after {found} of {size} bytes"
        raise ConnectionError(msg)
    return archive


def _size(url: str) -> int:
    """Return the bytes that the server says it will send.

    Raises:
        HTTPError: it sends nothing.
    """
    try:
        with urllib.request.urlopen(url) as reply:
            return int(reply.headers["Content-Length"] or 0)
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        raise


@contextlib.contextmanager
def _timeout() -> Iterator[None]:
    """Let no server be silent for ever: ogb sets no limit."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
