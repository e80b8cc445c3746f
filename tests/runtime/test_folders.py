"""A folder serves one run at a time, and temporary files do not stay."""

import contextlib
import errno
import os
import subprocess
import sys
import threading

import pytest

from gnnrp.runtime import checkpoints, folders

HOLD = """
import sys
from pathlib import Path
from gnnrp.runtime import folders
with getattr(folders, sys.argv[1])(Path(sys.argv[2])) as made:
    if made:
        (made / "half").write_text("of a file")
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holding():
    """Start a process that is inside a block of ``runtime.folders``."""
    started = []

    def start(what, folder):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, what, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_lock_ends_with_its_process(end, holding, tmp_path):
    process = holding("lock", tmp_path)
    with (
        pytest.raises(BlockingIOError, match="is in use by another run; wait until"),
        folders.lock(tmp_path),
    ):
        pytest.fail("two at once")
    if end == "kill":
        process.kill()
    process.communicate()
    with folders.lock(tmp_path):
        pass


def test_two_runs_of_one_process_do_not_share_a_folder(tmp_path):
    refused = []

    def second():
        try:
            with checkpoints.Keeper(tmp_path, {}):
                pass
        except OSError as error:
            refused.append(str(error))

    with checkpoints.Keeper(tmp_path, {}):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(refused) == 1
    assert "is in use by another run" in refused[0]
    second()
    assert len(refused) == 1


def test_a_file_system_without_locks_is_named_in_a_warning(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(folders.fcntl, "flock", flock)
    with (
        pytest.warns(UserWarning, match=r"cannot be locked \(No locks available\)"),
        folders.lock(tmp_path),
    ):
        pass


def test_a_temporary_folder_is_removed_after_its_block(tmp_path):
    new = tmp_path / "new"
    with contextlib.suppress(RuntimeError), folders.scratch(new) as folder:
        (folder / "file").write_text("")
        assert [path.name for path in new.iterdir()] == [folder.name]
        raise RuntimeError
    assert list(new.iterdir()) == []


def test_what_a_kill_leaves_is_removed_and_what_is_in_use_is_not(holding, tmp_path):
    killed, running = holding("scratch", tmp_path), holding("scratch", tmp_path)
    killed.kill()
    killed.communicate()
    assert len(list(tmp_path.iterdir())) == 2
    with folders.scratch(tmp_path) as own:
        others = [path for path in tmp_path.iterdir() if path != own]
        assert len(others) == 1
        assert (others[0] / "half").exists()
    running.communicate()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_is_found_before_anything_is_written(code, tmp_path, monkeypatch):
    def allocate(_, start, size):
        assert (start, size) == (0, 1000)
        raise OSError(code, "No room")

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    with pytest.raises(OSError, match="No room"):
        folders.reserve(tmp_path, 1000)
    assert list(tmp_path.iterdir()) == []


def test_a_limit_on_one_file_is_not_taken_for_a_full_disk(tmp_path, monkeypatch):
    def allocate(*_):
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    folders.reserve(tmp_path, 1000)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_only_a_regular_file_is_replaced(kind, tmp_path):
    path = tmp_path / "path"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/full")
    with pytest.raises(OSError, match="is not a regular file; remove it"):
        folders.check_regular(path)
    folders.check_regular(tmp_path / "new")
