"""Compare `thdpack embed` with a loop over padded batches of transformers, on this machine.

    python -m benchmarks.training.embed DATASET --preset esm2-650m --precisions bf16 fp8-current

The model has random weights. Two kinds of lines are printed:

- thdpack: the whole command, disk to disk, which reads the dataset DATASET and writes the mean of
  the last layer for each record. `tokens/s` counts from the first result to the end of the command.
  `with start` also includes imports, weights, and the first row, which compiles kernels.
- padded: plain transformers with SDPA: batches of sequences in stored order, padded to the longest
  of the batch or to `--pad-to` tokens; mean over residues, copied to the host. Only the forward
  passes and the pooling are timed. It runs for about `--seconds`, and its tokens/s counts real
  tokens only.

`--ranks N` runs thdpack on N GPUs of this machine. Ratios are those of one run of this benchmark.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.reader import ShardReader
from schemas.models import ESM2_MODELS
from schemas.vocabulary import ESM2
from trainer.config import ComputeOptions
from trainer.distributed.topology import single_process
from trainer.model import huggingface
from trainer.model.initialize import build, fill

_WARM_UP = 3
_WROTE = re.compile(r"\(([\d,]+) tokens, ([\d,]+) tokens/s")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("--preset", default="esm2-650m", choices=ESM2_MODELS)
    parser.add_argument("--precisions", nargs="+", default=["auto"])
    parser.add_argument("--row-tokens", type=int, nargs="+", default=[0])
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--padded", nargs="*", default=["bf16", "fp32"])
    parser.add_argument("--batch", type=int, default=32, help="records in a padded batch")
    parser.add_argument("--pad-to", type=int, nargs="+", default=[0, 1024])
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--json", help="file for the results")
    return parser.parse_args()


def main() -> None:
    asked = parsed()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        random_model(asked.preset, model)
        for round_ in range(asked.rounds):
            for precision in asked.precisions:
                for row_tokens in asked.row_tokens:
                    found = ours(asked, model, precision, row_tokens, Path(folder) / "out")
                    results.append({"round": round_, **found})
                    print(results[-1], flush=True)
        for dtype, pad_to in itertools.product(asked.padded, asked.pad_to):
            results.append(padded(asked, model, dtype, pad_to))
            print(results[-1], flush=True)
    if asked.json:
        Path(asked.json).write_text(json.dumps(results, indent=1))


def random_model(preset: str, folder: Path) -> None:
    """Write an EsmForMaskedLM with random weights."""
    options = ESM2_MODELS[preset]
    built = build(options, ComputeOptions(backend="torch", precision="fp32"))
    fill(built, {}, seed=0, topology=single_process(torch.device("cpu")))
    tensors = {name: tensor.detach() for name, tensor in built.named_tensors()}
    huggingface.export(folder, tensors, options, max_seq_len=1024)


def ours(
    asked: argparse.Namespace, model: Path, precision: str, row_tokens: int, out: Path
) -> dict[str, Any]:
    """Run `thdpack embed` and return its speed."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(asked.ranks)]
    launcher = torchrun if asked.ranks > 1 else []
    command = [sys.executable, *launcher, "-m", "thdpack", "embed", str(model), asked.dataset]
    options = ["--precision", precision, "--row-tokens", str(row_tokens), "--dtype", "fp16"]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, *options, "--out", str(out)], stdout=subprocess.PIPE, text=True, check=True
    )
    whole = time.perf_counter() - started
    match = _WROTE.search(done.stdout)
    assert match, done.stdout
    tokens, rate = (int(number.replace(",", "")) for number in match.groups())
    for path in out.iterdir():
        path.unlink()
    return {
        "what": "thdpack",
        "ranks": asked.ranks,
        "precision": precision,
        "row_tokens": row_tokens,
        "tokens": tokens,
        "tokens/s": rate,
        "with start": round(tokens / whole),
    }


def padded(asked: argparse.Namespace, model: Path, dtype: str, pad_to: int) -> dict[str, Any]:
    """Run transformers on padded batches for a while and return its speed."""
    from transformers import EsmModel

    kind = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loaded = EsmModel.from_pretrained(
        model, dtype=kind, attn_implementation="sdpa", add_pooling_layer=False
    )
    loaded = loaded.to(device).eval()
    tokens, began = 0, 0.0
    for number, batch in enumerate(batches(asked.dataset, asked.batch, pad_to)):
        if number == _WARM_UP:
            if device.type == "cuda":
                torch.cuda.synchronize()
            tokens, began = 0, time.perf_counter()
        with torch.inference_mode():
            ids = batch.to(device)
            mask = ids != ESM2.pad
            hidden = loaded(input_ids=ids, attention_mask=mask.long()).last_hidden_state
            residues = mask & (ids != ESM2.cls) & (ids != ESM2.eos)
            mean = (hidden * residues[..., None]).sum(1) / residues.sum(1, keepdim=True)
            mean.float().cpu()
        tokens += int((batch != ESM2.pad).sum())
        if number > _WARM_UP and time.perf_counter() - began > asked.seconds:
            break
    seconds = time.perf_counter() - began
    return {
        "what": "padded",
        "dtype": dtype,
        "batch": asked.batch,
        "pad to": pad_to,
        "tokens/s": round(tokens / seconds),
    }


def batches(dataset: str, size: int, pad_to: int) -> Iterator[torch.Tensor]:
    """Yield padded batches of the train split's sequences, int64[size, longest]."""
    held: list[np.ndarray[Any, Any]] = []
    with ShardReader(dataset, prefetch=0) as reader:
        while True:
            for number in range(len(reader)):
                bucket = reader[number]
                edges = bucket.cu_seqlens
                for index in range(bucket.num_seqs):
                    held.append(bucket.input_ids[edges[index] : edges[index + 1]])
                    if len(held) == size:
                        longest = max(pad_to, *(part.size for part in held))
                        batch = np.full((size, longest), ESM2.pad, dtype=np.int64)
                        for row, part in zip(batch, held, strict=True):
                            row[: part.size] = part
                        yield torch.from_numpy(batch)
                        held = []


if __name__ == "__main__":
    main()
