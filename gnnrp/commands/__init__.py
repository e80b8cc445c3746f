"""What the command line can do: a frozen dataclass of flags each, and what it runs."""

from typing import Annotated

import tyro

from gnnrp.commands.datasets import Datasets
from gnnrp.commands.gntk import Gntk
from gnnrp.commands.ntk import Ntk
from gnnrp.commands.partition import Partition
from gnnrp.commands.rp import Rp

COMMANDS = {
    "rp": Rp,
    "gntk": Gntk,
    "ntk": Ntk,
    "partition": Partition,
    "datasets": Datasets,
}
Command = (
    Annotated[Rp, tyro.conf.subcommand("rp")]
    | Annotated[Gntk, tyro.conf.subcommand("gntk")]
    | Annotated[Ntk, tyro.conf.subcommand("ntk")]
    | Annotated[Partition, tyro.conf.subcommand("partition")]
    | Annotated[Datasets, tyro.conf.subcommand("datasets")]
)
