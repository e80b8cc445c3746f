"""Options that every long run shares, passed on unopened to where they are used."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gnnrp.runtime import checks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Checkpoints, memory limit and progress of a run.

    Args:
        folder: of checkpoints; a run that finds its own checkpoint there resumes, and
            its results are bit-identical to those of an uninterrupted run.
        checkpoint_seconds: time between two checkpoints.
        metadata: plain JSON that a checkpoint must agree with to be resumed. An entry
            "metric", "residual_fn" or "similarity" names that function, which lambdas,
            closures and other objects that cannot be compared need.
        max_bytes: limit of the memory the process may hold; the memory of the machine
            by default.
        progress: called with (stage, done, total) between chunks of work.

    Raises:
        ValueError: ``checkpoint_seconds`` is negative, or ``max_bytes`` is less than 1.
        TypeError: ``metadata`` is not a mapping, or ``progress`` is not a function.
    """

    folder: Path | None = None
    checkpoint_seconds: float = 60.0
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    max_bytes: int | None = None
    progress: Callable[[str, int, int], None] | None = None

    def __post_init__(self) -> None:
        """Validate the options once, where they are made."""
        checks.at_least("checkpoint_seconds", self.checkpoint_seconds, 0)
        checks.instance("metadata", self.metadata, Mapping, "a dict of plain JSON")
        if self.max_bytes is not None:
            checks.at_least("max_bytes", self.max_bytes, 1)
        if self.progress is not None:
            checks.function("progress", self.progress)

    def report(self, stage: str, done: int, total: int) -> None:
        """Report progress, if the caller wants it."""
        if self.progress is not None:
            self.progress(stage, done, total)
