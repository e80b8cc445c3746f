"""Sizes of a run, and the terms that the memory estimates of the solvers share.

Each estimate counts the arrays of the largest stage without the arguments of the run;
the working memory of a similarity is assumed to be that of sparse products.
"""

from typing import Any, NamedTuple

import jax

from gnnrp import sparse
from gnnrp.types import LinearMap

WIDE = 8  # bytes of float64, the type of host computations
_RUNTIME_BYTES = 2**25  # compiled code, and what the allocator retains


class Sizes(NamedTuple):
    """Sizes of a run of RP."""

    num_nodes: int  # n
    num_classes: int  # c
    num_splits: int  # s
    num_train: int  # l, training nodes of the largest split
    num_evaluated: int  # q, validation and test nodes of a split, with their padding
    num_steps: int  # t
    num_step_sizes: int = 1
    num_entries: int = 0  # of the largest sparse matrix in S
    num_train_total: int = 0  # training nodes of all splits
    num_all_nodes: int = 0  # nodes of all processes
    itemsize: int = 4


def sizes_of(problem: Any, similarity: LinearMap, steps: Any) -> Sizes:
    """Return the sizes of a run on this process."""
    num_nodes, num_classes = problem.targets.shape
    num_evaluated = problem.val.mask.shape[1] + problem.test.mask.shape[1]
    if problem.is_sharded:
        num_shards = len(problem.targets.addressable_shards)
        num_nodes = num_nodes * num_shards // len(problem.targets.sharding.device_set)
        num_evaluated = 2 * num_nodes
    return Sizes(
        num_nodes,
        num_classes,
        num_splits=len(problem.train),
        num_train=int(problem.train.sum(axis=1).max()),
        num_evaluated=num_evaluated,
        num_steps=steps.num_steps,
        num_step_sizes=len(steps.step_sizes),
        num_entries=_num_entries(similarity),
        num_train_total=int(problem.train.sum()),
        num_all_nodes=len(problem.targets),
        itemsize=problem.targets.dtype.itemsize,
    )


def _num_entries(similarity: LinearMap) -> int:
    """Return the number of entries of the largest sparse matrix in a similarity."""

    def is_matrix(node: object) -> bool:
        return isinstance(node, sparse.Matrix)

    leaves = jax.tree.leaves(similarity, is_leaf=is_matrix)
    return max((x.data.size for x in leaves if is_matrix(x)), default=0)


def metric_entries(sizes: Sizes, num_columns: int) -> float:
    """Return the entries of the targets and of the arrays that a metric allocates.

    Accuracy allocates 2.7 times the scores, ROC-AUC 7.9 times.
    """
    targets = 1.5 * sizes.num_nodes * sizes.num_classes
    return targets + 3.5 * sizes.num_evaluated * num_columns


def total_bytes(sizes: Sizes, num_bytes: float) -> int:
    """Return the peak, with the columns of the matrix that training nodes select."""
    share = sizes.num_splits * sizes.num_train / max(1, sizes.num_nodes)
    entries = sizes.num_entries if share < 0.9 else 0
    selected = share * entries * (sizes.itemsize + 12)
    return add_runtime(max(num_bytes + selected, (9 + 42 * share) * entries))


def add_runtime(num_bytes: float) -> int:
    """Return the bytes with those of compiled code."""
    return int(num_bytes) + _RUNTIME_BYTES
