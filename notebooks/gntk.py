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
# # Infinitely wide GNNs: the kernel that training follows
#
# You will learn to compute the node-level graph neural tangent kernel (GNTK) layer by
# layer, to predict with it, and to see that it takes the shape of the graph: that is
# why training a wide GNN resembles residual propagation.

# %%
import importlib.util

import jax.numpy as jnp
import numpy as np
from IPython.display import Image

from gnnrp import datasets, graph, metrics, plotting, sparse
from gnnrp.kernels import alignment, gntk
from gnnrp.propagation import exact, similarity
from gnnrp.studies import gntk as gntk_study
from gnnrp.studies import gntk_kernels, tables

# %% [markdown]
# For real data, replace `"sbm"` by the name of a set, such as `"cora"`, and give
# `datasets.load` the folder of its files. Kernels are n x n: some ten thousand nodes
# fit.

# %%
data = datasets.load("sbm")  # datasets.load("cora", "path/to/files")
matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
inputs = gntk_kernels.inputs(data)  # X X^T

# %% [markdown]
# ## Four steps make a network
#
# `initialize` takes the inputs' Gram matrix, `propagate` is $K \mapsto A K A$, `dense`
# a layer of weights, `transform` the nonlinearity. A GCN of two layers:

# %%
layer = gntk.dense(gntk.propagate(gntk.initialize(inputs), matrix))
two = gntk.dense(gntk.propagate(gntk.transform(layer), matrix))
same = gntk.gcn(matrix, inputs, gntk.Network(2))
print("step by step and at once differ by", float(jnp.abs(two.ntk - same.ntk).max()))

# %% [markdown]
# ## Its shape is that of the graph
#
# Thirty nodes, sorted by class: the adjacency reached in $2L = 4$ hops, the kernel with
# the graph, and the kernel of the same network without it.

# %%
rng = np.random.default_rng(0)
some = rng.choice(data.num_nodes, 30, replace=False)
some = some[np.argsort(data.labels[some], kind="stable")]
without = gntk.gcn(lambda v: v, inputs, gntk.Network(2))
far = similarity.Power(matrix, 4)(jnp.eye(data.num_nodes)[:, some])[some]


def centered(kernel):
    """Return the block of the nodes drawn, less its mean."""
    return np.asarray(kernel - kernel.mean())


figure = plotting.matrices(
    {
        "A^4": centered(far),
        "GNTK": centered(two.ntk[some][:, some]),
        "without the graph": centered(without.ntk[some][:, some]),
    },
    "Thirty nodes, sorted by class",
)
Image(plotting.png(figure))

# %% [markdown]
# Alignment puts it in a number: the cosine between two centered matrices. With the
# graph, the kernel is nearer to $A^4$ and to the ideal kernel $YY^\top$ of the labels.

# %%
labels = alignment.label_kernel(data.labels, data.num_classes)
hops = alignment.Operator(similarity.Power(matrix, 4), data.num_nodes)
for name, kernel in (("with the graph", two.ntk), ("without", without.ntk)):
    to_graph = float(alignment.alignment(kernel, hops, centered=True))
    to_labels = float(alignment.alignment(kernel, labels, centered=True))
    print(f"{name}: A(Θ, A^4) {to_graph:.3f}, A(Θ, Θ*) {to_labels:.3f}")

# %% [markdown]
# ## Predict with it
#
# Trained to the end, the infinitely wide network is kernel regression. Before the end
# it is RP with $S = \Theta$; validation says where to stop.

# %%
index = np.flatnonzero(data.splits.train[0])
targets = datasets.targets(data)
factors = exact.factorize(np.asarray(two.ntk[:, index]), index, psd=True)
end = exact.limit(factors, targets[index].astype(np.float64))
score = metrics.by_name(data.metric)
test = jnp.asarray(data.splits.test[0])
at_end = score(jnp.asarray(end, jnp.float32), jnp.asarray(targets), test)
print(f"kernel regression: {100 * float(at_end):.1f} percent of the test nodes")

# %% [markdown]
# `studies.gntk.run`, behind `gnnrp gntk`, does all of this for several depths.

# %%
record = gntk_study.run(data, gntk_study.GNTKSettings(depths=(1, 2, 3), num_steps=2000))
print(tables.depth_table(record))
Image(plotting.png(plotting.depths(record)))

# %% [markdown]
# neural-tangents, if it is installed, computes the same kernels from a dense matrix.
# The default route is our own recursion: its products are sparse.

# %%
installed = importlib.util.find_spec("neural_tangents") is not None
for route in gntk_study.ROUTES if installed else gntk_study.ROUTES[:1]:
    settings = gntk_study.GNTKSettings(depths=(2,), num_steps=100, route=route)
    (row,) = gntk_study.run(data, settings)["depths"]
    print(f"{route}: {row['end']['test_mean']:.1f} percent of the test nodes")
