"""Two processes that share a graph compute what one does, each reading its own part."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import run_records

from gnnrp import cli, datasets, graph, metrics, propagation, sparse
from gnnrp.datasets import sbm
from gnnrp.distributed import multihost, partitioning, shards
from gnnrp.distributed import sharded_matrix as sharded
from gnnrp.propagation import Steps, similarity, solvers

PAGE = Path(__file__).parents[2] / "docs" / "long-runs.md"
COLLECT = """
import sys, jax, numpy as np, scipy.sparse
from pathlib import Path
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from gnnrp import metrics, propagation, sparse
from gnnrp.distributed import shards
from gnnrp.kernels import gntk
from gnnrp.kernels.gntk import blocked
from gnnrp import propagation
from gnnrp.propagation import Steps, similarity, solvers

jax.config.update("jax_enable_x64", True)
folder, port, host = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
jax.distributed.initialize(f"127.0.0.1:{port}", 2, host)
found = shards.read(folder)
held = len(found.targets.addressable_shards), found.targets.is_fully_addressable
assert held == (1, False)
arrays = {}
for method in ("iterate", "krylov"):
    run = propagation.run(
        similarity.Power(found.matrix, 3), found.targets, found.splits, Steps(0.5, 40),
        metric=metrics.accuracy, solver=solvers.by_name(method),
    )
    assert not run.predictions.is_fully_addressable
    shard = run.predictions.addressable_shards[0]
    arrays |= {method: np.asarray(shard.data), method + " test": run.test}
mesh = Mesh(np.array(jax.devices()), ("nodes",))
rng = np.random.default_rng(0)
P = sparse.prepare(scipy.sparse.random_array((23, 23), density=0.3, rng=rng).tocsr())
X = rng.standard_normal((23, 4))
gcn = jax.jit(blocked.gcn, static_argnames="mesh")
half = gcn(P, X @ X.T, gntk.Network(2), mesh=mesh).ntk
assert not half.is_fully_addressable
expected = np.asarray(gntk.gcn(P, jax.numpy.asarray(X @ X.T), gntk.Network(2)).ntk)
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
    A = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    for method in ("iterate", "krylov"):
        one = propagation.run(
            similarity.Power(A, 3),
            datasets.targets(data),
            data.splits,
            Steps(0.5, 40),
            metric=metrics.accuracy,
            solver=solvers.by_name(method),
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
def test_a_run_of_two_processes_that_ends_early_resumes_to_the_same_record(
    data, tmp_path
):
    shards.write(tmp_path / "parts", data, 2)
    flags = ["--method", "iterate", "--num-steps", "6000", "--step-size", "0.5"]
    kept = ["--folder", "run", "--checkpoint-seconds", "0"]

    def run(*more):
        out = []
        for process in both(rp(free_port(), *flags, *more), tmp_path):
            printed, errors = process.communicate()
            assert process.returncode == 0, errors
            out.append((printed, errors))
        assert out[1][0] == ""  # the first one prints
        assert "resuming" not in out[1][1]
        return json.loads(out[0][0]), out[0][1]

    whole, _ = run()
    assert (whole["parts"], whole["processes"]) == (2, 2)
    assert len(whole["peak_memory_bytes"]) == 2
    for number, expected, more in (
        (signal.SIGINT, 130, []),
        (signal.SIGKILL, 2, ["--resume"]),
    ):
        before = set(tmp_path.glob("run/checkpoints/[0-9]*"))
        processes = both(rp(free_port(), *flags, *kept, *more), tmp_path)
        while not set(tmp_path.glob("run/checkpoints/[0-9]*")) - before:
            time.sleep(0.05)
        processes[1].send_signal(number)
        (status, (line,)), _ = ends(processes)
        assert status == expected
        assert ("interrupted; saved step " in line) == (status == 130)
    again, errors = run(*kept, "--resume", "--no-quiet")
    origin = again["resumed_from"]
    resuming = f"resuming at step {origin['step']:,} of run {origin['run_id']}"
    assert f"gnnrp: {resuming}" in errors.splitlines()
    assert run_records.results(again) == run_records.results(whole)


@pytest.mark.slow
def test_the_two_lines_of_the_page_start_two_processes_on_one_machine(data, tmp_path):
    shards.write(tmp_path / "arxiv-2", data, 2)
    lines = [x for x in PAGE.read_text().splitlines() if "localhost,localhost" in x]
    script = "\n".join(lines).replace("localhost,", f"localhost:{free_port()},")
    command = shlex.join([sys.executable, "-m", "gnnrp.cli"])
    script = script.replace("gnnrp rp", f"{command} rp --json --quiet --num-steps 9")
    run = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    record = json.loads(run.stdout)
    assert (len(lines), record["processes"], record["parts"]) == (2, 2, 2)


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
    csr = sparse.to_scipy(graph.normalized_adjacency(data.edges, data.num_nodes))
    assert table["entries"] == [csr.nnz]
    assert table["rows_moved_a_hop"] == 0
    found = shards.read(tmp_path / "one")
    assert found.name == "sbm"
    layout = partitioning.balance(csr, 1)
    x = np.random.default_rng(0).standard_normal((data.num_nodes, 2))
    moved = found.matrix(sharded.spread(layout, x, found.matrix.mesh))
    np.testing.assert_allclose(
        sharded.gather(layout, moved), csr @ x, rtol=1e-12, atol=1e-14
    )
    with pytest.raises(ValueError, match="is not empty; choose another folder"):
        shards.write(tmp_path / "one", data, 1)
    part = tmp_path / "one" / "part-0.npz"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"part-0.npz is missing or damaged; copy"):
        shards.read(tmp_path / "one")
    shards.write(tmp_path / "two", data, 2)
    with pytest.raises(
        ValueError, match=r"has 2 parts, and there are 1 device\(s\) in 1"
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
        (
            "0.5\n" * 2000,
            "must have the part of a node, from 0, a line (not every line",
        ),
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


@pytest.mark.parametrize("flag", ["--seed=1", "--split=0", "--dataset=cora"])
def test_flags_that_shards_do_not_know_are_refused(flag, tmp_path, capsys):
    assert cli.main(["rp", "--shards", str(tmp_path), flag]) == 2
    assert "does not apply to --shards, which has its own" in capsys.readouterr().err


def test_hosts_that_are_none_are_refused(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "b.example.org")
    assert multihost.parse("a:7000, b", None) == (("a", "b"), 1, 7000)
    assert multihost.parse("a,c", 1) == (("a", "c"), 1, 7117)
    for hosts, host, message in (
        ("a,b", 2, "--host must be one of 0 to 1, got 2"),
        ("a,b", -1, "--host must be one of 0 to 1, got -1"),
        ("a,c", None, "is called b.example.org, which is 0 of --hosts"),
        ("b,b", None, "which is 2 of --hosts; pass its index"),
        ("a:b,c", 0, "--hosts must be NAME,NAME,..., .* got 'a:b,c'"),
        ("a:70000,c", 0, "--hosts must be NAME,NAME"),
        ("a,,c", 0, "--hosts must be NAME,NAME"),
    ):
        with pytest.raises(ValueError, match=message):
            multihost.parse(hosts, host)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--host", "1"], "--host needs --hosts, the names of all machines"),
        (["--partner-seconds", "9"], "--partner-seconds needs --hosts"),
        (["--hosts", "auto", "--host", "0"], "--host does not apply to --hosts auto"),
        (["--hosts", "a,b", "--partner-seconds", "0"], "must lie in [1, 86400]"),
        (
            ["--hosts", "a,b", "--partner-seconds", "nan"],
            "partner_seconds must lie in [1, 86400], got nan",
        ),
    ],
)
def test_flags_of_processes_are_checked(flags, message, tmp_path, capsys):
    assert cli.main(["rp", "--shards", str(tmp_path), *flags]) == 2
    assert message in capsys.readouterr().err


LONG = ["--method", "iterate", "--num-steps", "2000000", "--step-size", "0.01"]
KEPT = ["--folder", "run", "--checkpoint-seconds", "0"]


def ends(processes):
    """Return the status and the lines on standard error of processes that end."""
    try:
        told = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    statuses = [process.returncode for process in processes]
    return list(zip(statuses, map(str.splitlines, told), strict=True))


def under_way(tmp_path, data):
    """Start two processes, and return them once they have a checkpoint."""
    shards.write(tmp_path / "parts", data, 2)
    bound = ["--partner-seconds", "10"]
    processes = both(rp(free_port(), *LONG, *KEPT, *bound), tmp_path)
    while not list(tmp_path.glob("run/checkpoints/[0-9]*")):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.05)
    return processes


def worker_of(process):
    """Return the number of the process that computes for another one."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(listed.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGKILL, "was killed or lost its connection"),
        (signal.SIGSTOP, "has been silent for 10 s (--partner-seconds)"),
    ],
)
def test_a_partner_that_is_lost_ends_the_other_process(
    number, message, victim, data, tmp_path
):
    processes = under_way(tmp_path, data)
    processes[victim].send_signal(number)
    ((status, lines),) = ends([processes[1 - victim]])
    again = "start all processes again, with --resume if there is a --folder"
    assert status == 2
    assert lines == [f"gnnrp: process {victim} (127.0.0.1) {message}; {again}"]
    processes[victim].send_signal(signal.SIGCONT)
    ((status, lines),) = ends([processes[victim]])
    assert status != 0
    assert len(lines) == (number == signal.SIGSTOP)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGKILL, "was ended by SIGKILL"),
        (signal.SIGSTOP, "has been stopped for 10 s (--partner-seconds)"),
    ],
)
def test_a_worker_that_is_lost_ends_both_processes(number, message, data, tmp_path):
    processes = under_way(tmp_path, data)
    os.kill(worker_of(processes[1]), number)
    for status, (line,) in ends(processes):
        assert status == 2
        assert line.startswith(f"gnnrp: process 1 (127.0.0.1) {message}; start all")


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize(
    ("number", "status", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_to_one_process_ends_both(
    number, status, word, victim, data, tmp_path
):
    processes = under_way(tmp_path, data)
    processes[victim].send_signal(number)
    for found, (line,) in ends(processes):
        assert found == status
        assert re.fullmatch(
            rf"gnnrp: {word}; saved step \d+ in run/checkpoints; resume by --resume",
            line,
        )


@pytest.mark.slow
@pytest.mark.parametrize("started", [0, 1])
def test_a_partner_that_never_starts_is_named(started, data, tmp_path):
    shards.write(tmp_path / "parts", data, 2)
    commands = rp(free_port(), "--partner-seconds", "3")[started : started + 1]
    ((status, (line,)),) = ends(both(commands, tmp_path, [None]))
    assert status == 2
    assert f"gnnrp: process {1 - started} (127.0.0.1) " in line
    assert "within 3 s" in line
    assert "--partner-seconds" in line


@pytest.mark.slow
@pytest.mark.parametrize("started", [0, 1])
def test_a_process_that_slurm_starts_alone_ends(started, data, tmp_path):
    shards.write(tmp_path / "parts", data, 2)
    commands = [[*START, "--quiet", "--hosts", "auto", "--partner-seconds", "3"]]
    ((status, (line,)),) = ends(both(commands, tmp_path, [slurm(started)]))
    assert status == 2
    assert line.startswith("gnnrp: the processes of this run did not meet ")
    assert line.endswith("start all of them, or name the machines by --hosts A,B")


@pytest.mark.slow
def test_addresses_that_differ_end_both_processes(data, tmp_path):
    shards.write(tmp_path / "parts", data, 2)
    bound = ["--partner-seconds", "5"]
    commands = [rp(free_port(), *bound)[0], rp(free_port(), *bound)[1]]
    (first, (missing,)), (second, (unreachable,)) = ends(both(commands, tmp_path))
    assert (first, second) == (2, 2)
    assert "process 1 (127.0.0.1) did not reach 127.0.0.1:" in missing
    assert "process 0 (127.0.0.1) cannot be reached at 127.0.0.1:" in unreachable


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "first", "second"),
    [
        (
            [["--power", "2"], ["--power", "3"]],
            "power is 3 in process 1 (127.0.0.1) and 2 in process 0 (127.0.0.1); ",
            "power is 3 in process 1 (127.0.0.1) and 2 in process 0 (127.0.0.1); ",
        ),
        (
            [[], ["--power", "-1"]],
            "process 1 (127.0.0.1) stopped: power must be at least 0, got -1",
            "power must be at least 0, got -1",
        ),
        (
            [["--folder", "run"], ["--folder", "other"]],
            "--folder 'other' of process 1 (127.0.0.1) is not that of process 0",
            "--folder 'other' of process 1 (127.0.0.1) is not that of process 0",
        ),
    ],
)
def test_flags_that_differ_end_both_processes(flags, first, second, data, tmp_path):
    shards.write(tmp_path / "parts", data, 2)
    commands = rp(free_port(), "--partner-seconds", "20")
    commands = [command + more for command, more in zip(commands, flags, strict=True)]
    told = ends(both(commands, tmp_path))
    for (status, (line,)), expected in zip(told, (first, second), strict=True):
        assert status == 2
        assert line.startswith(f"gnnrp: {expected}")
    assert not list(tmp_path.glob("*/.*"))  # the file that all must see is gone
