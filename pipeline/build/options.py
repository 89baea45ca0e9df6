"""Options of `thdpack preprocess`, and the checks of their values.

`DatasetOptions` determine the content of a dataset. The dataset's digest includes these options.
`PreprocessOptions` adds the inputs, the files that options name (such as `--clusters`), and options
that affect only which inputs are accepted and how a build runs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Optional

from packers import PackerName
from pipeline.executors.registry import EXECUTORS, ExecutorName
from pipeline.inputs.formats.registry import Format
from pipeline.inputs.source import Allowed
from schemas.shard import Long, SequenceLimits
from schemas.split_fractions import SplitFractions
from schemas.text.byte_size import check_memory
from schemas.text.one_line import check_one_line
from schemas.text.option_checks import check_range, flag

_AT_LEAST_3: Final = "expected at least 3: a sequence has <cls>, at least one residue, and <eos>"
MOST_VARIANTS: Final = 1_000


@dataclass(frozen=True, kw_only=True)  # no slots: only one base class may have slots
class _Places:
    """Inputs and destination of a build."""

    inputs: tuple[str, ...]
    out: str


@dataclass(frozen=True, kw_only=True)
class DatasetOptions(SequenceLimits):
    """Options that determine the bytes of a dataset. The dataset's digest includes all of them."""

    capacity: int = 16_384
    """Tokens per bucket, <cls> and <eos> included. A bucket is one row of training data. 16384
    suits one GPU and a model of 650M parameters. Use a larger number for a smaller model, and a
    smaller number if GPU memory is short."""
    max_seq_len: int = 1_024
    """Maximum length of a sequence in tokens, <cls> and <eos> included. ESM-2 was trained with
    1024."""
    long: Long = "truncate"
    """Treatment of records longer than --max-seq-len. `truncate` keeps the first residues,
    `crop` keeps a random window, `split` cuts a record into consecutive sequences, and `drop`
    leaves the record out."""
    min_residues: int = 1
    """Minimum number of residues. Records with fewer residues are left out."""
    on_invalid: Optional[Literal["unk", "skip", "error"]] = None  # noqa: UP045 (see max_seqs)
    """Treatment of letters outside the vocabulary (J, digits, …). `unk` replaces the letters by
    <unk> and counts them. `skip` leaves out records with such letters. `error` ends the build and
    names file and line. Default: unk, but the build ends with an error if more than half of an
    input would become <unk>."""
    where: Optional[str] = None  # noqa: UP045
    """Keep only records for which this SQL expression is true, such as "taxid = 9606 and not
    fragment and length between 50 and 2000". docs/guides/data.md lists the columns. Needs the extra
    `report`. Default: keep all."""
    exclude_identity: float = 0.3
    """Smallest identity (above 0, at most 1) at which --exclude counts a record as similar to a
    sequence. Applies to result tables of MMseqs2 or BLAST, and to `mmseqs:FILE`."""
    exclude_coverage: float = 0.5
    """Smallest coverage (above 0, at most 1) at which --exclude counts a record as similar to a
    sequence. Coverage is the share of the residues that the alignment covers. A match has two
    coverages, of the record and of the sequence. The larger one is used. If a result table has no
    column of coverages, the coverage of the record is computed from the ends of the alignment, and
    is used."""
    dedup: Literal["exact", "cropped", "none"] = "exact"
    """`exact` drops each record that has the same residues as an earlier record. `cropped` also
    drops each record that has the same residues as an earlier record after --long truncate has
    cropped both records. `none` keeps all records."""
    split: str = "train=0.99,valid=0.01"
    """Shares of the records that go to the splits train, valid and test, such as
    train=0.98,valid=0.01,test=0.01. If train is not named, it gets the rest. The split of a record
    depends on the hash of its first max-seq-len - 2 residues or, with --clusters, on its cluster.
    Therefore the order of inputs does not matter, and records that are equal after truncation are
    always in the same split."""
    seed: int = 0
    """Seed of the global shuffle."""
    packer: PackerName = "balanced"
    """Algorithm that packs sequences into buckets. `balanced` fills 99.99 % of bucket tokens and
    gives all buckets nearly the same attention cost. The other algorithms are for comparison."""
    max_seqs: Optional[int] = None  # noqa: UP045 (tyro needs 0.1 s to understand `int | None`)
    """Maximum number of sequences in a bucket. Default: max(127, capacity / 128 - 1). More
    sequences make attention kernels slower."""
    length_multiple: int = 1
    """Pad each sequence to a multiple of this number of tokens. For ring attention, use 2 × the
    context-parallel size."""
    compression: Literal["none", "zstd"] = "none"
    """Compression of shards. Uncompressed shards (`none`) are read in place, without a copy. `zstd`
    shards have 53 % of the uncompressed size."""
    shard_mb: int = 64
    """Approximate size of a shard in MiB."""
    format: Format = "auto"
    """Format of the inputs. `auto` detects the format from a file's first bytes and name."""
    sequence_column: str = "sequence"
    """Name of the column with the residues, for Parquet, Arrow, CSV and TSV inputs."""
    id_column: str = "id"
    """Name of the column with the record ids, for Parquet, Arrow, CSV and TSV inputs. Without
    this option, a column `Entry` or `accession` serves as well. If an input has none of them, its
    ids are empty, and the build prints a warning that names the columns."""
    keep_header: bool = False
    """Also store the full header of each record, in the column `header` of records/."""
    source_release: Optional[str] = None  # noqa: UP045
    """Release of the inputs, such as UniRef50/2026_04, for the manifest and `thdpack card`."""
    license: Optional[str] = None  # noqa: UP045
    """Licence of the inputs, as an SPDX identifier such as CC-BY-4.0, for the manifest and `thdpack
    card`."""

    def __post_init__(self) -> None:
        self._check_sizes()
        check_range(self, "min_residues", "shard_mb", least=1)
        if self.dedup == "cropped" and self.long in ("split", "crop"):
            raise ValueError(
                "--dedup cropped compares first residues, so it is for --long truncate, "
                f"not for --long {self.long}"
            )
        SplitFractions.parse(self.split)
        check_range(self, "exclude_identity", "exclude_coverage", above=0, most=1)
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"--seed is {self.seed}, expected 0..2^63 - 1")
        if self.max_seqs is not None and self.max_seqs < 1:
            raise ValueError(f"--max-seqs is {self.max_seqs}, expected at least 1")
        check_one_line(self.source_release, name="--source-release")
        check_one_line(self.license, name="--license")

    def _check_sizes(self) -> None:
        if self.capacity < 3:
            raise ValueError(f"--capacity is {self.capacity}, {_AT_LEAST_3}")
        if self.capacity > 1 << 24:
            raise ValueError(
                f"--capacity is {self.capacity}, expected at most {1 << 24}, the limit of the "
                "dataset format: a bucket must fit into the memory of a GPU"
            )
        if self.max_seq_len < 3:
            raise ValueError(f"--max-seq-len is {self.max_seq_len}, {_AT_LEAST_3}")
        if self.length_multiple < 1:
            raise ValueError(f"--length-multiple is {self.length_multiple}, expected at least 1")
        if self.longest_span > self.capacity:
            raise ValueError(
                f"--max-seq-len {self.max_seq_len} does not fit --capacity {self.capacity}: "
                f"give --max-seq-len {self.capacity - self.capacity % self.length_multiple} or "
                "less, or a larger --capacity"
            )
        if self.capacity % self.length_multiple:
            raise ValueError(
                f"--capacity {self.capacity} is not a multiple of "
                f"--length-multiple {self.length_multiple}"
            )

    @property
    def most_seqs(self) -> int:
        """Maximum number of sequences in a bucket."""
        return self.max_seqs if self.max_seqs is not None else max(127, self.capacity // 128 - 1)

    @property
    def fractions(self) -> SplitFractions:
        """Share of the records in each split."""
        return SplitFractions.parse(self.split)

    @property
    def buckets_per_shard(self) -> int:
        """Maximum number of buckets in a shard."""
        return max(1, (self.shard_mb << 20) // self.capacity)

    def shape(self) -> dict[str, Any]:
        """Return every option by name. The defaults of max_seqs and on_invalid are filled in. Equal
        shares give the same text for `split`, such as train=0.99,valid=0.01."""
        shape = {field.name: getattr(self, field.name) for field in fields(DatasetOptions)}
        return {
            **shape,
            "max_seqs": self.most_seqs,
            "on_invalid": self.on_invalid or "unk",
            "split": str(self.fractions),
        }


@dataclass(frozen=True, kw_only=True)
class PreprocessOptions(DatasetOptions, _Places):
    """Build a dataset from protein sequences: packed, tokenized Arrow shards with cu_seqlens.

    A build reads all inputs, removes exact duplicates, shuffles globally, packs sequences
    into buckets of --capacity tokens, verifies all files, and writes manifest.json last. Run the
    same command to resume an interrupted build.

    Example: thdpack preprocess uniref50.fasta.gz --out data/uniref50
    """

    exclude: tuple[str, ...] = ()
    """Leave out records whose sequences are in FILE, such as the proteins of a test set. FILE may
    be a FASTA file, a list of ids, or a result table of MMseqs2 or BLAST. `mmseqs:FILE` leaves out
    records that MMseqs2 finds similar to a sequence of a FASTA file. docs/guides/data.md explains
    each kind of file. Repeat the option for several files."""
    clusters: Optional[str] = None  # noqa: UP045
    """Keep each cluster of similar sequences in one split. The value is a table of clusters (two
    columns, as MMseqs2 writes it), or `mmseqs:0.5` to cluster the records by MMseqs2 at an
    identity of 0.5, before --exclude and deduplication."""
    sample_clusters: Optional[str] = None  # noqa: UP045
    """Like --clusters, but each variant holds only one record of each cluster, drawn at random. The
    table may have a third column, the weight of each record in the draw."""
    metadata: Optional[str] = None  # noqa: UP045
    """Table (Parquet, Arrow, CSV, TSV) whose columns are added to records/, for use in --where.
    A row belongs to the record with the same accession or id."""
    variants: int = 1
    """Number of variants: passes over the kept records, each shuffled, cropped and packed anew. The
    reader takes the next variant in each epoch. Each variant takes the same disk space. If the
    dataset exists with fewer variants, the missing ones are added. After that, training runs that
    began with fewer variants cannot resume. A smaller number is refused, unless --overwrite is
    given."""
    executor: ExecutorName = "processes"
    """Place where tasks run: processes of this machine, or a Ray cluster (needs the extra `ray`).
    The dataset has the same bytes in both cases. For Slurm and other schedulers, see `thdpack
    plan-tasks`."""
    ray_address: Optional[str] = None  # noqa: UP045
    """Ray cluster to use: `auto`, or the address of a head node, such as head:6379. Default: start
    a cluster on this machine for the build."""
    workers: Optional[int] = None  # noqa: UP045
    """Number of tasks that run at once. Default: one task for each core of this machine, or of the
    cluster with --ray-address. The number does not change the dataset's bytes."""
    memory: Optional[str] = None  # noqa: UP045
    """Memory limit on this machine, such as 2G. With less memory, fewer tasks run at once. The
    limit does not change the dataset's bytes."""
    scratch: Optional[str] = None  # noqa: UP045
    """Folder on a local disk for intermediate files, if --out is in an object store. Such a build
    is faster, but only this machine can work on the build and resume it."""
    overwrite: bool = False
    """Replace an existing dataset that has other inputs or options. Also replace an unfinished task
    list of another plan."""
    allow_nucleotides: bool = False
    """Read inputs that look like nucleotides, and treat A, C, G and T as residues. Without this
    option, such an input is an error."""
    allow_alignment: bool = False
    """Read inputs that look like an alignment, and treat gaps as letters. Without this option, such
    an input is an error."""
    ignore: tuple[str, ...] = ()
    """Leave out files whose name or folder matches GLOB, such as '*.dna.fa' or old/. This applies
    only to files that were found in an input folder or by a glob."""
    timeline: Optional[str] = None  # noqa: UP045
    """File for the times of all phases and tasks, as JSON that https://ui.perfetto.dev opens."""
    dry_run: bool = False
    """Print the plan of the build, and write nothing."""
    log_json: bool = False
    """Print one JSON object per line instead of text."""

    def __post_init__(self) -> None:
        DatasetOptions.__post_init__(self)
        if not 1 <= self.variants <= MOST_VARIANTS:
            raise ValueError(f"--variants is {self.variants}, expected 1 to {MOST_VARIANTS}")
        if self.clusters is not None and self.sample_clusters is not None:
            raise ValueError("--sample-clusters includes --clusters: omit --clusters")
        if self.memory is not None:
            check_memory(self.memory)
        for pattern in self.ignore:
            if not pattern.strip("./"):
                raise ValueError(
                    f"--ignore {pattern!r} is not a pattern: give a name or '*.dna.fa'"
                )
        for name in ("exclude_identity", "exclude_coverage"):
            if not self.exclude and getattr(self, name) != getattr(DatasetOptions, name):
                raise ValueError(f"{flag(name)} is given without --exclude")
        if self.ray_address is not None and self.executor != "ray":
            raise ValueError("--ray-address is given without --executor ray")
        if self.ray_address is not None and self.memory is not None:
            raise ValueError(
                "--memory limits this machine, not the cluster of --ray-address: "
                "give --workers instead"
            )
        if self.scratch is not None and (
            "://" not in self.out or self.out.startswith(("file://", "local://"))
        ):
            raise ValueError(
                f"--scratch {self.scratch} is for --out in a store; "
                "on a disk, intermediate files are in the dataset's folder"
            )
        if self.scratch is not None and EXECUTORS[self.executor].remote:
            raise ValueError(
                f"--scratch is a folder of this machine, but --executor {self.executor} runs tasks "
                "on other machines: omit one of the two options"
            )
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"--workers is {self.workers}, expected at least 1")

    @property
    def allowed(self) -> Allowed:
        """Suspicious kinds of input that the user allows: nucleotides, alignments."""
        return Allowed(nucleotides=self.allow_nucleotides, alignment=self.allow_alignment)

    @property
    def of_dataset(self) -> DatasetOptions:
        """Options that tasks need. The list of inputs is left out, because it may be long."""
        return DatasetOptions(
            **{field.name: getattr(self, field.name) for field in fields(DatasetOptions)}
        )
