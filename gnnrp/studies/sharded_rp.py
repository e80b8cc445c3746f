"""RP on a partitioned graph, in all processes alike."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from gnnrp import metrics
from gnnrp.distributed import shards
from gnnrp.propagation import similarity
from gnnrp.runtime.options import Options
from gnnrp.studies import presets, records
from gnnrp.studies import rp as rp_study
from gnnrp.studies.settings import RPSettings


def run(
    folder: Path, settings: RPSettings, *, options: Options = Options()
) -> dict[str, Any]:
    """Run RP on the parts in a folder, in all processes alike; return the record."""
    if settings.kernel is not None:
        msg = "parts of a graph have no features; use plain RP (kernel none)"
        raise ValueError(msg)
    with presets.precision(settings.precision):
        began = time.perf_counter()
        parts = shards.read(folder)
        loaded = time.perf_counter()
        walk = similarity.walk(parts.matrix, settings.power, settings.alpha)
        jax.block_until_ready((walk, parts.targets))
        set_up = time.perf_counter()
        metadata = {"dataset": parts.name, "parts": parts.digest}
        options = dataclasses.replace(options, metadata=metadata)
        metric = metrics.by_name(parts.metric)
        trajectory = rp_study.propagate(
            walk, parts.targets, parts.splits, settings, metric, options
        )
    seconds = {
        "load": loaded - began,
        "setup": set_up - loaded,
        "run": time.perf_counter() - set_up,
    }
    record = records.from_trajectory(parts, settings, trajectory, {}, seconds)
    return record | {
        "parts": len(jax.devices()),
        "processes": jax.process_count(),
        "peak_memory_bytes": _of_all_processes(record["peak_memory_bytes"]),
    }


def _of_all_processes(num_bytes: int | None) -> list[int | None]:
    if jax.process_count() == 1 or num_bytes is None:
        return [num_bytes]
    kibibytes = np.array(num_bytes // 1024, np.int32)
    return [1024 * int(x) for x in multihost_utils.process_allgather(kibibytes)]
