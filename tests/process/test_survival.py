"""What is killed, at any moment, goes on from its last checkpoint to the same bits."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import run_records
import survivor

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("GNNRP_KILLS", "5"))  # twenty take about three minutes
COMMAND = [sys.executable, survivor.__file__]


def start(folder):
    command = [*COMMAND, str(folder)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    return out.splitlines()


def kept(folder):
    """Return the numbers of the checkpoints in a folder that are whole."""
    return [int(p.name) for p in folder.glob("[0-9]*") if p.name.isdigit()]


@pytest.mark.slow
def test_kills_at_random_moments_lose_nothing_and_change_no_bit(tmp_path):
    began = time.perf_counter()
    whole = finish(start(tmp_path / "whole"))
    assert len(whole) > 50
    span = time.perf_counter() - began
    rng, killed = np.random.default_rng(0), tmp_path / "killed"
    last = {}
    for _ in range(KILLS):
        process = start(killed)
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0, span / KILLS))
        process.send_signal(signal.SIGKILL)
        out, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors
        for name, done in first_steps(out).items():
            # Training tells of a step before it takes it.
            assert done + (name == "training") > last.get(name, 0)
        last = {p.name: max(kept(p), default=0) for p in killed.iterdir() if p.is_dir()}
    finish(start(killed))
    for name in survivor.KINDS:
        expected = np.load(tmp_path / "whole" / f"{name}.npz")
        found = np.load(killed / f"{name}.npz")
        assert expected.files == found.files
        for key in expected.files:
            np.testing.assert_array_equal(found[key], expected[key])


def first_steps(out):
    """Return the first step that each run told of in a process."""
    first = {}
    for line in out.splitlines():
        name, _, done = line.partition(" ")
        if done.isdigit():
            first.setdefault(name, int(done))
    return first


def gnnrp(*flags, cwd):
    command = [sys.executable, "-m", "gnnrp.cli", *flags]
    return subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGKILL])
def test_a_command_goes_on_to_the_same_table(tmp_path, asked):
    flags = ["rp", "--json", "--quiet", "--method", "iterate", "--num-steps", "3000"]
    folder = ["--folder", "run", "--checkpoint-seconds", "0"]
    whole, errors = gnnrp(*flags, cwd=tmp_path).communicate()
    assert errors == ""
    process = gnnrp(*flags, *folder, cwd=tmp_path)
    while not kept(tmp_path / "run" / "checkpoints"):
        time.sleep(0.05)
    process.send_signal(asked)
    out, errors = process.communicate()
    assert out == ""
    if asked == signal.SIGINT:
        assert process.returncode == 130
        assert errors.startswith("gnnrp: interrupted; saved step ")
        assert errors.endswith(" in run/checkpoints; resume by --resume\n")
    _, errors = gnnrp(*flags, *folder, cwd=tmp_path).communicate()
    assert "'run' holds a run; resume it by --resume, or choose another" in errors
    _, errors = gnnrp(
        *flags, *folder, "--resume", "--step-size", "2", cwd=tmp_path
    ).communicate()
    assert "of another run: step_size was 20, is 2.0" in errors
    reached = max(kept(tmp_path / "run" / "checkpoints"))
    process = gnnrp(*flags, *folder, "--resume", cwd=tmp_path)
    again, errors = process.communicate()
    assert errors == ""
    whole, again = json.loads(whole), json.loads(again)
    assert again["resumed_from"]["run_id"] != again["run_id"]
    assert again["resumed_from"]["step"] == reached
    assert run_records.results(again) == run_records.results(whole)


def test_resuming_needs_a_folder(tmp_path):
    process = gnnrp("rp", "--resume", cwd=tmp_path)
    _, errors = process.communicate()
    assert process.returncode == 2
    assert errors == "gnnrp: --resume needs --folder, the folder of the run\n"
