"""The printed results of an experiment: tables for people, JSON for programs."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from experiments import runner
from experiments.report import plain_text
from experiments.report.record_tables import TABLES
from gnnrp.runtime import interrupts

RESULTS = Path(__file__).parents[2] / "experiments" / "results"
CASE = {
    "case": "S_XX PD",
    "table": ["converges", "converges"],
    "found": ["converges", "does not"],
    "residual": 1e-15,
    "predictions": 0.5,
    "growth": 2.0,
}


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """No settings."""


def outcome(config, progress):  # noqa: ARG001
    return runner.Outcome({"cases": [CASE]}, {}, {})


def printed(monkeypatch, capsys, *flags, name="table2_convergence"):
    monkeypatch.setattr(sys, "argv", [name, *flags])
    monkeypatch.setattr(interrupts, "install", lambda: None)  # keep those of pytest
    runner.main(Config, outcome, name)
    return capsys.readouterr().out


def test_an_experiment_prints_its_tables_and_names_its_record(
    monkeypatch, capsys, tmp_path
):
    text = printed(monkeypatch, capsys, "--output", str(tmp_path))
    title, _, table, header, row, *_ = text.splitlines()
    assert (title, table) == (
        "Convergence table (App. B.2)",
        "Convergence of residual propagation",
    )
    assert row.split()[:3] == ["S_XX", "PD", "converges;"]
    assert row.index("1.0e-15") + 7 == header.index("error of R") + len("error of R")
    path = tmp_path / "table2_convergence.json"
    assert text.splitlines()[-1] == f"Record: {path}"
    assert "json" not in json.loads(path.read_text())["settings"]


def test_json_prints_the_record_alone(monkeypatch, capsys, tmp_path):
    text = printed(monkeypatch, capsys, "--json", "--output", str(tmp_path))
    assert json.loads(text)["result"] == {"cases": [CASE]}
    written = (tmp_path / "table2_convergence.json").read_text()
    assert json.loads(text) == json.loads(written)


def test_an_experiment_without_tables_prints_its_record(monkeypatch, capsys):
    record = json.loads(printed(monkeypatch, capsys, name="another"))
    assert record["result"] == {"cases": [CASE]}


@pytest.mark.parametrize("name", TABLES)
def test_every_committed_record_is_printed_with_aligned_columns(name):
    record = json.loads((RESULTS / f"{name}.json").read_text())
    title, tables = TABLES[name]
    text = plain_text.render(record)
    assert text.startswith(title)
    assert all(f"\n\n{table.title}\n" in text for table in tables(record))
