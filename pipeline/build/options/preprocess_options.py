"""Options of a build: those of the dataset, inputs, named files, and how the build runs.

The named files are those that options name, such as the file of `--clusters`. The other options
affect only which inputs are accepted and how a build runs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Optional

from pipeline.build.options.dataset_options import DatasetOptions
from pipeline.executors.registry import EXECUTORS, ExecutorName
from pipeline.inputs.source import Allowed
from schemas.text.byte_size import parse_bytes
from schemas.text.option_checks import flag
from schemas.text.phrases import plural

_LEAST_MEMORY: Final = 256 << 20
_MOST_VARIANTS: Final = 1_000


@dataclass(frozen=True, kw_only=True)  # no slots: only one base class may have slots
class _Places:
    """Inputs and destination of a build."""

    inputs: tuple[str, ...]
    out: str


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
        if not 1 <= self.variants <= _MOST_VARIANTS:
            raise ValueError(f"--variants is {self.variants}, expected 1 to {_MOST_VARIANTS}")
        if self.clusters is not None and self.sample_clusters is not None:
            raise ValueError("--sample-clusters includes --clusters: omit --clusters")
        if self.memory is not None and parse_bytes(self.memory, name="--memory") < _LEAST_MEMORY:
            size = self.memory.strip()
            means = f"means {plural(int(size), 'byte')}," if size.isdecimal() else "is"
            raise ValueError(
                f"--memory {size} {means} less than one task needs: "
                f"give at least {_LEAST_MEMORY >> 20}M"
            )
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
