"""Infinitely wide GCNs by neural-tangents: a second route, and more activations.

It verifies ``gntk``, which is faster, and provides every nonlinearity of ``stax``.
neural-tangents 0.6.5, the last release, imports names that jax has removed: ``load``
makes it work, for infinite kernels, ``predict.gradient_descent_mse`` and
``empirical_ntk_fn`` with implementations 1 and 2, and nothing else.

Source: Def. 4.1 (App. B.3); Novak et al. 2020 for neural-tangents.
"""

import contextlib
import functools
import importlib.util
import math
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, TypeAlias

import jax
import jax.core
import jax.extend.core
import jax.numpy as jnp
from jax.interpreters import ad
from jaxtyping import Array, Float

from gnnrp.kernels.gntk import activations
from gnnrp.kernels.gntk import network as networks
from gnnrp.kernels.gntk.activations import Activation
from gnnrp.kernels.gntk.network import Network
from gnnrp.kernels.gntk.recursion import Kernels
from gnnrp.runtime import checks, memory

StaxLayer: TypeAlias = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]
"""(init_fn, apply_fn, kernel_fn), as made by ``stax``."""

INSTALL = "pip install --no-deps neural-tangents==0.6.5 frozendict"

_CORE_NAMES = ("Jaxpr", "JaxprEqn", "Literal", "Primitive", "Var")
_EXPERIMENTAL = "neural_tangents.experimental"
_SQUARES = 8  # n x n arrays at the peak under jit, with P
_LOADING = threading.Lock()
_HERMITE_2, _HERMITE_3 = 2**-0.5, 6**-0.5


@functools.cache
def load() -> types.ModuleType:
    """Return neural_tangents, imported without TensorFlow; jax stays unchanged."""
    for name in ("neural_tangents", "frozendict"):
        if importlib.util.find_spec(name) is None:
            msg = f"this needs {name}, which is not installed: {INSTALL}"
            raise ImportError(msg)
    core_names = {name: getattr(jax.extend.core, name) for name in _CORE_NAMES}
    # A key of a table of rules for structured derivatives; no equation has it.
    ad_names = {"zeros_like_p": object()}
    util, stub = types.ModuleType("jax.util"), types.ModuleType(_EXPERIMENTAL)
    util.__dict__["safe_map"] = lambda *args: list(map(*args))
    util.__dict__["safe_zip"] = lambda *args: list(zip(*args, strict=True))
    with (
        _LOADING,  # modules and filters of warnings are those of all threads
        _add_temporarily(jax.core.__dict__, core_names),
        _add_temporarily(ad.__dict__, ad_names),
        _add_temporarily(sys.modules, {util.__name__: util, stub.__name__: stub}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        loaded = importlib.import_module("neural_tangents")
    if loaded.__dict__.get("experimental") is stub:
        delattr(loaded, "experimental")
    return loaded


def gcn(
    propagation: Float[Array, "n n"], features: Float[Array, "n d"], network: Network
) -> Kernels:
    """Return the kernels of ``gntk.gcn``, computed by neural-tangents.

    It costs n^3 a layer and takes dense matrices P and X.

    Raises:
        ImportError: neural-tangents is not installed.
        ValueError: as ``stax_network``, or numbers out of range.
        TypeError: not a ``Network``.

    Source: Def. 4.1 (App. B.3), with a linear last layer.
    """
    networks.check(network, features.dtype)
    _, _, kernel_fn = stax_network(features.shape[1], network)
    pattern = propagation.T[None]
    # Its products take the default precision, coarse on GPUs, and its types are mixed.
    with jax.default_matmul_precision("highest"), jax.numpy_dtype_promotion("standard"):
        kernels = kernel_fn(
            features[None], None, ("nngp", "ntk"), pattern=(pattern, pattern)
        )
    # With float64 enabled, neural-tangents leaves float32.
    return Kernels(*(kernel[0, 0].astype(features.dtype) for kernel in kernels))


def peak_bytes(num_nodes: int, num_features: int, *, itemsize: int) -> int:
    """Return the peak of ``gcn`` under ``jit``, with P and the features."""
    numbers = _SQUARES * num_nodes**2 + 2 * num_nodes * num_features
    return numbers * itemsize + memory.RUNTIME


def stax_network(
    num_features: int, network: Network, *, width: int = 1, num_classes: int = 1
) -> StaxLayer:
    """Return the GCN of ``gntk.gcn`` as (init_fn, apply_fn, kernel_fn) of ``stax``.

    Inputs have shape (1, n, d), and ``pattern`` is **P^T**, of shape (1, n, n), as
    ``Aggregate`` transposes it; ``kernel_fn`` takes a pair of patterns.

    Args:
        num_features: d; the first layer has no 1 / sqrt(d), unlike those of ``stax``.
        network: depth, activation of ``stax``, scale and bias; all layers trained.
        width: m of the hidden layers; the infinite kernels do not depend on it.
        num_classes: c, outputs; the infinite kernels do not depend on it.

    Raises:
        ImportError: neural-tangents is not installed.
        ValueError: a size below 1, or another network.

    Source: Def. 4.1 (App. B.3), with a linear last layer.
    """
    stax = load().stax
    num_features = checks.count("num_features", num_features, 1)
    if not all(network.trained):
        got = f"got {network.trained}; gntk.gcn takes any flags"
        msg = f"trained must be True for every layer in neural-tangents, {got}"
        raise ValueError(msg)
    nonlinearity = _stax_layer(network.activation)
    scale = network.activation.scale if network.scale is None else network.scale
    b_std = None if network.bias == "none" else network.bias_std
    layers = []
    for layer in range(network.depth):
        if layer > 0:
            layers.append(nonlinearity)
        num_outputs = width if layer < network.depth - 1 else num_classes
        W_std = math.sqrt(scale if layer > 0 else num_features)
        dense = stax.Dense(num_outputs, W_std=W_std, b_std=b_std)
        aggregate = stax.Aggregate(aggregate_axis=1, batch_axis=0)
        before = network.bias == "before"
        layers += [dense, aggregate] if before else [aggregate, dense]
    return stax.serial(*layers)


def activation(layer: StaxLayer) -> Activation:
    """Return T, Td and c_σ = 1 / T(1, 1, 1) of an elementwise layer of ``stax``.

    A ``Network`` takes it, such as that of ``load().stax.Gelu()``. Differentiable as
    far as neural-tangents' own functions are.

    Raises:
        ImportError: neural-tangents is not installed.
    """
    kernel_type = load().Kernel
    _, _, kernel_fn = layer

    def apply(covariance: Array, a: Array, b: Array) -> Any:
        c, a, b = (x[None] for x in jnp.broadcast_arrays(covariance, a, b))
        # One graph whose pixels are the entries, each paired with itself alone.
        inputs = kernel_type(
            nngp=c[None],
            ntk=jnp.ones_like(c[None]),  # comes out times Td
            cov1=a,
            cov2=b,
            x1_is_x2=jnp.asarray(False),
            is_gaussian=True,
            is_reversed=False,
            is_input=False,
            diagonal_batch=True,
            diagonal_spatial=True,
            shape1=(*a.shape, 1),
            shape2=(*b.shape, 1),
            batch_axis=0,
            channel_axis=a.ndim,
        )
        with jax.numpy_dtype_promotion("standard"):  # callers may be strict
            return kernel_fn(inputs)

    def covariance(c: Array, a: Array, b: Array) -> Array:
        return apply(c, a, b).nngp[0, 0].astype(c.dtype)

    def derivative(c: Array, a: Array, b: Array) -> Array:
        return apply(c, a, b).ntk[0, 0].astype(c.dtype)

    one = jnp.ones(())
    scale = 1 / float(covariance(one, one, one))
    return Activation(covariance, derivative, scale, layer)


def _stax_layer(activation: Activation) -> StaxLayer:
    """Return an activation as a layer of ``stax``, or refuse one that has none."""
    if activation.stax_layer is not None:
        return activation.stax_layer
    stax = load().stax
    layer_fns = {
        "relu": stax.Relu,
        "leaky_relu": functools.partial(stax.LeakyRelu, 0.01),
        "abs": stax.Abs,
        "gelu": stax.Gelu,
        "erf": stax.Erf,
        "sigmoid_like": stax.Sigmoid_like,
        "sin": stax.Sin,
        "cos": stax.Cos,
        "rbf": stax.Rbf,
        "gaussian": stax.Gaussian,
        "gabor": stax.Gabor,
        "exp": stax.Exp,
        "square": functools.partial(stax.Monomial, 2),
        "cube": functools.partial(stax.Monomial, 3),
        # Its Hermite layers are those of unit variance only.
        "hermite_2": functools.partial(stax.Polynomial, [-_HERMITE_2, 0, _HERMITE_2]),
        "hermite_3": functools.partial(
            stax.Polynomial, [0, -3 * _HERMITE_3, 0, _HERMITE_3]
        ),
        "identity": stax.Identity,
    }
    for name, ours in activations.ACTIVATIONS.items():
        if activation == ours:
            return layer_fns[name]()
    msg = (
        f"activation must be one of {', '.join(layer_fns)} in neural-tangents; "
        "neural_tangents.activation makes others of a layer of stax"
    )
    raise ValueError(msg)


@contextlib.contextmanager
def _add_temporarily(
    namespace: MutableMapping[str, Any], entries: dict[str, Any]
) -> Iterator[None]:
    """Add the entries that a namespace lacks, and remove them at the end."""
    missing = {name: entries[name] for name in entries if name not in namespace}
    namespace.update(missing)
    try:
        yield
    finally:
        for name in missing:
            namespace.pop(name, None)
