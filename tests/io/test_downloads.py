"""Downloads over a loopback server that fails in every way, in real processes."""

import hashlib
import http.server
import os
import re
import signal
import subprocess
import sys
import threading
import time

import miniatures
import pytest

FILE = "tolokers.npz"
NODES = 30_000  # the half of whose features is more than Python's buffer of a file
CODE = """
import os, sys
from gnnrp import datasets
from gnnrp.datasets import catalog, download

quiet, download.registry()["tolokers.npz"], *asked = sys.argv[1:]
(source,) = catalog.SOURCES["tolokers"]
for url, os.environ["XDG_CACHE_HOME"] in zip(asked[::2], asked[1::2]):
    catalog.SOURCES["tolokers"] = (source._replace(urls=(url,)),)
    download.TIMEOUT = 1 if "/hang/" in url else 30
    try:
        print(datasets.load("tolokers", progress=not quiet).num_nodes)
    except FileNotFoundError as error:
        print(error)
"""


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers in the way that the first folder of the address names."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        content, way = self.server.content, self.path.split("/")[1]
        if way.isdigit():
            self.send_error(int(way))
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        half = len(content) // 2
        if way == "half":
            content = content[:half]
        elif way == "other":
            content = content[::-1]
        elif way in {"hang", "wait"}:
            self.wfile.write(content[:half])
            self.wfile.flush()
            if way == "wait":
                self.server.reached.release()
            self.server.go_on.wait(20)
            content = content[half:]
        self.wfile.write(content)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    miniatures.heterophilous(folder, num_nodes=NODES)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        found.content = (folder / FILE).read_bytes()
        found.handle_error = lambda *_: None  # of readers that are killed
        found.reached, found.go_on = threading.Semaphore(0), threading.Event()
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.go_on.set()
        found.shutdown()
        thread.join()


def load(server, *ways, quiet=False):
    """Start a process that loads once for each way, address (or None) and cache."""
    asked = ["quiet" if quiet else "", hashlib.sha256(server.content).hexdigest()]
    for way, address, cache in ways:
        address = address or f"127.0.0.1:{server.server_port}"
        asked += [f"http://{address}/{way}/{FILE}", str(cache)]
    return subprocess.Popen(
        [sys.executable, "-c", CODE, *asked],
        env=os.environ | {"GNNRP_DATA": "", "NO_PROXY": "*"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def files_in(folder):
    return [path.name for path in folder.rglob("*") if path.is_file()]


WAYS = [
    ("404", None, "404 Client Error: Not Found"),
    ("500", None, "500 Server Error"),
    ("half", None, "IncompleteRead"),
    ("other", None, "SHA256 hash of .* does not match"),
    ("hang", None, "timed out"),
    ("x", "127.0.0.1:1", r"\[Errno \d+\] Connection refused"),
    ("x", "nowhere.invalid", r"\[Errno -\d\] "),  # in the words of the system
]


def test_a_failed_download_is_one_sentence_and_leaves_no_file(server, tmp_path):
    asked = [(way, at, tmp_path / str(i)) for i, (way, at, _) in enumerate(WAYS)]
    out, errors = load(server, *asked).communicate(timeout=60)
    assert "Traceback" not in errors
    lines = out.splitlines()
    for i, (line, (way, _, reason)) in enumerate(zip(lines, WAYS, strict=True)):
        assert re.search(rf"fetching http://.*/{way}/{FILE} failed \({reason}", line)
        for part in (f"needs {FILE}", f"{i}/gnnrp", "by hand into", "--data-dir"):
            assert part in line
        assert list((tmp_path / str(i) / "gnnrp").iterdir()) == []


@pytest.mark.parametrize("quiet", [True, False])
def test_a_download_is_told_unless_that_is_not_wanted(quiet, server, tmp_path):
    process = load(server, ("ok", None, tmp_path), quiet=quiet)
    out, errors = process.communicate(timeout=60)
    assert out == f"{NODES}\n"
    assert (errors == "") is quiet
    assert (f"/ok/{FILE}" in errors) is not quiet


def test_a_cache_that_cannot_be_written_is_told_before_anything_is_fetched(
    server, tmp_path
):
    (tmp_path / "file").write_text("")
    process = load(server, ("ok", None, tmp_path / "file" / "cache"))
    out, errors = process.communicate(timeout=60)
    assert (
        "cache/gnnrp/tolokers' cannot be written (Not a directory); fetch http" in out
    )
    assert "by hand and pass the folder that holds it as root" in out
    assert errors == ""


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGKILL])
def test_what_is_interrupted_is_not_taken_for_whole(server, tmp_path, asked):
    process = load(server, ("wait", None, tmp_path))
    assert server.reached.acquire(timeout=60)
    end = time.monotonic() + 60
    while not any(path.stat().st_size for path in tmp_path.rglob("tmp*")):
        assert time.monotonic() < end, "nothing of the half is on the disk"
        time.sleep(0.01)
    process.send_signal(asked)
    process.communicate(timeout=60)
    assert process.returncode in {-asked, 1}
    left = files_in(tmp_path)
    assert FILE not in left
    assert asked == signal.SIGKILL or left == []
    out, errors = load(server, ("ok", None, tmp_path)).communicate(timeout=60)
    assert out == f"{NODES}\n", errors
    assert files_in(tmp_path) == [FILE]


COMMAND = """
import sys
from gnnrp import cli
from gnnrp.datasets import catalog, download

url, download.registry()["tolokers.npz"] = sys.argv[1:3]
(source,) = catalog.SOURCES["tolokers"]
catalog.SOURCES["tolokers"] = (source._replace(urls=(url,)),)
sys.argv[1:] = sys.argv[3:]
cli.main()
"""


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_leaves_nothing_in_the_cache(server, tmp_path, asked):
    digest = hashlib.sha256(server.content).hexdigest()
    url = f"http://127.0.0.1:{server.server_port}/wait/{FILE}"
    flags = ["rp", "--dataset", "tolokers", "--json", "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, url, digest, *flags],
        env=os.environ
        | {"GNNRP_DATA": "", "NO_PROXY": "*", "XDG_CACHE_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.reached.acquire(timeout=60)
    process.send_signal(asked)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + asked
    assert errors in {"gnnrp: interrupted\n", "gnnrp: terminated\n"}
    assert out == ""
    assert list((tmp_path / "gnnrp" / "tolokers").iterdir()) == []


def test_a_pipe_in_the_place_of_a_file_is_refused(server, tmp_path):
    folder = tmp_path / "gnnrp" / "tolokers"
    folder.mkdir(parents=True)
    os.mkfifo(folder / FILE)
    out, errors = load(server, ("ok", None, tmp_path)).communicate(timeout=60)
    assert f"{FILE}' is not a regular file; remove it" in out
    assert len(out.splitlines()) == 1
    assert errors == ""
    assert [path.name for path in folder.iterdir()] == [FILE]


def test_two_processes_fill_the_same_cache_at_once(server, tmp_path):
    two = [load(server, ("wait", None, tmp_path)) for _ in range(2)]
    for _ in two:
        assert server.reached.acquire(timeout=60)  # both have begun
    server.go_on.set()
    try:
        for process in two:
            out, errors = process.communicate(timeout=60)
            assert out == f"{NODES}\n", errors
    finally:
        server.go_on.clear()
    assert files_in(tmp_path) == [FILE]
    (path,) = tmp_path.rglob(FILE)
    assert path.read_bytes() == server.content
