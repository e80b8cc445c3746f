"""What cannot be written or read is told in one sentence, and early."""

import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import miniatures
import numpy as np
import pytest

from gnnrp import cli, datasets
from gnnrp.datasets import sbm
from gnnrp.distributed import shards
from gnnrp.runtime import atomic_files, checkpoints
from tests.conftest import lacking

COMMANDS = (
    "rp --folder {}",
    "ntk --folder {}",
    "partition --parts 2 --folder {}",
    "rp --plot {}/figure.png",
    "gntk --plot {}/figure.png",
    "ntk --plot {}/figure.png",
)


def place(tmp_path, kind):
    """Return a folder in which nothing can be written, not even by root."""
    (tmp_path / "file").write_text("kept")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "at all")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    return {"proc": Path("/proc/gnnrp")}.get(kind, tmp_path / kind)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["file", "file/below", "dangling", "loop", "proc"])
def test_where_nothing_can_be_written_is_told_before_anything_is_loaded(
    command, kind, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(datasets, "load", lambda *_, **__: pytest.fail("loaded"))
    folder = place(tmp_path, kind)
    before = sorted(tmp_path.iterdir())
    assert cli.main(command.format(folder).split()) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith("gnnrp: ")
    assert str(folder) in line
    remedies = ("; choose another place", "; set another --plot")
    assert sum(line.count(remedy) for remedy in remedies) == 1  # one sentence
    assert printed.out == ""
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("folder.png", "it is a folder"), ("x.pdf", "its name must end in .png")],
)
def test_a_figure_needs_the_name_of_a_picture(name, reason, tmp_path, capsys):
    (tmp_path / "folder.png").mkdir()
    assert cli.main(["rp", "--plot", str(tmp_path / name)]) == 2
    assert f"{name}': {reason}; set another --plot" in capsys.readouterr().err


def test_trying_a_folder_leaves_nothing_and_makes_nothing(tmp_path):
    atomic_files.try_folder(tmp_path)
    atomic_files.try_folder(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())


def test_names_as_long_as_they_can_be_are_written(tmp_path):
    path = tmp_path / ("x" * 255)
    atomic_files.write(path, b"whole")
    assert path.read_bytes() == b"whole"
    with pytest.raises(OSError, match=r"cannot be written .*name too long"):
        atomic_files.write(tmp_path / ("x" * 256), b"")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(errno.ENOSPC, "No room")])
def test_what_is_not_written_to_its_end_is_not_there(stop, tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    atomic_files.write(path, b"old")
    monkeypatch.setattr("pathlib.Path.replace", raising(stop))
    with pytest.raises((KeyboardInterrupt, OSError)) as caught:
        atomic_files.write(path, b"new")
    if isinstance(stop, OSError):
        told = (
            f"{str(path)!r} cannot be written (No room); make room, or choose another"
        )
        assert str(caught.value).startswith(told)
        assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def raising(error):
    def stop(*_, **__):
        raise error

    return stop


def test_what_a_kill_leaves_is_known_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr("pathlib.Path.replace", raising(KeyboardInterrupt))
    monkeypatch.setattr("pathlib.Path.unlink", lambda *_, **__: None)
    with pytest.raises(KeyboardInterrupt):
        atomic_files.write(tmp_path / "record.json", b"whole")
    (left,) = tmp_path.iterdir()
    assert atomic_files.is_half(left.name)
    for name in ("record.json", ".record.json", "0.half", f"{left.name}.npz"):
        assert not atomic_files.is_half(name)


@pytest.mark.skipif(os.name != "posix", reason="permissions are of POSIX")
def test_a_file_has_the_permissions_that_the_user_wants(tmp_path, monkeypatch):
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:  # other threads would have it, too
            patch.setattr("os.umask", lambda _: pytest.fail("changed"))
            atomic_files.write(tmp_path / "x", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


# A disk that fills up


LEAVE = """
def taken():
    disk = os.statvfs(".")
    return disk.f_frsize * (disk.f_blocks - disk.f_bfree)

def leave(room):
    disk = os.statvfs(".")
    with open("ballast", "wb") as file:
        file.write(bytes(disk.f_frsize * disk.f_bfree - room))
"""


@pytest.fixture
def on_small_disk(tmp_path):
    """Run code on a disk of its own, and list what is left there."""
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run(probe, check=False).returncode:
        lacking("no file system of our own may be mounted")

    def run(code):
        disk = tmp_path / "disk"
        disk.mkdir()
        inside = f"import os, sys\nos.chdir({str(disk)!r})\n{LEAVE}\n{code}\n"
        inside += "print('left', sorted(os.listdir()), file=sys.stderr)"
        script = tmp_path / "script.py"
        script.write_text(inside)
        line = f"mount -t tmpfs -o size=64m none {disk} && {sys.executable} {script}"
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", line],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_parts_that_do_not_fit_leave_no_part(on_small_disk):
    code = (
        "import shutil\nfrom gnnrp import cli\n"
        "flags = '--parts 4 --folder parts --quiet'.split()\n"
        "assert cli.main(['partition', *flags]) == 0\n"
        "size = taken()\nshutil.rmtree('parts')\nleave(size // 2)\n"
        "assert cli.main(['partition', *flags]) == 2\nos.chdir('parts')"
    )
    told, left = on_small_disk(code).stderr.splitlines()
    assert told.startswith("gnnrp: 'parts/part-")
    assert "part-0" not in told
    assert "cannot be written (No space left on device); make room, or" in told
    assert left == "left []"


@pytest.mark.slow
def test_a_figure_that_does_not_fit_costs_no_table(on_small_disk):
    code = "from gnnrp import cli\nleave(os.statvfs('.').f_frsize)\n"
    code += "assert cli.main('rp --quiet --num-steps 5'.split()) == 2"
    done = on_small_disk(code)
    remark, told, left = done.stderr.splitlines()
    assert "all nodes are predicted to be of one class" in remark
    assert told.startswith(
        "gnnrp: 'rp-sbm.png' cannot be written (No space left on dev"
    )
    assert left == "left ['ballast']"
    assert "label propagation" in done.stdout


def test_a_checkpoint_that_does_not_fit_leaves_the_last_one_in_use(on_small_disk):
    code = (
        "import numpy as np\nfrom pathlib import Path\n"
        "from gnnrp.runtime import checkpoints\n"
        "kept = np.random.default_rng(0).random(4000)\n"
        "state = checkpoints.bind(1, kept, {})\n"
        "checkpoints.save(Path('run'), 1, state, {})\n"
        "leave(taken() // 2)\n"
        "try:\n    checkpoints.save(Path('run'), 2, state, {})\n"
        "except OSError as error:\n    print(error)\n"
        "keeper = checkpoints.Keeper(Path('run'), {})\n"
        "assert (keeper.restore(lambda _: np.zeros(4000)) == kept).all()\n"
        "os.chdir('run')"
    )
    done = on_small_disk(code)
    assert done.stdout.startswith("the checkpoint run/2 ")
    reason = "cannot be written (No space left on device); make room, and resume"
    assert reason in done.stdout
    assert done.stderr == "left ['1']\n"


@pytest.mark.slow
def test_a_disk_that_fills_during_a_run_is_one_sentence_wherever(on_small_disk):
    """Room is left for none, one or two checkpoints, in part or whole."""
    code = (
        "import contextlib, io, pathlib, shutil, subprocess\n"
        "flags = '-m gnnrp.cli rp --json --quiet --method iterate --num-steps 300 '\n"
        "flags += '--checkpoint-seconds 0 --folder run'\n"
        "for blocks in (1, 8, 20, 50, 80, 110):\n"
        "    shutil.rmtree('run', ignore_errors=True)\n"
        "    pathlib.Path('ballast').unlink(missing_ok=True)\n"
        "    leave(blocks * os.statvfs('.').f_frsize)\n"
        "    done = subprocess.run([sys.executable, *flags.split()], "
        "capture_output=True, text=True)\n"
        "    assert done.returncode == 2, done\n"
        "    (line,) = done.stderr.splitlines()\n"
        "    assert 'cannot be written (No space left on device)' in line, line\n"
        "    assert done.stdout == ''\n"
        "    whole = [p for p in pathlib.Path('run/checkpoints').iterdir() "
        "if p.name.isdigit()]\n"
        "    print(blocks, len(whole), 'checkpoints')\n"
        "pathlib.Path('ballast').unlink()\n"
        "done = subprocess.run([sys.executable, *flags.split(), '--resume'], "
        "capture_output=True, text=True)\n"
        "assert done.returncode == 0, done\n"
    )
    done = on_small_disk(code)
    assert "1 0 checkpoints" in done.stdout
    assert re.search(r"110 [12] checkpoints", done.stdout)


# What may not be read


@pytest.fixture
def unprivileged():
    """Yield a folder of a user whom permissions bind, as they do not bind root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    root = os.geteuid() == 0
    yield folder, (lambda: os.seteuid(65534)) if root else (lambda: None)
    if root:
        os.seteuid(0)
    for path in folder.rglob("*"):
        path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions are of POSIX")
@pytest.mark.parametrize("locked", [".", "tolokers", "tolokers/tolokers.npz"])
@pytest.mark.parametrize("by", ["root", "GNNRP_DATA"])
def test_what_may_not_be_read_is_named_with_the_remedy(
    locked, by, unprivileged, monkeypatch
):
    folder, drop = unprivileged
    data = folder / "data"
    miniatures.heterophilous(data / "tolokers")
    monkeypatch.setenv("GNNRP_DATA", str(data))
    root = data if by == "root" else None
    datasets.load("tolokers", root, download=False)
    (data / locked).chmod(0)
    drop()
    with pytest.raises(PermissionError, match="cannot be read") as caught:
        datasets.load("tolokers", root, download=False)
    path = data / locked if locked != "." else data
    assert str(caught.value) == (
        f"{path} cannot be read (Permission denied); make it readable, or pass another "
        "folder as root (--data-dir)"
    )


@pytest.mark.parametrize("kind", ["folder", "dangling", "loop"])
def test_what_is_no_file_is_not_taken_for_one(kind, tmp_path, monkeypatch):
    monkeypatch.delenv("GNNRP_DATA", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _: str(tmp_path / "no"))
    miniatures.planetoid(tmp_path / "cora")
    path = tmp_path / "cora" / "ind.cora.ally"
    path.unlink()
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path if kind == "loop" else tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"'cora' needs ind\.cora\.ally, which"):
        datasets.load("cora", tmp_path, download=False)


def test_a_data_folder_that_is_a_file_is_told_so(tmp_path):
    (tmp_path / "cora.zip").write_text("")
    with pytest.raises(
        NotADirectoryError, match=r"cora\.zip is a file; name the folder"
    ):
        datasets.load("cora", tmp_path / "cora.zip")


def test_parts_and_checkpoints_that_are_no_folders_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "absent"):
        with pytest.raises(ValueError, match="holds no parts of a graph"):
            shards.contents(folder)
    with pytest.raises(NotADirectoryError, match="file' cannot be written"):
        checkpoints.Keeper(tmp_path / "file", {})
    with pytest.raises(NotADirectoryError, match="file' cannot be written"):
        shards.write(tmp_path / "file", sbm.generate(0), 2)


def test_a_sealed_folder_is_refused_once_one_of_its_files_changes(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x").write_bytes(np.arange(3).tobytes())
    with pytest.raises(atomic_files.DamagedError, match="it has no manifest"):
        atomic_files.unseal(tmp_path)
    atomic_files.seal(tmp_path, step=3)
    assert atomic_files.unseal(tmp_path, step=3)["step"] == 3
    with pytest.raises(
        atomic_files.DamagedError, match="is not the one that was written"
    ):
        atomic_files.unseal(tmp_path, step=4)
    (tmp_path / "deep" / "x").write_bytes(np.arange(1, 4).tobytes())
    with pytest.raises(
        atomic_files.DamagedError, match="'deep/x' is not the file that"
    ):
        atomic_files.unseal(tmp_path)
    (tmp_path / "deep" / "x").unlink()
    with pytest.raises(
        atomic_files.DamagedError, match="'deep/x' is missing, new or of"
    ):
        atomic_files.unseal(tmp_path)
