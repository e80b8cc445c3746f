"""`gnnrp fit` as its users meet it: tables in, predictions and a report out."""

import csv
import json
import sys
import typing
from pathlib import Path

import pytest

from gnnrp import cli, metrics
from gnnrp.commands import fit


@pytest.fixture
def tables(tmp_path, monkeypatch, capsys):
    """Write the example tables, and return the flags that read them."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["fit", "--example", "."]) == 0
    command = capsys.readouterr().out.split()
    assert command[:2] == ["gnnrp", "fit"]
    return command[2:]


def test_the_example_runs_as_it_says(tables, tmp_path, capsys):
    flags = ["--quiet", "--search-seconds", "5"]
    assert cli.main(["fit", *tables, *flags]) == 0
    out = capsys.readouterr().out
    for part in ("600 nodes, 3,000 weighted edges", "30 held-out labels", "premium"):
        assert part in out
    with (tmp_path / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 600
    assert {row["prediction"] for row in rows} <= {"basic", "plus", "premium"}
    assert sum(row["given"] != "" for row in rows) == 150
    assert all(0 <= float(row["p(basic)"]) <= 1 for row in rows)
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")


def test_json_is_a_record_and_draws_no_figure(tables, tmp_path, capsys):
    flags = ["--json", "--quiet", "--search-seconds", "1", "--out", "p.csv"]
    assert cli.main(["fit", *tables[:4], *flags]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["out"] == "p.csv"
    assert record["heldout"]["nodes"] == 30
    assert record["temperature"] > 0
    assert set(record["classes"]) == {"basic", "plus", "premium"}
    names = {"edges.csv", "labels.csv", "features.csv", "p.csv"}
    assert {path.name for path in tmp_path.iterdir()} == names


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--edges is missing: pass the table of edges, or write example"),
        (["--edges", "edges.csv"], "--labels is missing"),
        (["--edges", "no.csv", "--labels", "labels.csv"], "no.csv cannot be read"),
        (
            ["--edges", "edges.csv", "--labels", "labels.csv", "--holdout", "2"],
            "holdout must lie in [0, 0.5], got 2",
        ),
        (
            [
                *("--edges", "edges.csv", "--labels", "labels.csv"),
                *("--label-columns", "customer", "club"),
            ],
            "labels.csv has no column 'club'; it has 'customer', 'segment'",
        ),
        (["--out", "p.txt"], "p.txt': its name must end in .csv; set --out"),
        (["--out", "no/p.csv"], "no/p.csv': its folder does not exist; set --out"),
        (["--edges", "edges.csv", "--out", "edges.csv"], "is the file of the edges"),
        (["--example", "."], "edges.csv exists; choose another folder"),
    ],
)
@pytest.mark.usefixtures("tables")
def test_bad_input_is_one_sentence_and_writes_nothing(flags, message, tmp_path, capsys):
    before = sorted(tmp_path.iterdir())
    assert cli.main(["fit", *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("package", ["pandas", "pyarrow", "networkx"])
def test_a_missing_package_is_one_sentence(package, tables, monkeypatch, capsys):
    name = {"pandas": "edges.csv", "pyarrow": "e.parquet", "networkx": "e.graphml"}
    Path(name[package]).touch()
    monkeypatch.setitem(sys.modules, package, None)
    assert cli.main(["fit", "--edges", name[package], *tables[2:4]]) == 2
    assert capsys.readouterr().err == (
        f"gnnrp: reading tables needs {package}; run pip install 'gnnrp[tables]'\n"
    )


def test_every_metric_can_be_chosen():
    assert set(typing.get_args(fit.Metric)) == set(metrics.NAMES)
