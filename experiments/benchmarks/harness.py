"""What the benchmarks share: turns, floors, graphs, records and bars."""

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
    """Run each once to warm up, then in turns; return seconds by name.

    Raises:
        ValueError: no repeat.
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
    """Refuse a size, among a benchmark's settings, that is below one; make its folder.

    Raises:
        OSError: the output's folder cannot be written.
        ValueError: a whole number, or one in a tuple, is below one; an empty tuple.
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
    """Return the same in rounded milliseconds."""
    return {
        name: {kind: round(1e3 * value, 3) for kind, value in pair.items()}
        for name, pair in times.items()
    }


def ratios(
    times: dict[str, dict[str, float]], name: str, others: list[str]
) -> dict[str, float]:
    """Return the median of one contestant over those of others that took part."""
    return {
        other: round(times[name]["median"] / times[other]["median"], 4)
        for other in others
        if other in times
    }


def held(step: Any, *arguments: Any) -> int:
    """Return the bytes that a function, compiled, holds: in, out and between."""
    leaves, structure = jax.tree.flatten(arguments)  # lowering takes bare arrays

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
    """Return torch, or note that it is not installed."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        notes.append("torch is not installed: not measured")
        return None
    return torch


def pyg_or_none(notes: list[str]) -> Any:
    """Return torch_geometric.nn, or note that it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch, by its import
        try:
            from torch_geometric import nn  # pyright: ignore[reportMissingImports]
        except ImportError:
            notes.append("torch_geometric is not installed: not measured")
            return None
    return nn


def torch_csr(torch: Any, csr: Any) -> Any:
    """Return a CSR tensor, without torch's remarks on how new its support is."""
    parts = (csr.indptr, csr.indices, csr.data)
    tensors = [torch.from_numpy(np.array(part)) for part in parts]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(*tensors, csr.shape)


def copying(num_floats: int = 2**25) -> tuple[Contestant, int]:
    """Return a plain copy of float32 numbers, and the bytes that it moves."""
    source, target = np.ones(num_floats, np.float32), np.empty(num_floats, np.float32)
    return lambda: np.copyto(target, source), 2 * source.nbytes


def product_bytes(csr: Any, columns: int) -> int:
    """Return what a product must touch once: A, V and A V, in float32 and int32."""
    rows, width = csr.shape
    return 8 * csr.nnz + 4 * (rows + 1) + 4 * columns * (rows + width)


def random_graph(num_entries: int, degree: int = 50, seed: int = 0) -> Any:
    """Return a normalized random graph of about so many entries, as CSR float32."""
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
    """Return the normalized adjacency of a data set as CSR."""
    return sparse.to_scipy(graph.normalized_adjacency(data.edges, data.num_nodes))


def finish(found: dict[str, Any], name: str, output: Path | None) -> dict[str, Any]:
    """Print the numbers with what produced them; write them where asked."""
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
    """Return the versions of what stands beside gnnrp, where it is installed."""
    found = {}
    for name in ("torch", "torch_geometric", "flax"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def write_figure(figure: Any, name: str, output: Path | None) -> None:
    """Write a figure as PNG beside the record, where asked."""
    if output is not None:
        atomic_files.write(output / f"{name}.png", plotting.png(figure))
