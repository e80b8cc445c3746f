"""Splits of the labeled nodes: random, the paper's random split, or from lists."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from gnnrp.runtime import checks
from gnnrp.types import Split

PUBLISHED_SEED = 123
MAX_PERMUTED = (2**32 - 1) // 20  # beyond, torch draws 64 bits for each swap


def labeled_mask(
    labels: Int[np.ndarray, " n"] | Float[np.ndarray, "n q"],
) -> Bool[np.ndarray, " n"]:
    """Return the mask of the nodes with a label, or with at least one of several."""
    if np.ndim(labels) == 1:
        return checks.labels("labels", labels) >= 0
    labels = checks.reals("labels", labels)
    if labels.ndim != 2:
        msg = f"labels must have shape (n,) or (n, q), got {labels.shape}"
        raise ValueError(msg)
    return np.logical_not(np.isnan(labels).all(axis=1))


def random(
    labels: Int[np.ndarray, " n"] | Float[np.ndarray, "n q"],
    num_splits: int,
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
    seed: int = 0,
) -> Split:
    """Draw splits uniformly at random over the labeled nodes.

    Args:
        labels: class ids, -1 if unknown, or one column per task, NaN if unknown.
        num_splits: at least 1; the first splits do not depend on it.
        fractions: of train, validation and test; nonnegative, with sum 1. The first two
            sizes are rounded down, the rest is for testing.
        seed: of numpy's default generator.

    Returns:
        Masks of shape (num_splits, n).

    Raises:
        ValueError: fractions or number of splits out of range.
        TypeError: labels that are neither class ids nor columns of numbers.
    """
    num_splits = checks.count("num_splits", num_splits, 1)
    seed = checks.count("seed", seed, 0)
    shares = [
        checks.number("fractions", f)
        for f in checks.nonempty_list("fractions", fractions)
    ]
    if len(shares) != 3 or not min(shares) >= 0 or not abs(sum(shares) - 1) <= 1e-6:
        msg = f"fractions must be three, nonnegative, and sum to 1, got {shares}"
        raise ValueError(msg)
    nodes = np.flatnonzero(labeled_mask(labels))
    # 0.29 * 100 is just below 29 in floating point.
    num_train, num_val = (int(f * nodes.size + 1e-6) for f in fractions[:2])
    generator = np.random.default_rng(seed)
    train, val, test = (np.zeros((num_splits, len(labels)), bool) for _ in range(3))
    for i in range(num_splits):
        order = generator.permutation(nodes)
        train[i, order[:num_train]] = True
        val[i, order[num_train : num_train + num_val]] = True
        test[i, order[num_train + num_val :]] = True
    return Split(train, val, test)


def num_bytes(num_nodes: int, num_splits: int) -> int:
    """Return the peak memory of ``random``: masks, and permutations of node ids."""
    return num_nodes * (3 * num_splits + 32)


def published(num_nodes: int) -> Split:
    """Return the paper's one random split of Computers, Photo, CS and Physics.

    The authors call PyG's ``RandomNodeSplit("train_rest")`` after seeding torch with
    123. Its sizes are ``int(n * 0.1)`` and ``int(n * (0.9 - 0.8))``; the difference is
    below 0.1 in floating point, so that Photo has 764 test nodes and not 765.

    Args:
        num_nodes: n.

    Returns:
        Masks of shape (1, n): the first nodes of the permutation are for validation,
        the next ones for testing, the rest for training.

    Source: Table 4 (App. E.2), and the authors' code.

    Example:
        >>> [int(mask.sum()) for mask in published(7650)]
        [6121, 765, 764]
    """
    order = permutation(num_nodes, PUBLISHED_SEED)
    num_val, num_test = int(num_nodes * 0.1), int(num_nodes * (0.9 - 0.8))
    val, test, train = np.split(order, [num_val, num_val + num_test])
    return public(num_nodes, train, val, test)


def permutation(num_nodes: int, seed: int) -> Int[np.ndarray, " n"]:
    """Return ``torch.randperm(n)`` after ``torch.manual_seed(seed)``, without torch.

    Node i is swapped with node i + w_i mod (n - i), where the w_i are the 32-bit words
    of the Mersenne twister. NumPy's legacy generator has the same words.

    Args:
        num_nodes: n, at most 214,748,364; torch draws larger ones in another way.
        seed: from 0 to 2^32 - 1.

    Raises:
        ValueError: n or the seed is out of range.
    """
    num_nodes = checks.count("num_nodes", num_nodes, 0, MAX_PERMUTED)
    seed = checks.count("seed", seed, 0, 2**32 - 1)
    generator = np.random.RandomState(seed)
    words = generator.randint(0, 2**32, num_nodes, dtype=np.uint32)
    offsets = words % np.arange(num_nodes, 0, -1)
    order = list(range(num_nodes))
    for i, offset in enumerate(offsets.tolist()):
        order[i], order[i + offset] = order[i + offset], order[i]
    return np.array(order, np.int64)


def published_num_bytes(num_nodes: int) -> int:
    """Return the peak memory of ``published``, mostly two lists of Python integers."""
    return 120 * num_nodes


def public(
    num_nodes: int,
    train_index: Int[np.ndarray, " a"] | Sequence[int],
    val_index: Int[np.ndarray, " b"] | Sequence[int],
    test_index: Int[np.ndarray, " c"] | Sequence[int],
) -> Split:
    """Return one split, (1, n) masks, from lists of nodes.

    Args:
        num_nodes: n.
        train_index: training nodes.
        val_index: validation nodes.
        test_index: test nodes.

    Raises:
        ValueError: a node is out of range or in two of the lists.
    """
    num_nodes = checks.count("num_nodes", num_nodes, 0)
    split = Split(*np.zeros((3, 1, num_nodes), bool))
    lists = (train_index, val_index, test_index)
    for name, mask, nodes in zip(Split._fields, split, lists, strict=True):
        index = checks.node_ids(name, nodes, num_nodes)
        used = np.any(split, axis=(0, 1))[index]
        if used.any():
            msg = f"{name} node {index[used][0]} is in another part of the split"
            raise ValueError(msg)
        mask[0, index] = True
    return split
