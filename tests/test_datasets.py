"""Readers on miniature files: what they find, and what they refuse."""

import gzip
import io
import pickle
import sys
import zipfile
from functools import partial

import hypothesis
import miniatures
import numpy as np
import pytest
from hypothesis import strategies

from gnnrp import datasets
from gnnrp.datasets import (
    _files,
    copurchase,
    heterophilous,
    ogb,
    planetoid,
    sbm,
    splits,
    webkb,
)

# name of the layout -> writer, reader
LAYOUTS = {
    "planetoid": (
        miniatures.planetoid,
        partial(planetoid.read, name="cora"),
    ),
    "heterophilous": (
        miniatures.heterophilous,
        partial(heterophilous.read, name="tolokers"),
    ),
    "csv": (
        miniatures.roman_empire_csv,
        partial(heterophilous.read_csv, name="roman-empire"),
    ),
    "webkb": (
        miniatures.webkb,
        partial(webkb.read, name="texas"),
    ),
    "copurchase": (
        miniatures.copurchase,
        partial(copurchase.read, name="photo"),
    ),
    "arxiv": (
        partial(miniatures.ogb, name="arxiv", features=True),
        partial(ogb.read, name="arxiv"),
    ),
    "proteins": (
        partial(miniatures.ogb, name="proteins"),
        partial(ogb.read, name="proteins"),
    ),
    "products": (
        partial(miniatures.ogb, name="products", features=True),
        partial(ogb.read, name="products"),
    ),
}
layouts = pytest.mark.parametrize("layout", LAYOUTS)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """No test sees this machine's data; the cache is an empty folder."""
    folder = tmp_path / "cache"
    monkeypatch.delenv("GNNRP_DATA", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _: str(folder))
    return folder


@pytest.fixture
def offline(monkeypatch):
    def retrieve(*_, **__):
        msg = "no route to host\nand a second line"
        raise OSError(msg)

    monkeypatch.setattr("pooch.retrieve", retrieve)


def dense(features):
    return features.toarray() if hasattr(features, "toarray") else features


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def unzipped(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def rewrite_npz(path, **changes):
    """Replace or, with None, remove members."""
    members = unzipped(path.read_bytes())
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            change = changes.get(name.removesuffix(".npy"), content)
            if isinstance(change, np.ndarray):
                stream = io.BytesIO()
                np.save(stream, change)
                change = stream.getvalue()
            if change is not None:
                archive.writestr(name, change)


@layouts
def test_readers_find_what_was_written(layout, tmp_path):
    write, read = LAYOUTS[layout]
    written = write(tmp_path)
    data = read(tmp_path)
    np.testing.assert_array_equal(data.edges, written.edges)
    np.testing.assert_array_equal(data.labels, written.labels)
    assert data.edges.dtype == np.int64
    assert data.num_nodes == len(written.labels)
    if written.features is None:
        assert data.features is None
    else:
        assert data.features.dtype == np.float32
        np.testing.assert_array_equal(dense(data.features), written.features)
    for mask in data.splits:
        assert mask.dtype == bool
        assert mask.shape == (len(data.splits.train), data.num_nodes)
    assert np.sum(data.splits, axis=0).max() == 1
    assert {tmp_path / name for name in data.files} == set(files_of(tmp_path))
    assert data.folder == str(tmp_path)


def test_missing_test_ids_keep_their_place_without_label_and_features(tmp_path):
    miniatures.planetoid(tmp_path)
    data = planetoid.read(tmp_path, "cora")
    assert data.num_nodes == 7
    assert data.labels[5] == -1
    assert not dense(data.features)[5].any()
    assert not any(mask[:, 5].any() for mask in data.splits)
    np.testing.assert_array_equal(np.flatnonzero(data.splits.test), [4, 6])
    np.testing.assert_array_equal(np.flatnonzero(data.splits.train), [0, 1])
    np.testing.assert_array_equal(np.flatnonzero(data.splits.val), [2, 3])


def test_targets_are_one_hot_with_a_zero_row_for_unknown_labels(tmp_path):
    miniatures.planetoid(tmp_path)
    data = planetoid.read(tmp_path, "cora")
    targets = datasets.targets(data)
    assert targets.dtype == np.float32
    np.testing.assert_array_equal(targets[:2], [[1, 0], [0, 1]])
    np.testing.assert_array_equal(targets[5], [0, 0])


def test_targets_of_roc_auc_have_a_column_a_task(tmp_path):
    miniatures.heterophilous(tmp_path)
    data = heterophilous.read(tmp_path, "tolokers")
    np.testing.assert_array_equal(datasets.targets(data)[:, 0], data.labels)
    unknown = data._replace(labels=np.where(data.labels == 0, -1, 1))
    assert np.isnan(datasets.targets(unknown)).sum() == (data.labels == 0).sum()
    written = miniatures.ogb(tmp_path, "proteins")
    proteins = ogb.read(tmp_path, "proteins")
    np.testing.assert_array_equal(datasets.targets(proteins), written.labels)
    assert proteins.metric == "roc_auc"
    assert proteins.num_classes == 2


def test_statistics_count_edges_by_convention(tmp_path):
    miniatures.planetoid(tmp_path)
    data = planetoid.read(tmp_path, "cora")
    # 0-1, 0-2, 2-3, 4-5, 5-6; the last two have an unknown end.
    assert datasets.statistics(data).num_edges == 10
    assert datasets.statistics(data).edge_homophily == pytest.approx(1 / 3)
    once, lines = (data._replace(edge_convention=name) for name in ("once", "lines"))
    assert datasets.statistics(once).num_edges == 5
    assert datasets.statistics(lines).num_edges == 13
    miniatures.ogb(tmp_path, "proteins")
    proteins = datasets.statistics(ogb.read(tmp_path, "proteins"))
    assert np.isnan(proteins.edge_homophily)
    assert proteins.num_features == 0


def test_published_numbers_exist_for_every_name():
    for name in datasets.names():
        datasets.published(name)
    assert datasets.published("cora").num_edges == 10_556
    assert datasets.published("sbm").num_edges is None


# Where files are looked for


def test_root_comes_before_environment_before_cache(tmp_path, cache, monkeypatch):
    root, env = tmp_path / "root", tmp_path / "env"
    assert datasets.find("tolokers", root) is None
    miniatures.heterophilous(cache / "tolokers")
    assert datasets.find("tolokers", root) == cache / "tolokers"
    miniatures.heterophilous(env / "tolokers")
    monkeypatch.setenv("GNNRP_DATA", str(env))
    assert datasets.find("tolokers", root) == env / "tolokers"
    miniatures.heterophilous(root / "tolokers")
    assert datasets.find("tolokers", root) == root / "tolokers"
    assert datasets.load("tolokers", root).folder == str(root / "tolokers")


@pytest.mark.parametrize(
    ("name", "folder", "write"),
    [
        ("cora", "cora", partial(miniatures.planetoid, name="cora")),
        ("cora", "Cora/raw", partial(miniatures.planetoid, name="cora")),
        ("citeseer", "CiteSeer/raw", partial(miniatures.planetoid, name="citeseer")),
        ("pubmed", ".", partial(miniatures.planetoid, name="pubmed")),
        ("photo", "Photo/raw", miniatures.copurchase),
        (
            "computers",
            "Computers/raw",
            partial(miniatures.copurchase, file="amazon_electronics_computers.npz"),
        ),
        ("cs", "CS/raw", partial(miniatures.copurchase, file="ms_academic_cs.npz")),
        (
            "physics",
            "coauthor_physics",
            partial(miniatures.copurchase, file="ms_academic_phy.npz"),
        ),
        ("texas", "texas/geom_gcn", miniatures.webkb),
        ("texas", "texas/raw", miniatures.webkb),
        ("texas", "texas", partial(miniatures.heterophilous, name="texas")),
        ("cornell", "cornell/raw", partial(miniatures.webkb, name="cornell")),
        ("tolokers", ".", miniatures.heterophilous),
        (
            "minesweeper",
            "minesweeper/raw",
            partial(miniatures.heterophilous, name="minesweeper"),
        ),
        (
            "roman-empire",
            "roman_empire/raw",
            partial(miniatures.heterophilous, name="roman-empire"),
        ),
        ("roman-empire", "roman_empire", miniatures.roman_empire_csv),
        ("arxiv", "ogbn_arxiv", miniatures.ogb),
        ("arxiv", "ogbn-arxiv", miniatures.ogb),
        ("arxiv", "arxiv", miniatures.ogb),
        ("products", "products", partial(miniatures.ogb, name="products")),
        ("proteins", "ogbn_proteins", partial(miniatures.ogb, name="proteins")),
    ],
)
def test_layouts_of_usual_downloads_are_found(name, folder, write, tmp_path):
    write(tmp_path / "base" / folder)
    data = datasets.load(name, tmp_path / "base", download=False)
    assert data.folder == str(tmp_path / "base" / folder)
    assert data.name == name
    if folder != ".":  # the folder of the dataset itself may be given as well
        assert datasets.find(name, tmp_path / "base" / folder.split("/")[0])


def test_texas_prefers_the_lines_the_paper_counts(tmp_path):
    miniatures.heterophilous(tmp_path / "texas", "texas")
    assert datasets.load("texas", tmp_path).edge_convention == "once"
    miniatures.webkb(tmp_path / "texas" / "geom_gcn")
    assert datasets.load("texas", tmp_path).edge_convention == "lines"


def test_roman_empire_prefers_the_file_with_features(tmp_path):
    miniatures.roman_empire_csv(tmp_path / "roman_empire")
    assert datasets.load("roman-empire", tmp_path).features is None
    miniatures.heterophilous(tmp_path / "roman_empire", "roman-empire")
    assert datasets.load("roman-empire", tmp_path).features is not None


def test_files_that_do_not_tell_their_dataset_are_not_taken_from_a_bare_folder(
    tmp_path,
):
    miniatures.roman_empire_csv(tmp_path)
    miniatures.ogb(tmp_path)
    assert datasets.find("roman-empire", tmp_path) is None
    assert datasets.find("arxiv", tmp_path) is None


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'citeseer'"):
        datasets.load("citeser")
    with pytest.raises(ValueError, match="did you mean 'arxiv'"):
        datasets.find("arxv")


@pytest.mark.usefixtures("offline")
def test_missing_files_are_named_with_places_and_remedy(tmp_path, monkeypatch, cache):
    monkeypatch.setenv("GNNRP_DATA", str(tmp_path / "env"))
    miniatures.planetoid(tmp_path / "root" / "cora")
    (tmp_path / "root" / "cora" / "ind.cora.graph").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        datasets.load("cora", tmp_path / "root", download=False)
    message = str(caught.value)
    for part in ("'cora'", "ind.cora.graph", "GNNRP_DATA", "https://", "planetoid"):
        assert part in message
    for place in (tmp_path / "root", tmp_path / "env", cache):
        assert str(place) in message
    assert "\n" not in message


@pytest.mark.usefixtures("offline")
def test_failed_downloads_end_in_the_same_sentence():
    with pytest.raises(FileNotFoundError, match="no route to host") as caught:
        datasets.load("tolokers")
    assert "\n" not in str(caught.value)
    assert "heterophilous-graphs" in str(caught.value)


@pytest.mark.usefixtures("offline")
def test_ogb_sets_name_the_archive_and_ask_nothing(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    with pytest.raises(FileNotFoundError, match=r"nodeproppred/products\.zip"):
        datasets.load("products")


def test_downloads_go_to_the_cache_and_are_found_there_again(monkeypatch, cache):
    monkeypatch.setattr("sys.stdin", None)
    calls = []

    def retrieve(url, known_hash, fname, path, **_):
        calls.append((url, known_hash))
        assert fname == "tolokers.npz"
        miniatures.heterophilous(path)

    monkeypatch.setattr("pooch.retrieve", retrieve)
    data = datasets.load("tolokers")
    assert data.folder == str(cache / "tolokers")
    datasets.load("tolokers", download=False)
    ((url, known_hash),) = calls
    assert url.startswith("https://raw.githubusercontent.com/yandex-research/")
    assert known_hash.startswith("sha256:dacf3ac9")


def test_every_file_with_an_address_has_a_hash():
    from gnnrp.datasets import _hashes, catalog

    for sources in catalog.SOURCES.values():
        for source in sources:
            assert len(source.urls) in {0, len(source.files)}
            if source.urls and sources.index(source) == 0:
                assert all(len(_hashes.SHA256[file]) == 64 for file in source.files)


# Damaged and hostile files


@layouts
def test_truncated_files_are_refused_by_name(layout, tmp_path):
    write, read = LAYOUTS[layout]
    write(tmp_path)
    for path in files_of(tmp_path):
        whole = path.read_bytes()
        textual = path.suffix in {".txt", ".csv", ".index"}
        for length in {0, 1, 2, 5, *np.linspace(6, len(whole) - 1, 15, dtype=int)}:
            path.write_bytes(whole[:length])
            if textual:  # what is left may be a smaller, consistent file
                refuse_or_read(read, tmp_path)
                continue
            with pytest.raises(ValueError, match=r"is damaged or not") as caught:
                read(tmp_path)
            assert str(caught.value).startswith(str(path))
        path.write_bytes(whole)
    read(tmp_path)


def refuse_or_read(read, folder):
    try:
        return read(folder)
    except ValueError as error:
        assert str(error).startswith(str(folder))  # noqa: PT017
        return None


@layouts
@hypothesis.settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(choices=strategies.data())
def test_changed_bytes_are_read_or_refused_but_never_crash(layout, tmp_path, choices):
    write, read = LAYOUTS[layout]
    write(tmp_path)
    path = choices.draw(strategies.sampled_from(files_of(tmp_path)))
    content = bytearray(path.read_bytes())
    for _ in range(choices.draw(strategies.integers(1, 3))):
        position = choices.draw(strategies.integers(0, len(content) - 1))
        content[position] = choices.draw(strategies.integers(0, 255))
    path.write_bytes(content)
    data = refuse_or_read(read, tmp_path)
    if data is not None:
        assert data.edges.size == 0 or data.edges.max() < data.num_nodes
        assert np.sum(data.splits, axis=0).max() <= 1


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("part", ["x", "graph", "ally"])
def test_hostile_pickles_are_refused_and_not_run(part, protocol, tmp_path):
    miniatures.planetoid(tmp_path)
    marker = tmp_path / "marker"

    class Hostile:
        def __reduce__(self):
            return eval, (f"open({str(marker)!r}, 'w')",)

    (tmp_path / f"ind.cora.{part}").write_bytes(pickle.dumps(Hostile(), protocol))
    with pytest.raises(ValueError, match=f"ind.cora.{part} is damaged or not"):
        planetoid.read(tmp_path, "cora")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("module", "name"), [("os", "system"), ("__builtin__", "eval"), ("numpy", "load")]
)
def test_globals_outside_the_list_are_named(module, name, tmp_path):
    miniatures.planetoid(tmp_path)
    argument = f"touch {tmp_path}/marker".encode()
    body = miniatures.opcode_global(module, name)
    body += b"T" + len(argument).to_bytes(4, "little") + argument + b"\x85R"
    path = tmp_path / "ind.cora.graph"
    path.write_bytes(miniatures.pickle_program(body))
    with pytest.raises(ValueError, match=rf"ind\.cora\.graph .*{module}\.{name}"):
        planetoid.read(tmp_path, "cora")
    assert not (tmp_path / "marker").exists()


def test_memo_indices_that_would_take_gigabytes_are_refused(tmp_path):
    miniatures.planetoid(tmp_path)
    body = b"}r\xff\xff\xff\x7f"  # LONG_BINPUT of 2^31 - 1
    (tmp_path / "ind.cora.graph").write_bytes(miniatures.pickle_program(body))
    with pytest.raises(ValueError, match="memo index 2147483647"):
        planetoid.read(tmp_path, "cora")


def test_lists_that_are_shared_to_look_huge_are_refused(tmp_path):
    miniatures.planetoid(tmp_path)
    neighbors = b"](" + b"K\x01" * 1000 + b"eq\x05"  # stored once, put in the memo
    items = b"K\x00" + neighbors
    items += b"".join(b"K" + bytes([node]) + b"h\x05" for node in range(1, 200))
    factory = miniatures.pickled_graph({}).split(b"(")[0]
    body = factory + b"(" + items + b"u"
    (tmp_path / "ind.cora.graph").write_bytes(miniatures.pickle_program(body))
    with pytest.raises(ValueError, match="200000 adjacency entries"):
        planetoid.read(tmp_path, "cora")


@pytest.mark.parametrize("line", [str(2**60), "9" * 30, "-4", "3", "6", "four", ""])
def test_absurd_test_ids_are_refused(line, tmp_path):
    miniatures.planetoid(tmp_path)
    path = tmp_path / "ind.cora.test.index"
    path.write_text(f"6\n{line}\n")
    with pytest.raises(ValueError, match=r"ind\.cora\.test\.index is damaged"):
        planetoid.read(tmp_path, "cora")


@pytest.mark.parametrize("graph", [{0: [7]}, {9: [0]}, {0: [-1]}, {-1: [0]}])
def test_planetoid_edges_must_stay_inside(graph, tmp_path):
    miniatures.planetoid(tmp_path)
    nodes = {node: [] for node in range(7)}
    body = miniatures.pickled_graph(nodes | graph)
    (tmp_path / "ind.cora.graph").write_bytes(miniatures.pickle_program(body))
    with pytest.raises(ValueError, match=r"ind\.cora\.graph .*leaves the 7 nodes"):
        planetoid.read(tmp_path, "cora")


def test_parts_of_planetoid_must_fit_each_other(tmp_path):
    miniatures.planetoid(tmp_path)
    ones = np.ones((2, 2), "<i4")
    for part, array in (
        ("y", ones),  # not one-hot
        ("y", np.eye(2, dtype="<i4")[::-1]),  # not the first rows of ally
        ("ty", np.eye(3, dtype="<i4")[:2]),  # another number of classes
        ("ally", np.eye(2, dtype="<f4")),  # not integers
    ):
        miniatures.planetoid(tmp_path)
        body = miniatures.pickled_array(np.ascontiguousarray(array))
        (tmp_path / f"ind.cora.{part}").write_bytes(miniatures.pickle_program(body))
        with pytest.raises(ValueError, match=r"ind\.cora\.(ally|y|ty) is damaged"):
            planetoid.read(tmp_path, "cora")


BAD_MEMBERS = [
    ("edges", None, "no member 'edges'"),
    ("edges", np.array([[0, 12]]), "leaves the 12 nodes"),
    ("edges", np.array([[-1, 0]]), "leaves the 12 nodes"),
    ("edges", np.zeros((3, 3), int), "expected"),
    ("edges", np.zeros((3, 2)), "kind"),
    ("node_labels", np.full(12, -1), "class ids"),
    ("node_labels", np.arange(12), "12 classes"),
    ("node_labels", np.zeros(11, int), "12 rows of features for 11 labels"),
    ("node_labels", np.array([{}] * 12), "pickled"),
    ("node_features", np.full((12, 3), np.nan), "finite"),
    ("node_features", np.full((12, 3), 1e300), "finite"),
    ("train_masks", np.ones((10, 12), bool), "in two parts"),
    ("train_masks", np.ones((10, 11), bool), "masks of shape"),
    ("train_masks", np.ones((10, 12), np.uint8), "kind"),
]


@pytest.mark.parametrize(("member", "value", "reason"), BAD_MEMBERS)
def test_bad_members_of_an_npz_are_named(member, value, reason, tmp_path):
    miniatures.heterophilous(tmp_path)
    rewrite_npz(tmp_path / "tolokers.npz", **{member: value})
    with pytest.raises(ValueError, match=reason) as caught:
        heterophilous.read(tmp_path, "tolokers")
    assert str(caught.value).startswith(str(tmp_path / "tolokers.npz"))


@pytest.mark.parametrize("shape", [(2**60, 2), (2**31, 2**31), (-1, 2), (2**64,)])
def test_sizes_that_a_header_only_claims_are_refused(shape, tmp_path):
    miniatures.heterophilous(tmp_path)
    stream = io.BytesIO()
    header = {"descr": "<i8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    rewrite_npz(tmp_path / "tolokers.npz", edges=stream.getvalue() + bytes(64))
    with pytest.raises(ValueError, match="claims shape"):
        heterophilous.read(tmp_path, "tolokers")


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("attr_indices", np.full(27, 2**40)),
        ("attr_indptr", np.array([0, *[27] * 19, 2**62])),
        ("attr_indptr", np.array([0, 2**63 - 1, -(2**63), -1, *[27] * 17])),
        ("attr_shape", np.array([20, 2**60])),
        ("attr_shape", np.array([2**60, 4])),
        ("attr_shape", np.array([20])),
        ("adj_shape", np.array([20, 21])),
    ],
)
def test_parts_of_a_sparse_matrix_must_fit(member, value, tmp_path):
    miniatures.copurchase(tmp_path)
    rewrite_npz(tmp_path / "amazon_electronics_photo.npz", **{member: value})
    with pytest.raises(ValueError, match=r"photo\.npz is damaged"):
        copurchase.read(tmp_path, "photo")


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("raw/num-node-list", f"{2**60}\n", "12 labels, but"),
        ("raw/num-edge-list", "11\n", "12 edges, but"),
        ("raw/edge", "0,1,2\n", "not every line"),
        ("raw/edge", "0\n1\n", "not every line"),
        ("raw/edge", "0,1\n\n2,3\n", "not every line"),
        ("raw/edge", "0,x\n", "not every line"),
        ("raw/edge", "0,12\n", "leaves the 12 nodes"),
        ("raw/node-label", f"{2**60}\n" * 12, "class ids"),
        ("split/time/valid", "0\n", "in another part"),
        ("split/time/valid", "12\n", "not in"),
        ("raw/node-feat", "inf\n" * 12, "not every line"),
        ("raw/node-feat", "nan\n" * 12, "finite"),
    ],
)
def test_ogb_files_must_agree(file, text, reason, tmp_path):
    miniatures.ogb(tmp_path)
    (tmp_path / f"{file}.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(ValueError, match=reason) as caught:
        ogb.read(tmp_path, "arxiv")
    assert str(caught.value).startswith(str(tmp_path))


def test_text_and_archives_that_unpack_without_end_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match="unpacks to more than 100"):
        _files.table(gzip.compress(b"1\n" * 200), 1)
    miniatures.heterophilous(tmp_path)
    with pytest.raises(ValueError, match=r"member .* claims \d+ bytes"):
        heterophilous.read(tmp_path, "tolokers")


def test_tables_do_not_depend_on_where_a_chunk_ends(monkeypatch):
    rows = np.random.default_rng(0).integers(0, 10_000, (300, 2))
    text = "".join(f"{i},{j}\r\n" for i, j in rows).encode().rstrip()
    for chunk in (11, 64, 1000, 10**6):
        monkeypatch.setattr(_files, "CHUNK", chunk)
        np.testing.assert_array_equal(_files.table(text, 2), rows)
        np.testing.assert_array_equal(_files.table(gzip.compress(text), 2), rows)


# Splits and the synthetic graph


@pytest.mark.parametrize("seed", range(3))
def test_random_splits_partition_the_labeled_nodes(seed):
    labels = np.arange(103) % 4 - 1
    split = splits.random(labels, 4, (0.6, 0.2, 0.2), seed)
    np.testing.assert_array_equal(np.sum(split, axis=0), [labels >= 0] * 4)
    num_labeled = (labels >= 0).sum()
    assert set(split.train.sum(axis=1)) == {int(0.6 * num_labeled)}
    assert set(split.val.sum(axis=1)) == {int(0.2 * num_labeled)}
    assert (split.train[0] != split.train[1]).any()
    fewer = splits.random(labels, 2, (0.6, 0.2, 0.2), seed)
    np.testing.assert_array_equal(fewer.test, split.test[:2])


def test_split_sizes_are_not_spoiled_by_rounding():
    split = splits.random(np.zeros(100, int), 1, (0.29, 0.57, 0.14))
    assert [int(mask.sum()) for mask in split] == [29, 57, 14]


@pytest.mark.parametrize("fractions", [(0.5, 0.5, 0.5), (1.2, -0.1, -0.1)])
def test_bad_fractions_are_refused(fractions):
    with pytest.raises(ValueError, match="fractions"):
        splits.random(np.zeros(10, int), 1, fractions)
    with pytest.raises(ValueError, match="num_splits"):
        splits.random(np.zeros(10, int), 0)


def test_public_splits_refuse_overlap_by_node():
    with pytest.raises(ValueError, match="test node 1 is in another part"):
        splits.public(4, [0, 1], [2], [3, 1])
    with pytest.raises(ValueError, match="val node 4"):
        splits.public(4, [0, 1], [4], [3])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_block_model_has_the_published_size_and_the_asked_homophily(seed, fraction):
    data = sbm.generate(seed, homophilic_fraction=fraction)
    stats = datasets.statistics(data)
    assert (stats.num_nodes, stats.num_features, stats.num_classes) == (2000, 100, 5)
    assert abs(stats.num_edges - 8000) < 450  # five standard deviations
    assert stats.edge_homophily == pytest.approx(fraction, abs=0.01)
    assert (data.edges[0] != data.edges[1]).all()
    assert len(np.unique(data.edges, axis=1).T) == data.edges.shape[1]
    assert [int(mask.sum()) for mask in data.splits] == [100, 500, 1000]
    assert set(np.bincount(data.labels[data.splits.train[0]])) == {20}
    assert np.sum(data.splits, axis=0).max() == 1


@pytest.mark.parametrize("seed", range(3))
def test_block_model_features_are_informative_but_weak(seed):
    data = sbm.generate(seed)
    informative = data.features[:, :4]
    centers = np.stack([informative[data.labels == c].mean(axis=0) for c in range(5)])
    distances = ((informative[:, None] - centers) ** 2).sum(axis=-1)
    assert 0.45 < (distances.argmin(axis=1) == data.labels).mean() < 0.65


def test_block_model_is_a_function_of_its_seed():
    one, same, other = (datasets.load("sbm", seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.edges, same.edges)
    np.testing.assert_array_equal(one.features, same.features)
    np.testing.assert_array_equal(one.splits.train, same.splits.train)
    assert one.edges.shape != other.edges.shape or (one.edges != other.edges).any()
    assert datasets.statistics(one).edge_homophily == pytest.approx(0.8, abs=0.01)


def test_block_model_joins_every_pair_at_probability_one():
    data = sbm.generate(
        num_blocks=3,
        block_size=4,
        intra_probability=1.0,
        inter_probability=1.0,
        train_per_class=1,
        num_val=2,
        num_test=2,
    )
    assert datasets.statistics(data).num_edges == 3 * 6
    assert datasets.statistics(data).edge_homophily == 1
    mixed = sbm.generate(
        num_blocks=3,
        block_size=4,
        intra_probability=1.0,
        inter_probability=1.0,
        homophilic_fraction=0.0,
        train_per_class=1,
        num_val=2,
        num_test=2,
    )
    assert datasets.statistics(mixed).num_edges == 66 - 18
    assert datasets.statistics(mixed).edge_homophily == 0


@pytest.mark.parametrize(
    ("setting", "match"),
    [
        ({"homophilic_fraction": 1.5}, "homophilic_fraction"),
        ({"intra_probability": -0.1}, "intra_probability"),
        ({"num_blocks": 17}, "num_blocks"),
        ({"num_informative": 101}, "num_informative"),
        ({"num_test": 2000}, "2000 test nodes do not fit"),
    ],
)
def test_block_model_refuses_what_it_cannot_draw(setting, match):
    with pytest.raises(ValueError, match=match):
        sbm.generate(**setting)


def test_importing_the_package_does_not_import_the_downloader():
    import subprocess

    code = "import sys, gnnrp.datasets; sys.exit('pooch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
