r"""Wide finite GCNs beside the kernel of infinitely wide ones.

    python -m experiments.analytic_vs_empirical
    python -m experiments.analytic_vs_empirical --widths 64 256 --output results

Of each width, some networks are drawn. Their tangent kernel at initialization should
differ from the infinite one by about width^-1/2, and gradient descent on all weights,
for the squared loss, should follow the trajectory of that kernel from the network's own
f_0 as closely. Networks are those of ``gnnrp.kernels.gntk``, with one output.

Source: Def. 4.1 and Sec. 3.1; paper's Fig. 2 shows one width.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Float

from experiments import common
from gnnrp import datasets, graph, plotting, spmm
from gnnrp.datasets import sbm
from gnnrp.kernels import gntk
from gnnrp.propagation import exact

Weights = list[Float[Array, "d_in d_out"]]


@dataclasses.dataclass(frozen=True)
class Config:
    """What is drawn and trained."""

    widths: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    """m of the hidden layers."""
    depth: int = 2
    """L, weight matrices."""
    num_networks: int = 20
    """Drawn of each width."""
    num_nodes: int = 60
    """Of a graph of two blocks."""
    num_features: int = 16
    """d of normal features."""
    num_steps: int = 100
    """Of gradient descent, of size 1 / λ_max of the infinite kernel."""
    seed: int = 0
    """Of the graph, the features and the networks."""
    output: Path | None = None
    """A folder for analytic_vs_empirical.json and .png."""


class World(NamedTuple):
    """Graph, inputs and targets."""

    matrix: spmm.Matrix
    x: Float[Array, "n d"]
    y: Float[Array, "n 1"]  # ±1
    train: np.ndarray  # nodes


def main(config: Config) -> dict[str, Any]:
    """Draw, train, print, and return the numbers."""
    common.check_sizes(dataclasses.replace(config, seed=1))
    world = build(config)
    theta = gntk.gcn(world.matrix, gntk.gram(world.x), depth=config.depth).ntk
    rows = [measure(world, theta, width, config) for width in config.widths]
    found = {
        "settings": dataclasses.asdict(config) | {"output": None},
        "widths": rows,
        "slope": {
            what: slope(config.widths, [row[what]["mean"] for row in rows])
            for what in ("kernel", "trajectory")
        },
        "expected_slope": -0.5,
    }
    record = common.finish(found, "analytic_vs_empirical", config.output)
    lines = {
        what: [row[what]["mean"] for row in rows] for what in ("kernel", "trajectory")
    }
    figure = plotting.convergence(list(config.widths), lines, record["slope"])
    common.write_figure(figure, "analytic_vs_empirical", config.output)
    return record


def build(config: Config) -> World:
    """Return a graph of two blocks, normal features, and every other node labeled."""
    data = sbm.generate(
        config.seed,
        num_blocks=2,
        block_size=config.num_nodes // 2,
        intra_probability=0.2,
        inter_probability=0.05,
        train_per_class=2,
        num_val=1,
        num_test=1,
    )
    rng = np.random.default_rng(config.seed)
    x = rng.standard_normal((data.num_nodes, config.num_features))
    matrix = spmm.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    y = datasets.targets(data)[:, :1] * 2.0 - 1
    dtype = matrix.data.dtype
    train = np.arange(0, data.num_nodes, 2)
    x = jnp.asarray(x / np.sqrt(config.num_features), dtype)
    return World(matrix, x, jnp.asarray(y, dtype), train)


def measure(world: World, theta: Array, width: int, config: Config) -> dict[str, Any]:
    """Return how far networks of a width are from the infinite kernel."""
    columns = np.asarray(theta)[:, world.train]
    factors = exact.factorize(columns, world.train)
    step_size = 1 / factors.eigenvalues[-1]
    kernel, path = [], []
    for number in range(config.num_networks):
        key = jax.random.fold_in(jax.random.key(config.seed), number)
        weights = draw(key, config.num_features, width, config.depth)
        empirical = ntk(weights, world.matrix, world.x)
        kernel.append(
            float(jnp.linalg.norm(empirical - theta) / jnp.linalg.norm(theta))
        )
        outputs = np.asarray(
            trained(weights, world, step_size, num_steps=config.num_steps), np.float64
        )
        residual = np.asarray(world.y)[world.train] - outputs[0][world.train]
        steps = np.arange(config.num_steps + 1)
        expected = outputs[0] + exact.trajectory(
            factors, residual, steps, step_size=step_size
        )
        moved = np.abs(expected - outputs[0]).max()
        path.append(float(np.abs(outputs - expected).max() / moved))
    return {"width": width, "kernel": summary(kernel), "trajectory": summary(path)}


def draw(key: jax.Array, num_features: int, width: int, depth: int) -> Weights:
    """Return normal weights; the scale of each layer stands in ``forward``."""
    sizes = [num_features, *(depth - 1) * [width], 1]
    keys = jax.random.split(key, depth)
    pairs = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [jax.random.normal(each, (a, b)) for each, a, b in pairs]


def forward(
    weights: Weights,
    matrix: spmm.Matrix,
    x: Float[Array, "n d"],
    shifts: list[Array] | None = None,
) -> tuple[Float[Array, "n 1"], list[Array]]:
    """Return f, and the inputs of each layer's weights.

    The first layer has no 1 / sqrt(d), the others sqrt(2 / m).

    Args:
        weights: W_1, .., W_L.
        matrix: P.
        x: X.
        shifts: added to the outputs of each layer, so that f can be differentiated in
            them.
    """
    z, inputs = x, []
    for layer, W in enumerate(weights):
        if layer > 0:
            z = jnp.sqrt(2 / len(W)).astype(z.dtype) * jax.nn.relu(z)
        inputs.append(matrix(z))
        z = jnp.matmul(inputs[-1], W, precision="highest")
        z = z if shifts is None else z + shifts[layer]
    return z, inputs


@jax.jit
def ntk(weights: Weights, matrix: spmm.Matrix, x: Array) -> Float[Array, "n n"]:
    """Return the tangent kernel of f, without a Jacobian in the weights.

    With B_i = df_i / dZ and U the inputs of a layer, Z = U W, its share is
    <B_i, U U^T B_j>.
    """
    shifts = [jnp.zeros((len(x), W.shape[1])) for W in weights]

    def outputs(shifts):
        return forward(weights, matrix, x, shifts)[0][:, 0]

    slopes = jax.jacrev(outputs)(shifts)  # (n, n, width) of each layer
    _, inputs = forward(weights, matrix, x)
    total = jnp.zeros((len(x), len(x)))
    for B, U in zip(slopes, inputs, strict=True):
        gram = jnp.matmul(U, U.T, precision="highest")
        sent = jnp.einsum("ab,jbm->jam", gram, B, precision="highest")
        total += jnp.einsum("iam,jam->ij", B, sent, precision="highest")
    return total


@functools.partial(jax.jit, static_argnames="num_steps")
def trained(
    weights: Weights, world: World, step_size: float, *, num_steps: int
) -> Float[Array, "t n 1"]:
    """Return f before each step of gradient descent and after the last."""

    def loss(weights):
        f, _ = forward(weights, world.matrix, world.x)
        return jnp.sum((f - world.y)[world.train] ** 2) / 2, f

    def step(weights, _):
        slope, f = jax.grad(loss, has_aux=True)(weights)
        moved = jax.tree.map(lambda w, g: w - step_size * g, weights, slope)
        return moved, f

    return jax.lax.scan(step, weights, length=num_steps + 1)[1]


def slope(widths: tuple[int, ...], errors: list[float]) -> float | None:
    """Return b of errors fitted as width^b, None of a single width."""
    if len(set(widths)) < 2:
        return None
    return round(float(np.polyfit(np.log(widths), np.log(errors), 1)[0]), 3)


def summary(errors: list[float]) -> dict[str, float]:
    """Return mean and deviation over the networks."""
    deviation = float(np.std(errors, ddof=1)) if len(errors) > 1 else 0.0
    return {"mean": round(float(np.mean(errors)), 6), "std": round(deviation, 6)}


if __name__ == "__main__":
    main(tyro.cli(Config))
