"""Measure time, bytes and result of a sharded product over local processes.

    python -m experiments.partition.two_processes FOLDER PROCESS PROCESSES PORT

is one of the processes; ``measure`` starts all of them and reads their results. Each
process has its own core if there are enough, and they communicate with gloo over the
loopback.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from gnnrp.distributed.partitioning import Layout

LIMIT = 600  # seconds for all processes


def measure(
    csr: Any, layout: Layout, exchange: str, columns: int, hops: int
) -> dict[str, Any]:
    """Run one process per part; return the measurements and "product" (n, k).

    Args:
        csr: A, float32.
        layout: with one part per process.
        exchange: see ``matrix.prepare``.
        columns: of the dense side, which is random.
        hops: number of measured hops. The time is that of the fastest one, as other
            processes may use the machine. The bytes are the median, as some may be
            counted in the next hop.

    Raises:
        ChildProcessError: a process failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scipy.sparse.save_npz(folder / "matrix.npz", csr, compressed=False)
        np.save(folder / "place.npy", layout.place)
        task = {"rows": layout.rows, "parts": layout.parts, "exchange": exchange}
        task |= {"columns": columns, "hops": hops}
        (folder / "task.json").write_text(json.dumps(task))
        _run(folder, layout.parts)
        result = json.loads((folder / "result.json").read_text())
        return result | {"product": np.load(folder / "product.npy")}


def _run(folder: Path, processes: int) -> None:
    """Start the processes and wait for them; end all of them if one fails.

    Raises:
        ChildProcessError: a process failed.
    """
    port = str(_free_port())
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "0"}
    environment.pop("XLA_FLAGS", None)  # may request several devices
    started, end = [], time.monotonic() + LIMIT
    try:
        for i in range(processes):
            command = [sys.executable, "-m", "experiments.partition.two_processes"]
            command += [str(folder), str(i), str(processes), port]
            with (folder / f"log{i}").open("w") as log:
                started.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        cwd=Path(__file__).parents[2],
                        stdout=log,
                        stderr=log,
                    )
                )
        for i, process in enumerate(started):
            if process.wait(max(0.0, end - time.monotonic())) != 0:
                tail = (folder / f"log{i}").read_text()[-2000:]
                msg = f"process {i} of {processes} failed: {tail}"
                raise ChildProcessError(msg)
    finally:
        for process in started:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def received_bytes() -> int | None:
    """Return the bytes received by the loopback since startup; None except on Linux."""
    counters = Path("/proc/net/dev")
    if not counters.exists():
        return None
    for line in counters.read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[0])
    return None


def main(folder: Path, process: int, processes: int, port: str) -> None:
    """Run one of the processes; the first one writes the results."""
    if hasattr(os, "sched_setaffinity"):  # before jax counts the cores
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[process % len(cores)]})
    import jax

    from gnnrp.distributed import sharded_matrix as sharded

    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, process)
    task = json.loads((folder / "task.json").read_text())
    csr = scipy.sparse.csr_array(scipy.sparse.load_npz(folder / "matrix.npz"))
    layout = Layout(np.load(folder / "place.npy"), task["rows"], task["parts"])
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("nodes",))
    matrix = sharded.prepare(csr, layout, mesh, exchange=task["exchange"])
    x = random_columns(csr.shape[0], task["columns"])
    v = jax.block_until_ready(sharded.spread(layout, x, mesh))
    samples = {"seconds": [], "bytes": []}
    hop = jax.jit(lambda m, v: m(v))
    product = sharded.gather(layout, hop(matrix, v))
    jax.block_until_ready(hop(matrix, v))
    for _ in range(task["hops"]):
        before, began = received_bytes(), time.perf_counter()
        jax.block_until_ready(hop(matrix, v))
        samples["seconds"].append(time.perf_counter() - began)
        after = received_bytes()
        if before is not None and after is not None:
            samples["bytes"].append(after - before)
    samples["local seconds"] = _local(matrix, task)
    if process == 0:
        result = {name: min(samples[name]) for name in ("seconds", "local seconds")}
        result["bytes"] = (
            statistics.median(samples["bytes"]) if samples["bytes"] else None
        )
        (folder / "result.json").write_text(json.dumps(result))
        np.save(folder / "product.npy", product)


def random_columns(nodes: int, columns: int) -> np.ndarray:
    """Return the random dense side, the same in every process."""
    return np.random.default_rng(0).standard_normal((nodes, columns), np.float32)


def _local(matrix: Any, task: dict[str, Any]) -> list[float]:
    """Time the local product of this process while the others time theirs."""
    import jax
    import jax.numpy as jnp

    from gnnrp import sparse

    leaves = [leaf.addressable_data(0)[0] for leaf in matrix.leaves]
    local = jax.tree.unflatten(matrix.structure, leaves)
    v = jnp.ones((local.shape[1], task["columns"]), jnp.float32)
    product, times = jax.jit(sparse.matmul), []
    for _ in range(task["hops"] + 1):  # the first one compiles
        began = time.perf_counter()
        jax.block_until_ready(product(local, v))
        times.append(time.perf_counter() - began)
    return times[1:]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
