"""Whatever is in a file, a loader reads it or says in one line that it cannot."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import hypothesis
import jax
import miniatures
import mutations
import numpy as np
import pytest
import scipy.sparse
from hypothesis import strategies
from miniatures import pickle_program, pickled_array, pickled_graph, pickled_matrix

from experiments import runner
from experiments.paper import table4_homophilic
from experiments.report import documents
from gnnrp import datasets
from gnnrp.datasets import planetoid, sbm
from gnnrp.distributed import _files, shards
from gnnrp.runtime import checkpoints

MOST = 1 << 26  # bytes that a miniature may take, whatever it claims
ABSURD = 2**60


def fuzzing(num_examples):
    return hypothesis.settings(
        max_examples=num_examples,
        deadline=20_000,  # ms
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


def with_changes(read, root, files, choices):
    """Return what is read once a file is changed, None if it is refused by name."""
    path = choices.draw(strategies.sampled_from(files))
    whole = path.read_bytes()
    content = mutations.changed(choices.draw, path, files)
    tracemalloc.start()
    try:
        path.write_bytes(content)
        return read(root)
    except (ValueError, FileNotFoundError) as error:
        told = str(error)
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        path.write_bytes(whole)
        assert most < MOST
    assert str(root) in told
    assert "\n" not in told
    return None


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def check(data):
    """Hold a dataset to what every caller relies on."""
    n = data.num_nodes
    assert n == len(data.labels) > 0
    assert data.edges.shape[0] == 2
    assert ((data.edges >= 0) & (data.edges < n)).all()
    assert all(mask.shape == (len(data.splits.train), n) for mask in data.splits)
    assert data.splits.train.any(axis=1).all()
    assert np.sum(data.splits, axis=0).max() == 1
    if data.features is not None:
        values = getattr(data.features, "data", data.features)
        assert data.features.shape[0] == n
        assert data.features.shape[1] > 0
        assert np.isfinite(np.asarray(values)).all()
    targets = datasets.targets(data)
    assert targets.shape[0] == n
    assert targets.nbytes < MOST
    datasets.statistics(data)


def fuzz(layout, root, num_examples):
    write, read = miniatures.LAYOUTS[layout]
    write(root)
    files, read_ones = files_of(root), []

    @fuzzing(num_examples)
    @hypothesis.given(choices=strategies.data())
    def run(choices):
        data = with_changes(read, root, files, choices)
        if data is not None:
            check(data)
            read_ones.append(1)

    run()
    assert 0 < len(read_ones) < num_examples  # both ends are met


@pytest.mark.parametrize("layout", miniatures.LAYOUTS)
def test_changed_files_are_valid_data_or_refused_by_name(layout, tmp_path):
    fuzz(layout, tmp_path, 40)


@pytest.mark.slow
@pytest.mark.parametrize("layout", miniatures.LAYOUTS)
def test_many_changed_files_are_valid_data_or_refused_by_name(layout, tmp_path):
    fuzz(layout, tmp_path, 1000)


# What claims to be larger than any memory


def planetoid_claims(folder):
    """Yield changes of a planetoid folder; its integers have four bytes."""
    most = 2**31 - 1
    small = miniatures._integer(4) + miniatures._integer(5) + b"\x86"
    large = miniatures._integer(most) + miniatures._integer(5) + b"\x86"
    yield "allx", (folder / "ind.cora.allx").read_bytes().replace(small, large)
    small = miniatures._integer(4) + miniatures._integer(2) + b"t"
    large = miniatures._integer(most) + miniatures._integer(2) + b"t"
    yield "ally", (folder / "ind.cora.ally").read_bytes().replace(small, large)
    yield "test.index", f"6\n{ABSURD}\n".encode()
    yield "graph", pickle_program(pickled_graph({0: [most]}))


@pytest.mark.parametrize("number", range(4))
def test_planetoid_that_claims_too_much_is_refused(number, tmp_path):
    write, read = miniatures.LAYOUTS["planetoid"]
    write(tmp_path)
    part, content = list(planetoid_claims(tmp_path))[number]
    assert content != (tmp_path / f"ind.cora.{part}").read_bytes()
    refused(read, tmp_path, tmp_path / f"ind.cora.{part}", content)


def test_planetoid_without_a_node_does_not_have_any_number_of_classes(tmp_path):
    none = pickled_array(np.zeros((0, 0), "<i4"))
    zero, most = (miniatures._integer(x) for x in (0, 2**31 - 1))
    assert zero + zero + b"t" in none
    labels = pickle_program(none.replace(zero + zero + b"t", zero + most + b"t"))
    features = scipy.sparse.csr_array((0, 3), dtype=np.float32)
    for part in ("x", "tx", "allx"):
        content = pickle_program(pickled_matrix(features))
        (tmp_path / f"ind.cora.{part}").write_bytes(content)
        (tmp_path / f"ind.cora.{part.replace('x', 'y')}").write_bytes(labels)
    (tmp_path / "ind.cora.graph").write_bytes(pickle_program(pickled_graph({})))
    (tmp_path / "ind.cora.test.index").write_bytes(b"")
    with pytest.raises(ValueError, match=r"test\.index is damaged .*there is no node"):
        planetoid.read(tmp_path, "cora")


NPZ = {
    "heterophilous": ("edges", "node_features", "node_labels", "train_masks"),
    "copurchase": ("adj_data", "adj_indptr", "attr_indices", "labels"),
    "webkb": ("train_mask", "test_mask"),
}


@pytest.mark.parametrize(
    ("layout", "member"), [(a, b) for a, names in NPZ.items() for b in names]
)
@pytest.mark.parametrize("shape", [(ABSURD,), (ABSURD, 2), (2**32, 2**32), (-1,)])
def test_arrays_that_claim_too_much_are_refused(layout, member, shape, tmp_path):
    write, read = miniatures.LAYOUTS[layout]
    write(tmp_path)
    path = next(file for file in files_of(tmp_path) if file.suffix == ".npz")
    members = mutations.unzipped(path.read_bytes())
    members[f"{member}.npy"] = mutations.claiming("<i8", shape, bytes(64))
    refused(read, tmp_path, path, mutations.zipped(members))


@pytest.mark.parametrize(
    ("layout", "file", "old"),
    [
        ("csv", "labels.csv", b"\n1\n"),
        ("csv", "edges.csv", b"\n1,"),
        ("webkb", "out1_node_feature_label.txt", b"\n1\t"),
        ("webkb", "out1_graph_edges.txt", b"\n1\t"),
        ("arxiv", "raw/edge.csv.gz", b"\n1,"),
        ("arxiv", "raw/node-label.csv.gz", b"\n1\n"),
        ("arxiv", "raw/num-node-list.csv.gz", b"12"),
        ("arxiv", "raw/num-edge-list.csv.gz", b"12"),
        ("arxiv", "split/time/train.csv.gz", b"\n3\n"),
    ],
)
def test_numbers_that_claim_too_much_are_refused(layout, file, old, tmp_path):
    write, read = miniatures.LAYOUTS[layout]
    write(tmp_path)
    packed = file.endswith(".gz")
    content = (tmp_path / file).read_bytes()
    content = gzip.decompress(content) if packed else content
    assert old in content
    content = content.replace(old, old.replace(old.strip(b"\n\t,"), b"%d" % ABSURD), 1)
    refused(
        read, tmp_path, tmp_path / file, gzip.compress(content) if packed else content
    )


def refused(read, root, path, content):
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="is damaged or no") as caught:
            read(root)
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith(str(root))


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_bombs_stay_below_a_limit_of_the_system(tmp_path):
    """What tracemalloc does not count is counted here, by the kernel."""
    miniatures.ogb(tmp_path / "ogbn_arxiv")
    bomb = gzip.compress(b"0,0\n" * 2**20) * 64  # 256 MB, and 1 GB as numbers
    (tmp_path / "ogbn_arxiv" / "raw" / "edge.csv.gz").write_bytes(bomb)
    code = (
        "import resource, sys\nfrom gnnrp import datasets\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (700 << 20,) * 2)\n"
        "try:\n    datasets.load('arxiv', sys.argv[1])\n"
        "except ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "edge.csv.gz is damaged" in done.stdout, done.stderr
    assert done.returncode == 0


# What this package writes, and reads again


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    shards.write(
        folder,
        sbm.generate(0, block_size=6, train_per_class=2, num_val=3, num_test=3),
        1,
    )
    return folder


def fuzz_parts(folder, num_examples):
    whole = shards.read(folder)

    def read(folder):
        with jax.enable_x64(True):
            return shards.read(folder)

    @fuzzing(num_examples)
    @hypothesis.given(choices=strategies.data())
    def run(choices):
        found = with_changes(read, folder, files_of(folder), choices)
        if found is not None:  # a change of what is not looked at, such as a blank
            np.testing.assert_array_equal(found.targets, whole.targets)
            assert found.matrix.shape == whole.matrix.shape

    run()


def test_changed_parts_of_a_graph_are_refused_by_name(parts):
    fuzz_parts(parts, 60)


@pytest.mark.slow
def test_many_changed_parts_of_a_graph_are_refused_by_name(parts):
    fuzz_parts(parts, 1500)


def forge(source, target, changed=None, **stated):
    """Copy parts with some members changed and a table that says what it should not."""
    table = json.loads((source / "shards.json").read_text())
    for part in range(len(table["parts"])):
        path = target / f"part-{part}.npz"
        members = mutations.unzipped((source / path.name).read_bytes())
        members |= {f"{name}.npy": x for name, x in (changed or {}).items()}
        path.write_bytes(
            mutations.zipped({name: x for name, x in members.items() if x is not None})
        )
        table["parts"][part] = hashlib.sha256(path.read_bytes()).hexdigest()
    table |= stated
    table["sha256"] = _files.digest(table)
    (target / "shards.json").write_text(json.dumps(table))


@pytest.mark.parametrize(
    ("member", "array"),
    [
        ("pointers", mutations.claiming("<i4", (ABSURD,), bytes(64))),
        ("nodes", mutations.claiming("<i8", (2**31,), bytes(64))),
        ("nodes", mutations.saved(np.arange(3))),
        ("targets", mutations.saved(np.array([{}]))),
        ("data", None),
        ("pointers", mutations.saved(np.arange(31) * 10**6)),
        ("width", mutations.saved(np.array(2**40))),
        ("send", mutations.saved(np.arange(3))),
    ],
)
def test_parts_that_somebody_made_to_fit_their_digests_are_refused(
    parts, member, array, tmp_path
):
    forge(parts, tmp_path, {member: array})
    with pytest.raises(ValueError, match=r"part-0.npz is damaged or no part file"):
        shards.read(tmp_path)


@pytest.mark.parametrize("rows", [ABSURD, 2, -1])
def test_rows_that_a_table_of_contents_only_claims_are_refused(parts, rows, tmp_path):
    forge(parts, tmp_path, rows=rows)
    expected = (
        rf"30 rows, and {rows} are stated|rows must be at (least 1|most \d+), got"
    )
    with pytest.raises(ValueError, match=expected):
        shards.read(tmp_path)


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    folder = tmp_path_factory.mktemp("halves")
    data = sbm.generate(0, block_size=6, train_per_class=2, num_val=3, num_test=3)
    part = np.arange(data.num_nodes) // 15  # the one edge crosses
    shards.write(folder, data, 2, part=part, exchange="halo")
    return folder


@pytest.mark.parametrize(
    ("member", "change"),
    [
        ("send", lambda send: send - 16),
        ("send", lambda send: send + 16),
        ("send", lambda send: send[:-1]),
        ("indices", lambda indices: indices + 64),
        ("indices", lambda indices: -1 - indices),
    ],
)
def test_rows_out_of_bounds_are_neither_sent_nor_read(halves, member, change, tmp_path):
    inside = np.load(halves / "part-0.npz")[member]
    forge(halves, tmp_path, {member: mutations.saved(change(inside))})
    table = shards.contents(tmp_path)
    with pytest.raises(ValueError, match=r"part-0.npz is damaged or no part file"):
        _files.read_part(tmp_path, 0, table)


@pytest.mark.parametrize(
    "rounds",
    [
        [[[[0, 1], [1, 0]], 0]],
        [[[[0, 1], [0, 1]], 3]],
        [[[[0, 2]], 3]],
        [[[[0, 1, 1]], 3]],
        [[[[0, 1.0]], 3]],
        [[[], 3]],
        [7],
        {},
    ],
)
def test_rounds_that_are_none_are_refused(halves, rounds, tmp_path):
    forge(halves, tmp_path, rounds=rounds)
    with pytest.raises(ValueError, match="holds no parts of a graph, or they are"):
        shards.contents(tmp_path)


def test_a_changed_table_of_contents_is_told_from_the_one_written(halves, tmp_path):
    text = (halves / "shards.json").read_text()
    assert shards.contents(halves)["rounds"]
    (tmp_path / "shards.json").write_text(
        text.replace('"metric": "acc', '"metric": "aac')
    )
    with pytest.raises(ValueError, match="or they are damaged or of another version"):
        shards.contents(tmp_path)


def test_json_nested_without_end_is_refused(tmp_path, monkeypatch):
    deep = "[" * 100_000
    (tmp_path / "shards.json").write_text(deep)
    with pytest.raises(ValueError, match="holds no parts of a graph"):
        shards.contents(tmp_path)
    for name in ("table2_convergence", "table4_homophilic"):
        (tmp_path / f"{name}.json").write_text(deep)
        with pytest.raises(ValueError, match="is damaged or of another version"):
            documents.section(tmp_path, name)
    monkeypatch.setattr(runner.records, "commit", lambda: "c" * 40)
    (tmp_path / "parts").mkdir()
    config = table4_homophilic.Config(output=tmp_path, datasets=("sbm",))
    for text in (deep, "", "[]", "{}", '{"key": 1'):
        (tmp_path / "parts" / "x_sbm.json").write_text(text)
        with pytest.raises(
            ValueError, match=r"x_sbm.json is damaged; delete it to compute"
        ):
            next(runner.each(config, "x", lambda _: {}))


def test_a_changed_part_of_an_experiment_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(runner.records, "commit", lambda: "c" * 40)
    config = table4_homophilic.Config(output=tmp_path, datasets=("sbm",))

    def run():
        ((_, value),) = runner.each(config, "x", lambda _: {"test": 0.5})
        return value

    assert run() == {"test": 0.5}
    part = tmp_path / "parts" / "x_sbm.json"
    good = part.read_text()
    stored = json.loads(good)
    missing = {name: x for name, x in stored.items() if name != "sha256"}
    for text in (good.replace("0.5", "0.6"), json.dumps(missing)):
        part.write_text(text)
        with pytest.raises(ValueError, match="is damaged; delete it to compute it aga"):
            run()
    part.write_text(good)
    assert run() == {"test": 0.5}
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(ValueError, match="is damaged; delete it to compute it again"):
        run()


RESULTS = Path(documents.__file__).parents[1] / "results"


@pytest.mark.parametrize("name", ["table2_convergence", "table4_homophilic"])
def test_changed_records_are_reported_or_refused_by_name(name, tmp_path):
    path = tmp_path / f"{name}.json"
    path.write_bytes((RESULTS / path.name).read_bytes())

    @fuzzing(40)
    @hypothesis.given(choices=strategies.data())
    def run(choices):
        found = with_changes(
            lambda _: documents.section(tmp_path, name), tmp_path, [path], choices
        )
        if found is not None:
            documents.markdown([found])

    run()


def fuzz_checkpoint(folder, num_examples):
    """A state comes back as it was kept, or not at all."""
    state = {"x": np.random.default_rng(0).random((30, 3)), "t": np.arange(4)}
    like = jax.tree.map(np.zeros_like, state)
    bound = checkpoints.bind(1, state, {"width": 3})
    checkpoints.save(folder, 1, bound, {"width": 3})
    files = files_of(folder)

    def read(folder):
        return checkpoints.Keeper(folder, {"width": 3}).restore(lambda _: like)

    @fuzzing(num_examples)
    @hypothesis.given(choices=strategies.data())
    def run(choices):
        found = with_changes(read, folder, files, choices)
        if found is not None:
            jax.tree.map(np.testing.assert_array_equal, found, state)

    run()


def test_a_changed_checkpoint_is_the_same_or_refused_by_name(tmp_path):
    fuzz_checkpoint(tmp_path, 20)


@pytest.mark.slow
def test_many_changed_checkpoints_are_the_same_or_refused_by_name(tmp_path):
    fuzz_checkpoint(tmp_path, 500)
