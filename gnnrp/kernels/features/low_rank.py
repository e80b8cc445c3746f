"""Feature kernels without an n x n array: over distinct rows, or as K ~ Φ Φ^T.

They are linear maps, normalized as in ``features.build`` by the row sums of Kg or of
its approximation.
"""

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse
from jaxtyping import Array, Float, Int, Key

from gnnrp.kernels.features import blocks, inputs
from gnnrp.kernels.features.blocks import FeaturesLike, GramFn
from gnnrp.runtime import arrays, checks, memory
from gnnrp.types import Scalar

_PHASE_BYTES = 2**26  # of angles in float64 at once
_HIGHEST = jax.lax.Precision.HIGHEST


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Distinct:
    """V -> Z K Z^T V, K the kernel of the u distinct rows, Z the row of each node.

    Nodes of equal features get bit-identical values.
    """

    gram: Float[Array, "u u"]  # K, scaled
    group: Int[Array, " n"]  # the distinct row of each node

    @property
    def is_symmetric(self) -> bool:
        """Whether K is, up to round-off."""
        eps = float(jnp.finfo(self.gram.dtype).eps)
        return arrays.asymmetric_pair(self.gram, eps) is None

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return the product; cost: n k + u^2 k."""
        checks.rows("V", v, len(self.group))
        total = jax.ops.segment_sum(v, self.group, num_segments=len(self.gram))
        return jnp.matmul(self.gram, total, precision=_HIGHEST)[self.group]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Factored:
    """V -> Φ (Φ^T V), PSD by construction."""

    factor: Float[Array, "n r"]  # Φ
    is_symmetric = True

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return the product; cost: 2 n r k."""
        checks.rows("V", v, len(self.factor))
        inside = jnp.matmul(self.factor.T, v, precision=_HIGHEST)
        return jnp.matmul(self.factor, inside, precision=_HIGHEST)


class Nystrom(NamedTuple):
    """A Nyström approximation and its error."""

    map: Factored
    error: float  # tr(Kg - ΦΦ^T) / tr Kg, before the normalization


def distinct(
    features: FeaturesLike,
    kernel: str | GramFn = "gaussian",
    *,
    gamma: Scalar = 1.0,
    normalized: bool = True,
    max_bytes: int | None = None,
) -> Distinct:
    """Return the kernel, exact, in terms of the distinct rows of the features.

    Arguments and errors are those of ``features.build``; if normalized, Dk counts each
    distinct row as often as it occurs.
    """
    x = inputs.validate(features)
    num_nodes, width = x.shape
    if scipy.sparse.issparse(x):
        width = -(-2 * x.nnz // max(1, num_nodes))  # with the places of the entries
    rows, group, count = _distinct_rows(x)
    num_rows = rows.shape[0]
    memory.check(
        f"the kernel of {num_rows:,} distinct rows",
        distinct_bytes(num_nodes, width, num_rows, itemsize=x.dtype.itemsize),
        memory.room(max_bytes),
        "take its row blocks (features.build)",
    )
    built = blocks.build(rows, kernel, gamma=gamma, normalized=False)
    gram = blocks.matrix(built)
    if normalized:
        scale = blocks.inverse_square_root(np.asarray(gram, np.float64) @ count)
        gram = gram * jnp.asarray(np.outer(scale, scale), gram.dtype)
    return Distinct(gram, jnp.asarray(group.ravel(), jnp.int32))


def fourier(
    features: FeaturesLike,
    *,
    gamma: float,
    num_features: int,
    key: Key[Array, ""],
    normalized: bool = True,
    max_bytes: int | None = None,
) -> Factored:
    """Return random Fourier features of the Gaussian kernel.

    Φ_i = sqrt(2 / r) [cos(x_i W), sin(x_i W)], W of r / 2 columns drawn from
    N(0, 2 γ I). Each entry of ΦΦ^T is unbiased, with standard error
    (1 - k^2) / sqrt(r) where the kernel is k; the diagonal is exact.

    Args:
        features: dense or scipy sparse.
        gamma: γ.
        num_features: r, even.
        key: of the draw.
        normalized: by the row sums of ΦΦ^T, which must be positive.
        max_bytes: as in ``features.build``.

    Raises:
        ValueError: r odd or below 2, or as ``features.build``.
        TypeError: not a key, or features that are not real numbers.

    Source: Rahimi and Recht 2007.
    """
    checks.positive("gamma", gamma)
    half, odd = divmod(checks.count("num_features", num_features, 2), 2)
    if odd:
        why = "a cosine and a sine each"
        msg = f"num_features must be even ({why}), got {2 * half + 1}"
        raise ValueError(msg)
    x = inputs.validate(features)
    dtype = jax.dtypes.canonicalize_dtype(x.dtype)
    checks.representable("gamma", gamma, dtype)
    memory.check(
        f"the kernel of {x.shape[0]:,} nodes by {2 * half:,} random features",
        fourier_bytes(x.shape[0], x.shape[1], 2 * half, itemsize=dtype.itemsize),
        memory.room(max_bytes),
        "take a smaller num_features",
    )
    arrays.one_key(key)
    W = jax.random.normal(key, (x.shape[1], half), dtype)
    angle = jnp.asarray(_phases(x, np.asarray(W), gamma))
    both = jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=1)
    factor = both * jnp.asarray(half**-0.5, dtype)
    return Factored(_normalize_rows(factor) if normalized else factor)


def nystrom(
    features: FeaturesLike,
    kernel: str | GramFn = "gaussian",
    *,
    gamma: Scalar = 1.0,
    num_landmarks: int,
    key: Key[Array, ""],
    normalized: bool = True,
    max_bytes: int | None = None,
) -> Nystrom:
    """Return Kg ~ C W^+ C^T from the kernel's columns at random landmarks.

    Kg - ΦΦ^T is PSD, so its trace, which ``error`` states relative to that of Kg,
    bounds its largest eigenvalue.

    Args:
        features: dense or scipy sparse.
        kernel: PSD, as in ``features.build``.
        gamma: γ of the kernel.
        num_landmarks: r, at most n; all n give the kernel itself.
        key: of the draw, without replacement.
        normalized: by the row sums of ΦΦ^T.
        max_bytes: limit of the memory in use.

    Raises:
        ValueError: as ``features.build``, or a kernel that is not PSD on the landmarks.
        TypeError: not a key.

    Source: Williams and Seeger 2001.
    """
    built = blocks.build(features, kernel, gamma=gamma, normalized=False)
    num_landmarks = checks.count("num_landmarks", num_landmarks, 1, len(built.scale))
    num_nodes, itemsize = len(built.scale), built.scale.dtype.itemsize
    memory.check(
        f"the Nyström kernel of {num_nodes:,} nodes and {num_landmarks:,} landmarks",
        nystrom_bytes(num_nodes, num_landmarks, itemsize=itemsize),
        memory.room(max_bytes),
        "take a smaller num_landmarks",
    )
    arrays.one_key(key)
    draw = jax.random.permutation(key, len(built.scale))[:num_landmarks]
    C = np.asarray(blocks.rows(built, draw), np.float64).T
    values, Q = scipy.linalg.eigh(C[np.asarray(draw)])
    noise = num_landmarks * float(jnp.finfo(built.scale.dtype).eps) * values[-1]
    if values[0] < -10 * noise:
        fix = "Nyström needs one that is positive semi-definite"
        msg = f"the kernel has eigenvalue {values[0]:.3g} on the landmarks; {fix}"
        raise ValueError(msg)
    rank = values > noise
    factor = C @ (Q[:, rank] / np.sqrt(values[rank]))
    trace = float(np.sum(np.asarray(blocks.diagonal(built), np.float64)))
    error = max(0.0, 1 - float(np.sum(factor**2)) / trace) if trace else 0.0
    phi = jnp.asarray(factor, built.scale.dtype)
    return Nystrom(Factored(_normalize_rows(phi) if normalized else phi), error)


def distinct_bytes(
    num_nodes: int, num_features: int, num_rows: int, *, itemsize: int
) -> int:
    """Return the peak of the kernel of u distinct rows, or of finding them."""
    features = 2 * num_nodes * num_features * itemsize
    return max(features, 16 * num_rows**2) + memory.RUNTIME


def fourier_bytes(
    num_nodes: int, num_columns: int, num_features: int, *, itemsize: int
) -> int:
    """Return the peak of random features: Φ, its parts, and the draw in float64."""
    draw = num_columns * num_features * (8 + itemsize) // 2
    return 5 * num_nodes * num_features * itemsize // 2 + draw + memory.RUNTIME


def nystrom_bytes(num_nodes: int, num_landmarks: int, *, itemsize: int) -> int:
    """Return the peak of a Nyström approximation: Φ, and three of it in float64."""
    return num_nodes * num_landmarks * (24 + itemsize) + memory.RUNTIME


def _distinct_rows(x: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the distinct rows, the distinct row of each row, and their counts."""
    if not scipy.sparse.issparse(x):
        return np.unique(x, axis=0, return_inverse=True, return_counts=True)
    csr = scipy.sparse.csr_array(x, copy=True)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    numbers: dict[tuple[bytes, bytes], int] = {}
    group = np.zeros(csr.shape[0], int)
    for row, (start, stop) in enumerate(itertools.pairwise(csr.indptr)):
        inside = slice(start, stop)
        content = csr.indices[inside].tobytes(), csr.data[inside].tobytes()
        group[row] = numbers.setdefault(content, len(numbers))
    _, first, count = np.unique(group, return_index=True, return_counts=True)
    return csr[first], group, count


def _phases(x: Any, W: Float[np.ndarray, "d r"], gamma: float) -> np.ndarray:
    """Return sqrt(2 γ) X W modulo 2 π, in the type of W.

    In float64: a large float32 angle has no digits of its phase.

    Raises:
        ValueError: an angle exceeds float64.
    """
    phases = np.empty((x.shape[0], W.shape[1]), W.dtype)
    W = W.astype(np.float64) * np.sqrt(2 * gamma)
    size = max(1, _PHASE_BYTES // (8 * max(1, *W.shape)))
    for start in range(0, len(phases), size):
        some = slice(start, start + size)
        with np.errstate(over="ignore", invalid="ignore"):
            block = x[some].astype(np.float64) @ W
        if not np.isfinite(block).all():
            msg = f"gamma {gamma:.3g} and the features are too large; scale them down"
            raise ValueError(msg)
        phases[some] = np.remainder(block, 2 * np.pi)
    return phases


def _normalize_rows(factor: Float[Array, "n r"]) -> Float[Array, "n r"]:
    sums = jnp.matmul(factor, jnp.sum(factor, axis=0), precision=_HIGHEST)
    scale = blocks.inverse_square_root(np.asarray(sums, np.float64))
    return jnp.asarray(scale, factor.dtype)[:, None] * factor
