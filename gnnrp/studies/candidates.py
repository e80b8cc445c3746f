"""Candidates of a choice: settings of similarities, in words and as linear maps."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float

from gnnrp import sparse
from gnnrp.kernels import features
from gnnrp.propagation import similarity
from gnnrp.studies import similarities
from gnnrp.studies.settings import RPSettings
from gnnrp.types import LinearMap, MetricFn


class Task(NamedTuple):
    """A graph with features, targets, splits without test nodes, and the metric."""

    adjacency: scipy.sparse.csr_array  # W
    matrix: sparse.Matrix  # A
    features: Any  # X, or None
    targets: Float[np.ndarray, "n c"]
    train: Bool[np.ndarray, "s n"]
    val: Bool[np.ndarray, "s n"]
    metric: MetricFn


class Candidate(NamedTuple):
    """Settings of a similarity, or of two of them, which are added with weights."""

    parts: tuple[RPSettings, ...]
    weights: tuple[float, ...] = (1.0,)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings that make the similarity, for a record."""
        names = ("power", "kernel", "gamma", "row_normalize", "hops", "scaling")
        parts = [{name: getattr(part, name) for name in names} for part in self.parts]
        return {"parts": parts, "weights": [round(x, 4) for x in self.weights]}

    def __str__(self) -> str:
        """Return the similarity in a few words, such as "A^2"."""
        names = [_describe(part) for part in self.parts]
        if len(names) == 1:
            return names[0]
        pairs = zip(self.weights, names, strict=True)
        return " + ".join(f"{weight:.2g} {name}" for weight, name in pairs)


class Similarities:
    """Similarities of candidates; those that differ in γ share squared distances."""

    def __init__(self, task: Task, max_bytes: int | None = None) -> None:
        """Hold no distances yet."""
        self._task, self._max_bytes = task, max_bytes
        self._key: Any = None
        self._distances: Any = None

    def build(self, candidate: Candidate) -> LinearMap:
        """Return the similarity of a candidate, as ``similarities.build`` has it."""
        maps = [self._part(part) for part in candidate.parts]
        if len(maps) == 1:
            return maps[0]
        weights = jnp.asarray(candidate.weights, jnp.zeros(0).dtype)
        return similarity.Sum(tuple(maps), weights)

    def _part(self, part: RPSettings) -> LinearMap:
        walk = similarity.walk(self._task.matrix, part.power, part.alpha)
        if part.kernel is None:
            return walk
        key = part.hops, part.scaling, part.row_normalize
        if key != self._key:
            self._key, self._distances = None, None  # frees the old ones
            self._key, self._distances = key, jnp.asarray(self._compute(part))
        kernel = similarities.gaussian(
            self._distances, part.gamma, centered=part.is_centered
        )
        return similarity.Sandwich(walk, kernel) if part.power else kernel

    def _compute(self, part: RPSettings) -> Float[np.ndarray, "n n"]:
        x = features.as_float(
            features.validate(self._task.features), jnp.zeros(0).dtype
        )
        hops = features.HopSettings(num_hops=0, scaling="none", degree=False)
        if part.row_normalize:
            x = features.normalize_rows(x)
        if part.hops is not None:
            hops = features.HopSettings(num_hops=part.hops, scaling=part.scaling)
        return features.hop_distances(
            x, self._task.adjacency, hops, max_bytes=self._max_bytes
        )


def _describe(part: RPSettings) -> str:
    """Return a similarity in a few words."""
    power = "A" if part.power == 1 else f"A^{part.power}"
    if part.alpha != 1:
        power = f"(lazy walk α={part.alpha:g})^{part.power}"
    if part.kernel is None:
        return power
    name = f"{part.kernel} kernel γ={part.gamma:g}"
    if part.hops is not None:
        kind = "" if part.kernel == "gaussian" else f"{part.kernel} "
        name = f"{part.hops}-hop {kind}kernel, {part.scaling}, γ={part.gamma:g}"
    return f"{power} ({name}) {power}" if part.power else name
