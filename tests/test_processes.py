"""Two processes that share a graph compute what one does, each reading its own part."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from gnnrp import cli, datasets, graph, metrics, shards, spmm
from gnnrp.commands import _hosts
from gnnrp.datasets import sbm
from gnnrp.propagation import layouts, residual, sharded, similarity

COLLECT = """
import sys, jax, numpy as np, scipy.sparse
from pathlib import Path
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from gnnrp import metrics, shards, spmm
from gnnrp.kernels import blocked, gntk
from gnnrp.propagation import residual, similarity

jax.config.update("jax_enable_x64", True)
folder, port, host = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
jax.distributed.initialize(f"127.0.0.1:{port}", 2, host)
found = shards.read(folder)
held = len(found.targets.addressable_shards), found.targets.is_fully_addressable
assert held == (1, False)
arrays = {}
for method in ("iterate", "krylov"):
    run = residual.run(
        similarity.Power(found.matrix, 3), found.targets, found.splits,
        step_size=0.5, num_steps=40, metric=metrics.accuracy, method=method,
    )
    assert not run.predictions.is_fully_addressable
    shard = run.predictions.addressable_shards[0]
    arrays |= {method: np.asarray(shard.data), method + " test": run.test}
mesh = Mesh(np.array(jax.devices()), ("nodes",))
rng = np.random.default_rng(0)
P = spmm.prepare(scipy.sparse.random_array((23, 23), density=0.3, rng=rng).tocsr())
X = rng.standard_normal((23, 4))
gcn = jax.jit(blocked.gcn, static_argnames=("depth", "mesh"))
half = gcn(P, X @ X.T, depth=2, mesh=mesh)
assert not half.is_fully_addressable
expected = np.asarray(gntk.gcn(P, jax.numpy.asarray(X @ X.T), depth=2).ntk)
whole = multihost_utils.process_allgather(half, tiled=True)
assert np.abs(whole - expected).max() < 1e-13 * np.abs(expected).max()
nodes = np.load(folder / f"part-{host}.npz")["nodes"]
np.savez(folder / f"found-{host}.npz", nodes=nodes, **arrays)
"""


NO_MORE = (None, None)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def both(commands, cwd, environments=NO_MORE):
    """Start two processes and return them."""
    pipe = subprocess.PIPE
    return [
        subprocess.Popen(
            command,
            cwd=cwd,
            env=os.environ | (more or {}),
            stdout=pipe,
            stderr=pipe,
            text=True,
        )
        for command, more in zip(commands, environments, strict=True)
    ]


def slurm(process):
    """Return what Slurm tells one of two processes on this machine."""
    return {
        "SLURM_JOB_ID": str(os.getpid()),  # of which the port is made
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": str(process),
        "SLURM_LOCALID": str(process),
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_JOB_NUM_NODES": "1",
    }


START = [sys.executable, "-m", "gnnrp.cli", "rp", "--shards", "parts"]


def rp(port, *flags):
    hosts = ["--hosts", f"127.0.0.1:{port},127.0.0.1"]
    start = [*START, "--json", "--quiet"]
    return [[*start, *hosts, "--host", str(i), *flags] for i in (0, 1)]


@pytest.fixture
def data():
    found = sbm.generate(0, block_size=60, num_val=50, num_test=100)
    rolled = [np.stack([mask[0], np.roll(mask[0], 9)]) for mask in found.splits]
    return found._replace(splits=type(found.splits)(*rolled))


def test_two_processes_find_what_one_does_and_hold_half_of_it(data, tmp_path):
    shards.write(tmp_path, data, 2)
    port = free_port()
    command = [sys.executable, "-c", COLLECT, str(tmp_path), port]
    for process in both([[*command, str(i)] for i in (0, 1)], tmp_path):
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    A = spmm.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    for method in ("iterate", "krylov"):
        one = residual.run(
            similarity.Power(A, 3),
            datasets.targets(data),
            data.splits,
            step_size=0.5,
            num_steps=40,
            metric=metrics.accuracy,
            method=method,
        )
        nodes = []
        for host in (0, 1):
            found = np.load(tmp_path / f"found-{host}.npz")
            inside = found["nodes"] >= 0
            own = found["nodes"][inside]
            part = found[method][:, inside]
            np.testing.assert_allclose(part, one.predictions[:, own], atol=1e-12)
            np.testing.assert_array_equal(found[method + " test"], one.test)
            nodes += own.tolist()
        assert sorted(nodes) == list(range(data.num_nodes))


@pytest.mark.slow
def test_an_interrupted_run_of_two_processes_goes_on_to_the_same_record(data, tmp_path):
    shards.write(tmp_path / "parts", data, 2)
    flags = ["--method", "iterate", "--num-steps", "6000", "--step-size", "0.5"]
    kept = ["--folder", "run", "--checkpoint-seconds", "0"]

    def run(*more):
        out = []
        for process in both(rp(free_port(), *flags, *more), tmp_path):
            printed, errors = process.communicate()
            assert process.returncode == 0, errors
            out.append(printed)
        assert out[1] == ""  # the first one speaks
        return json.loads(out[0])

    whole = run()
    assert (whole["parts"], whole["processes"]) == (2, 2)
    assert len(whole["peak_memory_bytes"]) == 2
    processes = both(rp(free_port(), *flags, *kept), tmp_path)
    while not list(tmp_path.glob("run/checkpoints/[0-9]*")):
        time.sleep(0.05)
    processes[1].send_signal(signal.SIGINT)  # all stop where one is asked to
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 130
        assert "interrupted; kept at " in errors
    again = run(*kept, "--resume")
    for changing in ("seconds", "peak_memory_bytes", "command"):
        del whole[changing], again[changing]
    assert again == whole


@pytest.mark.slow
def test_processes_that_slurm_starts_find_each_other(data, tmp_path):
    shards.write(tmp_path / "parts", data, 2)
    told = []
    commands = [[*START, "--quiet", "--hosts", "auto"]] * 2
    for process in both(commands, tmp_path, (slurm(0), slurm(1))):
        printed, errors = process.communicate()
        assert process.returncode == 0, errors
        told.append(printed)
    assert ", 2 parts\n" in told[0]
    assert told[1] == ""


def test_parts_are_read_as_they_were_written_or_refused(data, tmp_path):
    table = shards.write(tmp_path / "one", data, 1)
    csr = spmm.to_scipy(graph.normalized_adjacency(data.edges, data.num_nodes))
    assert table["entries"] == [csr.nnz]
    assert table["rows_moved_a_hop"] == 0
    found = shards.read(tmp_path / "one")
    assert found.name == "sbm"
    layout = layouts.balanced(csr, 1)
    x = np.random.default_rng(0).standard_normal((data.num_nodes, 2))
    moved = found.matrix(sharded.spread(layout, x, found.matrix.mesh))
    np.testing.assert_allclose(
        sharded.collected(layout, moved), csr @ x, rtol=1e-12, atol=1e-14
    )
    with pytest.raises(ValueError, match="is not empty; choose another folder"):
        shards.write(tmp_path / "one", data, 1)
    part = tmp_path / "one" / "part-0.npz"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"part-0.npz is missing or damaged; copy"):
        shards.read(tmp_path / "one")
    shards.write(tmp_path / "two", data, 2)
    with pytest.raises(
        ValueError, match=r"is of 2 parts, and there are 1 device\(s\) in 1"
    ):
        shards.read(tmp_path / "two")
    with pytest.raises(ValueError, match="holds no parts of a graph, or they are"):
        shards.read(tmp_path)


def test_nodes_stand_in_the_parts_that_a_file_names(data, tmp_path, capsys):
    data = datasets.load("sbm")
    part = np.random.default_rng(0).integers(0, 3, data.num_nodes)
    np.savetxt(tmp_path / "part.txt", part, fmt="%d")
    flags = ["partition", "--parts", "3", "--folder", str(tmp_path / "parts")]
    flags += ["--quiet", "--part-of", str(tmp_path / "part.txt")]
    assert cli.main(flags) == 0
    assert capsys.readouterr().out.startswith("sbm: 3 parts of at most ")
    for i in range(3):
        nodes = np.load(tmp_path / "parts" / f"part-{i}.npz")["nodes"]
        np.testing.assert_array_equal(nodes[nodes >= 0], np.flatnonzero(part == i))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\n1\n", "part must have shape (2000,), got (2,)"),
        ("3\n" * 2000, "the greatest part of a node must be at most 2, got 3"),
        ("-1\n" * 2000, "the least part of a node must be at least 0, got -1"),
        ("0.5\n" * 2000, "must have a node's part, from 0 on, a line (not every line"),
    ],
)
def test_a_file_that_names_no_parts_is_refused(text, message, tmp_path, capsys):
    (tmp_path / "part.txt").write_text(text)
    flags = ["partition", "--parts", "3", "--folder", str(tmp_path / "parts")]
    flags += ["--quiet", "--part-of", str(tmp_path / "part.txt")]
    assert cli.main(flags) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "parts" / "shards.json").exists()


def test_a_table_of_contents_that_is_none_is_refused(tmp_path):
    for text in ('{"format": 1, "parts": ["a"]}', "[]", "no JSON", '{"format": 9}'):
        (tmp_path / "shards.json").write_text(text)
        with pytest.raises(ValueError, match="holds no parts of a graph, or they are"):
            shards.contents(tmp_path)


def test_parting_that_fails_or_stops_leaves_no_obstacle(data, tmp_path):
    with pytest.raises(ValueError, match="parts must be at most 300, got 301"):
        shards.write(tmp_path / "new", data, 301)
    assert not (tmp_path / "new").exists()

    def stop(_, done, __):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shards.write(tmp_path / "new", data, 2, progress=stop)
    assert not list((tmp_path / "new").iterdir())
    for name in ("part-0.npz", f".{'0f' * 8}.half"):  # which a kill leaves
        (tmp_path / "new" / name).write_bytes(b"half")
    assert len(shards.write(tmp_path / "new", data, 2)["parts"]) == 2


def test_a_process_that_ends_is_told_in_one_sentence():
    def fail():
        msg = "Connection reset by peer\nand more"
        raise RuntimeError(msg)

    with pytest.raises(
        ValueError, match=r"ended or failed \(Connection reset by peer\)"
    ):
        _hosts.together(fail)
    assert _hosts.together(max, 1, 2) == 2


@pytest.mark.parametrize("flag", ["--seed=1", "--split=0", "--dataset=cora"])
def test_flags_that_shards_do_not_know_are_refused(flag, tmp_path, capsys):
    assert cli.main(["rp", "--shards", str(tmp_path), flag]) == 2
    assert "does not go with --shards, whose data set is" in capsys.readouterr().err


def test_hosts_that_cannot_meet_are_refused(monkeypatch):
    monkeypatch.setattr(_hosts, "_keep_output_clean", lambda: None)
    monkeypatch.setattr(socket, "gethostname", lambda: "b.example.org")
    assert _hosts._own(["a:7000", "b"]) == 1
    for hosts, host, message in (
        (None, 1, "--host needs --hosts"),
        ("a,b", 2, "--host must be one of 0 to 1, got 2"),
        ("a,c", None, "is called b.example.org, which is 0 of --hosts"),
        ("b,b", None, "which is 2 of --hosts; say which one"),
        ("auto", None, "did not meet .*; name the machines by --hosts A,B"),
    ):
        with pytest.raises(ValueError, match=message):
            _hosts.join(hosts, host)
