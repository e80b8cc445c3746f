"""Where the nodes stand that a Krylov space is made of and looked at."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


class Indexed(NamedTuple):
    """Where the nodes of each split stand; ``n``, which is no node, is padding."""

    train: Int[Any, "s l"]  # the training nodes
    rest: Int[Any, "s r"]  # where S is looked at, in any order
    position: Int[Any, "s n"]  # of a node among ``train``; l if it is not there

    def spread(self, vector: Float[Array, "s c l"]) -> Float[Array, "n s c"]:
        """Return values of all nodes, zero but on the training nodes."""
        # Rows are gathered while the columns of a node lie together, much faster.
        by_row = jnp.pad(jnp.swapaxes(vector, 1, 2), ((0, 0), (0, 1), (0, 0)))
        count = range(len(vector))
        return jnp.stack([by_row[s][self.position[s]] for s in count], 1)

    def on_train(self, moved: Float[Array, "n s c"]) -> Float[Array, "s c l"]:
        """Return the values on the training nodes; zero in the padding."""
        return _picked(moved, self.train)

    def on_rest(self, moved: Float[Array, "n s c"]) -> Float[Array, "s c r"]:
        """Return the values on the other nodes; zero in the padding."""
        return _picked(moved, self.rest)

    @property
    def num_rest(self) -> int:
        """How many there are of these."""
        return self.rest.shape[1]


class InPlace(NamedTuple):
    """The same where devices share the rows: nodes stay where they are."""

    train: Bool[Array, "s n"]

    def spread(self, vector: Float[Array, "s c n"]) -> Float[Array, "n s c"]:
        """Return values of all nodes, zero but on the training nodes."""
        return jnp.moveaxis(vector, 2, 0)

    def on_train(self, moved: Float[Array, "n s c"]) -> Float[Array, "s c n"]:
        """Return the values on the training nodes, zero elsewhere."""
        return jnp.where(self.train[:, None], jnp.moveaxis(moved, 0, 2), 0)

    def on_rest(self, moved: Float[Array, "n s c"]) -> Float[Array, "s c n"]:
        """Return the values on all nodes."""
        return jnp.moveaxis(moved, 0, 2)

    @property
    def num_rest(self) -> int:
        """How many there are of these."""
        return self.train.shape[1]


def indexed(
    train_mask: Bool[np.ndarray, "s n"], rest: Int[np.ndarray, "s r"]
) -> Indexed:
    """Return where the training nodes of the splits stand, and the others asked for."""
    train = padded_index(train_mask)
    position = np.full(train_mask.shape, train.shape[1], np.int32)
    for row, mask in zip(position, train_mask, strict=True):
        row[mask] = np.arange(mask.sum())
    return Indexed(train, rest, position)


def padded_index(mask: np.ndarray) -> np.ndarray:
    """Return where each row of (s, n) is true, padded with n to one length."""
    width = max(1, int(mask.sum(axis=1).max(initial=0)))
    index = np.full((mask.shape[0], width), mask.shape[1], np.int32)
    for row, entries in zip(index, mask, strict=True):
        row[: entries.sum()] = np.flatnonzero(entries)
    return index


def _picked(moved, index):
    """Return the rows that each split looks at, (s, c, r); zero in the padding."""
    rows = [
        moved[:, s].at[some].get(mode="fill", fill_value=0).T
        for s, some in enumerate(index)
    ]
    return jnp.stack(rows)
