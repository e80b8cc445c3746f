"""Shared parts of the benchmarks: interleaved timing, floors, graphs and records."""

import contextlib
import dataclasses
import json
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
import scipy.sparse

from gnnrp import graph, plotting, sparse
from gnnrp.runtime import atomic_files, checkpoints, checks, json_files
from gnnrp.studies import records

Contestant = Callable[[], object]


def interleaved(
    contestants: Mapping[str, Contestant], repeats: int
) -> dict[str, dict[str, float]]:
    """Warm up each function, time them in interleaved rounds; return seconds by name.

    Raises:
        ValueError: ``repeats`` is less than 1.
    """
    checks.count("repeats", repeats, 1)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():
        run()
    for _ in range(repeats):
        for name, run in contestants.items():
            began = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - began)
    return {
        name: {"median": statistics.median(some), "min": min(some)}
        for name, some in times.items()
    }


def check_sizes(config: Any) -> None:
    """Check that all sizes in a benchmark's settings are positive; create its folder.

    Raises:
        OSError: the output folder cannot be written.
        ValueError: an integer, or one in a tuple, is less than 1; a tuple is empty.
    """
    if config.output is not None:
        checkpoints.prepare(config.output)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value == ():
            msg = f"{field.name} must not be empty"
            raise ValueError(msg)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, int) and not isinstance(each, bool):
                checks.count(field.name, each, 1)


def in_milliseconds(
    times: dict[str, dict[str, float]],
) -> dict[str, dict[str, float]]:
    """Convert seconds to rounded milliseconds."""
    return {
        name: {kind: round(1e3 * value, 3) for kind, value in pair.items()}
        for name, pair in times.items()
    }


def ratios(
    times: dict[str, dict[str, float]], name: str, others: list[str]
) -> dict[str, float]:
    """Return the median time of one candidate divided by those of the others."""
    return {
        other: round(times[name]["median"] / times[other]["median"], 4)
        for other in others
        if other in times
    }


def held(step: Any, *arguments: Any) -> int:
    """Return the bytes of a compiled function: inputs, outputs and temporaries."""
    leaves, structure = jax.tree.flatten(arguments)  # lowering accepts only arrays

    def flat(leaves):
        return step(*jax.tree.unflatten(structure, leaves))

    memory: Any = jax.jit(flat).lower(leaves).compile().memory_analysis()
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes
    )


def torch_or_none(notes: list[str]) -> Any:
    """Return torch, or None with a note that it is not installed."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        notes.append("torch is not installed: not measured")
        return None
    return torch


def pyg_or_none(notes: list[str]) -> Any:
    """Return torch_geometric.nn, or None with a note that it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # raised by importing torch
        try:
            from torch_geometric import nn  # pyright: ignore[reportMissingImports]
        except ImportError:
            notes.append("torch_geometric is not installed: not measured")
            return None
    return nn


def torch_csr(torch: Any, csr: Any) -> Any:
    """Return a CSR tensor; suppress torch's warning that CSR support is beta."""
    parts = (csr.indptr, csr.indices, csr.data)
    tensors = [torch.from_numpy(np.array(part)) for part in parts]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(*tensors, csr.shape)


def copying(num_floats: int = 2**25) -> tuple[Contestant, int]:
    """Return a function that copies float32 numbers, and the bytes that it moves."""
    source, target = np.ones(num_floats, np.float32), np.empty(num_floats, np.float32)
    return lambda: np.copyto(target, source), 2 * source.nbytes


def product_bytes(csr: Any, columns: int) -> int:
    """Return the bytes of A, V and A V, which a product reads or writes once."""
    rows, width = csr.shape
    return 8 * csr.nnz + 4 * (rows + 1) + 4 * columns * (rows + width)


def random_graph(num_entries: int, degree: int = 50, seed: int = 0) -> Any:
    """Return a normalized random graph of about ``entries`` entries, CSR float32."""
    rng = np.random.default_rng(seed)
    num_nodes = max(2, num_entries // degree)
    half = rng.integers(0, num_nodes, (2, num_entries // 2), np.int32)
    ones = np.ones(half.shape[1], np.float32)
    upper = scipy.sparse.coo_array((ones, half), shape=(num_nodes, num_nodes)).tocsr()
    csr = upper + upper.T
    csr.data[:] = 1
    scale = 1 / np.sqrt(np.maximum(np.diff(csr.indptr), 1)).astype(np.float32)
    csr.data *= np.repeat(scale, np.diff(csr.indptr)) * scale[csr.indices]
    return csr


def adjacency(data: Any) -> Any:
    """Return the normalized adjacency matrix of a dataset as CSR."""
    return sparse.to_scipy(graph.normalized_adjacency(data.edges, data.num_nodes))


def finish(found: dict[str, Any], name: str, output: Path | None) -> dict[str, Any]:
    """Print the results with device, versions and commit; write them to ``output``."""
    record = {
        "benchmark": name,
        **found,
        "device": str(jax.devices()[0].device_kind),
        "versions": records.versions() | _others(),
        "commit": records.commit(),
    }
    text = json_files.dumps(record)
    print(text)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        atomic_files.write(output / f"{name}.json", text.encode())
    return json.loads(text)


def _others() -> dict[str, str]:
    """Return the versions of the other libraries that are installed."""
    found = {}
    for name in ("torch", "torch_geometric", "flax"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def write_figure(figure: Any, name: str, output: Path | None) -> None:
    """Write a figure as PNG next to the record, if there is an ``output``."""
    if output is not None:
        atomic_files.write(output / f"{name}.png", plotting.png(figure))
