"""Hugging Face Trainer: train an ESM model on packed rows, save a checkpoint, and resume.

Shows:
- packed rows for a model of transformers: input_ids, position_ids, cu_seq_lens_q, cu_seq_lens_k,
  max_length_q and max_length_k. No token is wasted on padding.
- flash attention on a GPU that has it, and otherwise an attention function that reads cu_seq_lens_q
- a Trainer whose loader is not divided over the ranks again, and a callback that saves its state

    make preprocess                           # builds data/sample
    python examples/with_transformers.py [DATASET]
    torchrun --nproc-per-node 2 examples/with_transformers.py DATASET FOLDER_OF_CHECKPOINTS

transformers' own "sdpa" and "eager" ignore cu_seq_lens_q. For them, use the padded rows of `bshd`.
"""

import json
import sys
import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.data import DataLoader
from transformers import (
    AttentionInterface,
    EsmConfig,
    EsmForMaskedLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback
from transformers.utils import is_flash_attn_2_available

from pipeline.reader import MaskTokens, ShardDataset, hugging_face

STEPS, STOP = 8, 4
STATE = "dataset.json"


def packed_sdpa(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    scaling: float,
    cu_seq_lens_q: Tensor,
    **_: object,
) -> tuple[Tensor, None]:
    """Let each sequence of a packed row attend to itself, one sequence after another.

    Args:
        query, key, value: float[1, heads, tokens, head size]
        cu_seq_lens_q: int32[slots + 1], offsets of the sequences
    Returns:
        float[1, tokens, heads, head size], and None instead of attention weights.
    """
    attended = [
        scaled_dot_product_attention(
            query[:, :, a:b], key[:, :, a:b], value[:, :, a:b], scale=scaling
        )
        for a, b in pairwise(cu_seq_lens_q.unique().tolist())
    ]
    return torch.cat(attended, dim=2).transpose(1, 2), None


class BucketTrainer(Trainer):
    def get_train_dataloader(self) -> DataLoader:
        """Return a loader of our own: Trainer would divide the buckets over the ranks again."""
        return DataLoader(self.train_dataset, batch_size=None, num_workers=2)


class SaveDataset(TrainerCallback):
    """Save the dataset's state in each checkpoint, and print the losses."""

    def __init__(self, dataset: ShardDataset, first_step: int) -> None:
        self.dataset, self.first_step = dataset, first_step

    def on_save(self, args, state, control, **_) -> None:
        # A step reads one batch. With gradient_accumulation_steps=k, it reads k batches.
        saved = self.dataset.state_after(state.global_step - self.first_step)
        Path(args.output_dir, f"checkpoint-{state.global_step}", STATE).write_text(
            json.dumps(saved)
        )

    def on_log(self, args, state, control, logs, **_) -> None:
        if "loss" in logs:
            print(f"step {state.global_step}  loss {float(logs['loss']):.3f}", flush=True)


def train(dataset: str, folder: str, checkpoint: Path | None = None) -> list[float]:
    torch.manual_seed(0)
    flash = torch.cuda.is_available() and is_flash_attn_2_available()
    config = EsmConfig(
        vocab_size=33,
        pad_token_id=1,
        mask_token_id=32,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        position_embedding_type="rotary",
        # Token dropout rescales each row by its share of masks. A packed row is many sequences.
        token_dropout=False,
        attn_implementation="flash_attention_2" if flash else "packed_sdpa",
    )
    layout = partial(hugging_face, attn_implementation="flash_attention_2")
    data = ShardDataset(dataset, transform=MaskTokens(layout=layout))
    model, first_step = EsmForMaskedLM(config), 0
    if checkpoint:
        # Trainer of transformers 5.23 does not restore ESM's LayerNorm. from_pretrained does.
        model = EsmForMaskedLM.from_pretrained(checkpoint, config=config)
        data.load_state_dict(json.loads((checkpoint / STATE).read_text()))
        first_step = json.loads((checkpoint / "trainer_state.json").read_text())["global_step"]
    trainer = BucketTrainer(
        model,
        TrainingArguments(
            folder,
            max_steps=STEPS,  # a pass over the dataset is endless
            save_steps=STOP,
            logging_steps=1,
            learning_rate=0.01,
            lr_scheduler_type="constant",
            bf16=flash,
            ignore_data_skip=True,  # the dataset's state resumes at once
            use_cpu=not torch.cuda.is_available(),
            disable_tqdm=True,
            report_to="none",
        ),
        train_dataset=data,
        callbacks=[SaveDataset(data, first_step)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]


def main(dataset: str = "data/sample", folder: str = "") -> None:
    AttentionInterface.register("packed_sdpa", packed_sdpa)
    with tempfile.TemporaryDirectory() as temporary:
        folder = folder or temporary  # all ranks need the same folder
        losses = train(dataset, folder)
        print("resumed from the checkpoint")
        resumed = train(dataset, folder, Path(folder, f"checkpoint-{STOP}"))
    torch.testing.assert_close(resumed, losses, rtol=1e-4, atol=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
