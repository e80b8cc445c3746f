"""Hop features: the features of a node and the averages over its neighborhoods.

A kernel of hop features compares nodes by what surrounds them. Unlike A^K, it does not
presuppose that neighbors are alike.

Source: features as in SIGN (Rossi et al. 2020, arXiv 2004.11198); not in the paper.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Float, Int

from gnnrp import graph, sparse
from gnnrp.kernels.features.inputs import FeaturesLike, as_float, validate
from gnnrp.runtime import checks, memory

NORMALIZATIONS = ("row", "symmetric")
SCALINGS = ("standard", "cosine", "none")

_DENSE_SPEED = 500  # operations of a dense product in the time of a sparse one
_BLOCK = 256  # rows or columns of a product
_ROUND_OFF = 1e-12  # spread of a constant column after some hops, over its size


@dataclasses.dataclass(frozen=True)
class HopSettings:
    """Settings of hop features Z = [X, P X, ..., P^L X].

    Args:
        num_hops: L; 0 takes the features of the node alone.
        normalization: P = D^-1 W ("row", a mean over neighbors) or D^-1/2 W D^-1/2
            ("symmetric").
        self_loops: weight of the self-loops added to W; 0 for none.
        scaling: "standard" subtracts the mean of each column, and divides by its
            standard deviation and by the root of the number of columns that vary.
            "cosine" scales each row of each P^l X to length (L + 1)^-1/2. "none"
            keeps the values.
        degree: append log(1 + degree) to X, so that hops average it too; by default
            unless the scaling is "cosine", for which a number has no direction.
    """

    num_hops: int = 2
    normalization: str = "row"
    self_loops: float = 0.0
    scaling: str = "standard"
    degree: bool | None = None

    def __post_init__(self) -> None:
        """Validate the settings.

        Raises:
            ValueError: a value out of its range, or degrees with the cosine scaling.
        """
        checks.count("num_hops", self.num_hops, 0)
        checks.one_of("normalization", self.normalization, NORMALIZATIONS)
        checks.in_interval("self_loops", self.self_loops, 0, np.finfo(np.float64).max)
        checks.one_of("scaling", self.scaling, SCALINGS)
        if self.degree and self.scaling == "cosine":
            msg = "degree=True needs scaling 'standard' or 'none', got 'cosine'"
            raise ValueError(msg)

    @property
    def has_degree(self) -> bool:
        """True if log(1 + degree) is a column."""
        return self.scaling != "cosine" if self.degree is None else self.degree


def hop_features(
    features: FeaturesLike | None,
    adjacency: Any,
    settings: HopSettings = HopSettings(),
    *,
    reference: Int[np.ndarray, " m"] | None = None,
    max_bytes: int | None = None,
) -> Float[np.ndarray, "n h"] | scipy.sparse.csr_array:
    """Return Z = [X, P X, ..., P^L X], scaled.

    With the standard and the cosine scaling, squared distances between rows are of
    order one for every L and d: one range of γ suits all graphs.

    Args:
        features: X, dense or scipy sparse (n, d); None for the degrees alone.
        adjacency: W from ``graph.raw_adjacency``, or BCOO.
        settings: number of hops, P and scaling.
        reference: nodes of the means and deviations that standardize the columns; all
            by default.
        max_bytes: limit of the memory in use; that of the machine by default.

    Returns:
        Z in the type that JAX gives X. Sparse X stay sparse unless the scaling is
        "standard".

    Raises:
        ValueError: neither features nor degrees, another number of rows than nodes,
            features that are not a finite matrix or too large, a graph without nodes,
            or a dense Z that does not fit in memory.
        TypeError: features that are not real numbers, a W that is not sparse, or other
            settings.

    Example:
        >>> W = graph.raw_adjacency(np.array([[0, 1], [1, 2]]))
        >>> settings = HopSettings(num_hops=1, scaling="none", degree=False)
        >>> hop_features(np.array([[1.0], [2.0], [5.0]]), W, settings).tolist()
        [[1.0, 2.0], [2.0, 3.0], [5.0, 2.0]]
    """
    adjacency, x = _validate(features, adjacency, settings)
    keep_sparse = scipy.sparse.issparse(x) and settings.scaling != "standard"
    if not keep_sparse:
        memory.check(
            f"hop features of {x.shape[0]:,} nodes",
            hop_bytes(*x.shape, num_hops=settings.num_hops, itemsize=x.dtype.itemsize),
            memory.room(max_bytes),
            "take fewer hops or features",
        )
        x = x.toarray() if scipy.sparse.issparse(x) else x
    blocks = _hops(_propagation(adjacency, settings), x, settings.num_hops)
    if keep_sparse:
        scaled = [_scale_rows(block, settings) for block in blocks]
        return scipy.sparse.csr_array(scipy.sparse.hstack(scaled), dtype=x.dtype)
    width = x.shape[1]
    z = np.empty((x.shape[0], (settings.num_hops + 1) * width), x.dtype)
    num_varying = 0
    for number, block in enumerate(blocks):
        if settings.scaling == "standard":
            block, varies = _standardize(block, reference)
            num_varying += int(varies.sum())
        else:
            block = _scale_rows(block, settings)
        z[:, number * width : (number + 1) * width] = block
    if settings.scaling == "standard":
        z /= np.sqrt(max(1, num_varying)).astype(z.dtype)
    return z


def hop_distances(
    features: FeaturesLike | None,
    adjacency: Any,
    settings: HopSettings = HopSettings(),
    *,
    max_bytes: int | None = None,
) -> Float[np.ndarray, "n n"]:
    """Return |z_i - z_j|^2 between the hop features of all nodes.

    Gaussian kernels of every γ follow from one such matrix. With the cosine scaling and
    many features, Z is not formed: the products of hop l come from those of hop l - 1,
    (P^l X) (P^l X)^T = P [(P^{l-1} X) (P^{l-1} X)^T] P^T.

    Args:
        features: see ``hop_features``, as are the other arguments and the errors.
        adjacency: W.
        settings: number of hops, P and scaling.
        max_bytes: limit of the memory in use; that of the machine by default.
    """
    adjacency, x = _validate(features, adjacency, settings)
    num_nodes = adjacency.shape[0]
    memory.check(
        f"distances between {num_nodes:,} nodes",
        distance_bytes(num_nodes, itemsize=x.dtype.itemsize),
        memory.room(max_bytes),
        "take a smaller graph",
    )
    P = scipy.sparse.csr_array(_propagation(adjacency, settings), dtype=x.dtype)
    is_wide = num_nodes * x.shape[1] > _DENSE_SPEED * P.nnz
    if settings.scaling == "cosine" and is_wide:
        return _from_gram(_cosine_gram(x, P, settings.num_hops))
    z: Any = hop_features(features, adjacency, settings, max_bytes=max_bytes)
    if scipy.sparse.issparse(z) and settings.num_hops == 0:
        return _from_gram(_products(z))
    return _between_rows(z.toarray() if scipy.sparse.issparse(z) else z)


def _from_gram(gram: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Return |z_i - z_j|^2 from z_i . z_j, in place."""
    squares = gram.diagonal().copy()
    for start in range(0, len(gram), _BLOCK):  # rows that stay in the cache
        _to_distances(gram[start : start + _BLOCK], squares[start:], squares)
    np.fill_diagonal(gram, 0)
    return gram


def _between_rows(z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n n"]:
    """Return |z_i - z_j|^2, half of it computed and half of it copied."""
    z = z - z.mean(axis=0)  # fewer digits cancel
    squares = np.sum(z * z, axis=1)
    result = np.empty((len(z), len(z)), z.dtype)
    for start in range(0, len(z), _BLOCK):
        end = start + _BLOCK
        block = z[start:end] @ z[:end].T
        _to_distances(block, squares[start:], squares[:end])
        corner = block[:, start:]
        corner[:] = np.minimum(corner, corner.T)  # symmetric without rounding
        result[start:end, :end] = block
        result[:start, start:end] = block[:, :start].T
    np.fill_diagonal(result, 0)
    return result


def _to_distances(
    block: Float[np.ndarray, "b q"],
    of_rows: Float[np.ndarray, " r"],
    of_columns: Float[np.ndarray, " q"],
) -> None:
    """Turn products into |z_i|^2 + |z_j|^2 - 2 z_i . z_j, at least 0, in place."""
    block *= -2
    block += of_rows[: len(block), None]
    block += of_columns[None, :]
    np.maximum(block, 0, out=block)


def distance_bytes(num_nodes: int, *, itemsize: int) -> int:
    """Return the peak of ``hop_distances``: two n x n arrays."""
    return 2 * num_nodes**2 * itemsize


def hop_bytes(
    num_nodes: int, num_features: int, *, num_hops: int, itemsize: int
) -> int:
    """Return the peak of dense hop features: Z, and four blocks in float64."""
    block = num_nodes * num_features
    return block * (itemsize * (num_hops + 1) + 4 * 8)


def _validate(
    features: Any, adjacency: Any, settings: Any
) -> tuple[scipy.sparse.csr_array, Any]:
    """Return W and X, with the column of degrees."""
    checks.instance(
        "settings", settings, HopSettings, "such as HopSettings(num_hops=2)"
    )
    adjacency = sparse.to_scipy(adjacency)
    if not adjacency.shape[0]:
        msg = f"the graph must have a node, got an adjacency of shape {adjacency.shape}"
        raise ValueError(msg)
    return adjacency, _columns(features, adjacency, settings)


def _propagation(
    adjacency: scipy.sparse.csr_array, settings: HopSettings
) -> scipy.sparse.csr_array:
    """Return P."""
    return graph.normalize(
        adjacency,
        normalization=settings.normalization,
        self_loops=settings.self_loops,
    )


def _cosine_gram(
    x: Any, P: scipy.sparse.csr_array, num_hops: int
) -> Float[np.ndarray, "n n"]:
    """Return Z Z^T with the cosine scaling."""
    gram = _products(x)
    total = np.zeros_like(gram)
    step = sparse.prepare(P)
    for number in range(num_hops + 1):
        if number:
            _propagate(step, gram)
        lengths = np.sqrt(gram.diagonal())
        scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        scale /= np.sqrt(num_hops + 1).astype(scale.dtype)
        for row, (sums, products) in enumerate(zip(total, gram, strict=True)):
            sums += scale[row] * scale * products
    return total


def _products(x: Any) -> Float[np.ndarray, "n n"]:
    """Return X X^T; of sparse X in blocks, as a sparse product takes more memory."""
    if not scipy.sparse.issparse(x):
        return x @ x.T
    gram = np.empty((x.shape[0], x.shape[0]), x.dtype)
    for rows in _blocks(x.shape[0]):
        gram[rows] = (x[rows] @ x.T).toarray()
    return gram


def _propagate(P: sparse.Matrix, gram: Float[np.ndarray, "n n"]) -> None:
    """Replace G by P G P^T, in place."""
    multiply = jax.jit(sparse.matmul)
    for half in (gram, gram.T):  # P G, then P (P G)^T, which is symmetric
        for columns in _blocks(len(gram)):
            half[:, columns] = multiply(P, jnp.asarray(half[:, columns]))


def _blocks(num_nodes: int) -> Iterator[slice]:
    for start in range(0, num_nodes, _BLOCK):
        yield slice(start, start + _BLOCK)


def _columns(
    features: FeaturesLike | None,
    adjacency: scipy.sparse.csr_array,
    settings: HopSettings,
) -> Any:
    """Return X, with the column of degrees.

    Raises:
        ValueError: neither features nor degrees, or another number of rows than nodes.
    """
    num_nodes = adjacency.shape[0]
    if features is None and not settings.has_degree:
        msg = "hop features need features, or settings with a column of degrees"
        raise ValueError(msg)
    x = None if features is None else as_float(validate(features))
    if x is not None:
        checks.rows("features", x, num_nodes)
    if not settings.has_degree:
        return x
    degrees = np.asarray(abs(adjacency).sum(axis=1), np.float64).reshape(-1, 1)
    if x is None:
        return as_float(np.log1p(degrees))
    column = np.log1p(degrees).astype(x.dtype)
    if scipy.sparse.issparse(x):
        return scipy.sparse.csr_array(scipy.sparse.hstack([x, column]))
    return np.hstack([x, column])


def _hops(P: scipy.sparse.csr_array, x: Any, num_hops: int) -> Iterator[Any]:
    """Yield P^l X for l = 0 to L, in float64."""
    block = x.astype(np.float64)
    yield block
    for _ in range(num_hops):
        block = P @ block
        yield block


def _standardize(
    block: np.ndarray, reference: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns with mean 0 and deviation 1; zeros where they are constant."""
    rows: Any = slice(None) if reference is None else reference
    with np.errstate(over="ignore", invalid="ignore"):
        centered = block - block[rows].mean(axis=0)
        deviation = _finite(centered[rows].std(axis=0))
    varies = deviation > _ROUND_OFF * np.abs(block[rows]).max(axis=0, initial=0)
    return np.where(varies, centered / np.where(varies, deviation, 1), 0), varies


def _scale_rows(block: Any, settings: HopSettings) -> Any:
    """Return the rows with length (L + 1)^-1/2, or as they are without scaling."""
    if settings.scaling == "none":
        return block
    with np.errstate(over="ignore"):
        square = block.multiply(block) if scipy.sparse.issparse(block) else block**2
        lengths = _finite(np.sqrt(np.asarray(square.sum(axis=1)).reshape(-1, 1)))
    scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    scale /= np.sqrt(settings.num_hops + 1)
    if scipy.sparse.issparse(block):
        return scipy.sparse.csr_array(block.multiply(scale))
    return block * scale


def _finite(sizes: np.ndarray) -> np.ndarray:
    """Refuse sizes of columns or rows that overflow."""
    if not np.isfinite(sizes).all():
        msg = "the features are too large to scale, their squares overflow; divide them"
        raise ValueError(msg)
    return sizes
