"""The record of a run: one JSON object of plain numbers, with what produced them."""

import dataclasses
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
import numpy as np

from gnnrp.runtime import memory
from gnnrp.studies.baselines import Line
from gnnrp.studies.presets import PUBLISHED, SETTINGS, RPSettings

if TYPE_CHECKING:
    from gnnrp.propagation import Trajectory


@runtime_checkable
class Subject(Protocol):
    """What a record tells of a data set."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def metric(self) -> str: ...  # noqa: D102
    @property
    def files(self) -> dict[str, str]: ...  # noqa: D102


def make(
    dataset: Subject,
    settings: RPSettings,
    trajectory: "Trajectory",
    lines: dict[str, Line],
    seconds: dict[str, float],
) -> dict[str, Any]:
    """Return the record; scores in percent, deviations with ddof 1 over the splits."""
    found = trajectory
    # Beside other settings, the published figure would be no comparison.
    as_published = SETTINGS.get(dataset.name) == settings
    published = PUBLISHED.get(dataset.name) if as_published else None
    return {
        "dataset": dataset.name,
        "metric": dataset.metric,
        "unit": "percent",
        "method": "rp" if settings.kernel is None else "generalized-rp",
        "settings": dataclasses.asdict(settings),
        "splits": [
            {
                "split": i,
                "val": percent(val),
                "test": percent(test),
                "best_step": int(t),
            }
            for i, (val, test, t) in enumerate(
                zip(found.best_val, found.best_test, found.best_step, strict=True)
            )
        ],
        **summary(found.best_val, found.best_test),
        "published": None if published is None else published._asdict(),
        "baselines": {
            name: {
                **summary(line.val, line.test),
                "settings": line.settings,
                "test_by_iterations": {k: percent(v) for k, v in line.grid.items()},
            }
            for name, line in lines.items()
        },
        "report": _report(found),
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
        "peak_memory_bytes": memory.peak(),
        "device": str(jax.devices()[0].device_kind),
        "platform": jax.default_backend(),
        "dtype": str(found.predictions.dtype),
        "versions": versions(),
        "commit": commit(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "files": dataset.files,
    }


def summary(val: np.ndarray, test: np.ndarray) -> dict[str, float | None]:
    """Return mean and deviation over the splits, in percent."""
    out = {}
    for name, values in (("val", val), ("test", test)):
        values = np.asarray(values, np.float64)
        out[f"{name}_mean"] = percent(np.mean(values))
        out[f"{name}_std"] = percent(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return out


def percent(value: Any) -> float | None:
    """Return 100 times the value, to the digits that float32 holds; None for NaN."""
    number = float(value)
    return None if np.isnan(number) else round(100 * number, 4)


def versions() -> dict[str, str]:
    """Return the versions of what computes."""
    packages = ("gnnrp", "jax", "jaxlib", "numpy", "scipy")
    return {"python": platform.python_version()} | {
        name: metadata.version(name) for name in packages
    }


def commit() -> str | None:
    """Return the commit of the checkout this package is run from, if it is one.

    "-dirty" follows where files that git knows are not as in that commit.
    """
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None
    describe = ["describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    command = ["git", "-C", str(folder), *describe]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _report(found: "Trajectory") -> dict[str, Any]:
    report = found.report
    convergence = report.convergence or ()
    return {
        "solver": report.solver,
        "reason": report.reason,
        "num_steps": report.num_steps,
        "diverged": [bool(x) for x in report.diverged],
        "divergences": [x and x._asdict() for x in report.divergences],
        "relative_error": report.error,
        "columns": report.num_columns,
        "convergence": [part.to_record() for part in convergence],
    }
