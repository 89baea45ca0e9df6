"""Plain PyTorch: train, stop, and resume with the next bucket.

Shows:
- ShardDataset in torchdata's StatefulDataLoader, with two workers that lay out and mask the buckets
- a checkpoint that resumes with the same number of workers, or with another one
- that the resumed runs have the same losses as a run without a stop

    make preprocess                           # builds data/sample
    python examples/plain_pytorch.py [DATASET]
"""

import sys
import tempfile
from itertools import islice
from pathlib import Path

import torch
from tiny_model import TinyModel
from torchdata.stateful_dataloader import StatefulDataLoader

from pipeline.reader import MaskTokens, ShardDataset, bshd

STEPS, STOP = 8, 4


class Run:
    """A model, its optimizer, and its data."""

    def __init__(self, dataset: str, workers: int) -> None:
        self.model = TinyModel()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        # On several ranks, rank and world_size come from torch.distributed.
        self.dataset = ShardDataset(dataset, transform=MaskTokens(layout=bshd))
        # batch_size=None means that a bucket is a batch.
        self.loader = StatefulDataLoader(self.dataset, batch_size=None, num_workers=workers)
        self.first_step = 0

    def train(self, last: int) -> list[float]:
        losses = []
        batches = islice(self.loader, last - self.first_step)
        for step, batch in enumerate(batches, start=self.first_step):
            loss = self.model(**batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
            print(f"step {step}  loss {loss.item():.3f}", flush=True)
        return losses

    def save(self, path: Path, steps: int) -> None:
        checkpoint = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "steps": steps,
            # for any numbers of workers and ranks; counts from the last load
            "dataset": self.dataset.state_after(steps - self.first_step),
            # for the same number of workers; nothing to count
            "loader": self.loader.state_dict(),
            "workers": self.loader.num_workers,
        }
        torch.save(checkpoint, path)

    def load(self, path: Path) -> None:
        checkpoint = torch.load(path)
        self.model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.first_step = checkpoint["steps"]
        self.dataset.load_state_dict(checkpoint["dataset"])
        # One of the two states is enough. Here, both begin with the same bucket.
        if checkpoint["workers"] == self.loader.num_workers:
            self.loader.load_state_dict(checkpoint["loader"])


def main(dataset: str = "data/sample") -> None:
    print("without a stop")
    expected = Run(dataset, workers=2).train(STEPS)

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder, "checkpoint.pt")
        print(f"stopped after {STOP} steps")
        stopped = Run(dataset, workers=2)
        stopped.train(STOP)
        stopped.save(checkpoint, STOP)

        for workers in (2, 0):
            print(f"resumed with {workers} workers")
            resumed = Run(dataset, workers)
            resumed.load(checkpoint)
            losses = resumed.train(STEPS)
            torch.testing.assert_close(losses, expected[STOP:], rtol=1e-4, atol=0)
    print("the resumed runs have the same losses")


if __name__ == "__main__":
    main(*sys.argv[1:])
