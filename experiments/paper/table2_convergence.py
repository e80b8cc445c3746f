"""Convergence table: five constructed similarities, compared with their limits.

    python -m experiments.paper.table2_convergence

RP runs step by step in float64 for each similarity. ``residual`` and ``predictions``
are the relative distances, after all steps, to the limits stated in the table.
``growth`` is the distance that predictions move in the second half of the steps,
divided by that of the first half: 0 if they converge, 1 if they drift, more if they
diverge.

Source: Theorem 3.2 and the table of App. B.2.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from experiments import runner
from gnnrp.propagation import exact
from gnnrp.runtime import checks

NUM_TRAIN = 6
TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Size and length of the runs."""

    num_nodes: int = 14
    """Nodes; the first 6 are labeled."""
    num_steps: int = 20_000
    """Number of steps of size 1 / λ_max, even."""

    SHORT: ClassVar[dict[str, Any]] = {"num_steps": 2000}


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Return a row per case, as stated in the table and as computed."""
    checks.count("num_nodes", config.num_nodes, NUM_TRAIN + 1, 1000)
    checks.count("num_steps", config.num_steps, 2)
    rng = np.random.default_rng(config.seed)
    targets = np.eye(2)[np.arange(NUM_TRAIN) % 2]
    rows = []
    for name, (build, says) in CASES.items():
        progress("cases", len(rows), len(CASES))
        S = build(rng, config.num_nodes)
        rows.append(measure(name, S, says, targets, config.num_steps))
    result = {"cases": rows, "all_as_stated": all(row["as_stated"] for row in rows)}
    return runner.Outcome(result, {}, {})


def measure(
    name: str, S: np.ndarray, says: tuple[str, str], targets: np.ndarray, num_steps: int
) -> dict:
    """Iterate RP and compare it with its limit."""
    train = np.arange(NUM_TRAIN)
    factors = exact.factorize(S[:, train], train)
    step_size = 1 / abs(factors.eigenvalues).max()
    verdict = exact.convergence(factors, targets, step_size=step_size)
    path = iterated(S, targets, step_size, num_steps)
    inverse = np.linalg.pinv(S[:NUM_TRAIN, :NUM_TRAIN], rcond=1e-10)
    residual = targets - S[:NUM_TRAIN, :NUM_TRAIN] @ inverse @ targets
    predictions = S[NUM_TRAIN:, :NUM_TRAIN] @ inverse @ targets
    start, middle, end = path
    first, second = (
        b[NUM_TRAIN:] - a[NUM_TRAIN:] for a, b in ((start, middle), (middle, end))
    )
    apart = {
        "residual": targets - end[:NUM_TRAIN] - residual,
        "predictions": end[NUM_TRAIN:] - predictions,
    }
    size = {"residual": targets, "predictions": predictions}
    distances = {
        what: float(np.linalg.norm(apart[what]) / np.linalg.norm(size[what]))
        for what in apart
    }
    found = tuple(
        "converges" if d < TOLERANCE else "does not" for d in distances.values()
    )
    told = tuple(
        "converges" if yes else "does not"
        for yes in (verdict.residual_converges, verdict.predictions_converge)
    )
    return {
        "case": name,
        "eigenvalues of S_XX": [float(f"{x:.6g}") for x in factors.eigenvalues],
        "least eigenvalue of S": float(f"{np.linalg.eigvalsh(S)[0]:.6g}"),
        **{what: float(f"{d:.3g}") for what, d in distances.items()},
        "growth": float(f"{np.linalg.norm(second) / np.linalg.norm(first):.3g}"),
        "table": says,
        "found": found,
        "explanation": verdict.explanation,
        "as_stated": found == says == told,
    }


def iterated(
    S: np.ndarray, targets: np.ndarray, step_size: float, num_steps: int
) -> list[np.ndarray]:
    """Return F_t of all nodes before the steps, after half and after all of them.

    The steps end beyond 1e150, before products overflow.
    """
    path = [np.zeros((len(S), targets.shape[1]))]
    while len(path) <= num_steps and np.abs(path[-1]).max() < 1e150:
        F = path[-1]
        path.append(F + step_size * S[:, :NUM_TRAIN] @ (targets - F[:NUM_TRAIN]))
    return [path[0], path[len(path) // 2], path[-1]]


def _psd(rng: np.random.Generator, num_nodes: int, rank: int) -> np.ndarray:
    """Return a PSD matrix whose first block has a condition number of at most 100."""
    Q, _ = np.linalg.qr(rng.standard_normal((num_nodes, rank)))
    block, _ = np.linalg.qr(rng.standard_normal((NUM_TRAIN, NUM_TRAIN)))
    root = np.concatenate([block[:, :rank], Q[NUM_TRAIN:]]) if rank < NUM_TRAIN else Q
    return root * np.linspace(0.3, 1, rank) @ root.T


def _pd_in_not_psd(rng: np.random.Generator, num_nodes: int) -> np.ndarray:
    S = _psd(rng, num_nodes, num_nodes)
    S[NUM_TRAIN:, NUM_TRAIN:] -= 2 * np.eye(num_nodes - NUM_TRAIN)
    return S


def _singular_in_not_psd(rng: np.random.Generator, num_nodes: int) -> np.ndarray:
    S = _psd(rng, num_nodes, 3)
    cross = rng.standard_normal((num_nodes - NUM_TRAIN, NUM_TRAIN))
    S[NUM_TRAIN:, :NUM_TRAIN], S[:NUM_TRAIN, NUM_TRAIN:] = cross, cross.T
    return S


def _indefinite(rng: np.random.Generator, num_nodes: int) -> np.ndarray:
    S = rng.standard_normal((num_nodes, num_nodes))
    return S + S.T


BOTH, NEITHER = ("converges", "converges"), ("does not", "does not")
CASES: dict[str, tuple[Callable[..., np.ndarray], tuple[str, str]]] = {
    "S_XX PD, S PSD": (lambda rng, n: _psd(rng, n, n), BOTH),
    "S_XX PD, S not PSD": (_pd_in_not_psd, BOTH),
    "S_XX PSD, S PSD": (lambda rng, n: _psd(rng, n, 3), BOTH),
    "S_XX PSD, S not PSD": (_singular_in_not_psd, ("converges", "does not")),
    "S_XX not PSD, S not PSD": (_indefinite, NEITHER),
}

if __name__ == "__main__":
    runner.main(Config, run, "table2_convergence")
