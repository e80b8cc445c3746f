"""`gnnrp rp`: residual propagation."""

import dataclasses
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

from gnnrp.commands._shared import (
    ResumableFlags,
    RunFlags,
    flags_of,
    setting,
    values_from_flags,
)
from gnnrp.runtime import checks, streams
from gnnrp.runtime.progress import Bar
from gnnrp.studies.settings import RPSettings

_OF_SHARDS = {"json", "max_memory", "compilation_cache", "quiet", "debug"}
_Flags = flags_of(RPSettings, exclude=("row_normalize",))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rp(_Flags, ResumableFlags):
    """Run residual propagation and its baselines on one dataset.

    Without flags: an embedded graph (a stochastic block model), a table, a figure.
    Settings default to the published ones of the dataset, and to plain RP for your own.
    """

    bandwidth: Annotated[float | None, setting(float, "(default: by --gamma)")] = None
    """σ of the Gaussian kernel, instead of γ."""
    similarity: Literal["settings", "auto"] = "settings"
    """S by the settings, or the best of a menu on the validation nodes."""
    search_seconds: float = 600
    """With --similarity auto: time after which no other similarity is tried."""
    shards: Path | None = None
    """Folder from `gnnrp partition`, instead of a dataset: plain RP on its parts."""
    hosts: str | None = None
    """With --shards: `NAME,NAME,...`, the first one perhaps `NAME:PORT`; or `auto`."""
    host: Annotated[int | None, setting(int, "(default: by name)")] = None
    """Index of this machine in --hosts, from 0."""
    partner_seconds: float = 60
    """With --hosts: time to wait for partners to start, and for a silent one."""

    def run(self) -> None:
        """Load the dataset, run, and print."""
        from gnnrp.studies import rp as rp_study
        from gnnrp.studies import tables

        if self.shards is not None:
            self._run_shards()
            return
        if self.hosts is not None or self._for_hosts():
            msg = (
                "--hosts, --host and --partner-seconds need --shards, a partitioned "
                "graph (gnnrp partition)"
            )
            raise ValueError(msg)
        self.check_dataset()
        if self.similarity == "auto":
            self._run_auto()
            return
        if self.search_seconds != Rp.search_seconds:
            msg = "--search-seconds needs --similarity auto"
            raise ValueError(msg)
        origin = self.check_folder()
        target = self.figure_path()
        self._settings(self.dataset, has_features=True)  # checked before files are read
        with Bar(quiet=self.quiet) as progress:
            options = self.options(progress)
            began = time.perf_counter()
            dataset = self.load_dataset()
            loaded = time.perf_counter() - began
            has_features = dataset.features is not None
            result = rp_study.run(
                dataset,
                self._settings(self.dataset, has_features=has_features),
                options=dataclasses.replace(options, folder=self.checkpoints()),
                load_seconds=loaded,
            )
        record, trajectory = result
        for warning in tables.warnings(record, dataset):
            streams.print_line(f"gnnrp: {warning}")
        from gnnrp import plotting

        def figure() -> Any:
            return plotting.learning_curve(record, trajectory.val, trajectory.test)

        self.show(record, tables.run_table, target, figure, origin)

    def _run_auto(self) -> None:
        """Choose the similarity by validation, run, and print."""
        from gnnrp.studies import auto_rp, records, tables

        checks.positive("search_seconds", self.search_seconds)
        for name in self._set_flags():
            msg = (
                f"--{name.replace('_', '-')} does not apply to --similarity auto, "
                "which chooses the settings and saves no checkpoints; leave it out"
            )
            raise ValueError(msg)
        target = self.figure_path()
        with Bar(quiet=self.quiet) as progress:
            began = time.perf_counter()
            dataset = self.load_dataset()
            record = auto_rp.run(
                dataset,
                seconds=self.search_seconds,
                options=self.options(progress),
                load_seconds=time.perf_counter() - began,
            )
        record["command"] = records.command()
        from gnnrp import plotting

        self.show(record, tables.choice_table, target, lambda: plotting.choice(record))

    def _set_flags(self) -> list[str]:
        """Return the flags of settings and checkpoints that are set."""
        names = [field.name for field in dataclasses.fields(RPSettings)]
        names = [*names, "bandwidth", "folder", "resume", "checkpoint_seconds"]
        return [
            name
            for name in names
            if getattr(self, name, None) != getattr(Rp, name, None)
        ]

    def _for_hosts(self) -> str | None:
        """Return a flag that was set and needs --hosts."""
        waits = self.partner_seconds != Rp.partner_seconds
        host = None if self.host is None else "--host"
        return "--partner-seconds" if waits else host

    def _run_shards(self) -> None:
        """Run on a partitioned graph, in all processes alike."""
        if self.similarity == "auto":
            msg = "--similarity auto does not apply to --shards; leave it out"
            raise ValueError(msg)
        for field in dataclasses.fields(RunFlags):
            is_set = getattr(self, field.name) != field.default
            if is_set and field.name not in _OF_SHARDS:
                name = field.name.replace("_", "-")
                msg = f"--{name} does not apply to --shards, which has its own dataset"
                raise ValueError(msg)
        with Bar(quiet=self.quiet) as progress:
            if self.hosts is None:
                if flag := self._for_hosts():
                    msg = f"{flag} needs --hosts, the names of all machines"
                    raise ValueError(msg)
                settings, _ = self.prepare_shards()
                result = self.compute_shards(settings, progress, streams.print_line)
            else:
                from gnnrp.distributed import supervision

                checks.in_interval("partner_seconds", self.partner_seconds, 1, 86_400)
                result = supervision.run(self, self.hosts, self.host, progress)
        if result is None:  # the first process prints
            return
        for warning in result["warnings"]:
            streams.print_line(f"gnnrp: {warning}")
        streams.show(result["text"])

    def prepare_shards(self) -> tuple[RPSettings, dict[str, Any]]:
        """Return the settings of a run, and values that all processes must share."""
        assert self.shards is not None
        from gnnrp.distributed import shards

        table = shards.contents(self.shards)
        settings = self._settings(table["dataset"], has_features=False)
        flags = ("max_memory", "resume", "checkpoint_seconds", "partner_seconds")
        identity = {
            "the version of gnnrp": metadata.version("gnnrp"),
            "the version of jax": metadata.version("jax"),
            "the digest of --shards": table["sha256"],
            "--folder set": self.folder is not None,
            **{f"--{name.replace('_', '-')}": getattr(self, name) for name in flags},
            **dataclasses.asdict(settings),
        }
        return settings, identity

    def compute_shards(
        self, settings: RPSettings, progress: Any, announce: Callable[[str], None]
    ) -> dict[str, Any]:
        """Run on a partitioned graph, and return the output to print at its end."""
        from gnnrp.studies import sharded_rp, tables

        assert self.shards is not None
        origin = self.check_folder(announce)
        options = dataclasses.replace(self.options(progress), folder=self.checkpoints())
        record = sharded_rp.run(self.shards, settings, options=options)
        growth = tables.growth(record["report"])
        return {
            "warnings": [growth] if growth else [],
            "text": self.text(record, tables.run_table, origin),
        }

    def _settings(self, name: str, *, has_features: bool) -> RPSettings:
        from gnnrp.kernels import features
        from gnnrp.studies import presets

        # The published settings of a kernel do not fit the graph alone.
        has_kernel = has_features and self.kernel != "none"
        settings = presets.settings_or_default(name, has_features=has_kernel)
        if self.hops is not None:  # nor do they fit a kernel of hop features
            settings = presets.hop_settings(self.hops)
        values = values_from_flags(self, settings)
        if self.kernel == "none":
            values["kernel"] = None
        kernel = values.get("kernel", settings.kernel)
        if self.gamma is not None and kernel in {None, "linear"}:
            msg = f"--gamma does not apply to the kernel {kernel or 'none'}"
            raise ValueError(msg)
        if self.bandwidth is not None:
            if self.gamma is not None or kernel != "gaussian":
                msg = (
                    "--bandwidth applies to the Gaussian kernel only, and replaces "
                    "--gamma"
                )
                raise ValueError(msg)
            values["gamma"] = features.gamma_from_bandwidth(self.bandwidth)
        return dataclasses.replace(settings, **values)
