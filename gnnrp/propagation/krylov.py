"""Every step and step size of RP from few products: a Krylov space of S_XX and R_0.

Under the squared loss R_t = (I - η S_XX)^t R_0 lies in span{S_XX^j R_0} for every η.
Lanczos, one start a column, gives an orthonormal V with V^T S_XX V = T tridiagonal, and
S[rest, X] V for the other nodes at no further cost:

    R_t ~ |R_0| V (I - η T)^t e_1,      F_t - F_0 ~ |R_0| S[rest, X] V g_t(T) e_1

with g_t as in ``exact``. A space of m + 1 vectors gives m steps exactly. Splits
and classes are columns of one product.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gnnrp.propagation import _lanczos, exact
from gnnrp.propagation._nodes import Indexed, InPlace
from gnnrp.propagation.maps import as_pytree
from gnnrp.runtime import checkpoints, tracing
from gnnrp.types import LinearMap

_LOOK = 4  # vectors between two looks at the error

# What diverges ends in infinity and NaN, which the report tells of.
_DIVERGING = np.errstate(over="ignore", invalid="ignore")


class Basis(NamedTuple):
    """A Krylov space, per split and column."""

    vectors: Float[Array, "s c m l"]  # V on the training nodes; zero beyond the last
    images: Float[Array, "s c m r"]  # S[rest, X] V
    eigenvalues: Float[np.ndarray, "s c j"]  # of T, j <= m
    eigenvectors: Float[np.ndarray, "s c j j"]
    norms: Float[np.ndarray, "s c"]  # |R_0|
    error: float  # estimated, relative, of the predictions at the last steps


@_DIVERGING
def build(
    similarity: LinearMap,
    places: Indexed | InPlace,
    residual: Float[Array, "s c l"],
    *,
    step_sizes: Sequence[float],
    num_steps: int,
    tolerance: float | None = None,
    max_vectors: int = _lanczos.CAPACITIES[-1],
    sent: Float[Array, "n s c"] | None = None,
    keeper: checkpoints.Keeper | None = None,
    callback: Callable[[int, int], None] | None = None,
) -> Basis:
    """Grow the space until the predictions at all steps stop changing.

    Args:
        similarity: S, symmetric.
        places: of the splits.
        residual: R_0 on the training nodes, zero in the padding.
        step_sizes: every η for which the error is judged; the space serves others too.
        num_steps: largest t; t + 1 vectors are all that is ever needed.
        tolerance: estimated relative error of F_t, at steps spaced evenly in log t and
            in the norm x^T |S_XX| x. It is the change that the last four vectors made,
            times how much smaller that was than the change before: past its start the
            convergence is faster than geometric. 1e-4 if left out, 1e-10 in float64.
        max_vectors: the most that memory allows; never more than 256.
        sent: S [R_0, 0], if it is known already.
        keeper: of checkpoints, one every four vectors at most.
        callback: called with (vectors so far, most vectors) as the space grows.

    Source: squared loss of Eq. 6; Lanczos with full reorthogonalization.
    """
    # No space is larger than the training nodes, even if a diverging error never ends.
    most = min(max(1, max_vectors), residual.shape[2], _lanczos.CAPACITIES[-1])
    limit = min(num_steps + 1, most)
    if tolerance is None:
        tolerance = 1e-4 if residual.dtype == jnp.float32 else 1e-10
    norms = np.asarray(jnp.linalg.norm(residual, axis=-1), np.float64)
    scale = jnp.asarray(np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0))
    scale = scale.astype(residual.dtype)
    similarity = tracing.as_argument(as_pytree(similarity))
    if isinstance(places, Indexed):
        places = jax.device_put(places)
    keeper = keeper or checkpoints.Keeper(None, {})
    begun = functools.partial(
        _lanczos.begun, residual * scale[..., None], places.num_rest
    )
    fault_fn = functools.partial(
        _fault, similarity, places, begun(0), norms, step_sizes, num_steps
    )
    state = keeper.resumed(begun, fault_fn, _lanczos.CAPACITIES[-1]) or begun(0)
    previous = _eigen(state) if len(state.diagonal) else None
    while len(state.diagonal) < limit and state.error > tolerance:
        more = min(_LOOK, limit - len(state.diagonal))
        known = None if sent is None else sent * scale
        state = _lanczos.grown(state, similarity, places, more, limit, known, callback)
        eigen = _eigen(state)
        change = max(
            _change(previous, eigen, norms, at, num_steps) for at in step_sizes
        )
        state, previous = _judged(state, change), eigen
        keeper.offer(len(state.diagonal), lambda: _lanczos.trimmed(state))  # noqa: B023
    keeper.finish(len(state.diagonal), lambda: _lanczos.trimmed(state))
    theta, Q = _eigen(state)
    error = float(state.error)
    if len(state.diagonal) >= min(num_steps + 1, residual.shape[2]):
        error = 0.0  # the space holds every step
    return Basis(state.vectors, state.images, theta, Q, norms, error)


def _fault(
    similarity: LinearMap,
    places: Indexed | InPlace,
    begun: _lanczos.Growth,
    norms: Float[np.ndarray, "s c"],
    step_sizes: Sequence[float],
    num_steps: int,
    _: int,
    state: _lanczos.Growth,
) -> str | None:
    """Return the fault of a restored space, or None."""
    if fault := _lanczos.find_fault(state, begun.vector, similarity, places):
        return fault
    count = len(state.diagonal)
    if not count:
        return None

    @functools.cache
    def eigen(size: int) -> Any:
        return _eigen(_lanczos.first(state, size)) if size else None

    @functools.cache
    def change(before: int, after: int) -> float:
        pair = eigen(before), eigen(after)
        return max(_change(*pair, norms, at, num_steps) for at in step_sizes)

    # The number of vectors between two estimates of the error depends on the memory.
    spans = range(1, _LOOK + 1)
    for middle in {max(0, count - span) for span in spans}:
        expected = state._replace(last_change=np.array(np.inf))
        for oldest in {max(0, middle - span) for span in spans} if middle else ():
            before = expected._replace(last_change=np.array(change(oldest, middle)))
            if _errs_alike(state, _judged(before, change(middle, count))):
                return None
        if not middle and _errs_alike(state, _judged(expected, change(0, count))):
            return None
    return "its error is not that of its vectors"


def _errs_alike(one: _lanczos.Growth, other: _lanczos.Growth) -> bool:
    """Return whether two spaces have the same error, up to round-off."""
    pairs = zip(one[-2:], other[-2:], strict=True)
    return all(np.isclose(x, y, rtol=1e-2, atol=1e-9) for x, y in pairs)


def _judged(state: _lanczos.Growth, change: float) -> _lanczos.Growth:
    """Return the space with its error, from what the last vectors changed."""
    last = float(state.last_change)
    error = change * (min(1.0, change / last) if last < np.inf else 1)
    return state._replace(last_change=np.array(change), error=np.array(error))


def _eigen(state: _lanczos.Growth) -> tuple[np.ndarray, np.ndarray]:
    T = (np.moveaxis(each, 0, -1) for each in (state.diagonal, state.off_diagonal))
    return _tridiagonal_eigh(*T)


def spectrum_of(basis: Basis, split: int) -> Basis:
    """Return the space with the eigenvalues and norms of one split alone."""
    here = slice(split, split + 1)
    return basis._replace(
        eigenvalues=basis.eigenvalues[here],
        eigenvectors=basis.eigenvectors[here],
        norms=basis.norms[here],
    )


@_DIVERGING
def coefficients(
    basis: Basis, step_size: float, steps: Int[np.ndarray, " t"]
) -> Float[np.ndarray, "t s c m"]:
    """Return a with F_t - F_0 = images^T a on the rest, for each step."""
    g = exact.growth(basis.eigenvalues.ravel(), step_size, steps)
    g = g.reshape(-1, *basis.eigenvalues.shape)
    return _padded(basis, _in_basis(basis.eigenvectors, g))


@_DIVERGING
def residual_coefficients(
    basis: Basis, step_size: float, steps: Int[np.ndarray, " t"]
) -> Float[np.ndarray, "t s c m"]:
    """Return a with R_t = vectors^T a on the training nodes; |R_t| = |a|."""
    base = 1 - step_size * basis.eigenvalues
    decay = base ** np.asarray(steps)[:, None, None, None]
    return _padded(basis, _in_basis(basis.eigenvectors, decay))


def _padded(basis: Basis, unit: np.ndarray) -> np.ndarray:
    """Scale by |R_0|, and pad to the vectors that the arrays have room for."""
    room = basis.images.shape[2] - unit.shape[-1]
    scaled = unit * basis.norms[None, ..., None]
    return np.pad(scaled, [(0, 0), (0, 0), (0, 0), (0, room)])


def convergence(basis: Basis, split: int, step_size: float) -> exact.Convergence:
    """Say what the Ritz values, which lie within the spectrum of S_XX, give away.

    Args:
        basis: the space.
        split: which one.
        step_size: η.
    """
    theta = basis.eigenvalues[split]
    smallest, largest = float(theta.min()), float(theta.max())
    tiny = theta.shape[-1] * float(jnp.finfo(basis.images.dtype).eps) * abs(largest)
    safe = 2 / largest if largest > 0 else np.inf
    negative = smallest < -tiny
    bounded = not negative and step_size < safe
    causes = []
    if step_size >= safe:
        causes.append(f"step size {step_size:g} is not below 2 / λ_max = {safe:.4g}")
    if negative:
        causes.append(f"S_XX has an eigenvalue <= {smallest:.4g} < 0")
    why = f"diverges: {', and '.join(causes)}"
    if bounded:
        why = "no eigenvalue of S_XX seen that diverges"
    definiteness = "indefinite" if negative else "no negative eigenvalue seen"
    return exact.Convergence(
        definiteness, smallest, largest, safe, bounded, bounded, why
    )


def _in_basis(eigenvectors: np.ndarray, function: np.ndarray) -> np.ndarray:
    """Return Q f(θ) Q^T e_1."""
    return np.einsum(
        "scij,tscj,scj->tsci", eigenvectors, function, eigenvectors[:, :, 0]
    )


def _tridiagonal_eigh(
    diagonal: np.ndarray, off_diagonal: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    size = diagonal.shape[-1]
    T = np.zeros((*diagonal.shape, size))
    i = np.arange(size)
    T[..., i, i] = diagonal
    T[..., i[1:], i[:-1]] = T[..., i[:-1], i[1:]] = off_diagonal[..., :-1]
    return np.linalg.eigh(T)


def _change(
    previous: tuple[np.ndarray, np.ndarray] | None,
    current: tuple[np.ndarray, np.ndarray],
    norms: np.ndarray,
    step_size: float,
    num_steps: int,
) -> float:
    """Return the relative change of F_t by the last vectors, largest over the columns.

    It is measured in the norm of |S_XX|, and each column relative to itself, so that a
    column of small targets is as accurate as the others. For a PSD S the other nodes
    follow: |S[rest, X] x|^2 <= λ_max(S) x^T S_XX x.
    """
    if previous is None:
        return np.inf
    steps = np.unique(np.geomspace(1, num_steps, 24).astype(np.int64))
    theta, Q = current

    def energy(x):  # x^T |T| x
        modes = np.einsum("scij,tsci->tscj", Q, x)
        return np.sqrt(np.sum(np.abs(theta) * modes**2, axis=3)) * norms

    new = _in_basis(
        Q, exact.growth(theta.ravel(), step_size, steps).reshape(-1, *theta.shape)
    )
    g = exact.growth(previous[0].ravel(), step_size, steps)
    old = _in_basis(previous[1], g.reshape(-1, *previous[0].shape))
    old = np.pad(old, [(0, 0)] * 3 + [(0, new.shape[-1] - old.shape[-1])])
    change = energy(new - old) / np.maximum(energy(new), np.finfo(float).tiny)
    return float(np.max(np.where(np.isfinite(change), change, np.inf)))
