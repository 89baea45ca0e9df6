"""Optimizer step of each variant."""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from benchmarks.training.ablation.variants import Variant
from benchmarks.training.ablation.workers import Batch
from pipeline.storage.read_manifest import read_manifest
from schemas.vocabulary import ESM2
from trainer.config import TrainOptions
from trainer.distributed.topology import Topology
from trainer.feed import Row
from trainer.masking import IGNORED
from trainer.model.esm2 import NORM_EPSILON, SequenceLayout
from trainer.run import TrainingRun
from trainer.train import train_step

RATE: Final = 1e-5
Step = Callable[[], Tensor]
"""Function that runs one optimizer step and returns its number of real tokens, as a tensor on the
device."""


class NotAvailableError(Exception):
    """This machine cannot run the variant."""


def on_device(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    return (
        {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        for batch in batches
    )


def rows_of(batches: Iterator[Batch], columns: int) -> Iterator[Row]:
    """Convert batches to the trainer's rows.

    The trainer's step masks rows, so tokens that workers have masked are restored from the labels.
    """
    for batch in batches:
        input_ids = (
            torch.where(batch["labels"] == IGNORED, batch["input_ids"], batch["labels"])
            .to(torch.uint8)
            .view(-1)
        )
        mask = batch.get("attention_mask")
        sequences = (
            SequenceLayout(batch["cu_seqlens"], columns)
            if mask is None
            else SequenceLayout.padded(mask.sum(1), columns)
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
        vocab_size=len(ESM2),
        hidden_size=shape.hidden_size,
        intermediate_size=shape.ffn_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        mask_token_id=ESM2.id("<mask>"),
        pad_token_id=ESM2.pad,
        position_embedding_type="rotary",
        token_dropout=True,
        layer_norm_eps=NORM_EPSILON,
        emb_layer_norm_before=False,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
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
    topology: Topology,
    batches: Callable[[str], Iterator[Batch]],
    stack: ExitStack,
) -> Step:
    """Return the step of a variant.

    Args:
        batches: function that forks workers and returns their batches. Its argument is the form of
            the rows, `padded` or `packed`. Forks are unsafe once a reader has started threads, so
            `prepared` calls this function first.
    """
    device, rows = topology.device, None
    if variant.backend == "hugging face":
        return hugging_face_step(options, on_device(batches("padded"), device), device)
    if variant.rows != "shards":
        longest = read_manifest(options.data.data[0]).max_seq_len
        rows = rows_of(on_device(batches(variant.rows), device), longest)
    compute = replace(
        options.compute,
        backend=variant.backend,
        precision=variant.precision,
        cuda_graph="auto" if variant.cuda_graph else "off",
    )
    output = replace(options.output, out=stack.enter_context(tempfile.TemporaryDirectory()))
    run = TrainingRun(replace(options, compute=compute, output=output), topology, stack)
    if variant.cuda_graph and run.options.compute.cuda_graph == "off":
        raise NotAvailableError(run.start.not_captured or "there is no NVIDIA GPU")
    return lambda: train_step(run, rows or run.feed, RATE)[1][2]


def forget(device: torch.device) -> None:
    """Free the memory of the previous variant."""
    if "transformer_engine.pytorch" in sys.modules:
        from transformer_engine.pytorch.quantization import FP8GlobalStateManager

        # without this reset, delayed scaling keeps the modules of all previous variants in memory
        FP8GlobalStateManager.reset()
    gc.collect()  # a CUDA graph and its model form a reference cycle
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
