"""The paper's datasets: ``load(name)`` finds, fetches, checks and reads the files.

``names()`` lists them, ``published(name)`` is the paper's row of Table 3,
``statistics(dataset)`` what was loaded. Splits are in ``splits``, the generator of the
synthetic graph in ``sbm``.
"""

import os
from pathlib import Path

import numpy as np
from jaxtyping import Float

from gnnrp.datasets import cache, heterophilous, ogb, sbm, splits, webkb
from gnnrp.datasets.catalog import SOURCES, Source
from gnnrp.datasets.dataset import Dataset
from gnnrp.datasets.statistics import (
    Published,
    Statistics,
    differing,
    published,
    statistics,
)
from gnnrp.runtime import checks
from gnnrp.types import Split

__all__ = [
    "Dataset",
    "Published",
    "Statistics",
    "differing",
    "find",
    "load",
    "names",
    "num_targets",
    "published",
    "sbm",
    "splits",
    "statistics",
    "targets",
    "with_split",
]

DEMO_FRACTION = 0.5  # homophilic edges of load("sbm"): features and graph both help


def names() -> tuple[str, ...]:
    """Return the names of all datasets."""
    return tuple(SOURCES)


def find(name: str, root: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the folder with all files of the dataset, None if there is none.

    Args:
        name: one of ``names()``.
        root: looked at first, then ``$GNNRP_DATA``, then the user's cache.

    Raises:
        ValueError: there is no dataset of that name.
    """
    checks.one_of("dataset", name, SOURCES)
    found = cache.locate(name, root)
    return found[1] if found else None


def load(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    seed: int = 0,
    progress: bool = True,
    max_bytes: int | None = None,
) -> Dataset:
    """Read a dataset, from where ``find`` finds it, else from the network.

    Files that are found are checked for consistency, not for their sha256, since many
    copies are repacked; files that are fetched must have the published one. OGB's sets,
    which have none, are fetched through the ogb package where it is installed. Nothing
    is ever asked on the terminal. "sbm" is generated, half of its edges inside the
    blocks.

    Args:
        name: one of ``names()``.
        root: looked at first, then ``$GNNRP_DATA``, then the user's cache; the folder
            of the dataset or one above it, as downloaded by PyTorch Geometric, OGB or
            by cloning the original repository.
        download: fetch into the user's cache what is not found.
        seed: of splits where none are published, and of "sbm".
        progress: report downloads on standard error.
        max_bytes: limit of all that this process holds while it reads; that of the
            container or machine if left out, see ``runtime.memory``.

    Raises:
        ValueError: there is no dataset of that name, or a file is damaged or too large.
        FileNotFoundError: a file is missing and cannot be fetched.

    Example:
        >>> data = load("sbm")
        >>> data.num_nodes, data.splits.train.shape
        (2000, (1, 2000))
    """
    checks.one_of("dataset", name, SOURCES)
    seed = checks.count("seed", seed, 0)
    if name == "sbm":
        return sbm.generate(seed, homophilic_fraction=DEMO_FRACTION)
    found = cache.locate(name, root)
    if not found and not download:
        cache.refuse(name, root)
    source, folder = found or cache.fetch(name, root, progress=progress)
    return _read(source, folder, name, seed, max_bytes)


def with_split(dataset: Dataset, index: int) -> Dataset:
    """Return the data set with only one of its splits.

    Raises:
        ValueError: it has no such split.
        TypeError: no data set.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    index = checks.count("split", index, 0, len(dataset.splits.train) - 1)
    return dataset._replace(
        splits=Split(*(part[index : index + 1] for part in dataset.splits))
    )


def num_targets(dataset: Dataset) -> int:
    """Return the number of columns of ``targets``."""
    if dataset.labels.ndim == 2:
        return dataset.labels.shape[1]
    return 1 if dataset.metric == "roc_auc" else dataset.num_classes


def targets(dataset: Dataset) -> Float[np.ndarray, "n c"]:
    """Return what the metric compares scores with.

    Accuracy: one-hot labels (n, c), a zero row where the label is unknown; such nodes
    are in no mask. ROC-AUC: (n, 1), whether the label is class 1, or one column a task;
    NaN where unknown.

    Raises:
        ValueError: a label that is no class or is masked, or none where a mask needs
            one.
        TypeError: no data set.
    """
    checks.instance("dataset", dataset, Dataset, "datasets.load makes one")
    labels = dataset.labels
    checks.plain("labels", labels)
    if labels.ndim == 2:
        return labels.astype(np.float32)
    if dataset.metric == "roc_auc":
        return np.where(labels < 0, np.nan, labels == 1).astype(np.float32)[:, None]
    unlabeled = labels < 0
    for part, mask in dataset.splits._asdict().items():
        if (bad := (unlabeled | (labels >= dataset.num_classes)) & mask).any():
            node = int(np.argwhere(bad)[0, -1])
            msg = (
                f"node {node} of the {part} mask has label {labels[node]}, which is "
                f"not one of {dataset.num_classes} classes"
            )
            raise ValueError(msg)
    found = np.zeros((len(labels), dataset.num_classes), np.float32)
    known = np.flatnonzero((labels >= 0) & (labels < dataset.num_classes))
    found[known, labels[known]] = 1
    return found


def _read(
    source: Source, folder: Path, name: str, seed: int, max_bytes: int | None
) -> Dataset:
    # These two need scipy, which takes a while to import.
    from gnnrp.datasets import copurchase, planetoid

    if source.layout == "planetoid":
        return planetoid.read(folder, name, max_bytes=max_bytes)
    if source.layout == "copurchase":
        return copurchase.read(folder, name, seed=seed, max_bytes=max_bytes)
    if source.layout == "csv":
        return heterophilous.read_csv(folder, name, seed=seed, max_bytes=max_bytes)
    if source.layout == "webkb":
        return webkb.read(folder, name, max_bytes=max_bytes)
    if source.layout == "ogb":
        return ogb.read(folder, name, max_bytes=max_bytes)
    return heterophilous.read(folder, name, max_bytes=max_bytes)
