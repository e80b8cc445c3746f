"""Settings of the three studies; importing them, as every help does, imports no JAX."""

import dataclasses
from typing import TYPE_CHECKING

from gnnrp.runtime import checks

if TYPE_CHECKING:
    from gnnrp.propagation import Auto, Selection
    from gnnrp.propagation.solvers.base import Solver

ROUTES = ("recursion", "neural-tangents")
"""Implementations of the same kernels: our own, with a sparse P, and a library."""
METHODS = ("auto", "exact", "blocks", "features")
MAX_LOCAL_DEPTH = 3


@dataclasses.dataclass(frozen=True)
class RPSettings:
    """Settings of a run of RP: S = A^K, or B Kn B with a feature kernel.

    Args:
        step_size: η, positive.
        power: K, number of hops per step.
        alpha: α in [0, 1] of the lazy walk B = (α A + (1 - α) I)^K; 1: B = A^K.
        num_steps: number of steps.
        kernel: kernel of the node features: gaussian, laplacian, linear, polynomial,
            sigmoid, or none for the graph alone.
        gamma: γ of the kernel; 1 / (2 σ²) of the Gaussian one.
        row_normalize: subtract the minimum of the features, and scale rows to sum to 1.
        hops: L of hop features, averages of the features over neighborhoods, which the
            kernel then compares, see ``kernels.features.hops``.
        scaling: of hop features: standard (columns) or cosine (rows).
        center: start from the class shares of the training nodes, and center the kernel
            over all nodes, scaled to λ_max = 1, instead of normalizing it by its row
            sums. By default with hop features only.
        loss: squared, absolute, sigmoid or softmax.
        select: first or last of several best validation steps.
        patience: number of steps without a better validation score before stopping.
        method: solver: auto, exact, krylov or iterate.
        precision: float32 or float64.

    Raises:
        ValueError: a value out of its range.
    """

    step_size: float = 1.0
    power: int = 7
    alpha: float = 1.0
    num_steps: int = 100
    kernel: str | None = None
    gamma: float = 1.0
    row_normalize: bool = False
    hops: int | None = None
    scaling: str = "standard"
    center: bool | None = None
    loss: str = "squared"
    select: str = "first"
    patience: int | None = None
    method: str = "auto"
    precision: str = "float32"

    def __post_init__(self) -> None:
        """Validate the settings."""
        from gnnrp.kernels import features
        from gnnrp.propagation import MAX_STEPS, losses, selection, solvers

        checks.positive("step_size", self.step_size)
        checks.count("power", self.power, 0, 10_000)
        checks.in_interval("alpha", self.alpha, 0, 1)
        checks.count("num_steps", self.num_steps, 1, MAX_STEPS)
        checks.positive("gamma", self.gamma)
        if self.kernel is not None:
            checks.one_of("kernel", self.kernel, features.KERNELS)
        if self.hops is not None:
            checks.count("hops", self.hops, 0, 100)
            if self.kernel is None:
                msg = (
                    f"hops={self.hops} needs a kernel of the features, such as gaussian"
                )
                raise ValueError(msg)
        checks.one_of("scaling", self.scaling, ("standard", "cosine"))
        if self.scaling != "standard" and self.hops is None:
            msg = f"scaling {self.scaling!r} is one of hop features; set hops too"
            raise ValueError(msg)
        if self.center not in {None, True, False}:
            msg = f"center must be True, False or None, got {self.center!r}"
            raise ValueError(msg)
        if self.center and self.kernel is None:
            msg = "center=True needs a kernel of the features, such as gaussian"
            raise ValueError(msg)
        if self.patience is not None:
            checks.count("patience", self.patience, 1)
        losses.by_name(self.loss)
        checks.one_of("precision", self.precision, ("float32", "float64"))
        checks.one_of("select", self.select, selection.RULES)
        checks.one_of("method", self.method, solvers.NAMES)

    @property
    def is_centered(self) -> bool:
        """Whether the run starts from the class shares."""
        return self.hops is not None if self.center is None else self.center

    def solver(self) -> "Solver | Auto":
        """Return the solver of the loss."""
        from gnnrp.propagation import losses, solvers

        return solvers.by_name(self.method, losses.by_name(self.loss))

    def selection(self) -> "Selection":
        """Return the rule that selects a step by validation."""
        from gnnrp.propagation import Selection

        return Selection(rule=self.select, patience=self.patience)


@dataclasses.dataclass(frozen=True)
class GNTKSettings:
    """Settings of the wide networks and of gradient descent on them.

    Args:
        depths: L, number of weight matrices of each network.
        activation: φ between layers: relu, leaky_relu, abs, gelu, erf, sigmoid_like,
            sin, cos, rbf, gaussian, gabor, exp, square, cube, hermite_2, hermite_3 or
            identity.
        bias: none, before or after the aggregation.
        bias_std: β of the bias.
        num_steps: number of steps. Their size is 1 / |Θ_XX|_∞, or 1 / λ_max with random
            features, which is larger.
        method: exact (an n x n kernel), blocks (its columns of the training nodes, up
            to three layers), features (random ones), or auto, which is exact if that
            fits in memory, and else features.
        num_features: m, random features of each kernel and layer.
        seed: of the random features.
        route: own recursion with a sparse matrix, or neural-tangents, which is slower
            and exact.

    Raises:
        ValueError: a value out of its range.
    """

    depths: tuple[int, ...] = (1, 2, 3, 4)
    activation: str = "relu"
    bias: str = "none"
    bias_std: float = 1.0
    num_steps: int = 10_000
    method: str = "auto"
    num_features: int = 4096
    seed: int = 0
    route: str = "recursion"

    def __post_init__(self) -> None:
        """Validate the settings."""
        from gnnrp.kernels import gntk
        from gnnrp.kernels.gntk import activations
        from gnnrp.propagation import MAX_STEPS

        for depth in checks.nonempty_list("depths", self.depths):
            checks.count("depth", depth, 1, 1000)
        activations.by_name(self.activation)
        checks.one_of("bias", self.bias, gntk.BIASES)
        checks.at_least("bias_std", self.bias_std, 0)
        checks.count("num_steps", self.num_steps, 1, MAX_STEPS)
        checks.one_of("route", self.route, ROUTES)
        checks.one_of("method", self.method, METHODS)
        checks.count("num_features", self.num_features, 2)
        checks.count("seed", self.seed, 0)
        if self.route != "recursion" and self.method not in {"auto", "exact"}:
            msg = f"method {self.method!r} needs route='recursion', got {self.route!r}"
            raise ValueError(msg)
        if self.method == "blocks" and max(self.depths) > MAX_LOCAL_DEPTH:
            msg = (
                f"method 'blocks' takes up to {MAX_LOCAL_DEPTH} layers, got depth "
                f"{max(self.depths)}; take other depths, or method 'features'"
            )
            raise ValueError(msg)
        if self.method in {"exact", "blocks"}:
            for name in ("num_features", "seed"):
                if getattr(self, name) != getattr(GNTKSettings, name):
                    msg = f"{name} needs method 'features', got {self.method!r}"
                    raise ValueError(msg)


@dataclasses.dataclass(frozen=True)
class NTKSettings:
    """Settings of the network, its training, and the graphs of the kernel.

    Args:
        learning_rate: η of gradient descent.
        num_steps: number of training steps.
        width: m, number of hidden units.
        depth: L, number of weight matrices, at most 3.
        momentum: momentum of gradient descent.
        weight_decay: of weights, not of biases.
        features: normalized (rows scaled to sum to 1) or raw.
        every: number of steps between two evaluations of the kernel.
        early: number of evaluations before the first of these, at the largest of the
            steps 1, 2, 5, 10, 20, 50, ... below it.
        num_graphs: number of graphs, from all edges to none, or from homophilic to
            heterophilic ones.
        manner: drop directed edges, as the paper's code does, or undirected ones.
        reduce: kernel over classes: trace (average), sum of logits, or pseudo (1 / c of
            the sum).
        seed: seed of weights and thinning.

    Raises:
        ValueError: a value out of its range.
    """

    learning_rate: float = 1e-2
    num_steps: int = 50_000
    width: int = 16
    depth: int = 2
    momentum: float = 0.9
    weight_decay: float = 5e-4
    features: str = "raw"
    every: int = 2000
    early: int = 0
    num_graphs: int = 11
    manner: str = "directed"
    reduce: str = "sum"
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate the settings."""
        from gnnrp import graph
        from gnnrp.kernels.ntk import structured
        from gnnrp.models import training

        checks.positive("learning_rate", self.learning_rate)
        checks.count("num_steps", self.num_steps, 1, training.MAX_STEPS)
        checks.count("width", self.width, 1)
        checks.count("depth", self.depth, 1, structured.DEEPEST)
        checks.in_interval("momentum", self.momentum, 0, 1)
        checks.in_interval("weight_decay", self.weight_decay, 0, 1)
        checks.count("seed", self.seed, 0)
        checks.count("every", self.every, 1)
        checks.count("early", self.early, 0, 100)
        checks.count("num_graphs", self.num_graphs, 2, 1000)
        checks.one_of("features", self.features, ("raw", "normalized"))
        checks.one_of("manner", self.manner, graph.DROP_MODES)
        checks.one_of("reduce", self.reduce, ("trace", "sum", "pseudo"))

    def early_steps(self) -> list[int]:
        """Return the steps of the early evaluations, in order."""
        digits = range(len(str(self.every)))
        steps = [head * 10**digit for digit in digits for head in (1, 2, 5)]
        below = [step for step in steps if step < self.every]
        return below[len(below) - min(self.early, len(below)) :]

    def evaluations(self, num_steps: int) -> list[int]:
        """Return all steps of evaluations up to a step, which is the last."""
        steps = [*self.early_steps(), *range(0, num_steps, self.every)]
        return sorted({step for step in steps if step < num_steps} | {num_steps})
