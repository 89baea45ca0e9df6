"""Options of each subcommand. Docstrings of these dataclasses and fields are the help texts.

The dataclasses check the values, as far as this is possible without reading a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, Optional

import tyro

from pipeline.build.options import PreprocessOptions
from schemas.models import ESM2_MODELS
from schemas.text.byte_size_option import ByteSize
from schemas.text.generation import LATEST, parse_generation
from schemas.text.option_checks import LOCAL_CACHE, check_local, check_range

_MODEL_HELP = f"Preset: {', '.join(ESM2_MODELS)}."


GenerationName = Annotated[str, tyro.conf.arg(metavar="N|latest")]
Dataset = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]


@dataclass(frozen=True, slots=True)
class PlanTasksOptions:
    """Options of the build to plan."""

    preprocess: PreprocessOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTaskOptions:
    """Run one task of a planned build, or the tasks of one element of an array job.

    Tasks that are already finished are skipped.

    Example: thdpack run-task data/uniref50 --stage map --index $SLURM_ARRAY_TASK_ID
    --array-size $SLURM_ARRAY_TASK_COUNT
    """

    dataset: Dataset
    """Folder or URL of the dataset, as given to plan-tasks as --out."""
    index: int
    """Index of the task among the tasks of --stage, counted from 0. Without --stage, it is the
    index among the tasks of all stages."""
    stage: Optional[Literal["map", "link", "draw", "reduce"]] = None  # noqa: UP045 (see DatasetOptions)
    """Stage of the task. All tasks of a stage must finish before the next stage starts. The stage
    `link` has tasks only with --clusters or --sample-clusters, and `draw` only with
    --sample-clusters."""
    array_size: Optional[int] = None  # noqa: UP045
    """Number of elements of the array job, which may be less than the number of tasks. The command
    then runs the tasks index, index + array-size, index + 2 × array-size, … of the stage."""
    plan: Optional[str] = None  # noqa: UP045
    """Digest of the plan, which plan-tasks printed. The command fails if the plan of the dataset
    has been replaced by another."""
    log_json: bool = False
    """Print one JSON object per line instead of text."""

    def __post_init__(self) -> None:
        check_range(self, "index", least=0)
        if self.array_size is not None:
            check_range(self, "array_size", least=1)
        if self.array_size is not None and self.stage is None:
            raise ValueError(
                "--array-size needs --stage: an array job runs the tasks of one stage, because "
                "reduce tasks must wait for all map tasks"
            )
        if self.array_size is not None and not self.index < self.array_size:
            expected = f"expected less than --array-size {self.array_size}"
            raise ValueError(f"--index is {self.index}, {expected}")


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitOptions:
    """Finish a planned build: pack left-over sequences, verify all files, write the manifest.

    All tasks of the plan must have finished.

    Example: thdpack commit data/uniref50
    """

    dataset: Dataset
    """Folder or URL of the dataset, as given to plan-tasks as --out."""
    workers: Optional[int] = None  # noqa: UP045
    """Number of processes. Default: one for each core."""
    plan: Optional[str] = None  # noqa: UP045
    """Digest of the plan, which plan-tasks printed. The command fails if the plan of the dataset
    has been replaced by another."""
    log_json: bool = False
    """Print one JSON object per line instead of text."""

    def __post_init__(self) -> None:
        if self.workers is not None:
            check_range(self, "workers", least=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyOptions:
    """Check every file of a dataset against its manifest, and every bucket against the format.

    The command prints one line for each problem. If there are problems, the exit code is 1.

    Example: thdpack verify data/uniref50 --deep
    """

    dataset: Dataset
    """Folder or URL of the dataset."""
    deep: bool = False
    """Also compare every row of records/ with the buckets that hold its sequences."""
    workers: Optional[int] = None  # noqa: UP045
    """Number of processes. Default: one for each core."""
    generation: GenerationName = LATEST
    """Generation to check: latest, or a number or digest that `thdpack generations` prints."""
    json: bool = False
    """Print one JSON object instead of text."""

    def __post_init__(self) -> None:
        parse_generation(self.generation, name="--generation")
        if self.workers is not None:
            check_range(self, "workers", least=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class InspectOptions:
    """Show the summary of a dataset, one bucket with its sequences, or the status of one record.

    Example: thdpack inspect data/uniref50 --record P69905
    """

    dataset: Dataset
    """Folder or URL of the dataset."""
    split: Optional[Literal["train", "valid", "test"]] = None  # noqa: UP045
    """Split of the bucket that --bucket names. Default: train."""
    bucket: Optional[int] = None  # noqa: UP045
    """Index of the bucket to show, from 0."""
    record: Optional[str] = None  # noqa: UP045
    """Id, accession, entry name or ordinal of the records to show. For each kept record, the
    command prints its shard and row. For any other record, it prints why the record was left
    out."""
    generation: GenerationName = LATEST
    """Generation to show: latest, or a number or digest that `thdpack generations` prints."""

    def __post_init__(self) -> None:
        parse_generation(self.generation, name="--generation")
        if self.bucket is not None and self.record is not None:
            raise ValueError("--bucket and --record show different things: give only one of these")
        if self.bucket is not None:
            check_range(self, "bucket", least=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchReaderOptions:
    """Read a dataset in training order; print tokens/s, latency per bucket and bytes read.

    The command copies the tokens of each bucket into the same buffer. Run the command twice: in the
    second run, local files are in the page cache, and remote shards are in --cache-dir.

    Example: thdpack bench-reader s3://bucket/uniref50 --world-size 8 --seconds 30
    """

    dataset: Dataset
    """Folder or URL of the dataset."""
    split: Literal["train", "valid", "test"] = "train"
    """Split to read."""
    seconds: float = field(default=5.0, metadata={"span": True})
    """Duration of the measurement in seconds."""
    seed: int = 0
    """Seed of the training order."""
    rank: int = 0
    """Rank whose buckets are read."""
    world_size: int = 1
    """Number of ranks that share the dataset."""
    cache_dir: Optional[str] = None  # noqa: UP045
    """Folder on a local disk, to cache shards of a remote dataset. Default:
    $XDG_CACHE_HOME/thdpack. A dataset at a local path is cached only if this option is given."""
    cache_bytes: ByteSize = 32 << 30
    """Maximum total size of the shards in --cache-dir, in bytes or for example 20G."""
    prefetch: int = 4
    """Number of shards to fetch, verify and memory-map in advance."""
    generation: GenerationName = LATEST
    """Generation to read: latest, or a number or digest that `thdpack generations` prints."""
    log_json: bool = False
    """Print one JSON line instead of text."""

    def __post_init__(self) -> None:
        parse_generation(self.generation, name="--generation")
        check_range(self, "seconds", above=0)
        check_range(self, "world_size", least=1)
        check_range(self, "rank", least=0)
        if self.rank >= self.world_size:
            raise ValueError(
                f"--rank is {self.rank}, expected less than --world-size, which is "
                f"{self.world_size}"
            )
        check_range(self, "seed", "prefetch", least=0)
        check_local("--cache-dir", self.cache_dir or "", LOCAL_CACHE)


@dataclass(frozen=True, slots=True)
class TrainArguments:
    """Train an ESM-2. This class only adds a line to `thdpack --help`; thdpack.py runs `train`."""


@dataclass(frozen=True, slots=True)
class EmbedArguments:
    """Compute embeddings. This class only adds a line to `thdpack --help`, as TrainArguments."""


@dataclass(frozen=True, slots=True)
class ScoreArguments:
    """Score sequences. This class only adds a line to `thdpack --help`, as TrainArguments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    """Predict a training run: memory, tokens/s, time and GPU-hours, and the fastest flags.

    The command only computes: it starts no training.

    Example: thdpack plan --data data/uniref50 --model esm2-3b --gpus 8xH200
    """

    data: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="DATASET")
    ] = ()
    """Folder or URL of the dataset. Required. For a mixture, write --data A=0.7 --data B=0.3, as
    for `thdpack train`."""
    model: Annotated[str, tyro.conf.arg(help=_MODEL_HELP)] = "esm2-650m"
    gpus: Optional[str] = None  # noqa: UP045
    """Number and kind of GPUs. Default: 8xH200. The kind is H200 or H100 (80 GB). More than
    eight GPUs are divided among nodes of at most eight. For other nodes, give three parts: 4x2xH200
    is four nodes with two GPUs each."""
    precision: Literal["bf16", "fp8-delayed"] = "bf16"
    """Number format of matrix products."""
    tokens: int = field(default=0, metadata={"example": "100B", "units": True})
    """Number of tokens of the whole run, such as 100B (K, M, B and T are powers of 1,000) or 1e11.
    With 0, the plan is for 500,000 steps, as in the published ESM-2 runs, but for at most 100
    epochs of the dataset. `thdpack train` without --steps trains the same number of steps (with
    --init-from, at most 20 epochs)."""
    json: bool = False
    """Print one JSON object instead of text."""

    def __post_init__(self) -> None:
        check_range(self, "tokens", least=0)
