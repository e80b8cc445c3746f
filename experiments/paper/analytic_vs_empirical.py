r"""Compare wide finite GCNs with the kernel of infinitely wide ones.

    python -m experiments.paper.analytic_vs_empirical --output reproduced
    python -m experiments.paper.analytic_vs_empirical --widths 64 256

Several networks are drawn for each width. At initialization, their tangent kernel
should differ from the infinite one by about width^-1/2. Gradient descent on all weights
with the squared loss should follow the trajectory of the infinite kernel, started from
the network's own f_0, with an error of the same order. The networks are those of
``gnnrp.kernels.gntk`` with one output.

Source: Def. 4.1 and Sec. 3.1.
"""

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from experiments import plots, runner
from gnnrp import datasets, graph, sparse
from gnnrp.datasets import sbm
from gnnrp.kernels import gntk
from gnnrp.kernels.ntk import empirical, structured
from gnnrp.models import gnn, objectives, training
from gnnrp.propagation import exact


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Networks, graph and training."""

    widths: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    """m, widths of the hidden layers."""
    depth: int = 2
    """L, number of weight matrices."""
    num_networks: int = 20
    """Networks per width."""
    num_nodes: int = 60
    """Nodes of the graph, which has two blocks."""
    num_features: int = 16
    """d, normally distributed features."""
    num_steps: int = 100
    """Steps of gradient descent of size 1 / λ_max of the infinite kernel."""

    SHORT: ClassVar[dict[str, Any]] = {
        "widths": (64, 256, 1024), "num_networks": 6, "num_nodes": 30
    }  # fmt: skip


class World(NamedTuple):
    """Training data with targets ±1, adjacency and training nodes."""

    data: training.Data
    matrix: sparse.Matrix
    train: np.ndarray


def run(config: Config, progress: runner.Progress = runner.silent) -> runner.Outcome:
    """Draw and train networks; return the errors per width and their slopes."""
    world = build(config)
    gram = gntk.gram(world.data.x)
    theta = gntk.gcn(world.matrix, gram, gntk.Network(config.depth)).ntk
    rows = []
    for width in config.widths:
        progress(f"width {width}", len(rows), len(config.widths))
        rows.append(measure(world, theta, width, config))
    lines = {
        what: [row[what]["mean"] for row in rows] for what in ("kernel", "trajectory")
    }
    slopes = {what: slope(config.widths, line) for what, line in lines.items()}
    figure = plots.convergence(list(config.widths), lines, slopes)
    result = {"widths": rows, "slope": slopes, "expected_slope": -0.5}
    return runner.Outcome(result, {"": figure}, {})


def build(config: Config) -> World:
    """Return a graph of two blocks with normal features, every other node labeled."""
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
    matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
    y = datasets.targets(data)[:, :1] * 2.0 - 1
    dtype = matrix.data.dtype
    train = np.arange(0, data.num_nodes, 2)
    x = jnp.asarray(x / np.sqrt(config.num_features), dtype)
    mask = np.isin(np.arange(data.num_nodes), train)
    learned = training.Data(x, matrix, jnp.asarray(y, dtype), jnp.asarray(mask))
    return World(learned, matrix, train)


def measure(world: World, theta: Array, width: int, config: Config) -> dict[str, Any]:
    """Return the distances of networks of one width to the infinite kernel."""
    columns = np.asarray(theta)[:, world.train]
    factors = exact.factorize(columns, world.train)
    step_size = 1 / factors.eigenvalues[-1]
    network = gnn.GCN(1, width, config.depth, use_bias=False, parameterization="ntk")
    # The loss is a mean over nodes; the trajectory is that of a sum.
    rule = training.Rule(
        network, optax.sgd(step_size * len(world.train)), objectives.squared
    )
    kernel, path = [], []
    for number in range(config.num_networks):
        key = jax.random.fold_in(jax.random.key(config.seed), number)
        state = training.init(rule, world.data, key)
        found = ntk(network, state.params, world.matrix, world.data.x)
        kernel.append(float(jnp.linalg.norm(found - theta) / jnp.linalg.norm(theta)))
        outputs = np.asarray(
            trained(rule, state, world.data, num_steps=config.num_steps), np.float64
        )
        residual = np.asarray(world.data.targets)[world.train] - outputs[0][world.train]
        steps = np.arange(config.num_steps + 1)
        expected = outputs[0] + exact.trajectory(
            factors, residual, steps, step_size=step_size
        )
        moved = np.abs(expected - outputs[0]).max()
        path.append(float(np.abs(outputs - expected).max() / moved))
    return {"width": width, "kernel": summary(kernel), "trajectory": summary(path)}


@functools.partial(jax.jit, static_argnames="network")
def ntk(
    network: gnn.GCN, params: Any, matrix: sparse.Matrix, x: Array
) -> Float[Array, "n n"]:
    """Return the tangent kernel of a network, by structure where that is faster."""
    if network.depth <= structured.DEEPEST:
        return structured.gcn(gnn.layers(network, params), x, matrix)

    def outputs(params: Any, x: Array) -> Any:
        return network.apply(params, x, matrix)

    return empirical.ntk(outputs, params, x)


@functools.partial(jax.jit, static_argnames=("rule", "num_steps"))
def trained(
    rule: training.Rule, state: training.State, data: training.Data, *, num_steps: int
) -> Any:
    """Return f before each step of gradient descent and after the last, (t, n, 1)."""

    def step(state, _):
        f = rule.network.apply(state.params, data.x, data.matrix)
        return training.step(rule, state, data)[0], f

    return jax.lax.scan(step, state, length=num_steps + 1)[1]


def slope(widths: tuple[int, ...], errors: list[float]) -> float | None:
    """Return b of a fit width^b to the errors, None for a single width."""
    if len(set(widths)) < 2:
        return None
    return round(float(np.polyfit(np.log(widths), np.log(errors), 1)[0]), 3)


def summary(errors: list[float]) -> dict[str, float]:
    """Return the mean and the standard deviation over the networks."""
    deviation = float(np.std(errors, ddof=1)) if len(errors) > 1 else 0.0
    return {"mean": round(float(np.mean(errors)), 6), "std": round(deviation, 6)}


if __name__ == "__main__":
    runner.main(Config, run, "analytic_vs_empirical")
