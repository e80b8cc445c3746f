"""Hostile and unusual files: read right or refused in a sentence, in bounded memory."""

import gzip
import io
import json
import os
import struct
import subprocess
import sys
import threading
import tracemalloc
import zipfile

import miniatures
import mutations
import numpy as np
import pytest

from gnnrp import cli, datasets
from gnnrp.commands import partition
from gnnrp.datasets import (
    _unpickle,
    copurchase,
    csv_tables,
    heterophilous,
    npz,
    planetoid,
    raw_files,
    sbm,
    text_tables,
)
from gnnrp.distributed import shards
from gnnrp.runtime import memory
from gnnrp.runtime.options import Options
from gnnrp.studies import presets
from gnnrp.studies import rp as rp_study

MB = 10**6
linux = pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")


def parsed(folder, text, *arguments, **settings):
    (folder / "table").write_bytes(text)
    return text_tables.table(raw_files.stat(folder / "table"), *arguments, **settings)


def peak_of(function, *arguments, **settings):
    """Return the result, and the most bytes that it took."""
    tracemalloc.start()
    try:
        return function(*arguments, **settings), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refusal(read, *arguments, **settings):
    """Return the sentence of a refusal, which must be short and plain."""
    with pytest.raises(ValueError, match=r".") as caught:
        read(*arguments, **settings)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert len(sentence) < 400  # the path included
    return sentence


# Pickles


@pytest.mark.parametrize("depth", [1, 2, 40, 2000])
@pytest.mark.parametrize("place", mutations.PLACES)
@pytest.mark.parametrize("kind", mutations.NESTED)
def test_nested_values_of_pickles_are_refused(kind, place, depth, tmp_path):
    miniatures.planetoid(tmp_path)
    part, program = mutations.PLACES[place]
    path = tmp_path / f"ind.cora.{part}"
    path.write_bytes(program(mutations.NESTED[kind](depth)))
    assert refusal(planetoid.read, tmp_path, "cora").startswith(str(path))


def test_the_list_of_data_sets_survives_a_nested_pickle(tmp_path, capsys):
    miniatures.planetoid(tmp_path / "cora")
    path = tmp_path / "cora" / "ind.cora.graph"
    path.write_bytes(mutations.in_graph(key=mutations.NESTED["tuples"](10**5)))
    line = ["datasets", "--data-dir", str(tmp_path), "--json", "--quiet"]
    assert cli.main(line) == 0
    rows = json.loads(capsys.readouterr().out)["datasets"]
    (row,) = (row for row in rows if row["name"] == "cora")
    assert row["where"].startswith(f"not readable: {path} is damaged or no Planetoid")


@pytest.mark.parametrize("place", mutations.PLACES)
def test_long_strings_of_pickles_are_not_quoted(place, tmp_path):
    miniatures.planetoid(tmp_path)
    part, program = mutations.PLACES[place]
    text = miniatures._string(b"\x1b[31m" * 10**6)
    path = tmp_path / f"ind.cora.{part}"
    path.write_bytes(program(text))
    assert refusal(planetoid.read, tmp_path, "cora").startswith(str(path))


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (b"]" * 70, "more than 64 values are stacked"),
        (b"]" + b"K\x00a" * 3000, "more than 4096 operations"),
        (
            miniatures.opcode_global("os\x1b[31m", "x" * 10**6),
            r"asks for 'os\\x1b\[31m",
        ),
        (b"]K\x00", "ends with 2 values"),
        (b"h\x03", "BINGET at byte 2 lacks its operands"),
        (b"(K\x00K\x01", "ends with 2 values"),
        (b"}(K\x00u", "a key has no value"),
        (b"K\x00K\x01s", "SETITEM|items are set"),
        (b")b", "BUILD|too few|a state"),
        (b"))R", "something else than one of six globals is called"),
    ],
)
def test_programs_of_other_pickles_are_refused(program, reason, tmp_path, monkeypatch):
    monkeypatch.setattr(_unpickle, "MAX_STACK", 64)
    monkeypatch.setattr(_unpickle, "MAX_OPERATIONS", 4096)
    miniatures.planetoid(tmp_path)
    path = tmp_path / "ind.cora.graph"
    path.write_bytes(miniatures.pickle_program(program))
    with pytest.raises(ValueError, match=reason):
        planetoid.read(tmp_path, "cora")
    assert refusal(planetoid.read, tmp_path, "cora").startswith(str(path))


def test_a_state_that_changes_later_is_not_nested():
    matrix = miniatures.opcode_global("scipy.sparse.csr", "csr_matrix") + b")\x81"
    program = b"}q\x07K\x00" + matrix + b"h\x07bs"
    found = _unpickle.load(miniatures.pickle_program(program))
    assert found[0].state == {}


# Archives


HEADERS = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }   \n",
    '{"shape": (2,3), "fortran_order": False, "descr": "<f4"}',
    "{ 'fortran_order' : False ,'descr':'<f4', 'shape':( 2 , 3 , ) , }\n",
]


@pytest.mark.parametrize("header", HEADERS)
def test_headers_of_other_writers_are_read(header):
    content = mutations.with_header(header) + np.arange(6, dtype="<f4").tobytes()
    found = npz.read_header(io.BytesIO(content), "x", len(content))
    array = npz.read_array(io.BytesIO(content), found)
    np.testing.assert_array_equal(array, np.arange(6).reshape(2, 3))


@pytest.mark.parametrize("dtype", ["<i4", ">i8", "|b1", "<f2", "<u8", "|u1"])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (4, 0), (2, 1, 2, 1, 3)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_as_numpy_reads_them(dtype, shape, order):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    content = mutations.saved(np.asarray(array, order=order))
    found = npz.read_header(io.BytesIO(content), "x", len(content))
    read = npz.read_array(io.BytesIO(content), found)
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("times", [1, 3, 1000, 60_000, 2_000_000])
@pytest.mark.parametrize("text", mutations.NESTED_HEADERS)
def test_deep_headers_are_refused_by_name(text, times, tmp_path):
    miniatures.heterophilous(tmp_path)
    path = tmp_path / "tolokers.npz"
    members = mutations.unzipped(path.read_bytes())
    members["edges.npy"] = mutations.with_header(text * times)
    path.write_bytes(mutations.zipped(members))
    told = refusal(heterophilous.read, tmp_path, "tolokers")
    assert told.startswith(f"{path} is damaged or no heterophilous graph file (member ")


@pytest.mark.parametrize("method", mutations.METHODS)
def test_archives_are_read_or_refused_by_their_method(method, tmp_path):
    miniatures.heterophilous(tmp_path)
    path = tmp_path / "tolokers.npz"
    whole = heterophilous.read(tmp_path, "tolokers")
    path.write_bytes(mutations.zipped(mutations.unzipped(path.read_bytes()), method))
    if method in npz.METHODS:
        read = heterophilous.read(tmp_path, "tolokers")
        np.testing.assert_array_equal(read.features, whole.features)
        return
    told = refusal(heterophilous.read, tmp_path, "tolokers")
    assert f"{path} is damaged" in told
    assert f"'node_features' is packed by method {method}, not by 8" in told


def with_claimed_contents(path, size):
    """Write a hole that ends as a zip file with a table of contents of this size."""
    end = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 1, 1, size, 0, 0)
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(0, os.SEEK_END)
        file.write(end)


@pytest.mark.parametrize("size", [2**28, 2**32])
@pytest.mark.parametrize("claimed", [False, True])
def test_holes_are_refused_before_they_are_read(size, claimed, tmp_path):
    path = tmp_path / "tolokers.npz"
    if claimed:
        with_claimed_contents(path, size - 1)
    else:
        path.touch()
        os.truncate(path, size)
    told, peak = peak_of(refusal, heterophilous.read, tmp_path, "tolokers")
    assert told.startswith(f"{path} is damaged")
    assert peak < 2 * MB


def test_a_stored_hole_is_compared_with_the_memory_before_it_is_read(tmp_path):
    """A member of 6 GB of zeros, which take no room on the disk."""
    miniatures.heterophilous(tmp_path)
    path = tmp_path / "tolokers.npz"
    members = mutations.unzipped(path.read_bytes())
    rows = 2**28
    header = mutations.claiming("<i8", (rows, 3))
    info = zipfile.ZipInfo("node_features.npy")
    info.file_size = info.compress_size = len(header) + 24 * rows
    info.CRC = info.header_offset = 0  # wrong, but compared after the data
    with path.open("w+b") as file:
        file.write(info.FileHeader(zip64=True) + header)
        file.truncate(file.tell() + 24 * rows)
        file.seek(0, os.SEEK_END)
        with zipfile.ZipFile(file, "a") as archive:
            for name in set(members) - {info.filename}:
                archive.writestr(name, members[name])
            archive.filelist.append(info)
            archive.NameToInfo[info.filename] = info
            archive._didModify = True
    told, peak = peak_of(
        refusal, heterophilous.read, tmp_path, "tolokers", max_bytes=10**9
    )
    assert told.startswith(f"{path}: reading it takes 19.3 GB or more and ")
    assert told.endswith(
        "left of the 1.0 GB allowed; allow more memory (max_bytes, --max-memory)"
    )
    assert peak < 2 * MB


# Text


@pytest.mark.parametrize("variant", mutations.VARIANTS)
@pytest.mark.parametrize("chunk", [11, 64, 10**6])
def test_tables_of_other_programs_are_the_same_numbers(
    variant, chunk, tmp_path, monkeypatch
):
    monkeypatch.setattr(text_tables, "CHUNK", chunk)
    rows = np.random.default_rng(0).integers(0, 1000, (100, 2))
    text = "".join(f"{i},{j}\n" for i, j in rows).encode()
    text = mutations.VARIANTS[variant](text)
    np.testing.assert_array_equal(parsed(tmp_path, text, 2), rows)
    np.testing.assert_array_equal(parsed(tmp_path, gzip.compress(text), 2), rows)


@pytest.mark.parametrize("variant", mutations.VARIANTS)
@pytest.mark.parametrize("layout", ["csv", "webkb", "arxiv", "proteins", "planetoid"])
def test_data_sets_of_other_programs_are_the_same(variant, layout, tmp_path):
    write, read = miniatures.LAYOUTS[layout]
    write(tmp_path)
    whole = read(tmp_path)
    for path in tmp_path.rglob("*"):
        if path.suffix in {".csv", ".txt", ".index"}:
            path.write_bytes(mutations.VARIANTS[variant](path.read_bytes()))
        elif path.suffix == ".gz":
            text = gzip.decompress(path.read_bytes())
            path.write_bytes(gzip.compress(mutations.VARIANTS[variant](text)))
    found = read(tmp_path)
    np.testing.assert_array_equal(found.edges, whole.edges)
    np.testing.assert_array_equal(found.labels, whole.labels)
    np.testing.assert_array_equal(found.splits, whole.splits)
    if whole.features is not None and layout != "planetoid":
        np.testing.assert_array_equal(found.features, whole.features)


@pytest.mark.parametrize(
    "text",
    [
        *(b"1 2,3\n", b"1,2 3\n", b"1,2\n\n3,4\n", b"\n1,2\n", b"1,,2\n", b"1,2,\n"),
        *(b"1\n", b"1,2\n" + b" " * 900 + b"x", b"1,2-3\n", b"1,--2\n"),
        *(b"1,\xef\xbb\xbf2\n", b"1,2\n" + b"\n" * 50 + b"3,4\n"),
        b",".join([b"1"] * 900) + b"\n1" * 900,
    ],
)
@pytest.mark.parametrize("chunk", [11, 10**6])
def test_text_that_is_no_table_is_refused(text, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(text_tables, "CHUNK", chunk)
    refusal(parsed, tmp_path, text, 2)


def test_a_long_first_line_claims_no_table(tmp_path):
    text = b",".join([b"1"] * 300_000) + b"\n1" * 300_000
    told, peak = peak_of(refusal, parsed, tmp_path, text)
    assert told == "not every line has 300000 number(s)"
    assert peak < 30 * MB


def test_runs_of_blanks_take_linear_time(tmp_path):
    blanks = b" " * (text_tables.CHUNK - 10)
    np.testing.assert_array_equal(
        parsed(tmp_path, b"1," + blanks + b"2\n", 2), [[1, 2]]
    )
    refusal(parsed, tmp_path, b"1," + blanks + b"x" + blanks + b"2\n", 2)


def test_parts_of_a_partitioner_may_come_through_a_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"0\n1\n0\n",))
    writer.start()
    found = partition.part_of(path)
    writer.join()
    np.testing.assert_array_equal(found, [0, 1, 0])


# Memory


def test_labels_take_no_more_than_their_array(tmp_path):
    text = gzip.compress(b"1\n" * 2_000_000)
    found, peak = peak_of(parsed, tmp_path, text, 1)
    assert found.nbytes == 16 * MB
    assert peak < 16 * MB + 10 * MB


def test_edges_take_no_more_than_two_arrays(tmp_path):
    miniatures.roman_empire_csv(tmp_path)
    pairs = np.arange(1_500_000).reshape(-1, 2) % 12
    with (tmp_path / "edges.csv").open("wb") as file:
        np.savetxt(file, pairs, "%d", ",", header="source,target", comments="")
    data, peak = peak_of(csv_tables.read, tmp_path, "roman-empire")
    assert data.edges.nbytes == 12 * MB
    assert peak < 24 * MB + 10 * MB
    found, peak = peak_of(datasets.statistics, data)
    assert found.num_edges == 6
    assert peak < 24 * MB


def test_masks_take_no_more_than_their_arrays(tmp_path):
    n, s = 50_000, 100
    masks = {}
    for i, part in enumerate(("train", "val", "test")):
        masks[f"{part}_masks"] = np.tile(np.arange(n) % 1000 == i, (s, 1))
    np.savez(
        tmp_path / "tolokers.npz",
        node_features=np.zeros((n, 1), np.float32),
        node_labels=np.arange(n) % 2,
        edges=np.array([[0, 1]]),
        **masks,
    )
    data, peak = peak_of(heterophilous.read, tmp_path, "tolokers")
    assert sum(mask.nbytes for mask in data.splits) == 15 * MB
    assert peak < 1.3 * 15 * MB


@pytest.mark.parametrize(
    ("features", "edges"), [("f4", "i8"), ("f2", "u1"), ("f8", "i4"), ("u1", "u1")]
)
def test_the_memory_of_an_archive_is_known_before_it_is_read(
    features, edges, tmp_path, monkeypatch
):
    miniatures.heterophilous(tmp_path)
    path = tmp_path / "tolokers.npz"
    members = mutations.unzipped(path.read_bytes())
    members["edges.npy"] = mutations.saved(np.zeros((300_000, 2), edges))
    members["node_features.npy"] = mutations.saved(np.zeros((12, 50_000), features))
    path.write_bytes(mutations.zipped(members, zipfile.ZIP_STORED))
    known = []
    monkeypatch.setattr(raw_files.File, "reserve", lambda _, size: known.append(size))
    _, peak = peak_of(heterophilous.read, tmp_path, "tolokers")
    assert 0.6 * sum(known) < peak < sum(known) + MB


@pytest.mark.parametrize("layout", miniatures.LAYOUTS)
def test_files_that_do_not_fit_are_refused_by_name(layout, tmp_path):
    write, read = miniatures.LAYOUTS[layout]
    write(tmp_path)
    told = refusal(read, tmp_path, max_bytes=MB)
    assert told.startswith(str(tmp_path))
    assert told.endswith(
        "are left of the 1.0 MB allowed; allow more memory (max_bytes, --max-memory)"
    )
    assert ": reading it takes 0.0 MB or more and 0.0 MB " in told
    read(tmp_path, max_bytes=10**12)


def test_a_table_is_refused_where_it_outgrows_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "process_bytes", lambda: 0)
    miniatures.roman_empire_csv(tmp_path)
    with (tmp_path / "edges.csv").open("ab") as file:
        file.write(b"1,2\n" * 2_000_000)
    told, peak = peak_of(
        refusal, csv_tables.read, tmp_path, "roman-empire", max_bytes=10 * MB
    )
    assert f"{tmp_path}/edges.csv: reading it takes " in told
    assert " are left of the " in told
    assert peak < 20 * MB  # of 64


def test_the_machine_is_named_where_nobody_set_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_physical", lambda: MB)
    monkeypatch.setattr(memory, "container_memory", lambda: None)
    miniatures.heterophilous(tmp_path)
    told = refusal(datasets.load, "tolokers", tmp_path)
    assert told.endswith("1.0 MB of this machine; take a machine with more memory")


def test_the_command_compares_files_with_its_limit(tmp_path, capsys):
    miniatures.heterophilous(tmp_path)
    line = f"rp --dataset tolokers --data-dir {tmp_path} --max-memory 1MB --json"
    assert cli.main(line.split()) == 2
    told = capsys.readouterr().err
    assert f"gnnrp: {tmp_path}/tolokers.npz: reading it takes " in told
    assert told.count("\n") == 1


def test_an_adjacency_that_does_not_fit_is_refused_before_it_is_built(monkeypatch):
    monkeypatch.setattr(memory, "process_bytes", lambda: 0)
    data = sbm.generate(1, block_size=40, train_per_class=5, num_val=50, num_test=80)
    data = data._replace(edges=np.tile(data.edges, 100))
    with pytest.raises(
        ValueError,
        match=rf"the adjacency matrix of {data.edges.shape[1]:,} edges takes about .* "
        "left of the 1.0 MB allowed; take a smaller graph, or raise the limit to ",
    ):
        rp_study.run(data, presets.settings("sbm"), options=Options(max_bytes=MB))


# Messages, and files that change


def test_messages_of_parsers_are_short_and_plain(tmp_path):
    def fail(error):
        with raw_files.format_errors(tmp_path / "x", "text"):
            raise error

    told = refusal(fail, KeyError("\x1b[31m\u202e" + "x" * MB))
    assert r"\x1b[31m" in told
    assert "first" in refusal(fail, RuntimeError("\n first \n second"))
    assert "(ZeroDivisionError)" in refusal(fail, ZeroDivisionError())
    told = refusal(fail, MemoryError())
    assert told == (
        f"{tmp_path}/x: reading it takes more memory than there is; take a machine "
        "with more memory"
    )


def test_an_error_of_the_disk_is_no_damage(tmp_path):
    with (
        pytest.raises(OSError, match=r"x cannot be read .Input/output error.; make it"),
        raw_files.format_errors(tmp_path / "x", "text"),
    ):
        raise OSError(5, "Input/output error")


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    miniatures.heterophilous(tmp_path)
    path = tmp_path / "tolokers.npz"
    files = raw_files.stat_all(tmp_path, [path.name])
    path.write_bytes(path.read_bytes() + b"more")
    told = refusal(raw_files.digests, files)
    assert told == f"{path} changed while it was read; load it again"


def test_sparse_features_without_a_column_are_refused(tmp_path):
    miniatures.copurchase(tmp_path)
    path = tmp_path / "amazon_electronics_photo.npz"
    members = mutations.unzipped(path.read_bytes())
    members["attr_shape.npy"] = mutations.saved(np.array([20, 0]))
    members["attr_indptr.npy"] = mutations.saved(np.zeros(21, int))
    for part in ("data", "indices"):
        members[f"attr_{part}.npy"] = mutations.saved(np.zeros(0, int))
    path.write_bytes(mutations.zipped(members))
    told = refusal(copurchase.read, tmp_path, "photo")
    assert "the sparse matrix of shape (20, 0) has no column" in told


def test_a_huge_table_of_contents_of_parts_is_refused(tmp_path):
    (tmp_path / "shards.json").touch()
    os.truncate(tmp_path / "shards.json", 2**33)
    told, peak = peak_of(refusal, shards.contents, tmp_path)
    assert "holds no parts of a graph" in told
    assert peak < 80 * MB


# Memory that Python does not count, and crashes


def bombs(folder):
    """Write a folder of files that once took gigabytes, or ended the process."""
    for name in ("deep", "dictionary", "hole", "header"):
        miniatures.heterophilous(folder / name)
    graph = folder / "deep" / "ind.cora.graph"
    miniatures.planetoid(folder / "deep")
    graph.write_bytes(mutations.in_graph(key=mutations.NESTED["tuples"](10**6)))
    path = folder / "dictionary" / "tolokers.npz"
    members = mutations.unzipped(path.read_bytes())
    packed = mutations.zipped(members, zipfile.ZIP_LZMA)
    path.write_bytes(mutations.with_dictionary(packed, 2**32 - 1))
    os.truncate(folder / "hole" / "tolokers.npz", 3 * 2**30)
    members["edges.npy"] = mutations.with_header("-" * 9000 + "1")
    (folder / "header" / "tolokers.npz").write_bytes(mutations.zipped(members))
    miniatures.ogb(folder / "labels" / "ogbn_arxiv")
    bomb = gzip.compress(b"0\n" * 2**20) * 128  # 256 MB, and 1 GB as numbers
    (folder / "labels/ogbn_arxiv/raw/node-label.csv.gz").write_bytes(bomb)
    return {
        "deep": "cora",
        "dictionary": "tolokers",
        "hole": "tolokers",
        "header": "tolokers",
        "labels": "arxiv",
    }


BOUNDED = """
import json, resource, sys
from gnnrp import datasets
resource.setrlimit(resource.RLIMIT_DATA, (700 << 20,) * 2)
for folder, name in json.loads(sys.argv[2]).items():
    try:
        datasets.load(name, f"{sys.argv[1]}/{folder}", download=False)
    except ValueError as error:
        print(error)
"""


@linux
def test_bombs_are_refused_below_a_limit_of_the_system(tmp_path):
    names = bombs(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, str(tmp_path), json.dumps(names)],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = done.stdout.splitlines()
    assert len(told) == len(names)
    for folder, sentence in zip(names, told, strict=True):
        assert sentence.startswith(f"{tmp_path}/{folder}/")
        assert " is damaged or no " in sentence
