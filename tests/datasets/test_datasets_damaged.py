"""Damaged and hostile files are refused by name, before they can do harm."""

import gzip
import io
import pickle
import zipfile

import miniatures
import numpy as np
import pytest

from gnnrp.datasets import (
    copurchase,
    heterophilous,
    ogb,
    planetoid,
    raw_files,
    text_tables,
)

layouts = pytest.mark.parametrize("layout", miniatures.LAYOUTS)


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def unzipped(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def rewrite_npz(path, **changes):
    """Replace or, with None, remove members."""
    members = unzipped(path.read_bytes())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            change = changes.get(name.removesuffix(".npy"), content)
            if isinstance(change, np.ndarray):
                stream = io.BytesIO()
                np.save(stream, change)
                change = stream.getvalue()
            if change is not None:
                archive.writestr(name, change)


@layouts
def test_truncated_files_are_refused_by_name(layout, tmp_path):
    write, read = miniatures.LAYOUTS[layout]
    write(tmp_path)
    for path in files_of(tmp_path):
        whole = path.read_bytes()
        textual = path.suffix in {".txt", ".csv", ".index"}
        for length in {0, 1, 2, 5, *np.linspace(6, len(whole) - 1, 15, dtype=int)}:
            path.write_bytes(whole[:length])
            if textual:  # what is left may be a smaller, consistent file
                refuse_or_read(read, tmp_path)
                continue
            with pytest.raises(ValueError, match=r"is damaged or no") as caught:
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


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("part", ["x", "graph", "ally"])
def test_hostile_pickles_are_refused_and_not_run(part, protocol, tmp_path):
    miniatures.planetoid(tmp_path)
    marker = tmp_path / "marker"

    class Hostile:
        def __reduce__(self):
            return eval, (f"open({str(marker)!r}, 'w')",)

    (tmp_path / f"ind.cora.{part}").write_bytes(pickle.dumps(Hostile(), protocol))
    with pytest.raises(ValueError, match=f"ind.cora.{part} is damaged or no"):
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
    ("edges", np.zeros((3, 3), int), "expected .e, 2"),
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
        ("split/time/valid", "12\n", "not one of 12 nodes"),
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


def test_what_unpacks_without_end_is_refused(tmp_path):
    """A bomb of zeros costs no more than what is always taken."""
    bomb = gzip.compress(b"0,0\n" * 2**23)
    miniatures.ogb(tmp_path)
    (tmp_path / "raw" / "edge.csv.gz").write_bytes(bomb)
    with pytest.raises(ValueError, match="more than 262144 lines, but 12 are stated"):
        ogb.read(tmp_path, "arxiv")
    count = gzip.compress(b"%d\n" % 2**23)
    (tmp_path / "raw" / "num-edge-list.csv.gz").write_bytes(count)
    with pytest.raises(ValueError, match=r"edge.csv.gz .*unpacks to more than 167"):
        ogb.read(tmp_path, "arxiv")
    miniatures.heterophilous(tmp_path)
    rewrite_npz(tmp_path / "tolokers.npz", edges=np.zeros((2**21, 2), int))
    with pytest.raises(ValueError, match="member 'edges' unpacks to 33554560 bytes"):
        heterophilous.read(tmp_path, "tolokers")


def test_a_file_larger_than_any_is_not_read(tmp_path):
    miniatures.heterophilous(tmp_path)
    with (tmp_path / "tolokers.npz").open("r+b") as file:
        file.truncate(2**43)  # a hole, which takes no room on the disk
    with pytest.raises(ValueError, match=r"tolokers.npz is damaged .*8796093022208"):
        heterophilous.read(tmp_path, "tolokers")


def parsed(folder, text, *arguments, **settings):
    (folder / "table").write_bytes(text)
    return text_tables.table(raw_files.stat(folder / "table"), *arguments, **settings)


def test_tables_do_not_depend_on_where_a_chunk_ends(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).integers(0, 10_000, (300, 2))
    text = "".join(f"{i},{j}\r\n" for i, j in rows).encode().rstrip()
    for chunk in (11, 64, 1000, 10**6):
        monkeypatch.setattr(text_tables, "CHUNK", chunk)
        np.testing.assert_array_equal(parsed(tmp_path, text, 2), rows)
        np.testing.assert_array_equal(parsed(tmp_path, gzip.compress(text), 2), rows)
