"""The paper's GCN in plain torch and in PyG, for the benchmarks."""

import itertools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import harness
from gnnrp import sparse
from gnnrp.models import training


def contestants(
    learned: training.Data,
    csr: Any,
    *,
    hidden: tuple[int, ...],
    num_steps: int,
    notes: list[str],
) -> dict[str, harness.Contestant]:
    """Return functions that train ``num_steps`` steps in torch and, if there, in PyG.

    Args:
        learned: inputs, targets and mask; inputs are dense in torch.
        csr: A.
        hidden: widths of the hidden layers.
        num_steps: training steps per call.
        notes: list to which a missing library is added.
    """
    torch = harness.torch_or_none(notes)
    if torch is None:
        return {}
    x: Any = learned.x
    if isinstance(x, sparse.Matrix):
        x = x(jnp.eye(x.shape[1]))
    x = torch.from_numpy(np.array(x))
    labels = torch.from_numpy(np.array(learned.targets).argmax(axis=1))
    mask = torch.from_numpy(np.array(learned.train))
    csr = csr.astype(np.float32)
    sizes = x.shape[1], *hidden, learned.targets.shape[1]
    found = {"torch": _plain(torch, csr, sizes)}
    pyg = _pyg(csr, sizes, notes)
    if pyg is not None:
        found["PyG"] = pyg(torch)
    return {
        name: _training(torch, model, x, labels, mask, num_steps)
        for name, model in found.items()
    }


def _training(
    torch: Any, model: Any, x: Any, labels: Any, mask: Any, num_steps: int
) -> harness.Contestant:
    weights = [p for p in model.parameters() if p.ndim > 1]
    biases = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.SGD(
        [{"params": weights, "weight_decay": 5e-4}, {"params": biases}],
        lr=0.01,
        momentum=0.9,
    )

    def run():
        for _ in range(num_steps):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x)[mask], labels[mask])
            loss.backward()
            optimizer.step()

    return run


def _plain(torch: Any, csr: Any, sizes: tuple[int, ...]) -> Any:
    """Return a GCN of linear layers and products with A, a CSR tensor of torch."""
    adjacency = harness.torch_csr(torch, csr)

    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            pairs = itertools.pairwise(sizes)
            self.layers = torch.nn.ModuleList(torch.nn.Linear(*pair) for pair in pairs)

        def forward(self, x):
            for i, layer in enumerate(self.layers):
                x = adjacency @ (x @ layer.weight.T) + layer.bias
                x = x if i == len(self.layers) - 1 else torch.relu(x)
            return x

    return Plain()


def _pyg(
    csr: Any, sizes: tuple[int, ...], notes: list[str]
) -> Callable[[Any], Any] | None:
    nn = harness.pyg_or_none(notes)
    if nn is None:
        return None
    coo = csr.tocoo()

    def build(torch):
        edges = torch.from_numpy(np.stack([coo.col, coo.row]).astype(np.int64))
        weights = torch.from_numpy(np.array(coo.data))

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                pairs = itertools.pairwise(sizes)
                self.layers = torch.nn.ModuleList(
                    nn.GCNConv(*pair, normalize=False) for pair in pairs
                )

            def forward(self, x):
                for i, layer in enumerate(self.layers):
                    x = layer(x, edges, weights)
                    x = x if i == len(self.layers) - 1 else torch.relu(x)
                return x

        return Net()

    return build
