"""Options of each subcommand, whose dataclass is also its help text.

Checks that need no file are made here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, Optional

import tyro

from pipeline.build.options import PreprocessOptions
from schemas.models import ESM2_MODELS

INPUTS_HELP = (
    "Files, folders, globs or URLs (s3://…, gs://…, https://…; folders and globs in stores, too), "
    "@LIST for a file that names one of these a line, or - for standard input. "
    "FASTA, plain or compressed (gz, bgz, zst, xz, bz2); Parquet or Arrow with a sequence column."
)


OUT_HELP = (
    "Folder or URL (s3://…, gs://…) of the dataset, created if it is missing. "
    "A dataset in it stays valid until the new manifest replaces the old one."
)


_STATS_INPUTS_HELP = (
    "Folder or URL of a dataset, two to compare, or anything that `thdpack preprocess` reads."
)


_MODEL_HELP = f"Preset: {', '.join(ESM2_MODELS)}."


_BUILD_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(PreprocessOptions)}


Dataset = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]


@dataclass(frozen=True, kw_only=True)
class PreprocessArguments(PreprocessOptions):
    __doc__ = PreprocessOptions.__doc__
    # Settings of two fields for tyro. They are here so that workers, which load the options, need
    # not load tyro.

    inputs: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="INPUT", help=INPUTS_HELP)
    ]
    out: Annotated[str, tyro.conf.arg(metavar="DATASET", help=OUT_HELP)]


class PlanTasksArguments(PreprocessArguments):
    """Cut a build into tasks for a scheduler. Takes the options of `thdpack preprocess`.

    All machines have to see the dataset's folder. Then run `thdpack run-task DATASET --plan PLAN
    --stage map --index N` for every map task, the same with `--stage reduce`, and at last
    `thdpack commit DATASET --plan PLAN`. deploy/slurm/preprocess.sbatch does all of it on Slurm.

    Example: thdpack plan-tasks uniref50.fasta --out data/uniref50
    """


@dataclass(frozen=True, slots=True)
class PlanTasksOptions:
    """Options of the build that is to be planned."""

    preprocess: PreprocessOptions

    def __post_init__(self) -> None:
        if self.preprocess.executor != "processes":
            raise ValueError("--executor is for preprocess: a scheduler runs planned tasks")
        if self.preprocess.scratch is not None:
            raise ValueError(
                "--scratch is a folder of this machine, and planned tasks run on others: omit it"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTaskOptions:
    """Run one task of a planned build, or one array element's share of a stage.

    A finished task is skipped.

    Example: thdpack run-task data/uniref50 --stage map --index $SLURM_ARRAY_TASK_ID
    --array-size $SLURM_ARRAY_TASK_COUNT
    """

    dataset: Dataset
    """Folder of the dataset, as --out of plan-tasks named it."""
    index: int
    """Number of the task, from 0: within --stage, or without it within the whole list."""
    stage: Optional[Literal["map", "reduce"]] = None  # noqa: UP045 (see options.py)
    """Count within this stage. Every map task has to finish before the first reduce task."""
    array_size: Optional[int] = None  # noqa: UP045
    """Run the tasks index, index + array-size, … of the stage, so that an array may be shorter than
    the list."""
    plan: Optional[str] = None  # noqa: UP045
    """Plan that the task belongs to, as plan-tasks printed it. If another plan has replaced it, the
    command fails."""
    log_json: bool = False
    """Print one JSON object a line instead of text."""

    def __post_init__(self) -> None:
        if self.index < 0:
            raise ValueError(f"--index is {self.index}, expected at least 0")
        if self.array_size is not None and self.stage is None:
            raise ValueError("--array-size needs --stage: reduce tasks cannot run beside map tasks")
        if self.array_size is not None and not self.index < self.array_size:
            expected = f"expected less than --array-size {self.array_size}"
            raise ValueError(f"--index is {self.index}, {expected}")


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitOptions:
    """Finish a planned build: pack what partitions could not fill, verify, write the manifest.

    All tasks of the plan have to be finished.

    Example: thdpack commit data/uniref50
    """

    dataset: Dataset
    """Folder of the dataset, as --out of plan-tasks named it."""
    workers: Optional[int] = None  # noqa: UP045
    """Number of processes. Default: one for each core."""
    plan: Optional[str] = None  # noqa: UP045
    """Plan to commit, as plan-tasks printed it. If another has replaced it, the command fails."""
    log_json: bool = False
    """Print one JSON object a line instead of text."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"--workers is {self.workers}, expected at least 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyOptions:
    """Check every file of a dataset against its manifest, and every bucket against the format.

    Prints one line for each problem, and exits with 1 if there is any.

    Example: thdpack verify data/uniref50 --deep
    """

    dataset: Dataset
    """Folder or URL of the dataset."""
    deep: bool = False
    """Also compare every row of records/ with the buckets that its sequences went to."""
    workers: Optional[int] = None  # noqa: UP045
    """Number of processes. Default: one for each core."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InspectOptions:
    """Show the summary of a dataset, one bucket with its sequences, or what became of one record.

    Example: thdpack inspect data/uniref50 --record UniRef50_P69905
    """

    dataset: Dataset
    """Folder or URL of the dataset."""
    split: str = "train"
    """Split that --bucket counts in."""
    bucket: Optional[int] = None  # noqa: UP045
    """Show this bucket of the split, counted from 0."""
    record: Optional[str] = None  # noqa: UP045
    """Show where the records with this id went, or why they were left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StatsOptions:
    """Report on a dataset or raw sequences: records, lengths, letters, buckets, padding, GPU-hours.

    A dataset is reported from its manifest and records/; its shards are not read. Raw sequences are
    read once, and their packing is predicted. Two inputs of either kind are compared.

    Example: thdpack stats data/uniref50 --html report.html

    Example: thdpack stats uniref50.fasta.gz --capacity 65536
    """

    inputs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="DATASET|INPUT", help=_STATS_INPUTS_HELP),
    ]
    json: Annotated[Optional[str], tyro.conf.arg(metavar="[FILE]")] = None  # noqa: UP045
    """Write the report as JSON to FILE. Without FILE, print it, and nothing else."""
    csv: Annotated[Optional[str], tyro.conf.arg(metavar="DIR")] = None  # noqa: UP045
    """Write each table as a CSV file into this folder."""
    html: Annotated[Optional[str], tyro.conf.arg(metavar="FILE")] = None  # noqa: UP045
    """Write one self-contained HTML page."""
    read_tokens: bool = False
    """Datasets on a local disk: also read all shards, count letters and buckets again, and fail if
    the manifest differs."""
    capacity: int = _BUILD_DEFAULTS["capacity"]
    """Raw sequences: tokens per bucket of the predicted build."""
    max_seq_len: int = _BUILD_DEFAULTS["max_seq_len"]
    """Raw sequences: longest sequence of the predicted build, in tokens."""
    long: Literal["truncate", "split", "drop"] = _BUILD_DEFAULTS["long"]
    """Raw sequences: what the predicted build does with longer records."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchReaderOptions:
    """Read a dataset as training would, and print tokens/s, latency per bucket and bytes read.

    Each bucket's tokens are copied into one buffer. Run the command twice: the second time, local
    files are in the page cache and remote shards in --cache-dir.

    Example: thdpack bench-reader s3://bucket/uniref50 --world-size 8 --seconds 30
    """

    dataset: Dataset
    """Folder or URL of the dataset."""
    split: str = "train"
    """Split to read."""
    seconds: float = 5.0
    """Seconds to read for."""
    seed: int = 0
    """Seed of the order."""
    rank: int = 0
    """Rank whose buckets are read."""
    world_size: int = 1
    """Number of ranks that share the dataset."""
    cache_dir: Optional[str] = None  # noqa: UP045
    """Folder for shards of a remote dataset. Default: $XDG_CACHE_HOME/thdpack. A local dataset is
    read in place."""
    cache_bytes: int = 32 << 30
    """Most bytes of shards in --cache-dir."""
    prefetch: int = 4
    """Shards to fetch, verify and map ahead of those in use."""
    log_json: bool = False
    """Print one JSON line instead of text."""


@dataclass(frozen=True, slots=True)
class TrainArguments:
    """Train an ESM-2. thdpack.py runs this subcommand; here it is an entry of `thdpack --help`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    """Predict a training run: memory, tokens/s, time and GPU-hours, and the fastest flags.

    Nothing is run.

    Example: thdpack plan --data data/uniref50 --model esm2-3b --gpus 8xH200
    """

    data: Annotated[str, tyro.conf.arg(metavar="DATASET")]
    """Folder or URL of the dataset."""
    model: Annotated[str, tyro.conf.arg(help=_MODEL_HELP)] = "esm2-650m"
    gpus: str = "8xH200"
    """Number and kind of GPUs: H200, or H100 with 80 GB."""
    precision: Literal["bf16", "fp8-delayed"] = "bf16"
    """Number format of matrix products."""
    tokens: int = 0
    """Tokens of the whole run. 0: those of the published run (1.05e12; 15B 1.57e12)."""
    log_json: bool = False
    """Print JSON instead of text."""
