# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The lazy regime: when a finite GNN follows the infinite kernel
#
# You will learn to compare a finite GCN with the kernel of infinite width (GNTK): how
# far its own kernel is from it at the start, how far that kernel drifts in training,
# and which of the two matters for its predictions. The GNTK is computed twice, by our
# recursion and by neural-tangents.

# %%
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import optax
from IPython.display import Image
from matplotlib.figure import Figure

from gnnrp import datasets, graph, plotting, sparse
from gnnrp.datasets import sbm
from gnnrp.kernels import gntk
from gnnrp.kernels.gntk import neural_tangents
from gnnrp.kernels.ntk import empirical, structured
from gnnrp.models import gnn, objectives, training
from gnnrp.propagation import exact

# %% [markdown]
# Three blocks of 20 nodes, four labels each. For real data, take
# `datasets.load("cora", "path/to/files")`; the kernels of all outputs then have
# $(nc)^2$ entries, so choose some of the nodes.

# %%
data = sbm.generate(
    0,
    num_blocks=3,
    block_size=20,
    intra_probability=0.12,
    inter_probability=0.06,
    homophilic_fraction=0.8,
    num_features=64,
    train_per_class=4,
    num_val=1,
    num_test=1,
)  # datasets.load("cora", "path/to/files")
matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
targets = jnp.asarray(datasets.targets(data))
mask = jnp.asarray(data.splits.train[0])
index = np.flatnonzero(mask)

# %% [markdown]
# The scale of the outputs decides how lazy a network is. Here the outputs of the
# infinite network have variance one on average.

# %%
x = jnp.asarray(data.features)
wide = gntk.gcn(matrix, gntk.gram(x), gntk.Network(2))
x /= jnp.sqrt(jnp.mean(jnp.diagonal(wide.nngp)))
theta = gntk.gcn(matrix, gntk.gram(x), gntk.Network(2)).ntk


def distance(one, other):
    """Return |one - other| / |other|."""
    return float(jnp.linalg.norm(one - other) / jnp.linalg.norm(other))


installed = importlib.util.find_spec("neural_tangents") is not None
if installed:
    dense = matrix(jnp.eye(data.num_nodes))
    second = neural_tangents.gcn(dense, x, gntk.Network(2)).ntk
    print(f"the two routes differ by {distance(second, theta):.0e}")

# %% [markdown]
# ## Train networks as the theory assumes
#
# NTK parameterization, squared loss, gradient descent with step size
# $1 / \lambda_{\max}$, until the residual is two percent of the first one.

# %%
factors = exact.factorize(np.asarray(theta)[:, index], index)
step_size = float(1 / factors.eigenvalues[-1])
steps = np.arange(2000)
norms = exact.residual_norms(
    factors, np.asarray(targets)[index], steps, step_size=step_size
)
num_steps = int(np.argmax(norms < 0.02 * norms[0]))
print(f"{num_steps} steps")


def predict(kernel, start):
    """Return F after the last step, by gradient descent with a fixed kernel."""
    rest = np.asarray(targets - start)[index]
    by_kernel = exact.factorize(np.asarray(kernel)[:, index], index)
    last = np.array([num_steps])
    return start + exact.trajectory(by_kernel, rest, last, step_size=step_size)[0]


def compare(width, key):
    """Return the four errors of a network."""
    network = gnn.GCN(data.num_classes, width, use_bias=False, parameterization="ntk")
    # The loss is a mean over nodes, the step size that of a sum.
    rule = training.Rule(network, optax.sgd(step_size * len(index)), objectives.squared)
    learned = training.Data(x, matrix, targets, mask)
    first = training.init(rule, learned, key).params
    last = training.run(rule, learned, key, num_steps=num_steps).params
    kernels = [kernel_fn(gnn.layers(network, p), x, matrix) for p in (first, last)]
    f, end = (network.apply(p, x, matrix) for p in (first, last))
    by_infinite, by_own = (predict(kernel, f) for kernel in (theta, kernels[0]))
    return {
        "initial kernel": distance(kernels[0], theta),
        "drift": distance(kernels[1], kernels[0]),
        "predictions by Θ": distance(end - f, by_infinite - f),
        "predictions by Θ_0": distance(end - f, by_own - f),
    }


kernel_fn = jax.jit(structured.gcn)
WIDTHS = (16, 64, 256, 1024)
KEYS = [jax.random.key(seed) for seed in range(3)]
errors = {width: [compare(width, key) for key in KEYS] for width in WIDTHS}

# %%
figure = Figure(figsize=(5.6, 4.0), layout="constrained")
axes = figure.add_subplot()
for name in errors[16][0]:
    line = [np.mean([each[name] for each in errors[width]]) for width in WIDTHS]
    slope = np.polyfit(np.log(WIDTHS), np.log(line), 1)[0]
    axes.loglog(WIDTHS, line, "o-", base=2, label=f"{name}, width^{slope:.2f}")
axes.set_xlabel("width m")
axes.set_ylabel("relative error")
axes.legend(frameon=False, fontsize="small")
Image(plotting.png(figure))

# %% [markdown]
# The initial kernel approaches the GNTK like $m^{-1/2}$. The drift falls about twice as
# fast in the exponent, so in wide networks the prediction error is that of the initial
# kernel: their own $\Theta_0$ predicts them far better. (Here $\Theta_0$ is the mean
# over classes; the kernel of all outputs is better still.)
#
# ## The limit, by neural-tangents
#
# From zero, training to the end is kernel regression. neural-tangents solves the same
# equations.

# %%
zero = np.zeros((len(index), data.num_classes))
limit = exact.limit(factors, np.asarray(targets, np.float64)[index] - zero)
if installed:
    nt = neural_tangents.load()
    block = theta[index][:, index]
    predict_fn = nt.predict.gradient_descent_mse(block, targets[index])
    _, other = predict_fn(None, zero, np.zeros_like(limit), theta[:, index])
    print(f"the two limits differ by {distance(jnp.asarray(other), limit):.0e}")
right = limit.argmax(1) == data.labels
print(f"GNTK regression: {100 * right[~np.asarray(mask)].mean():.0f} percent")

# %% [markdown]
# ## Several outputs, and the training of the paper's figures
#
# At infinite width all outputs share one kernel of nodes. The paper proposes the
# pseudo-NTK, the kernel of the sum of outputs, for networks in training as well
# (Eq. 109). In the training of its figures (standard parameterization, cross-entropy,
# momentum), it departs from the kernel of all outputs at every width.


# %%
def to_nodes(full, reduce):
    """Return |K ⊗ I - Θ| / |Θ| of the pseudo-NTK or the trace."""
    c = full.shape[1]
    index = "ikjl->ij" if reduce == "pseudo" else "ikjk->ij"
    kernel = jnp.einsum(index, full) / c
    return distance(jnp.einsum("ij,kl->ikjl", kernel, jnp.eye(c)), full)


optimizer = objectives.sgd(1e-2, momentum=0.9, weight_decay=5e-4)
learned = training.Data(x, matrix, targets, mask)
for width in (16, 64, 256):
    network = gnn.GCN(data.num_classes, width)
    rule = training.Rule(network, optimizer)
    first = training.init(rule, learned, KEYS[0]).params
    last = training.run(rule, learned, KEYS[0], num_steps=2000).params
    for when, params in (("start", first), ("end", last)):
        full = structured.gcn(gnn.layers(network, params), x, matrix, reduce="full")
        gaps = [f"{name} {to_nodes(full, name):.3f}" for name in ("pseudo", "trace")]
        print(f"width {width}, {when}: {', '.join(gaps)}")

# %% [markdown]
# `empirical.ntk` has these reductions for any network:

# %%
by_jacobians = empirical.ntk(
    lambda params, x: network.apply(params, x, matrix), last, x, reduce="trace"
)
by_structure = kernel_fn(gnn.layers(network, last), x, matrix)
print(f"both routes to it differ by {distance(by_jacobians, by_structure):.0e}")

# %% [markdown]
# `python -m experiments.paper.analytic_vs_empirical` measures all of this up to width
# 8192, for two and three layers, both parameterizations and losses, on a synthetic
# graph and on a part of Cora.
