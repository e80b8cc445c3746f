"""A damaged checkpoint of any kind of run is refused by name, never resumed."""

import contextlib
import functools
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import generators
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from generators import adjacency, split, splits, targets

from gnnrp import metrics
from gnnrp.datasets import sbm
from gnnrp.models import gnn, objectives, training
from gnnrp.propagation import similarity
from gnnrp.runtime import atomic_files, checkpoints, fingerprint
from gnnrp.runtime.options import Options
from gnnrp.studies import ntk as ntk_study


class Stop(Exception):
    pass


def stopping(after):
    """Return a callback that ends the run at its call number ``after``."""
    calls = []

    def callback(*_):
        calls.append(1)
        if len(calls) == after:
            raise Stop

    return callback


def propagated(method, num_train, calls, folder):
    generators.run(
        similarity.Power(adjacency(0), 2),
        targets(0),
        splits(0, ((num_train, 3, 2),) * 3),
        step_sizes=(0.5,) if method == "exact" else (0.5, 1.0),
        num_steps=300,
        metric=metrics.accuracy,
        method=method,
        folder=folder,
        checkpoint_seconds=0,
        callback=stopping(calls),
    )


def swept(folder):
    generators.sweep_of(
        adjacency(0),
        targets(0),
        split(0),
        powers=(1, 2, 3, 4),
        step_sizes=(0.5, 1.0),
        num_steps=20,
        metric=metrics.accuracy,
        method="krylov",
        folder=folder,
        checkpoint_seconds=0,
        callback=stopping(4),
    )


def trained(folder):
    Y = targets(0)
    masks = [jax.numpy.asarray(mask) for mask in split(0)]
    data = training.Data(
        jax.numpy.asarray(Y), adjacency(0), jax.numpy.asarray(Y), *masks[:2]
    )
    schedule = lambda step: 0.1 / (1 + jax.numpy.asarray(step, float))  # noqa: E731
    rule = training.Rule(
        gnn.GCN(3, 4, 2, dropout=0.5),
        objectives.sgd(schedule, momentum=0.9),
        metric_fn=metrics.accuracy,
    )
    training.run(
        rule,
        data,
        jax.random.split(jax.random.key(0), 2),
        num_steps=30,
        every=5,
        callback=stopping(5),
        options=Options(
            folder=folder, metadata={"optimizer": "sgd"}, checkpoint_seconds=0
        ),
    )


def tracked(folder):
    data = sbm.generate(0, block_size=15, num_val=5, num_test=5, train_per_class=4)
    settings = ntk_study.NTKSettings(5e-3, 30, every=5, num_graphs=2, width=4)

    def progress(what, *_):
        if what == "kernels at step 20":
            raise Stop

    options = Options(folder=folder, checkpoint_seconds=0, progress=progress)
    ntk_study.run(data, settings, options=options)


KINDS = {
    "iterate": functools.partial(propagated, "iterate", 6, 5),
    "krylov": functools.partial(propagated, "krylov", 9, 9),
    "exact": functools.partial(propagated, "exact", 6, 3),
    "sweep": swept,
    "training": trained,
    "tracking": tracked,
}


class Resume(NamedTuple):
    """A stopped run, and the arguments with which its driver resumes it."""

    folder: Path
    made: tuple
    asked: tuple

    @property
    def last(self) -> Path:
        return self.folder / str(max(checkpoints.steps(self.folder)))

    def copy(self, folder: Path) -> "Resume":
        shutil.copytree(self.folder, folder, symlinks=True)
        return self._replace(folder=folder)

    def __call__(self) -> Any:
        keeper = checkpoints.Keeper(self.folder, *self.made)
        return keeper.restore(*self.asked)


@functools.cache
def stopped(kind: str, root: Path) -> Resume:
    """Stop a run when it has two checkpoints, and catch how it would be resumed."""
    seen = []

    class Caught(checkpoints.Keeper):
        def __init__(self, folder, *made):
            super().__init__(folder, *made)
            self.made = (folder, made)

        def restore(self, *asked):
            if self.made[0] is None:
                return
            seen.append(Resume(*self.made, asked))
            raise Stop

    with pytest.raises(Stop):
        KINDS[kind](root / kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "Keeper", Caught)
        with pytest.raises(Stop):
            KINDS[kind](root / kind)
    (found,) = seen
    assert len(checkpoints.steps(found.folder)) == 2
    return found


@pytest.fixture(params=KINDS)
def run(request, tmp_path, tmp_path_factory):
    made = stopped(request.param, tmp_path_factory.getbasetemp())
    return made.copy(tmp_path / "copy")


def refused(run, reason=""):
    """Return the message with which the last checkpoint is refused."""
    start = re.escape(f"the checkpoint {run.last} is damaged (")
    with pytest.raises(ValueError, match=f"^{start}.*{reason}.*") as error:
        run()
    message = str(error.value)
    assert message.endswith("); delete it to resume from the previous checkpoint")
    assert len(message) < 300 + len(str(run.last))
    return message


# Files


def removed(path):
    path.unlink()


def truncated(path):
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def emptied(path):
    path.write_bytes(b"")


def fifo(path):
    path.unlink()
    os.mkfifo(path)


def linked(path):
    beside = path.parents[3] / f"moved-{path.name}"
    shutil.move(path, beside)
    path.symlink_to(beside)


def folder(path):
    path.unlink()
    path.mkdir()


CHANGES = (removed, truncated, flipped, emptied, fifo, linked, folder)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_of_any_file_is_refused(run, change, tmp_path, capfd):
    files = [path.relative_to(run.last) for path in run.last.rglob("*")]
    files = [name for name in files if (run.last / name).is_file()]
    assert len(files) > 5
    for i, name in enumerate(files):
        hostile = run.copy(tmp_path / "a" / "b" / str(i))
        change(hostile.last / name)
        refused(hostile)
    assert capfd.readouterr() == ("", "")


def test_a_tree_with_more_or_other_entries_is_refused(run, tmp_path):
    def new_file(last):
        (last / "state.txt").write_text("")

    def new_folder(last):
        (last / "empty").mkdir()

    def new_link(last):
        (last / "d" / "link").symlink_to("/")

    def new_fifo(last):
        os.mkfifo(last / "fifo")

    def file_as_folder(last):
        shutil.rmtree(last)
        last.write_text("")

    def fifo_as_folder(last):
        shutil.rmtree(last)
        os.mkfifo(last)

    def link_as_folder(last):
        last.rename(last.parent / "elsewhere")
        last.symlink_to(last.parent / "elsewhere")

    def nothing(last):
        shutil.rmtree(last)
        last.mkdir()

    changes = (
        new_file, new_folder, new_link, new_fifo, file_as_folder, fifo_as_folder,
        link_as_folder, nothing,
    )  # fmt: skip
    for change in changes:
        hostile = run.copy(tmp_path / change.__name__)
        change(hostile.last)
        refused(hostile)


def test_a_checkpoint_under_another_number_is_refused(run, tmp_path):
    t = int(run.last.name)
    for number in (t + 1, 10 * t + 7, 10**18):
        hostile = run.copy(tmp_path / str(number))
        hostile.last.rename(hostile.folder / str(number))
        refused(hostile, r"manifest.json is not the one that was written there")
        manifest = json.loads((hostile.last / "manifest.json").read_text())
        manifest.pop("seal")
        reseal(hostile.last, manifest | {"step": number})
        refused(hostile)


def test_an_earlier_checkpoint_serves_when_the_damaged_one_is_deleted(run):
    last = run.last
    removed(last / "manifest.json")
    refused(run, "it has no manifest.json")
    shutil.rmtree(last)
    assert run() is not None
    removed(run.last / "manifest.json")
    with pytest.raises(ValueError, match=r"is damaged \(.*\); delete it to start anew"):
        run()


def test_a_checkpoint_of_another_run_in_the_folder_is_refused(run):
    folder, (settings, *more), asked = run
    other = Resume(folder, (settings | {"extra": 1}, *more), asked)
    with pytest.raises(ValueError, match="are of another run: extra was None, is 1"):
        other()


# Leaves, and the digests of all files made anew


def reseal(last, manifest):
    (last / "manifest.json").unlink()
    known = {name: x for name, x in manifest.items() if name != "files"}
    atomic_files.seal(last, **known)


def leaves_of(run):
    """Return the leaves of the last state by name, as they are on disk."""
    state = run.asked[0](int(run.last.name))
    like = checkpoints.Bound(state, np.zeros(32, np.uint8))
    names = [
        jax.tree_util.keystr(path)
        for path, _ in jax.tree_util.tree_leaves_with_path(like)
    ]
    with checkpoints.checkpointer(ocp) as manager:
        found = manager.restore(run.last.absolute())
    return dict(zip(names, (found[str(i)] for i in range(len(names))), strict=True))


def as_integers(x):
    return np.asarray(x).astype(np.int16)


def longer(x):
    return np.stack([x, x])


def with_nan(x):
    x = np.array(x)
    x[...] = np.nan
    return x


def nudged(x):
    x = np.array(x)
    x.flat[x.size // 2] += 1e-7 if x.dtype.kind == "f" else 1
    return x


def reversed_(x):
    x = np.asarray(x)
    return ~x if x.dtype.kind in "bu" else -1 - x


def shifted(x):
    x = np.asarray(x)
    return (
        ~x if x.dtype == bool else x + x.dtype.type(0.25 if x.dtype.kind == "f" else 1)
    )


SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in (as_integers, longer)]


@pytest.mark.parametrize("change", [*SLOW, with_nan, nudged])
def test_a_changed_leaf_is_refused_though_all_files_are_sealed_anew(
    run, change, tmp_path, capfd
):
    leaves = leaves_of(run)
    for i, (name, leaf) in enumerate(leaves.items()):
        leaf = np.asarray(leaf)
        if not leaf.size or (change is with_nan and leaf.dtype.kind != "f"):
            continue
        if change is nudged and leaf.dtype == bool:
            continue
        hostile = run.copy(tmp_path / "leaves" / str(i))
        last = hostile.last
        manifest = json.loads((last / "manifest.json").read_text())
        manifest.pop("seal")
        shutil.rmtree(last)
        mended = leaves | {name: change(leaf)}
        plain = {str(i): x for i, x in enumerate(mended.values())}
        with checkpoints.checkpointer(ocp) as manager:
            manager.save(last, args=ocp.args.StandardSave(plain))
        atomic_files.write(last / "manifest.json", b"{}")
        reseal(last, manifest)
        reason = "other types or shapes" if change in {as_integers, longer} else "saved"
        refused(hostile, reason)
    assert capfd.readouterr() == ("", "")


# Leaves that were changed, and saved by the package itself


def saved_anew(run, folder, leaves, **changes):
    """Return a copy of a run whose last state has other leaves, saved by ``save``."""
    hostile = run.copy(folder)
    manifest = json.loads((run.last / "manifest.json").read_text())
    made: dict[str, Any] = {
        name: manifest[name] for name in ("step", "settings", "rows")
    } | changes
    shutil.rmtree(hostile.last)
    checkpoints.save(hostile.folder, made.pop("step"), leaves, **made)
    return hostile


def bound_anew(run, folder, leaves):
    """Return a copy of a run whose last state has other leaves, and their digest."""
    manifest = json.loads((run.last / "manifest.json").read_text())
    made = manifest["step"], leaves, manifest["settings"], manifest["rows"]
    return saved_anew(run, folder, checkpoints.bind(*made))


def can_change(leaf, change):
    return leaf.size and (change is not with_nan or leaf.dtype.kind == "f")


def test_a_state_that_is_saved_anew_as_it_was_is_resumed(run, tmp_path):
    *leaves, digest = leaves_of(run).values()
    same = saved_anew(run, tmp_path / "same", [*leaves, digest])
    pairs = zip(*(jax.tree.leaves(each()) for each in (same, run)), strict=True)
    assert all(fingerprint.digest(one) == fingerprint.digest(two) for one, two in pairs)
    bound = bound_anew(run, tmp_path / "bound", leaves)
    np.testing.assert_array_equal([*leaves_of(bound).values()][-1], digest)


@pytest.mark.parametrize("change", [*SLOW, with_nan, nudged, shifted, reversed_])
def test_a_changed_leaf_that_was_saved_by_the_package_is_refused(run, change, tmp_path):
    leaves = leaves_of(run)
    reason = "other types or shapes" if change in {as_integers, longer} else "of step"
    for i, (name, leaf) in enumerate(leaves.items()):
        if can_change(leaf, change):
            mended = list((leaves | {name: change(leaf)}).values())
            refused(saved_anew(run, tmp_path / str(i), mended), reason)


def test_leaves_of_another_step_or_run_are_refused(run, tmp_path):
    leaves, t = list(leaves_of(run).values()), int(run.last.name)
    refused(saved_anew(run, tmp_path / "rows", leaves, rows=[{"step": 0}]), "rows")
    later = saved_anew(run, tmp_path / "later", leaves, step=t + 1)
    refused(later, "of another run|ends at|types or shapes|of step")
    settings, *more = run.made
    other = run._replace(made=(settings | {"extra": 1}, *more))
    refused(saved_anew(other, tmp_path / "run", leaves, settings=other.made[0]), "step")


@pytest.mark.parametrize("kind", ["iterate", "training", "tracking"])
def test_a_leaf_of_the_checkpoint_before_is_refused(kind, tmp_path, tmp_path_factory):
    run = stopped(kind, tmp_path_factory.getbasetemp())
    earlier = run.copy(tmp_path / "earlier")
    shutil.rmtree(earlier.last)
    leaves, before = (list(leaves_of(each).values()) for each in (run, earlier))
    pairs = enumerate(zip(leaves, before, strict=True))
    taken = [
        i
        for i, (new, old) in pairs
        if new.shape == old.shape and not np.array_equal(new, old)
    ]
    assert len(taken) > 2
    for i in taken:
        mixed = [*leaves[:i], before[i], *leaves[i + 1 :]]
        refused(saved_anew(run, tmp_path / str(i), mixed), "of step")


# States that were changed on purpose and bound anew

BUFFER = r"\.state\[0\].curves$"  # overwritten before it is read
UNSEEN = {
    ("iterate", with_nan): BUFFER,
    ("iterate", reversed_): BUFFER,
    ("exact", with_nan): r"\.state\[\d\]\[0\].test$",
    ("exact", reversed_): r"\.state\[\d\]\[0\].test$",
    ("sweep", with_nan): r"\.state\.(val|test)$",
    ("sweep", reversed_): r"\.state\.(val|test|diverged)$",
    ("training", reversed_): r"\.state.state.(optimizer.*trace|best.params)",
    ("tracking", reversed_): r"\.state.state.optimizer.*trace",
}
"""Changes that no check detects, as the documentation of checkpoints says."""


@pytest.mark.parametrize("change", [with_nan, reversed_])
def test_a_changed_state_that_was_bound_anew_is_refused(run, change, tmp_path, request):
    kind = request.node.callspec.params["run"]
    (*leaves, _), (*names, _) = (each(leaves_of(run)) for each in (dict.values, list))
    passed = set()
    for i, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        if not can_change(leaf, change):
            continue
        mended = [*leaves[:i], change(leaf), *leaves[i + 1 :]]
        hostile = bound_anew(run, tmp_path / "states" / str(i), mended)
        with contextlib.suppress(ValueError):
            hostile()
            passed.add(name)
        if name not in passed:
            refused(hostile)
    unseen = UNSEEN.get((kind, change), "")
    assert {name for name in passed if not re.match(unseen, name)} == set()
    assert bool(passed) == bool(unseen)


# Rows of tracking


def look(step):
    names = ("train", "val", "test", "kernel_graph", "kernel_labels", "loss")
    return {"step": step, "graphs": [dict.fromkeys(names, 0.5), {}]}


ROWS = {
    "changed digits": lambda rows: rows[-1]["graphs"][0].update(loss=7.0),
    "NaN": lambda rows: rows[-1]["graphs"][0].update(kernel_graph=np.nan),
    "a string": lambda rows: rows[0]["graphs"][1].update(loss="0.5"),
    "a boolean": lambda rows: rows[0]["graphs"][1].update(test=True),
    "a missing row": lambda rows: rows.pop(1),
    "a missing last row": lambda rows: rows.pop(),
    "a doubled row": lambda rows: rows.insert(1, rows[1]),
    "other order": lambda rows: rows.reverse(),
    "step -1": lambda rows: rows[0].update(step=-1),
    "step true": lambda rows: rows[0].update(step=False),
    "a missing key": lambda rows: rows[0].pop("step"),
    "a missing number": lambda rows: rows[1]["graphs"][0].pop("loss"),
    "a missing graph": lambda rows: rows[1]["graphs"].pop(),
    "no row": lambda rows: rows.clear(),
    "a number": lambda rows: rows.insert(0, 3),
}


@pytest.mark.parametrize("change", ROWS.values(), ids=list(ROWS))
def test_changed_rows_of_tracking_are_refused(change, tmp_path, tmp_path_factory):
    made = stopped("tracking", tmp_path_factory.getbasetemp())
    hostile = made.copy(tmp_path / "run" / "checkpoints")
    manifest = json.loads((hostile.last / "manifest.json").read_text())
    change(manifest["rows"])
    (hostile.last / "manifest.json").write_text(json.dumps(manifest))
    refused(hostile, "manifest.json is not the one that was written there")
    leaves, rows = list(leaves_of(made).values()), manifest["rows"]
    refused(saved_anew(made, tmp_path / "saved", leaves, rows=rows), "rows are not")
    bound = checkpoints.bind(
        int(made.last.name), leaves[:-1], manifest["settings"], rows
    )
    refused(saved_anew(made, tmp_path / "bound", bound, rows=rows), "row")


def test_a_changed_number_of_an_earlier_row_is_refused(tmp_path, tmp_path_factory):
    made = stopped("tracking", tmp_path_factory.getbasetemp())
    rows = json.loads((made.last / "manifest.json").read_text())["rows"]
    rows[0]["graphs"][1]["loss"] += 1e-6
    leaves = list(leaves_of(made).values())
    refused(saved_anew(made, tmp_path / "run", leaves, rows=rows), "rows are not")


def test_the_file_of_rows_is_made_anew_from_the_checkpoint(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Stop):
        tracked(folder)
    lines = folder / "tracking.jsonl"
    good = lines.read_bytes()
    assert len(good.splitlines()) == 4

    def replaced(content):
        lines.unlink()
        lines.write_bytes(content)

    for change in (
        lambda: replaced(b"{"),
        lambda: replaced(good.replace(b"0.", b"1.")),
        lambda: replaced(b"".join(reversed(good.splitlines(keepends=True)))),
        lambda: lines.unlink(),
        lambda: (lines.unlink(), os.mkfifo(lines)),
    ):
        change()
        with pytest.raises(Stop):
            tracked(folder)
        assert lines.read_bytes() == good
    lines.unlink()
    lines.mkdir()
    with pytest.raises(OSError, match=r"tracking.jsonl' is a folder"):
        tracked(folder)


# Interrupted writing


@pytest.mark.parametrize("place", ["seal", "rename"])
def test_a_kill_before_the_seal_leaves_no_checkpoint(place, tmp_path, monkeypatch):
    def save(t):
        state = checkpoints.bind(t, np.full(3, float(t)), {})
        checkpoints.save(tmp_path, t, state, {})

    def kill(*_, **__):
        raise KeyboardInterrupt

    save(1)
    with monkeypatch.context() as patch:
        patch.setattr(
            *{"seal": (atomic_files, "seal"), "rename": (Path, "rename")}[place], kill
        )
        with pytest.raises(KeyboardInterrupt):
            save(2)
    assert (tmp_path / "2.half").exists()
    assert checkpoints.steps(tmp_path) == [1]
    keeper = checkpoints.Keeper(tmp_path, {})
    np.testing.assert_array_equal(keeper.restore(lambda _: np.zeros(3)), np.ones(3))
    save(3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "3"]
