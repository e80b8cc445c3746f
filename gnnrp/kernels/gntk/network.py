"""One description of an infinitely wide GCN, read by every route to its kernels."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from gnnrp.kernels.gntk import activations
from gnnrp.kernels.gntk.activations import Activation
from gnnrp.runtime import checks
from gnnrp.types import Scalar

BIASES = ("none", "before", "after")
"""Position of the bias, relative to the aggregation."""

_STATIC = {"static": True}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Network:
    """A GCN Z <- P φ(Z) W [+ b] with a linear last layer.

    A pytree: ``scale`` and ``bias_std`` are leaves, everything else is static.

    Args:
        depth: L, number of weight matrices, at least 1.
        activation: φ, between layers.
        scale: c_σ; the usual one of the activation by default.
        bias: "none"; "after" the aggregation, P Z W + β b, as in the authors' code; or
            "before" it, P (Z W + β b).
        bias_std: β; unused without a bias.
        trained: flag of each layer, from the first; empty if all are trained.

    Raises:
        ValueError: a depth below 1, an unknown bias, or not one flag per layer.
        TypeError: ``activation`` is not an ``Activation``.

    Source: Def. 4.1 (App. B.3), with a linear last layer.
    """

    depth: int = dataclasses.field(metadata=_STATIC)
    activation: Activation = dataclasses.field(
        default=activations.RELU, metadata=_STATIC
    )
    scale: Scalar | None = None
    bias: str = dataclasses.field(default="none", metadata=_STATIC)
    bias_std: Scalar = 1.0
    trained: Sequence[bool] = dataclasses.field(default=(), metadata=_STATIC)

    def __post_init__(self) -> None:
        """Validate the static fields, and list the flag of every layer."""
        depth = checks.count("depth", self.depth, 1)
        check_activation(self.activation)
        checks.one_of("bias", self.bias, BIASES)
        flags = (True,) * depth
        if not (isinstance(self.trained, tuple) and not self.trained):
            flags = tuple(map(bool, checks.nonempty_list("trained", self.trained)))
        if len(flags) != depth:
            given = len(flags)
            msg = f"trained must have one flag for each of {depth} layers, got {given}"
            raise ValueError(msg)
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "trained", flags)

    @property
    def bias_before(self) -> Scalar:
        """Standard deviation β of a bias before the aggregation, else 0."""
        return self.bias_std if self.bias == "before" else 0.0

    @property
    def bias_after(self) -> Scalar:
        """Standard deviation β of a bias after the aggregation, else 0."""
        return self.bias_std if self.bias == "after" else 0.0


def check(network: Any, dtype: Any) -> None:
    """Validate a network, and that its numbers fit a floating type."""
    checks.instance("network", network, Network, "gntk.Network(depth=2) makes one")
    check_scale(network.scale, dtype)
    check_bias(network.bias_std, dtype)


def check_activation(activation: Any) -> None:
    """Validate the type of an activation."""
    remedy = "activations.by_name makes one of its name"
    checks.instance("activation", activation, Activation, remedy)


def check_scale(scale: Scalar | None, dtype: Any) -> None:
    """Validate c_σ, unless it is traced."""
    if scale is not None and not isinstance(scale, Tracer):
        checks.at_least("scale", scale, 0)
        checks.representable("scale", scale, dtype)


def check_bias(bias_std: Scalar, dtype: Any) -> None:
    """Validate β, unless it is traced."""
    if isinstance(bias_std, Tracer):
        return
    checks.at_least("bias_std", bias_std, 0)
    if np.isinf(bias_std):
        msg = "bias_std must be finite, got inf"
        raise ValueError(msg)
    checks.representable("bias_std", bias_std, dtype, power=2)
