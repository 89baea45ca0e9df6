"""Validation: loss, perplexity and accuracy on masked tokens of a whole split (--valid-split). The
masks are the same in all validations of all runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trainer.checkpoints.latest import KEPT
from trainer.checkpoints.run_state import BestValidation
from trainer.distributed.topology import Topology
from trainer.feed import RowCopier
from trainer.masking import Masker
from trainer.model.esm2 import Esm2
from trainer.readers.open_readers import Buckets

MASK_PROBABILITY: Final = 0.15
"""Share of residues to predict. This share does not depend on --mask-probability, so that runs are
comparable."""
MASK_SEED: Final = 0
"""Seed of the masks. This seed does not depend on --seed, so that runs with different seeds are
comparable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation:
    """Result of a validation.

    loss: mean loss over all masked tokens, in nats.
    accuracy: share of the masked tokens that the model predicts correctly.
    tokens: number of masked tokens.
    datasets: name and result of each dataset of a mixture; empty for one dataset.
    """

    loss: float
    accuracy: float
    tokens: int
    datasets: tuple[tuple[str, Validation], ...] = ()

    @classmethod
    def of(cls, sums: Tensor, datasets: tuple[tuple[str, Validation], ...] = ()) -> Self:
        """Return the result of a validation.

        Args:
            sums: float64[3]: sum of the losses, number of correct predictions, number of masked
                tokens.
        """
        loss, right, tokens = sums.tolist()
        return cls(
            loss=loss / max(tokens, 1),
            accuracy=right / max(tokens, 1),
            tokens=int(tokens),
            datasets=datasets,
        )

    @property
    def perplexity(self) -> float:
        return perplexity(self.loss)


def perplexity(loss: float) -> float:
    """Return exp(loss). The loss is limited to 700, so that the result fits in a float."""
    return math.exp(min(loss, 700.0))


@torch.no_grad()
def validate(
    model: Esm2,
    buckets: Buckets,
    masker: Masker,
    topology: Topology,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> Validation:
    """Validate on each bucket of the split once. Ranks take turns: bucket i belongs to data rank
    i mod data_ranks.

    Args:
        masker: Masker with MASK_SEED and MASK_PROBABILITY, whose `epoch_buckets` is the number of
            buckets in the split.
    """
    sums = torch.zeros(len(buckets.names), 3, dtype=torch.float64, device=topology.device)
    copier = RowCopier(topology.device)
    for first in range(0, len(buckets), topology.data_ranks):
        # All ranks must run the model equally often, because with FSDP2 each layer is gathered from
        # all ranks. In the last round, a rank without a bucket runs the last bucket and ignores the
        # result.
        number = min(first + topology.data_rank, len(buckets) - 1)
        copier.wait()
        row = copier.copy(buckets[number], np.array([number], dtype=np.int64))
        masked = masker(row.input_ids, row.positions)
        with autocast():
            logits = model(masked.input_ids, row.sequences, masked.index)
        found = masked.labels >= 0
        loss = F.cross_entropy(logits, masked.labels, reduction="sum")
        correct = ((logits.argmax(1) == masked.labels) & found).sum()
        if number == first + topology.data_rank:
            sums[buckets.dataset_of(number)] += torch.stack(
                [loss.double(), correct.double(), found.sum().double()]
            )
    sums = topology.sum_(sums).cpu()
    each = tuple(zip(buckets.names, map(Validation.of, sums), strict=True))
    return Validation.of(sums.sum(0), each if len(each) > 1 else ())


def no_model(step: int, best: BestValidation, latest: Path) -> str:
    """Return an error message about a run whose last validation has a loss that is not finite.

    Args:
        latest: path of the file that names the checkpoint to resume from.
    """
    remedy = (
        f"write the name of an earlier checkpoint into {latest} ({best.checkpoint} had the best "
        "validation) and resume"
        if best.checkpoint
        else "start again in another --out (no validation loss was finite)"
    )
    return (
        f"the loss of the last validation (step {step:,} or earlier) is not finite: "
        "the run is not complete and exports no model. "
        "metrics.jsonl shows the first step without a finite loss. To repair the run, "
        f"{remedy}, with a lower --learning-rate or with --precision bf16"
        f"{f'. {KEPT}' if best.checkpoint else ''}"
    )
