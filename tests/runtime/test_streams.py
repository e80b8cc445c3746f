"""Streams that are closed, full or not in UTF-8 do not end a command in a traceback."""

import os
import subprocess
import sys

import matplotlib as mpl
import pytest

RP = "rp --num-steps 5 --kernel none --quiet --json"
EVERY = (
    RP.replace("--json", "--plot f.png"),
    "gntk --depths 1 --num-steps 5 --quiet --plot f.png",
    "ntk --num-steps 2 --every 2 --num-graphs 2 --quiet --plot f.png",
    "partition --parts 2 --folder parts --quiet",
    "datasets --quiet",
)
every = pytest.mark.parametrize(
    "command",
    [EVERY[-1], *(pytest.param(x, marks=pytest.mark.slow) for x in EVERY[:-1])],
)
linux = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")


def shell(line, cwd, **environment):
    """Run a line in which GNNRP stands for the command."""
    line = line.replace("GNNRP", f"{sys.executable} -m gnnrp.cli")
    home = {"XDG_CACHE_HOME": str(cwd / "none"), "GNNRP_DATA": ""}
    home["MPLCONFIGDIR"] = mpl.get_cachedir()  # or it looks for all fonts each time
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=cwd,
        env=os.environ | home | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@every
def test_closed_input_and_errors_change_nothing(command, tmp_path):
    done = shell(f"GNNRP {command} <&- 2>&-", tmp_path)
    assert done.returncode == 0
    assert "sbm" in done.stdout
    assert done.stderr == ""


@every
def test_closed_output_is_refused_before_anything_is_done(command, tmp_path):
    done = shell(f"GNNRP {command} >&-", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("gnnrp: standard output is closed; send it to")
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@linux
@every
def test_full_output_is_told_in_one_sentence(command, tmp_path):
    done = shell(f"GNNRP {command} >/dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("gnnrp: standard output cannot be written (No space")
    assert len(done.stderr.splitlines()) == 1


@linux
@pytest.mark.parametrize("flags", ["--version", "rp --help"])
def test_full_output_of_help_is_told_too(flags, tmp_path):
    done = shell(f"GNNRP {flags} >/dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("gnnrp: standard output cannot be written (No space")
    assert len(done.stderr.splitlines()) == 1


@linux
@pytest.mark.slow
@pytest.mark.parametrize("errors", ["2>/dev/full", "2> >(exec <&-)"])
def test_progress_that_nobody_can_read_does_not_end_a_run(errors, tmp_path):
    code = "from gnnrp import cli\nfrom gnnrp.runtime import progress\n"
    code += "progress.FIRST = progress.BETWEEN = 0\n"
    code += f"raise SystemExit(cli.main({RP.replace('--quiet', '').split()}))"
    done = shell(
        f"{sys.executable} -c '{code.replace(chr(39), chr(34))}' {errors}", tmp_path
    )
    assert done.returncode == 0
    assert '"test_mean"' in done.stdout


@every
def test_an_early_reader_leaves_no_complaint_and_gets_its_figure(command, tmp_path):
    done = shell(f"GNNRP {command} | head -n 1", tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
    if "--plot" in command:
        assert (tmp_path / "f.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("command", EVERY)
def test_where_there_is_no_utf_8_letters_are_spelled(command, tmp_path):
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = shell(f"GNNRP {command}", tmp_path, **plain)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "?" not in done.stdout
    if command.startswith("rp"):
        assert "\neta=" in done.stdout
        assert " alpha=1" in done.stdout


def test_help_is_spelled_too(tmp_path):
    done = shell("GNNRP gntk --help", tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "phi between layers" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", EVERY)
def test_neither_home_nor_display_nor_terminal_is_needed(command, tmp_path):
    unset = "env -u HOME -u XDG_CACHE_HOME -u DISPLAY -u MPLBACKEND -u TERM "
    done = shell(f"{unset} GNNRP {command} </dev/null", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_other_commands_output_and_ours_do_not_meet_in_a_file(tmp_path):
    """With standard error closed, a file opened later must not get its number."""
    code = "import os\nfrom gnnrp.runtime import streams\nstreams.prepare()\n"
    code += "file = open('record', 'w')\nos.write(2, b'a library speaks')\n"
    code += "file.write(str(file.fileno() > 2))"
    done = shell(f'{sys.executable} -c "{code}" <&- 2>&-', tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "record").read_text() == "True"
