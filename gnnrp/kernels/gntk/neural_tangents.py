"""Infinitely wide GNNs by neural-tangents: a second route, and more activations.

``gntk`` computes the same kernels with a sparse P and is faster. This module checks it,
and lends it every nonlinearity of ``stax``. neural-tangents 0.6.5 is the last release
and imports names that jax has removed: ``load`` makes it work, for infinite kernels,
``predict.gradient_descent_mse`` and ``empirical_ntk_fn`` with implementations 1 and 2.
Structured derivatives (3), ``predict.max_learning_rate`` and
``neural_tangents.experimental`` are left out.

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

from gnnrp.kernels.gntk import activations, recursion
from gnnrp.kernels.gntk.activations import Activation
from gnnrp.runtime import checks
from gnnrp.types import Scalar

StaxLayer: TypeAlias = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]
"""(init_fn, apply_fn, kernel_fn), what ``stax`` makes."""

INSTALL = "pip install --no-deps neural-tangents==0.6.5 frozendict"

_CORE_NAMES = ("Jaxpr", "JaxprEqn", "Literal", "Primitive", "Var")
_EXPERIMENTAL = "neural_tangents.experimental"
_LOADING = threading.Lock()


@functools.cache
def load() -> types.ModuleType:
    """Return neural_tangents, imported without TensorFlow; jax stays as it is.

    Raises:
        ImportError: it is not installed.
    """
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
        _lent(jax.core.__dict__, core_names),
        _lent(ad.__dict__, ad_names),
        _lent(sys.modules, {util.__name__: util, stub.__name__: stub}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        loaded = importlib.import_module("neural_tangents")
    if loaded.__dict__.get("experimental") is stub:
        delattr(loaded, "experimental")
    return loaded


def gcn(
    num_features: int,
    *,
    depth: int,
    activation: str | StaxLayer = "relu",
    scale: float | None = None,
    bias: str = "none",
    bias_std: float = 1.0,
    width: int = 1,
    num_classes: int = 1,
) -> StaxLayer:
    """Return the GCN of ``gntk.gcn`` as a network of ``stax``.

    Inputs have shape (1, n, d), and ``pattern`` is **P^T**, of shape (1, n, n), as
    ``Aggregate`` transposes it; ``kernel_fn`` takes a pair of patterns.

    Args:
        num_features: d; the first layer has no 1 / sqrt(d), unlike those of ``stax``.
        depth: L, weight matrices, at least 1.
        activation: φ, a name from ``activations.ACTIVATIONS`` or a layer of ``stax``.
        scale: c_σ; that of the activation if left out.
        bias: "none", or where the bias is added, "before" or "after" the aggregation.
        bias_std: β; not used without a bias.
        width: m of the hidden layers; no matter to the infinite kernels.
        num_classes: c, outputs; no matter to the infinite kernels.

    Returns:
        (init_fn, apply_fn, kernel_fn).

    Raises:
        ImportError: neural-tangents is not installed.
        ValueError: a size below 1, or an unknown bias or activation.

    Source: Def. 4.1 (App. B.3), with a linear last layer.
    """
    stax = load().stax
    num_features = checks.count("num_features", num_features, 1)
    depth = checks.count("depth", depth, 1)
    checks.one_of("bias", bias, recursion.BIASES)
    nonlinearity, usual_scale = _nonlinearity(activation)
    hidden_std = math.sqrt(usual_scale if scale is None else scale)
    b_std = None if bias == "none" else bias_std
    layers = []
    for layer in range(depth):
        if layer > 0:
            layers.append(nonlinearity)
        num_outputs = width if layer < depth - 1 else num_classes
        W_std = hidden_std if layer > 0 else math.sqrt(num_features)
        dense = stax.Dense(num_outputs, W_std=W_std, b_std=b_std)
        aggregate = stax.Aggregate(aggregate_axis=1, batch_axis=0)
        layers += [dense, aggregate] if bias == "before" else [aggregate, dense]
    return stax.serial(*layers)


def kernels(
    propagation: Float[Array, "n n"],
    features: Float[Array, "n d"],
    *,
    depth: int,
    activation: str | StaxLayer = "relu",
    scale: float | None = None,
    bias: str = "none",
    bias_std: float = 1.0,
) -> recursion.Kernels:
    """Return the kernels of a GCN, computed by neural-tangents; costs n^3 a layer.

    Args:
        propagation: P as a dense matrix; need not be symmetric.
        features: X.
        depth: L; with the settings that follow, as of ``gcn``.
        activation: φ.
        scale: c_σ.
        bias: whether there is one, and where.
        bias_std: β.

    Raises:
        ImportError: neural-tangents is not installed.
        ValueError: no feature, a depth below 1, or an unknown bias or activation.

    Source: Def. 4.1 (App. B.3), with a linear last layer.
    """
    _, _, kernel_fn = gcn(
        features.shape[1],
        depth=depth,
        activation=activation,
        scale=scale,
        bias=bias,
        bias_std=bias_std,
    )
    pattern = propagation.T[None]
    # Its products take the default precision, coarse on GPUs, and its types are mixed.
    with jax.default_matmul_precision("highest"), jax.numpy_dtype_promotion("standard"):
        found = kernel_fn(
            features[None], None, ("nngp", "ntk"), pattern=(pattern, pattern)
        )
    # With float64 enabled, neural-tangents leaves float32.
    both = (kernel[0, 0].astype(features.dtype) for kernel in found)
    return recursion.Kernels(*both)


def activation(layer: StaxLayer) -> Activation:
    """Return the expectations of a nonlinearity of ``stax``, for ``gntk.transform``.

    Differentiable as far as neural-tangents' own functions are.

    Args:
        layer: elementwise, such as ``load().stax.Gelu()``.

    Returns:
        T, Td, and c_σ = 1 / T(1, 1, 1).

    Raises:
        ImportError: neural-tangents is not installed.
    """
    kernel_type = load().Kernel
    _, _, kernel_fn = layer

    def applied(covariance: Array, a: Array, b: Array) -> Any:
        c, a, b = (x[None] for x in jnp.broadcast_arrays(covariance, a, b))
        # One graph of equally many pixels, of which only each with itself is looked at.
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
        return applied(c, a, b).nngp[0, 0].astype(c.dtype)

    def derivative(c: Array, a: Array, b: Array) -> Array:
        return applied(c, a, b).ntk[0, 0].astype(c.dtype)

    one = jnp.ones(())
    return Activation(covariance, derivative, 1 / float(covariance(one, one, one)))


def _nonlinearity(activation_: str | StaxLayer) -> tuple[StaxLayer, Scalar]:
    """Return a layer of ``stax`` and its usual c_σ."""
    if not isinstance(activation_, str):
        return activation_, activation(activation_).scale
    ours, stax = activations.by_name(activation_), load().stax
    layers = {
        "relu": stax.Relu,
        "leaky_relu": functools.partial(stax.LeakyRelu, 0.01),
        "erf": stax.Erf,
        "identity": stax.Identity,
    }
    return layers[activation_](), ours.scale


@contextlib.contextmanager
def _lent(
    namespace: MutableMapping[str, Any], entries: dict[str, Any]
) -> Iterator[None]:
    """Add the entries that a namespace lacks, and take them back at the end."""
    missing = {name: entries[name] for name in entries if name not in namespace}
    namespace.update(missing)
    try:
        yield
    finally:
        for name in missing:
            namespace.pop(name, None)
