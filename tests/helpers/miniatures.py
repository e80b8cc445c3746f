"""Miniature files in the formats of the paper's datasets, by a generator of ours.

Every function writes one dataset into a folder and returns what a reader must find.
"""

import gzip
import struct
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse

from gnnrp.datasets import copurchase as copurchase_reader
from gnnrp.datasets import csv_tables as csv_reader
from gnnrp.datasets import heterophilous as heterophilous_reader
from gnnrp.datasets import ogb as ogb_reader
from gnnrp.datasets import planetoid as planetoid_reader
from gnnrp.datasets import webkb as webkb_reader


class Written(NamedTuple):
    edges: np.ndarray  # (2, e), as stored
    features: np.ndarray | None  # dense
    labels: np.ndarray


# Pickles of Python 2, protocol 2, byte by byte: no Python of today writes them.


def opcode_global(module: str, name: str) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode()


def _string(raw: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(raw)) + raw


def _integer(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)


def pickled_array(array: np.ndarray) -> bytes:
    code = array.dtype.str
    shape = b"(" + b"".join(map(_integer, array.shape)) + b"t"
    dtype = opcode_global("numpy", "dtype") + _string(code[1:].encode())
    dtype += _integer(0) + _integer(1) + b"\x87R"
    dtype += b"(" + _integer(3) + _string(code[:1].encode()) + b"NNN"
    dtype += _integer(-1) + _integer(-1) + _integer(0) + b"tb"
    return (
        opcode_global("numpy.core.multiarray", "_reconstruct")
        + opcode_global("numpy", "ndarray")
        + (_integer(0) + b"\x85" + _string(b"b") + b"\x87R")
        + (b"(" + _integer(1) + shape + dtype + b"\x89" + _string(array.tobytes()))
        + b"tb"
    )


def pickled_matrix(matrix: scipy.sparse.csr_array) -> bytes:
    rows, columns = matrix.shape
    state = {
        b"format": _string(b"csr"),
        b"_shape": _integer(rows) + _integer(columns) + b"\x86",
        b"maxprint": _integer(50),
        b"indptr": pickled_array(matrix.indptr.astype("<i4")),
        b"indices": pickled_array(matrix.indices.astype("<i4")),
        b"data": pickled_array(matrix.data.astype("<f4")),
    }
    items = b"".join(_string(key) + value for key, value in state.items())
    return opcode_global("scipy.sparse.csr", "csr_matrix") + b")\x81}(" + items + b"ub"


def pickled_graph(graph: dict[int, list[int]]) -> bytes:
    items = b"".join(
        _integer(node) + b"](" + b"".join(map(_integer, neighbors)) + b"e"
        for node, neighbors in graph.items()
    )
    factory = opcode_global("collections", "defaultdict")
    factory += opcode_global("__builtin__", "list") + b"\x85R"
    return factory + b"q\x01(" + items + b"u"


def pickle_program(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


def planetoid(folder: Path, name: str = "cora") -> Written:
    """Seven nodes as in Citeseer: test ids 6 and 4, in this order, and 5 missing."""
    folder.mkdir(parents=True, exist_ok=True)
    features = np.zeros((7, 5), np.float32)
    features[[0, 1, 2, 3, 4, 6], [0, 1, 2, 0, 3, 4]] = 1
    features[3, 4] = 0.5
    labels = np.array([0, 1, 0, 1, 1, -1, 0])
    graph = {
        0: [1, 2, 2],  # a duplicate
        1: [0],
        2: [0, 0, 3],
        3: [2, 3],  # a loop
        4: [5],
        5: [4, 6],
        6: [5],
    }
    test = np.array([6, 4])
    one_hot = np.eye(2, dtype="<i4")
    parts = {
        "x": pickled_matrix(scipy.sparse.csr_array(features[:2])),
        "tx": pickled_matrix(scipy.sparse.csr_array(features[test])),
        "allx": pickled_matrix(scipy.sparse.csr_array(features[:4])),
        "y": pickled_array(one_hot[labels[:2]]),
        "ty": pickled_array(one_hot[labels[test]]),
        "ally": pickled_array(one_hot[labels[:4]]),
        "graph": pickled_graph(graph),
    }
    for part, body in parts.items():
        (folder / f"ind.{name}.{part}").write_bytes(pickle_program(body))
    (folder / f"ind.{name}.test.index").write_text("6\n4\n")
    edges = [(i, j) for i, neighbors in graph.items() for j in neighbors]
    return Written(np.array(edges).T, features, labels)


def _ring(num_nodes: int) -> np.ndarray:
    nodes = np.arange(num_nodes)
    return np.stack([nodes, (nodes + 1) % num_nodes])


def _splits(num_nodes: int, num_splits: int = 10) -> dict[str, np.ndarray]:
    parts = np.arange(num_nodes) % 3 + np.zeros((num_splits, 1), int)
    parts = np.stack([np.roll(row, i) for i, row in enumerate(parts)])
    return {name: parts == i for i, name in enumerate(("train", "val", "test"))}


def heterophilous(folder: Path, name: str = "tolokers", num_nodes: int = 12) -> Written:
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    features = generator.standard_normal((num_nodes, 3)).astype(np.float32)
    labels = np.arange(num_nodes) % 2
    edges = _ring(num_nodes)
    np.savez_compressed(
        folder / f"{name.replace('-', '_')}.npz",
        allow_pickle=False,
        node_features=features,
        node_labels=labels,
        edges=edges.T,
        **{f"{part}_masks": masks for part, masks in _splits(num_nodes).items()},
    )
    return Written(edges, features, labels)


def roman_empire_csv(folder: Path, num_nodes: int = 12) -> Written:
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.arange(num_nodes) % 3
    edges = _ring(num_nodes)
    lines = ["source,target", *(f"{i},{j}" for i, j in edges.T)]
    (folder / "edges.csv").write_text("\n".join(lines) + "\n")
    (folder / "labels.csv").write_text("label\n" + "".join(f"{i}\n" for i in labels))
    return Written(edges, None, labels)


def webkb(folder: Path, name: str = "texas", num_nodes: int = 12) -> Written:
    folder.mkdir(parents=True, exist_ok=True)
    features = (np.arange(num_nodes)[:, None] % [2, 3, 4] == 0).astype(np.float32)
    labels = np.arange(num_nodes) % 4
    edges = np.concatenate([_ring(num_nodes), [[3], [3]]], axis=1)  # a loop
    lines = ["node_id\tfeature\tlabel"]
    for node in range(num_nodes - 1, -1, -1):  # not sorted
        cell = ",".join(str(int(value)) for value in features[node])
        lines.append(f"{node}\t{cell}\t{labels[node]}")
    (folder / "out1_node_feature_label.txt").write_text("\n".join(lines) + "\n")
    lines = ["node_id\tnode_id", *(f"{i}\t{j}" for i, j in edges.T)]
    (folder / "out1_graph_edges.txt").write_text("\n".join(lines) + "\n")
    masks = _splits(num_nodes)
    for i in range(10):
        np.savez_compressed(
            folder / f"{name}_split_0.6_0.2_{i}.npz",
            allow_pickle=False,
            **{f"{part}_mask": masks[part][i].astype(np.uint8) for part in masks},
        )
    return Written(edges, features, labels)


def actor(folder: Path, num_nodes: int = 12) -> Written:
    """Write the format of Geom-GCN with the places of the ones."""
    written = webkb(folder, "film", num_nodes)
    features = np.zeros((num_nodes, 932), np.float32)
    lines = ["node_id\tfeature\tlabel"]
    for node in range(num_nodes - 1, -1, -1):
        places = {node % 5, 7 * node, 931 - node}
        features[node, list(places)] = 1
        cell = ",".join(map(str, sorted(places)))
        lines.append(f"{node}\t{cell}\t{written.labels[node]}")
    (folder / "out1_node_feature_label.txt").write_text("\n".join(lines) + "\n")
    return written._replace(features=features)


def copurchase(folder: Path, file: str = "amazon_electronics_photo.npz") -> Written:
    """Twenty nodes, unsymmetric, with a loop; the class names are pickled."""
    folder.mkdir(parents=True, exist_ok=True)
    num_nodes = 20
    features = (np.arange(num_nodes)[:, None] % [2, 3, 5, 7] == 0).astype(np.float32)
    labels = np.arange(num_nodes) % 4
    edges = np.concatenate([_ring(num_nodes), [[3], [3]]], axis=1)
    edges = edges[:, np.argsort(edges[0], kind="stable")]
    ones = np.ones(edges.shape[1], np.float32)
    adjacency = scipy.sparse.csr_array((ones, edges), shape=(num_nodes, num_nodes))
    matrices = {"adj": adjacency, "attr": scipy.sparse.csr_array(features)}
    arrays = {
        f"{name}_{part}": np.asarray(getattr(matrix, part))
        for name, matrix in matrices.items()
        for part in ("data", "indices", "indptr", "shape")
    }
    class_names = np.array(["a", "b", "c", "d"], dtype=object)
    np.savez(folder / file, labels=labels, class_names=class_names, **arrays)
    pairs = adjacency.tocoo()
    return Written(np.stack([pairs.row, pairs.col]), features, labels)


OGB_SPLITS = {"arxiv": "time", "proteins": "species", "products": "sales_ranking"}


def ogb(
    folder: Path, name: str = "arxiv", *, features: bool = False, num_tasks: int = 3
) -> Written:
    """Twelve nodes; proteins with tasks, one label unknown, features of edges."""
    num_nodes = 12
    edges = _ring(num_nodes)
    labels = np.arange(num_nodes) % 4
    lines = [str(label) for label in labels]
    if name == "proteins":
        divisors = 2 + np.arange(num_tasks)  # the larger ones divide no test node
        labels = (np.arange(num_nodes)[:, None] % divisors == 0).astype(np.float32)
        labels[5, 1] = np.nan
        lines = [
            ",".join("nan" if np.isnan(x) else str(int(x)) for x in row)
            for row in labels
        ]
    files = {
        "raw/edge": [f"{i},{j}" for i, j in edges.T],
        "raw/node-label": lines,
        "raw/num-node-list": [str(num_nodes)],
        "raw/num-edge-list": [str(edges.shape[1])],
    }
    for i, part in enumerate(("train", "valid", "test")):
        files[f"split/{OGB_SPLITS[name]}/{part}"] = [
            str(node) for node in range(i, num_nodes, 3)
        ]
    values = None
    if features and name == "proteins":
        stored = np.random.default_rng(0).random((num_nodes, 8)).astype(np.float32)
        files["raw/edge-feat"] = [",".join(map(str, row)) for row in stored]
        values = (stored + np.roll(stored, 1, axis=0)) / 2  # a ring: edges i - 1 and i
    elif features:
        values = np.random.default_rng(0).standard_normal((num_nodes, 3))
        values = values.astype(np.float32)
        files["raw/node-feat"] = [",".join(map(str, row)) for row in values]
    for file, rows in files.items():
        _gzipped(folder / f"{file}.csv.gz", rows)
    return Written(edges, values, labels)


def ogb_release(folder: Path, name: str = "arxiv", *, num_tasks: int = 112) -> Written:
    """All that an archive of OGB's holds: what our reader does not look at, too."""
    written = ogb(folder, name, features=True, num_tasks=num_tasks)
    (folder / "RELEASE_v1.txt").touch()
    (folder / "processed").mkdir()
    _gzipped(folder / "mapping" / "nodeidx2id.csv.gz", ["node idx,id"])
    beside = {"arxiv": "node_year", "proteins": "node_species"}.get(name)
    if beside:
        _gzipped(folder / "raw" / f"{beside}.csv.gz", ["2017"] * len(written.labels))
    return written


def _gzipped(path: Path, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(f"{row}\n" for row in rows).encode()))


# name of the layout -> writer, reader
LAYOUTS = {
    "planetoid": (
        planetoid,
        partial(planetoid_reader.read, name="cora"),
    ),
    "heterophilous": (
        heterophilous,
        partial(heterophilous_reader.read, name="tolokers"),
    ),
    "csv": (
        roman_empire_csv,
        partial(csv_reader.read, name="roman-empire"),
    ),
    "webkb": (
        webkb,
        partial(webkb_reader.read, name="texas"),
    ),
    "copurchase": (
        copurchase,
        partial(copurchase_reader.read, name="photo"),
    ),
    "arxiv": (
        partial(ogb, name="arxiv", features=True),
        partial(ogb_reader.read, name="arxiv"),
    ),
    "proteins": (
        partial(ogb, name="proteins", features=True),
        partial(ogb_reader.read, name="proteins"),
    ),
    "products": (
        partial(ogb, name="products", features=True),
        partial(ogb_reader.read, name="products"),
    ),
}
