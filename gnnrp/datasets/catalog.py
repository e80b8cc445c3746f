"""Files of each dataset, the folders to find them in, and their addresses."""

from typing import NamedTuple

RAW = "https://raw.githubusercontent.com"
PLANETOID = f"{RAW}/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data"
COPURCHASE = (
    f"{RAW}/shchur/gnn-benchmark/1e72912a0810cdf27ae54fd589a3b43358a2b161/data/npz"
)
HETEROPHILOUS = (
    f"{RAW}/yandex-research/heterophilous-graphs"
    "/a431395582e929d88271309716bea4fe24ce6318/data"
)
GEOM_GCN = f"{RAW}/bingzhewei/geom-gcn/1124af17444d7fd09686504ec46caa3f39f4f632"
OGB = "http://snap.stanford.edu/ogb/data/nodeproppred"


class Source(NamedTuple):
    """One published form of a dataset."""

    layout: str  # module of the reader
    folder: str  # in the cache
    aliases: frozenset[str]  # folder names, lower case, "_" for "-"
    files: tuple[str, ...]  # all required, below the folder
    urls: tuple[str, ...] = ()  # of each file; empty without a download
    archive: str | None = None  # address of a zip file
    # File names are unique to the dataset, so other files may be in the folder.
    unique_names: bool = True


def _planetoid(name: str) -> tuple[Source, ...]:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = tuple(f"ind.{name}.{part}" for part in parts)
    urls = tuple(f"{PLANETOID}/{file}" for file in files)
    return (Source("planetoid", name, frozenset({name}), files, urls),)


def _copurchase(folder: str, alias: str, file: str) -> tuple[Source, ...]:
    aliases = frozenset({folder, alias})
    return (Source("copurchase", folder, aliases, (file,), (f"{COPURCHASE}/{file}",)),)


def _heterophilous(name: str, *, download: bool = True) -> Source:
    folder = name.replace("-", "_")
    file = f"{folder}.npz"
    urls = (f"{HETEROPHILOUS}/{file}",) if download else ()
    return Source("heterophilous", folder, frozenset({folder}), (file,), urls)


def _csv(name: str) -> Source:
    folder = name.replace("-", "_")
    files = ("edges.csv", "labels.csv")
    aliases = frozenset({folder})
    return Source("csv_tables", folder, aliases, files, unique_names=False)


def _geom_gcn(name: str, *, download: bool, alias: str | None = None) -> Source:
    title = alias or name  # in file names
    nodes = ("out1_graph_edges.txt", "out1_node_feature_label.txt")
    splits = tuple(f"{title}_split_0.6_0.2_{i}.npz" for i in range(10))
    urls = (
        *(f"{GEOM_GCN}/new_data/{title}/{file}" for file in nodes),
        *(f"{GEOM_GCN}/splits/{file}" for file in splits),
    )
    files, aliases = (*nodes, *splits), frozenset({name, title})
    return Source("webkb", name, aliases, files, urls if download else ())


def _wikipedia(name: str) -> tuple[Source, ...]:
    return (
        _geom_gcn(name, download=False),
        _heterophilous(name, download=False),
    )


def _ogb(name: str, split: str) -> tuple[Source, ...]:
    folder, archive = f"ogbn_{name}", f"{OGB}/{name}.zip"
    aliases = frozenset({folder, name})
    raw = ("edge", "node-label", "num-node-list", "num-edge-list")
    files = (
        *(f"raw/{file}.csv.gz" for file in raw),
        *(f"split/{split}/{part}.csv.gz" for part in ("train", "valid", "test")),
    )
    return (Source("ogb", folder, aliases, files, (), archive, unique_names=False),)


# The first source that is present is read; the first one is downloaded.
SOURCES: dict[str, tuple[Source, ...]] = {
    "cora": _planetoid("cora"),
    "citeseer": _planetoid("citeseer"),
    "pubmed": _planetoid("pubmed"),
    "computers": _copurchase(
        "amazon_computers", "computers", "amazon_electronics_computers.npz"
    ),
    "photo": _copurchase("amazon_photo", "photo", "amazon_electronics_photo.npz"),
    "cs": _copurchase("coauthor_cs", "cs", "ms_academic_cs.npz"),
    "physics": _copurchase("coauthor_physics", "physics", "ms_academic_phy.npz"),
    # Geom-GCN first, because the paper's 325 edges are its lines.
    "texas": (_geom_gcn("texas", download=True), _heterophilous("texas")),
    "cornell": (_heterophilous("cornell"), _geom_gcn("cornell", download=False)),
    "wisconsin": (_heterophilous("wisconsin"), _geom_gcn("wisconsin", download=False)),
    "chameleon": _wikipedia("chameleon"),
    "squirrel": _wikipedia("squirrel"),
    "chameleon-filtered": (_heterophilous("chameleon-filtered", download=False),),
    "squirrel-filtered": (_heterophilous("squirrel-filtered", download=False),),
    "actor": (
        _geom_gcn("actor", download=False, alias="film"),
        _heterophilous("actor", download=False),
    ),
    # The CSV files lack features and public splits.
    "roman-empire": (_heterophilous("roman-empire"), _csv("roman-empire")),
    "amazon-ratings": (_heterophilous("amazon-ratings"),),
    "minesweeper": (_heterophilous("minesweeper"),),
    "tolokers": (_heterophilous("tolokers"),),
    "questions": (_heterophilous("questions"),),
    "arxiv": _ogb("arxiv", "time"),
    "proteins": _ogb("proteins", "species"),
    "products": _ogb("products", "sales_ranking"),
    "sbm": (),  # generated
}


def files(name: str, layout: str) -> tuple[str, ...]:
    """Return the required files of a dataset in one of its layouts."""
    return next(source.files for source in SOURCES[name] if source.layout == layout)
