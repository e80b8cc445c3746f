"""Positions of training nodes and other nodes in the arrays of a Krylov space."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gnnrp.propagation.problem import Part, Problem


class NodeIndex(NamedTuple):
    """Positions of the nodes of each split; index n is padding."""

    train: Int[Any, "s l"]  # the training nodes
    rest: Int[Any, "s r"]  # other nodes, in any order
    position: Int[Any, "s n"]  # of a node in ``train``; l if it is not a training node

    def scatter(self, vector: Float[Array, "s c l"]) -> Float[Array, "n s c"]:
        """Return values of all nodes, zero outside the training nodes."""
        # Gathering rows is much faster while the columns of a node are contiguous.
        by_row = jnp.pad(jnp.swapaxes(vector, 1, 2), ((0, 0), (0, 1), (0, 0)))
        count = range(len(vector))
        return jnp.stack([by_row[s][self.position[s]] for s in count], 1)

    def take_train(self, image: Float[Array, "n s c"]) -> Float[Array, "s c l"]:
        """Return the values on the training nodes; zero in the padding."""
        return _take(image, self.train)

    def take_rest(self, image: Float[Array, "n s c"]) -> Float[Array, "s c r"]:
        """Return the values on the other nodes; zero in the padding."""
        return _take(image, self.rest)

    @property
    def num_rest(self) -> int:
        """Number of values of ``take_rest`` in each column."""
        return self.rest.shape[1]


class AllNodes(NamedTuple):
    """All nodes in their own order, for rows that devices share."""

    train: Bool[Array, "s n"]

    def scatter(self, vector: Float[Array, "s c n"]) -> Float[Array, "n s c"]:
        """Return values of all nodes, zero outside the training nodes."""
        return jnp.moveaxis(vector, 2, 0)

    def take_train(self, image: Float[Array, "n s c"]) -> Float[Array, "s c n"]:
        """Return the values on the training nodes, zero elsewhere."""
        return jnp.where(self.train[:, None], jnp.moveaxis(image, 0, 2), 0)

    def take_rest(self, image: Float[Array, "n s c"]) -> Float[Array, "s c n"]:
        """Return the values on all nodes."""
        return jnp.moveaxis(image, 0, 2)

    @property
    def num_rest(self) -> int:
        """Number of values of ``take_rest`` in each column."""
        return self.train.shape[1]


Positions = NodeIndex | AllNodes


def find(problem: Problem) -> Positions:
    """Return the positions; the evaluated nodes are the first of the rest."""
    if problem.is_sharded:
        return AllNodes(problem.train)
    parts: list[Part] = [problem.val, problem.test]
    others = ~problem.train
    for part in parts:
        for row, index, inside in zip(others, part.index, part.mask, strict=True):
            row[index[inside]] = False
    rest = [part.index for part in parts] + [pad_index(others)]
    return index_nodes(problem.train, np.concatenate(rest, axis=1))


def index_nodes(
    train_mask: Bool[np.ndarray, "s n"], rest: Int[np.ndarray, "s r"]
) -> NodeIndex:
    """Return the positions of the training nodes of each split, and of other nodes."""
    train = pad_index(train_mask)
    position = np.full(train_mask.shape, train.shape[1], np.int32)
    for row, mask in zip(position, train_mask, strict=True):
        row[mask] = np.arange(mask.sum())
    return NodeIndex(train, rest, position)


def pad_index(mask: np.ndarray) -> np.ndarray:
    """Return the indices of the true entries of each row, padded with n."""
    width = max(1, int(mask.sum(axis=1).max(initial=0)))
    index = np.full((mask.shape[0], width), mask.shape[1], np.int32)
    for row, entries in zip(index, mask, strict=True):
        row[: entries.sum()] = np.flatnonzero(entries)
    return index


def _take(image, index):
    """Return the rows of each split, (s, c, r); zero in the padding."""
    rows = [
        image[:, s].at[nodes].get(mode="fill", fill_value=0).T
        for s, nodes in enumerate(index)
    ]
    return jnp.stack(rows)
