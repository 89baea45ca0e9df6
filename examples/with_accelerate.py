"""Accelerate: train, save the whole state, and resume with the next bucket.

Shows:
- that the loader is not given to `accelerator.prepare`, because ShardDataset already divides the
  buckets over the ranks
- `register_for_checkpointing(loader)`, which puts the loader's state into Accelerate's checkpoints

    make preprocess                           # builds data/sample
    python examples/with_accelerate.py [DATASET]
    torchrun --nproc-per-node 2 examples/with_accelerate.py DATASET FOLDER_OF_CHECKPOINTS
"""

import sys
import tempfile
from collections.abc import Iterator
from itertools import islice

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from tiny_model import TinyModel
from torchdata.stateful_dataloader import StatefulDataLoader

from pipeline.reader import MaskTokens, ShardDataset, bshd

STEPS, STOP = 8, 4


def main(dataset: str = "data/sample", folder: str = "") -> None:
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    model = TinyModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    # The dataset gets its rank and world_size from torch.distributed, which Accelerate initializes.
    data = ShardDataset(dataset, transform=MaskTokens(layout=bshd))
    loader = StatefulDataLoader(data, batch_size=None, num_workers=2)
    accelerator.register_for_checkpointing(loader)

    def train(batches: Iterator, first: int, last: int) -> list[float]:
        losses = []
        for step, batch in enumerate(islice(batches, last - first), start=first):
            loss = model(**send_to_device(batch, accelerator.device))
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(accelerator.reduce(loss.detach(), "mean").item())
            accelerator.print(f"step {step}  loss {losses[-1]:.3f}")
        return losses

    with tempfile.TemporaryDirectory() as temporary:
        folder = folder or temporary  # all ranks need the same folder
        batches = iter(loader)  # keep it: another iter(loader) would begin at the first bucket
        train(batches, 0, STOP)
        accelerator.save_state(folder)
        expected = train(batches, STOP, STEPS)
        accelerator.print("resumed from the checkpoint")
        accelerator.load_state(folder)
        resumed = train(iter(loader), STOP, STEPS)
    torch.testing.assert_close(resumed, expected, rtol=1e-4, atol=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
