"""Lightning: train, save a checkpoint, and resume with the next bucket.

Shows:
- a data module whose state is `ShardDataset.state_after`, which Lightning saves in checkpoints
- max_steps, because a pass over the training data is endless
- validation with epochs=1: each validation reads the split valid once

    make preprocess                           # builds data/sample
    python examples/with_lightning.py [DATASET]
"""

import sys
import tempfile
from pathlib import Path

import lightning.pytorch as pl
import torch
from tiny_model import TinyModel
from torch.utils.data import DataLoader

from pipeline.reader import MaskTokens, ShardDataset, bshd

STEPS, STOP = 8, 4


class Buckets(pl.LightningDataModule):
    def __init__(self, dataset: str) -> None:
        super().__init__()
        # Lightning initializes torch.distributed later. The dataset asks for its rank even later.
        self.train = ShardDataset(dataset, transform=MaskTokens(layout=bshd))
        self.valid = ShardDataset(dataset, "valid", epochs=1, transform=MaskTokens(layout=bshd))
        self.first_step = 0

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=None, num_workers=2)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.valid, batch_size=None)

    def state_dict(self) -> dict:
        step = self.trainer.global_step
        # A step reads one batch. With accumulate_grad_batches=k, it reads k batches.
        return {"step": step, "data": self.train.state_after(step - self.first_step)}

    def load_state_dict(self, state: dict) -> None:
        self.first_step = state["step"]
        self.train.load_state_dict(state["data"])


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = TinyModel()
        self.losses: list[float] = []

    def training_step(self, batch: dict, step: int) -> torch.Tensor:
        loss = self.model(**batch)
        self.losses.append(loss.item())
        print(f"step {self.global_step}  loss {loss.item():.3f}", flush=True)
        return loss

    # Some ranks may have no bucket of the split valid. Ranks therefore communicate after the pass:
    # self.log(…, sync_dist=True) in validation_step would wait for them forever.
    def on_validation_epoch_start(self) -> None:
        self.sum_and_count = torch.zeros(2, device=self.device)

    def validation_step(self, batch: dict, step: int) -> None:
        loss = self.model(**batch)
        self.sum_and_count += torch.stack([loss, torch.ones_like(loss)])

    def on_validation_epoch_end(self) -> None:
        total, count = self.trainer.strategy.reduce(self.sum_and_count, reduce_op="sum")
        self.log("valid_loss", total / count)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def fit(dataset: str, folder: str, steps: int, checkpoint: Path | None = None) -> list[float]:
    model = Model()
    save = pl.callbacks.ModelCheckpoint(folder, "{step}", every_n_train_steps=STOP, save_top_k=-1)
    trainer = pl.Trainer(
        max_steps=steps,
        val_check_interval=STOP,
        num_sanity_val_steps=0,
        callbacks=[save],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=Buckets(dataset), ckpt_path=checkpoint, weights_only=True)
    print(f"validation loss {trainer.callback_metrics['valid_loss'].item():.3f}")
    return model.losses


def main(dataset: str = "data/sample") -> None:
    with tempfile.TemporaryDirectory() as folder:
        losses = fit(dataset, folder, STEPS)
        print("resumed from the checkpoint")
        resumed = fit(dataset, folder, STEPS, Path(folder, f"step={STOP}.ckpt"))
    torch.testing.assert_close(resumed, losses[STOP:], rtol=1e-4, atol=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
