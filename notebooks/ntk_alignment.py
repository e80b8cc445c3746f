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
# # Watch the kernel of a GCN while it trains
#
# You will learn to train a finite GCN, to compute its empirical tangent kernel on many
# graphs at the same weights, and to read the paper's central figure: the kernel aligns
# with the graph it is given; how near it comes to the labels, and the test accuracy,
# depend on how homophilic that graph is.

# %%
import dataclasses

import jax
import jax.numpy as jnp
from IPython.display import Image

from gnnrp import datasets, graph, plotting, sparse
from gnnrp.datasets import sbm
from gnnrp.kernels.ntk import empirical, structured
from gnnrp.models import gnn, objectives, training
from gnnrp.studies import ntk as ntk_study
from gnnrp.studies import tables

# %% [markdown]
# Five blocks of 100 nodes, drawn here. For real data, see the last cell.

# %%
SIZES = {
    "block_size": 100,
    "intra_probability": 0.04,
    "inter_probability": 0.01,
    "num_val": 100,
    "num_test": 200,
}
data = sbm.generate(0, **SIZES)
matrix = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
x = ntk_study.inputs(data, row_normalize=False)

# %% [markdown]
# ## Train a network
#
# Networks are flax modules whose propagation matrix is an argument. `training.run`
# takes any optax optimizer.

# %%
network = gnn.GCN(data.num_classes, width=16, depth=2)
rule = training.Rule(network, objectives.sgd(0.05, momentum=0.9, weight_decay=5e-4))
targets = jnp.asarray(datasets.targets(data), x.dtype)
train = jnp.asarray(data.splits.train[0])
learned = training.Data(x, matrix, targets, train)
trained = training.run(rule, learned, jax.random.key(0), num_steps=300)
print(f"loss {trained.losses[0]:.3f} before, {trained.losses[-1]:.3f} after")

# %% [markdown]
# ## Its tangent kernel, twice
#
# By the Jacobian of any function of the parameters, and, for a GCN, from its structure:
# without a Jacobian, and much faster.

# %%
by_structure = jax.jit(structured.gcn)(gnn.layers(network, trained.params), x, matrix)
block = empirical.ntk(
    lambda params, x: network.apply(params, x, matrix),
    trained.params,
    x,
    range(10),
)
gap = jnp.abs(by_structure[:10, :10] - block).max() / jnp.abs(block).max()
print(f"the two routes differ by {float(gap):.1e} of the largest entry")

# %% [markdown]
# ## The paper's figure
#
# A family of graphs goes from homophilic to heterophilic edges. One network is trained
# without any graph; its kernel is taken on each of them. Light lines are heterophilic.

# %%


def mixed(share):
    """Return the graph with this share of homophilic edges."""
    return sbm.generate(0, homophilic_fraction=share, **SIZES)


settings = dataclasses.replace(
    ntk_study.settings("sbm"),
    learning_rate=0.01,
    num_steps=1500,
    every=150,
    num_graphs=5,
)
record = ntk_study.run(data, settings, family=mixed)
print(tables.tracking_table(record))
Image(plotting.png(plotting.evolution(record)))

# %% [markdown]
# ## On real data
#
# On a real graph, edges are left out one share after the other, and the kernel is taken
# on what is left. The paper's run on Cora takes minutes; with `REAL = "cora"` and its
# files in `$GNNRP_DATA` this cell makes a short one.

# %%
REAL = None  # "cora", "texas", ...
if REAL:
    found = ntk_study.run(
        datasets.load(REAL),
        dataclasses.replace(
            ntk_study.settings(REAL), num_steps=2000, every=500, num_graphs=4
        ),
    )
    print(tables.tracking_table(found))
