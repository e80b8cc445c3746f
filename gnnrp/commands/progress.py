"""A progress bar on standard error, for whatever is called back while it works."""

import sys
from typing import Any


class Bar:
    """A bar on standard error, where that is a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        """Show nothing yet; never anything if ``quiet``."""
        self._disable = True if quiet else None  # None: unless it is a terminal
        self._bar: Any = None

    def __enter__(self) -> "Bar":
        """Return the bar."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take it away."""
        if self._bar is not None:
            self._bar.close()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show what is being done, how far it is, and of how much."""
        if self._bar is None or self._bar.desc != what:
            from tqdm import tqdm

            self.__exit__()
            self._bar = tqdm(
                total=total,
                desc=what,
                leave=False,
                disable=self._disable,
                file=sys.stderr,
            )
            self._bar.desc = what
        self._bar.total = total
        self._bar.update(done - self._bar.n)
