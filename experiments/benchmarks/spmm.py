"""Compare a sparse product and RP steps with other libraries.

    python -m experiments.benchmarks.spmm --data-dir DIR --output results

All candidates are warmed up and timed in interleaved rounds within one process; medians
and minima are printed. Times are noisy: compare the ratios. torch and PyTorch Geometric
are measured if they are installed. The floor is the time to read and write each number
once at the speed of a plain copy.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from experiments import plots
from experiments.benchmarks import gcn, harness, torch_gcn
from gnnrp import datasets, sparse
from gnnrp.models import training
from gnnrp.propagation import linear_maps, residual, similarity


@dataclasses.dataclass(frozen=True)
class Config:
    """Graphs and sizes of the benchmark."""

    data_dir: Path | None = None
    """Folder of Arxiv and tolokers; only generated graphs are measured without it."""
    output: Path | None = None
    """Folder for benchmark_spmm.json and .png."""
    repeats: int = 9
    """Rounds of interleaved timing."""
    columns: int = 40
    """Columns of the dense side (Arxiv has 40 classes)."""
    entries: tuple[int, ...] = (100_000, 1_000_000)
    """Entries of the generated graphs."""
    power: int = 7
    """Hops of an RP step."""
    hidden: int = 256
    """Width of the GCN whose training step is compared with a step of RP."""


def main(config: Config) -> dict[str, Any]:
    """Measure, print and return the results."""
    harness.check_sizes(config)
    graphs = {f"random {n:,}": harness.random_graph(n) for n in config.entries}
    main_graph = next(iter(graphs))
    if config.data_dir is not None:
        for name in ("tolokers", "arxiv"):
            data = datasets.load(name, config.data_dir, download=False)
            graphs[name] = harness.adjacency(data)
        main_graph = "arxiv"
    found = {
        "products": {name: product(csr, config) for name, csr in graphs.items()},
        "rules": rules(graphs[main_graph], config),
        "steps": steps(graphs[main_graph], config),
        "graph of rules and steps": main_graph,
    }
    record = harness.finish(found, "benchmark_spmm", config.output)
    figure = plots.bars_with_floor(
        {
            name: {who: pair["median"] for who, pair in result["milliseconds"].items()}
            for name, result in record["products"].items()
        },
        {name: each["floor_milliseconds"] for name, each in record["products"].items()},
        label="ms a product",
    )
    harness.write_figure(figure, "benchmark_spmm", config.output)
    return record


def product(csr: Any, config: Config) -> dict[str, Any]:
    """Time a product with a dense block, with and without reordering of the nodes."""
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((csr.shape[1], config.columns), dtype=np.float32)
    device = jnp.asarray(dense)
    multiply = jax.jit(sparse.matmul)
    matrix = sparse.prepare(csr)
    natural = sparse.prepare(csr, reorder=False)
    # As the inner hops of A^K run: already in the matrix's own order.
    inner = dataclasses.replace(matrix, order=None)
    copy, copied = harness.copying()
    contestants: dict[str, harness.Contestant] = {
        "gnnrp": lambda: multiply(matrix, device).block_until_ready(),
        "gnnrp, natural order": lambda: multiply(natural, device).block_until_ready(),
        "gnnrp, inner hop": lambda: multiply(inner, device).block_until_ready(),
        "scipy CSR": lambda: csr @ dense,
        "copy": copy,
    }
    notes: list[str] = []
    torch = harness.torch_or_none(notes)
    if torch is not None:
        tensor = harness.torch_csr(torch, csr)
        coo, right = tensor.to_sparse_coo(), torch.from_numpy(dense)
        contestants["torch CSR"] = lambda: tensor @ right
        contestants["torch COO"] = lambda: torch.sparse.mm(coo, right)
    times = harness.interleaved(contestants, config.repeats)
    speed = copied / times.pop("copy")["min"]
    others = ["torch CSR", "torch COO", "scipy CSR", "gnnrp, natural order"]
    floor = harness.product_bytes(csr, config.columns) / speed
    return {
        "nodes": csr.shape[0],
        "entries": csr.nnz,
        "columns": config.columns,
        "reordered": matrix.order is not None,
        "milliseconds": harness.in_milliseconds(times),
        "floor_milliseconds": float(f"{1e3 * floor:.4g}"),  # tiny for small graphs
        "copy_gigabytes_per_second": round(speed / 1e9, 2),
        "over_floor": round(times["gnnrp, inner hop"]["median"] / floor, 2),
        "ratio": {
            name: harness.ratios(times, name, others)
            for name in ("gnnrp", "gnnrp, natural order", "gnnrp, inner hop")
        },
        "notes": notes,
    }


def rules(csr: Any, config: Config) -> dict[str, Any]:
    """Time reverse mode, forward mode and ``vmap`` for the same number of columns."""
    matrix = sparse.prepare(csr)
    shape = (csr.shape[1], config.columns)
    v = jax.random.normal(jax.random.key(0), shape)
    width = max(1, config.columns // 8)
    batch = jnp.moveaxis(v[:, : 8 * width].reshape(shape[0], -1, width), 1, 0)

    def reverse(matrix, v):
        return jax.vjp(lambda x: sparse.matmul(matrix, x), v)[1](v)[0]

    def forward_mode(matrix, v):
        return jax.jvp(lambda x: sparse.matmul(matrix, x), (v,), (v,))[1]

    functions = {
        "product": (sparse.matmul, v),
        "reverse mode": (reverse, v),
        "forward mode": (forward_mode, v),
        "vmap": (jax.vmap(sparse.matmul, in_axes=(None, 0)), batch),
    }
    contestants = {}
    for name, (function, side) in functions.items():
        compiled = jax.jit(function)
        contestants[name] = lambda compiled=compiled, side=side: jax.block_until_ready(
            compiled(matrix, side)
        )
    times = harness.interleaved(contestants, config.repeats)
    return {
        "milliseconds": harness.in_milliseconds(times),
        "ratio_to_product": {
            name: harness.ratios(times, name, ["product"])["product"]
            for name in ("reverse mode", "forward mode", "vmap")
        },
        "target_ratio": 2.5,
    }


def steps(csr: Any, config: Config) -> dict[str, Any]:
    """Time a step of RP, the paper's code in torch, PyG's propagation and GCN training.

    The GCN has three layers, as in the paper on Arxiv, and 128 random features.
    """
    num_nodes, columns = csr.shape[0], config.columns
    rng = np.random.default_rng(0)
    labels = rng.integers(0, columns, num_nodes)
    targets = jnp.asarray(np.eye(columns, dtype=np.float32)[labels])
    mask = jnp.asarray(rng.random(num_nodes) < 0.5)[:, None]
    matrix = sparse.prepare(csr)
    step = jax.jit(lambda S, state, y, m: residual.step(state, S, y, m, step_size=1.0))
    # As runs take it: the first hop skips what is not fed back.
    walk = similarity.Power(matrix, config.power)
    S = linear_maps.restrict(walk, np.asarray(mask[:, 0]))
    state = residual.init(targets)
    x = jax.random.normal(jax.random.key(1), (num_nodes, 128))
    beside = gcn.compiled(
        training.Data(x, matrix, targets, mask[:, 0]),
        hidden=config.hidden,
        num_layers=3,
    )
    contestants: dict[str, harness.Contestant] = {
        "RP": lambda: jax.block_until_ready(step(S, state, targets, mask)),
        "GCN training": lambda: jax.block_until_ready(
            beside.step(beside.state, beside.data)
        ),
    }
    held = {
        "RP": harness.held(step, S, state, targets, mask),
        "GCN training": harness.held(beside.step, beside.state, beside.data),
    }
    notes: list[str] = []
    torch = harness.torch_or_none(notes)
    if torch is not None:
        contestants |= torch_steps(torch, csr, labels, beside.data, config, notes)
    times = harness.interleaved(contestants, max(1, config.repeats // 3))
    others = [name for name in times if name != "RP"]
    return {
        "power": config.power,
        "milliseconds": harness.in_milliseconds(times),
        "ratio": harness.ratios(times, "RP", others),
        "megabytes": {name: round(held[name] / 1e6, 3) for name in held},
        "memory_ratio": round(held["RP"] / held["GCN training"], 4),
        "notes": notes,
    }


def torch_steps(
    torch: Any,
    csr: Any,
    labels: np.ndarray,
    data: training.Data,
    config: Config,
    notes: list[str],
) -> dict[str, harness.Contestant]:
    """Return RP, label propagation and GCN training in torch, on the same data."""
    mask = data.train[:, None]
    found = {"RP, torch COO": torch_step(torch, csr, data.targets, mask, config)}
    pyg = pyg_step(torch, csr, labels, config, notes)
    if pyg is not None:
        found["PyG LabelPropagation"] = pyg
    others = torch_gcn.contestants(
        data, csr, hidden=(config.hidden,) * 2, num_steps=1, notes=[]
    )
    return found | {f"GCN training, {name}": run for name, run in others.items()}


def torch_step(
    torch: Any, csr: Any, targets: jax.Array, mask: jax.Array, config: Config
) -> harness.Contestant:
    """Return an RP step as in the authors' code: K products with a COO tensor."""
    coo = csr.tocoo()
    index = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    values = torch.from_numpy(np.array(coo.data, np.float32))
    tensor = torch.sparse_coo_tensor(index, values, csr.shape).coalesce()
    known = torch.from_numpy(np.array(mask))
    start = torch.from_numpy(np.array(targets)) * known

    def run():
        sent = start * known
        for _ in range(config.power):
            sent = torch.sparse.mm(tensor, sent)
        return start - sent

    return run


def pyg_step(
    torch: Any, csr: Any, labels: np.ndarray, config: Config, notes: list[str]
) -> harness.Contestant | None:
    """Return PyG's label propagation with K layers, or None without PyG."""
    nn = harness.pyg_or_none(notes)
    if nn is None:
        return None
    coo = csr.tocoo()
    index = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    model = nn.LabelPropagation(num_layers=config.power, alpha=0.9)
    y, mask = torch.from_numpy(labels), torch.arange(len(labels)) % 2 == 0
    return lambda: model(y, index, mask=mask)


if __name__ == "__main__":
    main(tyro.cli(Config))
