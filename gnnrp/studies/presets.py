"""Published settings and scores of each dataset."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax

from gnnrp.runtime import checks
from gnnrp.studies.settings import RPSettings


def precision(name: str) -> AbstractContextManager[Any]:
    """Return a context with float64 if it is named; a caller's float64 stays on."""
    return jax.enable_x64(True) if name == "float64" else nullcontext()


HOP_RATE = 1.5  # η λ_max
HOP_STEPS = 5_000


def hop_settings(num_hops: int) -> RPSettings:
    """Return settings for a Gaussian kernel of hop features; not the paper's."""
    return RPSettings(
        step_size=HOP_RATE,
        power=0,
        num_steps=HOP_STEPS,
        kernel="gaussian",
        hops=num_hops,
    )


class Figure(NamedTuple):
    """A published score, in percent."""

    test: float
    std: float | None = None
    val: float | None = None


def _generalized(
    step_size: float,
    alpha: float,
    power: int,
    gamma: float,
    num_steps: int,
    **rest: Any,
) -> RPSettings:
    first = (step_size, power, alpha, num_steps, "gaussian", gamma)
    return RPSettings(*first, select="last", **rest)


SETTINGS: dict[str, RPSettings] = {
    "cora": _generalized(10, 1, 3, 1, 20_000, row_normalize=True),
    "citeseer": _generalized(10, 1, 3, 20, 1_000, row_normalize=True),
    "pubmed": _generalized(100, 1, 4, 1, 50_000, row_normalize=True),
    "computers": _generalized(1, 1, 1, 0.25, 100),
    "photo": _generalized(1, 1, 1, 0.25, 100),  # found by a scan, see SCRIPT_SETTINGS
    "cs": _generalized(1, 1, 1, 20, 5_000, row_normalize=True),
    "physics": _generalized(1, 1, 1, 20, 5_000, row_normalize=True),
    "roman-empire": _generalized(1, 1, 0, 1, 10_000),
    "amazon-ratings": _generalized(2, 1, 0, 1, 50_000),
    # Equivalent nodes of its grid tie in float64; round-off of float32 would rank them.
    "minesweeper": _generalized(1, 1, 1, 10, 1_000, precision="float64"),
    # Its scores end on plateaus flatter than the round-off of float32.
    "tolokers": _generalized(1, 0.5, 3, 10, 1_000, precision="float64"),
    "questions": _generalized(5, 1, 2, 1, 10_000),
    "arxiv": RPSettings(step_size=1, power=7, num_steps=100),
    "proteins": RPSettings(step_size=1, power=1, num_steps=100),
    "products": RPSettings(step_size=4, power=8, num_steps=100),
    # Not the paper's: the generated graph, the web graphs and Actor.
    "sbm": _generalized(20, 1, 3, 0.005, 1_000),
    "texas": _generalized(1, 1, 0, 1, 1_000, row_normalize=True),
    "cornell": _generalized(1, 1, 0, 1, 1_000, row_normalize=True),
    "wisconsin": _generalized(1, 1, 0, 1, 1_000, row_normalize=True),
    "chameleon": _generalized(1, 1, 0, 1, 1_000, row_normalize=True),
    "squirrel": _generalized(1, 1, 0, 1, 1_000, row_normalize=True),
    "chameleon-filtered": _generalized(1, 1, 0, 1, 1_000, row_normalize=True),
    "squirrel-filtered": _generalized(1, 1, 0, 1, 1_000, row_normalize=True),
    "actor": _generalized(1, 1, 0, 1, 1_000, row_normalize=True),
}
"""Tables 1, 4 and 5, and the authors' scripts for values that the text omits."""

SCRIPT_SETTINGS = {"photo": _generalized(1, 1, 3, 0.1, 500)}
"""Values of the authors' scripts that do not give the published score.

On the published split of Photo they give 94.11. ``SETTINGS`` has the values of
Computers, which give the published 95.55. A scan of settings for that score found them
(``experiments.paper.settings_scan``), so they are plausible, not proven.
"""

PUBLISHED: dict[str, Figure] = {
    "cora": Figure(82.7),
    "citeseer": Figure(73.0),
    "pubmed": Figure(80.1),
    "computers": Figure(92.00),
    "photo": Figure(95.55),
    "cs": Figure(94.60),
    "physics": Figure(96.75),
    "roman-empire": Figure(66.01, 0.56),
    "amazon-ratings": Figure(47.95, 0.57),
    "minesweeper": Figure(80.48, 0.76),
    "tolokers": Figure(78.05, 0.90),
    "questions": Figure(76.39, 1.16),
    "arxiv": Figure(70.06, val=71.37),
    "proteins": Figure(78.17, val=85.19),
    "products": Figure(78.25, val=91.31),
}


def settings(name: str, *, has_features: bool = True) -> RPSettings:
    """Return the published settings of a dataset.

    Args:
        name: of the dataset.
        has_features: without them, settings with a kernel become those of plain RP.

    Raises:
        ValueError: unknown name.
    """
    checks.one_of("dataset", name, SETTINGS)
    published = SETTINGS[name]
    if published.kernel is not None and not has_features:
        return RPSettings(power=max(1, published.power))
    return published


def settings_or_default(name: str, *, has_features: bool = True) -> RPSettings:
    """Return the published settings, or those of plain RP for a graph of your own."""
    if name not in SETTINGS:
        return RPSettings()
    return settings(name, has_features=has_features)
