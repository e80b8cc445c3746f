"""The paper's datasets: ``load(name)`` finds or downloads, checks and reads the files.

``from_arrays`` makes one of your own graph, which ``load`` reads from an npz file.
``names()`` lists them, ``published(name)`` is the paper's row of Table 3, and
``statistics(dataset)`` the same for a loaded dataset. ``splits`` draws splits, ``sbm``
the synthetic graph.
"""

import os
from pathlib import Path

import numpy as np
from jaxtyping import Float

from gnnrp.datasets import (
    cache,
    csv_tables,
    heterophilous,
    ogb,
    own_graphs,
    sbm,
    splits,
    webkb,
)
from gnnrp.datasets.catalog import SOURCES, Source
from gnnrp.datasets.dataset import Dataset
from gnnrp.datasets.own_graphs import from_arrays
from gnnrp.datasets.table3 import (
    Published,
    Statistics,
    differences,
    published,
    statistics,
)
from gnnrp.runtime import checks
from gnnrp.types import Split

__all__ = [
    "Dataset",
    "Published",
    "Statistics",
    "differences",
    "find",
    "from_arrays",
    "is_file",
    "load",
    "names",
    "num_targets",
    "published",
    "sbm",
    "select_split",
    "splits",
    "statistics",
    "targets",
]

SPLIT_KINDS = {"copurchase": ("published", "random"), "csv_tables": ("random",)}
"""Layouts whose splits are drawn, and the kinds; the files of others hold theirs."""

DEMO_FRACTION = 0.5  # homophilic edges of load("sbm"): features and graph both help


def names() -> tuple[str, ...]:
    """Return the names of all datasets."""
    return tuple(SOURCES)


def is_file(name: str | os.PathLike[str]) -> bool:
    """Return whether ``load`` reads the name as the path of an npz file."""
    return str(name).endswith(".npz")


def find(name: str, root: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the folder that holds all files of the dataset, or None.

    Args:
        name: one of ``names()``.
        root: searched first, then ``$GNNRP_DATA``, then the user's cache.

    Raises:
        ValueError: unknown name.
    """
    checks.one_of("dataset", name, SOURCES)
    source = cache.locate(name, root)
    return source[1] if source else None


def load(
    name: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    splits: str | None = None,
    seed: int = 0,
    progress: bool = True,
    max_bytes: int | None = None,
) -> Dataset:
    """Load a dataset from the folder that ``find`` returns, or download it.

    Files on disk are checked for consistency, not for their sha256, since many copies
    are repacked; downloads must have the published sha256. OGB publishes none; its
    datasets are downloaded by the ogb package if it is installed, without a prompt.
    "sbm" is generated, half of its edges inside the blocks.

    Args:
        name: one of ``names()``, or the path of an npz file with your own graph: edges,
            labels and, optionally, features and the masks train, val and test, as
            ``from_arrays`` takes them.
        root: searched first, then ``$GNNRP_DATA``, then the user's cache; the folder of
            the dataset or its parent, as made by PyTorch Geometric, OGB or a clone of
            the original repository.
        download: download missing files to the user's cache.
        splits: "published" or "random"; by default the published ones. Computers,
            Photo, CS and Physics have both: the paper's one random split, or ten
            others. The CSV files of roman-empire have random splits only, "sbm" has
            neither, and an npz file has both if it holds masks.
        seed: of random splits, and of "sbm".
        progress: report downloads on standard error.
        max_bytes: memory limit of this process; by default, that of the container or
            machine, see ``runtime.memory``.

    Raises:
        ValueError: unknown name, splits that the dataset does not have, or a file that
            is damaged or too large.
        TypeError: an npz file with arrays of another type.
        FileNotFoundError: a file is missing and cannot be downloaded.

    Example:
        >>> data = load("sbm")
        >>> data.num_nodes, data.splits.train.shape
        (2000, (1, 2000))
    """
    seed = checks.count("seed", seed, 0)
    if is_file(name):
        if splits is not None:
            checks.one_of("splits", splits, ("published", "random"))
        path = Path(root or "", name)
        return own_graphs.read(path, split_kind=splits, seed=seed, max_bytes=max_bytes)
    checks.one_of("dataset", name, SOURCES)
    name = os.fspath(name)
    if name == "sbm":
        _check_split_kind(name, splits, ("generated",))
        return sbm.generate(seed, homophilic_fraction=DEMO_FRACTION)
    located = cache.locate(name, root)
    source = located[0] if located else SOURCES[name][0]
    kinds = SPLIT_KINDS.get(source.layout, ("published",))
    _check_split_kind(name, splits, kinds)
    if not located and not download:
        cache.refuse(name, root)
    source, folder = located or cache.fetch(name, root, progress=progress)
    return _read(source, folder, name, splits or kinds[0], seed, max_bytes)


def _check_split_kind(name: str, kind: str | None, kinds: tuple[str, ...]) -> None:
    if kind is None:
        return
    checks.one_of("splits", kind, ("published", "random"))
    if kind not in kinds:
        msg = (
            f"dataset {name!r} has no {kind} splits; omit splits for its "
            f"{kinds[0]} ones"
        )
        raise ValueError(msg)


def _read(
    source: Source,
    folder: Path,
    name: str,
    split_kind: str,
    seed: int,
    max_bytes: int | None,
) -> Dataset:
    from gnnrp.datasets import copurchase, planetoid  # scipy takes a while to import

    if source.layout == "copurchase":
        return copurchase.read(
            folder, name, split_kind=split_kind, seed=seed, max_bytes=max_bytes
        )
    if source.layout == "csv_tables":
        return csv_tables.read(folder, name, seed=seed, max_bytes=max_bytes)
    public = {
        "planetoid": planetoid.read,
        "webkb": webkb.read,
        "ogb": ogb.read,
        "heterophilous": heterophilous.read,
    }
    return public[source.layout](folder, name, max_bytes=max_bytes)


def select_split(dataset: Dataset, index: int) -> Dataset:
    """Return the dataset with only one of its splits.

    Raises:
        ValueError: no such split.
        TypeError: no dataset.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    index = checks.count("split", index, 0, len(dataset.splits.train) - 1)
    masks = (part[index : index + 1] for part in dataset.splits)
    return dataset._replace(splits=Split(*masks))


def num_targets(dataset: Dataset) -> int:
    """Return the number of columns of ``targets``."""
    if dataset.labels.ndim == 2:
        return dataset.labels.shape[1]
    return 1 if dataset.metric == "roc_auc" else dataset.num_classes


def targets(dataset: Dataset) -> Float[np.ndarray, "n c"]:
    """Return the targets of the metric.

    Accuracy: one-hot labels (n, c), a zero row for unknown labels; such nodes are in no
    mask. ROC-AUC: (n, 1), 1 for class 1, or one column per task; NaN if unknown.

    Raises:
        ValueError: a masked array; a node of a mask whose label is unknown or no class.
        TypeError: no dataset.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    labels = dataset.labels
    checks.no_masked_entries("labels", labels)
    if labels.ndim == 2:
        return labels.astype(np.float32)
    if dataset.metric == "roc_auc":
        return np.where(labels < 0, np.nan, labels == 1).astype(np.float32)[:, None]
    valid = (labels >= 0) & (labels < dataset.num_classes)
    for part, mask in dataset.splits._asdict().items():
        if (invalid := ~valid & mask).any():
            node = int(np.argwhere(invalid)[0, -1])
            msg = (
                f"node {node} of the {part} mask has label {labels[node]}, which is "
                f"not one of {dataset.num_classes} classes"
            )
            raise ValueError(msg)
    one_hot = np.zeros((len(labels), dataset.num_classes), np.float32)
    nodes = np.flatnonzero(valid)
    one_hot[nodes, labels[nodes]] = 1
    return one_hot
