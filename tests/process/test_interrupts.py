"""A command that a signal stops ends in one sentence, whatever it was doing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import run_records

from gnnrp.runtime import interrupts

ROOT = Path(__file__).parents[2]
INTERRUPTS = int(os.environ.get("GNNRP_INTERRUPTS", "10"))  # a hundred: ten minutes
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
KEPT = r"; saved step [\d,]+ in run/checkpoints; resume by --resume"
RP = "rp --json --quiet --method iterate --num-steps 3000"
LINES = {
    "rp": f"{RP} --checkpoint-seconds 0 --folder run",
    "rp, alone": RP,
    "rp, figure": "rp --quiet --kernel none --power 10 --plot f.png",
    "ntk": "ntk --json --quiet --num-steps 400 --every 100 --num-graphs 2 "
    "--checkpoint-seconds 0 --folder run",
    "gntk": "gntk --json --quiet --depths 1 --num-steps 50",
    "partition": "partition --quiet --parts 2 --folder parts",
    "datasets": "datasets --json",
    "help": "rp --help",
}


def start(line, folder, code="from gnnrp import cli; cli.main()"):
    home = {"GNNRP_DATA": "", "XDG_CACHE_HOME": str(folder / "none")}
    home["MPLCONFIGDIR"] = mpl.get_cachedir()  # or it looks for all fonts each time
    return subprocess.Popen(
        [sys.executable, "-c", code, *line],
        cwd=folder,
        env=os.environ | home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


MOMENTS = """
import atexit, os, signal, sys

number, moment = int(sys.argv.pop(1)), sys.argv.pop(1)

def send():
    os.kill(os.getpid(), number)
    os.kill(os.getpid(), number)

class Importing:
    def find_spec(self, name, *_):
        if moment == f"import {name}":
            send()

class Dropped:
    def __del__(self):
        send()

def callback(*_, **__):
    import jax

    def called(x):
        send()
        return x

    jit = jax.jit(lambda x: jax.pure_callback(called, x, x))
    return jax.block_until_ready(jit(1.0))

from gnnrp import cli
from gnnrp.runtime import safe_text

escape = safe_text.escape
if moment == "print":
    safe_text.escape = lambda text: send() or escape(text)
if moment == "exit":
    atexit.register(send)
if moment in {"callback", "destructor"}:
    from gnnrp import datasets
    datasets.names = callback if moment == "callback" else Dropped
sys.meta_path.insert(0, Importing())
cli.main()
"""


@pytest.mark.parametrize("number", WORDS)
@pytest.mark.parametrize(
    "moment",
    [
        "import tyro",
        "import numpy",
        pytest.param("import jax", marks=pytest.mark.slow),
        pytest.param("import scipy.sparse", marks=pytest.mark.slow),
        pytest.param("callback", marks=pytest.mark.slow),
        pytest.param("destructor", marks=pytest.mark.slow),
        "print",
        pytest.param("exit", marks=pytest.mark.slow),
    ],
)
def test_two_signals_at_a_chosen_moment_end_a_command_in_one_sentence(
    moment, number, tmp_path
):
    line = ["datasets", "--json", "--quiet"]
    process = start([str(int(number)), moment, *line], tmp_path, MOMENTS)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert errors == f"gnnrp: {WORDS[number]}\n"
    if moment in {"print", "exit"}:
        assert len(json.loads(out)["datasets"]) == 24
    else:
        assert out == ""


def test_a_signal_that_was_ignored_stays_ignored(tmp_path):
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + MOMENTS
    line = [str(int(signal.SIGINT)), "import numpy", "datasets", "--json", "--quiet"]
    process = start(line, tmp_path, code)
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    assert len(json.loads(out)["datasets"]) == 24


@pytest.mark.parametrize("number", WORDS)
def test_a_signal_ends_a_table_of_the_paper_in_one_sentence(number, tmp_path):
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from experiments import runner
from experiments.paper import table4_homophilic as table
runner.main(table.Config, table.run, "table4_homophilic")
"""
    process = start(["--quick", "--output", "out"], tmp_path, code)
    wait_for_handlers(process)
    process.send_signal(number)
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, out) == (128 + number, "")
    assert errors == f"gnnrp: {WORDS[number]}\n"
    assert not list(tmp_path.glob("out/*.json"))


def test_ctrl_c_waits_for_the_end_of_the_outermost_block():
    reached = []

    def work():
        with interrupts.Delay():
            with interrupts.Delay():
                os.kill(os.getpid(), signal.SIGINT)
            reached.append("inner")
            assert interrupts.pending()
        reached.append("outer")

    usual = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["inner"]
    assert not interrupts.pending()
    assert usual == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))


def test_ctrl_c_during_an_error_is_not_lost():
    def work():
        with interrupts.Delay():
            os.kill(os.getpid(), signal.SIGINT)
            raise ValueError

    with pytest.raises(KeyboardInterrupt):
        work()


def test_a_handler_of_the_caller_is_left_alone():
    received = []
    usual = signal.signal(signal.SIGINT, lambda *_: received.append(1))
    try:
        with interrupts.Delay():
            os.kill(os.getpid(), signal.SIGINT)
            assert received == [1]
            assert not interrupts.pending()
    finally:
        signal.signal(signal.SIGINT, usual)


def wait_for_handlers(process):
    """Return when the command handles SIGTERM, which Python itself does not."""
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        caught = re.search(r"SigCgt:\s*(\w+)", status.read_text())
        if caught and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.001)


def comparable(out):
    """Return the results of a record, or a text without the seconds."""
    if out[:1] == "{":
        return run_records.results(json.loads(out))
    return re.sub(r"\d+\.\d s", "", out)


def check_stopped(process, number, out, errors, folder):
    """Check the status, the sentence, and the checkpoint that it names."""
    assert process.returncode == 128 + number, (process.returncode, errors)
    assert re.fullmatch(rf"gnnrp: {WORDS[number]}({KEPT})?\n", errors), errors
    if "saved step" in errors:
        kept = re.search(r"saved step ([\d,]+)", errors)[1].replace(",", "")
        assert (folder / "run" / "checkpoints" / kept).is_dir()
    assert not list(folder.glob("**/*.half")), "a half of a file"
    return out


class Lives:
    """Commands and the time that each takes when nothing stops it."""

    def __init__(self, folder):
        self.whole, self.span = {}, {}
        for name, line in LINES.items():
            (folder / name).mkdir()
            process = start(line.split(), folder / name)
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
    if (folder / "parts" / "shards.json").exists():  # whole: another run is refused
        shutil.rmtree(folder / "parts")
    process = start(line.split(), folder)
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
        print(f"{done}: {name} at {moment:.3f} by {numbers}", flush=True)
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
        out, errors = start(
            [*LINES[name].split(), "--resume"], folder.parent
        ).communicate()
        assert errors == ""
        assert comparable(out) == lives.whole[name]
