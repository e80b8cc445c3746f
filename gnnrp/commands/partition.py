"""`gnnrp partition`: partition a graph for several devices or machines."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from gnnrp.commands._shared import DatasetFlags
from gnnrp.runtime import streams
from gnnrp.runtime.progress import Bar

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partition(DatasetFlags):
    """Partition the graph of a dataset, for `gnnrp rp --shards`.

    Run it once, on a machine that holds the graph; each process then reads its own
    part only.
    """

    parts: int
    """Number of parts, one for each device."""
    folder: Path
    """New or empty folder of the parts, shared by all machines."""
    part_of: Path | None = None
    """File with the part of each node, from 0, one a line, as METIS and KaHIP write;
    by default, ranges of about as many edges in an order of small borders."""

    def run(self) -> None:
        """Load the dataset, write the parts, and print their sizes."""
        from gnnrp.distributed import shards
        from gnnrp.runtime import atomic_files

        self.check_dataset()
        part = None if self.part_of is None else part_of(self.part_of)
        atomic_files.try_folder(self.folder)
        dataset = self.load_dataset()
        with Bar(quiet=self.quiet) as progress:
            table = shards.write(
                self.folder, dataset, self.parts, part=part, progress=progress
            )
        streams.show(
            f"{dataset.name}: {self.parts} parts of at most {max(table['entries']):,} "
            f"entries and {table['rows']:,} rows; {table['rows_moved_a_hop']:,} rows "
            "move per hop"
        )


def part_of(path: Path) -> "Int[np.ndarray, ' n']":
    """Return the part of each node from the file of a partitioner."""
    from gnnrp.datasets import raw_files, text_tables

    try:
        return text_tables.table(raw_files.stat(path), 1)[:, 0]
    except OSError as error:
        cause = error.__cause__ or error
        reason = getattr(cause, "strerror", None) or cause
        msg = f"--part-of: {path} cannot be read ({reason})"
        raise type(error)(msg) from error
    except raw_files.TooLargeError as error:
        msg = f"--part-of: {error}"
        raise ValueError(msg) from error
    except ValueError as error:
        msg = (
            f"--part-of: {path} must have the part of a node, from 0, a line ({error})"
        )
        raise ValueError(msg) from error
