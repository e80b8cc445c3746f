"""`gnnrp datasets`: list the datasets and their files."""

import dataclasses
from pathlib import Path

from gnnrp.runtime import json_files, streams
from gnnrp.runtime.progress import Bar


@dataclasses.dataclass(frozen=True)
class Datasets:
    """List the datasets, the place of their files and their statistics."""

    data_dir: Path | None = None
    """Folder that is searched before $GNNRP_DATA and the user cache."""
    json: bool = False
    """Print one JSON object, and nothing else, on standard output."""
    quiet: bool = False
    """Show no progress."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self) -> None:
        """Read the files that exist, and print a table."""
        from gnnrp import datasets
        from gnnrp.datasets import cache
        from gnnrp.studies import tables

        cache.bases(self.data_dir)  # refuses the folder once, not in each row
        names, rows = datasets.names(), []
        with Bar(quiet=self.quiet) as progress:
            for done, name in enumerate(names):
                progress("datasets", done, len(names))
                rows.append(tables.dataset_row(name, self.data_dir))
        record = {"datasets": rows}
        streams.show(
            json_files.dumps(record) if self.json else tables.dataset_table(rows)
        )
