"""The tangent kernel of any network during training, on some of the nodes."""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped

from gnnrp.kernels import alignment
from gnnrp.kernels.ntk import empirical
from gnnrp.models import training
from gnnrp.runtime import checkpoints, checks, memory, tracing
from gnnrp.runtime.options import Options


def track(
    rule: training.Rule,
    data: training.Data,
    key: Shaped[jax.Array, "..."],
    *,
    nodes: Int[np.ndarray, " k"],
    graph_kernel: Float[Any, "k k"],
    num_steps: int,
    every: int = 100,
    reduce: str = "sum",
    options: Options = Options(),
) -> list[dict[str, Any]]:
    """Train a network and compare its kernel Θ_t with graph and labels.

    The network is any flax module with ``__call__(x, matrix)``, perhaps with a keyword
    ``train`` or ``deterministic`` for dropout; x and matrix are those of ``data``, any
    pytrees that it reads. Θ is computed by ``kernels.ntk.empirical`` between some nodes
    only, since the Jacobians of all nodes rarely fit in memory.

    Args:
        rule: network, optimizer and loss.
        data: inputs, matrix, one-hot targets and training mask.
        key: of the weights and of dropout.
        nodes: the k nodes of the kernel.
        graph_kernel: the block of these nodes of a power of A, such as A^{2L}.
        num_steps: steps of training.
        every: steps between two evaluations.
        reduce: kernel over classes, see ``empirical.ntk``.
        options: checkpoints, memory limit and progress, see ``training.run``. The
            folder also holds ``tracking.jsonl``, a line per evaluation.

    Returns:
        A row for each evaluation, from step 0: centered alignments of Θ_t with the
        graph ("kernel_graph") and with the labels ("kernel_labels"), "drift"
        |Θ_t - Θ_0| / |Θ_0|, and the training loss. If training diverges, the rows end
        there, with a warning.

    Raises:
        ValueError: fewer than two nodes, or nodes out of range, a graph kernel of
            another shape or not finite, or arguments that ``training.run`` refuses.
        TypeError: an argument of another type.

    Source: Section 6, for any network.
    """
    nodes, graph_kernel = _check(data, nodes, graph_kernel)
    folder = options.folder and Path(options.folder)
    journal = checkpoints.Journal(folder and folder / "tracking.jsonl")
    traced = data._replace(matrix=tracing.as_argument(data.matrix))
    ideal = alignment.ideal_kernel(data.targets[nodes])
    kernel, loss = _compile(rule, nodes, reduce, memory.room(options.max_bytes).left)

    @functools.cache  # a resumed run computes it anew
    def initial_kernel() -> jax.Array:
        return kernel(training.init(rule, data, key).params, traced)

    def evaluate(t: int, params: Any) -> None:
        theta, first = kernel(params, traced), initial_kernel()
        values = {
            "kernel_graph": alignment.alignment(theta, graph_kernel, centered=True),
            "kernel_labels": alignment.alignment(theta, ideal, centered=True),
            "drift": jnp.linalg.norm(theta - first) / jnp.linalg.norm(first),
            "loss": loss(params, traced),
        }
        row = {name: float(f"{float(value):.6g}") for name, value in values.items()}
        journal.append({"step": t} | row)

    result = training.run(
        rule,
        data,
        key,
        num_steps=num_steps,
        every=every,
        callback=evaluate,
        options=dataclasses.replace(options, folder=folder and folder / "checkpoints"),
        journal=journal,
    )
    if result.diverged >= 0:
        msg = f"training diverged at step {int(result.diverged)}; lower the step size"
        warnings.warn(msg, RuntimeWarning, stacklevel=2)
    return journal.rows


def _check(data: Any, nodes: Any, graph_kernel: Any) -> tuple[Any, jax.Array]:
    """Return the nodes and the graph kernel, validated."""
    checks.instance("data", data, training.Data, "such as Data(x, matrix, y, train)")
    nodes = checks.node_ids("nodes", nodes, len(data.targets))
    if len(nodes) < 2:
        msg = f"nodes must hold at least two nodes, got {len(nodes)}"
        raise ValueError(msg)
    graph_kernel = jnp.asarray(checks.reals("graph_kernel", graph_kernel))
    checks.shape("graph_kernel", graph_kernel, (len(nodes),) * 2)
    if not jnp.isfinite(graph_kernel).all():
        msg = "graph_kernel must be finite, and holds NaN or infinity"
        raise ValueError(msg)
    return nodes, graph_kernel


def _compile(
    rule: training.Rule, nodes: Any, reduce: str, max_bytes: int
) -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
    """Return the kernel of some nodes and the training loss, of (params, data)."""

    def kernel(params: Any, data: training.Data) -> jax.Array:
        def apply_fn(params: Any, x: Any) -> Any:
            return rule.network.apply(params, x, data.matrix)

        return empirical.ntk(
            apply_fn, params, data.x, nodes, reduce=reduce, max_bytes=max_bytes
        )

    def loss(params: Any, data: training.Data) -> jax.Array:
        logits: Any = rule.network.apply(params, data.x, data.matrix)
        return rule.loss_fn(logits, data.targets, data.train)

    return tracing.Jit(kernel), tracing.Jit(loss)
