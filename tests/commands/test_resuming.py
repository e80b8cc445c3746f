"""Records name their run, and the checkpoint from which it resumed."""

import datetime
import json
import socket

import pytest
import run_records

from gnnrp import cli
from gnnrp.runtime import process

PARTITION = "partition --parts 1 --folder parts --quiet"
LINES = {
    "rp": "rp --json --num-steps 7 --step-size 1 --method iterate --folder run",
    "ntk": "ntk --json --num-steps 7 --every 7 --num-graphs 2 --width 8 --folder run",
    "shards": "rp --shards parts --json --num-steps 7 --method iterate --folder run",
}


def record(line, capsys):
    """Return the record of a command that ends well, and its standard error."""
    assert cli.main(line.split()) == 0
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err


@pytest.mark.parametrize("name", LINES)
def test_a_resumed_run_prints_and_records_its_checkpoint(
    name, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    if name == "shards":
        assert cli.main(PARTITION.split()) == 0
        capsys.readouterr()
    whole, errors = record(LINES[name], capsys)
    assert "resuming" not in errors
    assert whole["resumed_from"] is None
    monkeypatch.setattr(process, "RUN_ID", "another")
    again, errors = record(f"{LINES[name]} --resume", capsys)
    assert again["run_id"] == "another"
    assert again["resumed_from"] == {"run_id": whole["run_id"], "step": 7}
    assert f"gnnrp: resuming at step 7 of run {whole['run_id']}\n" in errors
    assert run_records.results(again) == run_records.results(whole)
    _, errors = record(f"{LINES[name]} --resume --quiet", capsys)
    assert "resuming" not in errors


@pytest.mark.parametrize(
    "line", ["rp --num-steps 5", "gntk --depths 1 --num-steps 5", "rp --folder run"]
)
def test_a_record_names_run_start_and_host(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    resumes = " --resume" if "run" in line else ""  # without a checkpoint: from 0
    found, errors = record(f"{line}{resumes} --num-steps 5 --json", capsys)
    assert "resuming" not in errors
    assert len(found["run_id"]) == 16
    assert found["host"] == socket.gethostname()
    started = datetime.datetime.fromisoformat(found["started"])
    assert started.utcoffset() == datetime.timedelta(0)
    assert started <= datetime.datetime.now(datetime.UTC)
    assert found["resumed_from"] is None
