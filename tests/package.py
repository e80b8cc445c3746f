"""What others install: the contents of both files, and first use outside the checkout.

``make package`` builds them, installs the wheel alone in an empty environment, and
names this file, which no other run of the tests collects.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import gnnrp
from gnnrp.commands import flags

ROOT = Path(__file__).parents[1]
BIN = ROOT / ".venv-package" / "bin"
NAME = f"gnnrp-{gnnrp.__version__}"
WHEEL = ROOT / "dist" / f"{NAME}-py3-none-any.whl"
SDIST = ROOT / "dist" / f"{NAME}.tar.gz"


def tracked(*folders):
    listed = ["git", "ls-files", "-z", *folders]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split("\0") if name}


def run(*command, cwd):
    """Run a program of the empty environment, which knows nothing of the checkout."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "GNNRP"))
    }
    done = subprocess.run(
        [BIN / command[0], *command[1:]],
        cwd=cwd,
        env=environment | {"XDG_CACHE_HOME": f"{cwd}-cache"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_wheel_holds_the_package_alone():
    about = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    expected = tracked("gnnrp") | {f"{NAME}.dist-info/{name}" for name in about}
    assert "gnnrp/py.typed" in expected
    with zipfile.ZipFile(WHEEL) as wheel:
        assert set(wheel.namelist()) == expected


def test_the_source_holds_every_tracked_file():
    with tarfile.open(SDIST) as source:
        found = {member.name.removeprefix(f"{NAME}/") for member in source}
    assert found == {x for x in tracked() if not x.startswith(".ci/")} | {"PKG-INFO"}


def test_the_source_makes_the_same_wheel(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w"]
    subprocess.run([*build, tmp_path, SDIST], check=True)
    assert (tmp_path / WHEEL.name).read_bytes() == WHEEL.read_bytes()


def test_the_version_is_one(tmp_path):
    assert run("gnnrp", "--version", cwd=tmp_path).stdout == f"gnnrp {NAME[6:]}\n"
    code = "import gnnrp; print(gnnrp.__version__, gnnrp.__file__)"
    version, path = run("python", "-c", code, cwd=tmp_path).stdout.split()
    assert version == NAME[6:]
    assert Path(path).is_relative_to(BIN.parent)
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_importing_brings_nothing_but_itself(tmp_path):
    code = """
import sys
before = set(sys.modules)
import gnnrp
new = {name.partition(".")[0] for name in set(sys.modules) - before}
assert new - sys.stdlib_module_names == {"gnnrp"}, new
"""
    run("python", "-c", code, cwd=tmp_path)


def imported(*arguments, cwd):
    traced = ["python", "-X", "importtime", "-m", "gnnrp.cli"]
    found = set(re.findall(r"\| +(\w+)", run(*traced, *arguments, cwd=cwd).stderr))
    assert "gnnrp" in found
    return found


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_the_overview_of_commands_does_not_import_numpy(flag, tmp_path):
    assert "numpy" not in imported(flag, cwd=tmp_path)


@pytest.mark.parametrize("command", flags.COMMANDS)
def test_no_help_imports_jax(command, tmp_path):
    found = imported(command, "--help", cwd=tmp_path)
    assert not {"jax", "jaxlib", "scipy", "matplotlib"} & found


def test_every_module_imports_without_what_tests_need(tmp_path):
    code = """
import importlib.util, pkgutil, gnnrp
assert importlib.util.find_spec("pytest") is None
names = [m.name for m in pkgutil.walk_packages(gnnrp.__path__, "gnnrp.")]
assert len(names) > 50
for name in names: importlib.import_module(name)
"""
    run("python", "-W", "error", "-c", code, cwd=tmp_path)


def test_the_first_example_holds(tmp_path):
    example = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    assert "ResidualPropagation" in example
    (tmp_path / "example.txt").write_text(example)
    run("python", "-W", "error", "-m", "doctest", "example.txt", cwd=tmp_path)


def test_the_command_prints_a_table_and_draws_a_curve(tmp_path):
    printed = run("gnnrp", "rp", cwd=tmp_path).stdout
    assert re.search(r"^RP with features +6\d\.\d\d +6\d\.\d\d$", printed, re.M)
    assert [path.name for path in tmp_path.iterdir()] == ["rp-sbm.png"]


def test_the_command_lists_the_data_sets(tmp_path):
    listed = json.loads(run("gnnrp", "datasets", "--json", cwd=tmp_path).stdout)
    assert {"cora", "sbm"} <= {row["name"] for row in listed["datasets"]}


PROGRAM = """
import gnnrp
from gnnrp import propagation
from gnnrp.propagation import residual
reveal_type(gnnrp.ResidualPropagation().fit)
reveal_type(residual.step)
reveal_type(gnnrp.__version__)
gnnrp.ResidualPropagatoin
"""


def test_type_checkers_see_the_types(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    check = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath"]
    done = subprocess.run(
        [*check, BIN / "python", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = json.loads(done.stdout)["generalDiagnostics"]
    told = [each["message"] for each in said if each["severity"] == "information"]
    assert len(told) == 3
    assert re.search(r"-> (ResidualPropagation|Self)", told[0]), told[0]
    assert told[1].endswith('-> State"')
    assert told[2].endswith('is "str"')
    wrong = [each["message"] for each in said if each["severity"] == "error"]
    assert len(wrong) == 1
    assert "ResidualPropagatoin" in wrong[0]
