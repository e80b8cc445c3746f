"""Progress of long work on standard error."""

import contextlib
import os
import shutil
import sys
import time
from typing import Any

from gnnrp.runtime import interrupts, safe_text, streams

FIRST, BETWEEN = 2.0, 10.0  # seconds before the first line, and between two of them


class Bar:
    """A bar on a terminal, a line at intervals elsewhere: steps, rate, time left."""

    def __init__(self, *, quiet: bool) -> None:
        """Show nothing yet; never anything if ``quiet``."""
        self._quiet, self._in_place = quiet, sys.stderr.isatty()
        self._bar: Any = None
        self._stage, self._since, self._start = "", 0.0, 0
        self._next = time.monotonic() + FIRST
        self._erasing = interrupts.cleanup(self._erase)

    def __enter__(self) -> "Bar":
        """Return the bar."""
        self._erasing.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        """Remove it."""
        self._close()
        self._erasing.__exit__(*raised)

    def _close(self) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.close()

    def _erase(self) -> None:
        # Blank the line, even while the bar itself is being drawn.
        if self._bar is not None and self._in_place:
            columns = shutil.get_terminal_size().columns
            os.write(sys.stderr.fileno(), f"\r{' ' * (columns - 1)}\r".encode())

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show the stage of the work, the number of steps done, and their total."""
        if self._quiet:
            return
        stage = safe_text.line(stage, 80)
        if self._in_place:
            # A terminal that has gone does not end a run.
            with contextlib.suppress(OSError):
                self._draw(stage, done, total)
        else:
            self._print(stage, done, total)

    def _draw(self, stage: str, done: int, total: int) -> None:
        if self._bar is None or self._bar.desc != stage:
            from tqdm import tqdm

            self._close()
            self._bar = tqdm(
                total=total, initial=done, desc=stage, leave=False, unit="step"
            )
            self._bar.desc = stage
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def _print(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._since, self._start = stage, now, done
        if now < self._next or done == self._start:  # there is no rate yet
            return
        from tqdm import tqdm

        line = tqdm.format_meter(
            done,
            total,
            now - self._since,
            prefix=stage,
            unit=" steps",
            initial=self._start,
            bar_format="{desc}: {n_fmt} of {total_fmt}, {rate_fmt}, {remaining} left",
        )
        streams.tell(line)
        self._next = now + BETWEEN
