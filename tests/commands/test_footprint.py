"""Commands write where they are told to, and nowhere else."""

import json
import os
import subprocess
import sys

import pytest

CODE = """
import json, os, sys

written = set()


def hook(event, args):
    if event == "open" and not isinstance(args[0], int):
        if args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            written.add(os.path.abspath(os.fsdecode(args[0])))
    elif event in {"os.rename", "os.link", "os.symlink"}:
        written.update(os.path.abspath(os.fsdecode(path)) for path in args[:2])
    elif event in {"os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod"}:
        written.add(os.path.abspath(os.fsdecode(args[0])))


sys.addaudithook(hook)
from gnnrp import cli

for line in json.loads(sys.argv[1]):
    assert cli.main(line) == 0, line
print(json.dumps(sorted(written)))
"""
FIGURE = "--plot {out}/figure.png --quiet"
COMMANDS = (
    "datasets --quiet --json",
    f"rp --num-steps 5 --method iterate --folder {{out}}/rp {FIGURE}",
    f"gntk --depths 1 --num-steps 5 {FIGURE}",
    f"ntk --num-steps 4 --every 2 --num-graphs 2 --folder {{out}}/ntk {FIGURE}",
    "fit --example {out}/tables --quiet",
    "fit --edges {out}/tables/edges.csv --labels {out}/tables/labels.csv "
    f"--search-seconds 1 --out {{out}}/predictions.csv {FIGURE}",
    "partition --parts 1 --folder {out}/parts --quiet",
    "rp --shards {out}/parts --num-steps 5 --folder {out}/shared --quiet",
)


def below(folder):
    return [path for path in folder.rglob("*") if not path.is_dir()]


@pytest.mark.slow
def test_no_command_writes_outside_of_its_folders(tmp_path):
    """What Python opens is heard; what libraries open by themselves, looked for."""
    out, cwd, home, temporary = (tmp_path / x for x in ("out", "cwd", "home", "tmp"))
    for folder in (out, cwd, home, temporary):
        folder.mkdir()
    lines = [line.format(out=out).split() for line in COMMANDS]
    unset = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "GNNRP_DATA")
    unset += ("JAX_COMPILATION_CACHE_DIR",)  # of the tests
    clean = {name: x for name, x in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(lines)],
        cwd=cwd,
        env=clean | {"HOME": str(home), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout.splitlines()[-1])
    assert f"{out}/figure.png" in written
    assert f"{out}/parts/shards.json" in written
    # matplotlib's list of fonts, made once a user, is not ours.
    fonts = {f"{home}/.cache", f"{home}/.config"}
    fonts |= {f"{folder}/matplotlib" for folder in fonts}
    others = {path for path in written if not f"{path}/".startswith(f"{out}/")}
    others = {x for x in others if not x.startswith(f"{home}/.cache/matplotlib/")}
    assert others <= fonts | {os.devnull}
    assert below(cwd) == below(temporary) == []
    assert {path.parent.name for path in below(home)} <= {"matplotlib"}
