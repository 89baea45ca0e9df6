"""Where the speed comes from, in one run: a padded Hugging Face model, then one change a row, up to packed shards in a CUDA graph in FP8.

    python -m benchmarks.training.ablation DATASET --json ablation.json
    python -m benchmarks.training.ablation --from-json ablation.json --plot docs/images/ablation.svg     # needs matplotlib, and no GPU

DATASET has buckets of 16,384 tokens and sequences of at most 1,024; all rows train on its sequences, a bucket's worth of token slots a step.

hf-padded          EsmForMaskedLM, SDPA, bf16 autocast, fp32 weights, torch's fused AdamW, clipping. 16 sequences a step, padded to 1,024.
                   DataLoader workers tokenize (EsmTokenizer), pad, and mask (DataCollatorForLanguageModeling).
torch-bshd         The same workers and padded sequences; the trainer's own step, --backend torch.
te-bshd            The same with --backend te.
te-thd-online      The workers pack next-fit instead of padding; THD attention.
te-thd-shards      The trainer as it is: packed shards, rows from the reader. Nothing is left for workers to do.
te-thd-graph       The same in a CUDA graph. te-thd-graph-fp8: and with --precision fp8-delayed.

The trainer masks whatever rows it gets, on the device; from workers it takes the tokens as they were before they masked them, as recipes do. Each
variant warms up for longer than its workers are ahead. Unpadded tokens/s, specials included; GiB: the most that torch had allocated. A variant that
fails says why, the others go on, and the exit code is 1. About two minutes on an H200.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from pipeline.reader import ShardReader
from pipeline.storage.read_manifest import read_manifest
from schemas.vocabulary import ESM2
from trainer.config import PRESETS, TrainOptions
from trainer.distributed.topology import Parallel, processes
from trainer.feed import Row
from trainer.masking import IGNORED
from trainer.model.esm2 import NORM_EPSILON, Sequences
from trainer.setup import Run
from trainer.train import train_step

RATE: Final = 1e-5
SAMPLE: Final = 128
"""Buckets whose sequences workers get, again and again."""
Step = Callable[[], Tensor]
"""One optimizer step; returns its real tokens, on the device."""
Batch = dict[str, Tensor]
"""What workers make: input_ids and labels int64; counts int64[2], real tokens and Σ length²; padded: attention_mask int64, packed: cu_seqlens int32."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    label: str
    rows: Literal["padded", "packed", "shards"]
    backend: Literal["hugging face", "torch", "te"]
    precision: str = "auto"
    cuda_graph: bool = False


VARIANTS: Final = {
    "hf-padded": Variant(label="Hugging Face, padded", rows="padded", backend="hugging face"),
    "torch-bshd": Variant(label="torch layers, padded", rows="padded", backend="torch"),
    "te-bshd": Variant(label="TE layers, padded", rows="padded", backend="te"),
    "te-thd-online": Variant(label="TE, packed in workers", rows="packed", backend="te"),
    "te-thd-shards": Variant(label="TE, packed shards", rows="shards", backend="te"),
    "te-thd-graph": Variant(
        label="… in a CUDA graph", rows="shards", backend="te", cuda_graph=True
    ),
    "te-thd-graph-fp8": Variant(
        label="… in FP8", rows="shards", backend="te", cuda_graph=True, precision="fp8-delayed"
    ),
}


class NotAvailableError(Exception):
    """This machine does not have what a variant measures."""


@dataclass(kw_only=True)
class Result:
    """fill: real tokens over slots. speedup: over the first variant of the preset. note: why there are no figures."""

    preset: str
    variant: str
    tokens_per_second: float = 0.0
    ms: float = 0.0
    fill: float = 0.0
    gib: float = 0.0
    speedup: float = 0.0
    note: str = ""

    @property
    def failed(self) -> bool:
        return self.note.startswith("failed")

    def __str__(self) -> str:
        if self.note:
            return f"| {self.preset} | {self.variant} | {self.note.partition(chr(10))[0][:200]} | | | | |"
        times = f"{self.speedup:.1f}×" if self.speedup else ""
        return f"| {self.preset} | {self.variant} | {self.tokens_per_second:,.0f} | {times} | {self.ms:,.1f} | {self.fill:.1%} | {self.gib:.1f} |"


def sequences_of(dataset: str, buckets: int) -> list[str]:
    """The sequences, as letters, of the first buckets that a run reads."""
    with ShardReader(dataset, prefetch=0) as reader:
        return [
            "".join(ESM2.tokens[i] for i in bucket.input_ids[begin + 1 : end - 1].tolist())
            for bucket in itertools.islice(reader, min(buckets, len(reader)))
            for begin, end in itertools.pairwise(bucket.cu_seqlens[: bucket.num_seqs + 1].tolist())
        ]


class Texts(IterableDataset[Any]):
    """Endless examples of one worker, which takes every n-th sequence."""

    def __init__(
        self, texts: list[str], examples: Callable[[Iterator[str]], Iterator[Any]]
    ) -> None:
        self._texts, self._examples = texts, examples

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        return self._examples(
            itertools.cycle(self._texts[worker.id :: worker.num_workers] if worker else self._texts)
        )


class Recipe:
    """What public training recipes do in DataLoader workers at each step."""

    def __init__(self, *, slots: int, columns: int) -> None:
        """slots: tokens of a row, padding included. columns: tokens that a padded sequence takes; none is longer."""
        from transformers import DataCollatorForLanguageModeling, EsmTokenizer

        self._slots, self._columns = slots, columns
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "vocab.txt").write_text("\n".join(ESM2.tokens))
            self._tokenizer = EsmTokenizer(str(Path(folder) / "vocab.txt"))
        self._collator = DataCollatorForLanguageModeling(self._tokenizer, mlm_probability=0.15)

    def loader(
        self, texts: list[str], rows: str, *, workers: int, pinned: bool
    ) -> DataLoader[Batch]:
        """Batches of padded or packed rows; a worker that is stuck is an error after a minute."""
        form = {
            "num_workers": workers,
            "pin_memory": pinned,
            "timeout": 60 if workers else 0,
            "multiprocessing_context": "fork" if workers else None,
        }
        if rows == "padded":
            return DataLoader(
                Texts(texts, self._padded),
                batch_size=self._slots // self._columns,
                collate_fn=self._collated,
                **form,
            )
        return DataLoader(Texts(texts, self._packed), batch_size=None, **form)

    def _padded(self, texts: Iterator[str]) -> Iterator[Any]:
        for text in texts:
            yield self._tokenizer(
                text,
                truncation=True,
                max_length=self._columns,
                padding="max_length",
                return_special_tokens_mask=True,
            )

    def _collated(self, examples: list[Any]) -> Batch:
        batch = self._collator(examples)
        return {**batch, "counts": counted(batch["attention_mask"].sum(1))}

    def _packed(self, texts: Iterator[str]) -> Iterator[Batch]:
        """Next-fit: a row is closed by the first sequence that has no room in it."""
        row: list[list[int]] = []
        used = 0
        for text in texts:
            ids = self._tokenizer(text, truncation=True, max_length=self._columns)["input_ids"]
            if used + len(ids) > self._slots:
                yield self._flattened(row)
                row, used = [], 0
            row.append(ids)
            used += len(ids)

    def _flattened(self, row: list[list[int]]) -> Batch:
        """One row of all sequences and a tail of padding, shorter than the sequence that had no room."""
        lengths = torch.tensor([len(ids) for ids in row])
        used = int(lengths.sum())
        ids = torch.tensor(
            [*itertools.chain.from_iterable(row), *[ESM2.pad] * (self._slots - used)]
        )
        special = (ids == ESM2.cls) | (ids == ESM2.eos) | (ids == ESM2.pad)
        input_ids, labels = self._collator.torch_mask_tokens(
            ids[None], special_tokens_mask=special[None]
        )
        ends = torch.tensor(
            [0, *lengths.cumsum(0).tolist(), *([self._slots] if used < self._slots else [])],
            dtype=torch.int32,
        )
        return {
            "input_ids": input_ids,
            "labels": labels,
            "cu_seqlens": ends,
            "counts": counted(lengths),
        }


def counted(lengths: Tensor) -> Tensor:
    return torch.stack([lengths.sum(), (lengths**2).sum()])


def on_device(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    return (
        {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        for batch in batches
    )


def rows_of(batches: Iterator[Batch], columns: int) -> Iterator[Row]:
    """Batches as the trainer's rows, which it masks itself: what the workers hid is in the labels."""
    for batch in batches:
        input_ids = (
            torch.where(batch["labels"] == IGNORED, batch["input_ids"], batch["labels"])
            .to(torch.uint8)
            .view(-1)
        )
        mask = batch.get("attention_mask")
        sequences = (
            Sequences(batch["cu_seqlens"], columns)
            if mask is None
            else Sequences.padded(mask.sum(1), columns)
        )
        yield Row(
            input_ids=input_ids,
            sequences=sequences,
            positions=torch.zeros_like(batch["counts"][:1]),
            counts=batch["counts"],
        )


def hugging_face_step(
    options: TrainOptions, batches: Iterator[Batch], device: torch.device
) -> Step:
    from transformers import AutoModelForMaskedLM, EsmConfig

    shape, recipe = options.model, options.optimizer
    config = EsmConfig(
        vocab_size=len(ESM2), hidden_size=shape.hidden_size, intermediate_size=shape.ffn_size, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, mask_token_id=ESM2.id("<mask>"), pad_token_id=ESM2.pad, position_embedding_type="rotary", token_dropout=True,
        layer_norm_eps=NORM_EPSILON, emb_layer_norm_before=False, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    with device:
        model = AutoModelForMaskedLM.from_config(config, attn_implementation="sdpa").train()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=RATE,
        betas=(recipe.beta1, recipe.beta2),
        weight_decay=recipe.weight_decay,
        fused=True,
    )

    def step() -> Tensor:
        batch = next(batches)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                labels=batch["labels"],
            ).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        return batch["counts"][0]

    return step


def prepared(
    variant: Variant,
    options: TrainOptions,
    parallel: Parallel,
    batches: Callable[[str], Iterator[Batch]],
    stack: ExitStack,
) -> Step:
    """A variant's step.

    Args:
        batches: of padded or packed rows, from workers that are forked now: before a reader has threads.
    """
    device, rows = parallel.device, None
    if variant.backend == "hugging face":
        return hugging_face_step(options, on_device(batches("padded"), device), device)
    if variant.rows != "shards":
        rows = rows_of(
            on_device(batches(variant.rows), device), read_manifest(options.data.data).max_seq_len
        )
    compute = replace(
        options.compute,
        backend=variant.backend,
        precision=variant.precision,
        cuda_graph=variant.cuda_graph,
    )
    output = replace(options.output, out=stack.enter_context(tempfile.TemporaryDirectory()))
    run = Run(replace(options, compute=compute, output=output), parallel, stack)
    if variant.cuda_graph and run.not_captured:
        raise NotAvailableError(run.not_captured)
    return lambda: train_step(run, rows or run.feed, RATE)[1][2]


def forget(device: torch.device) -> None:
    """Free what the variant before had, as if this were a new process."""
    if "transformer_engine.pytorch" in sys.modules:
        from transformer_engine.pytorch.quantization import FP8GlobalStateManager

        FP8GlobalStateManager.reset()  # delayed scaling's list of all modules there ever were
    gc.collect()  # graphs and what they were captured from know each other
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def measure(
    result: Result, step: Step, arguments: argparse.Namespace, *, slots: int, device: torch.device
) -> None:
    """Blocks of steps until there were enough seconds of them. On a GPU, reading the tokens waits for it."""
    seconds, steps, total = 0.0, 0, 0.0
    for _ in range(arguments.warmup):
        float(step())
    while seconds < arguments.seconds:
        tokens = torch.zeros((), dtype=torch.float64, device=device)
        started = time.perf_counter()
        for _ in range(arguments.steps):
            tokens += step()
        total, steps = total + float(tokens), steps + arguments.steps
        seconds += time.perf_counter() - started
    result.tokens_per_second, result.ms, result.fill = (
        total / seconds,
        1e3 * seconds / steps,
        total / steps / slots,
    )
    result.gib = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0


def results(arguments: argparse.Namespace, parallel: Parallel) -> Iterator[Result]:
    manifest = read_manifest(arguments.dataset)
    slots, columns, device = manifest.capacity, manifest.max_seq_len, parallel.device
    texts = sequences_of(arguments.dataset, SAMPLE)
    load = partial(
        Recipe(slots=slots, columns=columns).loader,
        texts,
        workers=arguments.workers,
        pinned=device.type == "cuda",
    )
    for preset in arguments.presets:
        first: Result | None = None
        for name in arguments.variants:
            variant, result, options = (
                VARIANTS[name],
                Result(preset=preset, variant=name),
                PRESETS[preset][1],
            )
            if arguments.without_te and variant.backend == "te":
                variant = replace(variant, backend="torch")
            options = replace(
                options,
                data=replace(
                    options.data,
                    data=arguments.dataset,
                    buckets_per_step=1,
                    buckets_per_micro_batch=1,
                ),
            )
            forget(device)
            try:
                with ExitStack() as stack:
                    step = prepared(
                        variant, options, parallel, lambda rows: iter(load(rows)), stack
                    )
                    measure(result, step, arguments, slots=slots, device=device)
            except NotAvailableError as error:
                result.note = f"not available: {error}"
            except (
                Exception
            ) as error:  # whatever it is: the other variants go on, and this one's row says so
                result.note = f"failed: {type(error).__name__}: {error}"
            step = None
            first = first or result
            result.speedup = (
                result.tokens_per_second / first.tokens_per_second
                if first.tokens_per_second
                else 0.0
            )
            yield result


def draw(found: dict[str, Any], path: Path) -> None:
    """Tokens/s as bars, a panel for each preset."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"font.size": 9, "svg.hashsalt": "thdpack"})
    rows = [Result(**row) for row in found["results"]]
    presets, variants = (
        list(dict.fromkeys(row.preset for row in rows)),
        list(dict.fromkeys(row.variant for row in rows)),
    )
    size = (2 + 4 * len(presets), 0.8 + 0.36 * len(variants))
    figure, panels = plt.subplots(
        1,
        len(presets),
        figsize=size,
        sharey=True,
        squeeze=False,
        layout="constrained",
        facecolor="white",
    )
    for panel, preset in zip(panels[0], presets, strict=True):
        of_preset = {row.variant: row for row in rows if row.preset == preset}
        longest = max(row.tokens_per_second for row in of_preset.values()) or 1.0
        for place, name in enumerate(variants):
            row = of_preset.get(name, Result(preset=preset, variant=name, note="not measured"))
            panel.barh(
                place,
                row.tokens_per_second,
                height=0.66,
                color="#2f6f9f" if VARIANTS[name].rows == "shards" else "#b4bcc4",
            )
            label = (
                row.note.partition(":")[0] or f"{row.tokens_per_second:,.0f} · {row.gib:.1f} GiB"
            )
            panel.text(
                row.tokens_per_second + 0.02 * longest, place, label, va="center", color="#222222"
            )
        panel.set(
            title=preset,
            xlim=(0, 1.55 * longest),
            xticks=[],
            yticks=range(len(variants)),
            yticklabels=[VARIANTS[name].label for name in variants],
        )
        panel.tick_params(length=0)
        panel.spines[["top", "right", "bottom"]].set_visible(False)
    panels[0][0].invert_yaxis()
    figure.supxlabel(
        f"unpadded tokens/s · peak memory; {found['device']}, {found['slots']:,} token slots a step",
        fontsize=9,
        color="#555555",
    )
    figure.savefig(path, metadata={"Date": None})


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", nargs="?")
    parser.add_argument(
        "--presets", nargs="+", default=["esm2-8m", "esm2-650m"], choices=list(PRESETS)
    )
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--steps", type=int, default=20, help="steps of a timed block")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="of timed blocks, at least, for a variant"
    )
    parser.add_argument(
        "--warmup",
        type=int,
        default=20,
        help="steps before; more than the 2 batches that each worker has ahead",
    )
    parser.add_argument("--workers", type=int, default=8, help="of the DataLoader")
    parser.add_argument(
        "--without-te",
        action="store_true",
        help="backend torch in place of te, to try this where there is no GPU",
    )
    parser.add_argument("--json", type=Path, help="file for the results, written after each")
    parser.add_argument("--from-json", type=Path, help="results to draw, in place of a run")
    parser.add_argument("--plot", type=Path, help="file to draw --from-json into")
    arguments = parser.parse_args()
    if (arguments.plot is None) != (arguments.from_json is None) or (arguments.dataset is None) == (
        arguments.plot is None
    ):
        parser.error("either a DATASET, or --from-json and --plot")
    return arguments


def main() -> int:
    arguments = parsed()
    if arguments.plot:
        draw(json.loads(arguments.from_json.read_text()), arguments.plot)
        return 0
    done: list[Result] = []
    with processes() as parallel:
        device = torch.cuda.get_device_name() if parallel.device.type == "cuda" else "CPU"
        found = {
            "device": device,
            "torch": torch.__version__,
            "slots": read_manifest(arguments.dataset).capacity,
            "workers": arguments.workers,
        }
        for result in results(arguments, parallel):
            done.append(result)
            print(result, file=sys.stderr, flush=True)
            if arguments.json:
                arguments.json.write_text(
                    json.dumps({**found, "results": [asdict(row) for row in done]}, indent=1)
                )
    print(
        "| preset | variant | tokens/s | | ms a step | fill | GiB |\n|---|---|---|---|---|---|---|",
        *done,
        sep="\n",
    )
    return int(any(result.failed for result in done))


if __name__ == "__main__":
    sys.exit(main())
