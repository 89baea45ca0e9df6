"""Options of `thdpack append` and `thdpack compact`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from pipeline.executors.registry import ExecutorName
from schemas.text.option_checks import check_range


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """Options of a build that adds a generation to a dataset."""

    dataset: str
    inputs: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    """The same files, in the same order, that --exclude named when the dataset was built. They are
    needed again, because the new records must be compared with them too."""
    clusters: Optional[str] = None  # noqa: UP045 (see PreprocessOptions)
    """Table with the clusters of the new records, if the dataset was built with --clusters. New
    records that belong to an earlier cluster go to its split. List the earlier records too if
    clusters have changed, such as in a new release."""
    metadata: Optional[str] = None  # noqa: UP045 (see PreprocessOptions)
    """Table with the columns of --metadata for the new records, if the dataset was built with
    --metadata."""
    executor: ExecutorName = "processes"
    """Place where tasks run: processes of this machine, or a Ray cluster (needs the extra
    `ray`)."""
    ray_address: Optional[str] = None  # noqa: UP045
    """Ray cluster to use: `auto`, or the address of a head node. Default: start a cluster on this
    machine."""
    workers: Optional[int] = None  # noqa: UP045
    """Number of tasks that run at once. Default: one task for each core of this machine, or of the
    cluster with --ray-address."""
    memory: Optional[str] = None  # noqa: UP045
    """Memory limit on this machine, such as 2G. With less memory, fewer tasks run at once."""
    allow_nucleotides: bool = False
    """Read inputs that look like nucleotides, and treat A, C, G and T as residues."""
    allow_alignment: bool = False
    """Read inputs that look like an alignment, and treat gaps as letters."""
    ignore: tuple[str, ...] = ()
    """In input folders and globs, leave out each file whose name or folder matches GLOB."""
    log_json: bool = False
    """Print one JSON object per line instead of text."""

    def __post_init__(self) -> None:
        if self.workers is not None:
            check_range(self, "workers", least=1)


@dataclass(frozen=True, kw_only=True)
class AppendOptions(GenerationOptions):
    """Add records to a dataset, as a new generation.

    The options that shape the dataset, such as --capacity and --split, stay as they are. The new
    records are packed into new shards, and old shards are not read or changed. A record is a
    duplicate if any earlier generation has its sequence. A file whose content the dataset already
    has is skipped. Run the same command to resume an interrupted append.

    Example: thdpack append data/uniref50 news.fasta.gz --retire removed-ids.txt
    """

    retire: Optional[str] = None  # noqa: UP045 (see PreprocessOptions)
    """List of ids, one on each line, plain or compressed. The records of earlier generations with
    such an id, accession or entry name are listed as retired. Their sequences stay in the dataset.
    With this option, inputs are optional."""
    source_release: Optional[str] = None  # noqa: UP045 (see PreprocessOptions)
    """Release of the new records, such as 2026_04, for the manifest and the dataset card. Default:
    unchanged."""
    dry_run: bool = False
    """Check the inputs, print what would be appended, and write nothing."""


@dataclass(frozen=True, kw_only=True)
class CompactOptions(GenerationOptions):
    """Rewrite a dataset of several generations as one build of all its inputs.

    The result is a new generation, with the same shards and records/ files as one `thdpack
    preprocess` of all inputs. Name all inputs that the dataset was built from, in any order: they
    are read again. Older generations stay until `thdpack gc` removes them.

    Example: thdpack compact data/uniref50 uniref50.fasta.gz news/
    """

    dry_run: bool = False
    """Compare the sizes of the inputs with those of the dataset, print what would be
    rewritten, and write nothing."""
