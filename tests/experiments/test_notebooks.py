"""Notebooks are pairs of a percent script and what it printed and drew."""

import subprocess
import sys
from pathlib import Path

import jupytext
import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NAMES = (
    *("quickstart", "residual_propagation"),
    *("gntk", "ntk_alignment", "lazy_regime"),
)


def sources(notebook):
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def outputs(notebook):
    return [out for cell in notebook.cells for out in cell.get("outputs", [])]


def test_every_notebook_is_named():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(NAMES)
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_both_halves_of_a_pair_say_the_same(name):
    script = jupytext.read(FOLDER / f"{name}.py")
    executed = jupytext.read(FOLDER / f"{name}.ipynb")
    assert sources(script) == sources(executed)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_committed_was_executed_and_is_small(name):
    executed = jupytext.read(FOLDER / f"{name}.ipynb")
    assert all(cell.execution_count for cell in executed.cells if "outputs" in cell)
    kinds = [out.output_type for out in outputs(executed)]
    assert "error" not in kinds
    assert any("image/png" in out.get("data", {}) for out in outputs(executed))
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 500_000


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_begins_with_what_is_learned_and_downloads_nothing(name):
    first = jupytext.read(FOLDER / f"{name}.py").cells[0]
    assert first.cell_type == "markdown"
    assert "You will learn" in first.source
    text = (FOLDER / f"{name}.py").read_text()
    assert "sbm" in text
    assert "cora" in text  # what to write for real data


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_notebooks_run_from_the_first_cell_to_the_last(name, tmp_path):
    target = tmp_path / f"{name}.ipynb"
    command = [sys.executable, "-m", "jupytext", "--quiet", "--to", "ipynb"]
    command += ["--execute", "--output", str(target), str(FOLDER / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    made = outputs(jupytext.read(target))
    assert any("image/png" in out.get("data", {}) for out in made)
