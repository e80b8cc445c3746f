"""The paper's synthetic graph: a stochastic block model, homophilic to heterophilic."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from gnnrp.datasets import splits
from gnnrp.datasets.dataset import Dataset
from gnnrp.runtime import checks


@dataclasses.dataclass(frozen=True)
class SBMSettings:
    """Sizes, probabilities and features of the synthetic graph.

    Args:
        num_blocks: number of classes, at most 2^num_informative.
        block_size: nodes per block.
        intra_probability: p of an ordered pair in one block, in [0, 1].
        inter_probability: q of an ordered pair in two blocks, in [0, 1].
        homophilic_fraction: share of the first edge set to use, in [0, 1]; of the
            second, 1 minus it. About the edge homophily if the sets are equally large.
        num_features: d.
        num_informative: features whose class centers are distinct corners of a cube;
            all other features are noise.
        class_separation: half the edge of that cube, in standard deviations of the
            noise. At 0.7, the nearest center is the right one for 50 to 60 percent of
            the nodes.
        train_per_class: training nodes per class.
        num_val: validation nodes, drawn from the other nodes.
        num_test: test nodes, drawn from the remaining nodes.

    Raises:
        ValueError: a probability, a size or a count is out of range.
    """

    num_blocks: int = 5
    block_size: int = 400
    intra_probability: float = 0.01
    inter_probability: float = 0.0025
    homophilic_fraction: float = 1.0
    num_features: int = 100
    num_informative: int = 4
    class_separation: float = 0.7
    train_per_class: int = 20
    num_val: int = 500
    num_test: int = 1000

    def __post_init__(self) -> None:
        """Validate the settings."""
        for name in ("intra_probability", "inter_probability", "homophilic_fraction"):
            checks.in_interval(name, getattr(self, name), 0.0, 1.0)
        positive = ("block_size", "num_features", "num_informative", "num_blocks")
        for name in (*positive, "train_per_class", "num_val", "num_test"):
            count = checks.count(name, getattr(self, name), int(name in positive))
            object.__setattr__(self, name, count)
        most = min(self.num_features, 30)
        checks.count("num_informative", self.num_informative, 1, most)
        checks.count("num_blocks", self.num_blocks, 1, 2**self.num_informative)
        checks.in_interval("class_separation", self.class_separation, -1e6, 1e6)


def generate(
    seed: int = 0, settings: SBMSettings = SBMSettings(), **changes: Any
) -> Dataset:
    """Draw directed edges inside and between blocks, and weakly informative features.

    Two edge sets of about equal size are drawn, P = p I inside and P = q (1 1^T - I)
    between blocks, and mixed. Directions stay as drawn; cleaning symmetrizes.

    Args:
        seed: of numpy's default generator.
        settings: by default, the paper's.
        changes: fields of the settings to replace, such as ``homophilic_fraction``.

    Raises:
        ValueError: settings that are out of range.

    Source: App. D.2, "Synthetic".
    """
    seed = checks.count("seed", seed, 0)
    s = dataclasses.replace(settings, **changes)
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(s.num_blocks), s.block_size)
    num_intra = s.num_blocks * s.block_size * (s.block_size - 1)
    num_inter = s.num_blocks * (s.num_blocks - 1) * s.block_size**2
    share = s.homophilic_fraction
    intra = _draw_pairs(generator, num_intra, s.intra_probability, share)
    inter = _draw_pairs(generator, num_inter, s.inter_probability, 1 - share)
    intra = _inside_blocks(intra, s.block_size)
    inter = _between_blocks(inter, s.block_size, s.num_blocks)
    corners = _corners(generator, s.num_blocks, s.num_informative)
    features = generator.standard_normal((len(labels), s.num_features))
    features[:, : s.num_informative] += (s.class_separation * corners)[labels]
    order = generator.permutation(len(labels))
    return Dataset(
        name="sbm",
        edges=np.concatenate([intra, inter], axis=1),
        num_nodes=len(labels),
        features=features.astype(np.float32),
        labels=labels,
        num_classes=s.num_blocks,
        splits=splits.public(len(labels), *_split(labels[order], order, s)),
        metric="accuracy",
        edge_convention="once",
        files={},
        folder=None,
        split_kind="generated",
    )


def _corners(
    generator: np.random.Generator, count: int, dimension: int
) -> Float[np.ndarray, "c k"]:
    """Return distinct corners of a cube, so that no two classes share a center."""
    numbers = generator.choice(2**dimension, count, replace=False)
    return 2.0 * (numbers[:, None] >> np.arange(dimension) & 1) - 1


def _draw_pairs(
    generator: np.random.Generator, num_pairs: int, probability: float, share: float
) -> Int[np.ndarray, " e"]:
    """Return numbers of ordered pairs: a share of those drawn with a probability."""
    count = generator.binomial(num_pairs, probability)
    drawn = generator.choice(num_pairs, count, replace=False) if count else []
    return np.asarray(drawn, np.int64)[: round(share * count)]  # in random order


def _inside_blocks(
    pairs: Int[np.ndarray, " e"], block_size: int
) -> Int[np.ndarray, "2 e"]:
    sender, other = np.divmod(pairs, block_size - 1) if pairs.size else (pairs, pairs)
    local = sender % block_size
    return np.stack([sender, sender - local + other + (other >= local)])  # no loops


def _between_blocks(
    pairs: Int[np.ndarray, " e"], block_size: int, num_blocks: int
) -> Int[np.ndarray, "2 e"]:
    num_others = block_size * (num_blocks - 1)
    sender, other = np.divmod(pairs, num_others) if pairs.size else (pairs, pairs)
    start = sender - sender % block_size
    return np.stack([sender, other + block_size * (other >= start)])


def _split(
    labels: Int[np.ndarray, " n"], order: Int[np.ndarray, " n"], settings: SBMSettings
) -> tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"], Int[np.ndarray, " c"]]:
    """Return training, validation and test nodes from a random order of the nodes."""
    per_class = settings.train_per_class
    num_val, num_test = settings.num_val, settings.num_test
    train = np.zeros(len(order), bool)
    for label in np.unique(labels):
        train[np.flatnonzero(labels == label)[:per_class]] = True
    rest = order[~train]
    if num_val + num_test > len(rest):
        msg = (
            f"num_val + num_test must be at most {len(rest)}, the nodes left by "
            f"{per_class} training nodes per class, got {num_val} + {num_test}"
        )
        raise ValueError(msg)
    return order[train], rest[:num_val], rest[num_val : num_val + num_test]
