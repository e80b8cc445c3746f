"""Candidates of a choice: settings of similarities, in words and as linear maps."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float

from gnnrp import graph, sparse
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
    directed: scipy.sparse.csr_array | None = None  # W with directions, if they count


class Candidate(NamedTuple):
    """Settings of a similarity, or of two of them, which are added with weights.

    A directed walk is C^K of ``similarity.Coupling``. A directed kernel takes hop
    features along the edges and against them, as separate columns.
    """

    parts: tuple[RPSettings, ...]
    weights: tuple[float, ...] = (1.0,)
    directed: tuple[bool, ...] = (False, False)  # of each part

    def as_dict(self) -> dict[str, Any]:
        """Return the settings that make the similarity, for a record."""
        names = ("power", "kernel", "gamma", "row_normalize", "hops", "scaling")
        parts = [{name: getattr(part, name) for name in names} for part in self.parts]
        for part, directed in zip(parts, self.directed, strict=False):
            part |= {"directed": True} if directed else {}
        return {"parts": parts, "weights": [round(x, 4) for x in self.weights]}

    def __str__(self) -> str:
        """Return the similarity in a few words, such as "A^2"."""
        parts = zip(self.parts, self.directed, strict=False)
        names = [_describe(part, directed=directed) for part, directed in parts]
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
        self._coupling: similarity.Coupling | None = None

    def build(self, candidate: Candidate) -> LinearMap:
        """Return the similarity of a candidate, as ``similarities.build`` has it."""
        parts = zip(candidate.parts, candidate.directed, strict=False)
        maps = [self._part(part, directed=directed) for part, directed in parts]
        if len(maps) == 1:
            return maps[0]
        weights = jnp.asarray(candidate.weights, jnp.zeros(0).dtype)
        return similarity.Sum(tuple(maps), weights)

    def _part(self, part: RPSettings, *, directed: bool) -> LinearMap:
        if directed and part.kernel is None:
            return similarity.walk(self._couple(), part.power, part.alpha)
        walk = similarity.walk(self._task.matrix, part.power, part.alpha)
        if part.kernel is None:
            return walk
        key = part.hops, part.scaling, part.row_normalize, directed
        if key != self._key:
            self._key, self._distances = None, None  # frees the old ones
            self._key, self._distances = key, jnp.asarray(self._compute(part, directed))
        kernel = similarities.gaussian(
            self._distances, part.gamma, centered=part.is_centered
        )
        return similarity.Sandwich(walk, kernel) if part.power else kernel

    def _couple(self) -> similarity.Coupling:
        """Return C, made once."""
        if self._coupling is None:
            self._coupling = couple(self._directed())
        return self._coupling

    def _directed(self) -> scipy.sparse.csr_array:
        """Return W with directions."""
        assert self._task.directed is not None
        return self._task.directed

    def _compute(self, part: RPSettings, directed: bool) -> Float[np.ndarray, "n n"]:
        x = features.as_float(
            features.validate(self._task.features), jnp.zeros(0).dtype
        )
        hops = features.HopSettings(num_hops=0, scaling="none", degree=False)
        if part.row_normalize:
            x = features.normalize_rows(x)
        if part.hops is not None:
            hops = features.HopSettings(num_hops=part.hops, scaling=part.scaling)
        if not directed:
            W = self._task.adjacency
            return features.hop_distances(x, W, hops, max_bytes=self._max_bytes)
        # Squared distances of columns side by side add up.
        along, against = self._directed(), scipy.sparse.csr_array(self._directed().T)
        distances = features.hop_distances(x, along, hops, max_bytes=self._max_bytes)
        distances += features.hop_distances(x, against, hops, max_bytes=self._max_bytes)
        distances /= 2
        return distances


def couple(directed: scipy.sparse.csr_array) -> similarity.Coupling:
    """Return C of W with directions."""
    B: Any = graph.normalize(directed)
    both = sparse.prepare(B), sparse.prepare(scipy.sparse.csr_array(B.T))
    return similarity.Coupling(*both)


def _describe(part: RPSettings, *, directed: bool) -> str:
    """Return a similarity in a few words."""
    matrix = "C" if directed and part.kernel is None else "A"
    power = matrix if part.power == 1 else f"{matrix}^{part.power}"
    if part.alpha != 1:
        power = f"(lazy walk α={part.alpha:g})^{part.power}"
    if part.kernel is None:
        return power
    name = f"{part.kernel} kernel γ={part.gamma:g}"
    if part.hops is not None:
        kind = "" if part.kernel == "gaussian" else f"{part.kernel} "
        kind = f"directed {kind}" if directed else kind
        name = f"{part.hops}-hop {kind}kernel, {part.scaling}, γ={part.gamma:g}"
    return f"{power} ({name}) {power}" if part.power else name
