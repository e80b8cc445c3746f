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
# # Classify nodes without training a network
#
# You will learn to run **residual propagation** (RP) on a graph: which scores it
# reaches, how far label propagation and the majority class are behind, and how to read
# its learning curve. RP has no weights. It repeats
#
# $$[R, R'] \leftarrow [R, R'] - \eta\, S\, [R, 0],$$
#
# where $R$ holds what is still unexplained of the known labels, $R'$ the (negative)
# prediction of the other nodes, and $S$ is a power of the normalized adjacency, or a
# kernel of the features between two walks on the graph.

# %%
from IPython.display import Image

from gnnrp import datasets, plotting
from gnnrp.studies import presets, tables
from gnnrp.studies import rp as rp_study

# %% [markdown]
# ## The data
#
# The stochastic block model below is made by a generator: nothing is downloaded. For
# real data, write the name of a set and where its files are; `gnnrp datasets` lists
# them.

# %%
NAME = "sbm"  # "cora", "citeseer", "minesweeper", "arxiv", ...
DATA_DIR = None  # a folder; None searches $GNNRP_DATA and the user cache

data = datasets.load(NAME, DATA_DIR)
counted = datasets.statistics(data)
print(f"{data.name}: {counted.num_nodes:,} nodes, {counted.num_edges:,} edges,")
print(f"{counted.num_features} features, {data.num_classes} classes,")
print(f"{int(data.splits.train[0].sum())} labeled nodes, metric {data.metric}")

# %% [markdown]
# ## Run
#
# Every set has settings: the published ones where there are any. The result is a record
# of plain numbers, the same that `gnnrp rp --json` prints, and the curves behind it.

# %%
settings = presets.settings(NAME, has_features=data.features is not None)
run = rp_study.run(data, settings)
print(tables.run_table(run.record))

# %% [markdown]
# ## The learning curve
#
# Each step is one application of $S$. Validation chooses the step (circle); the grey
# lines are the majority class, label propagation and RP without features. Later steps
# fit the labeled nodes ever better, which need not help the others.

# %%
figure = plotting.learning_curve(run.record, run.trajectory.val, run.trajectory.test)
Image(plotting.png(figure))

# %% [markdown]
# ## Change something
#
# Settings are a frozen dataclass. Without a kernel, RP sees the graph alone.

# %%
for power in (1, 2, 4, 8):
    alone = presets.RPSettings(power=power, step_size=1.0, num_steps=100)
    found = rp_study.run(data, alone).record
    chosen = found["splits"][0]["best_step"]
    print(f"K = {power}: test {found['test_mean']:.1f} percent at step {chosen}")
