"""`gnnrp fit` as its users meet it: tables in, predictions and a report out."""

import csv
import json
import sys
import typing
from pathlib import Path

import numpy as np
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


def make_graph(path, **arrays):
    """Write an npz file of two communities, a third of whose nodes have a label."""
    rng = np.random.default_rng(0)
    group = np.arange(90) % 2
    edges = rng.integers(90, size=(2, 900))
    edges = edges[:, (group[edges[0]] == group[edges[1]]) | (rng.random(900) < 0.1)]
    labels = np.where(np.arange(90) < 30, group, -1)
    np.savez(path, **({"edges": edges, "labels": labels} | arrays))


def test_a_file_of_arrays_is_classified_by_its_ids(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pandas", None)  # not needed
    make_graph("graph.npz", node_ids=np.array([f"n{i}" for i in range(90)]))
    flags = ["--json", "--quiet", "--search-seconds", "1"]
    assert cli.main(["fit", "--graph", "graph.npz", *flags]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == 90
    with Path("predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [f"n{i}" for i in range(90)]
    right = [row["prediction"] == str(i % 2) for i, row in enumerate(rows)]
    assert np.mean(right) > 0.9


def test_directions_count_by_a_flag(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_graph("graph.npz")
    edges = np.load("graph.npz")["edges"]
    edges = np.unique(edges[:, edges[0] != edges[1]], axis=1)
    flags = ["--graph", "graph.npz", "--json", "--quiet", "--search-seconds", "60"]
    assert cli.main(["fit", *flags, "--directed"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["directed"], record["edges"]) == (True, edges.shape[1])
    names = [trial["name"] for trial in record["trials"]]
    assert names == ["A", "A^2", "A^4", "A^8", "C", "C^2", "C^4"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--edges", "edges.csv"], "--edges does not apply to --graph, a file of"),
        (["--features", "x.csv"], "--features does not apply to --graph"),
        (["--no-header"], "--no-header does not apply to --graph"),
        (["--edge-columns", "a", "b"], "--edge-columns does not apply to --graph"),
        (["--signed"], "--signed does not apply to --graph"),
        (["--graph", "graph.graphml"], "must be a file of arrays (.npz), got"),
        (["--graph", "gone.npz"], "gone.npz cannot be read"),
        (["--max-memory", "1MB"], "graph.npz: reading it takes"),
    ],
)
def test_flags_of_tables_do_not_apply_to_a_file_of_arrays(
    flags, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    make_graph("graph.npz")
    assert cli.main(["fit", "--graph", "graph.npz", *flags, "--json"]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not Path("predictions.csv").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--edges is missing: pass the table of edges, or write example"),
        (["--edges", "edges.csv"], "--labels is missing"),
        (["--edges", "g.npz"], "g.npz is a file of arrays; pass it as --graph"),
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
