"""Options of a training run, by section: model, data, optimizer, compute, output."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from schemas.models import ModelOptions, Recompute
from schemas.redact import without_credentials

Backend = Literal["auto", "te", "torch"]
Precision = Literal[
    "auto", "fp32", "bf16", "fp8-delayed", "fp8-current", "fp8-block", "mxfp8", "nvfp4"
]
Schedule = Literal["linear", "cosine", "wsd"]
Reshard = Literal["auto", "layer", "micro-batch", "step"]


def flag(name: str) -> str:
    """Return the flag of an option, such as --keep-last of keep_last."""
    return f"--{name.replace('_', '-')}"


def _check_local(option: str, path: str) -> None:
    """Raises: ValueError, if a path is a URL, which would become the name of a local folder."""
    if "://" in path or "::" in path:
        raise ValueError(
            f"{option} is {without_credentials(path)}, a URL: it has to be a folder of a local or mounted file system; copy to or from a store"
        )


def _check_whole(section: Any) -> None:
    """Raises: ValueError, if a whole number does not fit into int64: floats and tensors could not hold it."""
    for option in fields(section):
        value = getattr(section, option.name)
        if isinstance(value, int) and abs(value) >= 1 << 63:
            raise ValueError(
                f"{option.name.replace('_', '-')} is {value}, expected a number below 2^63"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class DataOptions:
    """What is read, and how it is masked."""

    data: str = ""
    """Dataset: the folder or URL that `thdpack preprocess` made. Required."""
    tokens_per_step: int = 2_097_152
    """Tokens of the global batch, over all ranks. Rounded to whole buckets for each rank; --buckets-per-step states it exactly."""
    buckets_per_step: int = 0
    """Buckets of the global batch; 0: from --tokens-per-step. Stays as it is when a run goes on with other ranks."""
    buckets_per_micro_batch: int = 1
    """Buckets that one rank merges into one THD row; gradients of micro-batches add up to the step's."""
    seed: int = 0
    """Of the initial weights, the order and the masks."""
    mask_probability: float = 0.15
    """Share of residues to predict: 80 % of them become <mask>, 10 % a random standard residue, 10 % stay."""
    cache_dir: str = ""
    """Folder on a local disk for shards of a remote dataset. Default: $XDG_CACHE_HOME/thdpack; none for a local dataset."""
    cache_bytes: int = 32 << 30
    """Limit of all shards in --cache-dir."""
    prefetch: int = 4
    """Shards to fetch, verify and map ahead of those in use."""

    def __post_init__(self) -> None:
        _check_whole(self)
        _check_local("cache-dir", self.cache_dir)
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed is {self.seed}, expected 0 ≤ seed < 2^63")
        if not 0.0 < self.mask_probability < 1.0:
            raise ValueError(f"mask-probability is {self.mask_probability}, expected 0 < p < 1")
        if (
            self.buckets_per_micro_batch < 1
            or self.buckets_per_step < 0
            or self.tokens_per_step < 1
        ):
            raise ValueError(
                "tokens-per-step and buckets-per-micro-batch are at least 1, buckets-per-step at least 0"
            )

    def micro_batches(self, data_ranks: int) -> int:
        """Return the micro-batches of one rank in a step. data_ranks: ranks that read buckets of their own."""
        return self.buckets_per_step // (data_ranks * self.buckets_per_micro_batch)


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerOptions:
    """AdamW and the learning rate."""

    steps: int = 500_000
    """Optimizer steps of the run."""
    learning_rate: float = 4e-4
    """Its peak."""
    schedule: Schedule = "linear"
    """After the warm-up: linear or cosine decay, or warmup-stable-decay (the peak until the last --decay-fraction of the run)."""
    warmup_steps: int = 2_000
    """Steps of linear rise from 0."""
    final_fraction: float = 0.1
    """The learning rate's end, as a share of its peak."""
    decay_until: float = 0.9
    """Share of the run at which linear and cosine reach that end."""
    decay_fraction: float = 0.1
    """Share of the run in which wsd decays."""
    beta1: float = 0.9
    """Of AdamW."""
    beta2: float = 0.98
    """Of AdamW."""
    epsilon: float = 1e-8
    """Of AdamW."""
    weight_decay: float = 0.01
    """Of matrices; vectors (biases, norms) have none."""
    clip_norm: float = 1.0
    """Gradients longer than this are scaled down to it."""
    max_bad_steps: int = 5
    """A step whose loss or gradient is not finite is skipped; the run stops at the line of metrics that finds so many in a row."""

    def __post_init__(self) -> None:
        _check_whole(self)
        if (
            self.steps < 1
            or self.warmup_steps < 0
            or self.clip_norm <= 0
            or self.learning_rate <= 0
            or self.max_bad_steps < 1
        ):
            raise ValueError(
                "steps, max-bad-steps, clip-norm and learning-rate are above 0, warmup-steps at least 0"
            )
        if not (
            0 < self.decay_until <= 1
            and 0 < self.decay_fraction <= 1
            and 0 <= self.final_fraction <= 1
        ):
            raise ValueError("decay-until, decay-fraction and final-fraction are shares, at most 1")
        if self.warmup_steps > self.steps * (
            1 - self.decay_fraction if self.schedule == "wsd" else self.decay_until
        ):
            raise ValueError(
                f"warmup-steps is {self.warmup_steps}, too long for a schedule of {self.steps} steps: lower it, or raise steps"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeOptions:
    """How it is computed. Nothing here changes what is trained, beyond rounding."""

    backend: Backend = "auto"
    """te: Transformer Engine on NVIDIA GPUs; torch: anywhere. auto: te where there is a GPU and Transformer Engine."""
    precision: Precision = "auto"
    """auto: bf16 on a GPU, fp32 on a CPU. fp8-* need backend te, mxfp8 and nvfp4 a Blackwell GPU too; weights and Adam's state stay fp32 everywhere."""
    precision_layers: str = "all"
    """Layers whose matrix products run in an fp8-*, mxfp8 or nvfp4 precision; the others run in bf16. all, inner:N (all but the first N and the last N),
    or numbers from 0, such as 2-30 or 0,4,8-20."""
    quantized_init: bool = False
    """Keep the weights of those layers in FP8 only, beside their fp32 masters: less memory, and no cast in each forward pass. One process only, for now."""
    recompute: Recompute = "none"
    """Activations to compute again in the backward pass instead of keeping them: none, selective (the feed-forward part), full (all but layers' inputs)."""
    cuda_graph: bool = False
    """Capture the step in a CUDA graph and replay it: no launch cost. Falls back with a reason where it cannot be used."""
    compile: bool = False
    """Compile layers with torch.compile; backend torch only: backend te's layers consist of fused kernels already."""
    replicate: int = 1
    """Copies of the parameters (HSDP): each is sharded over world size / replicate neighbouring ranks, say those of one node. 1: one, over all ranks (FSDP)."""
    context_parallel: int = 1
    """Neighbouring ranks that share each bucket: a slice of its tokens each and, for attention, some of the heads. For sequences too long for one GPU."""
    reshard: Reshard = "auto"
    """When ranks let go of the parameters that they gathered, and add up gradients: after each layer (least memory), each micro-batch, or each step (least
    traffic; 6 bytes a parameter more). auto: each step if that takes at most a quarter of a GPU's memory and fits, else each layer."""
    gather_ahead: int = 1
    """Layers whose parameters are on their way while one computes."""
    timeout_minutes: float = 10.0
    """Longest that ranks wait for one that does not answer; then the run ends and says which."""

    def __post_init__(self) -> None:
        _check_whole(self)
        if (
            min(self.replicate, self.context_parallel, self.gather_ahead) < 1
            or self.timeout_minutes <= 0
        ):
            raise ValueError(
                "replicate, context-parallel and gather-ahead are at least 1, timeout-minutes above 0"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputOptions:
    """What is kept and shown."""

    out: str = ""
    """Folder of the run. The same command goes on where it stopped."""
    init_from: str = ""
    """Folder of a Hugging Face EsmForMaskedLM (config.json, model.safetensors) to start from; its shape replaces the preset's."""
    resume: Literal["auto", "never"] = "auto"
    """auto: go on from the run's last checkpoint, if there is one; never: refuse to, if there is one."""
    checkpoint_every: int = 1_000
    """Steps between checkpoints; one more is written at the end. 0: only that one."""
    keep_last: int = 2
    """Checkpoints to keep, beside the one with the best validation loss."""
    validate_every: int = 1_000
    """Steps between passes over the dataset's valid split; one more at the end. 0: only that one."""
    log_every: int = 10
    """Steps between lines of metrics."""
    tensorboard: bool = False
    """Also write metrics for TensorBoard into the run's folder."""
    wandb_project: str = ""
    """Also send metrics to this project of Weights & Biases."""
    peak_tflops: float = 0.0
    """Peak of one device, to state model FLOP/s utilization against; 0: the dense bf16 figure of known GPUs, none on CPUs."""
    profile: bool = False
    """Write a torch profiler trace of three steps (the 11th to the 13th of this start) to OUT/trace.json."""
    tensor_statistics: int = 0
    """Steps between statistics of activations, gradients and weights inside the layers (backend te), in OUT/statistics; 0: none. OUT/statistics/config.yaml
    is written once, and used as it is from then on."""

    def __post_init__(self) -> None:
        _check_whole(self)
        _check_local("out", self.out)
        _check_local("init-from", self.init_from)
        if (
            min(self.checkpoint_every, self.validate_every, self.tensor_statistics) < 0
            or min(self.keep_last, self.log_every) < 1
        ):
            raise ValueError(
                "checkpoint-every, validate-every and tensor-statistics are at least 0, keep-last and log-every at least 1"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainOptions:
    """Train an ESM-2 on a dataset that `thdpack preprocess` made.

    Examples: python -m trainer.train esm2-8m --data data/uniref50
    torchrun --nproc-per-node 8 -m trainer.train esm2-650m --data s3://bucket/uniref50 --out runs/first
    """

    model: ModelOptions = field(default_factory=ModelOptions)
    data: DataOptions = field(default_factory=DataOptions)
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    compute: ComputeOptions = field(default_factory=ComputeOptions)
    output: OutputOptions = field(default_factory=OutputOptions)

    def public(self) -> TrainOptions:
        """Return the options as they may be written and shown: without credentials."""

        def cleaned(section: Any) -> Any:
            texts = {
                name: value for name, value in asdict(section).items() if isinstance(value, str)
            }
            return replace(
                section, **{name: without_credentials(text) for name, text in texts.items()}
            )

        return TrainOptions(
            **{section.name: cleaned(getattr(self, section.name)) for section in fields(self)}
        )

    def to_json(self) -> str:
        """Without credentials."""
        return json.dumps(asdict(self.public()), indent=1) + "\n"
