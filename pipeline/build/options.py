"""Options of `thdpack preprocess`, checked once, here; the rest of the pipeline trusts them.

`DatasetOptions` decide what a dataset holds and enter its digest. `PreprocessOptions` add what only decides how a build runs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, Optional

from pipeline.inputs.source import Format
from schemas.shard import round_up


@dataclass(frozen=True, kw_only=True)  # without slots, which two base classes cannot both have
class _Places:
    """What a build reads and where it writes."""

    inputs: tuple[str, ...]
    out: str


@dataclass(frozen=True, kw_only=True)
class DatasetOptions:
    """Options that shape the bytes of a dataset; every one of them enters its digest."""

    capacity: int = 16_384
    """Tokens per bucket, <cls> and <eos> included. One bucket is one row of a training step: 16384 suits one GPU at 650M
    parameters; take more for small models, less if memory is short."""
    max_seq_len: int = 1_024
    """Longest sequence in tokens, <cls> and <eos> included. ESM-2 was trained with 1024."""
    long: Literal["truncate", "split", "drop"] = "truncate"
    """Records longer than max-seq-len: keep their first residues, cut them into consecutive pieces, or leave them out."""
    min_residues: int = 1
    """Leave out records with fewer residues."""
    on_invalid: Optional[Literal["unk", "skip", "error"]] = None  # noqa: UP045 (as max_seqs)
    """A letter outside the vocabulary (J, digits, …): becomes <unk> and is counted, leaves its record out, or ends the build
    with file and line. Default: unk, but an input that is more than half of such letters is an error."""
    dedup: Literal["exact", "cropped", "none"] = "exact"
    """Of records with the same residues keep the first in input order; `cropped`: of records that are the same once they are
    truncated to max-seq-len, too; `none`: keep all."""
    valid_fraction: float = 0.01
    """Share of records held out as the valid split. Decided by the hash of a record's first max-seq-len - 2 residues, so it does
    not depend on the order of inputs, and records that training cannot tell apart never sit on both sides."""
    seed: int = 0
    """Seed of the global shuffle."""
    packer: Literal["balanced", "best-fit", "next-fit", "bfd"] = "balanced"
    """How sequences are put into buckets. `balanced` fills 99.99 % and makes buckets cost the same in attention; the others
    are there for comparison."""
    max_seqs: Optional[int] = None  # noqa: UP045 (tyro loads typeguard, 0.1 s, to understand `int | None`)
    """Most sequences in a bucket. Default: max(127, capacity / 128 - 1). Attention kernels get slower by their number."""
    length_multiple: int = 1
    """Pad each sequence to a multiple of this, for kernels that want it (ring attention: 2 × context-parallel size)."""
    compression: Literal["none", "zstd"] = "none"
    """Of shards. `none` is read in place (zero copies); zstd takes 0.53 of the space."""
    shard_mb: int = 64
    """Aim for shards of this many MiB."""
    format: Format = "auto"
    """Format of the inputs; `auto` goes by the file name. swiss, genbank and embl are read through Biopython."""
    sequence_column: str = "sequence"
    """Parquet and Arrow inputs: the column with the residues."""
    id_column: str = "id"
    """Parquet and Arrow inputs: the column with the record id. If there is no column `id`, ids are left empty."""

    def __post_init__(self) -> None:
        self._check_sizes()
        if self.min_residues < 1:
            raise ValueError(
                f"--min-residues is {self.min_residues}, expected at least 1: an empty sequence teaches nothing"
            )
        if self.dedup == "cropped" and self.long == "split":
            raise ValueError("--dedup cropped is for --long truncate: --long split crops nothing")
        if not 0 <= self.valid_fraction <= 1:
            raise ValueError(f"--valid-fraction is {self.valid_fraction}, expected 0..1")
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"--seed is {self.seed}, expected 0..2^63 - 1")
        if self.max_seqs is not None and self.max_seqs < 1:
            raise ValueError(f"--max-seqs is {self.max_seqs}, expected at least 1")

    def _check_sizes(self) -> None:
        if self.capacity < 3:
            raise ValueError(
                f"--capacity is {self.capacity}, need room for <cls> residue <eos>: at least 3"
            )
        if self.capacity > 1 << 24:
            raise ValueError(f"--capacity is {self.capacity}, expected at most {1 << 24}")
        if self.max_seq_len < 3:
            raise ValueError(
                f"--max-seq-len is {self.max_seq_len}, need room for <cls> residue <eos>: at least 3"
            )
        if self.length_multiple < 1:
            raise ValueError(f"--length-multiple is {self.length_multiple}, expected at least 1")
        if self.longest_span > self.capacity:
            raise ValueError(
                f"--max-seq-len {self.max_seq_len} does not fit --capacity {self.capacity}: no sequence may be longer than a bucket"
            )
        if self.capacity % self.length_multiple:
            raise ValueError(
                f"--capacity {self.capacity} is not a multiple of --length-multiple {self.length_multiple}"
            )
        if self.shard_mb < 1:
            raise ValueError(f"--shard-mb is {self.shard_mb}, expected at least 1")

    @property
    def longest_piece(self) -> int:
        """Most residues of a record in one sequence."""
        return self.max_seq_len - 2

    @property
    def longest_span(self) -> int:
        """Longest sequence with its length-multiple padding, in tokens; tail pieces are no longer either."""
        return round_up(self.max_seq_len, self.length_multiple)

    @property
    def most_seqs(self) -> int:
        """Most sequences in a bucket."""
        return self.max_seqs if self.max_seqs is not None else max(127, self.capacity // 128 - 1)

    @property
    def buckets_per_shard(self) -> int:
        """Most buckets in a shard."""
        return max(1, (self.shard_mb << 20) // self.capacity)

    def shape(self) -> dict[str, Any]:
        """Return every option by name, with defaults that depend on others filled in."""
        shape = {field.name: getattr(self, field.name) for field in fields(DatasetOptions)}
        return {**shape, "max_seqs": self.most_seqs, "on_invalid": self.on_invalid or "unk"}


@dataclass(frozen=True, kw_only=True)
class PreprocessOptions(DatasetOptions, _Places):
    """Turn protein sequences into a dataset: packed, tokenized Arrow shards with precomputed cu_seqlens.

    Reads every input once, removes exact duplicates, shuffles globally, packs sequences into buckets of `--capacity` tokens,
    verifies what it wrote, and only then writes manifest.json. The same command resumes a build that was interrupted.

    Example: thdpack preprocess uniref50.fasta.gz --out data/uniref50
    """

    executor: Literal["processes", "ray", "slurm-array"] = "processes"
    """What runs the tasks: processes of this machine, a Ray cluster (extra `ray`), or a Slurm array, for which this command only plans
    (as `thdpack plan-tasks` does). Never changes the bytes written."""
    ray_address: Optional[str] = None  # noqa: UP045
    """Ray cluster to use: `auto`, or its head such as head:6379. Default: one of this machine, started and stopped with the build."""
    workers: Optional[int] = None  # noqa: UP045
    """Tasks at once. Default: one for each core, of the cluster with --ray-address. Never changes the bytes written."""
    memory: Optional[str] = None  # noqa: UP045
    """Stay below this much memory of this machine, such as 2G, by running less at once. Never changes the bytes written."""
    scratch: Optional[str] = None  # noqa: UP045
    """With --out on a store: a folder of this machine's disk for work in progress, which otherwise lies in the store too. Faster on
    one machine; a build that was interrupted then goes on from there on this machine only."""
    overwrite: bool = False
    """Replace a dataset that was built from other inputs or options, or an unfinished task list of others."""
    dry_run: bool = False
    """Say what would be done, and do nothing."""
    log_json: bool = False
    """One JSON object a line on standard output instead of text, for machines."""

    def __post_init__(self) -> None:
        DatasetOptions.__post_init__(self)
        if self.memory is not None:
            parse_bytes(self.memory)
        if self.ray_address is not None and self.executor != "ray":
            raise ValueError("--ray-address is given without --executor ray")
        if self.ray_address is not None and self.memory is not None:
            raise ValueError(
                "--memory limits what runs on this machine, not on the cluster of --ray-address: give --workers instead"
            )
        if self.scratch is not None and (
            "://" not in self.out or self.out.startswith(("file://", "local://"))
        ):
            raise ValueError(
                f"--scratch {self.scratch} is for --out on a store; on a disk, work in progress lies in the dataset's folder"
            )
        if self.scratch is not None and self.executor != "processes":
            raise ValueError(
                f"--scratch is a folder of this machine, and tasks of --executor {self.executor} run on others: leave one out"
            )
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"--workers is {self.workers}, expected at least 1")

    @property
    def of_dataset(self) -> DatasetOptions:
        """The options that tasks need: not the names of inputs, of which there may be ten thousand."""
        return DatasetOptions(
            **{field.name: getattr(self, field.name) for field in fields(DatasetOptions)}
        )


def parse_bytes(text: str) -> int:
    """`512M`, `2G`, `1.5GiB` or a plain number as bytes (powers of 1024).

    Raises:
        ValueError: it is none of these.
    """
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}.get(number[-1:], 1)
    try:
        value = float(number[:-1] if scale > 1 else number)
    except ValueError as error:
        raise ValueError(
            f"--memory {text!r} is no size, expected something like 512M or 2G"
        ) from error
    if value <= 0:
        raise ValueError(f"--memory {text!r} is no size, expected something like 512M or 2G")
    return int(value * scale)
