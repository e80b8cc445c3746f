"""Long runs of every kind, one after the other; each goes on where it was killed.

    python survivor.py FOLDER

What each found lies in FOLDER/NAME.npz at the end, its checkpoints in FOLDER/NAME.
"""

import io
import json
import sys
import time
from pathlib import Path

import jax
import numpy as np
import optax

from experiments import runner
from experiments.paper import table4_homophilic
from gnnrp import datasets, graph, metrics, propagation, sparse
from gnnrp.datasets import sbm
from gnnrp.models import gnn, training
from gnnrp.propagation import Steps, similarity, solvers, sweep
from gnnrp.runtime import atomic_files
from gnnrp.runtime.options import Options
from gnnrp.studies import ntk as ntk_study
from gnnrp.studies import records
from gnnrp.types import Split

DATA = sbm.generate(0, block_size=40, num_val=40, num_test=60)
A = sparse.prepare(graph.normalized_adjacency(DATA.edges, DATA.num_nodes))
Y = datasets.targets(DATA)
SPLITS = Split(
    *(np.stack([np.roll(m[0], 7 * i) for i in range(6)]) for m in DATA.splits)
)


def slowly(name):
    def told(*what):
        done = next(x for x in what if isinstance(x, int))
        print(name, done, flush=True)
        time.sleep(0.02)

    return told


def rp(method, num_steps, folder):
    found = propagation.run(
        similarity.Power(A, 2),
        Y,
        SPLITS,
        Steps(0.5, num_steps),
        metric=metrics.accuracy,
        solver=solvers.by_name(method),
        options=Options(
            folder=folder, checkpoint_seconds=0, progress=slowly(folder.name)
        ),
    )
    return {name: getattr(found, name) for name in found._fields[:-1]}


def grid(folder):
    table = sweep.run(
        sweep.powers(A, (1, 2, 3, 4, 5, 6)),
        Y,
        DATA.splits,
        Steps(sweep.STEP_SIZES, 50),
        metric=metrics.accuracy,
        options=Options(
            folder=folder, checkpoint_seconds=0, progress=slowly(folder.name)
        ),
    )
    return table._asdict()


def trained(folder):
    data = training.Data(
        ntk_study.inputs(DATA, row_normalize=False), A, Y, *masks()[:2]
    )
    rule = training.Rule(
        gnn.GCN(Y.shape[1], 8, 2, dropout=0.5),
        optax.adam(1e-2),
        metric_fn=metrics.accuracy,
    )
    found = training.run(
        rule,
        data,
        jax.random.split(jax.random.key(0), 2),
        num_steps=400,
        every=10,
        options=Options(
            folder=folder,
            metadata={"optimizer": ["adam", 1e-2]},
            checkpoint_seconds=0,
            progress=slowly(folder.name),
        ),
    )
    leaves = jax.tree.leaves((found.params, found.state.params))
    return {str(i): np.asarray(leaf) for i, leaf in enumerate(leaves)}


def masks():
    return [np.atleast_2d(mask)[0] for mask in DATA.splits]


def tracked(folder):
    settings = ntk_study.NTKSettings(5e-3, 120, every=10, num_graphs=2)
    made = ntk_study.run(
        DATA,
        settings,
        options=Options(
            folder=folder,
            checkpoint_seconds=0,
            progress=lambda *_: time.sleep(0.01),
        ),
    )
    return {"rows": np.array(json.dumps(made["rows"]))}


def reproduced(folder):
    records.commit = lambda: "0" * 40  # as in a checkout without changes
    config = table4_homophilic.Config(
        quick=True, output=folder, models=("MLP", "GCN"), num_epochs=20
    )
    made = runner.record(config, table4_homophilic.run, "table4_homophilic")
    return {"result": np.array(json.dumps(made["result"], sort_keys=True))}


KINDS = {
    "iterate": lambda folder: rp("iterate", 4000, folder),
    "krylov": lambda folder: rp("krylov", 4000, folder),
    "exact": lambda folder: rp("exact", 4000, folder),
    "sweep": grid,
    "training": trained,
    "tracking": tracked,
    "reproduction": reproduced,
}


def main(root):
    print("ready", flush=True)
    for name, run in KINDS.items():
        target = root / f"{name}.npz"
        if target.exists():
            continue
        found = run(root / name)
        buffer = io.BytesIO()
        np.savez(buffer, **found)
        atomic_files.write(target, buffer.getvalue())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
