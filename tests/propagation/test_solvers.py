"""Any object with the three methods of a solver takes the steps of RP."""

import dataclasses

import generators
import numpy as np
import pytest
import references
from generators import C, N

from gnnrp import metrics, propagation
from gnnrp.propagation import (
    AUTO,
    Auto,
    Exact,
    Iterate,
    Steps,
    linear_maps,
    losses,
    solvers,
)
from gnnrp.propagation.problem import evaluate
from gnnrp.runtime.options import Options


@dataclasses.dataclass(frozen=True)
class Dense:
    """Multiply by the whole matrix S at each step."""

    def unsupported(self, problem, _):
        return "targets are unknown" if problem.known is not None else None

    def cost(self, sizes):
        return solvers.Cost(num_columns=sizes.num_nodes, num_bytes=8 * sizes.num_nodes)

    def solve(self, problem, similarity, steps, evaluation, _):
        S = linear_maps.columns(similarity, np.arange(N), N)
        runs = [(step_size, steps.num_steps) for step_size in steps.step_sizes]
        return [self._solve(problem, S, *each, evaluation) for each in runs]

    def _solve(self, problem, S, step_size, num_steps, evaluation):
        R = problem.initial_residual
        F = np.zeros_like(R) if problem.initial is None else problem.initial
        norms, scores, path = [], [], []
        for _ in range(num_steps):
            norms.append(np.linalg.norm(R, axis=(1, 2)) / np.sqrt(C * 6))
            F = F + step_size * S @ R
            R = np.where(problem.train[:, :, None], problem.targets - F, 0)
            path.append(F)
            scores.append(evaluate(problem, F.swapaxes(0, 1), metric=evaluation.metric))
        val, test = np.stack(scores, axis=2)
        choice = evaluation.choose(val, problem.val.mask.any(axis=1))
        best = np.stack([path[t - 1][s] for s, t in enumerate(choice.step)])
        worst = np.zeros(len(val), int)
        return solvers.Solution(np.stack(norms, 1), val, test, worst, choice, best, N)


SOLVERS = generators.SOLVERS | {"dense": Dense()}
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=list(SOLVERS))
STEPS = Steps(0.7, 25)


def minus_error(scores, targets, mask):
    return -((scores - targets) ** 2).sum(where=mask[:, None])


def problem(seed, num_splits=1):
    """Return S, the same dense, targets and splits of six training nodes."""
    splits = generators.splits(seed, ((6, 4, 3),) * num_splits)
    case = generators.SIMILARITIES["power 2"]
    world = generators.world(seed)
    return case.make(world), case.dense(world), generators.targets(seed), splits


@pytest.mark.long
@every_solver
@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("from_zero", [True, False])
def test_every_solver_follows_the_reference(solver, num_splits, from_zero):
    S, dense, targets, splits = problem(0, num_splits)
    start = None if from_zero else np.random.default_rng(0).standard_normal((N, C))
    found = propagation.run(
        S, targets, splits, STEPS, metric=minus_error, initial=start, solver=solver
    )
    for s in range(num_splits):
        train = splits.train[s]
        F = references.residual_propagation(
            dense, targets, train, 0.7, 25, initial=start
        )
        norms = references.train_residual(F, targets, train)
        np.testing.assert_allclose(found.train_residual[s], norms, atol=1e-11)
        mask = splits.val[s]
        val = -((F[1:, mask] - targets[mask]) ** 2).sum(axis=(1, 2))
        np.testing.assert_allclose(found.val[s], val, atol=1e-10)
        step = 1 + int(np.argmax(val))
        assert found.best_step[s] == step
        np.testing.assert_allclose(found.predictions[s], F[step], atol=1e-10)
    name = solvers.name_of(solver)
    assert (found.report.solver, found.report.reason) == (name, "requested")


@pytest.mark.long
@every_solver
def test_every_solver_takes_several_step_sizes(solver):
    S, _, targets, splits = problem(1)
    settings = {"metric": minus_error, "solver": solver}
    several = propagation.run(S, targets, splits, Steps([0.3, 0.9], 25), **settings)
    for step_size, each in zip((0.3, 0.9), several, strict=True):
        alone = propagation.run(S, targets, splits, Steps(step_size, 25), **settings)
        np.testing.assert_allclose(each.val, alone.val, atol=1e-11)
        np.testing.assert_allclose(each.predictions, alone.predictions, atol=1e-11)


@pytest.mark.long
@every_solver
def test_every_solver_is_swept(solver):
    S, _, targets, splits = problem(0)
    settings = {"metric": metrics.accuracy, "solver": solver}
    table = propagation.sweep.run({2: S}, targets, splits, STEPS, **settings)
    found = propagation.run(S, targets, splits, STEPS, **settings)
    assert table.val == found.best_val
    assert table.solver.tolist() == [solvers.name_of(solver)]


@pytest.mark.long
@every_solver
def test_every_solver_reports_divergence(solver):
    S, _, targets, splits = problem(0)
    settings = {"metric": metrics.accuracy, "solver": solver}
    found = propagation.run(S, targets, splits, Steps(30.0, 25), **settings)
    assert found.report.diverged.all()
    assert found.report.divergences[0].step == 1


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=list(SOLVERS))
def test_a_solver_that_does_not_fit_in_memory_is_refused(solver, monkeypatch):
    S, _, targets, splits = problem(0)
    cost = solvers.Cost(num_columns=1, num_bytes=10**15)
    monkeypatch.setattr(type(solver), "cost", lambda *_: cost)
    name = solvers.name_of(solver)
    with pytest.raises(ValueError, match=f"the solver '{name}' on 14 nodes takes"):
        propagation.run(S, targets, splits, STEPS, metric=minus_error, solver=solver)


def test_an_unsupported_problem_is_refused_with_the_reason_and_a_remedy():
    S, _, targets, splits = problem(0)
    targets[np.argmax(splits.train), 1] = np.nan
    message = r"solver 'dense' is not supported: targets are unknown; use 'iterate'"
    with pytest.raises(ValueError, match=message):
        propagation.run(
            S, targets, splits, STEPS, metric=metrics.accuracy, solver=Dense()
        )


def test_auto_chooses_among_any_candidates():
    S, _, targets, splits = problem(0)
    auto = Auto((Iterate(), Dense()))
    found = propagation.run(S, targets, splits, STEPS, metric=minus_error, solver=auto)
    assert found.report.solver == "dense"
    assert found.report.reason == "fewest columns through S: iterate 75, dense 14"


@pytest.mark.long
def test_a_solver_resumes_only_its_own_checkpoints(tmp_path):
    S, _, targets, splits = problem(0)
    settings = {"metric": metrics.accuracy, "options": Options(folder=tmp_path)}
    propagation.run(S, targets, splits, STEPS, **settings, solver=Exact())
    with pytest.raises(ValueError, match="of another run: solver was 'exact'"):
        propagation.run(S, targets, splits, STEPS, **settings, solver=Iterate())


def test_what_is_no_solver_is_refused(monkeypatch):
    S, _, targets, splits = problem(0)
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(TypeError, match=r"solver must be a solver .*solvers\.by_name"):
        propagation.run(
            S, targets, splits, STEPS, metric=metrics.accuracy, solver="exact"
        )


def test_names_stand_for_solvers_at_the_command_line():
    assert solvers.by_name("auto") is AUTO
    for name, solver in generators.SOLVERS.items():
        assert solvers.by_name(name) == solver
    for name in ("auto", "iterate"):
        assert solvers.by_name(name, losses.softmax) == Iterate(losses.softmax)
    with pytest.raises(ValueError, match="method must be one of auto, exact, krylov"):
        solvers.by_name("direct")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 5), r"step_size must be positive and finite, got 0\.0"),
        (([0.1, -1.0], 5), r"step_size must be positive and finite, got -1\.0"),
        ((0.5, 0), "num_steps must be at least 1, got 0"),
        ((0.5, 10**8), "num_steps must be at most 10000000"),
    ],
)
def test_steps_are_validated_where_they_are_made(arguments, message):
    with pytest.raises(ValueError, match=message):
        Steps(*arguments)


def test_steps_are_python_numbers():
    steps = Steps(np.float32(0.5), 7)
    assert (steps.step_size, steps.step_sizes, steps.num_steps) == (0.5, (0.5,), 7)
    assert (steps.is_single, Steps([0.5], 7).is_single) == (True, False)
