"""Automatic choice of a similarity by its validation score.

The menu starts with powers of A. If directions count, those of C come next
(``similarity.Coupling``). With features, Gaussian kernels of hop features come
next: their scaling, hops and γ are improved one after the other, then they are smoothed
by A, and added to the best power of A. The paper's kernel comes last, and is improved
likewise if it is the best so far. Each candidate takes steps of 1.5 / λ_max(S_XX). Each
split takes the candidate and the step with the best validation score, the first of
several; no score of a test mask is computed.

Source: the paper's thesis that learning goes well where kernel, graph and labels align
suggests the report of alignments; the menu is not in the paper.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Bool, Float, Int

from gnnrp import propagation
from gnnrp.kernels import combination, features
from gnnrp.propagation import linear_maps
from gnnrp.runtime import checks, memory
from gnnrp.runtime.options import Options
from gnnrp.studies import presets, records, similarities
from gnnrp.studies import rp as rp_study
from gnnrp.studies.candidates import Candidate, Similarities, Task
from gnnrp.studies.settings import RPSettings
from gnnrp.types import LinearMap, Split

STAGE = "similarities"  # name of the progress
POWERS = (1, 2, 4, 8)
DIRECTED_POWERS = (1, 2, 4)  # C = A^2 if all edges go both ways
HOPS = (0, 1, 2, 3, 4, 6, 8)
GAMMAS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
SMOOTHING = (0, 1, 2, 3, 4, 6, 8)  # K of A^K M A^K
MAX_STANDARD = 2_000  # features; the standard scaling makes them dense
WALK_STEPS = 200
MAX_TRIALS = 24  # about, for the progress
NUM_ALIGNED = 300  # training nodes of the alignments, at most
MAX_ENTRIES = 200_000  # of the predictions of all splits that climb the ladders
NUM_FINALISTS = 2


class Trial(NamedTuple):
    """Validation scores of a candidate, and its alignment with the training labels."""

    candidate: Candidate
    step_size: float
    val: Float[np.ndarray, " t"]  # on the first t splits
    best_step: Int[np.ndarray, " t"]
    alignment: float  # A(S_XX, Y Y^T) of different training nodes; NaN without labels
    seconds: float


class Choice(NamedTuple):
    """All trials, and the best one of each split."""

    trials: list[Trial]  # on the splits of the search
    skipped: dict[str, str]  # candidate -> reason
    chosen: Int[np.ndarray, " s"]  # number of the trial
    val: Float[np.ndarray, " s"]  # its score
    best_step: Int[np.ndarray, " s"]
    predictions: Float[np.ndarray, "s n c"]  # at the best step

    def as_dict(self) -> dict[str, Any]:
        """Return the trials, and how alignment and score rank them, for a record."""
        trials = [
            {
                "name": str(trial.candidate),
                **trial.candidate.as_dict(),
                "step_size": trial.step_size,
                "val_mean": records.percent(trial.val.mean()),
                "alignment": None
                if np.isnan(trial.alignment)
                else round(trial.alignment, 4),
                "chosen_in": int((self.chosen == number).sum()),
                "seconds": round(trial.seconds, 3),
            }
            for number, trial in enumerate(self.trials)
        ]
        return {
            "trials": trials,
            "num_splits": len(self.trials[0].val),
            "skipped": self.skipped,
            "rank_correlation": self._rank_correlation(),
        }

    def _rank_correlation(self) -> float | None:
        """Return Spearman's correlation of alignment and mean validation score."""
        alignments = [trial.alignment for trial in self.trials]
        scores = [trial.val.mean() for trial in self.trials]
        varies = len(set(alignments)) > 1 and len(set(scores)) > 1
        if not (varies and np.isfinite(alignments).all()):
            return None
        found: Any = scipy.stats.spearmanr(alignments, scores)
        return round(float(found.statistic), 3)


class _Result(NamedTuple):
    """Scores and predictions of a candidate on some splits."""

    trial: Trial
    predictions: Float[np.ndarray, "s n c"]


def choose(
    task: Task,
    *,
    seconds: float,
    options: Options = Options(),
    maps: Similarities | None = None,
) -> Choice:
    """Try the menu until the time is over, and return the best of each split.

    The first candidate is always tried. Other candidates that do not fit in memory are
    skipped. A choice that was cut off by the time depends on the machine.

    Splits climb the ladders together, by their mean validation score, and each takes
    its own best candidate and step. So the menu of a split, not its choice, depends on
    the validation nodes of all of them. If there are many splits of a large graph, only
    the first ones climb (``num_searched``). The two candidates with the best mean
    then run on all splits, whatever the time, and each split chooses among these.

    Args:
        task: graph, features, targets and splits.
        seconds: time after which no other candidate is started.
        options: memory limit and progress.
        maps: similarities of the same graph and features, whose distances are shared.

    Raises:
        ValueError: a time that is not positive, a split without validation nodes, or a
            graph that does not fit in memory.
    """
    checks.positive("seconds", seconds)
    empty = np.flatnonzero(~task.val.any(axis=1))
    if len(empty):
        msg = f"a choice needs validation nodes, and split {empty[0]} has none"
        raise ValueError(msg)
    maps = maps or Similarities(task, options.max_bytes)
    best = _Best(task)
    count = num_searched(task)
    trials, skipped = _search(task, maps, best, seconds, options)
    if count < len(task.train):
        order = np.argsort([-trial.val.mean() for trial in trials], kind="stable")
        best = _Best(task)
        for number in sorted(order[:NUM_FINALISTS].tolist()):
            candidate = trials[number].candidate
            result = _try(task, candidate, maps, len(task.train), options)
            best.update(number, result)
    return Choice(trials, skipped, best.chosen, best.val, best.step, best.predictions)


def num_searched(task: Task) -> int:
    """Return the number of splits that climb the ladders: all, or at least two."""
    num_splits = len(task.train)
    return min(num_splits, max(2, MAX_ENTRIES // task.targets.size))


class _Best:
    """The best result of each split so far."""

    def __init__(self, task: Task) -> None:
        num_splits = len(task.train)
        self.val = np.full(num_splits, -np.inf)
        self.chosen, self.step = np.zeros((2, num_splits), int)
        shape = (num_splits, *task.targets.shape)
        self.predictions = np.zeros(shape, jnp.zeros(0).dtype)

    def update(self, number: int, result: _Result) -> None:
        """Take a result where its validation score is better."""
        trial = result.trial
        better = np.flatnonzero(trial.val > self.val[: len(trial.val)])
        self.val[better], self.chosen[better] = trial.val[better], number
        self.step[better] = trial.best_step[better]
        self.predictions[better] = result.predictions[better]


def _search(
    task: Task, maps: Similarities, best: _Best, seconds: float, options: Options
) -> tuple[list[Trial], dict[str, str]]:
    """Climb the menu; return the trials, and the candidates skipped with the reason."""
    began = time.perf_counter()
    trials: list[Trial] = []
    skipped: dict[str, str] = {}
    for candidate in _menu(task, trials, maps):
        reason = _obstacle(task, candidate, options.max_bytes)
        if trials and time.perf_counter() - began > seconds:
            reason = f"the {seconds:g} seconds were over"
        if reason:
            skipped[str(candidate)] = reason
            continue
        try:
            result = _try(task, candidate, maps, num_searched(task), options)
        except (combination.ConstantKernelError, memory.ShortageError) as error:
            if not trials:  # no candidate takes less memory than the first
                raise
            skipped[str(candidate)] = str(error)
            continue
        best.update(len(trials), result)
        trials.append(result.trial)
        options.report(STAGE, len(trials), max(len(trials) + 1, MAX_TRIALS))
    return trials, skipped


def _menu(task: Task, trials: list[Trial], maps: Similarities) -> Iterator[Candidate]:
    """Yield candidates; later ones depend on the trials so far."""
    for power in POWERS:
        yield Candidate((RPSettings(power=power, num_steps=WALK_STEPS),))
    for power in DIRECTED_POWERS if task.directed is not None else ():
        part = RPSettings(power=power, num_steps=WALK_STEPS)
        yield Candidate((part,), directed=(True,))
    if task.features is None:
        return
    wide = task.features.shape[1] > MAX_STANDARD
    for scaling in ("cosine",) if wide else ("standard", "cosine"):
        part = dataclasses.replace(presets.hop_settings(2), scaling=scaling)
        yield Candidate((part,))
    first = _best(trials, _has_hops)
    if first is None:  # too large
        return
    if task.directed is not None:
        yield first.candidate._replace(directed=(True,))
    for name, ladder in (("hops", HOPS), ("gamma", GAMMAS), ("power", SMOOTHING)):
        yield from _improve(trials, name, ladder, _has_hops)
    yield from _sums(task, trials, maps)
    part = RPSettings(
        power=3, num_steps=presets.HOP_STEPS, kernel="gaussian", row_normalize=True
    )
    yield Candidate((part,))
    papers = _best(trials, _is_papers)
    if papers is not None and papers is _best(trials, lambda _: True):
        for name, ladder in (("power", SMOOTHING), ("gamma", GAMMAS)):
            yield from _improve(trials, name, ladder, _is_papers)


def _improve(
    trials: list[Trial],
    name: str,
    ladder: tuple[Any, ...],
    accepts: Callable[[RPSettings], bool],
) -> Iterator[Candidate]:
    """Yield other values of a setting of the best kernel of a kind.

    In each direction of the ladder until the validation score gets no better.
    """
    start = _best_candidate(trials, accepts)
    (settings,) = start.parts
    middle = ladder.index(getattr(settings, name))
    for values in (ladder[middle + 1 :], ladder[:middle][::-1]):
        for value in values:
            part = dataclasses.replace(settings, **{name: value})
            candidate = start._replace(parts=(part,))
            yield candidate
            if _best_candidate(trials, accepts) != candidate:
                break


def _sums(task: Task, trials: list[Trial], maps: Similarities) -> Iterator[Candidate]:
    """Yield sums of the best power of A and the best hop kernel.

    Their weights are equal, or follow from the alignment with the training labels.
    """
    walk = _best(trials, lambda part: part.kernel is None)
    hops = _best(trials, _has_hops)
    if walk is None or hops is None:
        return
    both = walk.candidate, hops.candidate
    parts = tuple(each.parts[0] for each in both)
    directed = tuple(each.directed[0] for each in both)
    yield Candidate(parts, (0.5, 0.5), directed)
    index, targets = _aligned_nodes(task)
    if index is None:
        return
    try:
        flows = [maps.build(each) for each in both]
    except memory.ShortageError:
        return
    blocks = [_block(flow, index, len(task.targets)) for flow in flows]
    aligned = [combination.align(block, targets) for block in blocks]
    if max(aligned) <= 0 or 0 in aligned:  # 0: a constant kernel
        return
    weights = combination.combine(blocks, targets).weights
    if (weights > 0).all():
        shares = tuple((weights / weights.sum()).tolist())
        yield Candidate(parts, shares, directed)


def _try(
    task: Task,
    candidate: Candidate,
    maps: Similarities,
    num_splits: int,
    options: Options,
) -> _Result:
    """Run RP along a candidate on the first splits."""
    began = time.perf_counter()
    flow = maps.build(candidate)
    step_size = step_size_along(flow, task.train)
    train, val = task.train[:num_splits], task.val[:num_splits]
    last = candidate.parts[-1]
    (found,) = propagation.run(
        flow,
        task.targets,
        Split(train, val, np.zeros_like(val)),
        propagation.Steps([step_size], last.num_steps),
        metric=task.metric,
        initial=rp_study.class_shares(task.targets, train)
        if last.is_centered
        else None,
        options=Options(max_bytes=options.max_bytes),
    )
    index, targets = _aligned_nodes(task)
    alignment = float("nan")
    if index is not None:
        block = _block(flow, index, len(task.targets))
        alignment = combination.align(block, targets)
    elapsed = time.perf_counter() - began
    scores, steps = np.asarray(found.best_val), np.asarray(found.best_step)
    trial = Trial(candidate, step_size, scores, steps, alignment, elapsed)
    return _Result(trial, np.asarray(found.predictions))


def step_size_along(flow: LinearMap, train: Bool[np.ndarray, "s n"]) -> float:
    """Return 1.5 / λ_max(S_XX), with the largest λ_max of the splits."""
    inside = jnp.asarray(train.T, jnp.zeros(0).dtype)
    block = similarities.Block(flow, inside)
    largest = float(np.max(similarities.largest_eigenvalues(block, inside)))
    return presets.HOP_RATE / (largest or 1.0)  # 0: S_XX = 0, any step is the same


def _aligned_nodes(task: Task) -> tuple[Any, Any]:
    """Return training nodes of the first split and their targets for ``combine``.

    None twice if they are of several tasks, of one class, or all of different classes.
    """
    nodes = np.flatnonzero(task.train[0])
    targets = task.targets[nodes]
    binary = targets.shape[1] == 1 and np.isin(targets, (0, 1)).all()
    one_hot = np.isin(targets, (0, 1)).all() and (targets.sum(axis=1) == 1).all()
    if not (binary or one_hot):
        return None, None
    if len(nodes) > NUM_ALIGNED:
        chosen = np.random.default_rng(0).choice(len(nodes), NUM_ALIGNED, replace=False)
        nodes, targets = nodes[np.sort(chosen)], targets[np.sort(chosen)]
    if binary and targets.shape[1] == 1:
        targets = 2 * targets - 1
    pairs = np.triu_indices(len(targets), 1)
    if len(np.unique((targets @ targets.T)[pairs])) < 2:
        return None, None
    return nodes, targets


def _block(
    flow: LinearMap, index: Int[np.ndarray, " l"], num_nodes: int
) -> Float[np.ndarray, "l l"]:
    return linear_maps.columns(flow, index, num_nodes)[index]


def _obstacle(task: Task, candidate: Candidate, max_bytes: int | None) -> str | None:
    """Return the reason why a candidate is too large, or None."""
    if all(part.kernel is None for part in candidate.parts):
        return None
    num_nodes, itemsize = len(task.targets), jnp.zeros(0).dtype.itemsize
    needed = features.distance_bytes(num_nodes, itemsize=itemsize)
    needed += num_nodes**2 * itemsize  # the kernel
    if any(candidate.directed):  # distances along the edges and against them
        needed += num_nodes**2 * itemsize
    room = memory.room(max_bytes)
    if needed <= room.left:
        return None
    return f"its dense kernel {memory.compare(needed, room)}"


def _best(
    trials: Sequence[Trial], accepts: Callable[[RPSettings], bool]
) -> Trial | None:
    """Return the trial of one part with the best mean validation score, or None."""
    some = [
        trial
        for trial in trials
        if len(trial.candidate.parts) == 1 and accepts(trial.candidate.parts[0])
    ]
    return max(some, key=lambda trial: trial.val.mean(), default=None)


def _has_hops(part: RPSettings) -> bool:
    return part.hops is not None


def _is_papers(part: RPSettings) -> bool:
    return part.kernel is not None and part.hops is None


def _best_candidate(
    trials: Sequence[Trial], accepts: Callable[[RPSettings], bool]
) -> Candidate:
    """Return the candidate of the best trial; there is one."""
    found = _best(trials, accepts)
    assert found is not None
    return found.candidate
