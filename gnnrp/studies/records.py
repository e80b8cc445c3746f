"""Records of runs: JSON objects of plain numbers, with versions, device and files."""

import dataclasses
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gnnrp.runtime import memory
from gnnrp.studies.baselines import Baseline
from gnnrp.studies.presets import PUBLISHED, SETTINGS
from gnnrp.studies.settings import RPSettings

if TYPE_CHECKING:
    from gnnrp.propagation import Report, Trajectory


def from_trajectory(
    source: Any,
    settings: RPSettings,
    trajectory: "Trajectory",
    baselines: dict[str, Baseline],
    seconds: dict[str, float],
    *,
    split_kind: str = "published",
) -> dict[str, Any]:
    """Return the record of RP, with the published score of such settings and splits."""
    as_published = SETTINGS.get(source.name) == settings and split_kind != "random"
    published = PUBLISHED.get(source.name) if as_published else None
    best = (trajectory.best_val, trajectory.best_test, trajectory.best_step)
    return {
        "dataset": source.name,
        "metric": source.metric,
        "unit": "percent",
        "method": "rp" if settings.kernel is None else "generalized-rp",
        "settings": dataclasses.asdict(settings),
        "split_kind": split_kind,
        "splits": [
            {
                "split": i,
                "val": percent(val),
                "test": percent(test),
                "best_step": int(t),
            }
            for i, (val, test, t) in enumerate(zip(*best, strict=True))
        ],
        **summary(trajectory.best_val, trajectory.best_test),
        "published": None if published is None else published._asdict(),
        "baselines": describe_baselines(baselines),
        "report": _report(trajectory.report),
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
        "platform": jax.default_backend(),
        "command": command(),
        **provenance(source, trajectory.predictions.dtype),
    }


def describe_baselines(baselines: dict[str, Baseline]) -> dict[str, Any]:
    """Return scores and settings of each baseline."""
    return {
        name: {
            **summary(each.val, each.test),
            "settings": each.settings,
            "test_by_iterations": {k: percent(x) for k, x in each.grid.items()},
        }
        for name, each in baselines.items()
    }


def _report(report: "Report") -> dict[str, Any]:
    return {
        "solver": report.solver,
        "reason": report.reason,
        "num_steps": report.num_steps,
        "diverged": [bool(x) for x in report.diverged],
        "divergences": [x and x._asdict() for x in report.divergences],
        "relative_error": report.error,
        "columns": report.num_columns,
        "convergence": [part.to_record() for part in report.convergence or ()],
    }


def provenance(source: Any, dtype: Any) -> dict[str, Any]:
    """Return memory, device, type, versions, commit and files of a run."""
    return {
        "peak_memory_bytes": memory.peak(),
        "device": str(jax.devices()[0].device_kind),
        "dtype": str(dtype),
        "versions": versions(),
        "commit": commit(),
        "files": source.files,
    }


def command() -> list[str]:
    """Return the command line, without the folder of the program."""
    return [Path(sys.argv[0]).name, *sys.argv[1:]]


def summary(val: np.ndarray, test: np.ndarray) -> dict[str, float | None]:
    """Return mean and deviation over the splits, in percent."""
    result = {}
    for name, values in (("val", val), ("test", test)):
        values = np.asarray(values, np.float64)
        std = percent(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        result |= {f"{name}_mean": percent(np.mean(values)), f"{name}_std": std}
    return result


def percent(value: Any) -> float | None:
    """Return 100 times the value, to the digits of float32; None for NaN."""
    number = float(value)
    return None if np.isnan(number) else round(100 * number, 4)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the numerical packages."""
    packages = ("gnnrp", "jax", "jaxlib", "numpy", "scipy")
    return {"python": platform.python_version()} | {
        name: metadata.version(name) for name in packages
    }


def commit() -> str | None:
    """Return the commit of this checkout, "-dirty" after changes; None without one."""
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None
    describe = ["describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    command = ["git", "-C", str(folder), *describe]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return process.stdout.strip()
