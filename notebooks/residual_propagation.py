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
# # Residual propagation is gradient descent without weights
#
# You will learn what RP computes, step by step, as pure functions; that it is gradient
# descent on a linear GNN, with the weights left out; how every step follows at once
# from a closed form; what the spectrum of $S$ says about convergence; and how to learn
# $S$ from validation nodes.

# %%
import functools

import jax
import jax.numpy as jnp
import numpy as np
from IPython.display import Image

from gnnrp import datasets, graph, metrics, plotting, propagation, sparse
from gnnrp.propagation import Steps, exact, label, residual, similarity

# %% [markdown]
# A small graph of five blocks. For real data, replace `"sbm"` by the name of a set,
# such as `"cora"`, and give `datasets.load` the folder of its files.

# %%
data = datasets.load("sbm")  # datasets.load("cora", "path/to/files")
matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
targets = jnp.asarray(datasets.targets(data))
train, val, test = (jnp.asarray(mask[0]) for mask in data.splits)
S = similarity.Power(matrix, 4)  # V -> A^4 V; never formed

# %% [markdown]
# ## One step
#
# The state holds the predictions $F_t$, at first zero; residuals are $R_t = Y - F_t$
# and $R'_t = -F'_t$. A step sends those of the labeled nodes through $S$ and adds what
# arrives to the predictions of every node. The first one is label propagation: $F_1 =
# \eta A^K [Y, 0]$.

# %%
step = jax.jit(functools.partial(residual.step, step_size=1.0))
state = step(residual.init(targets), S, targets, train[:, None])
by_labels = label.propagate(matrix, label.seeds(targets, train), num_iterations=4)
gap = jnp.abs(state.predictions - by_labels).max()
print(f"after one step, RP and label propagation differ by {float(gap):.1e}")

# %% [markdown]
# ## The same without the graph's algorithm: a linear GNN
#
# A linear GNN is $F = A^{2} X W$. With one-hot inputs $X = I$, gradient descent on $W$
# from zero moves $F$ along the kernel $A^4$: the weights do not matter, only $S$ does.

# %%
W = jnp.zeros_like(targets)
power = similarity.Power(matrix, 2)


@jax.jit
def descend(W, power):
    def loss(W):
        error = jnp.where(train[:, None], targets - power(W), 0)
        return 0.5 * jnp.sum(error**2)

    return W - jax.grad(loss)(W)


for _ in range(20):
    W = descend(W, power)
state = residual.init(targets)
for _ in range(20):
    state = step(state, S, targets, train[:, None])
gap = jnp.abs(state.predictions - power(W)).max()
print(f"after 20 steps, RP and the trained linear GNN differ by {float(gap):.1e}")

# %% [markdown]
# ## Every step at once
#
# With the squared loss, $F_t = S_{:X} \frac{1 - (1 - \eta\lambda)^t}{\lambda}$ in the
# eigenbasis of $S_{XX}$. `propagation.run` uses that: a whole learning curve costs one
# column of $S$ for each labeled node. Several step sizes share these columns, as in
# the paper's Figure 2.

# %%
sizes = (1.0, 0.5, 0.2, 0.1, 0.05)
runs = propagation.run(
    S,
    datasets.targets(data),
    datasets.select_split(data, 0).splits,
    Steps(sizes, 100),
    metric=metrics.by_name(data.metric),
)
print("solver:", runs[0].report.solver)
score = metrics.by_name(data.metric)
lines = {"label propagation": 100 * float(score(by_labels, targets, test))}
values = {
    f"η = {size}": [100 * float(value) for value in run.test[0]]
    for size, run in zip(sizes, runs, strict=True)
}
figure = plotting.curves(
    values, lines, title="RP on the block model", label="test accuracy (%)"
)
Image(plotting.png(figure))

# %% [markdown]
# ## Does it converge?
#
# `exact.convergence` decides it for this graph, these labels and this step size, and
# names the row of the paper's table. An odd power of $A$ is indefinite, and diverges
# slowly where a negative eigenvalue meets the labels; an even power is positive
# semi-definite.

# %%
index = np.flatnonzero(data.splits.train[0])
known = np.asarray(targets, np.float64)[index]
for hops in (3, 4):
    walk = similarity.Power(matrix, hops)
    columns = walk(jnp.eye(data.num_nodes)[:, index])
    factors = exact.factorize(np.asarray(columns), index)
    verdict = exact.convergence(factors, known, step_size=1.0)
    print(f"K = {hops}: λ from {factors.eigenvalues[0]:+.4f}", end="")
    print(f" to {factors.eigenvalues[-1]:.4f}; {verdict.explanation}")

# %% [markdown]
# ## Learn how far to look
#
# At convergence, RP is kernel regression,
# $F = S_{:X} (S_{XX} + \lambda I)^{-1} Y$, with a small ridge $\lambda$. The loss on
# the validation nodes has a gradient in every parameter of $S$, here in the weights
# $\mu$ of a mixture of hops, $S = \sum_k \mu_k A^k$.

# %%
hops = [jnp.eye(data.num_nodes)[:, index]]
for _ in range(6):
    hops.append(matrix(hops[-1]))
columns = jnp.stack(hops)  # A^k, columns of the labeled nodes


def predict(logits, ridge=0.01):
    mixture = jnp.einsum("k,kij->ij", jax.nn.softmax(logits), columns)
    block = mixture[index] + ridge * jnp.eye(len(index))
    return mixture @ jnp.linalg.solve(block, targets[index])


def validation_loss(logits):
    return jnp.sum((targets - predict(logits))[val] ** 2) / val.sum()


logits = jnp.zeros(len(hops))
descend = jax.jit(lambda logits: logits - 10 * jax.grad(validation_loss)(logits))
for name in ("equal", "learned"):
    accuracy, mu = score(predict(logits), targets, test), jax.nn.softmax(logits)
    print(
        f"{name} weights {np.round(mu, 2)}: {100 * float(accuracy):.1f}% on test nodes"
    )
    for _ in range(200):
        logits = descend(logits)
