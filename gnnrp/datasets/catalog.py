"""Which files make up a dataset, what folders hold them, and where they come from."""

from typing import NamedTuple

from gnnrp.datasets import ogb, webkb

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


class Source(NamedTuple):
    """One way in which a dataset is published."""

    layout: str  # names the reader
    folder: str  # where it is put in the cache
    aliases: frozenset[str]  # folder names, lower case, "_" for "-"
    files: tuple[str, ...]  # all of them needed, below the folder
    urls: tuple[str, ...]  # of each file; empty if it cannot be fetched by file
    archive: str | None = None  # to be fetched and unpacked by hand
    # Whether the file names tell the dataset, so that they may lie among others.
    telling: bool = True


def _planetoid(name: str) -> tuple[Source, ...]:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = tuple(f"ind.{name}.{part}" for part in parts)
    urls = tuple(f"{PLANETOID}/{file}" for file in files)
    return (Source("planetoid", name, frozenset({name}), files, urls),)


def _copurchase(folder: str, alias: str, file: str) -> tuple[Source, ...]:
    aliases = frozenset({folder, alias})
    return (Source("copurchase", folder, aliases, (file,), (f"{COPURCHASE}/{file}",)),)


def _heterophilous(name: str) -> Source:
    folder = name.replace("-", "_")
    file = f"{folder}.npz"
    urls = (f"{HETEROPHILOUS}/{file}",)
    return Source("heterophilous", folder, frozenset({folder}), (file,), urls)


def _csv(name: str) -> Source:
    folder = name.replace("-", "_")
    files = ("edges.csv", "labels.csv")
    return Source("csv", folder, frozenset({folder}), files, (), telling=False)


def _geom_gcn(name: str, *, fetched: bool) -> Source:
    nodes = (webkb.EDGES, webkb.NODES)
    splits = tuple(webkb.split_file(name, i) for i in range(webkb.NUM_SPLITS))
    urls = (
        *(f"{GEOM_GCN}/new_data/{name}/{file}" for file in nodes),
        *(f"{GEOM_GCN}/splits/{file}" for file in splits),
    )
    files = (*nodes, *splits)
    return Source("webkb", name, frozenset({name}), files, urls if fetched else ())


def _ogb(name: str) -> tuple[Source, ...]:
    folder = f"ogbn_{name}"
    archive = f"http://snap.stanford.edu/ogb/data/nodeproppred/{name}.zip"
    return (
        Source(
            layout="ogb",
            folder=folder,
            aliases=frozenset({folder, name}),
            files=ogb.required(name),
            urls=(),
            archive=archive,
            telling=False,
        ),
    )


# Of several sources, the first that is found is read, and the first is fetched.
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
    # Geom-GCN's first, because the paper's 325 edges are its lines.
    "texas": (_geom_gcn("texas", fetched=True), _heterophilous("texas")),
    "cornell": (_heterophilous("cornell"), _geom_gcn("cornell", fetched=False)),
    "wisconsin": (_heterophilous("wisconsin"), _geom_gcn("wisconsin", fetched=False)),
    # The CSV dump lacks features and public splits.
    "roman-empire": (_heterophilous("roman-empire"), _csv("roman-empire")),
    "amazon-ratings": (_heterophilous("amazon-ratings"),),
    "minesweeper": (_heterophilous("minesweeper"),),
    "tolokers": (_heterophilous("tolokers"),),
    "questions": (_heterophilous("questions"),),
    "arxiv": _ogb("arxiv"),
    "proteins": _ogb("proteins"),
    "products": _ogb("products"),
    "sbm": (),  # generated
}
