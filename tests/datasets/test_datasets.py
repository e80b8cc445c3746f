"""Readers on miniature files: what they find, and where."""

import sys
from functools import partial

import miniatures
import numpy as np
import pytest

from gnnrp import datasets
from gnnrp.datasets import heterophilous, ogb, planetoid, splits

layouts = pytest.mark.parametrize("layout", miniatures.LAYOUTS)


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


@layouts
def test_readers_find_what_was_written(layout, tmp_path):
    write, read = miniatures.LAYOUTS[layout]
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
    root.mkdir()
    assert datasets.find("tolokers", root) is None
    miniatures.heterophilous(cache / "tolokers")
    assert datasets.find("tolokers", root) == cache / "tolokers"
    miniatures.heterophilous(env / "tolokers")
    monkeypatch.setenv("GNNRP_DATA", str(env))
    assert datasets.find("tolokers", root) == env / "tolokers"
    miniatures.heterophilous(root / "tolokers")
    assert datasets.find("tolokers", root) == root / "tolokers"
    assert datasets.load("tolokers", root).folder == str(root / "tolokers")


def test_a_root_that_does_not_exist_is_named(tmp_path):
    for look in (datasets.find, datasets.load):
        with pytest.raises(FileNotFoundError, match="absent does not exist"):
            look("tolokers", tmp_path / "absent")


@pytest.mark.parametrize("seed", [-1, 2**31])
def test_a_seed_out_of_range_is_named(seed):
    with pytest.raises(ValueError, match="seed must be at"):
        datasets.load("sbm", seed=seed)


def test_one_split_may_be_taken(tmp_path):
    miniatures.heterophilous(tmp_path / "tolokers")
    data = datasets.load("tolokers", tmp_path)
    assert len(data.splits.train) == 10
    one = datasets.select_split(data, 3)
    for part, whole in zip(one.splits, data.splits, strict=True):
        np.testing.assert_array_equal(part, whole[3:4])
    for absent in (-1, 10):
        with pytest.raises(ValueError, match="split must be at"):
            datasets.select_split(data, absent)


def test_photo_has_the_published_split_and_ten_random_ones(tmp_path):
    miniatures.copurchase(tmp_path)
    data = datasets.load("photo", tmp_path)
    one, ten, other = (
        datasets.load("photo", tmp_path, splits=kind, seed=seed)
        for kind, seed in (("published", 1), ("random", 0), ("random", 1))
    )
    assert (data.split_kind, one.split_kind) == ("published", "published")
    assert (ten.split_kind, ten.splits.train.shape) == ("random", (10, 20))
    for mask, again, published in zip(
        data.splits, one.splits, splits.published(20), strict=True
    ):
        np.testing.assert_array_equal(mask, published)
        np.testing.assert_array_equal(again, published)
    np.testing.assert_array_equal(ten.splits.train, splits.random(ten.labels, 10).train)
    assert (other.splits.train != ten.splits.train).any()


def test_counts_of_features_become_one_and_negative_numbers_stay(tmp_path):
    written = miniatures.copurchase(tmp_path)
    file = tmp_path / "amazon_electronics_photo.npz"
    with np.load(file, allow_pickle=True) as arrays:
        parts = dict(arrays)
    parts["attr_data"] = np.array(parts["attr_data"])
    parts["attr_data"][:4] = 105, 0.5, 0, -3
    np.savez(file, **parts)
    found = datasets.load("photo", tmp_path).features
    rows, columns = np.nonzero(written.features)  # in the order of the file
    values = np.asarray(found[rows, columns]).ravel()
    assert values[:4].tolist() == [1, 1, 0, -3]
    assert set(values[4:]) == {1}


@pytest.mark.parametrize(
    ("name", "write", "allowed", "refused"),
    [
        ("tolokers", miniatures.heterophilous, "published", "random"),
        ("cora", partial(miniatures.planetoid, name="cora"), "published", "random"),
        ("roman-empire", miniatures.roman_empire_csv, "random", "published"),
    ],
)
def test_splits_that_a_set_does_not_have_are_refused(
    name, write, allowed, refused, tmp_path
):
    write(tmp_path / name.replace("-", "_"))
    default = datasets.load(name, tmp_path)
    assert datasets.load(name, tmp_path, splits=allowed).split_kind == allowed
    assert default.split_kind == allowed
    match = f"'{name}' has no {refused} splits; omit splits for its {allowed}"
    with pytest.raises(ValueError, match=match):
        datasets.load(name, tmp_path, splits=refused)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("kind", ["published", "random"])
def test_splits_are_refused_before_a_download_and_for_the_generated_graph(kind):
    with pytest.raises(ValueError, match=f"'sbm' has no {kind} splits"):
        datasets.load("sbm", splits=kind)
    with pytest.raises(ValueError, match="'cora' has no random splits"):
        datasets.load("cora", splits="random")
    with pytest.raises(ValueError, match="splits must be one of published, random"):
        datasets.load("photo", splits="ten")


@pytest.mark.parametrize("label", [-1, 5])
@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_a_masked_label_that_is_no_class_is_refused(label, part):
    data = datasets.load("sbm")
    node = int(np.argwhere(getattr(data.splits, part)[0])[0, 0])
    labels = data.labels.copy()
    labels[node] = label
    with pytest.raises(ValueError, match=f"node {node} of the {part} mask"):
        datasets.targets(data._replace(labels=labels))


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
        ("chameleon", "chameleon", partial(miniatures.webkb, name="chameleon")),
        ("squirrel", "squirrel", partial(miniatures.heterophilous, name="squirrel")),
        ("actor", "film", miniatures.actor),
        (
            "squirrel-filtered",
            "squirrel_filtered",
            partial(miniatures.heterophilous, name="squirrel-filtered"),
        ),
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


@pytest.mark.parametrize(
    ("absent", "named"),
    [
        (["graph"], "ind.cora.graph, which was not found in"),
        (["ty", "graph"], "ind.cora.ty, ind.cora.graph, which were not found in"),
        (
            ["x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"],
            "ind.cora.x, ind.cora.tx, ind.cora.allx and 5 more files, which were not",
        ),
    ],
)
def test_all_missing_files_are_named_up_to_three(absent, named, tmp_path):
    miniatures.planetoid(tmp_path)
    for part in absent:
        (tmp_path / f"ind.cora.{part}").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        datasets.load("cora", tmp_path, download=False)
    assert f"needs {named}" in str(caught.value)
    others = "cora and the other files likewise, or pass the folder that holds them"
    assert (others in str(caught.value)) is (len(absent) > 1)


@pytest.mark.usefixtures("offline")
def test_failed_downloads_end_in_the_same_sentence():
    with pytest.raises(FileNotFoundError, match="no route to host") as caught:
        datasets.load("tolokers")
    assert "\n" not in str(caught.value)
    assert "heterophilous-graphs" in str(caught.value)


@pytest.mark.parametrize("download", [True, False])
def test_without_the_ogb_package_its_sets_name_it_and_the_archive(
    download, monkeypatch, cache
):
    monkeypatch.setitem(sys.modules, "ogb", None)  # not to be imported
    monkeypatch.setattr("sys.stdin", None)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    with pytest.raises(FileNotFoundError) as caught:
        datasets.load("products", download=download)
    remedy = f"nodeproppred/products.zip and unpack it into {cache}, or pass the folder"
    assert "pip install 'gnnrp[ogb]' to have it fetched, or" in str(caught.value)
    assert remedy in str(caught.value)


def test_an_archive_of_ogbs_unpacked_where_the_sentence_says_is_found(cache):
    miniatures.ogb(cache / "products", "products")  # the folder in products.zip
    assert datasets.load("products", download=False).num_nodes == 12


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
    from gnnrp.datasets import catalog, download

    for sources in catalog.SOURCES.values():
        for source in sources:
            assert len(source.urls) in {0, len(source.files)}
            if source.urls and sources.index(source) == 0:
                assert all(
                    len(download.registry()[file]) == 64 for file in source.files
                )


def test_importing_the_package_does_not_import_the_downloader():
    import subprocess

    code = "import sys, gnnrp.datasets; sys.exit('pooch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_stored_zero_of_a_file_is_no_edge(tmp_path):
    written = miniatures.copurchase(tmp_path)
    file = tmp_path / "amazon_electronics_photo.npz"
    with np.load(file, allow_pickle=True) as arrays:
        parts = dict(arrays)
    parts["adj_data"][2] = 0
    np.savez(file, **parts)
    edges = datasets.load("photo", tmp_path).edges
    np.testing.assert_array_equal(edges, np.delete(written.edges, 2, axis=1))


def test_actor_lists_the_places_of_its_features(tmp_path):
    written = miniatures.actor(tmp_path / "actor")
    data = datasets.load("actor", tmp_path, download=False)
    np.testing.assert_array_equal(data.features.toarray(), written.features)
    np.testing.assert_array_equal(data.labels, written.labels)
    np.testing.assert_array_equal(data.edges, written.edges)
    assert data.splits.train.shape == (10, 12)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("11\t932\t1", "0 to 931"),
        ("11\t-1\t1", "0 to 931"),
        ("11\t1,x\t1", "list of integers"),
        ("11\t\t1", "list of integers"),
        ("11\t1", "no feature"),
        ("10\t5\t1", "each once"),
        (f"11\t{10**20}\t1", "list of integers"),
    ],
)
def test_damaged_lines_of_actor_are_refused(line, reason, tmp_path):
    miniatures.actor(tmp_path / "actor")
    path = tmp_path / "actor" / "out1_node_feature_label.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], line, *lines[2:]]))
    with pytest.raises(ValueError, match=reason):
        datasets.load("actor", tmp_path, download=False)
