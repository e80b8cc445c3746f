"""The record of a run: one JSON object of plain numbers, with what produced them."""

import dataclasses
import json
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
import numpy as np

from gnnrp import _disk
from gnnrp.baselines import Line
from gnnrp.presets import PUBLISHED, SETTINGS, Settings

if TYPE_CHECKING:
    from gnnrp.propagation.residual import Trajectory


MAX_BYTES = 2**25  # of a JSON file


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
    settings: Settings,
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
        "peak_memory_bytes": peak_memory(),
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


def peak_memory() -> int | None:
    """Return the most memory this process has held, in bytes; None on Windows."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux, where getrusage would count what the parent held
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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
    folder = Path(__file__).parent
    if not (folder.parent / ".git").exists():
        return None
    describe = ["describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    command = ["git", "-C", str(folder), *describe]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def dumps(record: dict[str, Any], *, indent: int | None = 2) -> str:
    """Return the record as JSON that every parser takes (NaN and infinity as null)."""
    return json.dumps(_plain(record), indent=indent, allow_nan=False)


def load(path: Path) -> Any:
    """Return the JSON in a file, which nobody vouches for.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
        ValueError: no JSON, or more than 32 MB.
    """
    _disk.check_regular(path)
    with path.open("rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        msg = f"it has more than {MAX_BYTES} bytes"
        raise ValueError(msg)
    return json.loads(text)


def _report(found: "Trajectory") -> dict[str, Any]:
    report = found.report
    convergence = report.convergence or ()
    return {
        "solver": report.method,
        "reason": report.reason,
        "num_steps": report.num_steps,
        "diverged": [bool(x) for x in report.diverged],
        "divergences": [x and x._asdict() for x in report.divergences],
        "relative_error": report.error,
        "columns": report.columns,
        "convergence": [part._asdict() for part in convergence],
    }


def _plain(value: Any) -> Any:
    """Turn numpy's types into JSON's."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
