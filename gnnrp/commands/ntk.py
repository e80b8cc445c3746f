"""`gnnrp ntk`: finite networks and their tangent kernel in training."""

import dataclasses
from typing import Annotated, Any, Literal

from gnnrp.commands._shared import (
    Kept,
    OptionalFloat,
    OptionalInt,
    setting,
    target_path,
)
from gnnrp.runtime import json_files, streams
from gnnrp.runtime.options import Options
from gnnrp.runtime.progress import Bar

Manner = Literal["directed", "undirected"]
Reduce = Literal["trace", "sum", "pseudo"]

QUICK = {"num_steps": 2000, "every": 500, "num_graphs": 5}


@dataclasses.dataclass(frozen=True)
class Ntk(Kept):
    """Train a GCN and follow its tangent kernel, on many graphs at the same weights.

    How the kernel aligns with the graph and with the labels, beside accuracy. Settings
    left out are the paper's. `sbm` mixes homophilic and heterophilic edges, all other
    sets are thinned until no edge is left.
    """

    seed: int = 0
    """Of weights, thinning, random splits and the generated graphs."""
    learning_rate: OptionalFloat = None
    """η of gradient descent."""
    num_steps: OptionalInt = None
    """Steps of training."""
    width: OptionalInt = None
    """m, hidden units."""
    depth: OptionalInt = None
    """L, weight matrices, at most 3."""
    momentum: OptionalFloat = None
    """Of gradient descent."""
    weight_decay: OptionalFloat = None
    """Of weights, not of biases."""
    every: OptionalInt = None
    """Steps between two looks at the kernel."""
    num_graphs: OptionalInt = None
    """Graphs, from the whole to none, or from homophilic to heterophilic."""
    manner: Annotated[Manner | None, setting(Manner)] = None
    """How edges are dropped: as directions (the paper's code), or as edges."""
    reduce: Annotated[Reduce | None, setting(Reduce)] = None
    """Of the kernel over classes: trace average, sum of logits, or that over c."""
    quick: bool = False
    """2,000 steps on 5 graphs, unless said otherwise: under a minute."""

    def run(self) -> None:
        """Load, train, and print."""
        from gnnrp.datasets import sbm
        from gnnrp.studies import ntk as ntk_study
        from gnnrp.studies import tables

        self.check_dataset()
        self.check_folder()
        target = target_path(self.plot, f"ntk-{self.dataset}.png", quiet=self.json)
        settings, max_bytes = self._settings(self.dataset), self.max_bytes()
        dataset = self.load_dataset()

        def mixed(share: float) -> Any:
            return sbm.generate(self.seed, homophilic_fraction=share)

        with Bar(quiet=self.quiet) as progress:
            record = ntk_study.run(
                dataset,
                settings,
                family=mixed if dataset.name == "sbm" else None,
                options=Options(
                    folder=self.folder,
                    checkpoint_seconds=self.checkpoint_seconds,
                    max_bytes=max_bytes,
                    progress=progress,
                ),
            )
        streams.show(
            json_files.dumps(record) if self.json else tables.of_tracking(record)
        )
        if target is None:
            return
        from gnnrp import plotting
        from gnnrp.runtime import atomic_files

        atomic_files.write(target, plotting.png(plotting.evolution(record)))
        if not self.json:
            streams.show(f"\nFigure: {target}")

    def _settings(self, name: str) -> Any:
        from gnnrp.studies import ntk as ntk_study

        chosen = ntk_study.settings(name)
        names = {field.name for field in dataclasses.fields(chosen)}
        given: dict[str, Any] = dict(QUICK) if self.quick else {}
        given |= {
            name: value
            for name in names
            if (value := getattr(self, name, None)) is not None
        }
        return dataclasses.replace(chosen, **given)
