"""`gnnrp datasets`: what there is, and what is here."""

import dataclasses
from pathlib import Path

from gnnrp.runtime import json_files, streams
from gnnrp.runtime.progress import Bar


@dataclasses.dataclass(frozen=True)
class Datasets:
    """List every data set: whether it is here, where, and its statistics."""

    data_dir: Path | None = None
    """Searched before $GNNRP_DATA and the user cache."""
    json: bool = False
    """Print one JSON object, and nothing else, on standard output."""
    quiet: bool = False
    """No progress."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self) -> None:
        """Look for the files, read those that are here, and print."""
        from gnnrp import datasets
        from gnnrp.datasets import cache
        from gnnrp.studies import tables

        cache.bases(self.data_dir)  # or every line would say what is wrong with it
        names, rows = datasets.names(), []
        with Bar(quiet=self.quiet) as progress:
            for done, name in enumerate(names):
                progress("data sets", done, len(names))
                rows.append(tables.dataset_row(name, self.data_dir))
        found = {"datasets": rows}
        streams.show(json_files.dumps(found) if self.json else tables.of_datasets(rows))
