"""Tables of text: every format gives the same columns, and bad files one sentence."""

import gzip

import networkx as nx
import numpy as np
import pandas
import pytest

from gnnrp.tables import files

ROWS = [("007", "b"), ("7", ""), ("x y", "NA")]
TEXT = "id,label\n007,b\n7,\nx y,NA\n"


def read(path, **settings):
    return files.read(path, "nodes", **settings)


def write(tmp_path, name, text, encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", TEXT),
        ("a.tsv", TEXT.replace(",", "\t")),
        ("a.txt", TEXT.replace(",", ";")),
        ("a.csv", TEXT.replace("\n", "\r\n") + "\n"),
        ("a.csv", "\ufeff" + TEXT),
        ("a.csv", TEXT.replace("x y", '"x y"').replace(",", ", ")),
    ],
)
def test_text_files_of_each_separator_give_the_same_columns(tmp_path, name, text):
    table = read(write(tmp_path, name, text))
    assert list(table.columns) == ["id", "label"]
    assert list(zip(*table.columns.values(), strict=True)) == ROWS
    assert table.place(1) == f"{tmp_path / name}, line 3"


def test_a_gzipped_file_and_a_parquet_file_give_the_same_columns(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    ids, labels = zip(*ROWS, strict=True)
    pandas.DataFrame({"id": ids, "label": labels}).to_parquet(tmp_path / "a.parquet")
    tables = [read(tmp_path / name) for name in ("a.csv.gz", "a.parquet")]
    for table in tables:
        assert list(zip(*table.columns.values(), strict=True)) == ROWS
    assert tables[1].place(1).endswith("a.parquet, row 2")


def test_whole_numbers_of_a_parquet_file_have_no_decimal_point(tmp_path):
    frame = pandas.DataFrame({"id": [1, 2], "x": [3.0, None], "y": [0.5, 2.0]})
    frame.to_parquet(tmp_path / "a.parquet")
    table = read(tmp_path / "a.parquet")
    assert table.columns["id"].tolist() == ["1", "2"]
    assert table.columns["x"].tolist() == ["3", ""]
    assert table.columns["y"].tolist() == ["0.5", "2"]


def test_graphml_gives_a_table_of_edges_and_one_of_nodes(tmp_path):
    graph = nx.Graph()
    graph.add_node("a", club="red", id="5")
    graph.add_edge("a", "b", weight=2.5, source="phone")
    nx.write_graphml(graph, tmp_path / "a.graphml")
    edges = files.read(tmp_path / "a.graphml", "edges")
    assert {k: v.tolist() for k, v in edges.columns.items()} == {
        "source": ["a"],
        "target": ["b"],
        "weight": ["2.5"],
    }
    nodes = read(tmp_path / "a.graphml")
    assert nodes.columns["id"].tolist() == ["a", "b"]
    assert nodes.columns["club"].tolist() == ["red", ""]


def test_columns_are_found_by_name_or_by_position(tmp_path):
    table = read(write(tmp_path, "a.csv", TEXT))
    assert table.name("label") == table.name("1") == "label"
    table = read(write(tmp_path, "a.csv", TEXT), header=False)
    assert list(table.columns) == ["0", "1"]
    assert table.num_rows == 4
    assert table.place(0).endswith("line 1")
    for name in ("club", "²", "2"):
        with pytest.raises(
            ValueError, match=f"no column '{name}'; it has '0', '1', or"
        ):
            table.name(name)


def test_another_encoding_is_named(tmp_path):
    path = write(tmp_path, "a.csv", "id,label\nJosé,b\n", encoding="latin-1")
    with pytest.raises(ValueError, match=r"not in the encoding 'utf-8' .*latin-1"):
        read(path)
    table = read(path, encoding="latin-1")
    assert table.columns["id"].tolist() == ["José"]
    with pytest.raises(ValueError, match="encoding must be one of Python's"):
        read(path, encoding="no such")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "has no rows; it needs one for each of the nodes"),
        (",id,label\n0,a,b\n", "column 0 has no name, like an index"),
        ("id ,id\na,b\n", "has several columns named 'id'"),
        ("id,label\n", "has no rows; it needs one for each of the nodes"),
        ("id,label\na,b,c\n", "cannot be read as a table"),
        ("id,label\na,b\nc,d,e\n", r"cannot be read as a table .*line 3"),
        ('id,label\n"a,b\n', "cannot be read as a table"),
    ],
)
def test_damaged_text_is_one_sentence_with_the_file(tmp_path, text, match):
    path = write(tmp_path, "a.csv", text)
    with pytest.raises(ValueError, match=match) as error:
        read(path)
    assert str(error.value).startswith(str(path))


def test_other_formats_with_the_name_of_text_are_named(tmp_path):
    for start, kind in ((b"PK\x03\x04", "workbook"), (b"PAR1", "Parquet")):
        (tmp_path / "a.csv").write_bytes(start + b"...")
        with pytest.raises(ValueError, match=f"cannot be read as a table .*{kind}"):
            read(tmp_path / "a.csv")
    write(tmp_path, "a.csv", TEXT, encoding="utf-16")
    with pytest.raises(ValueError, match="text in UTF-16"):
        read(tmp_path / "a.csv")


def test_a_named_index_of_a_parquet_file_is_a_column(tmp_path):
    frame = pandas.DataFrame({"id": ["a", "b"], "label": ["x", "y"]}).set_index("id")
    frame.to_parquet(tmp_path / "a.parquet")
    assert list(read(tmp_path / "a.parquet").columns) == ["id", "label"]


def test_damaged_binary_files_are_one_sentence(tmp_path):
    for name in ("a.parquet", "a.graphml", "a.csv.gz"):
        (tmp_path / name).write_bytes(b"\x1f\x8bno file of this kind")
        with pytest.raises(ValueError, match="cannot be read as a table"):
            read(tmp_path / name)


def test_a_missing_file_and_a_folder_are_one_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such file or directory"):
        read(tmp_path / "no.csv")
    with pytest.raises(IsADirectoryError, match="cannot be read"):
        read(tmp_path)


def test_files_larger_than_the_memory_are_refused(tmp_path):
    path = write(tmp_path, "a.csv", "id,label\n" + "a,b\n" * 10_000)
    with pytest.raises(ValueError, match="reading it takes"):
        read(path, max_bytes=1)


def test_a_bomb_is_refused(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n" * 2**23))
    with pytest.raises(ValueError, match="unpacks to more than"):
        read(tmp_path / "a.csv.gz")


def test_without_pandas_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(
        files.MissingPackageError, match=r"pip install 'gnnrp\[tables\]'"
    ):
        read(write(tmp_path, "a.csv", TEXT))


def test_ids_are_kept_as_text(tmp_path):
    table = read(write(tmp_path, "a.csv", "id,label\n1e3,a\n0010,b\nNA,c\n"))
    np.testing.assert_array_equal(table.columns["id"], ["1e3", "0010", "NA"])
