"""Graph neural networks in flax: ``network.apply(params, x, matrix, train=False)``.

All are layers Z -> Z W + b with a nonlinearity between, and differ in where the
propagation matrix A enters. The bias is added after the aggregation, A Z W + b, as in
the paper's runs. A is an argument, so the same weights apply to another graph.
"""

from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from gnnrp import sparse
from gnnrp.models import _layers
from gnnrp.models._layers import INITIALIZATIONS, Inputs, Linear
from gnnrp.runtime import checks
from gnnrp.types import Layer, LinearMap

PARAMETERIZATIONS = ("standard", "ntk")
JUMPS = ("concatenate", "max")


class MLP(nn.Module):
    """A multilayer perceptron, and the base class of all networks.

    Parameterizations: "standard", sampled by ``initialization``; "ntk", that of the
    kernel ``gntk.gcn``: entries N(0, 1), weights times sqrt(gain / m) after the first
    layer, biases times ``bias_std``. Initializations: "uniform" (weights and biases,
    bound fan-in^-1/2, as in the paper); "glorot" (uniform) and "he" (normal), biases 0.
    """

    num_classes: int  # c, outputs
    width: int = 64  # m of the hidden layers
    depth: int = 2  # L, weight matrices
    use_bias: bool = True
    activation_fn: Callable[[jax.Array], jax.Array] = nn.relu  # between layers
    dropout: float = 0.0  # share of each layer's inputs set to 0 in training, in [0, 1)
    parameterization: str = "standard"
    initialization: str = "uniform"
    gain: float = 2.0  # c_σ of "ntk", 1 / E[φ(z)^2]: 2 for ReLU
    bias_std: float = 1.0  # β of "ntk"

    def setup(self) -> None:
        """Create the layers, after checking the attributes."""
        for name in ("num_classes", "width", "depth"):
            checks.count(name, getattr(self, name), 1)
        checks.function("activation_fn", self.activation_fn, "such as jax.nn.relu")
        checks.positive("gain", self.gain)
        checks.at_least("bias_std", self.bias_std, 0)
        if not 0 <= checks.number("dropout", self.dropout) < 1:
            msg = f"dropout must lie in [0, 1), got {self.dropout}"
            raise ValueError(msg)
        checks.one_of("parameterization", self.parameterization, PARAMETERIZATIONS)
        checks.one_of("initialization", self.initialization, INITIALIZATIONS)
        self.layers = [self._layer(number) for number in range(int(self.depth))]

    def __call__(
        self, x: Inputs, matrix: LinearMap | None = None, *, train: bool = False
    ) -> jax.Array:
        """Return the logits of all nodes (n, c).

        Args:
            x: (n, d), dense or from ``sparse.prepare`` (faster for bags of words), or
                a ``jraph.GraphsTuple`` with its own A (slower).
            matrix: A; an MLP ignores it, and without it nothing propagates.
            train: apply dropout, which needs ``rngs={"dropout": key}``.
        """
        return self._logits(*_layers.parse_inputs(x, matrix), train)

    def _logits(self, x: Any, _: LinearMap | None, train: bool) -> jax.Array:
        return self._chain(x, None, train)

    def scales(self, number: int) -> tuple[float, float]:
        """Return the factors of the weights and of the bias of a layer."""
        if self.parameterization == "standard":
            return 1.0, 1.0
        last = number == self.depth - 1
        fan_in = self._last_width() if last else self.width
        return (self.gain / fan_in) ** 0.5 if number > 0 else 1.0, self.bias_std

    def _layer(self, number: int) -> Linear:
        features = self.num_classes if number == self.depth - 1 else self.width
        is_standard = self.parameterization == "standard"
        initialization = self.initialization if is_standard else "normal"
        scales = self.scales(number)
        return Linear(int(features), self.use_bias, initialization, *scales)

    def _last_width(self) -> int:
        return self.width

    def _chain(self, z: Any, matrix: LinearMap | None, train: bool) -> jax.Array:
        for number, layer in enumerate(self.layers):
            z = self.activation_fn(z) if number > 0 else z
            z = layer(self._dropout(z, train), matrix)
        return z

    def _dropout(self, z: Any, train: bool) -> Any:
        if self.dropout == 0 or not train:
            return z
        shape = z.data.shape if isinstance(z, sparse.Matrix) else z.shape
        mask = _layers.sample_mask(self.make_rng("dropout"), 1 - self.dropout, shape)
        return _layers.apply_mask(z, mask, 1 - self.dropout)


class GCN(MLP):
    """Z -> A Z W + b at each layer (Kipf and Welling 2017). Source: Sections 2, 6."""

    def _logits(self, x: Any, matrix: LinearMap | None, train: bool) -> jax.Array:
        return self._chain(x, matrix, train)


class PMLP(MLP):
    """Trained without the graph, used with it (Yang et al. 2023). Source: App. C.1."""

    def _logits(self, x: Any, matrix: LinearMap | None, train: bool) -> jax.Array:
        return self._chain(x, None if train else matrix, train)


class Decoupled(MLP):
    """A^K MLP(X); with one layer, SGC with an earlier bias. Source: App. B.5."""

    power: int = 2  # K

    def _logits(self, x: Any, matrix: LinearMap | None, train: bool) -> jax.Array:
        return _hops(matrix, self._chain(x, None, train), self.power)


class SGC(MLP):
    """A^K X W + b, the linear GNN (Wu et al. 2019). Source: Corollary 4.4."""

    depth: int = 1
    power: int = 2  # K

    def _logits(self, x: Any, matrix: LinearMap | None, train: bool) -> jax.Array:
        if self.depth != 1:
            msg = f"SGC has one layer, got depth {self.depth}; see Decoupled"
            raise ValueError(msg)
        return self._chain(x, lambda z: _hops(matrix, z, self.power), train)


class APPNP(MLP):
    """An MLP, then Z <- (1 - α) A Z + α MLP(X) (Gasteiger et al. 2019)."""

    power: int = 10  # iterations
    alpha: float = 0.1  # α, the restart, in [0, 1]

    def _logits(self, x: Any, matrix: LinearMap | None, train: bool) -> jax.Array:
        checks.in_interval("alpha", self.alpha, 0, 1)
        h = self._chain(x, None, train)
        if matrix is None:
            return h
        alpha = jnp.asarray(self.alpha, h.dtype)
        return sparse.propagate(
            matrix, lambda new, _, h: (1 - alpha) * new + alpha * h, h, self.power
        )


class JKNet(MLP):
    """A GCN whose last layer, without A, reads all hidden layers (Xu et al. 2018)."""

    jump: str = "concatenate"  # one of JUMPS

    def _logits(self, x: Any, matrix: LinearMap | None, train: bool) -> jax.Array:
        checks.one_of("jump", self.jump, JUMPS)
        if self.depth < 2:
            msg = f"JKNet needs a hidden layer, depth 2 or more, got {self.depth}"
            raise ValueError(msg)
        hidden = []
        for layer in self.layers[:-1]:
            x = self.activation_fn(layer(self._dropout(x, train), matrix))
            hidden.append(x)
        is_max = self.jump == "max"
        joined = jnp.stack(hidden).max(0) if is_max else jnp.concatenate(hidden, 1)
        return self.layers[-1](self._dropout(joined, train), None)

    def _last_width(self) -> int:
        return self.width * (self.depth - 1 if self.jump == "concatenate" else 1)


def layers(network: MLP, params: Any) -> tuple[Layer, ...]:
    """Return W and b of each layer as the forward pass uses them, with their scales.

    Args:
        network: of this module.
        params: from ``network.init``.

    Raises:
        ValueError: the parameters are of another network.
        TypeError: ``network`` is not a network.
    """
    checks.instance("network", network, MLP, "such as gnn.GCN(num_classes)")
    expected = {f"layers_{number}" for number in range(network.depth)}
    names = {"weights", "bias"} if network.use_bias else {"weights"}
    parts = params.get("params", {}) if isinstance(params, Mapping) else {}
    if parts.keys() != expected or any(part.keys() != names for part in parts.values()):
        msg = (
            f"the parameters are not of {type(network).__name__} with depth "
            f"{network.depth} and use_bias={network.use_bias}"
        )
        raise ValueError(msg)
    result = []
    for number in range(network.depth):
        layer = parts[f"layers_{number}"]
        W, b = layer["weights"], layer.get("bias")
        scales = tuple(jnp.asarray(scale, W.dtype) for scale in network.scales(number))
        b = None if b is None else b * scales[1]
        result.append(Layer(W * scales[0], b, *scales))
    return tuple(result)


def _hops(matrix: LinearMap | None, z: jax.Array, power: int) -> jax.Array:
    checks.count("power", power, 0)
    if matrix is None:
        return z
    return sparse.propagate(matrix, lambda new, *_: new, z, power)
