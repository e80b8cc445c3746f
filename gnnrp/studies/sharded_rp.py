"""RP on a graph in parts, in all processes alike."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from gnnrp import metrics, propagation
from gnnrp.distributed import shards
from gnnrp.propagation import similarity
from gnnrp.runtime import checkpoints
from gnnrp.runtime.options import Options
from gnnrp.studies import presets, records
from gnnrp.studies.presets import RPSettings


def run(
    folder: Path,
    settings: RPSettings,
    *,
    kept: Path | None = None,
    checkpoint_seconds: float = checkpoints.SECONDS,
    max_bytes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Run RP on the parts in a folder, in all processes alike; return the record.

    Args:
        folder: from ``write``.
        settings: of plain RP.
        kept: a folder of checkpoints that all processes see.
        checkpoint_seconds: between two of them.
        max_bytes: what each process may hold in all; see ``runtime.memory``.
        progress: called with (steps or vectors done, of how many).

    Raises:
        ValueError: a kernel, which needs features; what ``read`` and
            ``propagation.run`` refuse.
    """
    if settings.kernel is not None:
        msg = "parts of a graph have no features; use plain RP (kernel none)"
        raise ValueError(msg)
    wide = (
        jax.enable_x64(True)
        if settings.precision == "float64"
        else contextlib.nullcontext()
    )
    with wide:
        began = time.perf_counter()
        parts = shards.read(folder)
        loaded = time.perf_counter() - began
        walk = similarity.walk(parts.matrix, settings.power, settings.alpha)
        jax.block_until_ready((walk, parts.targets))
        setup = time.perf_counter() - began - loaded
        found = propagation.run(
            walk,
            parts.targets,
            parts.splits,
            metric=metrics.by_name(parts.metric),
            **presets.arguments(settings),
            options=Options(
                folder=kept,
                checkpoint_seconds=checkpoint_seconds,
                metadata={"dataset": parts.name, "parts": parts.digest},
                max_bytes=max_bytes,
                progress=progress and (lambda _, *counts: progress(*counts)),
            ),
        )
    ran = time.perf_counter() - began - loaded - setup
    seconds = {"load": loaded, "setup": setup, "run": ran}
    made = records.make(parts, settings, found, {}, seconds)
    return made | {
        "parts": len(jax.devices()),
        "processes": jax.process_count(),
        "peak_memory_bytes": _of_all(made["peak_memory_bytes"]),
    }


def _of_all(number: int | None) -> list[int | None]:
    """Return a number of each process."""
    if jax.process_count() == 1 or number is None:
        return [number]
    # In KiB, since it is int32.
    every = multihost_utils.process_allgather(np.array(number // 1024, np.int32))
    return [1024 * int(each) for each in every]
