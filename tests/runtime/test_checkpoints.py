"""A run is kept now and then and where it is interrupted, and goes on bitwise."""

import logging
import os
import signal
import threading

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from generators import adjacency, split, splits, targets

from gnnrp import metrics
from gnnrp.propagation import losses, similarity
from gnnrp.runtime import checkpoints, memory, process

SETTINGS = {"width": 3}


def offer(keeper, t):
    keeper.save_if_due(t, lambda: np.full(3, float(t)))


def like(_):
    return np.zeros(3)


def numbers(folder):
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit())


def test_without_a_folder_nothing_is_kept_and_ctrl_c_does_not_wait(tmp_path):
    usual = signal.getsignal(signal.SIGINT)
    with checkpoints.Keeper(None, SETTINGS, 0) as keeper:
        assert keeper.restore(like) is None
        offer(keeper, 1)
        keeper.save(2, lambda: np.zeros(3))
        assert signal.getsignal(signal.SIGINT) is usual
    assert not list(tmp_path.iterdir())


def test_states_are_kept_when_it_is_time_and_the_last_one_always(tmp_path):
    with checkpoints.Keeper(tmp_path / "rare", SETTINGS, 1000) as keeper:
        for t in range(1, 5):
            offer(keeper, t)
        assert numbers(tmp_path / "rare") == []
        keeper.save(5, lambda: np.full(3, 5.0))
        keeper.save(5, lambda: pytest.fail("kept already"))
    assert numbers(tmp_path / "rare") == [5]
    with checkpoints.Keeper(tmp_path / "always", SETTINGS, 0) as keeper:
        for t in range(1, 5):
            offer(keeper, t)
    assert numbers(tmp_path / "always") == [3, 4]
    with checkpoints.Keeper(tmp_path / "always", SETTINGS, 0) as keeper:
        np.testing.assert_array_equal(keeper.restore(like), np.full(3, 4.0))


def test_what_a_kill_left_half_written_is_removed_without_a_word(tmp_path):
    told = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logger = logging.getLogger("absl")
    with checkpoints.Keeper(tmp_path, SETTINGS, 0) as keeper:
        offer(keeper, 1)
    half = tmp_path / "2.orbax-checkpoint-tmp"
    logger.addHandler(handler)
    try:
        for name in ("state", "settings"):
            (half / f"{name}.orbax-checkpoint-tmp").mkdir(parents=True)
        assert checkpoints.latest(tmp_path) == 1
        with checkpoints.Keeper(tmp_path, SETTINGS, 0) as keeper:
            np.testing.assert_array_equal(keeper.restore(like), np.full(3, 1.0))
            offer(keeper, 2)
    finally:
        logger.removeHandler(handler)
    assert told == []
    assert not half.exists()
    assert numbers(tmp_path) == [1, 2]


def test_runs_in_threads_leave_the_logger_as_it_was(tmp_path):
    logger = logging.getLogger("absl")
    before = logger.level

    def run(folder):
        for t in range(3):
            with checkpoints.Keeper(folder, SETTINGS, 0) as keeper:
                keeper.restore(like)
                offer(keeper, t)

    threads = [threading.Thread(target=run, args=[tmp_path / str(i)]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [numbers(tmp_path / str(i))[-1] for i in range(4)] == [2] * 4
    assert logger.level == before


def test_writing_takes_a_fiftieth_of_the_time_at_most(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: clock[0])
    kept = []

    def slow(_, t, *__):
        clock[0] += 10
        kept.append(t)

    monkeypatch.setattr(checkpoints, "save", slow)
    with checkpoints.Keeper(tmp_path, SETTINGS, 60) as keeper:
        for t in range(1, 200):
            clock[0] += 10
            offer(keeper, t)
    assert kept[0] == 6
    assert set(np.diff(kept)) == {50}


def test_ctrl_c_waits_for_the_next_offer_and_a_second_one_does_not(tmp_path):
    usual = signal.getsignal(signal.SIGINT)
    reached = []

    def interrupted(times):
        with checkpoints.Keeper(tmp_path / "run", SETTINGS, 1000) as keeper:
            offer(keeper, 6)
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
                reached.append(times)
            offer(keeper, 7)

    with pytest.raises(KeyboardInterrupt, match=r"interrupted; saved step 7 in .*run"):
        interrupted(1)
    assert numbers(tmp_path / "run") == [7]
    with pytest.raises(KeyboardInterrupt) as second:
        interrupted(2)
    assert reached == [1, 2]
    assert str(second.value) == ""
    assert signal.getsignal(signal.SIGINT) is usual


def test_ctrl_c_after_the_last_offer_is_not_forgotten(tmp_path):
    def interrupted_late():
        with checkpoints.Keeper(tmp_path, SETTINGS, 0) as keeper:
            offer(keeper, 3)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="interrupted; saved step 3 in"):
        interrupted_late()


@pytest.mark.parametrize("method", ["iterate", "krylov", "exact"])
def test_a_finished_run_is_kept_however_short(tmp_path, method):
    settings = asked(method, checkpoint_seconds=1000, num_steps=20)
    whole = generators.run(**settings, folder=tmp_path)
    assert numbers(tmp_path)
    again = generators.run(
        **settings, folder=tmp_path, callback=lambda *_: pytest.fail("it goes on")
    )
    jax.tree.map(np.testing.assert_array_equal, arrays(again), arrays(whole))


def test_what_memory_allows_does_not_part_a_run_from_itself(tmp_path):
    settings = asked("krylov", split=splits(0, ((9, 3, 2),) * 3))
    whole = generators.run(**settings)
    allowed = memory.process_bytes() + 2**28
    with pytest.raises(Stop):
        generators.run(
            **settings, folder=tmp_path, max_bytes=allowed, callback=stopping(6)
        )
    found = generators.run(**settings, folder=tmp_path, max_bytes=2 * allowed)
    jax.tree.map(np.testing.assert_array_equal, arrays(found), arrays(whole))


def test_what_does_not_serve_is_refused_by_name(tmp_path):
    with checkpoints.Keeper(tmp_path / "run", SETTINGS, 0) as keeper:
        offer(keeper, 1)
    other = checkpoints.Keeper(tmp_path / "run", {"width": 4}, 0)
    with pytest.raises(ValueError, match="of another run: width was 3, is 4; choose"):
        other.restore(like)
    for file in (tmp_path / "run").rglob("*"):
        if file.is_file():
            file.write_bytes(b"damaged")
    same = checkpoints.Keeper(tmp_path / "run", SETTINGS, 0)
    with pytest.raises(ValueError, match=r"the checkpoint .*run.1 is damaged \("):
        same.restore(like)
    with pytest.raises(ValueError, match="checkpoint_seconds must be at least 0, got"):
        checkpoints.Keeper(tmp_path, SETTINGS, -1)


def test_the_last_checkpoint_names_its_step_and_run(tmp_path):
    assert checkpoints.origin(tmp_path / "run") is None
    with checkpoints.Keeper(tmp_path / "run", SETTINGS, 0) as keeper:
        offer(keeper, 1)
        offer(keeper, 3)
    found = checkpoints.origin(tmp_path / "run")
    assert found == {"run_id": process.RUN_ID, "step": 3}


@pytest.mark.parametrize("text", ["", "{", "[" * 10**5, "[]", '{"run_id": 7}', "{}"])
def test_a_checkpoint_that_names_no_run_still_has_a_step(text, tmp_path):
    with checkpoints.Keeper(tmp_path, SETTINGS, 0) as keeper:
        offer(keeper, 1)
    (tmp_path / "1" / "manifest.json").write_text(text)
    assert checkpoints.origin(tmp_path) == {"run_id": None, "step": 1}


def test_what_cannot_be_kept_as_json_is_refused_before_the_run(tmp_path):
    with pytest.raises(TypeError, match="place must be plain JSON to be stored"):
        checkpoints.Keeper(tmp_path, {"place": tmp_path})
    assert not list(tmp_path.iterdir())


class Stop(Exception):
    pass


def stopping(after):
    """Return a callback that ends the run at its call number ``after``."""
    calls = []

    def told(*_):
        calls.append(1)
        if len(calls) == after:
            raise Stop

    return told


def asked(method, **change):
    return {
        "similarity": similarity.Power(adjacency(0), 2),
        "targets": targets(0),
        "split": splits(0, ((6, 4, 3),) * 3),
        "step_sizes": (0.5, 1.0),
        "num_steps": 300,
        "metric": metrics.accuracy,
        "method": method,
        "checkpoint_seconds": 0,
        **change,
    }


@pytest.mark.parametrize(
    ("method", "calls"), [("iterate", 5), ("krylov", 6), ("exact", 2)]
)
def test_each_method_goes_on_bitwise(tmp_path, method, calls):
    change = {} if method != "krylov" else {"split": splits(0, ((9, 3, 2),) * 3)}
    settings = asked(method, **change)
    whole = generators.run(**settings)
    with pytest.raises(Stop):
        generators.run(**settings, folder=tmp_path, callback=stopping(calls))
    reached, seen = max(numbers(tmp_path)), []
    found = generators.run(
        **settings, folder=tmp_path, callback=lambda done, _: seen.append(done)
    )
    assert seen[0] == reached + 1
    jax.tree.map(np.testing.assert_array_equal, arrays(found), arrays(whole))
    assert repr([each.report for each in found]) == repr([x.report for x in whole])


def defined_late(scores, targets, mask):
    score = metrics.accuracy(scores, targets, mask)
    return jnp.where(jnp.max(scores) > 0.6, score, jnp.nan)


WITHOUT_VAL = splits(0, ((6, 4, 3),) * 3)._replace(val=np.zeros((3, 14), bool))


@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("iterate", {"split": WITHOUT_VAL}),
        ("iterate", {"metric": defined_late, "select": "last"}),
        ("iterate", {"residual_fn": losses.sigmoid, "patience": 3, "select": "last"}),
        ("iterate", {"step_sizes": (40.0, 0.5), "metric": metrics.roc_auc}),
        ("krylov", {"split": splits(0, ((9, 3, 2),) * 3), "step_sizes": (1e30, 0.1)}),
        ("exact", {"metric": metrics.roc_auc}),
        ("exact", {"split": WITHOUT_VAL, "step_sizes": (40.0, 0.5)}),
        ("exact", {"initial": np.random.default_rng(0).random((14, 3))}),
    ],
)
def test_no_run_is_taken_for_damaged_when_it_resumes(tmp_path, method, change):
    settings = asked(method, **{"num_steps": 40, **change})
    whole = generators.run(**settings)
    with pytest.raises(Stop):
        generators.run(**settings, folder=tmp_path, callback=stopping(3))
    for _ in range(2):  # the second one resumes a finished run
        found = generators.run(**settings, folder=tmp_path)
        jax.tree.map(np.testing.assert_array_equal, arrays(found), arrays(whole))


def arrays(found):
    return [tuple(each)[:-1] for each in found]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"num_steps": 301}, "num_steps"),
        ({"step_sizes": (0.5, 2.0)}, "step_sizes"),
        ({"metric": metrics.roc_auc}, "metric"),
        ({"select": "last"}, "rule"),
        ({"patience": 9}, "patience"),
        ({"similarity": similarity.Power(adjacency(0), 4)}, "similarity"),
        ({"similarity": similarity.Power(adjacency(1), 2)}, "graph"),
        ({"split": splits(1, ((6, 4, 3),) * 3)}, "targets and splits"),
        ({"metadata": {"dataset": "other"}}, "dataset"),
    ],
)
def test_a_run_does_not_go_on_from_another_one(kept_run, change, name):
    with pytest.raises(ValueError, match=f"of another run: {name} was"):
        generators.run(**asked("iterate", **change), folder=kept_run)


@pytest.fixture(scope="module")
def kept_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    generators.run(**asked("iterate"), folder=folder)
    return folder


@pytest.mark.parametrize("method", ["auto", "iterate"])
def test_a_sweep_goes_on_bitwise(tmp_path, method):
    settings = {
        "powers": (1, 2, 3, 4),
        "step_sizes": (0.5, 1.0),
        "num_steps": 20,
        "metric": metrics.accuracy,
        "method": method,
        "checkpoint_seconds": 0,
    }
    data = (adjacency(0), targets(0), split(0))
    whole = generators.sweep_of(*data, **settings)
    with pytest.raises(Stop):
        generators.sweep_of(*data, **settings, folder=tmp_path, callback=stopping(3))
    seen = []
    found = generators.sweep_of(
        *data, **settings, folder=tmp_path, callback=lambda done, _: seen.append(done)
    )
    assert seen == [3, 4]
    for one, other in zip(found, whole, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    with pytest.raises(ValueError, match="of another run: powers was"):
        generators.sweep_of(*data, **settings | {"powers": (1, 2)}, folder=tmp_path)
