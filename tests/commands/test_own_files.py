"""`--dataset graph.npz`: a file of your own in every command that takes a dataset."""

import hashlib
import json

import numpy as np
import pytest

from gnnrp import cli
from gnnrp.commands.rp import Rp
from gnnrp.studies import presets
from gnnrp.studies.settings import RPSettings

N = 60


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch):
    """Write graph.npz, with features, and bare.npz, without, to the working folder."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    group = np.arange(N) % 2
    edges = rng.integers(N, size=(2, 300))
    edges = edges[:, group[edges[0]] == group[edges[1]]]
    x = rng.normal(size=(N, 3)) + group[:, None]
    np.savez(tmp_path / "graph.npz", edges=edges, labels=group, features=x)
    np.savez(tmp_path / "bare.npz", edges=edges, labels=group)
    return tmp_path / "graph.npz"


@pytest.mark.parametrize(
    "line",
    [
        "rp",
        "rp --similarity auto --search-seconds 0.01",
        "gntk --depths 1",
        "ntk --quick --num-steps 4 --every 2 --num-graphs 2 --width 4",
    ],
)
def test_records_name_the_file_and_its_digest(line, path, capsys):
    flags = ["--dataset", "graph.npz", "--json", "--quiet"]
    assert cli.main([*line.split(), *flags]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["dataset"] == "graph.npz"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert record["files"] == {"graph.npz": digest}
    assert record.get("published") is None


def test_a_file_named_like_a_dataset_takes_the_settings_of_plain_rp(path, capsys):
    path.rename("cora.npz")
    assert cli.main(["rp", "--dataset", "cora.npz", "--json", "--quiet"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["method"], record["published"]) == ("rp", None)
    assert presets.settings_or_default("cora.npz") == RPSettings()
    assert presets.settings_or_default("cora") == presets.settings("cora")


def test_a_folder_holds_the_file_and_the_figure_has_its_name(path):
    assert Rp(dataset=str(path)).title() == "rp-graph"
    Rp(dataset="graph.npz", data_dir=path.parent).check_dataset()


def test_parts_of_a_file_run_with_plain_rp(capsys):
    flags = ["--dataset", "graph.npz", "--parts", "1", "--folder", "parts", "--quiet"]
    assert cli.main(["partition", *flags]) == 0
    assert capsys.readouterr().out.startswith("graph.npz: 1 parts")
    assert cli.main(["rp", "--shards", "parts", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["dataset"] == "graph.npz"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--dataset gone.npz", "gone.npz cannot be read"),
        (
            "--dataset graph.csv",
            "got 'graph.csv'; a graph of your own must be an .npz file",
        ),
        (
            "--dataset a/graph",
            "got 'a/graph'; a graph of your own must be an .npz file",
        ),
        ("--dataset bare.npz --kernel gaussian", "bare.npz has no features here"),
        ("--dataset bare.npz --splits published", "bare.npz has no array 'train'"),
        ("--dataset graph.npz --split 1", "split must"),
    ],
)
def test_what_a_file_lacks_is_refused_in_one_sentence(flags, message, capsys):
    assert cli.main(["rp", *flags.split(), "--json", "--quiet"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
