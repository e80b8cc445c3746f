"""`gnnrp partition`: a graph in parts, for several devices or machines."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from gnnrp.commands._shared import OnData
from gnnrp.runtime import streams
from gnnrp.runtime.progress import Bar

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Int


@dataclasses.dataclass(frozen=True)
class Partition:
    """Cut the graph of a data set into parts, which `gnnrp rp --shards` computes with.

    Each process reads its own part only. Done once, on a machine that holds the graph.
    """

    parts: int
    """How many: one for each device."""
    folder: Path
    """Where they go; new or empty, and seen by all machines."""
    part_of: Path | None = None
    """A file with a line for each node, its part from 0 on, as METIS and KaHIP write;
    without it, ranges of about as many entries in an order of small borders."""
    dataset: str = "sbm"
    """A name from `gnnrp datasets`."""
    data_dir: Path | None = None
    """Where the files are; then $GNNRP_DATA and the user cache are searched."""
    download: bool = True
    """Fetch missing files into the user cache, checked by SHA-256; OGB's by ogb."""
    seed: int = 0
    """Of random splits and of the generated graph."""
    quiet: bool = False
    """No progress."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self) -> None:
        """Load, cut, write, and print what came out."""
        from gnnrp.distributed import shards
        from gnnrp.runtime import atomic_files

        data = OnData(
            self.dataset,
            self.data_dir,
            self.download,
            seed=self.seed,
            quiet=self.quiet,
        )
        data.check_dataset()
        part = None if self.part_of is None else part_of(self.part_of)
        atomic_files.try_folder(self.folder)
        dataset = data.load_dataset()
        with Bar(quiet=self.quiet) as progress:
            table = shards.write(
                self.folder, dataset, self.parts, part=part, progress=progress
            )
        entries = table["entries"]
        streams.show(
            f"{dataset.name}: {self.parts} parts of at most {max(entries):,} entries "
            f"and {table['rows']:,} rows; {table['rows_moved_a_hop']:,} rows move a hop"
        )


def part_of(path: Path) -> "Int[np.ndarray, ' n']":
    """Return the part of each node, as a partitioner wrote them.

    Raises:
        OSError: the file cannot be read.
        ValueError: it has something else than a whole number a line.
    """
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
        msg = f"--part-of: {path} must have a node's part, from 0 on, a line ({error})"
        raise ValueError(msg) from error
