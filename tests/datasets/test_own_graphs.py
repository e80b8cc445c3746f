"""Your own graph: from arrays or from a file, and every refusal."""

import io
import zipfile

import generators
import jax
import numpy as np
import pytest
import scipy.sparse

from gnnrp import datasets
from gnnrp.datasets import own_graphs, sbm, splits
from gnnrp.studies import auto_rp, presets
from gnnrp.studies import gntk as gntk_study
from gnnrp.studies import ntk as ntk_study
from gnnrp.studies import rp as rp_study
from gnnrp.types import Split

EDGES = np.array([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, 5]])
LABELS = np.array([0, 1, 2, 0, 1, -1])
X = np.arange(12.0).reshape(6, 2)
PARTS = splits.public(6, [0, 1, 2], [3], [4])


def test_arrays_are_kept_with_the_types_of_a_dataset():
    data = datasets.from_arrays(
        EDGES.astype(np.uint16), LABELS, features=X, splits=PARTS, name="mine"
    )
    np.testing.assert_array_equal(data.edges, EDGES)
    np.testing.assert_array_equal(data.features, X)
    np.testing.assert_array_equal(data.labels, LABELS)
    assert (data.edges.dtype, data.features.dtype) == (np.int64, np.float32)
    assert (data.name, data.num_nodes, data.num_classes) == ("mine", 6, 3)
    assert (data.metric, data.split_kind, data.folder) == ("accuracy", "given", None)
    for found, expected in zip(data.splits, PARTS, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_without_splits_the_labeled_nodes_are_split_at_random_by_the_seed():
    labels = np.arange(1000) % 3 - (np.arange(1000) % 10 == 0)
    one, same, other = (
        datasets.from_arrays(EDGES, labels, seed=seed) for seed in (4, 4, 5)
    )
    expected = splits.random(labels, 1, seed=4)
    for mask, again, wanted in zip(one.splits, same.splits, expected, strict=True):
        np.testing.assert_array_equal(mask, again)
        np.testing.assert_array_equal(mask, wanted)
    assert (one.splits.train != other.splits.train).any()
    assert one.split_kind == "random"
    np.testing.assert_array_equal(np.any(one.splits, axis=(0, 1)), labels >= 0)


def test_lists_and_graphs_without_an_edge_are_edges_too():
    data = datasets.from_arrays(EDGES.tolist(), LABELS, splits=PARTS)
    np.testing.assert_array_equal(data.edges, EDGES)
    assert datasets.from_arrays([[], []], LABELS).edges.shape == (2, 0)


def test_sparse_features_and_several_splits_stay():
    many = Split(*(np.repeat(mask, 3, axis=0) for mask in PARTS))
    data = datasets.from_arrays(
        EDGES, LABELS, features=scipy.sparse.coo_matrix(X), splits=many
    )
    assert scipy.sparse.issparse(data.features)
    np.testing.assert_array_equal(data.features.toarray(), X)
    assert data.splits.test.shape == (3, 6)
    one = datasets.from_arrays(EDGES, LABELS, splits=[mask[0] for mask in PARTS])
    assert one.splits.train.shape == (1, 6)


@pytest.mark.long
def test_every_study_takes_an_own_graph():
    drawn = sbm.generate(
        0, num_blocks=2, block_size=20, intra_probability=0.2, num_val=8, num_test=8,
        train_per_class=8,
    )  # fmt: skip
    data = datasets.from_arrays(
        drawn.edges, drawn.labels, features=drawn.features, splits=drawn.splits
    )
    with jax.numpy_dtype_promotion("standard"):
        found = rp_study.run(data, presets.RPSettings(num_steps=3)).record
        same = rp_study.run(drawn, presets.RPSettings(num_steps=3)).record
        wide = gntk_study.run(data, gntk_study.GNTKSettings(depths=(2,), num_steps=3))
        narrow = ntk_study.run(
            data, ntk_study.NTKSettings(num_steps=2, every=1, num_graphs=2)
        )
        chosen = auto_rp.run(data, seconds=1)
    assert found["test_mean"] == same["test_mean"]
    names = {record["dataset"] for record in (found, wide, narrow, chosen)}
    assert names == {"own graph"}


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"edges": EDGES.T}, ValueError, r"\(2, e\).*pass edges.T"),
        ({"edges": EDGES * 1.0}, TypeError, "integer node ids, got float64"),
        ({"edges": EDGES + 1}, ValueError, "from 0 to 5, one for each label, got 6"),
        ({"edges": EDGES - 1}, ValueError, "from 0 to 5, one for each label, got -1"),
        ({"edges": scipy.sparse.eye_array(6)}, ValueError, r"got .*; np.stack\(W"),
        ({"labels": LABELS[:, None]}, ValueError, "labels must have shape"),
        ({"labels": LABELS * 1.0}, TypeError, "class ids, whole numbers"),
        ({"labels": list("abcabc")}, TypeError, "return_inverse=True"),
        ({"labels": LABELS - 1}, ValueError, "0 to c - 1, .*, got -2 for 6 nodes"),
        ({"labels": 9 * LABELS}, ValueError, "0 to c - 1, .*, got -9 for 6 nodes"),
        ({"labels": [9, 0, 0, 0, 0, 0]}, ValueError, "got 9 for 6 nodes"),
        ({"labels": [-1] * 6}, ValueError, "at least once, got 6 unknown ones"),
        ({"features": X[:5]}, ValueError, r"shape \(6, d\) with d > 0.*\(5, 2\)"),
        ({"features": X[:, 0]}, ValueError, r"got \(6,\)"),
        ({"features": X[:, :0]}, ValueError, r"got \(6, 0\)"),
        ({"features": X + np.inf}, ValueError, "finite in float32"),
        ({"features": X * 1e300}, ValueError, "finite in float32"),
        ({"features": X.astype(str)}, TypeError, "features must hold real numbers"),
        ({"splits": PARTS[:2]}, ValueError, "three masks.*splits.public"),
        ({"splits": [[0], [1], [2]]}, TypeError, "train must be boolean"),
        ({"splits": [mask[0, :5] for mask in PARTS]}, ValueError, r"train .*\(6,\)"),
        ({"splits": (PARTS.train, PARTS.val, PARTS.val)}, ValueError, "two parts"),
        ({"splits": (PARTS.val & False, *PARTS[1:])}, ValueError, "no training node"),
        ({"splits": (~PARTS.val, *PARTS[1:])}, ValueError, "node"),
        ({"metric": "f1"}, ValueError, "metric must be one of accuracy, roc_auc"),
        ({"metric": "roc_auc"}, ValueError, "needs two classes, got 3"),
        ({"splits": None, "seed": -1}, ValueError, "seed must be at least 0"),
    ],
)
def test_what_makes_no_dataset_is_refused_in_one_sentence(change, error, match):
    arguments = {"edges": EDGES, "labels": LABELS, "splits": PARTS} | change
    with pytest.raises(error, match=match) as caught:
        generators.unchecked(datasets.from_arrays, **arguments)
    assert "\n" not in str(caught.value)


def save(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


def test_a_file_of_the_arrays_is_the_same_dataset(tmp_path):
    path = save(
        tmp_path / "mine.npz", edges=EDGES, labels=LABELS, features=X, **PARTS._asdict()
    )
    expected = datasets.from_arrays(EDGES, LABELS, features=X, splits=PARTS)
    for found in (
        datasets.load(path),
        datasets.load("mine.npz", tmp_path),
        datasets.load(tmp_path / "mine.npz", splits="published"),
    ):
        assert (found.name, found.folder) == ("mine.npz", str(tmp_path))
        assert found.files.keys() == {"mine.npz"}
        for name in ("edges", "labels", "features", "splits"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_a_file_without_masks_or_with_random_splits_follows_the_seed(tmp_path):
    bare = save(tmp_path / "bare.npz", edges=EDGES, labels=LABELS)
    full = save(tmp_path / "full.npz", edges=EDGES, labels=LABELS, **PARTS._asdict())
    expected = splits.random(LABELS, 1, seed=7)
    drawn = datasets.load(bare, seed=7), datasets.load(full, splits="random", seed=7)
    for data in drawn:
        assert (data.split_kind, data.features) == ("random", None)
        np.testing.assert_array_equal(data.splits.train, expected.train)


@pytest.mark.parametrize(
    ("arrays", "settings", "match"),
    [
        ({"labels": LABELS}, {}, "mine.npz has no array 'edges'; .*edges=edges, lab"),
        ({"edges": EDGES}, {}, "mine.npz has no array 'labels'"),
        (
            {"edges": EDGES, "labels": LABELS, "train": PARTS.train},
            {},
            "has no array 'val'.*test=test",
        ),
        (
            {"edges": EDGES, "labels": LABELS},
            {"splits": "published"},
            "has no array 'train'",
        ),
        ({"edges": EDGES.T, "labels": LABELS}, {}, r"mine.npz: edges must have shape"),
        ({"edges": EDGES, "labels": LABELS * 1.0}, {}, "mine.npz: labels must be cl"),
        ({"edges": EDGES.astype(object), "labels": LABELS}, {}, "pickled"),
        ({"edges": EDGES, "labels": LABELS.astype(str)}, {}, "member 'labels' has"),
        ({"edges": EDGES, "labels": LABELS}, {"splits": "own"}, "splits must be one"),
    ],
)
def test_files_that_make_no_dataset_are_refused_by_name(
    arrays, settings, match, tmp_path
):
    path = save(tmp_path / "mine.npz", **arrays)
    with pytest.raises((TypeError, ValueError), match=match) as caught:
        datasets.load(path, **settings)
    assert "\n" not in str(caught.value)


def test_the_graph_of_a_file_has_ids_and_needs_no_masks(tmp_path):
    labels = np.where(LABELS == 0, -7, LABELS)
    ids = np.array([f"ä{i}" for i in range(len(labels))])
    arrays = {"edges": EDGES, "labels": labels, "features": X}
    save(tmp_path / "mine.npz", **arrays, node_ids=ids, train=PARTS.train)
    found = own_graphs.read_graph(tmp_path / "mine.npz")
    np.testing.assert_array_equal(found.edges, EDGES)
    np.testing.assert_array_equal(found.labels, np.maximum(labels, -1))
    np.testing.assert_array_equal(found.features, X)
    assert found.node_ids.tolist() == ids.tolist()
    save(tmp_path / "bare.npz", edges=EDGES, labels=LABELS)
    bare = own_graphs.read_graph(tmp_path / "bare.npz")
    assert bare.features is None
    assert bare.node_ids.tolist() == [str(i) for i in range(len(LABELS))]


@pytest.mark.parametrize(
    ("node_ids", "match"),
    [
        (np.arange(3), r"node_ids must have shape \(\d+,\), got \(3,\)"),
        (np.zeros(len(LABELS), int), "must be distinct, got '0' several times"),
        (np.array(["", *"abcdefghijklmnopqrstuvwxyz"]), "not be empty, as that of nod"),
        (np.array([f"\ud800{i}" for i in range(99)]), "text that UTF-8 can encode"),
        (np.full(len(LABELS), 0.5), "member 'node_ids' has dtype float64.*astype"),
        (np.full(len(LABELS), "a", object), "pickled.*savez, and ids as text by astyp"),
        (
            np.full(len(LABELS), 0x110000, np.uint32).view("U1"),
            "text that UTF-8 can encode",
        ),
    ],
)
def test_ids_that_name_no_nodes_are_refused_in_one_sentence(node_ids, match, tmp_path):
    if len(node_ids) > 3:
        node_ids = node_ids[: len(LABELS)]
    save(tmp_path / "mine.npz", edges=EDGES, labels=LABELS, node_ids=node_ids)
    with pytest.raises(ValueError, match=match) as caught:
        own_graphs.read_graph(tmp_path / "mine.npz")
    assert "\n" not in str(caught.value)
    assert "mine.npz" in str(caught.value)


def test_missing_and_damaged_files_are_refused_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.npz cannot .*check its name"):
        datasets.load(str(tmp_path / "gone.npz"))
    path = tmp_path / "text.npz"
    path.write_text("no archive")
    with pytest.raises(ValueError, match=r"text\.npz is damaged or no npz file"):
        datasets.load(str(path))
    member = io.BytesIO()
    np.save(member, EDGES)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("edges.npy", member.getvalue()[:-9])
    with pytest.raises(ValueError, match="claims shape"):
        datasets.load(str(path))


def test_a_file_beyond_the_memory_is_refused_before_it_is_read(tmp_path):
    path = save(tmp_path / "mine.npz", edges=EDGES, labels=LABELS)
    with pytest.raises(ValueError, match="reading it takes"):
        own_graphs.read(tmp_path / "mine.npz", max_bytes=1)
    with pytest.raises(ValueError, match="reading it takes"):
        datasets.load(path, max_bytes=1)
