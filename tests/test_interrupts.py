"""A command that a signal stops ends in one sentence, whatever it was doing."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

INTERRUPTS = int(os.environ.get("GNNRP_INTERRUPTS", "10"))  # a hundred: ten minutes
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
KEPT = r"; kept at [\d,]+ in run/checkpoints; go on by --resume"
RP = "rp --json --quiet --method iterate --num-steps 3000"
LINES = {
    "rp": f"{RP} --checkpoint-seconds 0 --folder run",
    "rp, alone": RP,
    "rp, figure": "rp --quiet --num-steps 5 --plot f.png",
    "ntk": "ntk --json --quiet --num-steps 400 --every 100 --num-graphs 2 "
    "--checkpoint-seconds 0 --folder run",
    "gntk": "gntk --json --quiet --depths 1 --num-steps 50",
    "partition": "partition --quiet --parts 2 --folder parts",
    "datasets": "datasets --json",
    "help": "rp --help",
}


def start(line, folder, code="from gnnrp import cli; cli.run()"):
    home = {"GNNRP_DATA": "", "XDG_CACHE_HOME": str(folder / "none")}
    home["MPLCONFIGDIR"] = mpl.get_cachedir()  # or it looks for all fonts each time
    return subprocess.Popen(
        [sys.executable, "-c", code, *line.split()],
        cwd=folder,
        env=os.environ | home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_handlers(process):
    """Return when the command handles SIGTERM, which Python itself does not."""
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        caught = re.search(r"SigCgt:\s*(\w+)", status.read_text())
        if caught and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.001)


def comparable(out):
    """Return the numbers of a record, or a text, without the seconds."""
    return without_seconds(json.loads(out)) if out[:1] == "{" else without_seconds(out)


def without_seconds(found):
    if isinstance(found, str):
        return re.sub(r"\d+\.\d s", "", found)
    if isinstance(found, list):
        return [without_seconds(each) for each in found]
    if not isinstance(found, dict):
        return found
    changing = {"seconds", "peak_memory_bytes", "command"}
    return {k: without_seconds(v) for k, v in found.items() if k not in changing}


def check_stopped(process, number, out, errors, folder):
    """Check the status, the sentence, and the checkpoint that it names."""
    assert process.returncode == 128 + number, (process.returncode, errors)
    assert re.fullmatch(rf"gnnrp: {WORDS[number]}({KEPT})?\n", errors), errors
    if "kept at" in errors:
        kept = re.search(r"kept at ([\d,]+)", errors)[1].replace(",", "")
        assert (folder / "run" / "checkpoints" / kept).is_dir()
    assert not list(folder.glob("**/*.half")), "a half of a file"
    return out


class Lives:
    """Commands and the time that each takes when nothing stops it."""

    def __init__(self, folder):
        self.whole, self.span = {}, {}
        for name, line in LINES.items():
            (folder / name).mkdir()
            process = start(line, folder / name)
            wait_for_handlers(process)
            began = time.monotonic()
            out, errors = process.communicate()
            assert process.returncode == 0, errors
            assert errors == ""
            self.whole[name] = comparable(out)
            self.span[name] = time.monotonic() - began


def interrupt(name, folder, moment, numbers):
    """Send signals to a command at a moment; return it, its output, and its errors."""
    line = LINES[name] + (" --resume" if (folder / "run").exists() else "")
    process = start(line, folder)
    wait_for_handlers(process)
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        for number in numbers:
            process.send_signal(number)
    return process, *process.communicate(timeout=120)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_signal_at_any_moment_ends_a_command_in_one_sentence(tmp_path):
    lives, rng, done, tried = Lives(tmp_path), np.random.default_rng(0), 0, 0
    names = list(LINES)
    while done < INTERRUPTS:
        name = names[tried % len(names)]
        folder = tmp_path / f"{name} {tried // 40}"
        folder.mkdir(exist_ok=True)
        number = list(WORDS)[rng.integers(2)]
        moment = rng.choice(
            [0, rng.uniform(0, 1), rng.uniform(0.9, 1)], p=[0.1, 0.6, 0.3]
        )
        numbers = [number] * rng.integers(1, 3)
        tried += 1
        process, out, errors = interrupt(
            name, folder, moment * lives.span[name], numbers
        )
        if process.returncode == 0:  # it was faster
            assert errors == ""
        else:
            check_stopped(process, number, out, errors, folder)
            done += 1
        if out:
            assert comparable(out) == lives.whole[name]
        if process.returncode == 0 and "run" in LINES[name]:
            (folder / "run").rename(tmp_path / f"finished {tried}")
    for folder in tmp_path.glob("* [0-9]*/run"):
        name = folder.parent.name.rsplit(" ", 1)[0]
        out, errors = start(f"{LINES[name]} --resume", folder.parent).communicate()
        assert errors == ""
        assert comparable(out) == lives.whole[name]
