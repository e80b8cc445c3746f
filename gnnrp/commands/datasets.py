"""`gnnrp datasets`: what there is, and what is here."""

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Datasets:
    """List every data set: whether it is here, where, and its statistics."""

    data_dir: Path | None = None
    """Searched before $GNNRP_DATA and the user cache."""
    json: bool = False
    """Print one JSON object, and nothing else, on standard output."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self) -> None:
        """Look for the files, read those that are here, and print."""
        from gnnrp import datasets, records, tables

        rows = [tables.dataset_row(name, self.data_dir) for name in datasets.names()]
        if self.json:
            print(records.dumps({"datasets": rows}))
        else:
            print(tables.of_datasets(rows))
