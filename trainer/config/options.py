"""Options of a training run, by section: model, data, optimizer, compute, output."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from math import inf
from typing import Annotated, Any, Final, Literal

import tyro

from schemas.models import ModelOptions
from schemas.text.byte_size_option import ByteSize
from schemas.text.generation import parse_generation
from schemas.text.option_checks import (
    LOCAL_CACHE,
    LOCAL_OUT,
    LOCAL_WEIGHTS,
    check_local,
    check_range,
)
from schemas.text.redact import without_credentials
from trainer.config.auto import AUTO, AutoInt
from trainer.config.checks import check_whole, named_files
from trainer.config.compute_options import ComputeOptions

Schedule = Literal["linear", "cosine", "wsd"]
OptimizerName = Literal["adamw", "muon"]
MUON_RATE: Final = 4.0
"""Default learning rate of --optimizer muon, divided by the preset's. Source: the sweep in
docs/benchmarks.md."""
PUBLISHED_WARMUP: Final = 2_000
"""Number of warm-up steps in ESM-2's published training runs."""
ALIASES: Final = {
    "--lr": "--learning-rate",
    "--wd": "--weight-decay",
    "--max-steps": "--steps",
    "--output-dir": "--out",
}
"""Flags of other trainers that the trainer also accepts, each with our flag of the same meaning."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataOptions:
    """Dataset, batch and masks."""

    data: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="DATASET")
    ] = ()
    """Folder or URL of a dataset that `thdpack preprocess` wrote. Required. To mix several datasets
    in exact proportions, write --data A=0.7 --data B=0.3."""
    generation: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="N|latest")
    ] = ()
    """Generation of the dataset to read: latest, or a number or digest that `thdpack generations`
    prints. For a mixture, give one --generation for each --data, in the same order. Default: a new
    run reads the latest generation, and a resumed run keeps its generation."""
    reweight: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="STEP=WEIGHTS")
    ] = ()
    """Change of the mixing weights during the run. For example, --reweight 50000=0.5,0.5 gives each
    of two datasets the weight 0.5 after step 50,000. The weights are in the order of the --data
    options. For changes at several steps, repeat --reweight."""
    tokens_per_step: int = field(default=2_097_152, metadata={"units": True})
    """Number of tokens in the global batch, over all ranks, such as 500000 or 2M (2,000,000). The
    number is rounded so that each rank gets the same number of whole micro-batches.
    --buckets-per-step sets the batch exactly. The default is smaller on a CPU, and also if a step
    would be more than a tenth of an epoch."""
    tokens_given: tyro.conf.Suppress[bool] = True
    """True if the user chose --tokens-per-step. If False, a new run may use a smaller batch, and a
    resumed run keeps its own batch."""
    buckets_per_step: int = 0
    """Number of buckets in the global batch. 0: the number is computed from --tokens-per-step. A
    resumed run keeps its batch, on any number of ranks."""
    buckets_per_micro_batch: AutoInt = AUTO
    """Number of buckets in a micro-batch, which is one THD row (sequences packed one after the
    other). The gradients of a step's micro-batches are summed. On a CPU, auto means 1. On a GPU,
    auto chooses a fast number that fits into memory and divides the number of a rank's buckets."""
    seed: int = 0
    """Seed of initial weights, data order and masks."""
    mask_probability: float = 0.15
    """Share of residues that the model must predict. 80 % of them become <mask>, 10 % become a
    random standard residue, and 10 % stay unchanged."""
    cache_dir: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = ""
    """Folder on a local disk, to cache shards of a remote dataset. Default:
    $XDG_CACHE_HOME/thdpack, usually ~/.cache/thdpack, which may be on a network file system. A
    dataset at a local path is cached only if this option is given."""
    cache_bytes: ByteSize = 32 << 30
    """Maximum total size of the shards in --cache-dir, in bytes or for example 20G."""
    prefetch: int = 4
    """Number of shards to fetch, verify and memory-map in advance."""

    def __post_init__(self) -> None:
        check_whole(self)
        check_local("--cache-dir", self.cache_dir, LOCAL_CACHE)
        for generation in self.generation:
            parse_generation(generation, name="--generation")
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"--seed is {self.seed}, expected 0 ≤ seed < 2^63")
        if not 0.0 < self.mask_probability < 1.0:
            raise ValueError(f"--mask-probability is {self.mask_probability}, expected 0 < p < 1")
        check_range(self, "tokens_per_step", least=1)
        check_range(self, "buckets_per_step", least=0)
        if self.buckets_per_micro_batch != AUTO:
            check_range(self, "buckets_per_micro_batch", least=1)

    def micro_batches(self, data_ranks: int) -> int:
        """Return the number of micro-batches of one rank in a step.

        Args:
            data_ranks: number of ranks that read different buckets. A group of ranks that share
                buckets (context parallelism) counts once.
        """
        return self.buckets_per_step // (data_ranks * self.buckets_per_micro_batch)


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerOptions:
    """Optimizer and learning rate."""

    optimizer: OptimizerName = "adamw"
    """Optimizer of the matrices of layers. adamw: as in the published runs. muon: their updates are
    orthogonalized (NorMuon), and AdamW updates the other parameters."""
    steps: Annotated[int, tyro.conf.arg(aliases=("--max-steps",))] = field(
        default=500_000, metadata={"units": True}
    )
    """Number of optimizer steps in the run. By default, it is limited to 100 epochs of the dataset
    (20 epochs with --init-from). A resumed run keeps its number of steps, unless this option is
    given. With a larger number, even a finished run continues. The learning rate then follows the
    schedule of the larger number."""
    steps_given: tyro.conf.Suppress[bool] = True
    """True if the user or the trainer has chosen the number of steps. If False, a new run may have
    fewer steps, and a resumed run keeps its number of steps."""
    epochs: float = field(default=0.0, metadata={"example": 20})
    """Number of epochs in the run, such as 20 or 0.5, instead of --steps. The run has the smallest
    number of steps that reads this many epochs of the train split. 0: --steps decides."""
    learning_rate: Annotated[float, tyro.conf.arg(aliases=("--lr",))] = 4e-4
    """Peak learning rate. With --optimizer muon, the default is four times the preset's rate. A
    resumed run keeps its rate, unless this option is given."""
    rate_given: tyro.conf.Suppress[bool] = True
    """True if the user has chosen the learning rate."""
    schedule: Schedule = "linear"
    """Schedule of the learning rate after the warm-up: linear decay, cosine decay, or wsd (warm-up,
    stable, decay). With wsd, the learning rate stays at its peak, and decays linearly in the last
    part of the run (--decay-fraction)."""
    warmup_steps: AutoInt = AUTO
    """Number of steps in which the learning rate rises linearly from 0 to its peak. auto means
    2,000 steps in a new run, but at most a tenth of --steps. A resumed run keeps its warm-up."""
    final_fraction: float = 0.1
    """Final learning rate, as a share of the peak."""
    decay_until: float = 0.9
    """Share of the run at which the linear and cosine schedules reach the final learning rate."""
    decay_fraction: float = 0.1
    """Share of the run, at its end, in which the learning rate of the wsd schedule decays."""
    beta1: float = 0.9
    """AdamW's decay rate of the mean of gradients."""
    beta2: float = 0.98
    """AdamW's decay rate of the mean of squared gradients."""
    epsilon: float = 1e-8
    """Number that AdamW adds to the denominator, for numerical stability."""
    weight_decay: Annotated[float, tyro.conf.arg(aliases=("--wd",))] = 0.01
    """Weight decay, applied to matrices only, not to biases and norms."""
    clip_norm: float = 1.0
    """Maximum gradient norm. A gradient of a larger norm is scaled down to this norm."""
    max_bad_steps: int = 5
    """Stop the run after this many consecutive steps whose loss or gradient is not finite. Such
    steps are skipped: they do not change the weights."""

    def __post_init__(self) -> None:
        check_whole(self)
        check_range(self, "steps", "max_bad_steps", least=1)
        check_range(self, "learning_rate", "epsilon", above=0, below=inf)
        check_range(self, "weight_decay", least=0, below=inf)
        check_range(self, "beta1", "beta2", least=0, below=1)
        check_range(self, "clip_norm", above=0)
        check_range(self, "epochs", least=0, most=1_000_000)
        check_range(self, "decay_until", "decay_fraction", above=0, most=1)
        check_range(self, "final_fraction", least=0, most=1)
        if self.warmup_steps != AUTO:
            check_range(self, "warmup_steps", least=0)
        # with --epochs, the data decides the number of steps, which is set and checked later
        if not self.epochs and self.warmup_steps > self._longest_warmup:
            raise ValueError(
                f"--warmup-steps is {self.warmup_steps}, too long for a schedule of {self.steps} "
                f"steps: give --warmup-steps {self.steps // 10}, or more steps"
            )

    @property
    def _longest_warmup(self) -> float:
        """Maximum number of warm-up steps.

        It is the step at which the wsd schedule begins its decay, or at which the linear or cosine
        schedule ends its decay.
        """
        return self.steps * (
            1 - self.decay_fraction if self.schedule == "wsd" else self.decay_until
        )

    @property
    def warmup(self) -> int:
        """Number of steps of the warm-up, with `auto` resolved."""
        if self.warmup_steps != AUTO:
            return self.warmup_steps
        return min(PUBLISHED_WARMUP, self.steps // 10, int(self._longest_warmup))


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputOptions:
    """Checkpoints, validation, logs and measurements."""

    out: Annotated[str, tyro.conf.arg(aliases=("--output-dir",), metavar="FOLDER")] = ""
    """Folder of the run. If it holds a checkpoint, the same command resumes the run."""
    init_from: Annotated[str, tyro.conf.arg(metavar="FOLDER")] = ""
    """Folder of a Hugging Face EsmForMaskedLM model (config.json, model.safetensors) to start from.
    The preset, or the flags that set the shape, must give the shape of this model."""
    resume: Literal["auto", "never"] = "auto"
    """auto: resume from the last checkpoint in --out, if there is one. never: end with an error if
    --out has a checkpoint."""
    dry_run: bool = False
    """Check data, options and files, print the first lines of the run's output, and exit. The
    command then trains nothing, and does not create --out."""
    checkpoint_every: int = field(default=1_000, metadata={"units": True})
    """Number of steps between checkpoints. The run also writes a checkpoint after its last step. 0:
    only after the last step."""
    keep_last: int = 2
    """Number of latest checkpoints to keep, besides the one with the best validation loss."""
    validate_every: int = field(default=1_000, metadata={"units": True})
    """Number of steps between validations on the split of --valid-split. The run also validates
    after its last step. 0: only after the last step."""
    valid_split: Literal["valid", "test"] = "valid"
    """Split of the dataset that validations read. To evaluate a finished run on the test split,
    repeat its command with --valid-split test."""
    evaluate: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="NAME=FILE")
    ] = ()
    """Small set to score at each validation, and a name for its results, as in --evaluate
    gfp=gfp.csv. A .csv file is a table of mutants with ProteinGym's columns: the result is
    Spearman's correlation of wild-type marginals with DMS_score. Any other file is FASTA: the
    result is its perplexity, from one pass. For several sets, repeat --evaluate."""
    log_every: int = 10
    """Number of steps between lines of metrics. The run also writes a line for its last step, and
    for each step with a validation or a checkpoint."""
    tensorboard: bool = False
    """Also write metrics for TensorBoard, into the run's folder."""
    wandb_project: Annotated[str, tyro.conf.arg(metavar="PROJECT")] = ""
    """Also send metrics to this project of Weights & Biases."""
    peak_tflops: float = 0.0
    """Peak TFLOP/s of one device, to compute MFU (model FLOPs utilization). 0: the dense bf16 peak
    of the GPU. If thdpack does not know the GPU, MFU is then not computed."""
    profile: bool = False
    """Write a torch profiler trace to OUT/trace.json. It covers three steps: the 11th to the 13th
    after the start or resume."""
    tensor_statistics: int = 0
    """Number of steps between statistics of activations, gradients and weights inside the layers.
    0: no statistics. Only for --backend te. The run writes the statistics to OUT/statistics. To
    choose them, edit OUT/statistics/config.yaml, which the first start creates."""

    def __post_init__(self) -> None:
        check_whole(self)
        check_local("--out", self.out, LOCAL_OUT)
        check_local("--init-from", self.init_from, LOCAL_WEIGHTS)
        check_range(self, "checkpoint_every", "validate_every", "tensor_statistics", least=0)
        check_range(self, "keep_last", "log_every", least=1)
        named_files(self.evaluate)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainOptions:
    """Train an ESM-2 on a dataset that `thdpack preprocess` wrote.

    Examples: thdpack train esm2-8m --data data/uniref50
    torchrun --nproc-per-node 8 -m thdpack train esm2-650m --data s3://bucket/uniref50 --out
    runs/first
    """

    model: ModelOptions = field(default_factory=ModelOptions)
    data: DataOptions = field(default_factory=DataOptions)
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    compute: ComputeOptions = field(default_factory=ComputeOptions)
    output: OutputOptions = field(default_factory=OutputOptions)

    def public(self) -> TrainOptions:
        """Return the options without the credentials in URLs, for files and logs."""

        def cleaned(section: Any) -> Any:
            clean: dict[str, Any] = {}
            for name, value in asdict(section).items():
                if isinstance(value, str):
                    clean[name] = without_credentials(value)
                elif isinstance(value, tuple):
                    clean[name] = tuple(without_credentials(text) for text in value)
            return replace(section, **clean)

        return TrainOptions(
            **{section.name: cleaned(getattr(self, section.name)) for section in fields(self)}
        )

    def to_json(self) -> str:
        """Return the options as JSON, without credentials."""
        return json.dumps(asdict(self.public()), indent=1) + "\n"
