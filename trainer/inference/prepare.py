"""Prepare an inference run: load the model, open the data, and resolve options."""

from __future__ import annotations

import math
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
from trainer.inference.open_data import build_dataset, is_dataset
from trainer.inference.packed_model import RowFunction
from trainer.inference.parts import PARTS, Result
from trainer.inference.rows import MULTIPLE
from trainer.inference.settings import (
    SETTINGS,
    SUMMARY,
    Settings,
    check_same_settings,
    read_settings,
    write_settings,
)
from trainer.inference.work_size import bucket_tokens
from trainer.readers.check_cache import check_cache

_FP8_FROM: Final = (8, 9)
_FASTA_LENGTH: Final = 1024
"""Default of --max-seq-len for FASTA. ESM-2 was trained with this length."""
_ROW_TOKENS: Final = {"cuda": 65_536, "cpu": 4_096}
"""Default of --row-tokens."""
_UNIT_SECONDS: Final = 10.0
"""Approximate time that a unit takes. An interruption loses at most this work."""
_FLOPS: Final = {"cuda": 5e14, "cpu": 1e11}
"""Assumed number of operations per second, to choose the size of a unit."""
_UNIT_TOKENS: Final = 16 << 20
"""Maximum size of a unit in tokens. The results of a unit must fit into memory."""


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
    done: True if an earlier process has completed the run.
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
    done: bool

    def description(self) -> str:
        """Return the first line of the run's output."""
        return (
            f"model {self.weights.source} · {plural(self.weights.options.parameters, 'parameter')} "
            f"· backend {self.settings.backend} · precision {self.settings.precision} · rows of "
            f"{self.settings.row_tokens:,} tokens"
        )


@option_errors()
def prepare(
    options: InferenceOptions, topology: Topology, plan: Callable[[Weights], Work]
) -> Prepared:
    """Load the model, open the data, and compare the options with an interrupted run's.

    Args:
        plan: function that returns the work for a model.
    Raises:
        OptionError, ThdpackError: options, model or data cannot be used.
    """
    out = Path(options.out)
    compute = resolved_compute(options, topology)
    weights = load_weights(options.model, topology)
    work = plan(weights)
    url, given = run_on_main(topology, lambda: _dataset(options, out, topology))
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
    own = manifest.max_seq_len if given else _FASTA_LENGTH

    def settle() -> tuple[Settings, bool]:
        before = read_settings(out / PARTS / SETTINGS) or read_settings(out / SUMMARY)
        settings = _settings(options, compute, weights, manifest, work, topology, own, before)
        if before:
            try:
                check_same_settings(out, before, settings, url)
            except OptionError:
                if not given and before.dataset != settings.dataset:
                    shutil.rmtree(url, ignore_errors=True)  # no run of this folder needs it
                raise
        else:
            write_settings(out / PARTS / SETTINGS, settings)
        return settings, (out / SUMMARY).exists()

    settings, done = run_on_main(topology, settle)
    return Prepared(
        out=out,
        topology=topology,
        compute=compute,
        weights=weights,
        url=url,
        manifest=manifest,
        work=work,
        settings=settings,
        storage=storage,
        done=done,
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


def _dataset(options: InferenceOptions, out: Path, topology: Topology) -> tuple[str, bool]:
    """Return the folder or URL of the dataset, and whether DATA is this dataset. For FASTA and
    tables, check the options, and build the dataset.

    Raises:
        OptionError: an option does not suit DATA.
        ValueError: --max-seq-len, --overlap and --row-tokens contradict each other.
        ThdpackError: the dataset cannot be built.
    """
    columns = options.columns
    if is_dataset(options.data):
        if columns:
            raise OptionError(
                f"{columns[0]} is for tables, but DATA is a dataset: remove the option"
            )
        return pinned(options.data[0]), True
    if options.generation:
        raise OptionError("--generation is for a dataset, but DATA is not one")
    row_sizes(options, topology)  # before the build, which may take long
    out.mkdir(parents=True, exist_ok=True)
    return str(build_dataset(options.data, out, columns=columns)), False


def _settings(
    options: InferenceOptions,
    compute: ComputeOptions,
    weights: Weights,
    manifest: Manifest,
    work: Work,
    topology: Topology,
    own: int,
    before: Settings | None,
) -> Settings:
    """Return the settings of the run. Sizes that the user left open are those of an interrupted
    run.

    Args:
        own: default of --max-seq-len.
        before: settings of an interrupted run.
    Raises:
        ValueError: --max-seq-len, --overlap and --row-tokens contradict each other.
    """
    row_tokens, longest, overlap = row_sizes(
        options,
        topology,
        own=own,
        before=before.row_tokens if before else 0,
    )
    seconds = 2 * weights.options.parameters / _FLOPS[topology.device.type]  # for a token
    unit_tokens = max(row_tokens, min(_UNIT_TOKENS, _UNIT_SECONDS / seconds))
    bucket = bucket_tokens(manifest, longest, per_residue=work.per_residue)
    pieces = math.ceil(bucket / unit_tokens) if work.per_residue else 1
    return Settings(
        command=work.command,
        model=weights.digest,
        dataset=manifest.digest,
        unit_buckets=before.unit_buckets if before else max(1, int(unit_tokens / bucket)),
        unit_pieces=before.unit_pieces if before else pieces,
        row_tokens=row_tokens,
        max_seq_len=longest,
        overlap=overlap,
        backend=compute.backend,
        precision=options.precision if options.precision == "fp8" else compute.precision,
        format=options.format,
        more=dict(work.more),
    )


def row_sizes(
    options: InferenceOptions, topology: Topology, *, own: int = _FASTA_LENGTH, before: int = 0
) -> tuple[int, int, int]:
    """Return the number of tokens in a row, the maximum length of a window in tokens, and the
    number of residues that windows share.

    Args:
        own: default of --max-seq-len.
        before: number of tokens in a row of an interrupted run; 0 for a new run.
    Raises:
        ValueError: --max-seq-len, --overlap and --row-tokens contradict each other.
    """
    longest = options.max_seq_len or own
    default = before or max(_ROW_TOKENS[topology.device.type], longest)
    row_tokens = -(-(options.row_tokens or default) // MULTIPLE) * MULTIPLE
    if longest > row_tokens:
        raise ValueError(
            f"--row-tokens is {options.row_tokens}, expected at least {longest}, the maximum "
            "length of a sequence in tokens (--max-seq-len)"
        )
    overlap = options.overlap if options.overlap is not None else default_overlap(longest)
    if overlap >= longest - 2:
        raise ValueError(
            f"--overlap is {overlap}, expected less than {longest - 2}, the number of residues "
            "that fit into --max-seq-len"
        )
    return row_tokens, longest, overlap


def default_overlap(longest: int) -> int:
    """Return the default of --overlap.

    Args:
        longest: maximum length of a window in tokens.
    """
    return min(256, (longest - 2) // 2)
