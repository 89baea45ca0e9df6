"""Options of other trainers, and advice on what to use instead.

docs/coming-from.md explains the names of BioNeMo and MosaicML Streaming. A test compares that page
with this table.
"""

from __future__ import annotations

from typing import Final

_BATCH: Final = (
    "a step is counted in tokens or buckets, over all ranks: use --tokens-per-step or "
    "--buckets-per-step"
)
_ACCUMULATION: Final = (
    "computed from --buckets-per-micro-batch and the batch over all ranks (--tokens-per-step or "
    "--buckets-per-step)"
)
_LENGTH: Final = "the dataset determines this: use --max-seq-len of thdpack preprocess"
_LAYERS: Final = "use --precision-layers, which counts layers from 0"
_SHUFFLED: Final = "always on: the build shuffles all sequences, and the reader shuffles each epoch"
_PRECISION: Final = "use --precision bf16, or another precision that --help lists"
_RANKS: Final = "use torchrun --nproc-per-node N -m thdpack train …"
_THREADS: Final = (
    "torch chooses the number of threads: to change it, set the environment variable "
    "OMP_NUM_THREADS, as in OMP_NUM_THREADS=2 thdpack train …"
)
_RETRIES: Final = "not needed: the reader retries, with increasing pauses"

OTHERS_OF_TORCHRUN: Final = dict.fromkeys(
    (
        "--max-restarts",
        "--nproc-per-node",
        "--nnodes",
        "--node-rank",
        "--standalone",
        "--rdzv-backend",
        "--rdzv-endpoint",
        "--rdzv-id",
        "--shutdown-timeout",
        "--signals-to-handle",
    ),
    "an option of torchrun: write it before -m",
)
OTHERS: Final = {
    # other trainers
    **dict.fromkeys(("--per-device-train-batch-size", "--global-batch-size"), _BATCH),
    **dict.fromkeys(("--batch-tokens", "--tokens-per-batch"), "use --tokens-per-step"),
    **dict.fromkeys(("--nodes", "--num-nodes"), "use torchrun --nnodes N …, before -m"),
    "--gradient-accumulation-steps": _ACCUMULATION,
    **dict.fromkeys(("--num-train-epochs", "--max-epochs"), "use --epochs"),
    **dict.fromkeys(("--num-steps", "--train-steps"), "use --steps"),
    "--bf16": "use --precision bf16",
    "--fp16": "use --precision bf16, whose numbers have the range of fp32",
    "--fp8": "use --precision fp8-delayed, or another precision that --help lists",
    **dict.fromkeys(("--dtype", "--torch-dtype", "--mixed-precision"), _PRECISION),
    **dict.fromkeys(("--fsdp", "--fsdp2"), "use --shard full"),
    "--ddp": "use --shard none",
    **dict.fromkeys(
        ("--deepspeed", "--zero-stage"),
        "use --shard optimizer, or --shard full to divide the parameters, too",
    ),
    **dict.fromkeys(("--gpus", "--num-gpus", "--devices"), _RANKS),
    **OTHERS_OF_TORCHRUN,
    "--gradient-checkpointing": "use --recompute full",
    "--max-grad-norm": "use --clip-norm",
    "--lr-scheduler-type": "use --schedule",
    **dict.fromkeys(("--save-steps", "--save-every", "--save-interval"), "use --checkpoint-every"),
    "--save-total-limit": "use --keep-last",
    "--eval-steps": "use --validate-every",
    **dict.fromkeys(("--logging-steps", "--log-interval"), "use --log-every"),
    "--device": "not needed: each process uses one GPU if there is one; to use the CPU, set "
    "CUDA_VISIBLE_DEVICES to an empty value",
    **dict.fromkeys(("--threads", "--num-threads", "--cpus"), _THREADS),
    "--output": "use --out",
    "--dataset": "use --data",
    "--model": "the preset is the first word, before all options",
    "--max-seq-len": _LENGTH,
    **{
        f"--{name}": f"the dataset determines this: use --{name} of thdpack preprocess"
        for name in ("capacity", "variants")
    },
    # BioNeMo
    "--config-name-or-path": "the preset is the first word; use --init-from for weights",
    "--config-name": "there are no configuration files: the preset is the first word",
    "--load-dataset-kwargs": "run thdpack preprocess once, then use --data DATASET",
    "--use-sequence-packing": "always on: `thdpack preprocess` packs the buckets",
    "--micro-batch-size": "use --buckets-per-micro-batch",
    "--grad-acc-steps": _ACCUMULATION,
    "--max-seq-length": _LENGTH,
    "--mlm-probability": "use --mask-probability",
    "--num-workers": "not needed: the reader maps finished buckets into memory; --prefetch is the "
    "number of shards to fetch ahead",
    "--use-stateful-dataloader": "always on: a checkpoint holds the reader's position",
    "--num-train-steps": "use --steps",
    "--adamw-kwargs": "use --learning-rate, --beta1, --beta2, --epsilon, --weight-decay",
    "--lr-scheduler-kwargs": "use --warmup-steps, --schedule, --final-fraction, --decay-until",
    "--use-te": "use --backend te for use_te=true, and --backend torch for use_te=false",
    "--fp8-config": "use --precision fp8-delayed, fp8-current, fp8-block or mxfp8",
    "--fp4-config": "use --precision nvfp4",
    "--fp8-layers": _LAYERS,
    "--fp4-layers": _LAYERS,
    "--use-fp32-master-weights": "always on",
    "--cp-size": "use --context-parallel",
    "--use-torch-compile": "use --compile (only with --backend torch)",
    "--ckpt-dir": "use --out",
    "--save-every-n-steps": "use --checkpoint-every",
    "--max-checkpoints": "use --keep-last",
    "--resume-from-checkpoint": "use --resume auto, which is the default: the same command resumes",
    "--save-final-model": "always on: a run ends with the folder `export` in --out",
    "--async-save": "always on",
    "--frequency": "use --log-every",
    "--wandb-init-args": "use --wandb-project",
    "--quant-stats-config": "use --tensor-statistics",
    # MosaicML Streaming
    "--remote": "use --data",
    "--local": "use --cache-dir; without it, a local dataset is read in place",
    "--split": "not needed: training reads the split `train`; --valid-split names the split for "
    "validation",
    "--cache-limit": "use --cache-bytes",
    "--predownload": "use --prefetch, the number of shards to fetch ahead",
    "--batch-size": _BATCH,
    **dict.fromkeys(("--shuffle", "--shuffle-algo", "--shuffle-block-size"), _SHUFFLED),
    "--shuffle-seed": "use --seed",
    "--num-canonical-nodes": "not needed: the order never depends on the number of ranks",
    "--validate-hash": "always on: the reader compares the hash of each shard",
    **dict.fromkeys(("--download-retry", "--download-timeout"), _RETRIES),
    "--keep-zip": "not needed: shards in the cache are identical to those of the dataset",
    **dict.fromkeys(
        ("--streams", "--proportion", "--repeat", "--choose"), "use --data A=0.7 --data B=0.3"
    ),
    "--epoch-size": "an epoch reads the train split once; a run is counted in steps: use --steps",
    "--replication": "use --context-parallel",
}
