"""Prepare an inference run: load the model, open the data, and resolve options."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from pipeline.storage.hub.revision import pinned
from pipeline.storage.read_manifest import read_manifest
from schemas.errors import OptionError
from schemas.manifest import Manifest
from schemas.shard import SPLITS
from schemas.text.phrases import plural
from trainer import precision
from trainer.config import ComputeOptions
from trainer.config.checks import option_errors
from trainer.config.inference_options import InferenceOptions
from trainer.distributed.agreement import run_on_main
from trainer.distributed.topology import Topology
from trainer.inference.load_model import Weights, load_weights
from trainer.inference.open_data import Inputs, build_dataset, find_inputs, is_dataset
from trainer.inference.packed_model import RowFunction
from trainer.inference.parts import PARTS, Result
from trainer.inference.settings import (
    SETTINGS,
    SUMMARY,
    Settings,
    check_same_settings,
    settings_of,
    write_settings,
)
from trainer.inference.sizes import FASTA_LENGTH, RowSizes, row_sizes, unit_sizes
from trainer.readers.check_cache import check_cache

_FP8_FROM: Final = (8, 9)


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The work of a command: which results it computes for each record, and how.

    command: embed or score.
    name: what the command does, for the progress, such as "embedding".
    results: columns of the output.
    function: computes these columns.
    more: options of the command, by name.
    per_residue: True if the function needs windows that own one residue each.
    """

    command: str
    name: str
    results: Sequence[Result]
    function: RowFunction
    more: Mapping[str, str]
    per_residue: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """An inference run that is ready to start or to continue.

    compute: compute options, with `auto` resolved.
    url: folder or URL of the dataset.
    storage: arguments of ShardReader about the cache.
    """

    out: Path
    topology: Topology
    compute: ComputeOptions
    weights: Weights
    url: str
    manifest: Manifest
    work: Work
    settings: Settings
    storage: Mapping[str, Any]

    def description(self) -> str:
        """Return the first line of the run's output."""
        return (
            f"model {self.weights.source} · {plural(self.weights.options.parameters, 'parameter')} "
            f"· backend {self.settings.backend} · precision {self.settings.precision} · rows of "
            f"{self.settings.row_tokens:,} tokens"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Command:
    """A command, to compare with an earlier run in OUT.

    inputs: inputs of a temporary dataset; None if DATA is a dataset.
    """

    options: InferenceOptions
    topology: Topology
    compute: ComputeOptions
    weights: Weights
    work: Work
    inputs: Inputs | None

    @property
    def out(self) -> Path:
        return Path(self.options.out)

    def completed(self) -> bool:
        """Compare the command with the earlier run before a temporary dataset is built, which may
        take long. Return whether the earlier run is complete and is known to be of the same inputs.

        Raises:
            OptionError: OUT holds results of another run.
            ValueError: --max-seq-len, --overlap and --row-tokens contradict each other.
        """
        if self.inputs is None:
            return False
        before = settings_of(self.out)
        sizes = row_sizes(self.options, self.topology, before=before.row_tokens if before else 0)
        if before is None:
            return False
        other = self.inputs.bytes and before.input_bytes not in (0, self.inputs.bytes)
        units = before.unit_buckets, before.unit_pieces
        settings = self._settings(sizes, units, "" if other else before.dataset)
        check_same_settings(self.out, before, settings)
        same = self.inputs.digest != "" and self.inputs.digest == before.inputs
        return same and (self.out / SUMMARY).exists()

    def settle(self, url: str, manifest: Manifest) -> tuple[Settings, bool]:
        """Return the settings of the run, and whether an earlier run is complete. Write the
        settings of a new run.

        Sizes that the user left open are those of the earlier run.

        Args:
            url: folder or URL of the dataset.
        Raises:
            OptionError: OUT holds results of another run.
            ValueError: --max-seq-len, --overlap and --row-tokens contradict each other.
        """
        before = settings_of(self.out)
        own = FASTA_LENGTH if self.inputs else manifest.max_seq_len
        sizes = row_sizes(
            self.options, self.topology, own=own, before=before.row_tokens if before else 0
        )
        if before is None:
            parameters, per_residue = self.weights.options.parameters, self.work.per_residue
            units = unit_sizes(parameters, self.topology, manifest, sizes, per_residue=per_residue)
            settings = self._settings(sizes, units, manifest.digest)
            write_settings(self.out / PARTS / SETTINGS, settings)
            return settings, False
        units = before.unit_buckets, before.unit_pieces
        settings = self._settings(sizes, units, manifest.digest)
        try:
            check_same_settings(self.out, before, settings, "" if self.inputs else url)
        except OptionError:
            if self.inputs and before.dataset != settings.dataset:
                shutil.rmtree(url, ignore_errors=True)  # no run of this folder needs it
            raise
        return settings, (self.out / SUMMARY).exists()

    def _settings(self, sizes: RowSizes, units: tuple[int, int], dataset: str) -> Settings:
        """Args:
        units: see `unit_sizes`.
        dataset: digest of the dataset's manifest.
        """
        fp8 = self.options.precision == "fp8"
        return Settings(
            command=self.work.command,
            model=self.weights.digest,
            dataset=dataset,
            inputs=self.inputs.digest if self.inputs else "",
            input_bytes=self.inputs.bytes if self.inputs else 0,
            unit_buckets=units[0],
            unit_pieces=units[1],
            row_tokens=sizes.row_tokens,
            max_seq_len=sizes.longest,
            overlap=sizes.overlap,
            backend=self.compute.backend,
            precision="fp8" if fp8 else self.compute.precision,
            format=self.options.format,
            more=dict(self.work.more),
        )


@option_errors()
def prepare(
    options: InferenceOptions, topology: Topology, plan: Callable[[Weights], Work]
) -> Prepared | None:
    """Load the model, open the data, and compare the options with an earlier run's. Return None if
    the earlier run is complete.

    Args:
        plan: function that returns the work for a model.
    Raises:
        OptionError, ThdpackError: options, model or data cannot be used.
    """
    compute = resolved_compute(options, topology)
    weights = load_weights(options.model, topology)
    command = _Command(
        options=options,
        topology=topology,
        compute=compute,
        weights=weights,
        work=plan(weights),
        inputs=run_on_main(topology, lambda: _inputs(options)),
    )
    out = command.out
    if run_on_main(topology, command.completed):
        return None
    given = command.inputs is None
    url: str = run_on_main(topology, lambda: _dataset(options, out, given=given))
    manifest = read_manifest(url, options.generation or None)
    storage = {"cache_bytes": options.cache_bytes, "cache_dir": options.cache_dir or None}
    if not (out / SUMMARY).exists():  # the results of a complete run are not computed again
        check_cache(
            [url],
            [manifest],
            SPLITS,
            cache_dir=options.cache_dir,
            cache_bytes=options.cache_bytes,
            variants=range(1),
        )
    settings, complete = run_on_main(topology, lambda: command.settle(url, manifest))
    if complete:
        return None
    return Prepared(
        out=out,
        topology=topology,
        compute=compute,
        weights=weights,
        url=url,
        manifest=manifest,
        work=command.work,
        settings=settings,
        storage=storage,
    )


def resolved_compute(options: InferenceOptions, topology: Topology) -> ComputeOptions:
    """Return the compute options, with `auto` resolved. For --precision fp8, they are those of a
    model in bf16, whose layers are converted later.

    Raises:
        ValueError: this machine does not support the options.
    """
    if options.precision != "fp8":
        asked = ComputeOptions(backend=options.backend, precision=options.precision)
        return precision.resolve(asked, topology.device)
    cuda = topology.device.type == "cuda"
    if not cuda or torch.cuda.get_device_capability(topology.device) < _FP8_FROM:
        raise ValueError(
            "--precision fp8 needs a GPU of compute capability 8.9 or above (Ada, Hopper, "
            "Blackwell): use --precision auto"
        )
    if options.backend == "torch":
        raise ValueError("--precision fp8 needs --backend te, but --backend is torch")
    return precision.resolve(ComputeOptions(backend="te", precision="bf16"), topology.device)


def _inputs(options: InferenceOptions) -> Inputs | None:
    """Return the inputs to build a temporary dataset from; None if DATA is a dataset.

    Raises:
        OptionError: an option does not suit DATA.
        DatasetError: the store cannot be reached.
    """
    if is_dataset(options.data):
        if options.columns:
            raise OptionError(
                f"{options.columns[0]} is for tables, but DATA is a dataset: remove the option"
            )
        return None
    if options.generation:
        raise OptionError("--generation is for a dataset, but DATA is not one")
    return find_inputs(options.data, options.columns)


def _dataset(options: InferenceOptions, out: Path, *, given: bool) -> str:
    """Return the folder or URL of the dataset. For FASTA and tables, build the dataset.

    Args:
        given: whether DATA is a dataset.
    Raises:
        ThdpackError: the dataset cannot be built.
    """
    if given:
        return pinned(options.data[0])
    out.mkdir(parents=True, exist_ok=True)
    return str(build_dataset(options.data, out, columns=options.columns))
