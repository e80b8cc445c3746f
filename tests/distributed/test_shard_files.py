"""Files of a partitioned graph are refused by name if any value in them is wrong.

Each mutation is made to fit the digests, so that only the values can tell.
"""

import hashlib
import itertools
import json
import os
import shutil

import jax
import numpy as np
import pytest

from gnnrp import cli, datasets, graph
from gnnrp.datasets import raw_files, sbm
from gnnrp.distributed import _files, _part_checks, partitioning, shards
from gnnrp.distributed import sharded_matrix as sharded
from gnnrp.runtime import memory

HUGE = np.finfo(np.float64).max


@pytest.fixture(scope="module")
def data():
    """A small graph with many edges, so that all kinds of entries are there."""
    found = sbm.generate(0, block_size=6, train_per_class=2, num_val=3, num_test=3)
    return found._replace(edges=np.random.default_rng(0).integers(0, 30, (2, 90)))


@pytest.fixture(scope="module", params=["halo", "gather"])
def folder(request, data, tmp_path_factory):
    """Two parts of 30 nodes, the second one of them with two blank rows."""
    made = tmp_path_factory.mktemp(request.param)
    part = (np.arange(data.num_nodes) >= 16).astype(int)
    shards.write(made, data, 2, part=part, exchange=request.param)
    return made


def forge(source, target, change=None, part=0, **stated):
    """Copy parts, change the arrays of one of them, and make all digests fit."""
    table = json.loads((source / "shards.json").read_text())
    for i in range(len(table["parts"])):
        name = f"part-{i}.npz"
        shutil.copy(source / name, target / name)
    path = target / f"part-{part}.npz"
    if change is not None:
        with np.load(path) as stored:
            arrays = {name: stored[name].copy() for name in stored.files}
        np.savez(path, **(change(arrays) or arrays))
    table["parts"][part] = hashlib.sha256(path.read_bytes()).hexdigest()
    table |= stated
    table["sha256"] = _files.digest(table)
    (target / "shards.json").write_text(json.dumps(table))


def read_all(folder):
    table = shards.contents(folder)
    for part in range(len(table["parts"])):
        _files.read_part(folder, part, table)


def put(name, at, value):
    """Return a mutation that writes one value."""

    def change(arrays):
        arrays[name][at] = value

    return change


def bytes_of_seven(name):
    def change(arrays):
        arrays[name].view(np.uint8)[0, 0] = 7

    return change


def retyped(name, dtype):
    return lambda arrays: arrays | {name: arrays[name].astype(dtype)}


def without(name):
    return lambda arrays: {k: v for k, v in arrays.items() if k != name}


def copied(name, to, source):
    def change(arrays):
        arrays[name][to] = arrays[name][source]

    return change


def swapped_columns(arrays):
    first = arrays["pointers"][1]
    arrays["indices"][:first] = arrays["indices"][:first][::-1]


def inner(arrays, rows=16):
    """Return the index of the first own entry off the diagonal."""
    row = np.repeat(np.arange(rows), np.diff(arrays["pointers"]))
    own = (arrays["indices"] < rows) & (arrays["indices"] != row)
    return np.flatnonzero(own)[0]


def foreign(arrays, rows=16):
    last = arrays["width"] - 1
    return np.flatnonzero((arrays["indices"] >= rows) & (arrays["indices"] < last))[0]


def at(where, value):
    def change(arrays):
        arrays["data"][where(arrays)] = value

    return change


def one_more_class(arrays):
    row = np.flatnonzero(arrays["targets"].sum(axis=1))[0]
    arrays["targets"][row] = 1


def no_class(arrays):
    arrays["targets"][np.flatnonzero(arrays["train"][0])[0]] = 0


def leaked(arrays):
    arrays["test"] |= arrays["train"]


def blanked(arrays):
    arrays["nodes"][0], arrays["targets"][0] = -1, 0
    for name in ("train", "val", "test"):
        arrays[name][:, 0] = False


MUTATIONS = {
    "nan entry": (at(inner, np.nan), "must lie in [0, 1], got nan"),
    "infinite entry": (at(inner, np.inf), "must lie in [0, 1], got inf"),
    "huge entry": (at(inner, HUGE), "must lie in [0, 1], got 1.79"),
    "negative entry": (at(inner, -0.25), "must lie in [0, 1], got -0.25"),
    "asymmetric entry": (at(inner, 0.123), "differs from its transpose"),
    "entry of one side": (at(foreign, 0.123), "with part 1 are not those of the other"),
    "columns in disorder": (swapped_columns, "columns of a row must ascend"),
    "repeated column": (copied("indices", 1, 0), "columns of a row must ascend"),
    "repeated node": (copied("nodes", 1, 0), "node 0 is in it twice"),
    "negative node": (put("nodes", 0, -7), "node -7 is none of 30 nodes"),
    "node of no graph": (put("nodes", 0, 30), "node 30 is none of 30 nodes"),
    "node of another part": (put("nodes", 0, 29), "not those that were put into it"),
    "node lost": (put("nodes", 0, -1), "row 0 of targets has 1 classes, for node -1"),
    "entries of no node": (blanked, "row 0 has entries but no node"),
    "nan target": (put("targets", (0, 0), np.nan), "targets[0, 0] must be 0 or 1, got"),
    "infinite target": (put("targets", (0, 0), np.inf), "must be 0 or 1, got inf"),
    "fraction as target": (put("targets", (0, 0), 0.5), "must be 0 or 1, got 0.5"),
    "two classes": (one_more_class, "of targets has 5 classes, for node"),
    "no class": (no_class, "of targets has 0 classes, for node"),
    "train byte": (bytes_of_seven("train"), "the train mask has a byte of 7"),
    "val byte": (bytes_of_seven("val"), "the val mask has a byte of 7"),
    "test byte": (bytes_of_seven("test"), "the test mask has a byte of 7"),
    "leak": (leaked, "is in both the train and the test mask"),
    "double entries": (retyped("data", np.float16), "data is float16, and must be"),
    "foreign byte order": (retyped("targets", ">f4"), "targets is >f4, and must be"),
    "short nodes": (retyped("nodes", np.int32), "nodes is int32, and must be int64"),
    "numbers as mask": (retyped("train", np.uint8), "member 'train' has dtype uint8"),
    "real indices": (retyped("indices", float), "member 'indices' has dtype float64"),
    "more splits": (
        lambda x: x | {"val": np.repeat(x["val"], 2, axis=0)},
        "val has shape (2, 16), and (1, 16) is stated",
    ),
    "fewer classes": (
        lambda x: x | {"targets": x["targets"][:, 1:]},
        "targets has shape (16, 4), and (16, 5) is stated",
    ),
    "fewer entries": (lambda x: x | {"data": x["data"][1:]}, "data has shape"),
    "fewer rows": (lambda x: x | {"nodes": x["nodes"][1:]}, "15 rows, and 16 are stat"),
    "another width": (lambda x: x | {"width": x["width"] + 1}, "are there"),
    "more bytes": (lambda x: x | {"more": np.zeros(1 << 17)}, "its table allows"),
    "pointers back": (put("pointers", 1, 40), "do not fit together"),
    **{
        f"no {name}": (without(name), f"it has no member {name!r}")
        for name in ("data", "indices", "pointers", "width", "nodes", "targets", "val")
    },
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_part_with_a_wrong_value_is_refused_by_name(name, folder, tmp_path):
    change, message = MUTATIONS[name]
    forge(folder, tmp_path, change)
    with pytest.raises(ValueError, match=r"part-0\.npz is damaged or no part") as told:
        read_all(tmp_path)
    assert message in str(told.value)
    assert str(told.value).endswith("; make the parts anew by gnnrp partition")
    assert len(str(told.value)) < 300 + len(str(tmp_path))


def fill_blank(arrays):
    arrays["pointers"][-2] = arrays["pointers"][-1]


BLANKS = {
    "blank in a mask": (put("train", (0, 15), True), "row 15 is in the train mask but"),
    "blank with a class": (put("targets", (15, 0), 1), "row 15 of targets has 1 class"),
    "padding that counts": (put("data", -1, 0.5), "is 0.5 in the column of padding"),
    "padding elsewhere": (fill_blank, "columns of a row must ascend"),
}


@pytest.mark.parametrize("name", BLANKS)
def test_blank_rows_hold_nothing(name, folder, tmp_path):
    change, message = BLANKS[name]
    forge(folder, tmp_path, change, part=1)
    with pytest.raises(ValueError, match=r"part-1\.npz is damaged or no part") as told:
        read_all(tmp_path)
    assert message in str(told.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("send", 0, 15), "the rows for a part must ascend"),
        (copied("send", 1, 0), "the rows for a part must ascend"),
        (lambda x: x | {"send": x["send"].astype(np.int64)}, "send is int64, and must"),
        (without("send"), "what it sends does not fit the rounds"),
    ],
)
def test_rows_are_sent_once_and_in_order(change, message, data, tmp_path):
    (tmp_path / "whole").mkdir()
    part = (np.arange(data.num_nodes) >= 16).astype(int)
    shards.write(tmp_path / "whole", data, 2, part=part, exchange="halo")
    forge(tmp_path / "whole", tmp_path, change)
    with pytest.raises(ValueError, match=r"part-0\.npz is damaged or no part") as told:
        read_all(tmp_path)
    assert message in str(told.value)


def test_entries_that_fit_on_their_own_side_alone_are_refused(folder, tmp_path):
    """A column less on one side, such that no value is out of range."""

    def change(arrays):
        where = foreign(arrays)
        arrays["data"][where] = np.nextafter(arrays["data"][where], 0)

    forge(folder, tmp_path, change)
    with pytest.raises(ValueError, match="with part 1 are not those of the other side"):
        read_all(tmp_path)


def test_parts_that_are_whole_are_read(folder, tmp_path):
    forge(folder, tmp_path, lambda arrays: arrays)
    read_all(tmp_path)


TABLES = {
    "rows as text": ({"rows": "16"}, "rows is '16'"),
    "rows as a boolean": ({"rows": True}, "rows is True"),
    "no node": ({"num_nodes": 0}, "num_nodes must be at least 1, got 0"),
    "more nodes": ({"num_nodes": 31}, "node_sums are not those of 31 nodes"),
    "no class": ({"num_columns": -1}, "num_columns must be at least 1"),
    "no split": ({"num_splits": 0}, "num_splits must be at least 1"),
    "other precision": ({"dtype": "float16"}, "dtype must be one of float32, float64"),
    "other metric": ({"metric": "../x"}, "metric must be one of accuracy, balanced_ac"),
    "other format": ({"format": 2}, "its format is 2, not 3"),
    "no parts": ({"parts": []}, "parts does not have one value for each of 0"),
    "numbers as digests": ({"parts": [1, 2]}, "parts does not have one value for each"),
    "a part of other name": ({"parts": ["../../x"] * 3}, "does not have one value for"),
    "one size": ({"entries": [3]}, "entries does not have one value for each of 2"),
    "negative size": ({"entries": [-3, 3]}, "entries must be at least 0, got -3"),
    "no rows": ({"rows": 0}, "rows must be at least 1, got 0"),
    "real sizes": ({"entries": [3.0, 3.0]}, "entries does not have one value for eac"),
    "sums as text": ({"node_sums": ["a", "b"]}, "node_sums does not have one value f"),
    "no sums": ({"node_sums": [[], []]}, "node_sums are not those of 30 nodes"),
    "nested sums": ({"node_sums": [[[1]], [[2]]]}, "(shards.json: "),
    "no borders": ({"borders": {}}, "borders are not those of the rounds"),
    "list of borders": ({"borders": []}, "borders is []"),
    "files of numbers": ({"files": {"a": 1}}, "files does not map names to digests"),
    "rounds as text": ({"rounds": "01"}, "rounds is '01'"),
    "a part with itself": ({"rounds": [[[[0, 0]], 3]]}, "rounds do not pair 2 parts"),
    "long name": ({"dataset": ["x" * 10**6]}, "dataset is ['xxx"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_with_a_wrong_value_is_refused_by_name(name, folder, tmp_path):
    stated, message = TABLES[name]
    forge(folder, tmp_path, **stated)
    with pytest.raises(ValueError, match="holds no parts of a graph, or they") as told:
        shards.contents(tmp_path)
    assert message in str(told.value)
    assert len(str(told.value)) < 300 + len(str(tmp_path))


@pytest.mark.parametrize("key", [*_files._KINDS, "format", "sha256", "rounds"])
def test_a_table_without_a_value_is_refused_by_name(key, folder, tmp_path):
    table = json.loads((folder / "shards.json").read_text())
    del table[key]
    if key != "sha256":
        table["sha256"] = _files.digest(table)
    (tmp_path / "shards.json").write_text(json.dumps(table))
    with pytest.raises(ValueError, match=rf"shards.json: '{key}'\)"):
        shards.contents(tmp_path)


def test_a_part_that_does_not_fit_in_memory_is_not_called_damaged(
    folder, tmp_path, monkeypatch
):
    forge(folder, tmp_path)
    room = memory.Room(0, 1000, "of this machine")
    monkeypatch.setattr(memory, "room_on_host", lambda *_: room)
    with pytest.raises(ValueError, match=r"part-0\.npz: reading it takes .* or more"):
        read_all(tmp_path)


def test_a_part_may_be_larger_than_the_files_of_a_data_set(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(raw_files, "MAX_BYTES", 4000)  # of one array in it
    forge(folder, tmp_path)
    assert (tmp_path / "part-0.npz").stat().st_size > raw_files.MAX_BYTES
    read_all(tmp_path)


def test_a_digest_of_a_border_that_is_none_is_refused(folder, tmp_path):
    forge(folder, tmp_path, borders={"0-1": "0" * 64})
    with pytest.raises(ValueError, match=r"part-0\.npz is .* with part 1 are not"):
        read_all(tmp_path)


@pytest.mark.parametrize("name", ["shards.json", "part-0.npz"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "nothing", "device"])
def test_what_is_no_file_is_refused_and_waits_for_nothing(
    kind, name, folder, tmp_path, capsys
):
    forge(folder, tmp_path)
    path = tmp_path / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=r"shards\.json: |part-0\.npz is missing or"):
        read_all(tmp_path)
    if name == "shards.json":
        assert cli.main(["rp", "--shards", str(tmp_path), "--quiet"]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_table_that_is_too_large_is_not_read(folder, tmp_path, monkeypatch):
    forge(folder, tmp_path)
    monkeypatch.setattr(_files, "_LARGEST_TABLE", 100)
    with pytest.raises(ValueError, match=r"shards.json: it has \d+ bytes"):
        shards.contents(tmp_path)


def test_targets_of_a_roc_auc_may_be_unknown(data, tmp_path):
    labels = np.where(np.arange(data.num_nodes) % 5 == 4, -1, data.labels % 2)
    binary = data._replace(labels=labels, num_classes=2, metric="roc_auc")
    shards.write(tmp_path, binary, 2)
    read_all(tmp_path)
    path = tmp_path / "forged"
    path.mkdir()
    forge(tmp_path, path, put("targets", (0, 0), 2))
    with pytest.raises(ValueError, match=r"targets\[0, 0\] must be 0 or 1 or nan, got"):
        read_all(path)


def test_every_layout_of_a_graph_passes_its_own_checks(data, tmp_path):
    rng = np.random.default_rng(0)
    for number, (parts, exchange) in enumerate(
        itertools.product((1, 2, 3, 7), ("halo", "gather", "auto"))
    ):
        where = tmp_path / str(number)
        part = rng.integers(0, parts, data.num_nodes) if number % 2 else None
        shards.write(where, data, parts, part=part, exchange=exchange)
        read_all(where)


def test_both_sides_of_a_border_have_one_digest_only_if_it_is_symmetric(data):
    csr = graph.normalized_adjacency(data.edges, data.num_nodes)
    layout = partitioning.balance(csr, 3)
    for exchange in ("halo", "gather"):
        made, rounds = sharded.blocks(csr, layout, exchange=exchange)
        found = [
            _part_checks.border_digests(block, i, 3, layout.rows, rounds)
            for i, block in enumerate(made)
        ]
        for p, q in itertools.combinations(range(3), 2):
            assert found[p].get(q) == found[q].get(p)
        entry = np.flatnonzero(made[0].indices >= layout.rows)[0]
        made[0].data[entry] /= 2
        changed = _part_checks.border_digests(made[0], 0, 3, layout.rows, rounds)
        assert changed != found[0]


@pytest.mark.parametrize("count", [1, 2, 3, 1000])
def test_sums_of_node_ids_are_those_of_closed_forms(count):
    nodes = np.arange(count)
    assert _part_checks.node_sums(nodes) == _part_checks.all_node_sums(count)
    large = np.array([-1, 2**31 - 2, 2**31 - 3])
    ids = [2**31 - 2, 2**31 - 3]
    assert _part_checks.node_sums(large) == [
        sum(i**k for i in ids) % _part_checks.PRIME for k in (1, 2, 3)
    ]


def test_a_node_in_two_parts_is_found_in_the_table(folder, tmp_path):
    table = json.loads((folder / "shards.json").read_text())
    twice = _part_checks.node_sums(np.arange(1, 17))  # 16 instead of 0, as in part 1
    forge(folder, tmp_path, node_sums=[twice, table["node_sums"][1]])
    with pytest.raises(ValueError, match="node_sums are not those of 30 nodes, each"):
        shards.contents(tmp_path)


def test_a_wrong_part_ends_the_command_in_one_sentence(tmp_path, capsys):
    shards.write(tmp_path / "one", datasets.load("sbm"), 1)
    (tmp_path / "bad").mkdir()
    forge(tmp_path / "one", tmp_path / "bad", put("data", 3, np.nan))
    assert jax.device_count() == 1
    assert cli.main(["rp", "--shards", str(tmp_path / "bad"), "--quiet"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "part-0.npz is damaged or no part file (data[3] must lie in [0, 1]" in line
