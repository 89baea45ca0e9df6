"""Options of `thdpack stats` and `thdpack card`. The docstrings are the help texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Optional

import tyro

from pipeline.cli.options.build_options import Ignore
from pipeline.cli.options.subcommand_options import Dataset
from schemas.shard import Long
from schemas.text.one_line import check_one_line

_STATS_INPUTS_HELP = (
    "Folder or URL of a dataset, two of these to compare, or anything that `thdpack preprocess` "
    "reads."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class StatsOptions:
    """Report on a dataset or raw sequences: records, lengths, letters, buckets, padding, GPU-hours.

    For a dataset, the command reads the manifest and records/, but no shards. For raw sequences, it
    reads the inputs once and predicts their packing. Given two datasets, or a dataset and one input
    of raw sequences, it compares them.

    With --html, --json FILE or --csv, the terminal shows only the first lines of the report.

    Example: thdpack stats data/uniref50 --html report.html

    Example: thdpack stats uniref50.fasta.gz --capacity 65536

    Example: thdpack stats data/uniref50 --serve
    """

    inputs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(
            metavar="DATASET|INPUT", help=_STATS_INPUTS_HELP, help_behavior_hint="(required)"
        ),
    ]
    json: Annotated[Optional[str], tyro.conf.arg(metavar="[FILE]")] = None  # noqa: UP045
    """Write the report as JSON to FILE, a path or URL. Without FILE, print only the JSON."""
    csv: Annotated[Optional[str], tyro.conf.arg(metavar="DIR")] = None  # noqa: UP045
    """Write each table as a CSV file into this folder, a path or URL."""
    html: Annotated[Optional[str], tyro.conf.arg(metavar="FILE")] = None  # noqa: UP045
    """Write one self-contained HTML page to FILE, a path or URL."""
    serve: bool = False
    """Show the HTML report of one dataset in a browser, at an address that the command prints. The
    page shows the progress of a build that runs in the dataset's folder, and the new report when
    the build commits. Ctrl-C ends the command. Only this machine can open the page."""
    port: Annotated[Optional[int], tyro.conf.arg(metavar="PORT")] = None  # noqa: UP045
    """Only with --serve: port of the page. Default: a free port."""
    open: bool = False
    """Only with --serve: also open the page in the default browser."""
    against: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        tyro.conf.arg(metavar="FILE"),
    ] = ()
    """Only for a dataset: count the sequences of FILE, such as a test set, that are also in the
    dataset. FILE is FASTA, or a table with the columns id and sequence. With `mmseqs:FILE`, MMseqs2
    also finds similar sequences. Repeat the option for several files."""
    read_tokens: bool = False
    """Only for datasets on a local disk: also read all shards, count letters and buckets in them,
    and fail if the manifest has other numbers."""
    generation: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="N|latest")
    ] = ()
    """Only for datasets: generation to report on. It is `latest` (the default), or a number or
    digest that `thdpack generations` prints. For two datasets, give the option twice, in the order
    of the datasets. To compare two generations of a dataset, name the dataset twice."""
    capacity: Optional[int] = None  # noqa: UP045
    """Only for raw sequences: tokens per bucket of the predicted build. Default: 16384."""
    max_seq_len: Optional[int] = None  # noqa: UP045
    """Only for raw sequences: longest sequence of the predicted build, in tokens. Default:
    1024."""
    long: Optional[Long] = None  # noqa: UP045
    """Only for raw sequences: what the predicted build does with records that are longer than
    --max-seq-len. Default: truncate."""
    ignore: Ignore = ()
    """Only for raw sequences: in folders and globs, leave out files whose name or folder matches
    GLOB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CardOptions:
    """Describe a dataset for publication, in two files.

    croissant.json has Croissant 1.0 metadata, and README.md is a dataset card for the Hugging Face
    Hub. Both are computed from the manifest: options, inputs, counts, release and licence.

    Example: thdpack card data/uniref50
    """

    dataset: Dataset
    """Folder or URL of the dataset."""
    out: Annotated[Optional[str], tyro.conf.arg(metavar="DIR")] = None  # noqa: UP045 (see DatasetOptions)
    """Write the files into this folder, a path or URL. Default: the dataset's folder."""
    overwrite: bool = False
    """Also replace files that thdpack did not write, or that were edited later."""
    source_release: Annotated[Optional[str], tyro.conf.arg(metavar="TEXT")] = None  # noqa: UP045
    """Release of the inputs, if the dataset was built without --source-release. Only the two files
    state it, so give it each time."""
    license: Annotated[Optional[str], tyro.conf.arg(metavar="TEXT")] = None  # noqa: UP045
    """Licence of the inputs, as an SPDX identifier such as CC-BY-4.0, if the dataset was built
    without --license. Only the two files state it, so give it each time."""

    def __post_init__(self) -> None:
        check_one_line(self.source_release, name="--source-release")
        check_one_line(self.license, name="--license")


@dataclass(frozen=True, kw_only=True, slots=True)
class PushOptions:
    """Upload a dataset to the Hugging Face Hub, as one commit.

    The command verifies the dataset, creates the repository if it is missing, and uploads the
    files that the repository lacks. The commit makes all files visible together. After an
    interruption, run the same command again: uploaded files are skipped. Files of an earlier
    dataset in the same repository are removed from the branch, but stay in its history.

    The hub must know you: run `hf auth login`, or set HF_TOKEN to a token with write access.

    Example: thdpack push data/uniref50 hf://datasets/USER/uniref50 --private
    """

    dataset: Dataset
    """Folder of the dataset."""
    to: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="URL")]
    """hf://datasets/USER/NAME, where USER is a user or an organization."""
    private: bool = False
    """Create the repository as a private one. A public repository that exists is refused."""
    revision: Annotated[Optional[str], tyro.conf.arg(metavar="BRANCH")] = None  # noqa: UP045
    """Branch to commit to, created from the default branch if it is missing. Default: main."""

    def __post_init__(self) -> None:
        check_one_line(self.revision, name="--revision")
