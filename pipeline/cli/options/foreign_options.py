"""Options of other programs, and the advice that the error for each of them prints."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from pipeline.build.append.options import AppendOptions
from pipeline.build.options import DatasetOptions
from pipeline.cli.options.build_options import NOT_PLANNED
from schemas.text.option_checks import flag

_WORKERS: Final = ("--num-workers", "--num-proc", "--threads", "-j")
_BUILD_OTHERS: Final = {
    **dict.fromkeys(("--output", "--output-dir", "--out-dir", "--outdir", "-o"), "use --out"),
    "--force": "use --overwrite",
    "--min-length": "use --min-residues",
    **dict.fromkeys(("--input", "--inputs", "-i"), "inputs need no option: write their names"),
    **dict.fromkeys(("--max-length", "--max-seq-length"), "use --max-seq-len"),
    **dict.fromkeys(_WORKERS, "use --workers"),
    **dict.fromkeys(
        ("--valid-fraction", "--val-fraction", "--valid-split", "--validation-split"),
        "use --split train=0.99,valid=0.01, with the share of each split",
    ),
    **dict.fromkeys(
        ("--test-fraction", "--test-split", "--splits"),
        "use --split train=0.98,valid=0.01,test=0.01, with the share of each split",
    ),
    "--valid": "use --split, as in --split valid=0.05",
    "--test": "use --split, as in --split valid=0.05,test=0.05",
    "--filter": "use --where, with an SQL expression, as in --where 'length >= 50'",
    **dict.fromkeys(("--bucket-size", "--tokens-per-bucket", "--batch-tokens"), "use --capacity"),
}
_TAKEN: Final = {field.name for field in fields(AppendOptions)}
_KEPT: Final = {
    flag(field.name): "a dataset keeps its build's values"
    for field in fields(DatasetOptions)
    if field.name not in _TAKEN
}
_OUT: Final = ("--out", "--output", "-o")
FOREIGN_OPTIONS: Final[dict[str, dict[str, str]]] = {
    "preprocess": _BUILD_OTHERS,
    "plan-tasks": {
        **_BUILD_OTHERS,
        **NOT_PLANNED,
        **dict.fromkeys(_WORKERS, NOT_PLANNED["--workers"]),
    },
    "stats": dict.fromkeys(
        ("--output", "--out", "-o"), "use --html FILE, --json FILE or --csv FOLDER"
    ),
    "append": {
        **_KEPT,
        **dict.fromkeys(_OUT, "the dataset is the first argument, before the inputs"),
    },
    "compact": {
        **_KEPT,
        **dict.fromkeys(
            _OUT,
            "the dataset is rewritten in place. To keep it as it is, copy its folder, as in "
            "`cp -r DATASET COPY` (on S3: `aws s3 cp --recursive DATASET COPY`), and compact the "
            "copy",
        ),
    },
    "watch": {"--http-port": "use --port", "--http-host": "use --host"},
    "card": {
        **dict.fromkeys(("--output", "--output-dir", "--outdir", "-o"), "use --out"),
        "--force": "use --overwrite",
    },
    "plan": {
        "--dataset": "use --data",
        "--log-json": "use --json",
        "--preset": "use --model",
        "--num-gpus": "use --gpus, as in --gpus 8xH200",
        **dict.fromkeys(
            ("--nodes", "--nnodes", "--num-nodes"),
            "use --gpus, as in --gpus 4x2xH200 for 4 nodes with 2 GPUs each",
        ),
        "--steps": "use --tokens, the number of steps × the number of tokens of a step; a plan "
        "prints both",
    },
}
"""For each subcommand: options of other programs, and the advice that an error prints."""
